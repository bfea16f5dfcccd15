"""Every command of the README and the guide: run as it stands, or as a table here says.

The tables know each command; one that they don't know fails, and so does one that no page has any
more. The world of the commands has two recorded runs, NAME and OTHER, a live one, a settings file,
a rule file, a saved set and the tasks of this repository.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
import typer
from typer.core import TyperGroup

from tbtui.cli import app
from tbtui.config import parse_settings
from tbtui.resources import guide_dir, tasks_dir

README = Path(__file__).parents[2] / "README.md"
PAGES = (README, *sorted(guide_dir().glob("*.md")))
PATIENCE_SEC = 240
SMALL = "tasks=copy-03 eval_tasks=copy-07 batch_size=1 max_steps=1"
"""A run of one group."""


@dataclass(frozen=True)
class Way:
    """How a command is run in the tests."""

    more: str = ""
    """What is added to it."""
    instead: tuple[str, str] = ("", "")
    """A text of it, and what stands in for it: what only a longer run has."""
    app: bool = False
    """It opens the app, which is left with `q` after its first frame."""
    until: str = ""
    """It runs until ctrl-c, which it gets once this has been printed."""
    alone: bool = False
    """In a directory for what is live of its own: the live run stays the only one of its own."""
    again: bool = False
    """Tried until it succeeds: what it is about comes and goes."""
    status: tuple[int, ...] = (0,)


_AS_IT_IS = Way()
_APP = Way(app=True)
_OWN_RUN = Way(app=True, alone=True, status=(0, 130))  # 130: stopped before its end
_PRINTED = Way(more="--print-config")
_LIVE = ("NAME", "LIVE")

WAYS: dict[str, Way] = {
    # First, and by its id: a live run forgets trials of old steps, and the trial that has the name
    # is another one each step.
    "tbtui ctl trial fork copy-03/2 --turn 2 -n 4": Way(
        instead=("copy-03/2 --turn 2", "s0001-copy-03-2 --turn 1")
    ),
    "tbtui ctl trial fork copy-03/2 --turn bisect -n 4": Way(
        instead=("copy-03/2", "s0001-copy-03-2")
    ),
    "tbtui demos list NAME": _AS_IT_IS,
    "tbtui run": _OWN_RUN,
    "tbtui run max_steps=15 group_size=8": _OWN_RUN,
    "tbtui run mine.toml seed=3": _OWN_RUN,
    "tbtui run review=suspects": _OWN_RUN,
    "tbtui run 'tasks=@hard,copy-*'": _OWN_RUN,
    "tbtui run environment_type=sandbox environment_kwargs.override_storage_mb=2048": _OWN_RUN,
    "tbtui run --resume NAME": replace(_OWN_RUN, more="max_steps=2"),  # NAME has its one step
    "tbtui eval NAME": _OWN_RUN,
    "tbtui eval NAME eval_group_size=4": Way(more="--no-ui"),
    "tbtui run --no-ui": Way(more=SMALL),
    "tbtui run --json": Way(more=SMALL),
    "tbtui run --detach": Way(more=SMALL, alone=True),
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
    "tbtui ctl trial pause copy-03/2": Way(again=True),
    'tbtui ctl trial pause copy-03/2 --reason "looks stuck"': Way(again=True),
    "tbtui run advantage=turn_value value_rollouts_per_step=64 snapshots=turns": replace(
        _OWN_RUN, more=f"--no-ui value_rollouts_per_turn=1 {SMALL}"
    ),
    "tbtui run group_from=fork fork_groups_per_step=2 snapshots=turns": replace(
        _OWN_RUN, more=f"--no-ui {SMALL}"
    ),
    "tbtui bisect NAME copy-07": Way(more="-n 2"),
    "tbtui bisect NAME copy-07 -n 16 --json": Way(instead=("-n 16", "-n 2")),
    "tbtui fork NAME s0001-copy-03-2 --turn 2 -n 8": Way(more="-n 1 --no-ui"),
    "tbtui fork NAME s0001-copy-03-2 --turn bisect -n 8": Way(more="-n 1 --no-ui"),
    "tbtui fork NAME s0001-copy-03-2 --turn all -n 8": Way(more="-n 1 --no-ui"),
    "tbtui fork NAME s0001-copy-03-2 --turn 2 --checkpoint 10": Way(
        more="-n 1 --no-ui", instead=("--checkpoint 10", "--checkpoint 1")
    ),
    "tbtui fork NAME s0001-copy-03-2 --turn 2 --temperature 0.7": Way(more="-n 1 --no-ui"),
    "tbtui run snapshots=turns max_steps=1": _OWN_RUN,
    "tbtui ctl config set n_parallel_envs=4 --dry-run": _AS_IT_IS,
    "tbtui ctl task list": _AS_IT_IS,
    'tbtui ctl task weight copy --mute --reason "learned"': Way(more="--dry-run"),
    "tbtui ctl task weight copy --unmute": _AS_IT_IS,
    "tbtui run task_sampling=thompson": _OWN_RUN,
    "tbtui run task_sampling=learnability task_floor=0.2 --explain": _AS_IT_IS,
    "tbtui run task_sampling=thompson screen_trials=3 --explain": _AS_IT_IS,
    "tbtui run budget.rollouts=640 budget.hours=2": _OWN_RUN,
    "tbtui run --resume NAME --explain": Way(more="max_steps=2"),
    "tbtui run 'alerts=https://hooks.example.org/$HOOK,command:./notify.sh'"
    " --print-config": _AS_IT_IS,
    "tbtui tasks list": _AS_IT_IS,
    "tbtui tasks list tasks/workshop": _AS_IT_IS,
    "tbtui run model_name=maze": replace(
        _OWN_RUN, more="--no-ui tasks=maze-01 eval_tasks=maze-30 batch_size=1 max_steps=1"
    ),
    "tbtui tasks browse": _APP,
    "tbtui tasks sets": _AS_IT_IS,
    "tbtui tasks check tasks/workshop": _AS_IT_IS,
    "tbtui tasks check tasks/workshop --errors": _AS_IT_IS,
    "tbtui tasks check tasks/workshop --json": _AS_IT_IS,
    "tbtui tasks prefetch tasks/workshop": Way(more="--dry-run"),  # else from a package index
    "tbtui tasks prefetch tasks/workshop --dry-run": _AS_IT_IS,
    "tbtui tasks try log-triage --oracle": _AS_IT_IS,
    "tbtui tasks audit tasks/workshop --task log-triage": _AS_IT_IS,
    "tbtui tasks audit tasks/starter --task 'copy-*' --cheat interpreter --json": Way(
        instead=("copy-*", "copy-01")
    ),
    "tbtui tasks flakes tasks/workshop --task log-triage -n 2 --load 2": _AS_IT_IS,
    "tbtui run honeypots=0.02": _OWN_RUN,
    "tbtui tasks new counting --into mine": _AS_IT_IS,
    "tbtui tasks try mine/counting --all --attempts 1 --no-ui": _AS_IT_IS,
    "tbtui fleet": _APP,
    "tbtui fleet --no-ui": _AS_IT_IS,
    "tbtui fleet --json --recent 48": _AS_IT_IS,
    "tbtui fleet --host gpu1": Way(more="--no-ui"),  # no such machine: a row that says so
    "tbtui replay NAME --beside OTHER": _APP,
    "tbtui sweep rates.toml": _AS_IT_IS,
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

    def environment(self, *, alone: bool = False) -> dict[str, str]:
        home = {f"XDG_{kind}_HOME": str(self.where / kind) for kind in ("CONFIG", "DATA", "STATE")}
        if alone:
            home["XDG_STATE_HOME"] = str(self.where / "STATE-ALONE")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: os.environ[name] for name in os.environ.keys() - {"COLUMNS", "LINES"}}
        return {**kept, **home, "PATH": path, "TERM": "xterm-256color"}

    def run(self, line: str, *, alone: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.where,
            env=self.environment(alone=alone),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SEC,
            check=False,
        )

    def end(self) -> None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("XDG_CONFIG_HOME") == str(self.where / "CONFIG"):
                    process.kill()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    where = tmp_path_factory.mktemp("guide")
    (where / "tasks").mkdir()
    for name in ("starter", "workshop"):
        (where / "tasks" / name).symlink_to(tasks_dir() / name)
    (where / "mine.toml").write_text("learning_rate = 1e-3\nmax_steps = 2\n")
    (rules,) = re.findall(r"```toml\n(\[\[rule\]\].*?)```", guide("review"), re.DOTALL)
    (where / "rules.toml").write_text(rules)
    (sweep,) = re.findall(r"```toml\n(# rates.toml.*?)```", guide("fleet"), re.DOTALL)
    (where / "rates.toml").write_text(
        sweep.replace("[grid]", 'tasks = ["copy-03"]\neval_tasks = ["copy-07"]\n\n[grid]')
    )
    sets = where / "CONFIG" / "tbtui" / "sets"
    sets.mkdir(parents=True)
    (sets / "hard.toml").write_text('[set]\ntasks = ["copy-03", "move-01"]\n')
    world = World(where)
    try:
        for line in (
            f"tbtui run --no-ui run_name=NAME group_size=4 {SMALL}",
            f"tbtui run --no-ui run_name=OTHER group_size=2 {SMALL}",
            "tbtui run --detach run_name=LIVE group_size=4 tasks=copy-03 eval_tasks=copy-07"
            " batch_size=1 max_steps=100000 save_every=0 eval_every=0",
        ):
            result = world.run(line)
            assert result.returncode == 0, result.stderr
        # What pauses a trial holds its step up: the first has to be over before.
        deadline = time.monotonic() + PATIENCE_SEC
        while "s0002-" not in world.run("tbtui ctl trial list --json").stdout:
            assert time.monotonic() < deadline
        yield world
    finally:
        world.end()


def guide(page: str) -> str:
    return (guide_dir() / f"{page}.md").read_text("utf-8")


def test_every_command_is_known() -> None:
    assert {*WAYS, *PARSED, *ELSEWHERE} == ALL


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_SEC + 60)
@pytest.mark.parametrize("command", WAYS)
def test_it_runs(world: World, command: str) -> None:
    way = WAYS[command]
    line = f"{command.replace(*way.instead)} {way.more}".strip()
    if way.app:
        status, shown = in_terminal(world, line, alone=way.alone)
    elif way.until:
        status, shown = interrupted(world, line, way.until)
    else:
        result = world.run(line, alone=way.alone)
        deadline = time.monotonic() + PATIENCE_SEC
        while way.again and result.returncode and time.monotonic() < deadline:
            result = world.run(line)
        status, shown = result.returncode, result.stdout + result.stderr
    assert status in way.status, shown
    assert "Traceback" not in shown


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
    while isinstance(part, TyperGroup):
        context = part.make_context(name, [], parent=context, resilient_parsing=True)
        name, *arguments = arguments
        part = part.get_command(context, name)
        assert part is not None, f"no command {name}"
    given = part.make_context(name, arguments).params.values()
    several = [each for value in given if isinstance(value, list | tuple) for each in value]
    parse_settings([each for each in several if "=" in each])


def in_terminal(world: World, line: str, *, alone: bool) -> tuple[int, str]:
    """Open the app in a pty, leave it with `q` after the first frame: exit status and text."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        cwd=world.where,
        env=world.environment(alone=alone),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    shown = b""
    # The line of keys is the last of a frame; a run of one's own asks before it is stopped.
    keys = [(rb"quit|\^p", b"q"), (rb"Stop the run and clean up\?", b"y")]
    deadline = time.monotonic() + PATIENCE_SEC
    try:
        with contextlib.suppress(OSError):  # the end of what a terminal shows
            while time.monotonic() < deadline:
                if not select.select([master], [], [], 1)[0]:
                    continue
                shown += os.read(master, 65536)
                if keys and re.search(keys[0][0], shown):
                    os.write(master, keys.pop(0)[1])
        return process.wait(PATIENCE_SEC), shown.decode(errors="replace")
    finally:
        process.kill()
        process.wait()
        os.close(master)


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
