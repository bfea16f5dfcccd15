"""A person takes trials over in a real run, with real trials: here, and over the control socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tbtui.engines.control.client import AttachedRun
from tbtui.journal.commands import Command, Typed, to_arguments
from tbtui.journal.events import (
    CommandDone,
    GroupScored,
    HumanTyped,
    Outcome,
    TrialFinished,
    TrialGivenBack,
    TrialResumed,
    TrialTakenOver,
)
from tests.engines.real_run import RealRun
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.uid]

Begin = Callable[..., Awaitable[RealRun]]
SOLVE = to_arguments([Typed("text", "touch solved"), Typed("key", "Enter")])


@pytest.fixture
async def begin_real(tmp_path: Path) -> AsyncIterator[Begin]:
    runs: list[RealRun] = []

    async def begin(**settings: Any) -> RealRun:
        runs.append(RealRun(tmp_path / "runs" / "real", **settings))
        await runs[-1].begin()
        return runs[-1]

    yield begin
    for run in runs:
        await run.stop()


async def test_what_a_person_solved_counts_where_that_is_wanted(begin_real: Begin) -> None:
    run = await begin_real(on_outcome={"human_touched": "train"})
    first = run.first
    command = Command("take_over", first, "ada")
    run.submit(command)
    run.policy.go.set()
    assert (await run.done(command)).ok
    assert (await run.asked(Command("type", first, "ada", arguments=SOLVE))).ok
    assert (await run.asked(Command("give_back", first, "ada"))).ok
    end = await run.end()
    assert end.status == "finished", end.reason

    finished = {event.trial: event for event in run.events(TrialFinished)}
    mine = finished.pop(first)
    assert (mine.outcome, mine.verdict, mine.reward) == (Outcome.HUMAN_TOUCHED, 1.0, 1.0)
    assert {event.outcome for event in finished.values()} == {Outcome.FAILED}
    (group,) = run.events(GroupScored)
    assert group.trials[first].reward == 1.0
    assert group.trials[first].advantage is not None
    assert group.baseline == pytest.approx(1 / 3)
    told = [prompt for prompt in run.policy.prompts if "a person has typed" in prompt]
    assert told
    assert "touch solved" in told[0]
    assert [type(e) for e in (*run.events(TrialTakenOver), *run.events(TrialGivenBack))] == [
        TrialTakenOver,
        TrialGivenBack,
    ]
    (typed,) = run.events(HumanTyped)
    assert (typed.actor, typed.parts[0]) == ("ada", Typed("text", "touch solved"))


async def test_who_leaves_gives_back_and_the_trial_stays_paused(begin_real: Begin) -> None:
    run = await begin_real()
    first = run.first
    ada = AttachedRun(run.directory, "ada")
    ada.start()
    await until(lambda: not ada.read_only)
    command = Command("take_over", first)
    ada.submit(command)
    run.policy.go.set()
    assert (await run.done(command)).ok
    ada.submit(typing := Command("type", first, arguments=SOLVE))
    assert (await run.done(typing)).ok
    assert run.events(TrialTakenOver)[0].actor == "ada"
    # One at a time.
    for verb in ("take_over", "type", "resume"):
        refused = await run.asked(Command(verb, first, "bob", arguments=SOLVE))
        assert (refused.ok, "ada types in" in refused.result) == (False, True)
    ada.interrupt()
    await ada.ended()
    await until(lambda: run.events(TrialGivenBack))
    assert not run.events(TrialResumed)
    assert (await run.asked(Command("resume", first, "bob"))).ok
    assert (await run.end()).status == "finished"
    mine = next(event for event in run.events(TrialFinished) if event.trial == first)
    assert (mine.outcome, mine.reward) == (Outcome.HUMAN_TOUCHED, None)
    (group,) = run.events(GroupScored)
    assert (group.trials[first].advantage, group.baseline) == (None, 0.0)


async def test_what_cannot_be(begin_real: Begin) -> None:
    run = await begin_real()
    first = run.first
    early = await run.asked(Command("type", first, "ada", arguments=SOLVE))
    assert (early.ok, "take it over first" in early.result) == (False, True)
    assert (await run.asked(Command("freeze", first, "ada"))).ok
    frozen = await run.asked(Command("take_over", first, "ada"))
    assert (frozen.ok, "frozen in the middle of a turn" in frozen.result) == (False, True)
    thawing = Command("take_over", first, "ada", arguments={"thaw": True})
    run.submit(thawing)
    run.policy.go.set()
    assert (await run.done(thawing)).ok
    for arguments, why in (
        ({}, "nothing to type"),
        ({"input": [{"key": "Nokey"}]}, "no key is named 'Nokey'"),
        ({"input": [{"text": "a\0"}]}, "NUL"),
        ({"input": [{"text": "a" * 20_000}]}, "20000 bytes at once"),
    ):
        refused = await run.asked(Command("type", first, "ada", arguments=arguments))
        assert (refused.ok, why in refused.result) == (False, True), refused.result
    assert (await run.asked(Command("give_back", first, "ada", arguments={"stay": True}))).ok
    assert len(run.events(TrialResumed)) <= 1
    assert not (await run.asked(Command("give_back", first, "ada"))).ok
    assert (await run.asked(Command("stop", first, "ada"))).ok
    assert [done.ok for done in run.events(CommandDone)].count(True) == 4
