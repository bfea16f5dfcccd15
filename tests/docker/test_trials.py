"""Whole trials, and whole runs, in a real engine."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tbtui.journal.commands import Typed
from tbtui.journal.events import Outcome, TrialFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tbtui.rollout.environments.leftovers import reap_leftovers
from tbtui.rollout.messages import (
    EnvironmentSpec,
    KeysTyped,
    SampleWanted,
    TakenOver,
    TrialSpec,
    TurnSeen,
    TypeKeys,
)
from tbtui.rollout.outcome import decide
from tests.docker.conftest import docker, engine_answers, in_engine
from tests.events import events_of
from tests.rollout.harbor_trial import reward_of, run_trial
from tests.rollout.scripted import DONE, ScriptedEngine, Silence, act
from tests.rollout.scripted import make_spec as scripted_spec
from tests.tasks import make_task
from tests.waiting import until

IMPORT_PATH = "tbtui.rollout.environments.docker:DockerEnvironment"
SCRIPT = Path(__file__).parents[2] / ".ci" / "docker-engine"
HELLO = act("echo hi > /app/hello.txt\n")


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(tmp_path / "logs")
    await engine.pool.start()
    yield engine
    await engine.pool.stop()


def make_spec(trial: str, task: Path, folder: Path, **changes: Any) -> TrialSpec:
    return scripted_spec(
        trial, task, folder, **{"environment": EnvironmentSpec(None, IMPORT_PATH), **changes}
    )


async def _harbor(task: Path, agent: str, folder: Path) -> float | None:
    return reward_of(await run_trial(task, agent, folder, import_path=IMPORT_PATH))


@pytest.mark.parametrize("name", ["starter/append-01", "maze/maze-01"])
async def test_oracle_solves_and_nop_does_not(name: str, tmp_path: Path) -> None:
    task = tasks_dir() / name
    assert await _harbor(task, "oracle", tmp_path) == 1.0
    assert await _harbor(task, "nop", tmp_path) == 0.0


@pytest.mark.parametrize("kind", ["git-recover-commit", "sqlite-migration", "hung-pipeline"])
async def test_bundled_tasks_with_packages_to_install(kind: str, tmp_path: Path) -> None:
    task = tasks_dir() / "workshop" / kind
    assert await _harbor(task, "oracle", tmp_path) == 1.0


async def test_terminus_with_a_live_recording(engine: ScriptedEngine, tmp_path: Path) -> None:
    task = make_task(tmp_path / "hello")
    long = act("seq 1 5000; echo LAST\n", duration=1)
    spec = make_spec("live", task, tmp_path)
    engine.start(spec, [HELLO, long, Silence()])
    await engine.until(lambda: engine.seen["live"].of(SampleWanted)[2:] or None)
    cast = spec.trials_dir / "live" / "recording.cast"
    await until(lambda: "LAST" in cast.read_text())  # while the trial runs
    history = engine.seen["live"].of(TurnSeen)[1].observation
    assert "LAST" in history
    engine.pool.control("live", "cancel")
    assert decide(await engine.facts("live")).outcome is Outcome.CANCELLED

    facts = await engine.run(make_spec("solved", task, tmp_path), [HELLO, long, DONE, DONE])
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 4)
    assert decide(facts).outcome is Outcome.SOLVED
    assert facts.verifier_output == "checked\n"
    folder = tmp_path / "trials" / "solved"
    header, *output = (folder / "recording.cast").read_text().splitlines()
    assert json.loads(header)["version"] == 2
    text = "".join(json.loads(line)[2] for line in output)
    assert "4999\r\n5000\r\nLAST" in text
    assert json.loads((folder / "result.json").read_text())["trial_name"] == "solved"
    assert (folder / "agent" / "trajectory.json").is_file()

    facts = await engine.run(make_spec("idle", task, tmp_path), [DONE, DONE])
    assert (decide(facts).outcome, facts.verdict, decide(facts).reward) == (Outcome.FAILED, 0.0, 0)


async def test_a_person_types_in_a_container(engine: ScriptedEngine, tmp_path: Path) -> None:
    spec = make_spec("typed", make_task(tmp_path / "hello"), tmp_path)
    engine.start(spec, [act("cd /tmp\n"), DONE, DONE])
    engine.pool.control("typed", "take_over", "ada")
    await engine.wait_for("typed", TakenOver)
    typed = (Typed("text", "echo hi > /app/hello.txt; echo ty''ped"), Typed("key", "Enter"))
    engine.pool.type_keys(TypeKeys("typed", "c1", typed))
    assert not (await engine.wait_for("typed", KeysTyped)).error
    cast = spec.trials_dir / "typed" / "recording.cast"
    await until(lambda: "typed" in cast.read_text())
    engine.pool.control("typed", "resume")
    facts = await engine.facts("typed")
    assert (facts.finish, facts.verdict, facts.human_touched) == ("completed", 1.0, True)
    assert decide(facts).outcome is Outcome.HUMAN_TOUCHED


async def test_a_reward_written_before_the_verification_does_not_count(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    silent = make_task(tmp_path / "silent", test="true")
    plant = act(
        "echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json\n"
    )
    facts = await engine.run(make_spec("planted", silent, tmp_path), [plant, DONE, DONE])
    assert facts.verdict is None
    assert decide(facts).outcome is Outcome.VERIFIER_ERROR
    link = act("rm -rf /logs/verifier; ln -s /etc /logs/verifier\n")
    honest = make_task(tmp_path / "honest")
    facts = await engine.run(make_spec("linked", honest, tmp_path), [link, DONE, DONE])
    assert facts.verdict == 0.0


@pytest.mark.parametrize(
    ("dockerfile", "reason"),
    [
        ("FROM debian:bookworm-slim\nRUN echo no && false\n", "echo no && false"),
        ("FROM debian:bookworm-slim\nBOGUS\n", "unknown instruction: BOGUS"),
        ("FROM tbtui.invalid/no-such-image:1\n", "no-such-image"),
        ("FROM debian:bookworm-slim\nRUN rm /usr/bin/sleep\n", "container"),
    ],
    ids=["step fails", "syntax", "base missing", "does not stay up"],
)
async def test_no_image_is_no_reward(
    dockerfile: str, reason: str, engine: ScriptedEngine, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "task")
    (task / "environment" / "Dockerfile").write_text(dockerfile)
    facts = await engine.run(make_spec("none", task, tmp_path), [DONE])
    decision = decide(facts)
    assert (decision.outcome, decision.reward) == (Outcome.SETUP_ERROR, None)
    assert reason in decision.reason, decision.reason


async def test_a_task_whose_image_cannot_be_pulled(engine: ScriptedEngine, tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    with (task / "task.toml").open("a") as file:
        file.write('docker_image = "tbtui.invalid/no-such-image:1"\n')
    decision = decide(await engine.run(make_spec("pulled", task, tmp_path), [DONE]))
    assert (decision.outcome, decision.reward) == (Outcome.SETUP_ERROR, None)
    assert "no image tbtui.invalid/no-such" in decision.reason
    assert decision.reason.endswith(f"force_build=true builds {task}/environment/Dockerfile")
    built = EnvironmentSpec(None, IMPORT_PATH, force_build=True)
    spec = make_spec("built", task, tmp_path, environment=built)
    assert decide(await engine.run(spec, [HELLO, DONE, DONE])).outcome is Outcome.SOLVED


@pytest.mark.parametrize("how", ["kill", "stop --time 1"])
async def test_a_container_killed_in_mid_trial_is_no_reward(
    engine: ScriptedEngine, tmp_path: Path, how: str
) -> None:
    spec = make_spec("killed", make_task(tmp_path / "hello"), tmp_path)
    engine.start(spec, [HELLO, act("sleep 1000\n", duration=5), DONE])
    await engine.until(lambda: engine.seen["killed"].of(SampleWanted)[1:] or None)
    (container,) = (name for name in in_engine() if name.endswith("-main-1"))
    docker(*how.split(), container)
    decision = decide(await engine.facts("killed"))
    assert (decision.outcome, decision.reward) == (Outcome.SANDBOX_LOST, None)


def _run(where: Path, *arguments: str) -> subprocess.Popen[str]:
    shutil.copytree(tasks_dir() / "starter" / "mkdir-01", where / "tasks" / "mkdir-01")
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tbtui", "run", "--no-ui", "environment_type=docker"),
            *("run_name=r", f"logs_dir={where / 'runs'}", f"tasks_dir={where / 'tasks'}"),
            *("batch_size=1", "group_size=2", "save_every=0", "eval_every=0", *arguments),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(where / "state")},
    )


def _ended(where: Path) -> list[TrialFinished]:
    return events_of(RunDirectory(where / "runs" / "r"), TrialFinished)


async def test_a_whole_run(tmp_path: Path) -> None:
    run = _run(tmp_path, "max_steps=1")
    text, _ = await asyncio.to_thread(run.communicate)
    assert run.returncode == 0, text
    ended = _ended(tmp_path)
    assert len(ended) >= 2
    assert all(event.reward is not None for event in ended), ended


def _own_engine() -> bool:
    """The engine is one that the CI's script started, so that it may be stopped."""
    pid_file = Path("/run/tbtui-dockerd.pid")
    return os.geteuid() == 0 and pid_file.exists() and engine_answers()


