"""Every command of the README and the guide: run as it stands, or as a table here says.

Most are called in this process; one that would start a run has it prepared, with all that it would
be refused for. Real runs, as processes, are few.

The tables know each command; one that they don't know fails, and so does one that no page has any
more. The world of the commands has two recorded runs, NAME and OTHER, a live one, a settings file,
a rule file, a saved set and the tasks of this repository.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from tbtui import launch
from tbtui.cli import app
from tbtui.command_line import EXIT
from tbtui.config import parse_settings
from tbtui.engines.make_run import prepare
from tbtui.engines.request import RunRequest
from tbtui.resources import guide_dir, tasks_dir
from tests.terminal import Terminal

README = Path(__file__).parents[2] / "README.md"
PAGES = (README, *sorted(guide_dir().glob("*.md")))
PATIENCE_SEC = 240
SMALL = "tasks=copy-03 eval_tasks=copy-07 eval_group_size=1 batch_size=1 max_steps=1"
"""A run of one group."""


@dataclass(frozen=True)
class Way:
    """How a command is run in the tests: in this process, unless a field says otherwise."""

    more: str = ""
    """What is added to it."""
    instead: tuple[str, str] = ("", "")
    """A text of it, and what stands in for it: what only a longer run has."""
    process: bool = False
    """As a process: it makes a real run, by other means than `launch`."""
    app: bool = False
    """It opens the app, which is left with `q` after its first frame."""
    until: str = ""
    """It runs until ctrl-c, which it gets once this has been printed."""
    again: bool = False
    """Tried until it succeeds: what it is about comes and goes."""
    status: tuple[int, ...] = (0,)
    says: str = ""
    """A text that is in what it prints."""


_AS_IT_IS = Way()
_REAL = Way(process=True)
_APP = Way(app=True)
_PREPARED = Way(status=(130,))  # all but the run itself, which is taken back
_PRINTED = Way(more="--print-config")
_LIVE = ("NAME", "LIVE")

BEGINNING: dict[str, str] = {
    "tbtui run --no-ui": f"run_name=NAME group_size=4 {SMALL}",
    "tbtui run --json": f"run_name=OTHER group_size=2 {SMALL}",
    "tbtui run --detach": "run_name=LIVE group_size=4 tasks=copy-03 eval_tasks=copy-07"
    " batch_size=1 max_steps=100000 save_every=0 eval_every=0",
}
"""Commands that make the world, and what is added to them."""

WAYS: dict[str, Way] = {
    # First, and by its id: a live run forgets trials of old steps, and the trial that has the name
    # is another one each step.
    "tbtui ctl trial fork copy-03/2 --turn 2 -n 4": Way(
        instead=("copy-03/2 --turn 2", "s0001-copy-03-2 --turn 1")
    ),
    "tbtui ctl trial fork copy-03/2 --turn bisect -n 4": Way(
        instead=("copy-03/2", "s0001-copy-03-2")
    ),
    # Its step waits for it from then on: the live run takes no time from what comes after.
    "tbtui ctl trial pause copy-03/2": Way(again=True),
    'tbtui ctl trial pause copy-03/2 --reason "looks stuck"': Way(again=True),
    "tbtui demos list NAME": _AS_IT_IS,
    "tbtui run": replace(_APP, status=(0, 130)),  # 130: stopped before its end
    "tbtui run max_steps=15 group_size=8": _PREPARED,
    "tbtui run mine.toml seed=3": _PREPARED,
    "tbtui run review=suspects": _PREPARED,
    "tbtui run 'tasks=@hard,copy-*'": _PREPARED,
    "tbtui run environment_type=sandbox environment_kwargs.override_storage_mb=2048": _PREPARED,
    "tbtui run --resume NAME": replace(_PREPARED, more="max_steps=2"),  # NAME has its one step
    "tbtui eval NAME": _PREPARED,
    "tbtui probe": _PREPARED,
    "tbtui probe NAME": _PREPARED,
    "tbtui probe probe=terminus-2@1,terminus-2@0.5 budget.rollouts=60 --json": _PREPARED,
    "tbtui eval NAME eval_group_size=4": replace(_REAL, more="--no-ui"),
    "tbtui run mine.toml --print-config": _AS_IT_IS,
    "tbtui run mine.toml --explain": _AS_IT_IS,
    "tbtui run --explain review_rules=rules.toml": _AS_IT_IS,
    "tbtui settings advantage": _AS_IT_IS,
    "tbtui doctor": Way(status=(0, 1)),  # 1: something is missing on this machine
    "tbtui replay NAME": _APP,
    "tbtui replay NAME s0009-copy-03-2": replace(_APP, instead=("s0009", "s0001")),
    "tbtui export NAME s0009-copy-03-2 --format html": Way(instead=("s0009", "s0001")),
    "tbtui export NAME --format svg --metric eval/pass_rate --smoothing 0.6": _AS_IT_IS,
    'tbtui runs note NAME "learning rate too high"': _AS_IT_IS,
    "tbtui whatif NAME --step 12 --loss ppo --clip-high 0.1": Way(instead=("12", "1")),
    "tbtui compare NAME OTHER": _AS_IT_IS,
    "tbtui diagnose NAME": Way(status=(0, 1)),  # 1: something costs the run
    "tbtui runs": _AS_IT_IS,
    'tbtui runs search "No such file"': Way(status=(0, 1)),  # 1: nothing was found
    "tbtui attach NAME": replace(_APP, instead=_LIVE),
    "tbtui serve NAME": Way(more="--port 0", until="http://"),
    "tbtui ctl run list": _AS_IT_IS,
    "tbtui ctl trial list": _AS_IT_IS,
    "tbtui ctl trial list --json": _AS_IT_IS,
    "tbtui bisect NAME copy-07": replace(_REAL, more="-n 1"),
    "tbtui bisect NAME copy-07 -n 16 --json": replace(_REAL, instead=("-n 16", "-n 1")),
    "tbtui fork NAME s0001-copy-03-2 --turn 2 -n 8": _PREPARED,
    "tbtui fork NAME s0001-copy-03-2 --turn bisect -n 8": _PREPARED,
    "tbtui fork NAME s0001-copy-03-2 --turn all -n 8": _PREPARED,
    "tbtui fork NAME s0001-copy-03-2 --turn 2 --checkpoint 10": replace(
        _REAL, more="-n 1 --no-ui", instead=("--checkpoint 10", "--checkpoint 1")
    ),
    "tbtui fork NAME s0001-copy-03-2 --turn 2 --temperature 0.7": _PREPARED,
    "tbtui run snapshots=turns max_steps=1": _PREPARED,
    "tbtui ctl config set n_parallel_envs=4 --dry-run": _AS_IT_IS,
    "tbtui ctl task list": _AS_IT_IS,
    'tbtui ctl task weight copy --mute --reason "learned"': Way(more="--dry-run"),
    "tbtui ctl task weight copy --unmute": _AS_IT_IS,
    "tbtui run task_sampling=thompson": _PREPARED,
    "tbtui run task_sampling=learnability task_floor=0.2 --explain": _AS_IT_IS,
    "tbtui run task_sampling=thompson screen_trials=3 --explain": _AS_IT_IS,
    "tbtui run budget.rollouts=640 budget.hours=2": _PREPARED,
    "tbtui run --resume NAME --explain": Way(more="max_steps=2"),
    "tbtui run 'alerts=https://hooks.example.org/$HOOK,command:./notify.sh'"
    " --print-config": _AS_IT_IS,
    "tbtui tasks list": _AS_IT_IS,
    "tbtui tasks list tasks/workshop": _AS_IT_IS,
    "tbtui run model_name=maze": _PREPARED,
    "tbtui tasks browse": _APP,
    "tbtui tasks sets": _AS_IT_IS,
    "tbtui tasks check tasks/workshop": _AS_IT_IS,
    "tbtui tasks check tasks/workshop --errors": _AS_IT_IS,
    "tbtui tasks check tasks/workshop --json": _AS_IT_IS,
    "tbtui tasks prefetch tasks/workshop": Way(more="--dry-run"),  # else from a package index
    "tbtui tasks prefetch tasks/workshop --dry-run": _AS_IT_IS,
    "tbtui tasks try log-triage --oracle": _REAL,
    "tbtui tasks audit tasks/workshop --task log-triage": _PREPARED,
    "tbtui tasks audit tasks/starter --task 'copy-*' --cheat interpreter --json": replace(
        _REAL, instead=("copy-*", "copy-01")
    ),
    "tbtui tasks flakes tasks/workshop --task log-triage -n 2 --load 2": _PREPARED,
    "tbtui run honeypots=0.02": _PREPARED,
    "tbtui tasks new counting --into mine": _AS_IT_IS,
    "tbtui tasks try mine/counting --all --attempts 1 --no-ui": _REAL,
    "tbtui fleet": _APP,
    "tbtui fleet --no-ui": _AS_IT_IS,
    "tbtui fleet --json --recent 48": _AS_IT_IS,
    "tbtui fleet --host gpu1": Way(more="--no-ui"),  # no such machine: a row that says so
    "tbtui replay NAME --beside OTHER": _APP,
    "tbtui sweep rates.toml": _REAL,
    "tbtui sweep rates.toml --table": _AS_IT_IS,
    "tbtui sweep rates.toml --json": _AS_IT_IS,
    "tbtui run environment_type=docker tasks_dir=tasks/workshop": _PRINTED,  # no engine here
    "tbtui run agent=mini-swe-agent policy=tinker model_name=Qwen/Qwen3-8B tasks_dir=tasks/workshop"
    " agent_setup_network=true": _PRINTED,  # no key here
    "tbtui run policy=tinker model_name=Qwen/Qwen3-8B tasks_dir=tasks/workshop context_limit=32768"
    " max_cost=20": _PRINTED,
    "TINKER_API_KEY=tml-local tbtui run policy=tinker model_name=Qwen/Qwen3-8B"
    " tinker_base_url=http://127.0.0.1:8001 context_limit=32768 ...": replace(
        _PRINTED, instead=(" ...", "")
    ),
}
PARSED: dict[str, str] = {
    "tbtui demos show NAME s0001": "NAME has no demonstrations",
    "tbtui demos accept NAME s0001": "NAME has no demonstrations",
    "tbtui demos drop NAME s0001": "NAME has no demonstrations",
    "tbtui demos export NAME demos.jsonl --all": "NAME has no demonstrations",
    "tbtui fork NAME s0001-copy-03-2 --turn 2 --policy vllm model_name=NAME"
    " vllm_base_url=...": "needs a vLLM server",
    'tbtui ctl trial message copy-03/2 "look at the tests first"': "needs a paused trial",
    "tbtui probe MODEL TASKS": "needs a model",
    "tbtui probe Qwen/Qwen3-0.6B tasks/workshop context_limit=16384": "needs PyTorch",
    "tbtui probe policy=openai model_name=NAME openai_base_url=http://localhost:8000/v1"
    " tasks_dir=tasks/workshop": "needs a server",
    "tbtui tasks try mine/counting --watch": "goes on until it is left",
    "tbtui tasks fetch --list": "needs Harbor's registry",
    "tbtui tasks fetch terminal-bench@2.0": "needs Harbor's registry",
    "tbtui eval policy=vllm model_name=NAME vllm_base_url=http://localhost:8000/v1"
    " tasks_dir=tasks/workshop": "needs a vLLM server",
    "tbtui eval agent=mini-swe-agent policy=vllm model_name=NAME vllm_base_url=http://gpu:8000/v1"
    " tasks_dir=tasks/workshop agent_setup_network=true agent_install='pip3 install"
    " --break-system-packages mini-swe-agent orjson fastapi'": "needs a vLLM server",
    "tbtui eval agent=mini-swe-agent policy=openai model_name=qwen3:8b"
    " openai_base_url=http://localhost:11434/v1 tasks_dir=tasks/workshop"
    " agent_setup_network=true": "needs a server",
    "tbtui prime-rl check engine=prime-rl model_name=Qwen/Qwen3-4B"
    " tasks_dir=/tasks": "needs Prime-RL's checkout",
    "tbtui run engine=prime-rl model_name=Qwen/Qwen3-4B tasks_dir=/tasks num_train_gpus=1"
    " num_infer_gpus=1": "needs Prime-RL's checkout and two GPUs",
    "tbtui run harbor_8b.toml": "needs Prime-RL's checkout and GPUs",
}
"""Commands of ours that only have their options and settings checked, and why."""
ELSEWHERE: dict[str, str] = {
    "pip install uv && tbtui run": ".ci/run does it, in a fresh clone",
    "pip install uv && uv run pytest": ".ci/run does it, in a fresh clone",
    "git clone --recurse-submodules https://github.com/PrimeIntellect-ai/prime-rl": "a host",
    "(cd prime-rl && uv sync --all-extras)": "a host, and GPUs",
    "uv pip install --python prime-rl/.venv/bin/python"
    " 'tbtui[prime-rl] @ file:///path/to/tbtui'": "a checkout of Prime-RL",
    "uv pip install --python PRIME_RL/.venv/bin/python"
    " 'tbtui[prime-rl] @ file:///path/to/tbtui'": "a checkout of Prime-RL",
    "export PRIME_RL_DIR=$PWD/prime-rl": "a checkout of Prime-RL",
    'echo \'{"verb": "pause", "target": "copy-01__3f2a9c10b7de"}\''
    " >> /runs/tb/control.jsonl": "tests/engines/prime_rl/test_plugin_control.py reads the file",
    "uv run python -m tests.tinker_server.skyrl tbtui run --no-ui policy=tinker model_name={model}"
    " renderer=embedded context_limit=1024 trial_timeout_sec=600 max_steps=20"
    " learning_rate=1e-3": "a Tinker server with weights",
    "uv venv --python 3.12 skyrl && uv pip install --python skyrl/bin/python"
    " 'skyrl[tinker,jax,gpu]==0.4.0' aiohttp": "a host",
    "uv run --no-project --python skyrl/bin/python -m skyrl.tinker.api --backend jax"
    " --base-model Qwen/Qwen3-8B --host 127.0.0.1 --port 8000"
    " --checkpoints-base /data/checkpoints": "SkyRL's server, with a model's weights",
    "uv run python -m tests.tinker_server.skyrl_proxy http://127.0.0.1:8000 8001": "SkyRL's server",
    "uv run python -m tests.by_hand.tinker_report Qwen/Qwen3-8B": "a key of Tinker's",
    "uv run --extra torch tbtui run model_name=Qwen/Qwen3-0.6B tasks_dir=tasks/workshop"
    " context_limit=16384": "PyTorch, and a model from the hub",
    "uv run --extra torch tbtui run agent=shell agent_examples=4"
    " model_name=HuggingFaceTB/SmolLM2-135M-Instruct max_tokens=96"
    " max_turns=4": "PyTorch, and a model from the hub",
}
"""Commands of others, or of this repository's tools: what they need that isn't here."""


def commands_of(page: Path) -> list[str]:
    """The commands in a page's `sh` blocks, each on one line, without comments."""
    commands = []
    for block in re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = " ".join(re.sub(r"(^|\s)#.*", "", line).split())
            if command:
                commands.append(command.replace("uv run tbtui", "tbtui"))
    return commands


