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


def nothing(task: Path) -> None:
    pass


Mutant = tuple[str, Files, Callable[[Path], None]]
MUTANTS: dict[str, Mutant] = {
    "sound": (MINIMAL_TOML, {}, nothing),
    # What task.toml says. The last ones are refused by some versions of Harbor alone.
    "no TOML": ("[agent\n", {}, nothing),
    "a wrong type": ("[agent]\ntimeout_sec = 'x'\n", {}, nothing),
    "an unknown key": ("colour = 1\n", {}, nothing),
    "old keys": ('version = "1.0"\n[environment]\nmemory = "1G"\nstorage = "5G"\n', {}, nothing),
    "old keys that conflict": (
        '[environment]\nmemory = "1G"\nmemory_mb = 5\n',
        {},
        nothing,
    ),
    "an allowed host": ('[environment]\nallowed_hosts = ["http://x"]\n', {}, nothing),
    "artifacts that overlap": ('artifacts = ["/app", "/app/x"]\n', {}, nothing),
    "an artifact of a sidecar": ('[[artifacts]]\nsource = "x"\nservice = "db"\n', {}, nothing),
    "half a CPU": ("[environment]\ncpus = 0.5\n", {}, nothing),
    "two CPUs": ("[environment]\ncpus = 2.0\n", {}, nothing),
    "endless CPUs": ("[environment]\ncpus = inf\n", {}, nothing),
    "a header": (MCP + 'headers = { Authorization = "Bearer ${TOKEN}" }\n', {}, nothing),
    "a header's secret": (MCP + 'headers = { Authorization = "Bearer abc" }\n', {}, nothing),
    "a header's name": (MCP + 'headers = { "a b" = "c" }\n', {}, nothing),
    # Files.
    "no instruction": (MINIMAL_TOML, {"instruction.md": None}, nothing),
    "an instruction that is no text": (MINIMAL_TOML, {"instruction.md": b"\xff"}, nothing),
    "no test": (MINIMAL_TOML, {"tests/test.sh": None}, nothing),
    "Windows' test": ('[environment]\nos = "windows"\n', {"tests/test.bat": ""}, nothing),
    "another system's test": ('[environment]\nos = "windows"\n', {}, nothing),
    "an image's tests": (
        '[verifier.environment]\ndocker_image = "v"\n',
        {"tests/test.sh": None},
        nothing,
    ),
    "tests with a Dockerfile": (
        APART,
        {"tests/test.sh": None, "tests/Dockerfile": "FROM x\n"},
        nothing,
    ),
    "tests apart without one": (APART, {"tests/test.sh": None}, nothing),
    "steps": (STEPS, OF_STEPS, nothing),
    "a step without tests": (STEPS, OF_STEPS | {"steps/b/tests/test.sh": None}, nothing),
    "a step without instruction": (STEPS, OF_STEPS | {"steps/b/instruction.md": None}, nothing),
    "steps that share tests": (
        STEPS,
        OF_STEPS | {"steps/b/tests/test.sh": None, "tests/test.sh": "#!/bin/bash\n"},
        nothing,
    ),
    "two steps of one name": (STEPS.replace('"b"', '"A"'), OF_STEPS, nothing),
    # Links.
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
    # What is left out of what is copied.
    "a test that is left out": (MINIMAL_TOML, {"tests/.harborignore": "test.sh\n"}, nothing),
    "a link that is left out": (
        MINIMAL_TOML,
        {"tests/.harborignore": "passwd\n"},
        link("tests/passwd", "/etc/passwd"),
    ),
    "a rule elsewhere": (MINIMAL_TOML, {".harborignore": "tests\n"}, nothing),
    "rules behind a link": (MINIMAL_TOML, {}, link("tests/.harborignore", "/etc/hosts")),
}


def refused_by_harbor(path: Path) -> bool:
    from harbor.models.task.task import Task

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            Task(path)
        except (OSError, ValueError, RuntimeError):
            return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS)
def test_we_refuse_what_harbor_refuses(write_task: WriteTask, mutant: str) -> None:
    toml, files, change = MUTANTS[mutant]
    path = write_task("mutant", toml=toml, files=files)
    change(path)
    task, defects = load_task(path, "d")
    assert (task is None) == refused_by_harbor(path), defects
    assert (task is None) == bool(defects)
    assert all(str(path) not in defect.message for defect in defects)


def test_the_mutants_are_of_both_kinds(write_task: WriteTask) -> None:
    refused = set()
    for number, (mutant, (toml, files, change)) in enumerate(MUTANTS.items()):
        path = write_task(f"mutant-{number}", toml=toml, files=files)
        change(path)
        if refused_by_harbor(path):
            refused.add(mutant)
    assert {"no test", "tests elsewhere", "the same for a verifier apart"} <= refused
    assert not {"sound", "steps", "a link out of the environment"} & refused


def test_a_refusal_says_whose_it_is(write_task: WriteTask) -> None:
    path = write_task("task", toml="[environment]\ncpus = 'two'\n")
    _, (first, *_) = load_task(path, "d")
    assert first.line == 2
    assert f"{harbor_version()} refuses the task" in first.remedy
    path = write_task("linked", toml=APART)
    link("environment/x", "/etc")(path)
    _, (defect,) = load_task(path, "d")
    assert defect.message.startswith(f"{harbor_version()} refuses it: Input paths must stay within")


def test_the_bundled_tasks_have_no_defects() -> None:
    assert BUNDLED.defects == ()


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

    write_task("good")
    write_task("bad-toml", toml="[agent\n")
    write_task("bad-value", toml="[agent]\ntimeout_sec = 'x'\n")
    write_task("no-instruction", files={"instruction.md": None})
    write_task("no-test", files={"tests/test.sh": None})
    write_task("image-verifier", toml='[verifier.environment]\ndocker_image = "v"\n')
    write_task(
        "own-tests",
        toml='[verifier]\nenvironment_mode = "separate"\n',
        files={"tests/test.sh": None, "tests/Dockerfile": "FROM debian\n"},
    )
    found = await DatasetConfig(path=tmp_path).get_task_configs()
    assert [task.path for task in discover(tmp_path).tasks] == [config.path for config in found]
