"""Commands that tbtui prints: all are made in one place, exist, and begin as it was called."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tbtui
from tbtui.cli import COMMANDS
from tbtui.invocation import CALLED_AS, called_as, note_caller, to_type
from tbtui.resources import tasks_dir
from tests.catalog.task_writer import write_task
from tests.guide.test_commands import ALL, Way, World, carry_out, parse

HERE = Path(tbtui.__file__).parent
LITERAL = re.compile(rf"tbtui ({'|'.join(COMMANDS)})( [a-z-]+)? (-|[A-Z{{])")
"""A command with an argument, written out."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def trees(holding: str) -> Iterator[tuple[Path, ast.Module]]:
    """The modules of tbtui whose text matches."""
    for file in sorted(HERE.rglob("*.py")):
        if re.search(holding, text := file.read_text("utf-8")):
            yield file, ast.parse(text)


def printed() -> dict[str, str]:
    """Each command that the code can print, `*` for what it fills in, `...` for any number of
    settings and options -> where."""
    found = {}
    for file, tree in trees(r"\bto_type\("):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "to_type":
                words = " ".join(map(_word, node.args))
                found[f"tbtui {words}".strip()] = f"{file.relative_to(HERE)}:{node.lineno}"
    return found


def _word(node: ast.expr) -> str:
    match node:
        case ast.Constant(value):
            return str(value)
        case ast.Starred():
            return "..."
        case ast.JoinedStr(values):
            return "".join(map(_word, values))
        case _:
            return "*"


_PREPARED = Way(status=(130,))  # all but the run itself, which is taken back
_APP = Way(app=True)
_REAL = Way(process=True)
LIVE = "--run runs/LIVE"
WAYS: dict[str, tuple[str, Way]] = {
    # What shows the live run, and steers it, before it is stopped.
    "tbtui attach *": ("see it", _APP),
    "tbtui ctl": ("tbtui ctl", Way(status=(0, 2))),  # its usage
    "tbtui ctl * list --run * ...": ("from tbtui ctl trial pause zzz --run NAME", Way(says="e000")),
    "tbtui ctl config set * --run *": (f"tbtui ctl config set n_parallel_envs=2 {LIVE}", Way()),
    "tbtui ctl run resume *": ("tbtui ctl run resume runs/LIVE", Way()),
    "tbtui ctl config set review=suspects --run *": (
        f"tbtui ctl config set review=always {LIVE}",
        Way(),
    ),
    "tbtui ctl group list --run *": (f"tbtui ctl group list {LIVE}", Way(again=True, says="step")),
    "tbtui ctl run accept *": ("tbtui ctl run accept runs/LIVE", Way(again=True)),
    "tbtui ctl run stop *": ("end it", _REAL),
    # Of runs that are over.
    "tbtui run --resume *": ("tbtui run --resume STOPPED", _PREPARED),
    "tbtui run --resume * ...": ("tbtui run --resume STOPPED save_every=2", _PREPARED),
    "tbtui run --resume RUN": ("tbtui run --resume STOPPED", _PREPARED),
    "tbtui run --resume * ... ...": ("from tbtui attach NAME", _PREPARED),
    "tbtui replay *": ("from tbtui attach TRIED", _APP),
    "tbtui replay * *": ("tbtui replay NAME e0000-copy-07-1", _APP),
    "tbtui run * ... ...": ("from tbtui diagnose NAME", _PREPARED),
    "tbtui eval * ...": ("next", _PREPARED),
    "tbtui eval RUN --latest": ("tbtui eval NAME --latest", _PREPARED),
    "tbtui export * *": ("tbtui export NAME e0000-copy-07-1", Way(says="wrote")),
    "tbtui export-model * *": ("tbtui export-model NAME exported", Way(says="exported")),
    "tbtui fork * * --turn * -n 8": (
        "tbtui fork NAME e0000-copy-07-1 --turn 1 -n 8",
        replace(_PREPARED, status=(0, 130)),
    ),
    "tbtui runs --json": ("from tbtui replay NAME", Way(says="TRIED")),
    "tbtui serve RUN": ("tbtui serve NAME --port 0", Way(until="http://")),
    # New runs.
    "tbtui run *.NAME=VALUE": ("tbtui run budget.rollouts=2", _PREPARED),
    "tbtui run review=always": ("tbtui run review=always", _PREPARED),
    "tbtui run tasks_dir=*": ("from tbtui tasks fetch bench --registry registry.json", _PREPARED),
    "tbtui guide demonstrations": ("tbtui guide demonstrations", Way(says="demos=train")),
    "tbtui probe ...": ("tbtui probe eval_group_size=2", _PREPARED),
    "tbtui run ...": ("tbtui run temperature=0.7", _PREPARED),
    "tbtui eval ...": ("from tbtui run agent=oracle tasks_dir=tasks/workshop", _PREPARED),
    "tbtui eval policy=vllm model_name=*": ("tbtui eval policy=vllm model_name=m", _PREPARED),
    # Tasks, settings, the machine.
    "tbtui settings": ("from tbtui run zzz=3", Way(says="batch_size")),
    "tbtui tasks check *": ("from tbtui tasks list mixed", Way(status=(1,), says="broken")),
    "tbtui tasks fetch --list ...": (
        "from tbtui tasks fetch nothing --registry registry.json",
        Way(says="bench"),
    ),
    "tbtui tasks fetch NAME@VERSION ...": (
        "tbtui tasks fetch bench@1 --registry registry.json",
        Way(says="train on them"),
    ),
    "tbtui tasks list": ("from tbtui tasks browse", Way(says="copy-03")),
    "tbtui tasks list TASKS_DIR": ("tbtui tasks list tasks/workshop", Way(says="log-triage")),
    "tbtui tasks prefetch *": (
        "from tbtui run --explain tasks_dir=asking",
        Way(more="--dry-run", says="1 set of packages"),
    ),
    "tbtui tasks prefetch DIR": ("tbtui tasks prefetch asking", Way(more="--dry-run")),
    "tbtui tasks sets NAME --delete": ("tbtui tasks sets hard --delete", Way()),
    "tbtui tasks browse": ("from tbtui tasks sets", _APP),
    "tbtui tasks try * --watch": ("from tbtui tasks new mine", replace(_APP, status=(0, 130))),
    "tbtui tasks try * tasks_dir=* --oracle": (
        "tbtui tasks try copy-03 tasks_dir=tasks/starter --oracle",
        replace(_REAL, says="solved, reward 1"),
    ),
    "tbtui tasks try TASK --oracle": (
        "tbtui tasks try copy-03 --oracle",
        replace(_REAL, says="solved, reward 1"),
    ),
}
"""What is run for each command that can be printed: what prints it here (`from COMMAND`, or how a
line of the runs begins that were made), else how a person or the code fills it in."""
PARSED: dict[str, tuple[str, str]] = {
    "tbtui demos accept * *": ("tbtui demos accept NAME s0001", "NAME has no demonstrations"),
    "tbtui doctor model NAME": ("tbtui doctor model org/name", "needs the hub"),
    "tbtui prime-rl check ...": ("tbtui prime-rl check engine=prime-rl", "needs Prime-RL"),
    "tbtui prime-rl watch * --into *": ("tbtui prime-rl watch X --into NAME", "needs its files"),
    "tbtui run ... --print-config": ("tbtui run engine=prime-rl --print-config", "needs Prime-RL"),
    "tbtui run engine=prime-rl model_name=*": (
        "tbtui run engine=prime-rl model_name=org/name",
        "needs Prime-RL",
    ),
}
"""Commands that are read only, and why."""


