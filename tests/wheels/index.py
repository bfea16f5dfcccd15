"""A package index of wheels made here, from which uv and pip install without a network."""

from __future__ import annotations

import ensurepip
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tbtui.wheels.filling import Filling, find_uv
from tbtui.wheels.requests import PackageRequests

# A stand-in for pytest with one program: it runs the file it is given, and fails as that does.
CHECKER = {
    "checker.py": (
        "import runpy, sys\n\n\n"
        "def main():\n    runpy.run_path(sys.argv[1])\n    print('checked')\n"
    )
}


def make_wheel(
    directory: Path,
    name: str,
    version: str,
    files: dict[str, str | bytes],
    *,
    requires: str | None = None,
    program: str | None = None,
) -> Path:
    """A wheel with these files; `program` is `name=module:function`."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    written: dict[str, str | bytes] = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if program:
        written[f"{info}/entry_points.txt"] = f"[console_scripts]\n{program}\n"
    record = "".join(f"{path},,\n" for path in [*written, f"{info}/RECORD"])
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, content in {**written, f"{info}/RECORD": record}.items():
            archive.writestr(inner, content)
    return path


def make_index(directory: Path) -> Path:
    """What a fill asks for at least (pip as Python brings it, uv itself), and `checker`."""
    bundled = Path(ensurepip.__file__).parent / "_bundled"
    directory.mkdir(parents=True)
    for wheel in bundled.glob("pip-*.whl"):
        shutil.copy(wheel, directory)
    make_wheel(
        directory,
        "uv",
        "1.0",
        {
            f"uv-1.0.data/scripts/{name}": find_uv().resolve().with_name(name).read_bytes()
            for name in ("uv", "uvx")
        },
    )
    make_wheel(directory, "setuptools", "80.0", {})
    make_wheel(directory, "wheel", "0.45", {})
    for version in ("1.0", "2.0"):
        make_wheel(
            directory,
            "checker",
            version,
            {**CHECKER},
            requires="helper",
            program="checker=checker:main",
        )
    make_wheel(directory, "helper", "3.0", {"helper.py": "VALUE = 3\n"})
    return directory


def use_index(index: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """This process's uv and pip know this index alone; the wheel cache lies below `home`."""
    for name, value in (
        ("XDG_CACHE_HOME", str(home)),
        ("UV_FIND_LINKS", str(index)),
        ("UV_NO_INDEX", "1"),
        ("UV_OFFLINE", "1"),
        ("UV_NO_CONFIG", "1"),
        ("UV_PYTHON_DOWNLOADS", "never"),
        ("PIP_NO_INDEX", "1"),
        ("PIP_FIND_LINKS", str(index)),
        ("PIP_CONFIG_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(name, value)


async def fill(
    root: Path, asked: PackageRequests, *given: str, skip: tuple[str, ...] = ()
) -> Filling:
    """A finished fill; its `result` is what came of it."""
    filling = Filling(root, find_uv(), lambda progress: None, skip=skip)
    await filling.fill(asked, given)
    return filling


def wheel_names(root: Path) -> set[str]:
    """`name-version` of each wheel in the cache."""
    names = (path.name for path in (root / "shown" / "wheels").iterdir())
    return {re.sub(r"-(py|cp)3.*", "", name) for name in names}
