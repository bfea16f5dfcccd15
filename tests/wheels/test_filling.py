"""The cache is filled by the real uv and pip, from an index of this machine."""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
from pathlib import Path

import pytest

from tbtui.wheels.cache import WheelCacheError, open_cache
from tbtui.wheels.filling import Filled
from tbtui.wheels.interpreters import box_python
from tbtui.wheels.requests import PackageRequests, Request
from tests.wheels.index import fill, make_wheel, wheel_names

pytestmark = pytest.mark.uid

TOOLS = {"setuptools-80.0", "wheel-0.45", "uv-1.0"}
OURS = f"{sys.version_info.major}.{sys.version_info.minor}"


def _asked(*requirements: str, python: str | None = None) -> PackageRequests:
    pythons = {python} if python else set()
    return PackageRequests({Request(requirements, python, python is not None)}, pythons)


@pytest.mark.slow
def test_what_is_asked_for_is_there_with_what_it_needs(
    first: tuple[Path, Filled], filled: Path
) -> None:
    names = wheel_names(filled)
    assert names >= TOOLS | {"checker-1.0", "helper-3.0"}
    assert "checker-2.0" not in names
    assert first[1].fetched == first[1].wheels == len(names)
    cache = open_cache()
    assert cache is not None
    assert (cache.shown / "bin/uv").is_file()
    assert any(wheel.startswith("pip-") for wheel in cache.wheels)


@pytest.mark.slow
def test_no_address_and_no_password_is_kept(first: tuple[Path, Filled]) -> None:
    root, result = first
    (problem,) = result.problems
    assert "missing-xyz" in problem
    assert "hunter2" not in problem
    kept = (root / "manifest.json").read_text()
    assert "hunter2" not in kept
    assert "127.0.0.1" not in kept


@pytest.mark.slow
async def test_a_second_fill_asks_nobody(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = wheel_names(filled)
    monkeypatch.setenv("UV_FIND_LINKS", "/nowhere")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    result = (await fill(filled, _asked("checker==1.0"))).result
    assert (result.fetched, result.problems) == (0, [])
    assert wheel_names(filled) == before


@pytest.mark.slow
async def test_what_cannot_be_had_is_one_line_and_the_rest_is_had(filled: Path) -> None:
    asked = _asked("no-such-package-xyz==1")
    asked.add(_asked("checker==2.0"))
    asked.add(_asked("helper", python="3.5"))
    result = (await fill(filled, asked)).result
    assert [line.partition(":")[0] for line in result.problems] == [
        "Python 3.5",
        f"no-such-package-xyz==1 for Python {box_python()}",
    ]
    assert "no-such-package-xyz" in result.problems[1].partition(": ")[2]
    assert all("\n" not in line for line in result.problems)
    assert "checker-2.0" in wheel_names(filled)


@pytest.mark.slow
async def test_nothing_is_built_here(filled: Path, index: Path, tmp_path: Path) -> None:
    """A source distribution would run its code on the host."""
    source = tmp_path / "evil-1.0"
    source.mkdir()
    (source / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    archive = index / "evil-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(source, "evil-1.0")
    try:
        result = (await fill(filled, _asked("evil"))).result
    finally:
        archive.unlink()
    assert len(result.problems) == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
async def test_packages_can_be_left_out_with_what_needs_them(filled: Path) -> None:
    result = (await fill(filled, _asked("checker"), skip=("Helper",))).result
    assert result.problems == [f"checker for Python {box_python()}: left out, for it needs helper"]
    assert "checker-2.0" not in wheel_names(filled)


@pytest.mark.slow
async def test_a_file_that_is_not_the_one_that_was_fetched(filled: Path) -> None:
    wheel = next((filled / "shown" / "wheels").glob("checker-*"))
    content = wheel.read_bytes()
    wheel.write_bytes(content[:-1] + b"x")
    with pytest.raises(WheelCacheError, match=r"checker-1\.0.*prefetch"):
        open_cache()
    (filled / "shown" / "wheels" / "added.whl").write_bytes(b"")
    assert (await fill(filled, _asked("checker==1.0"))).result.problems == []
    assert wheel.read_bytes() == content
    assert not (filled / "shown" / "wheels" / "added.whl").exists()
    assert open_cache() is not None


def test_without_a_cache_there_is_none(root: Path) -> None:
    assert open_cache() is None


def test_a_cut_off_manifest_says_so(root: Path) -> None:
    root.mkdir(parents=True)
    (root / "manifest.json").write_text('{"format": 1, "fil')
    with pytest.raises(WheelCacheError, match=r"manifest\.json.*delete"):
        open_cache()


@pytest.mark.slow
async def test_an_interpreter_runs_without_its_original(filled: Path) -> None:
    """This one is not below /usr, where a box would see it; its pip works."""
    if sys.base_prefix.startswith("/usr"):
        pytest.skip("boxes see this interpreter")
    executable = str(Path(sys.base_prefix) / "bin" / f"python{OURS}")
    result = (await fill(filled, PackageRequests(), executable)).result
    assert result.problems == []
    assert result.pythons == [OURS]
    cache = open_cache()
    assert cache is not None
    copied = cache.python(OURS)
    assert copied is not None
    script = "import json, pip, sys; print(json.dumps([sys.prefix, pip.__file__, *sys.path]))"
    process = await asyncio.create_subprocess_exec(
        *(copied / "bin" / "python", "-I", "-B", "-c", script), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert all(path.startswith(str(copied)) for path in json.loads(output))
    assert open_cache() is not None


@pytest.mark.slow
async def test_one_wheel_for_each_python_that_needs_it(filled: Path, index: Path) -> None:
    make_wheel(index, "both", "1.0", {})
    asked = _asked("both", python=OURS)
    asked.add(_asked("both"))
    await fill(filled, asked)
    assert "both-1.0" in wheel_names(filled)