def start_engine() -> None:
    subprocess.run([SCRIPT], check=True, capture_output=True)


@pytest.fixture
def stoppable() -> Any:
    if not _own_engine():
        pytest.skip("the engine is not .ci/docker-engine's own, so it is not stopped")

    def stop() -> None:
        subprocess.run([SCRIPT, "stop"], check=True, capture_output=True)

    yield stop
    if not engine_answers():
        start_engine()


@pytest.mark.timeout(300)
async def test_an_engine_that_stops_gives_no_reward_and_ends_the_run(
    stoppable: Any, tmp_path: Path
) -> None:
    run = _run(tmp_path, "max_steps=50", "halt_after=2", "max_retries=0", "retry_wait_sec=0.1")
    while not _ended(tmp_path):
        assert run.poll() is None, run.communicate()[0]
        await asyncio.sleep(0.1)
    await asyncio.to_thread(stoppable)
    try:
        text, _ = await asyncio.to_thread(run.communicate, timeout=120)
    finally:
        run.kill()
        run.wait()
        start_engine()
        reap_leftovers()  # what the stopped engine kept is for the next start of tbtui
    assert run.returncode != 0, text
    assert "docker" in text.splitlines()[-1].lower(), text
    lost = [event for event in _ended(tmp_path) if event.reward is None]
    assert lost
    infrastructure = {Outcome.SANDBOX_LOST, Outcome.SETUP_ERROR, Outcome.VERIFIER_ERROR}
    assert {event.outcome for event in lost} <= infrastructure


