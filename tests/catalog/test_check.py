"""`tbtui tasks list` and `tbtui tasks check`: the rows behind them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tbtui.catalog.check import deep_check
from tbtui.catalog.defects import line_of
from tbtui.catalog.load import harbor_version
from tbtui.catalog.report import check_directory, summary, task_rows
from tbtui.catalog.split import split_tasks
from tbtui.catalog.tasks import CatalogError, discover
from tbtui.cli import app
from tbtui.resources import tasks_dir
from tests.catalog.task_writer import MINIMAL_TOML, SOUND, Files, WriteTask

DOCKERFILE, COMPOSE = "environment/Dockerfile", "environment/docker-compose.yaml"
TEST, SOLVE = "tests/test.sh", "solution/solve.sh"
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'


@pytest.mark.parametrize(
    ("files", "where", "severity", "text"),
    [
        (
            {"task.toml": "[agent]\ntimeout_secs = 5\n"},
            *("task.toml:2", "warning", "agent.timeout_secs; did you mean 'timeout_sec'"),
        ),
        ({"task.toml": "colour = 1\n"}, "task.toml:1", "warning", "unknown key colour"),
        ({DOCKERFILE: "RUN true\n"}, "Dockerfile:1", "error", "does not start with FROM"),
        ({DOCKERFILE: "# nothing\n"}, "Dockerfile", "error", "no instruction"),
        (
            {DOCKERFILE: "FROM a\nRUN x && \\\n  y\nCOPPY a b\n"},
            *("Dockerfile:4", "error", "'COPPY'; did you mean 'COPY'"),
        ),
        (
            {DOCKERFILE: "FROM a\nCOPY --chmod=755 data.csv /app/\n"},
            *("Dockerfile:2", "error", "copies 'data.csv'"),
        ),
        (
            {DOCKERFILE: "FROM a\nRUN x &&\n  y &&\n  z\nRUN true\n"},
            *("Dockerfile:3", "error", "unknown instruction 'Y', and 1 more such lines"),
        ),
        (
            {
                DOCKERFILE: "FROM a\nADD key.txt /app/\n",
                "environment/key.txt": "",
                "environment/.dockerignore": "*.txt\n",
            },
            *("Dockerfile:2", "error", "copies 'key.txt', which .dockerignore leaves out"),
        ),
        (
            {TEST: "#!/bin/bash\nreward.txt\nif true; then\n"},
            *("test.sh:4", "error", "shell syntax: syntax error: unexpected end of file"),
        ),
        ({SOLVE: "#!/bin/bash\necho (\n"}, "solve.sh:2", "error", "shell syntax"),
        (
            {TEST: "# canary\n#!/usr/bin/env python3\nreward.txt\n"},
            *("test.sh:2", "warning", "bash runs it, not /usr/bin/env python3"),
        ),
        (
            {TEST: "# canary\nimport sys\nprint('reward.txt', file=f())\n"},
            *("test.sh:3", "error", "shell syntax"),
        ),
        ({TEST: "# reward.txt\r\nset -e\r\n"}, "test.sh:1", "error", "Windows line ends"),
        ({TEST: "#!/bin/bash\r\nreward.txt\r\n"}, "test.sh:1", "error", "Windows line ends"),
        (
            {COMPOSE: "services:\n  main:\n    mem_limit: ${MEMORY}\n"},
            *(
                "docker-compose.yaml:3",
                "warning",
                "asks for ${MEMORY}, and task.toml has no memory",
            ),
        ),
        (
            {"task.toml": SEPARATE, "tests/Dockerfile": "FROM debian\n"},
            *("task.toml", "warning", "the verifier runs in an environment of its own"),
        ),
        (
            {
                "task.toml": '[environment]\ndocker_image = "debian"\n',
                DOCKERFILE: "FROM a\nCOPY data.csv /app/\n",
            },
            *("Dockerfile:2", "warning", "copies 'data.csv'"),
        ),
        (
            {TEST: "#!/bin/bash\nexit 0\n"},
            *("test.sh", "warning", "nothing in tests/ mentions reward.txt"),
        ),
        ({SOLVE: None}, "solution", "warning", "no solution/solve.sh"),
    ],
)
async def test_defects(
    write_task: WriteTask, tmp_path: Path, files: Files, where: str, severity: str, text: str
) -> None:
    write_task("task", files=files)
    (task,) = discover(tmp_path).tasks
    found = await deep_check(task)
    assert any(
        defect.where.endswith(f"/{where}")
        and defect.severity == severity
        and text in defect.message
        for defect in found
    ), found
    assert all(defect.remedy for defect in found)


DOCKER_RESOLVES = (
    "ARG BASE=debian\nFROM $BASE AS build\nRUN <<EOF\nNOT AN INSTRUCTION\nEOF\n"
    "COPY --from=build /x /y\nADD https://example.com/a /a\nCOPY *.csv /app/\n"
    'COPY ["a b", "/app/"]\n'
)
"""What Docker alone can resolve is left to it."""


@pytest.mark.parametrize(
    "files",
    [
        {},
        {TEST: "# canary\n#!/bin/bash\necho 1 > reward.txt\n"},
        {TEST: "echo 1 > reward.txt\n"},
        {TEST: "#!/bin/bash\ncat > x <<'E'\na\r\nb\r\nE\necho 1 > reward.txt\n"},
        {
            DOCKERFILE: 'FROM a\nCOPY "my dir/" "/app/"\nCOPY $X ${Y} a\\ b /c\n',
            "environment/my dir/x": "",
            "environment/a b": "",
        },
        {DOCKERFILE: DOCKER_RESOLVES},
        {
            "task.toml": MINIMAL_TOML + "[environment]\nmemory_mb = 512\n",
            COMPOSE: "services: {main: {mem_limit: '${MEMORY}'}}\n",
        },
        {COMPOSE: "services: {main: {mem_limit: '${MEMORY:-1g}'}}\n"},
        {"task.toml": f'artifacts = ["/app"]\n{SEPARATE}', "tests/Dockerfile": "FROM debian\n"},
    ],
)
async def test_what_works_is_no_defect(write_task: WriteTask, tmp_path: Path, files: Files) -> None:
    write_task("task", files=files)
    (task,) = discover(tmp_path).tasks
    assert await deep_check(task) == ()


@pytest.mark.uid
@pytest.mark.parametrize("file", [TEST, SOLVE, DOCKERFILE])
async def test_a_file_that_can_not_be_read_is_a_defect(
    write_task: WriteTask, tmp_path: Path, file: str
) -> None:
    write_task("task")
    (task,) = discover(tmp_path).tasks
    (task.path / file).chmod(0)
    if os.access(task.path / file, os.R_OK):
        # Root reads everything but this.
        (task.path / file).unlink()
        (task.path / file).symlink_to("/proc/self/mem")
    found = await deep_check(task)
    assert any(
        defect.path == tmp_path / "task" / file and defect.message.startswith("can't be read: ")
        for defect in found
    ), found
    assert not any("no solution" in defect.message for defect in found)


async def test_a_line_that_is_wrong_in_each_entry_is_one_error(
    write_task: WriteTask, tmp_path: Path
) -> None:
    write_task("task", toml=MINIMAL_TOML + 'artifacts = [1, 2, "a", 3]\n')
    (defect,) = discover(tmp_path).defects
    assert defect.message.startswith("artifacts.0 (and 2 more in this line): Input should be a ")


async def test_misspelt_keys_of_a_step(write_task: WriteTask, tmp_path: Path) -> None:
    steps = '[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n[steps.agent]\ntimeout_secs = 5\n'
    files: Files = {"tests/test.sh": SOUND["tests/test.sh"]}
    files |= {f"steps/{name}/instruction.md": "Do it.\n" for name in "ab"}
    write_task("task", toml=MINIMAL_TOML + steps, files=files)
    (task,) = discover(tmp_path).tasks
    unknown = [d for d in await deep_check(task) if d.message.startswith("unknown key")]
    assert [defect.message for defect in unknown] == [
        "unknown key steps[2].agent.timeout_secs; did you mean 'timeout_sec'?"
    ]


async def test_no_bash_is_one_line(
    write_task: WriteTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task("task")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CatalogError, match="no bash on PATH"):
        await check_directory(tmp_path)


def test_what_a_task_says_gives_the_terminal_no_orders(
    write_task: WriteTask, tmp_path: Path
) -> None:
    write_task("task", toml=MINIMAL_TOML + '"x\\u001b[31m" = 1\n')
    done = CliRunner().invoke(app, ["tasks", "check", str(tmp_path)])
    assert "unknown key x␛[31m" in done.output.replace("\n", "")
    assert "\x1b" not in done.output


@pytest.mark.parametrize("command", ["list", "check"])
def test_a_directory_of_nobody_is_one_line(command: str) -> None:
    done = CliRunner().invoke(app, ["tasks", command, "~nosuch/x"])
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert "no such user (~nosuch)" in done.output


async def test_a_script_that_is_not_executable(write_task: WriteTask, tmp_path: Path) -> None:
    path = write_task("task")
    (path / "tests" / "test.sh").chmod(0o644)
    (task,) = discover(tmp_path).tasks
    (defect,) = await deep_check(task)
    assert (defect.severity, defect.message) == ("warning", "is not executable")


async def test_report(write_task: WriteTask, tmp_path: Path) -> None:
    write_task("good")
    write_task("broken", toml="[agent\n")
    write_task("spoiled", files={"environment/Dockerfile": "RUN x\n", "solution/solve.sh": None})
    report = await check_directory(tmp_path)
    assert (report.found, report.usable, report.errors, report.warnings) == (3, 1, 2, 1)
    assert [(row.task, row.where, row.severity) for row in report.rows] == [
        ("broken", "broken/task.toml:1", "error"),
        ("spoiled", "spoiled/environment/Dockerfile:1", "error"),
        ("spoiled", "spoiled/solution", "warning"),
    ]


async def test_tasks_of_one_name_are_counted_apart(write_task: WriteTask, tmp_path: Path) -> None:
    write_task("same", root=tmp_path / "a", toml="[agent\n")
    write_task("same", root=tmp_path / "b", files={"solution/solve.sh": None})
    write_task("same", root=tmp_path / "c", files={"environment/Dockerfile": "RUN x\n"})
    report = await check_directory(tmp_path)
    assert (report.found, report.usable, report.errors, report.warnings) == (3, 1, 2, 1)
    assert [row.task for row in report.rows] == ["a/same", "c/same", "b/same"]


async def test_how_far_it_is_is_told(write_task: WriteTask, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_task(name)
    told: list[tuple[str, int, int]] = []
    await check_directory(tmp_path, lambda *each: told.append(each))
    assert told == [(what, done, 2) for what in ("reading", "checking") for done in (1, 2)]


@pytest.fixture
def mixed(write_task: WriteTask, tmp_path: Path) -> Path:
    """Five tasks that can be used, with warnings of two kinds, and one that can't."""
    for number in range(5):
        write_task(f"task-{number}", toml=f"key{number} = 1\n", files={"solution/solve.sh": None})
    write_task("broken", toml="[agent\n")
    return tmp_path