ALL = {command for page in PAGES for command in commands_of(page)}


@dataclass
class World:
    """Where the commands are run."""

    where: Path
    began: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)
    """What came of the commands that have made it."""

    @property
    def homes(self) -> dict[str, str]:
        return {f"XDG_{kind}_HOME": str(self.where / kind) for kind in ("CONFIG", "DATA", "STATE")}

    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: os.environ[name] for name in os.environ.keys() - {"COLUMNS", "LINES"}}
        return {**kept, **self.homes, "PATH": path}

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """As a process."""
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.where,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
            check=False,
        )

    def call(self, line: str) -> tuple[int, str]:
        """In this process, but for a run that it would start: that is prepared and taken back."""

        def prepared(request: RunRequest, *_: object) -> int:
            prepare(request)
            request.discard()
            return EXIT["interrupted"]

        words = shlex.split(line)
        arguments = list(itertools.dropwhile(lambda word: word != "tbtui", words))
        variables = dict(word.split("=", 1) for word in words[: -len(arguments)])
        with pytest.MonkeyPatch.context() as patch, contextlib.chdir(self.where):
            for name, value in (self.homes | variables).items():
                patch.setenv(name, value)
            patch.setattr(launch, "_start", prepared)
            result = CliRunner().invoke(app, arguments[1:], catch_exceptions=False)
        return result.exit_code, result.output


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    where = tmp_path_factory.mktemp("guide")
    (where / "tasks").mkdir()
    for name in ("starter", "workshop"):
        (where / "tasks" / name).symlink_to(tasks_dir() / name)
    (where / "mine.toml").write_text("learning_rate = 1e-3\nmax_steps = 2\n")
    (rules,) = re.findall(r"```toml\n(\[\[rule\]\].*?)```", guide("review"), re.DOTALL)
    (where / "rules.toml").write_text(rules)
    (sweep,) = re.findall(r"```toml\n(# rates.toml.*?)```", guide("fleet"), re.DOTALL)
    assert "seeds = [0, 1]" in sweep
    short = 'tasks = ["copy-03"]\neval_tasks = ["copy-07"]\neval_group_size = 1\n\n[grid]'
    (where / "rates.toml").write_text(
        sweep.replace("[grid]", short).replace("seeds = [0, 1]", "seeds = [0]")
    )
    sets = where / "CONFIG" / "tbtui" / "sets"
    sets.mkdir(parents=True)
    (sets / "hard.toml").write_text('[set]\ntasks = ["copy-03", "move-01"]\n')
    world = World(where)
    for command, more in BEGINNING.items():
        world.began[command] = world.run(f"{command} {more}")
        assert world.began[command].returncode == 0, world.began[command].stderr
    # What pauses a trial holds its step up: the first has to be over before.
    deadline = time.monotonic() + PATIENCE_SEC
    while "s0002-" not in world.call("tbtui ctl trial list --json")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return world


