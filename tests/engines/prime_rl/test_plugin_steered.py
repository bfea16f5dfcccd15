"""Real trials in the plugin, followed by the real watcher and steered through `PrimeRlControl`.

Prime-RL's orchestrator is the only part that is not there: this test asks the environment server
for rollouts, and writes their episodes where the orchestrator does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

pytest.importorskip("verifiers", reason="verifiers is not installed: the extra `prime-rl` has it")

from tbtui.engines.prime_rl.plugin.files import FOLDER
from tbtui.engines.prime_rl.plugin.host import NOT_REPEATED
from tbtui.engines.prime_rl.watch.formats import Trace, read_records
from tbtui.engines.prime_rl.watch.plugin_logs import PluginTrial, pairs
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CommandVerb, TrialFinished, TrialPhase, TurnSampled
from tests.engines.prime_rl.environment_server import EnvironmentServer, serving_environment
from tests.engines.prime_rl.recorded_run import append
from tests.engines.prime_rl.scripted_model import (
    Answer,
    ScriptedModel,
    Status,
    serving,
    silent,
)
from tests.engines.prime_rl.steered import Steered
from tests.rollout.scripted import DONE, HELLO, act
from tests.tasks import make_task

SUMMARY = ["so far so good", "what is left?", "to say done"]
SCRIPTS: dict[str, list[Answer]] = {
    "held": [HELLO, DONE, DONE],
    "ended": [HELLO, DONE, DONE],
    "other": [HELLO, DONE, DONE],
    "slow": [act("sleep 60\n", duration=60.0), HELLO, DONE, DONE],
    # With an error, which never comes up, it goes request by request.
    "summarised": [HELLO, *SUMMARY, DONE, *SUMMARY, DONE, Status(500)],
}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.extras]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncIterator[ScriptedModel]:
    async with serving(SCRIPTS) as model:
        yield model


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tasks = tmp_path_factory.mktemp("tasks")
    for name in SCRIPTS:
        make_task(tasks / name, f"[{name}] Create /app/hello.txt.")
    return tasks


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    model: ScriptedModel, tasks: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EnvironmentServer]:
    directory = tmp_path_factory.mktemp("trials")
    async with serving_environment(tasks, directory, model.url, max_turns=4) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def steered(server: EnvironmentServer, tmp_path: Path) -> AsyncIterator[Steered]:
    steered = Steered(tmp_path, server.directory)
    async with steered.followed():
        yield steered


@pytest.fixture
def asking(model: ScriptedModel) -> Iterator[asyncio.Event]:
    with silent(model) as arrived:
        yield arrived


async def queued(steered: Steered, task: str) -> str:
    """The task's trial, as soon as it is live in the journal."""
    while True:
        if steered.prepared.directory.database.exists():
            for trial in steered.state().live_trials():
                if trial.task == task:
                    return trial.trial
        await asyncio.sleep(0.02)  # a file announces nothing


async def heard(server: EnvironmentServer, command: Command) -> None:
    """The environment server has taken the command up."""
    log = server.directory / FOLDER / f"{command.target}.jsonl"
    while True:
        if command.id in log.read_text():
            return
        await asyncio.sleep(0.02)  # a file announces nothing


def arrived(steered: Steered, episode: Any, step: int) -> None:
    """Written as Prime-RL's orchestrator does, once it has said whose it is."""
    record = json.loads(episode.model_dump_json(exclude_none=True))
    record["group"] = {"id": f"group-{step}"}
    record["run"] = {"type": "train", "id": "r", "work": {"type": "train", "step": step}}
    append(steered.run.path / "rollouts" / f"step_{step}" / "train/all/traces.jsonl", record)


async def test_a_trial_is_live_and_its_trace_completes_it(
    server: EnvironmentServer, steered: Steered, asking: asyncio.Event, model: ScriptedModel
) -> None:
    rollout = asyncio.create_task(server.episode("held"))
    await asking.wait()
    trial = await queued(steered, "held")
    await steered.seen("trial_phase_changed", trial=trial, phase=TrialPhase.MODEL)
    model.gate.set()
    episode = await rollout
    await steered.seen("trial_finished", trial=trial)
    assert "echo hi" in steered.prepared.directory.recording(trial).read_text()
    arrived(steered, episode, 4)
    traced = await steered.seen("trial_traced", trial=trial)
    # The client of evaluations, which is used here, gets no tokens.
    assert (traced.group, traced.step, traced.calls) == ("group-4", 4, ())
    view = steered.state().trials[trial]
    assert (view.reward, view.turn, view.group) == (1.0, 3, "group-4")
    ended = [event for event in steered.events() if isinstance(event, TrialFinished)]
    assert [event.trial for event in ended].count(trial) == 1


async def test_pause_and_resume(
    server: EnvironmentServer, steered: Steered, asking: asyncio.Event, model: ScriptedModel
) -> None:
    rollout = asyncio.create_task(server.rollout("held"))
    await asking.wait()
    trial = await queued(steered, "held")
    asked = model.asked["held"] - 1
    pause = await steered.ask("pause", trial)
    await heard(server, pause)
    model.gate.set()
    assert await steered.answer(pause) == (True, f"{trial} paused")
    assert steered.state().trials[trial].hold.paused
    assert model.asked["held"] == asked + 1
    again = await steered.ask("pause", trial)
    assert await steered.answer(again) == (True, f"{trial} is paused")
    assert (await steered.answer(await steered.ask("resume", trial)))[0]
    assert (await rollout).reward == 1.0


