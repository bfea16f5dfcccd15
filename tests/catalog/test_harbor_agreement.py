"""Our reading of task directories against the installed Harbor's own, on good ones and bad ones."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tbtui.catalog.load import TaskInfo, harbor_version, load_task
from tbtui.catalog.tasks import discover
from tbtui.resources import tasks_dir
from tests.catalog.task_writer import MINIMAL_TOML, Files, WriteTask

BUNDLED = discover(tasks_dir())
STEPS = '[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n'
OF_STEPS: Files = {
    "instruction.md": None,
    "tests/test.sh": None,
    **{f"steps/{step}/instruction.md": "Do it.\n" for step in "ab"},
    **{f"steps/{step}/tests/test.sh": "#!/bin/bash\n" for step in "ab"},
}
APART = '[verifier]\nenvironment_mode = "separate"\n'
MCP = '[[environment.mcp_servers]]\nname = "m"\nurl = "http://m"\n'


def link(file: str, target: str) -> Callable[[Path], None]:
    def change(task: Path) -> None:
        (task / file).parent.mkdir(parents=True, exist_ok=True)
        (task / file).symlink_to(target)

    return change


def moved_out(directory: str) -> Callable[[Path], None]:
    """In its place a link to where it is now."""

    def change(task: Path) -> None:
        elsewhere = task.parent / f"elsewhere-{Path(directory).name}"
        (task / directory).rename(elsewhere)
        (task / directory).symlink_to(elsewhere)

    return change


MUTANTS: dict[str, tuple[str, Files]] = {
    "sound": (MINIMAL_TOML, {}),
    # What task.toml says. The last ones are refused by some versions of Harbor alone.
    "no TOML": ("[agent\n", {}),
    "a wrong type": ("[agent]\ntimeout_sec = 'x'\n", {}),
    "an unknown key": ("colour = 1\n", {}),
    "old keys": ('version = "1.0"\n[environment]\nmemory = "1G"\nstorage = "5G"\n', {}),
    "old keys that conflict": ('[environment]\nmemory = "1G"\nmemory_mb = 5\n', {}),
    "an allowed host": ('[environment]\nallowed_hosts = ["http://x"]\n', {}),
    "artifacts that overlap": ('artifacts = ["/app", "/app/x"]\n', {}),
    "an artifact of a sidecar": ('[[artifacts]]\nsource = "x"\nservice = "db"\n', {}),
    "half a CPU": ("[environment]\ncpus = 0.5\n", {}),
    "two CPUs": ("[environment]\ncpus = 2.0\n", {}),
    "endless CPUs": ("[environment]\ncpus = inf\n", {}),
    "a header": (MCP + 'headers = { Authorization = "Bearer ${TOKEN}" }\n', {}),
    "a header's secret": (MCP + 'headers = { Authorization = "Bearer abc" }\n', {}),
    "a header's name": (MCP + 'headers = { "a b" = "c" }\n', {}),
    # Files.
    "no instruction": (MINIMAL_TOML, {"instruction.md": None}),
    "an instruction that is no text": (MINIMAL_TOML, {"instruction.md": b"\xff"}),
    "no test": (MINIMAL_TOML, {"tests/test.sh": None}),
    "Windows' test": ('[environment]\nos = "windows"\n', {"tests/test.bat": ""}),
    "another system's test": ('[environment]\nos = "windows"\n', {}),
    "an image's tests": ('[verifier.environment]\ndocker_image = "v"\n', {"tests/test.sh": None}),
    "tests with a Dockerfile": (APART, {"tests/test.sh": None, "tests/Dockerfile": "FROM x\n"}),
    "tests apart without one": (APART, {"tests/test.sh": None}),
    "steps": (STEPS, OF_STEPS),
    "a step without tests": (STEPS, OF_STEPS | {"steps/b/tests/test.sh": None}),
    "a step without instruction": (STEPS, OF_STEPS | {"steps/b/instruction.md": None}),
    "steps that share tests": (
        STEPS,
        OF_STEPS | {"steps/b/tests/test.sh": None, "tests/test.sh": "#!/bin/bash\n"},
    ),
    "two steps of one name": (STEPS.replace('"b"', '"A"'), OF_STEPS),
    # What is left out of what is copied.
    "a test that is left out": (MINIMAL_TOML, {"tests/.harborignore": "test.sh\n"}),
    "a rule elsewhere": (MINIMAL_TOML, {".harborignore": "tests\n"}),
}
LINKED: dict[str, tuple[str, Files, Callable[[Path], None]]] = {
    "a link within tests": (MINIMAL_TOML, {}, link("tests/again", "test.sh")),
    "a link to the instruction": (MINIMAL_TOML, {}, link("tests/i.md", "../instruction.md")),
    "a link out of tests": (MINIMAL_TOML, {}, link("tests/passwd", "/etc/passwd")),
    "a link out of the solution": (MINIMAL_TOML, {}, link("solution/x/y", "/etc")),
    "a link to nothing": (MINIMAL_TOML, {}, link("tests/x", "nothing")),
    "a cycle of links": (MINIMAL_TOML, {}, link("tests/x", "x")),
    "a directory in itself": (MINIMAL_TOML, {}, link("tests/x", ".")),
    "tests elsewhere": (MINIMAL_TOML, {}, moved_out("tests")),
    "a solution elsewhere": (MINIMAL_TOML, {}, moved_out("solution")),
    "a step elsewhere": (STEPS, OF_STEPS, moved_out("steps/b")),
    "a link out of a step": (STEPS, OF_STEPS, link("steps/a/workdir/x", "/etc")),
    "a link out of the environment": (MINIMAL_TOML, {}, link("environment/x", "/etc")),
    "the same for a verifier apart": (APART, {}, link("environment/x", "/etc")),
    "a link that is left out": (
        MINIMAL_TOML,
        {"tests/.harborignore": "passwd\n"},
        link("tests/passwd", "/etc/passwd"),
    ),
    "rules behind a link": (MINIMAL_TOML, {}, link("tests/.harborignore", "/etc/hosts")),
}


REFUSED = {
    **dict.fromkeys(("no test", "tests elsewhere", "the same for a verifier apart"), True),
    **dict.fromkeys(("sound", "steps", "a link out of the environment"), False),
}
"""Both kinds are among them, whatever the version of Harbor."""


def refused_by_harbor(path: Path) -> bool:
    from harbor.models.task.task import Task

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            Task(path)
        except (OSError, ValueError, RuntimeError):
            return True
    return False


@pytest.mark.parametrize("mutant", [*MUTANTS, *LINKED])
def test_we_refuse_what_harbor_refuses(write_task: WriteTask, mutant: str) -> None:
    toml, files, change = LINKED.get(mutant) or (*MUTANTS[mutant], None)
    path = write_task("mutant", toml=toml, files=files)
    if change is not None:
        change(path)
    task, defects = load_task(path, "d")
    refused = refused_by_harbor(path)
    assert (task is None) == refused, defects
    assert REFUSED.get(mutant, refused) == refused
    assert (task is None) == bool(defects)
    assert all(str(path) not in defect.message for defect in defects)


def test_a_refusal_says_whose_it_is(write_task: WriteTask) -> None:
    path = write_task("task", toml="[environment]\ncpus = 'two'\n")
    _, (first, *_) = load_task(path, "d")
    assert first.line == 2
    assert f"{harbor_version()} refuses the task" in first.remedy
    path = write_task("linked", toml=APART)
    link("environment/x", "/etc")(path)
    _, (defect,) = load_task(path, "d")
    assert defect.message.startswith(f"{harbor_version()} refuses it: Input paths must stay within")


@pytest.mark.parametrize("task", BUNDLED.tasks, ids=lambda task: task.name)
def test_harbor_reads_the_bundled_tasks_as_we_do(task: TaskInfo) -> None:
    from harbor.models.task.config import NetworkMode
    from harbor.models.task.task import Task

    theirs = Task(task.path)
    assert theirs.instruction == task.instruction
    assert theirs.config.agent.timeout_sec == task.agent_timeout_sec
    assert theirs.config.verifier.timeout_sec == task.verifier_timeout_sec
    offline = theirs.config.environment.network_mode == NetworkMode.NO_NETWORK
    assert offline != task.allows_network
    assert tomllib.loads((task.path / "task.toml").read_text())["schema_version"] == "1.4"


def test_the_old_way_to_forbid_the_network(write_task: WriteTask) -> None:
    task, _ = load_task(write_task("t", toml="[environment]\nallow_internet = false\n"), "d")
    assert task is not None
    assert not task.allows_network


async def test_harbor_finds_the_same_tasks(write_task: WriteTask, tmp_path: Path) -> None:
    from harbor.models.job.config import DatasetConfig

    # It lists more than it can run: an instruction that is no text, for one.
    for name in (
        *("sound", "no TOML", "a wrong type", "no instruction", "no test"),
        *("an image's tests", "tests with a Dockerfile"),
    ):
        toml, files = MUTANTS[name]
        write_task(name, toml=toml, files=files)
    found = await DatasetConfig(path=tmp_path).get_task_configs()
    assert [task.path for task in discover(tmp_path).tasks] == [config.path for config in found]