def test_every_printed_command_is_known() -> None:
    known = {*WAYS, *PARSED}
    assert known <= printed().keys() <= known | ALL  # those of the guide are run with it


@pytest.mark.parametrize("template", PARSED)
def test_a_printed_command_exists(template: str) -> None:
    parse(PARSED[template][0])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three runs that are over, NAME, the try TRIED and one that was STOPPED; a live one, tasks,
    a set and a registry."""
    world = World(tmp_path_factory.mktemp("printed"))
    where = world.where
    (where / "tasks").mkdir()
    for name in ("starter", "workshop"):
        (where / "tasks" / name).symlink_to(tasks_dir() / name)
    for folder, name in (("mixed", "good"), ("mixed", "broken"), ("asking", "one")):
        write_task(where / folder, name)
    (where / "mixed" / "broken" / "task.toml").write_text("[agent\n")
    test = where / "asking" / "one" / "tests" / "test.sh"
    test.write_text(f"pip install no-such-xyz\n{test.read_text()}")
    (where / "registry.json").write_text(json.dumps(registry_of(where / "repository")))
    sets = where / "CONFIG" / "tbtui" / "sets"
    sets.mkdir(parents=True)
    (sets / "hard.toml").write_text('[set]\ntasks = ["copy-03"]\n')
    small = "tasks=copy-03 eval_tasks=copy-07 eval_group_size=1 batch_size=1 group_size=2"
    endless = "max_steps=100000 save_every=0 eval_every=0 keep=none"
    for command in (
        f"tbtui run --no-ui run_name=NAME {small} max_steps=1",
        "tbtui tasks try copy-03 --oracle --no-ui run_name=TRIED",
        f"tbtui run --detach run_name=LIVE {small} {endless}",
    ):
        world.began[command] = world.run(command)
        assert world.began[command].returncode == 0, world.began[command].stderr
    # What this one prints is of no run that is live.
    for command in (
        f"tbtui run --detach run_name=STOPPED {small} {endless}",
        "tbtui ctl run stop runs/STOPPED",
    ):
        assert world.run(command).returncode == 0
    yield world
    world.run("tbtui ctl run stop runs/LIVE")


@pytest.mark.slow
@pytest.mark.parametrize("template", WAYS)
def test_a_printed_command_runs(world: World, template: str) -> None:
    command, way = WAYS[template]
    if not command.startswith("tbtui "):
        command = found(template, command, world)
    status, shown = carry_out(world, f"{command} {way.more}".strip(), way)
    assert status in way.status, f"{command}: {shown}"
    assert way.says in shown
    assert "Traceback" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("command", ["attach TRIED", "ctl trial pause copy-03/1 --run TRIED"])
def test_nothing_offers_to_resume_a_try(world: World, command: str) -> None:
    status, shown = world.call(f"tbtui {command}")
    assert status == 2
    assert "TRIED is not live" in shown or "copy-03/1" in shown
    assert "--resume" not in shown


def registry_of(repository: Path) -> list[dict[str, object]]:
    """A registry's file that has one data set of one task, in a repository made here."""
    write_task(repository, "one")
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "tasks"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    task = {"name": "one", "path": "one", "git_url": repository.as_uri()}
    tasks = [task | {"git_commit_id": head.stdout.strip()}]
    return [{"name": "bench", "version": "1", "description": "A bench", "tasks": tasks}]