@pytest.mark.linux
def test_errors_are_printed_first_and_warnings_by_kind(mixed: Path) -> None:
    done = CliRunner().invoke(app, ["tasks", "check", str(mixed)])
    where, error, *warnings, advice, summary = done.output.splitlines()
    assert done.exit_code == 1
    assert where == f"6 tasks in {mixed}"
    assert error.startswith("error broken/task.toml:1: not valid TOML")
    assert sorted(warnings) == sorted(
        [
            f"warning 5 times, first at task-0/task.toml:1: unknown key key0; {harbor_version()}"
            " ignores it: correct or remove it; free-form keys belong in [metadata]",
            "warning 5 times, first at task-0/solution: no solution/solve.sh; add one, so that the"
            " task can be proved solvable",
        ]
    )
    assert advice.startswith("5 of 5 tasks would bear a verifier out of the agent's reach")
    assert summary == (
        f"5 of 6 tasks are valid ({harbor_version()}) · 1 error in 1 task · 10 warnings of 2 kinds"
    )


@pytest.mark.linux
def test_errors_alone(mixed: Path) -> None:
    done = CliRunner().invoke(app, ["tasks", "check", "--errors", str(mixed)])
    assert [line.partition(" ")[0] for line in done.output.splitlines()] == ["6", "error", "5"]
    assert done.exit_code == 1