_END_FIRST_PROCESS = (
    "for p in /proc/[0-9]*; do grep -qszx infinity $p/cmdline && kill -9 ${p#/proc/}; done"
)
_DAEMON = "(setsid sh -c 'until [ -e /tests/test.sh ]; do :; done; {}' > /dev/null 2>&1 &)"
_FILL = "for i in 1 2 3 4 5 6 7 8; do head -c 32M /dev/zero > /$i; done"
AGENTS_DOING = {
    "no working directory": ("rm -rf /app", ""),
    "no shell": ("rm /bin/bash /usr/bin/bash", ""),
    "another test script": (
        _DAEMON.format("cd /tests; cp test.sh x; echo echo 1 >> x; mv x test.sh"),
        "/tests/test.sh is not what was uploaded",
    ),
    "its end": (_END_FIRST_PROCESS, "the agent has ended its container (exit code 137)"),
    "its end while it is verified": (
        _DAEMON.format(_END_FIRST_PROCESS),
        "what ran in the sandbox has ended its container",
    ),
    "a full disk": (_FILL, "the agent has used up its disk"),
    "a full disk while it is verified": (
        _DAEMON.format(_FILL),
        "what ran in the sandbox has used up its disk",
    ),
}


@pytest.mark.parametrize("what", AGENTS_DOING)
async def test_an_agent_that_breaks_its_container_has_failed(
    engine: ScriptedEngine, tmp_path: Path, what: str
) -> None:
    test = "sleep 5; [ -e /app/hello.txt ] && echo 1 > $R || echo 0 > $R"
    task = make_task(tmp_path / "task", test=test)
    with (task / "environment" / "Dockerfile").open("a") as file:
        file.write("""ENTRYPOINT ["sh", "-c", "\\"$@\\"; exit $?", "sh"]\n""")  # without exec
    limited = EnvironmentSpec(None, IMPORT_PATH, kwargs={"storage_mb": 64})
    keys, reason = AGENTS_DOING[what]
    script = [act(f"{keys}\n", duration=3), DONE, DONE]
    spec = make_spec("breaks", task, tmp_path, environment=limited)
    decision = decide(await engine.run(spec, script))
    assert (decision.outcome, decision.reward) == (Outcome.FAILED, 0.0), decision
    assert reason in decision.reason


@pytest.mark.parametrize("alone", [False, True])
async def test_what_the_agent_has_left_running_is_killed_first(
    engine: ScriptedEngine, tmp_path: Path, alone: bool
) -> None:
    task = make_task(tmp_path / "task", test="echo 0 > $R; sleep 1")
    rewrite = (
        "(setsid sh -c 'until [ -e /tests/test.sh ]; do :; done; cd /logs/verifier;"
        " while :; do echo 1 > x; mv -f x reward.txt; sleep .1; done' > /dev/null 2>&1 &)\n"
    )
    spec = make_spec("alone", task, tmp_path, kill_before_verifying=alone)
    facts = await engine.run(spec, [act(rewrite), DONE, DONE])
    assert facts.verdict == (0.0 if alone else 1.0), facts
