"""Real Harbor trials in a real worker and the sandbox, with a scripted policy."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tbtui.ipc import Channel, spawn, wait_for_exit
from tbtui.journal.events import Outcome, TrialPhase
from tbtui.rollout.environments.cgroups import find_cgroups
from tbtui.rollout.messages import (
    Completion,
    CompletionDelayed,
    EnvironmentSpec,
    FromWorker,
    PauseEntered,
    PauseLeft,
    PhaseEntered,
    SampleWanted,
    StartTrial,
    ToWorker,
    TrialDone,
    TrialFacts,
    TrialSpec,
    TurnSeen,
    TurnUnderstood,
    WorkerReady,
)
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import (
    DONE,
    HELLO,
    Cut,
    Fail,
    Form,
    Script,
    ScriptedEngine,
    Silence,
    act,
    alive,
    boxes,
    changed,
    make_spec,
)
from tests.tasks import make_task
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.uid]


# What a good trial leaves


async def test_solves_a_task(engine: ScriptedEngine, spec: TrialSpec) -> None:
    facts = await engine.run(spec, [HELLO, DONE, DONE])
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 3)
    assert decide(facts).outcome is Outcome.SOLVED
    assert facts.verifier_output == "checked\n"

    seen = engine.seen[spec.trial]
    phases = [message.phase for message in seen.of(PhaseEntered)]
    turns = [TrialPhase.MODEL, TrialPhase.ACTING] * 3
    assert phases == [TrialPhase.SETUP] * 2 + turns + [TrialPhase.VERIFYING, TrialPhase.TEARDOWN]
    assert [message.turn for message in seen.of(SampleWanted)] == [1, 2, 3]
    assert [len(message.messages) for message in seen.of(SampleWanted)] == [1, 3, 5]
    assert [message.task_complete for message in seen.of(TurnUnderstood)] == [False, True, True]
    assert seen.of(TurnUnderstood)[0].commands[0].keystrokes == "echo hi > /app/hello.txt\n"
    assert "echo hi" in seen.of(TurnSeen)[0].observation
    seconds = facts.seconds
    parts = (seconds.setup, seconds.commands, seconds.verifying, seconds.teardown)
    assert min(parts) > 0

    first_prompt = seen.of(SampleWanted)[0].messages[0].content
    assert "Current Terminal Screen:\nroot@" in first_prompt  # not a blank screen

    folder = spec.trials_dir / spec.trial
    result = json.loads((folder / "result.json").read_text())
    assert result["verifier_result"]["rewards"]["reward"] == 1.0
    assert not result["agent_result"].get("rollout_details")
    trajectory = json.loads((folder / "agent" / "trajectory.json").read_text())
    assert trajectory["schema_version"].startswith("ATIF")
    assert [step["source"] for step in trajectory["steps"]] == ["user", "agent", "agent", "agent"]
    assert "token_ids" not in json.dumps(trajectory)
    header, *events = map(json.loads, (folder / "recording.cast").read_text().splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, 160, 40)
    shown = "".join(data for _, kind, data in events if kind == "o")
    assert shown.count("root@") >= 2
    assert "echo hi > /app/hello.txt" in shown
    assert sorted(p.name for p in folder.iterdir() if p.name.startswith(".")) == []


# Control


async def test_pause_at_the_boundary(engine: ScriptedEngine, spec: TrialSpec, form: Form) -> None:
    spec = changed(spec, budget_sec=2.5, agent=form.agent)
    engine.start(spec, [form.hello, Silence(), form.done])
    await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn == 2)
    wanted = engine.seen[spec.trial].of(SampleWanted)[1]
    engine.pool.control(spec.trial, "pause", "let me look")
    engine.pool.reply(Completion(wanted.request, wanted.trial, form.act("true"), False, 1, 1))
    await engine.wait_for(spec.trial, PauseEntered)
    await asyncio.sleep(2.6)  # more than its budget
    seen = engine.seen[spec.trial]
    assert len(seen.of(SampleWanted)) == 2
    assert not seen.of(TrialDone)
    engine.pool.control(spec.trial, "resume")
    facts = await engine.facts(spec.trial)
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 2 + form.confirms)
    assert facts.seconds.paused > 2
    assert len(seen.of(PauseLeft)) == 1


@pytest.mark.parametrize("state", ["sampling", "paused"])
async def test_stop_still_verifies(
    engine: ScriptedEngine, spec: TrialSpec, state: str, form: Form
) -> None:
    engine.start(changed(spec, agent=form.agent), [form.hello, Silence()])
    if state == "paused":
        await engine.wait_for(spec.trial, SampleWanted)
        engine.pool.control(spec.trial, "pause")
        await engine.wait_for(spec.trial, PauseEntered)
    else:
        await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn == 2)
    engine.pool.control(spec.trial, "stop")
    facts = await engine.facts(spec.trial)
    assert (facts.finish, facts.verdict) == ("stopped", 1.0)
    assert failing(facts) == (Outcome.CANCELLED, None)


async def test_cancel_does_not_verify(engine: ScriptedEngine, spec: TrialSpec) -> None:
    engine.start(spec, [HELLO, Silence()])
    await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn == 2)
    engine.pool.control(spec.trial, "cancel")
    facts = await engine.facts(spec.trial)
    assert (facts.finish, facts.verdict) == ("cancelled", None)
    assert not [m for m in engine.seen[spec.trial].of(PhaseEntered) if m.phase == "verifying"]
    (pid,) = engine.pool.pids.values()
    assert not boxes(pid)


# How a policy can fail

SLOW_HELLO = act("echo hi > /app/hello.txt; sleep 60\n", duration=60)


def failing(facts: TrialFacts) -> tuple[Outcome, float | None]:
    decision = decide(facts)
    return decision.outcome, decision.reward


@pytest.mark.parametrize(
    ("changes", "script", "finish", "turns", "outcome"),
    [
        ({"budget_sec": 0.7}, [SLOW_HELLO], "budget", 1, Outcome.AGENT_TIMEOUT),
        ({"max_turns": 2}, [HELLO, DONE], "max_turns", 2, Outcome.AGENT_TIMEOUT),
        ({}, [HELLO, Fail("context_overflow")], "context_overflow", 1, Outcome.CONTEXT_OVERFLOW),
        # More keys follow in the same turn, which tmux has to refuse.
        (
            {},
            [HELLO, act("exit\n", "echo more\n", duration=0.3)],
            "terminal_ended",
            2,
            Outcome.FAILED,
        ),
    ],
    ids=["out of time while acting", "out of turns", "context overflow", "own terminal closed"],
)
async def test_its_work_is_verified_and_counts_as_failed(
    engine: ScriptedEngine,
    spec: TrialSpec,
    changes: dict[str, Any],
    script: Script,
    finish: str,
    turns: int,
    outcome: Outcome,
) -> None:
    facts = await engine.run(changed(spec, **changes), script)
    assert (facts.finish, facts.turns, facts.verdict) == (finish, turns, 1.0)
    assert failing(facts) == (outcome, 0.0)


async def test_unreadable_answers(engine: ScriptedEngine, spec: TrialSpec) -> None:
    facts = await engine.run(changed(spec, max_turns=3), [HELLO, "I am done, trust me."])
    assert (facts.finish, facts.turns, facts.verdict) == ("max_turns", 3, 1.0)
    assert failing(facts) == (Outcome.PARSE_ERROR, 0.0)
    seen = engine.seen[spec.trial]
    assert [bool(message.error) for message in seen.of(TurnUnderstood)] == [False, True, True]
    assert len(seen.of(TurnSeen)) == 1  # nothing was executed after an unreadable answer


async def test_an_unconfirmed_end_is_no_end(engine: ScriptedEngine, spec: TrialSpec) -> None:
    script = [HELLO, DONE, act("true\n"), DONE, "oops", DONE]
    facts = await engine.run(spec, script)
    assert (facts.finish, facts.turns) == ("completed", 6)
    understood = engine.seen[spec.trial].of(TurnUnderstood)
    assert [message.task_complete for message in understood] == [
        False,
        True,
        False,
        True,
        False,
        True,
    ]


async def test_cut_answers_count_as_turns(engine: ScriptedEngine, spec: TrialSpec) -> None:
    facts = await engine.run(changed(spec, max_turns=3), [HELLO, Cut('{"analysis": "on and on')])
    assert (facts.finish, facts.turns, facts.last_truncated) == ("max_turns", 3, True)
    assert failing(facts) == (Outcome.OUTPUT_TRUNCATED, 0.0)
    wanted = engine.seen[spec.trial].of(SampleWanted)
    assert [ask.turn for ask in wanted] == [1, 2, 3]
    assert "exceeded 512 tokens" in wanted[2].messages[-1].content


async def test_a_task_of_several_steps(
    engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path
) -> None:
    steps = make_task(tmp_path / "steps")
    toml = (steps / "task.toml").read_text()
    toml += '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
    (steps / "task.toml").write_text(toml)
    for name in ("one", "two"):
        (steps / "steps" / name).mkdir(parents=True)
        (steps / "instruction.md").rename(steps / "steps" / name / "instruction.md")
        (steps / "instruction.md").write_text("Go on.\n")
    (steps / "instruction.md").unlink()
    script = [HELLO, DONE, DONE, act("true\n"), DONE, DONE]
    facts = await engine.run(changed(spec, task_dir=steps, max_turns=9), script)
    assert (facts.finish, facts.turns, facts.verdict) == ("completed", 6, 1.0)


@pytest.mark.parametrize(
    "end",
    [
        "pkill -9 -f '^tmux -C'; echo gone\n",
        "tmux detach-client -s terminus-2; echo gone\n",
        "chmod 000 $(command -v tmux); pkill -9 -f '^tmux -C'; tmux -V || echo gone\n",
    ],
)
async def test_a_tmux_client_that_is_ended_is_not_missed(
    engine: ScriptedEngine, spec: TrialSpec, end: str
) -> None:
    facts = await engine.run(spec, [act(end, duration=0.3), HELLO, DONE, DONE])
    screens = [seen.observation for seen in engine.seen[spec.trial].of(TurnSeen)]
    assert "gone" in screens[0]
    assert decide(facts).outcome is Outcome.SOLVED


HOSTILE = {
    "markup": act("echo '[bold red]x[/]'\n", analysis="[blink]a[/blink]"),
    "escapes": act("printf '\x1b[2J\x1b]0;title\x07\x1bc'\n", plan="\x1b[31m\x9b"),
    "nul": act("echo a\0b\n", "\0"),
    "raw nul": "\0\0{\0" + act("true\n"),
    "surrogates": act("echo \ud800\n", analysis="\udfff", **{"\ud800": 1}),
    "one long line": act("echo " + "x" * 100_000 + "\n"),
    "one long unfinished line": act("y" * 100_000, "C-c"),
    "deep": '{"analysis":' + "[" * 100_000,
    "deep and closed": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "huge number": '{"analysis":"","plan":"","commands":[],"x":' + "9" * 9_999 + "}",
    "huge duration": act("true\n").replace("0.05", "1" + "0" * 400),
    "nan": act("true\n").replace("0.05", "NaN"),
    "negative": act("true\n").replace("0.05", "-Infinity"),
    "wrong types": '{"analysis":{},"plan":[1],"commands":[],"task_complete":[1]}',
    "quiet error": act("true\n", **{"ERROR:": 1}),
    "empty keys": act("", "-", ";", "--", "\\;", "Enter"),
    "nothing": "",
    "long prose": "la " * 33_000,
    "binary output": act("head -c 3000 /dev/urandom\n", "\x03"),
    "history gone": act("clear; tmux clear-history; tmux kill-pane -a\n"),
    "braces": "{" * 100_000,
}


@pytest.mark.slow
async def test_garbage_is_the_policys_own(engine: ScriptedEngine, spec: TrialSpec) -> None:
    spec = changed(spec, max_turns=len(HOSTILE) + 6)
    slow_hello = act("echo hi > /app/hello.txt\n", duration=1.0)
    script = [*HOSTILE.values(), act("C-c", "C-u"), slow_hello, DONE, DONE]
    facts = await engine.run(spec, script)
    assert facts.finish == "completed", facts
    assert facts.verdict == 1.0
    folder = spec.trials_dir / spec.trial
    trajectory = json.loads((folder / "agent" / "trajectory.json").read_text())
    assert len(trajectory["steps"]) == facts.turns + 1
    for line in (folder / "recording.cast").read_text().splitlines():
        json.loads(line)
    for message in engine.seen[spec.trial].of(TurnUnderstood):
        for command in message.commands:
            command.keystrokes.encode()
            assert 0 <= command.duration_sec <= 60


# What is nobody's score


async def test_the_policy_fails_once_and_for_all(engine: ScriptedEngine, spec: TrialSpec) -> None:
    facts = await engine.run(spec, [HELLO, Fail("provider_error", "429 Too Many Requests")])
    assert (facts.finish, facts.verdict) == ("provider_error", None)
    assert len(engine.seen[spec.trial].of(SampleWanted)) == 2  # no retries
    decision = decide(facts)
    assert (decision.outcome, decision.reward) == (Outcome.PROVIDER_ERROR, None)
    assert "429" in decision.reason


async def test_a_policy_goes_silent(engine: ScriptedEngine, spec: TrialSpec) -> None:
    facts = await engine.run(changed(spec, budget_sec=1.5), [HELLO, Silence()])
    assert (facts.finish, facts.verdict) == ("too_slow", None)
    assert failing(facts) == (Outcome.TOO_SLOW, None)
    assert "of the trial's 1.5 s (trial_timeout_sec)" in decide(facts).reason


async def test_a_slow_policy_is_out_of_time(engine: ScriptedEngine, spec: TrialSpec) -> None:
    engine.start(changed(spec, budget_sec=1.5), [Silence()])
    wanted = await engine.wait_for(spec.trial, SampleWanted)
    await asyncio.sleep(1.1)  # then there is less left than it took
    engine.pool.reply(Completion(wanted.request, wanted.trial, HELLO, False, 1, 1))
    facts = await engine.facts(spec.trial)
    assert (facts.finish, facts.verdict, facts.turns) == ("budget", 1.0, 2)
    assert failing(facts) == (Outcome.AGENT_TIMEOUT, 0.0)


async def test_setup_fails(engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path) -> None:
    broken = make_task(tmp_path / "broken")
    (broken / "environment" / "Dockerfile").write_text("FROM debian\nRUN exit 7\n")
    facts = await engine.run(changed(spec, task_dir=broken), [DONE])
    assert failing(facts) == (Outcome.SETUP_ERROR, None)
    assert facts.failed_phase == "environment"
    (broken / "environment" / "Dockerfile").write_text("FROM x\nRUN seq 9999; echo No gcc; false\n")
    facts = await engine.run(changed(spec, trial="long", task_dir=broken), [DONE])
    reason = decide(facts).reason
    assert "UnbuildableError: environment/Dockerfile:2: exit code 1 of RUN seq" in reason
    assert reason.endswith("9998 9999 No gcc")
    gone = changed(spec, trial="gone", task_dir=tmp_path / "nowhere")
    assert failing(await engine.run(gone, [DONE])) == (Outcome.SETUP_ERROR, None)
    nobody = changed(spec, trial="nobody", environment=EnvironmentSpec(None, "no.such:Thing"))
    assert failing(await engine.run(nobody, [DONE])) == (Outcome.SETUP_ERROR, None)


async def test_verifiers_fail(engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path) -> None:
    # The agent plants a verdict; a verifier that crashes must not make it count.
    script = [act("mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt\n"), DONE, DONE]
    silent = make_task(tmp_path / "silent", test="exit 1")
    facts = await engine.run(changed(spec, task_dir=silent), script)
    assert facts.finish == "completed"
    assert failing(facts) == (Outcome.VERIFIER_ERROR, None)
    vague = make_task(tmp_path / "vague", test='echo \'{"a": 1, "b": 0}\' > ${R%txt}json')
    facts = await engine.run(changed(spec, trial="vague", task_dir=vague), [DONE])
    assert failing(facts) == (Outcome.VERIFIER_ERROR, None)
    assert "a, b" in decide(facts).reason


@pytest.mark.parametrize("when", ["before acting", "before verifying"])
async def test_sandbox_lost(engine: ScriptedEngine, spec: TrialSpec, when: str) -> None:
    engine.start(spec, [HELLO, Silence()])
    wanted = await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn == 2)
    (pid,) = engine.pool.pids.values()
    if when == "before verifying":
        engine.pool.control(spec.trial, "pause")
    for process in boxes(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    if when == "before verifying":
        engine.pool.control(spec.trial, "stop")
    else:
        engine.pool.reply(Completion(wanted.request, wanted.trial, act("true\n"), False, 1, 1))
    facts = await engine.facts(spec.trial)
    if when == "before acting":
        assert failing(facts) == (Outcome.SANDBOX_LOST, None)
    assert facts.verdict is None
    assert decide(facts).reward is None


# The ends of workers; the last test of the session's worker


async def test_a_killed_worker_leaves_nothing(engine: ScriptedEngine, spec: TrialSpec) -> None:
    engine.start(spec, [HELLO, Silence()])
    await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn == 2)
    (pid,) = engine.pool.pids.values()
    family = boxes(pid)
    assert family
    os.kill(pid, signal.SIGKILL)
    lost = await engine.until(lambda: engine.lost[0] if engine.lost else None)
    assert lost.trials == (spec.trial,)
    await until(lambda: not alive(family))
    again = changed(spec, trial=f"{spec.trial}-again")
    facts = await engine.run(again, [HELLO, DONE, DONE])  # in the successor
    assert decide(facts).outcome is Outcome.SOLVED


async def test_a_stop_in_the_middle_leaves_nothing(
    tmp_path: Path, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    engine = ScriptedEngine(tmp_path / "logs")
    await engine.pool.start()
    (pid,) = engine.pool.pids.values()
    names = ["acting", "waiting", "starting"]
    engine.start(make_spec("acting", task, tmp_path), [act("sleep 60\n", duration=60)])
    engine.start(make_spec("waiting", task, tmp_path), [HELLO, Silence()])
    for name in names[:2]:
        await engine.wait_for(name, SampleWanted)
    engine.start(make_spec("starting", task, tmp_path), [HELLO])
    await engine.wait_for("starting", PhaseEntered)
    family = boxes(pid)
    await engine.pool.stop()
    assert not alive(family)
    assert list((tmp_path / "state" / "tbtui" / "boxes").iterdir()) == []
    parents = find_cgroups().parents.values()
    assert [group for parent in parents for group in parent.glob(f"tbtui-*-{pid}-*")] == []


async def test_a_worker_without_engine_cleans_up(tmp_path: Path, task: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process, sock = spawn("tbtui.rollout.worker", ["1"], log=log)
    channel: Channel[ToWorker, FromWorker] = await Channel.over(sock)
    async for message in channel:
        if isinstance(message, WorkerReady):
            channel.post(StartTrial(make_spec("orphan", task, tmp_path)))
        assert not isinstance(message, TrialDone), message
        if isinstance(message, SampleWanted):
            break
    family = boxes(process.pid)
    assert family
    await channel.close()
    assert await wait_for_exit(process, 15) == 0
    assert not alive(family)
    result = json.loads((tmp_path / "trials" / "orphan" / "result.json").read_text())
    assert result["verifier_result"] is None


@pytest.fixture(scope="session", autouse=True)
def mounts() -> Iterator[None]:
    before = _our_mounts()
    yield
    assert _our_mounts() <= before


def _our_mounts() -> set[str]:
    """A box's, and what is mounted in the directories of tests. Others mount things meanwhile."""
    lines = Path("/proc/mounts").read_text().splitlines()
    return {line for line in lines if line.startswith("box ") or "/pytest-" in line}


async def test_waiting_for_a_policy_that_is_out_of_order_is_not_the_agents_time(
    engine: ScriptedEngine, spec: TrialSpec
) -> None:
    spec = changed(spec, budget_sec=2.5)
    engine.start(spec, [HELLO, Silence()])
    wanted = await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn == 2)
    engine.pool.delay(CompletionDelayed(wanted.request, wanted.trial, waited_sec=0.1))
    await asyncio.sleep(2.6)  # more than its budget
    assert not engine.seen[spec.trial].of(TrialDone)
    engine.pool.delay(CompletionDelayed(wanted.request, wanted.trial, delayed=False))
    engine.pool.reply(Completion(wanted.request, wanted.trial, DONE, False, 1, 1))
    wanted = await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn == 3)
    engine.pool.reply(Completion(wanted.request, wanted.trial, DONE, False, 1, 1))
    facts = await engine.facts(spec.trial)
    assert (facts.finish, facts.verdict) == ("completed", 1.0)
    assert facts.seconds.delayed > 2