def test_a_check_as_json(mixed: Path) -> None:
    done = CliRunner().invoke(app, ["tasks", "check", "--json", str(mixed)])
    document = json.loads(done.stdout)
    counts = {name: document[name] for name in ("found", "usable", "errors", "warnings")}
    assert counts == {"found": 6, "usable": 5, "errors": 1, "warnings": 10}
    assert document["datasets"] == {mixed.name: 6}
    assert len(document["defects"]) == 11
    assert document["defects"][0]["where"] == "broken/task.toml:1"
    assert done.exit_code == 1
    (mixed / "broken" / "task.toml").write_text(MINIMAL_TOML)
    assert CliRunner().invoke(app, ["tasks", "check", "--json", str(mixed)]).exit_code == 0


SEEN = "[ -s out.txt ] && python3 /tests/check.py /app/out.txt; echo $? > /logs/verifier/reward.txt"


@pytest.mark.parametrize(
    ("test", "toml", "bears"),
    [
        (SEEN, "", True),
        (f"{SEEN}; cmp /etc/motd out.txt", "", False),
        (f"{SEEN}; curl http://localhost:8000/", "", False),
        (f"{SEEN}; pgrep nginx", "", False),
        (f"{SEEN}; cat ~/.profile", "", False),
        (SEEN, "[metadata]\nverifier_needs_processes = true\n", False),
        (SEEN, SEPARATE, False),
    ],
)
async def test_a_separate_verifier_is_advised_where_the_tests_look_at_files_of_the_task_alone(
    write_task: WriteTask, tmp_path: Path, test: str, toml: str, bears: bool
) -> None:
    write_task("one", toml=toml, files={TEST: f"#!/bin/bash\n{test}\n"})
    assert bool((await check_directory(tmp_path)).advice) == bears


