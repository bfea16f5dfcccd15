"""Freeze, resume, stop, expire, cancel: in real trials in a worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from tbtui.journal.events import Outcome, TrialPhase
from tbtui.rollout.messages import (
    Completion,
    ControlRefused,
    ControlVerb,
    PauseEntered,
    PauseLeft,
    PhaseEntered,
    SampleWanted,
    TrialDone,
    TrialSpec,
    TurnSeen,
)
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import (
    DONE,
    HELLO,
    Form,
    ScriptedEngine,
    Silence,
    act,
    boxes,
    changed,
    make_spec,
    sh,
)
from tests.tasks import make_task
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.uid]

TICKING = act("while :; do echo tick; sleep 0.02; done\n", duration=1.0)


async def acting(engine: ScriptedEngine, spec: TrialSpec) -> None:
    await engine.wait_for(spec.trial, PhaseEntered, lambda m: m.phase is TrialPhase.ACTING)


def pane(spec: TrialSpec) -> Path:
    return spec.trials_dir / spec.trial / "agent" / "terminal.pane"


async def ticking(spec: TrialSpec) -> None:
    await until(lambda: pane(spec).exists() and b"tick\r\ntick" in pane(spec).read_bytes())


def running(engine: ScriptedEngine) -> int:
    """Processes in boxes that a signal has not stopped; process 1 and its parent never are."""
    (pid,) = engine.pool.pids.values()
    return sum(process.status() != psutil.STATUS_STOPPED for process in boxes(pid))


@pytest.mark.slow
async def test_freeze_in_the_middle_of_a_turn(engine: ScriptedEngine, spec: TrialSpec) -> None:
    spec = changed(spec, budget_sec=2.0)
    engine.start(spec, [TICKING, act("C-c"), DONE])
    await acting(engine, spec)
    await ticking(spec)
    engine.pool.control(spec.trial, "freeze", "let me look")
    entered = await engine.wait_for(spec.trial, PauseEntered)
    assert entered.frozen
    await asyncio.sleep(0.2)  # what was in the pipe
    size = pane(spec).stat().st_size
    await asyncio.sleep(2.2)  # more than its budget
    assert pane(spec).stat().st_size == size
    seen = engine.seen[spec.trial]
    assert not seen.of(TurnSeen)
    engine.pool.control(spec.trial, "pause")  # changes nothing
    engine.pool.control(spec.trial, "freeze")  # nor does this
    engine.pool.control(spec.trial, "resume")
    await engine.wait_for(spec.trial, PauseLeft)
    turn = await engine.wait_for(spec.trial, TurnSeen)
    assert 1.0 <= turn.seconds < 2.0
    facts = await engine.facts(spec.trial)
    assert facts.finish == "completed"
    assert facts.seconds.paused > 2.2
    assert facts.seconds.commands < 2.5
    assert (len(seen.of(PauseEntered)), len(seen.of(PauseLeft))) == (1, 1)
    phases = [m.phase for m in seen.of(PhaseEntered)]
    paused = phases.index(TrialPhase.PAUSED)
    assert phases[paused + 1] is TrialPhase.ACTING  # where it was before


async def test_freeze_while_the_model_is_asked(engine: ScriptedEngine, spec: TrialSpec) -> None:
    engine.start(spec, [HELLO, Silence()])
    wanted = await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn == 2)
    engine.pool.control(spec.trial, "freeze")
    assert (await engine.wait_for(spec.trial, PauseEntered)).frozen
    # The box of the trial before may still be coming down.
    await until(lambda: running(engine) <= 2)
    engine.pool.reply(Completion(wanted.request, wanted.trial, act("echo more\n"), False, 1, 1))
    await asyncio.sleep(0.3)
    seen = engine.seen[spec.trial]
    assert len(seen.of(TurnSeen)) == 1  # the answer waits
    engine.pool.control(spec.trial, "resume")
    turn = await engine.wait_for(spec.trial, TurnSeen, lambda turn: turn.turn == 2)
    assert "more" in turn.observation  # and is used
    engine.pool.control(spec.trial, "cancel")
    facts = await engine.facts(spec.trial)
    assert facts.seconds.paused >= 0.3


@pytest.mark.parametrize("paused", [True, False], ids=["paused", "before it acts"])
async def test_a_trial_is_frozen_between_turns(
    engine: ScriptedEngine, spec: TrialSpec, paused: bool, form: Form
) -> None:
    engine.start(changed(spec, agent=form.agent), [form.hello, form.done])
    if paused:
        await engine.wait_for(spec.trial, SampleWanted)
        engine.pool.control(spec.trial, "pause")
        await engine.wait_for(spec.trial, PauseEntered, lambda m: not m.frozen)
    engine.pool.control(spec.trial, "freeze")
    await engine.wait_for(spec.trial, PauseEntered, lambda m: m.frozen)
    assert bool(engine.seen[spec.trial].of(SampleWanted)) == paused
    # The box of the trial before may still be coming down.
    await until(lambda: running(engine) <= 2)
    engine.pool.control(spec.trial, "resume")
    facts = await engine.facts(spec.trial)
    assert (facts.finish, facts.verdict) == ("completed", 1.0)
    assert len(engine.seen[spec.trial].of(PauseLeft)) == 1


async def test_a_verification_is_not_held(
    engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path
) -> None:
    slow = make_task(tmp_path / "slow", test="sleep 0.5; echo 1 > $R")
    engine.start(changed(spec, task_dir=slow), [DONE])
    await engine.wait_for(spec.trial, PhaseEntered, lambda m: m.phase is TrialPhase.VERIFYING)
    verbs: list[ControlVerb] = ["freeze", "pause", "take_over"]
    for verb in verbs:
        engine.pool.control(spec.trial, verb, "ada")
    facts = await engine.facts(spec.trial)
    assert facts.verdict == 1.0
    refused = engine.seen[spec.trial].of(ControlRefused)
    assert [message.verb for message in refused] == verbs
    assert "verified" in refused[0].reason
    assert all(message.past_holding for message in refused)
    assert not engine.seen[spec.trial].of(PauseEntered)


ENDLESS = "echo hi > /app/hello.txt; sleep 600"


@pytest.mark.parametrize("verb", ["stop", "expire", "cancel"])
@pytest.mark.parametrize(
    ("agent", "answer"),
    [("terminus-2", act(f"{ENDLESS}\n", duration=60)), ("shell", sh(ENDLESS))],
    ids=["terminus-2", "shell"],
)
async def test_the_end_of_a_frozen_trial(
    engine: ScriptedEngine, spec: TrialSpec, verb: ControlVerb, agent: str, answer: str
) -> None:
    engine.start(changed(spec, agent=agent), [answer])
    await acting(engine, spec)
    await until(lambda: pane(spec).exists() and b"sleep 600\r\n" in pane(spec).read_bytes())
    engine.pool.control(spec.trial, "freeze")
    await engine.wait_for(spec.trial, PauseEntered)
    engine.pool.control(spec.trial, verb)
    facts = await engine.facts(spec.trial)
    finish = {"stop": "stopped", "expire": "deadline", "cancel": "cancelled"}[verb]
    assert facts.finish == finish
    assert facts.verdict == (None if verb == "cancel" else 1.0)


@pytest.mark.parametrize("verb", ["stop", "expire"])
async def test_a_long_command_does_not_delay_a_stop(
    engine: ScriptedEngine, spec: TrialSpec, verb: ControlVerb
) -> None:
    engine.start(spec, [act("echo hi > /app/hello.txt; sleep 600\n", duration=60)])
    await acting(engine, spec)
    await until(lambda: pane(spec).exists() and b"sleep 600\r\n" in pane(spec).read_bytes())
    engine.pool.control(spec.trial, verb)
    facts = await engine.facts(spec.trial)
    assert facts.seconds.commands < 30
    assert facts.verdict == 1.0
    (turn,) = engine.seen[spec.trial].of(TurnSeen)
    assert "sleep 600" in turn.observation  # how far it came
    decision = decide(facts)
    if verb == "stop":
        assert (decision.outcome, decision.reward) == (Outcome.CANCELLED, None)
    else:
        assert (decision.outcome, decision.reward) == (Outcome.AGENT_TIMEOUT, 0.0)
        assert "deadline" in decision.reason


async def test_the_parts_of_the_time_add_up(
    engine: ScriptedEngine, task: Path, tmp_path: Path
) -> None:
    loop = asyncio.get_running_loop()
    spec = make_spec("parts", task, tmp_path)
    began = loop.time()
    engine.start(spec, [HELLO, DONE, DONE])
    await engine.wait_for(spec.trial, SampleWanted)
    engine.pool.control(spec.trial, "pause")
    await engine.wait_for(spec.trial, PauseEntered)
    engine.pool.control(spec.trial, "resume")
    await engine.wait_for(spec.trial, TrialDone)
    wall = loop.time() - began
    seconds = (await engine.facts(spec.trial)).seconds.by_phase()
    assert sum(seconds.values()) == pytest.approx(wall, abs=0.05)
    assert seconds.pop("queue") == seconds.pop("delayed") == 0
    assert min(seconds.values()) > 0


async def test_a_trial_of_the_oracles_can_be_frozen_and_not_paused(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Harbor's oracle has no turns."""
    task = make_task(tmp_path / "endless")
    (task / "solution").mkdir()
    (task / "solution" / "solve.sh").write_text("#!/bin/bash\nsleep 600\n")
    spec = make_spec("oracle", task, tmp_path, agent="oracle")
    engine.start(spec, [DONE])
    await acting(engine, spec)
    verbs: tuple[ControlVerb, ...] = ("pause", "take_over", "freeze")
    for verb in verbs:
        engine.pool.control(spec.trial, verb, "ada")
    await engine.wait_for(spec.trial, PauseEntered)
    refused = engine.seen[spec.trial].of(ControlRefused)
    assert [each.verb for each in refused] == ["pause", "take_over"]
    assert "(oracle) has no turns" in refused[0].reason
    engine.pool.control(spec.trial, "stop")
    assert (await engine.facts(spec.trial)).finish == "stopped"