def guide(page: str) -> str:
    return (guide_dir() / f"{page}.md").read_text("utf-8")


def test_every_command_is_known() -> None:
    assert {*BEGINNING, *WAYS, *PARSED, *ELSEWHERE} == ALL


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_SEC + 60)
@pytest.mark.parametrize("command", [*BEGINNING, *WAYS])
def test_it_runs(world: World, command: str) -> None:
    way = WAYS.get(command, _REAL)
    line = f"{command.replace(*way.instead)} {way.more}".strip()
    if began := world.began.get(command):
        status, shown = began.returncode, began.stdout + began.stderr
    else:
        status, shown = carry_out(world, line, way)
    assert status in way.status, shown
    assert "Traceback" not in shown


def carry_out(world: World, line: str, way: Way) -> tuple[int, str]:
    """Exit status and text of a command that is run in its way."""
    if way.app:
        return in_terminal(world, line)
    if way.until:
        return interrupted(world, line, way.until)
    if way.process:
        result = world.run(line)
        return result.returncode, result.stdout + result.stderr
    status, shown = world.call(line)
    deadline = time.monotonic() + PATIENCE_SEC
    while way.again and (status or way.says not in shown) and time.monotonic() < deadline:
        status, shown = world.call(line)
    return status, shown


@pytest.mark.parametrize("command", PARSED)
def test_its_options_and_settings_exist(command: str) -> None:
    parse(command)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("tbtui nosuch", "no command nosuch"),
        ("tbtui tasks nosuch", "no command nosuch"),
        ("tbtui tasks fetch --nosuch", "No such option: --nosuch"),
        ("tbtui eval policy=vllm nosuch=1", "unknown setting 'nosuch'"),
        ("tbtui run engine=prime-rl max_steps=few", "max_steps=few: should be"),
    ],
)
def test_what_does_not_exist_is_noticed(command: str, complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        parse(command)


def parse(command: str) -> None:
    """Read a command line as `tbtui` would, and its settings; nothing is started."""
    name, *arguments = shlex.split(command)
    part, context = typer.main.get_command(app), None
    while isinstance(part, TyperGroup) and arguments and not arguments[0].startswith("-"):
        context = part.make_context(name, [], parent=context, resilient_parsing=True)
        name, *arguments = arguments
        part = part.get_command(context, name)
        assert part is not None, f"no command {name}"
    given = part.make_context(name, arguments).params.values()
    several = [each for value in given if isinstance(value, list | tuple) for each in value]
    parse_settings([each for each in several if "=" in each])


def in_terminal(world: World, line: str) -> tuple[int, str]:
    """Open the app, leave it with `q` after the first frame: exit status and text."""
    command = ("bash", "-c", f"exec {line}")
    shown = b""
    # The line of keys is the last of a frame; a run of one's own asks before it is stopped.
    keys = [(rb"quit|\^p", "q"), (rb"Stop the run and clean up\?", "y")]
    with Terminal(*command, controls=False, cwd=world.where, env=world.environment()) as terminal:
        while (part := terminal.read(1)) is not None:
            shown += part
            if keys and re.search(keys[0][0], shown):
                terminal.type(keys.pop(0)[1])
        return terminal.process.wait(), shown.decode(errors="replace")


def interrupted(world: World, line: str, until: str) -> tuple[int, str]:
    """Run until a text has come, then press ctrl-c: exit status and text."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        cwd=world.where,
        env={**world.environment(), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    shown = ""
    try:
        assert process.stdout is not None
        for text in process.stdout:
            shown += text
            if until in text:
                process.send_signal(2)
        return process.wait(PATIENCE_SEC), shown
    finally:
        process.kill()
        process.wait()