async def test_a_pause_that_is_taken_back(
    server: EnvironmentServer, steered: Steered, asking: asyncio.Event, model: ScriptedModel
) -> None:
    rollout = asyncio.create_task(server.rollout("held"))
    await asking.wait()
    trial = await queued(steered, "held")
    pause = await steered.ask("pause", trial)
    resume = await steered.ask("resume", trial)
    assert await steered.answer(pause) == (False, f"{trial}: taken back by ada")
    assert await steered.answer(resume) == (True, f"{trial} is running")
    model.gate.set()
    assert (await rollout).reward == 1.0


async def test_freeze_stops_a_command_in_the_middle(
    server: EnvironmentServer, steered: Steered
) -> None:
    rollout = asyncio.create_task(server.rollout("slow"))
    trial = await queued(steered, "slow")
    await steered.seen("turn_parsed", trial=trial)
    assert await steered.answer(await steered.ask("freeze", trial)) == (True, f"{trial} frozen")
    assert steered.state().trials[trial].hold.frozen
    assert (await steered.answer(await steered.ask("resume", trial)))[0]
    stop = await steered.ask("stop", trial)
    assert (await steered.answer(stop))[0]
    assert (await rollout).has_error


@pytest.mark.parametrize(
    ("verb", "said", "more"),
    [
        ("stop", "stopped", ""),
        ("cancel", "cancelled", f"; {NOT_REPEATED}"),
        ("retry", "given up for a fresh attempt", f"; {NOT_REPEATED}"),
    ],
)
async def test_what_a_person_ends(
    server: EnvironmentServer,
    steered: Steered,
    asking: asyncio.Event,
    verb: CommandVerb,
    said: str,
    more: str,
) -> None:
    rollout = asyncio.create_task(server.rollout("ended"))
    await asking.wait()
    trial = await queued(steered, "ended")
    command = await steered.ask(verb, trial)
    assert await steered.answer(command) == (True, f"{trial} ended as cancelled{more}")
    finished = await steered.seen("trial_finished", trial=trial)
    assert finished.reason == f"{said} by ada"
    trace = await rollout
    assert trace.has_error
    assert not [reward for reward in trace.rewards.values() if reward is not None]
    assert f"{said} by ada" in str(trace.errors[-1].message)
    assert trace.info["tbtui"]["outcome"] == "cancelled"
    kinds = [e for e in steered.events() if getattr(e, "command", "") == command.id]
    assert [event.kind for event in kinds] == ["command_issued", "command_done"]


async def test_what_is_trained_on_is_prime_rls_to_say(
    server: EnvironmentServer, steered: Steered, asking: asyncio.Event, model: ScriptedModel
) -> None:
    rollout = asyncio.create_task(server.rollout("held"))
    await asking.wait()
    exclude = await steered.ask("exclude", await queued(steered, "held"))
    ok, said = await steered.answer(exclude)
    assert (ok, said) == (False, "Prime-RL decides what is trained on: cancel it instead")
    model.gate.set()
    await rollout


@pytest.mark.parametrize(("verb", "frozen"), [("pause", False), ("freeze", True)])
async def test_the_whole_run_stands_still(
    server: EnvironmentServer,
    steered: Steered,
    asking: asyncio.Event,
    model: ScriptedModel,
    verb: CommandVerb,
    frozen: bool,
) -> None:
    running = [asyncio.create_task(server.rollout(task)) for task in ("held", "ended")]
    await asking.wait()
    names = [await queued(steered, "held"), await queued(steered, "ended")]
    for name in names:
        await steered.seen("turn_started", trial=name)
    assert (await steered.answer(await steered.ask(verb)))[0]
    # Commands are taken up in their order.
    fence = await steered.ask("exclude", names[0])
    await steered.answer(fence)
    if not frozen:
        model.gate.set()
    for name in names:
        await steered.seen("trial_paused", trial=name, frozen=frozen)
    late = asyncio.create_task(server.rollout("other"))
    waiting = await queued(steered, "other")
    model.gate.set()
    state = steered.state()
    assert state.paused
    assert [state.trials[name].hold.frozen for name in names] == [frozen, frozen]
    assert state.trials[waiting].phase is TrialPhase.QUEUED
    # One goes on by itself; that the run goes on then is news to the others alone.
    assert (await steered.answer(await steered.ask("resume", names[0])))[0]
    assert (await steered.answer(await steered.ask("resume", RUN)))[0]
    assert [trace.reward for trace in await asyncio.gather(*running, late)] == [1.0] * 3
    assert not steered.state().paused


async def test_summaries_are_calls_of_their_own(
    model: ScriptedModel, tasks: Path, tmp_path: Path
) -> None:
    harness = {"enable_summarize": True, "proactive_summarization_threshold": 40_000}
    steered = Steered(tmp_path)
    async with (
        serving_environment(
            tasks / "summarised", steered.trials_dir, model.url, max_turns=4, **harness
        ) as server,
        steered.followed(),
    ):
        episode = await server.episode("summarised")
        (trace,) = episode.traces
        assert (trace.has_error, trace.reward) == (False, 1.0)
        assert len(trace.branches) > 1  # each of a summary's steps, and the history after it
        arrived(steered, episode, 1)
        trial = str(trace.info["tbtui"]["trial"])
        await steered.seen("trial_traced", trial=trial)
    steps = [f"summarize-{step}" for step in ("summary", "questions", "answers")]
    purposes = ["turn", *steps, "turn", *steps, "turn"]
    sampled = [event for event in steered.events() if isinstance(event, TurnSampled)]
    assert [event.purpose for event in sampled] == purposes
    # The trace has the same calls in the same order: its tokens would be those of the turns.
    state = PluginTrial()
    for event in sampled:
        state.follow(event, 0.0)
    (record,), _ = read_records(Trace, [trace.model_dump_json(exclude_none=True).encode()])
    assert [turn.text for _, turn in pairs(state.calls, record) if turn is not None] == [
        event.text for event in sampled
    ]
