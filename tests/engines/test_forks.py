"""Forks in a run with real trials in the sandbox: what they share, how their state is reached."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbtui.journal.commands import Command
from tbtui.journal.events import (
    ForksStarted,
    GroupScored,
    HumanMessaged,
    Noted,
    SnapshotKept,
    StepFinished,
    TrialFinished,
    TrialForked,
    TrialPaused,
    TrialQueued,
    TurnObserved,
    TurnsValued,
)
from tbtui.journal.reader import JournalReader
from tbtui.policies.base import SampleRequest

from .real_run import RealRun

KEYS = (
    "cd /tmp && export WORD=shared && mkdir kept && echo one > kept/file\n",
    "pwd && cat kept/file && echo $WORD\n",
    "touch /app/solved\n",
)


def answer_by_turn(request: SampleRequest, keys: Sequence[str]) -> str:
    """The keys of the turn that it is, and then twice that the task is complete."""
    turn = "".join(map(chr, request.prompt_ids)).count("<user>") - 1
    answer: dict[str, Any] = {"analysis": "a", "plan": "p", "commands": []}
    if turn < len(keys):
        answer["commands"] = [{"keystrokes": keys[turn], "duration": 0.1}]
    else:
        answer["task_complete"] = True
    return json.dumps(answer)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(90):
        while not holds():  # noqa: ASYNC110 - what is waited for is in another's hands
            await asyncio.sleep(0.02)


class Forked(RealRun):
    """A step of three trials that take five turns, the last answers of which wait for `go`."""

    def __init__(self, where: Path, **settings: Any) -> None:
        super().__init__(where, **settings)
        self.keys = KEYS
        self.policy.say = lambda request: answer_by_turn(request, self.keys)

    async def reach(self, turn: int) -> None:
        """Run until the first trial has ended this turn."""
        self.policy.go.set()
        if self._task is None:
            self._task = asyncio.create_task(self.controlled.run())
        await until(
            lambda: any(
                event.turn == turn and event.trial == self.first
                for event in self.events(TurnObserved)
            )
        )

    async def fork(self, turn: object, trials: int = 2, **arguments: Any) -> str:
        """What came of asking for forks of the first trial."""
        given = {"turn": turn, "trials": trials, **arguments}
        return (await self.asked(Command("fork", self.first, arguments=given))).result

    def forks(self) -> list[TrialQueued]:
        return [event for event in self.events(TrialQueued) if event.purpose == "fork"]


@pytest.fixture
async def run(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Forked]:
    settings = getattr(request, "param", {})
    forked = Forked(tmp_path / "run", **settings)
    try:
        yield forked
    finally:
        await forked.stop()


async def test_forks_go_on_from_their_turn_with_the_exact_tokens(run: Forked) -> None:
    await run.reach(3)
    result = await run.fork(3)
    assert result == f"2 forks of {run.first} from turn 3: f0001-solve"
    await run.end()
    (started,) = run.events(ForksStarted)
    assert (started.parent, started.turn, started.trials) == (run.first, 3, 2)
    queued = run.forks()
    assert {(event.parent, event.fork_turn) for event in queued} == {(run.first, 3)}
    ends = {event.trial: event for event in run.events(TrialFinished)}
    reader = JournalReader(run.directory)
    parent = reader.samples(run.first)
    for event in queued:
        assert (ends[event.trial].outcome, ends[event.trial].turns) == ("solved", 5)
        assert ends[event.trial].reward == 1.0
        samples = reader.samples(event.trial)
        assert [sample.turn for sample in samples] == [3, 4, 5]
        assert samples[0].prompt_ids == parent[2].prompt_ids
    reader.close()
    for reached in run.events(TrialForked):
        assert (reached.way, reached.replayed, reached.parted) == ("replay", 2, ())
    # They are no members of the batch.
    (scored,) = run.events(GroupScored)
    assert not {event.trial for event in queued} & set(scored.trials)


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"turn": 0}, "turn 0: turns count from 1"),
        ({"turn": 9}, "s0001-solve-1 has no turn 9: it has turns 1 to "),
        ({"turn": "x"}, "fork: say from which turn, or bisect, or all"),
        ({"turn": "bisect"}, "s0001-solve-1 still runs: its turns have values once it has ended"),
        ({"turn": 2, "trials": 0}, "fork: between 1 and 256 trials, not 0"),
        ({"turn": 2, "temperature": -1}, "fork: temperature -1 is not more than 0"),
    ],
)
async def test_what_cant_be_forked_is_refused_in_one_line(
    run: Forked, given: dict[str, Any], refused: str
) -> None:
    await run.reach(1)
    done = await run.asked(Command("fork", run.first, arguments=given))
    assert not done.ok
    assert done.result.startswith(refused)


class Loser:
    """Answers as `answer_by_turn`; `lose`: its second turn spoils all that come after it."""

    def __init__(self) -> None:
        self.lose = True

    def __call__(self, request: SampleRequest) -> str:
        prompt = "".join(map(chr, request.prompt_ids))
        turn = prompt.count("<user>")
        keys = ""
        if "spoilt" in prompt:
            keys = "pwd\n" if turn == 3 else ""
        elif turn == 2 and self.lose:
            keys = "echo spoilt\n"
        elif turn <= len(KEYS):
            keys = KEYS[turn - 1]
        answer: dict[str, Any] = {"analysis": "a", "plan": "p", "commands": []}
        if keys:
            answer["commands"] = [{"keystrokes": keys, "duration": 0.1}]
        else:
            answer["task_complete"] = True
        return json.dumps(answer)


@pytest.mark.parametrize(("search", "forked"), [("bisect", [1, 3, 2]), ("all", [1, 2, 3, 4, 5])])
async def test_the_turn_at_which_a_trial_was_lost_is_found(
    run: Forked, search: str, forked: list[int]
) -> None:
    run.policy.say = loser = Loser()
    await run.begin()
    others = [event.trial for event in run.events(TrialQueued) if event.trial != run.first]
    for trial in others:  # the run goes on while they are paused
        run.submit(Command("pause", trial))
    run.policy.go.set()
    await until(lambda: any(event.trial == run.first for event in run.events(TrialFinished)))
    loser.lose = False
    asked = await run.fork(search, trials=2)
    turns = 5 if search == "all" else 4
    what = "values of all" if search == "all" else "bisection over"
    assert asked == (
        f"{what} 5 turns of {run.first}: at most {2 * turns} forks, 2 from each of {turns}"
    )
    await until(lambda: run.events(TurnsValued))
    for trial in others:
        run.submit(Command("resume", trial))
    await run.end()
    assert [event.turn for event in run.events(ForksStarted)] == forked
    (valued,) = run.events(TurnsValued)
    assert (valued.parent, valued.turns, valued.solved) == (run.first, 5, False)
    found = {each.turn: (each.passed, each.scored) for each in valued.values}
    assert found == {turn: (2, 2) if turn <= 2 else (0, 2) for turn in sorted(forked)}
    (said,) = [event.text for event in run.events(Noted) if "chance to be solved" in event.text]
    assert said.startswith(
        f"{run.first}: lost at turn 2: 100% before it, 0% after; chance to be solved from"
        " turn 1 100% (34% to 100%), turn 2 100% (34% to 100%), turn 3 0% (0% to 66%)"
    )


async def test_a_fork_of_a_fork_shares_what_both_share(run: Forked) -> None:
    await run.reach(3)
    await run.fork(2, trials=1)
    await until(lambda: run.events(TrialForked))
    fork = run.forks()[0].trial
    await until(lambda: any(e.trial == fork and e.turn == 3 for e in run.events(TurnObserved)))
    done = await run.asked(Command("fork", fork, arguments={"turn": 3, "trials": 1}))
    assert done.ok
    await run.end()
    reader = JournalReader(run.directory)
    second = run.forks()[1].trial
    assert reader.samples(second)[0].prompt_ids == reader.samples(fork)[1].prompt_ids
    reader.close()
    (end,) = [event for event in run.events(TrialFinished) if event.trial == second]
    assert (end.outcome, end.turns) == ("solved", 5)


async def test_where_the_keys_lead_elsewhere_the_fork_stops_and_says_where(
    run: Forked,
) -> None:
    run.keys = ("cat /dev/urandom | head -c 9 | xxd\n", *KEYS[1:])
    await run.reach(3)
    await run.fork(3, trials=1)
    await until(lambda: run.events(TrialForked))
    (reached,) = run.events(TrialForked)
    assert reached.parted == (1,)
    await run.end()
    fork = run.forks()[0].trial
    (end,) = [event for event in run.events(TrialFinished) if event.trial == fork]
    assert (end.outcome, end.reward) == ("cancelled", None)
    assert end.reason.startswith(
        "not forked: after turn 1 the screen is another than in s0001-solve-1: '00000000: "
    )


async def test_asked_to_go_on_it_does_and_its_facts_say_so(run: Forked) -> None:
    run.keys = ("cat /dev/urandom | head -c 9 | xxd\n", *KEYS[1:])
    await run.reach(3)
    await run.fork(3, trials=1, go_on=True)
    await run.end()
    (reached,) = run.events(TrialForked)
    assert 1 in reached.parted
    fork = run.forks()[0].trial
    (end,) = [event for event in run.events(TrialFinished) if event.trial == fork]
    assert end.outcome == "solved"


async def expect_the_second_turn_back(run: Forked) -> None:
    """Fork a trial that keeps snapshots at its second turn: all is as it was."""
    await run.reach(3)
    await run.fork(2, trials=1)
    end = await run.end()
    assert end.status == "finished", end.reason
    kept = [event for event in run.events(SnapshotKept) if event.trial == run.first]
    assert [(event.turn, event.error, event.programs) for event in kept][:3] == [
        (1, "", ()),
        (2, "", ()),
        (3, "", ()),
    ]
    assert not any(event.not_at_prompt for event in kept)
    (reached,) = run.events(TrialForked)
    assert (reached.way, reached.snapshot_turn) == ("snapshot", 2)
    assert (reached.replayed, reached.parted, reached.lost) == (0, (), ())
    fork = run.forks()[0].trial
    (end_of_it,) = [event for event in run.events(TrialFinished) if event.trial == fork]
    assert end_of_it.outcome == "solved"
    # Directory, file and variable are there; the screen goes on as it did.
    seen = {(e.trial, e.turn): e.observation for e in run.events(TurnObserved)}
    assert seen[fork, 2].split() == seen[run.first, 2].split()
    assert "shared" in seen[fork, 2]
    # All are gone with the run.
    assert not (run.directory.path / "snapshots").exists()


@pytest.mark.parametrize("run", [{"snapshots": "turns"}], indirect=True)
async def test_a_snapshot_brings_files_shell_and_screen_back(run: Forked) -> None:
    await expect_the_second_turn_back(run)


async def test_a_message_is_in_the_next_prompt_and_marks_the_trial(run: Forked) -> None:
    task = asyncio.create_task(run.begin())
    await until(lambda: len(run.policy.prompts) == 3)
    await task
    refused = await run.asked(Command("message", run.first, "ada", arguments={"text": "hi"}))
    assert not refused.ok
    assert refused.result.endswith("is not paused: pause it, and write when it stands")
    run.submit(Command("pause", run.first))
    run.policy.go.set()
    await until(lambda: [e for e in run.events(TrialPaused) if e.trial == run.first])
    empty = await run.asked(Command("message", run.first, "ada", arguments={"text": " "}))
    assert (empty.ok, empty.result) == (False, f"{run.first}: nothing to say; write a message")
    done = await run.asked(Command("message", run.first, "ada", arguments={"text": "look in /tmp"}))
    assert (done.ok, done.result) == (True, f"{run.first}: its next prompt has the message")
    run.submit(Command("resume", run.first))
    await run.end()
    (message,) = run.events(HumanMessaged)
    assert (message.trial, message.actor, message.text) == (run.first, "ada", "look in /tmp")
    reader = JournalReader(run.directory)
    second = reader.samples(run.first)[1]
    assert second.prompt_text.endswith("A message from the user:\n\nlook in /tmp")
    reader.close()
    (ended,) = [event for event in run.events(TrialFinished) if event.trial == run.first]
    assert (ended.outcome, ended.reward) == ("human_touched", None)
    assert ended.reason.startswith("a person wrote to its agent; ")


async def test_training_gives_each_turn_the_credit_that_its_forks_measure(tmp_path: Path) -> None:
    run = Forked(
        tmp_path / "run", advantage="turn_value", value_rollouts_per_step=8,
        value_rollouts_per_turn=2,
    )  # fmt: skip
    run.policy.say = loser = Loser()
    try:
        await run.begin()
        run.policy.go.set()
        await until(lambda: run.events(ForksStarted))
        loser.lose = False  # those of turn 2 are solved, later ones no more
        end = await run.end()
    finally:
        await run.stop()
    assert end.status == "finished", end.reason
    (valued,) = run.events(TurnsValued)
    assert (valued.search, valued.turns) == ("credit", 5)
    found = {each.turn: (each.passed, each.scored) for each in valued.values}
    assert found == {2: (2, 2), 3: (0, 2), 4: (0, 2), 5: (0, 2)}
    assert valued.turning_point == 2
    # V(1), the siblings' mean, is 0: turn 1 has +1, turn 2 -1, the others nothing.
    ((data, _),) = run.policy.trained
    given = np.concatenate([datum.advantages[datum.mask] for datum in data])
    changes = np.flatnonzero(np.diff(given)) + 1
    assert [float(part[0]) for part in np.split(given, changes)] == [1.0, -1.0, 0.0]
    (step,) = run.events(StepFinished)
    assert (step.metrics["value/trials"], step.metrics["value/forks"]) == (1.0, 8.0)


class Parting:
    """Answers as `answer_by_turn`, but one of two, by turns, spoils the last one."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: SampleRequest) -> str:
        prompt = "".join(map(chr, request.prompt_ids))
        if prompt.count("<user>") == len(KEYS):
            self.asked += 1
            if self.asked % 2:
                return answer_by_turn(request, (*KEYS[:-1], "pwd\n"))
        return answer_by_turn(request, KEYS)


