"""A run outlives whatever it is asked for, and its journal says what came of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing

import pytest

from tbtui.journal.commands import Command
from tbtui.journal.events import CommandDone, CommandIssued, TrialFinished, TrialQueued
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.runs import LiveRun as Followed
from tbtui.view.fold import Fold
from tbtui.view.reading import Reading
from tests.waiting import until

from .conftest import Begin, Ctl
from .random_control import Crowd


async def rage(begin: Begin, ctl: Ctl, seed: int, rounds: int) -> None:
    run = await begin(max_steps=1000, group_size=3, n_parallel_envs=4, max_retries=1)
    crowd = Crowd(run, ctl, seed)
    shown = Followed(run.directory)
    following = asyncio.create_task(follow(shown))
    await crowd.rage(rounds)
    following.cancel()
    assert crowd.said == []
    assert run.going, "the run has ended"
    await run.stop()
    check_journal(run.directory, crowd.accepted)
    # What was followed while it happened is what a replay comes to.
    while shown.follow(1.0) or shown.behind:
        pass
    assert shown.state == replayed(run.directory).state
    shown.close()


async def follow(shown: Followed) -> None:
    while True:
        shown.follow(0.002)
        await asyncio.sleep(0.01)


def replayed(directory: RunDirectory) -> Fold:
    with closing(JournalReader(directory)) as reader:
        reading = Reading(reader)
        while reading.fold.state.seq < reader.last_seq():
            reading.bite(reader.last_seq())
        return reading.fold


def check_journal(directory: RunDirectory, accepted: list[str]) -> None:
    with closing(JournalReader(directory)) as reader:
        entries = reader.read(0, reader.last_seq())
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    events = [entry.event for entry in entries]
    issued = Counter(event.command for event in events if isinstance(event, CommandIssued))
    done = Counter(event.command for event in events if isinstance(event, CommandDone))
    assert set(accepted) <= set(issued)
    assert set(issued.values()) == {1}
    open_still = [e for e in events if isinstance(e, CommandIssued) and not done[e.command]]
    assert open_still == []
    assert done == issued
    queued = Counter(event.trial for event in events if isinstance(event, TrialQueued))
    finished = Counter(event.trial for event in events if isinstance(event, TrialFinished))
    assert finished == queued


async def test_a_few_at_once(begin: Begin, ctl: Ctl) -> None:
    await rage(begin, ctl, seed=1, rounds=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
async def test_many_for_a_while(begin: Begin, ctl: Ctl, seed: int) -> None:
    await rage(begin, ctl, seed, rounds=15)


# What it has found.


async def test_what_no_trial_could_do_is_refused(begin: Begin) -> None:
    run = await begin(owner="ada")
    trial = run.events(TrialQueued)[0].trial
    run.run.submit(Command("set", trial, arguments={"max_steps": 3}))
    await until(lambda: run.events(CommandDone))
    (answer,) = run.events(CommandDone)
    assert (answer.ok, answer.result) == (
        False,
        f"{trial}: no task or kind of that name is trained on",
    )


async def test_what_waits_when_the_run_ends_is_answered(begin: Begin) -> None:
    run = await begin(owner="ada")
    trial = run.events(TrialQueued)[0].trial
    run.run.submit(Command("freeze", trial))
    await until(lambda: run.events(CommandIssued))
    await run.stop()
    (answer,) = run.events(CommandDone)
    assert (answer.ok, answer.result) == (False, f"{trial} ended as cancelled first")