def found(template: str, source: str, world: World) -> str:
    """The command of this template in what its source prints."""
    if source.startswith("from "):
        _, shown = world.call(source.removeprefix("from "))
        lines = shown.splitlines()
    else:
        began = "".join(each.stdout for each in world.began.values())
        lines = [line for line in began.splitlines() if line.startswith(source)]
    word = {"*": r"[^\s`,;]+", "...": "[^`,;()]*"}
    pattern = r"\s*".join(
        word.get(each, re.escape(each).replace(r"\*", word["*"])) for each in template.split()
    )
    matches = [match[0].strip() for line in lines for match in re.finditer(pattern, line)]
    assert matches, "\n".join(lines)
    return max(matches, key=len)


def test_no_command_with_arguments_is_written_out() -> None:
    found = []
    for file, tree in trees(LITERAL.pattern):
        functions = [each for each in ast.walk(tree) if isinstance(each, FUNCTIONS)]
        for function in functions:
            body = function.body[1:] if ast.get_docstring(function) else function.body
            for node in (each for statement in body for each in ast.walk(statement)):
                text = node.value if isinstance(node, ast.Constant) else None
                if isinstance(text, str) and LITERAL.search(text):
                    found.append(f"{file.relative_to(HERE)}:{node.lineno}: {text}")
    assert found == []


@pytest.mark.parametrize(
    ("program", "parent", "expected"),
    [
        ("/x/.venv/bin/tbtui", ["/usr/bin/uv", "run", "tbtui", "run"], "uv run tbtui"),
        (
            "/x/.venv/bin/tbtui",
            ["uv", "run", "--extra", "torch", "tbtui", "eval", "tbtui"],
            "uv run --extra torch tbtui",
        ),
        (
            "/x/.venv/bin/tbtui",
            ["uv", "run", "--directory", "a b", "tbtui"],
            "uv run --directory 'a b' tbtui",
        ),
        ("/x/.venv/bin/tbtui", ["uv", "run", "bash", "x.sh"], "/x/.venv/bin/tbtui"),
        ("/x/my env/bin/tbtui", [], "'/x/my env/bin/tbtui'"),
        ("tbtui", ["bash"], "tbtui"),
        ("/x/tbtui/__main__.py", [], f"{sys.executable} -m tbtui"),
    ],
)
def test_it_begins_as_it_was_called(program: str, parent: list[str], expected: str) -> None:
    assert called_as(program, parent) == expected


def test_a_program_on_the_path_is_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tbtui"
    program.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert called_as(str(program), []) == "tbtui"


def test_words_are_quoted_for_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CALLED_AS, "uv run tbtui")
    assert to_type("replay", Path("/a b/$c"), 2) == "uv run tbtui replay '/a b/$c' 2"


def test_what_a_command_starts_keeps_how_it_was_called() -> None:
    environment = {CALLED_AS: "uv run tbtui"}
    note_caller(environment)
    assert environment == {CALLED_AS: "uv run tbtui"}


@pytest.mark.slow
def test_what_is_printed_under_uv_run_can_be_typed(tmp_path: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed")
    kept = {name: value for name, value in os.environ.items() if name != CALLED_AS}
    environment = {**kept, "UV_NO_SYNC": "1", "COLUMNS": "200"}

    def shell(line: str) -> str:
        result = subprocess.run(
            ["bash", "-c", line],
            cwd=HERE.parent,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return result.stdout

    made = shell(f"uv run tbtui tasks new counting --into '{tmp_path}/my tasks'")
    (check,) = [line.partition(" ")[2].strip() for line in made.splitlines() if "check" in line]
    assert check == f"uv run tbtui tasks check '{tmp_path}/my tasks/counting'"
    assert "no errors" in shell(check)