async def test_forks_are_a_group_of_the_step_that_is_trained(tmp_path: Path) -> None:
    run = Forked(
        tmp_path / "run", group_from="fork", fork_groups_per_step=2, group_size=4, seed=2
    )  # fmt: skip
    run.policy.say = Parting()
    try:
        run.policy.go.set()
        run._task = asyncio.create_task(run.controlled.run())
        end = await run.end()
    finally:
        await run.stop()
    assert end.status == "finished", end.reason
    (started,) = run.events(ForksStarted)  # the step has one group
    assert (started.search, started.trials) == ("trained", 4)
    whole, forked = run.events(GroupScored)
    assert started.parent in whole.trials
    assert set(forked.trials) == {event.trial for event in run.forks()}
    assert forked.group == f"{started.parent}-g{started.turn}"
    ((data, _),) = run.policy.trained
    reader = JournalReader(run.directory)
    own = sum(
        len(sample.completion_ids) for trial in forked.trials for sample in reader.samples(trial)
    )
    reader.close()
    trained = sum(score.tokens for score in forked.trials.values())
    # What they share is in their prompts alone: no token of it is trained on.
    assert trained == own
    assert sum(int(datum.mask.sum()) for datum in data) == own * (
        forked.disposition == "trained"
    ) + sum(score.tokens for score in whole.trials.values())
    (step,) = run.events(StepFinished)
    assert step.metrics["forks/groups"] == 1.0
    assert step.metrics["env/all/total_episodes"] == 4.0
