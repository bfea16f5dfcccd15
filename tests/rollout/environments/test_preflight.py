"""What is said, in one line and before the first trial, of an environment that can't work."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
from harbor.environments.base import BaseEnvironment

from tbtui.rollout.environments.base import EnvironmentUnavailable, ExtraMissing
from tbtui.rollout.environments.choose import (
    DOCKER_IMPORT_PATH,
    SANDBOX_IMPORT_PATH,
    choose_environment,
)
from tbtui.rollout.environments.kinds import (
    extra_of,
    harbor_class,
    harbor_kinds,
    missing_import,
    require_extra,
)
from tbtui.rollout.environments.preflight import arguments, preflight

BROKEN = """
from harbor.environments.base import BaseEnvironment

class Half(BaseEnvironment):
    @staticmethod
    def type():
        return "half"

class Whole(Half):
    def __init__(self, *args, size: int = 1, **kwargs):
        self.colour = kwargs.pop("colour", "red")
        super().__init__(*args, **kwargs)
    def _validate_definition(self): ...
    async def start(self, force_build): ...
    async def stop(self, delete): ...
    async def exec(self, command, **options): ...
    async def upload_file(self, source_path, target_path): ...
    async def upload_dir(self, source_dir, target_dir): ...
    async def download_file(self, source_path, target_path): ...
    async def download_dir(self, source_dir, target_dir): ...

class Keyless(Whole):
    @classmethod
    def preflight(cls):
        raise SystemExit("Keyless requires SOME_KEY to be set. \\nPlease set it and try again.")

class Buggy(Whole):
    @classmethod
    def preflight(cls):
        raise ValueError("no idea")