async def test_the_bundled_tasks_pass() -> None:
    report = await check_directory(tasks_dir())
    assert report.rows == ()
    assert report.usable == report.found > 12


def test_rows(write_task: WriteTask, tmp_path: Path) -> None:
    write_task(
        "sort",
        toml='[metadata]\ndifficulty = "hard"\nkind = "k"\nsplit = "heldout"\n',
        files={"instruction.md": "\n# Sort *all* [names]\nmore"},
    )
    write_task("other")
    split = split_tasks(discover(tmp_path).tasks, eval_split=0.5, seed=0)
    rows = {row.name: row for row in task_rows(split)}
    assert (rows["sort"].use, rows["other"].use) == ("heldout", "train")
    assert (rows["sort"].difficulty, rows["sort"].category) == ("hard", "k")
    assert rows["sort"].summary == "Sort *all* [names]"
    assert rows["other"].agent_timeout_sec == 900


def test_summaries_fit_on_a_line() -> None:
    assert summary("") == ""
    assert len(summary("word " * 100)) == 100


def test_lines_of_keys() -> None:
    text = '# c\na.b = 1\n[x]\ny = 2\n[[z]]\nq = 1\n[[z]]\nq = 2\n[z.deep]\nr = 3\n"k l" = 4\n'
    assert line_of(text, ("a", "b")) == 2
    assert line_of(text, ("x", "y")) == 4
    assert line_of(text, ("x", "missing")) == 3
    assert line_of(text, ("z", 1, "q")) == 8
    assert line_of(text, ("z", 0)) == 5
    assert line_of(text, ("nowhere",)) is None