class Other: ...
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in a directory that PYTHONPATH names, as people have it."""
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(BROKEN)
    (tmp_path / f"{name}_needy.py").write_text("import nowhere_to_be_found\n")
    (tmp_path / f"{name}_typo.py").write_text("class Whole(:\n")
    (tmp_path / f"{name}_undefined.py").write_text("class Whole(Base): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


def refusal(environment_type: str, **kwargs: Any) -> str:
    with pytest.raises(EnvironmentUnavailable) as caught:
        choose_environment(environment_type, kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_class_of_ones_own(mine: str) -> None:
    choice = choose_environment(f"{mine}:Whole", {"size": 3, "colour": "blue"})
    assert (choice.name, choice.import_path, choice.type) == ("Whole", f"{mine}:Whole", None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("no_such_module:Whole", "no module no_such_module: install it, or put the directory"),
        ("MINE_needy:Whole", "No module named 'nowhere_to_be_found'"),
        ("MINE_typo:Whole", "importing MINE_typo fails: invalid syntax"),
        ("MINE_undefined:Whole", "importing MINE_undefined fails: NameError: name 'Base'"),
        ("MINE:Whol", "has no Whol: did you mean Whole?"),
        ("MINE:Other", "Other is no environment: derive it from"),
        ("MINE:Half", "Half is not complete: write its _validate_definition, download_dir"),
        ("MINE:Keyless", "SOME_KEY to be set: set it"),
        ("MINE:Buggy", "Buggy.preflight() fails with ValueError: no idea"),
        (":Whole", "not of the form module:Class"),
        ("mine.py:Whole.x", "not of the form module:Class"),
        ("modall", "did you mean modal?"),
        ("zzz", "apple-container"),
    ],
)
def test_one_line_each(mine: str, given: str, says: str) -> None:
    assert says.replace("MINE", mine) in refusal(given.replace("MINE", mine))


@pytest.mark.linux
def test_unknown_arguments_are_refused_by_name(mine: str) -> None:
    assert "environment_kwargs.colur: Whole takes no such argument: did you mean colour?" in (
        refusal(f"{mine}:Whole", colur="blue")
    )
    assert "it takes backend" in refusal("sandbox", zz=1)
    assert "leave it out" in refusal("sandbox", session_id="x")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("visible", "/data", "visible=/data: should be a list of absolute paths"),
        ("visible", ["data"], "should be a list of absolute paths"),
        ("visible", ["/", "/nonexistent"], "visible: /nonexistent does not exist on this host"),
        ("backend", "chroot", "backend=chroot: should be namespaces or bubblewrap"),
        ("processes", "many", "processes=many: should be a whole number of 1 or more"),
        ("download_mb", -1, "download_mb=-1: should be a whole number of 1 or more"),
        ("cpu_seconds", True, "cpu_seconds=True: should be a whole number of 1 or more"),
    ],
)
@pytest.mark.linux
def test_unusable_values_are_refused(name: str, value: Any, says: str) -> None:
    refused = refusal("sandbox", **{name: value})
    assert refused.startswith(f"environment_kwargs.{name}")
    assert says in refused


def test_unusable_values_for_an_engine_are_refused() -> None:
    for given, says in (
        ({"trust_compose": "yes"}, "trust_compose=yes: should be true or false"),
        ({"default_network": "host"}, "default_network=host: should be none or public"),
        ({"memory_mb": 0}, "memory_mb=0: should be a whole number of 1 or more"),
    ):
        with pytest.raises(EnvironmentUnavailable, match=f"environment_kwargs.{says}"):
            preflight("docker", DOCKER_IMPORT_PATH, given)


def test_usable_values_are_taken() -> None:
    given = {"visible": ("/",), "backend": "namespaces", "processes": 9, "download_mb": 1}
    preflight("sandbox", SANDBOX_IMPORT_PATH, given)


def test_a_key_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "999")
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    assert "E2B_API_KEY" in refusal("e2b")
    monkeypatch.setenv("E2B_API_KEY", "a key")
    assert choose_environment("e2b").type == "e2b"


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", absent)
    with pytest.raises(ExtraMissing, match=r"uv sync --extra modal, or pip install 'tbtui.modal"):
        require_extra("modal", "modal")
    monkeypatch.undo()
    lost = missing_import("ack", ModuleNotFoundError("no kubernetes", name="kubernetes.client"))
    assert isinstance(lost, ExtraMissing) and "gke" in str(lost)


@pytest.mark.skipif("sbx" not in harbor_kinds(), reason="Harbor has typed options since 0.26")
@pytest.mark.parametrize(
    ("kind", "kwargs", "says"),
    [
        ("ec2", {}, "environment_type=ec2: it needs environment_kwargs.region: give it"),
        ("ec2", {"regoin": "x"}, "takes no such argument: did you mean region?"),
        ("ec2", {"region": "x", "ssh_port": "y"}, "environment_kwargs.ssh_port: Input should be"),
        ("sbx", {"target": "moon"}, "target must be 'local' or 'cloud'"),
        ("sbx", {"target": "local", "lifetime": 5}, "environment_kwargs: Unknown option 'lifetime"),
        ("sbx", {"target": "local", "sbx_command": "/no/sbx"}, "no command /no/sbx"),
        ("sbx", {"rpc_timeout": 9}, "set SBX_DOCKER_USERNAME and SBX_DOCKER_PAT, or give"),
    ],
)
def test_typed_options(
    kind: str, kwargs: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "999")  # of its packages
    assert says in refusal(kind, **kwargs)


def test_engines_that_harbor_does_not_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "install SingularityCE or Apptainer" in refusal("singularity")


@pytest.mark.parametrize("kind", harbor_kinds())
def test_every_kind_of_harbors_is_known(kind: str) -> None:
    """Each has a class or a line, its extra exists, and its class's arguments are known."""
    extra = extra_of(kind)
    assert extra is None or extra in (
        importlib.metadata.metadata("harbor").get_all("Provides-Extra") or []
    )
    try:
        environment = harbor_class(kind)
        preflight(kind, None, {})
    except EnvironmentUnavailable as problem:
        assert "\n" not in str(problem)
    else:
        taken = arguments(environment)
        assert taken is None or (arguments(BaseEnvironment) or frozenset()) <= taken
