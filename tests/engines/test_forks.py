"""Forks in a run with real trials in the sandbox: what they share, how their state is reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tbtui.journal.commands import Command
from tbtui.journal.events import (
    ForksStarted,
    GroupScored,
    HumanMessaged,
    SnapshotKept,
    TrialFinished,
    TrialForked,
    TrialPaused,
    TrialQueued,
    TurnObserved,
    TurnsValued,
)
from tbtui.journal.reader import JournalReader
from tbtui.policies.base import SampleRequest
from tbtui.view.reading import state_at_end
from tests.rollout.scripted import DONE, act, sh
from tests.waiting import until

from .real_run import RealRun

KEYS = (
    "cd /tmp && export WORD=shared && mkdir kept && echo one > kept/file\n",
    "pwd && cat kept/file && echo $WORD\n",
    "touch /app/solved\n",
)


def answer_by_turn(request: SampleRequest, keys: Sequence[str], agent: str) -> str:
    """The keys of the turn that it is, and then that the task is complete."""
    turn = "".join(map(chr, request.prompt_ids)).count("<user>") - 1
    if agent == "shell":
        return sh(keys[turn].strip()) if turn < len(keys) else "DONE"
    return act(keys[turn], duration=0.1) if turn < len(keys) else DONE


class Forked(RealRun):
    """A step of three trials that take five turns (four with `agent=shell`, which doesn't have to
    confirm its end), the last answers of which wait for `go`."""

    def __init__(self, where: Path, **settings: Any) -> None:
        super().__init__(where, **settings)
        self.keys = KEYS
        agent = settings.get("agent", "terminus-2")
        self.policy.say = lambda request: answer_by_turn(request, self.keys, agent)

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


@pytest.mark.parametrize(
    ("run", "turns"),
    [({}, 5), ({"agent": "shell"}, 4)],
    indirect=["run"],
    ids=["terminus-2", "shell"],
)
async def test_forks_go_on_from_their_turn_with_the_exact_tokens(run: Forked, turns: int) -> None:
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
        assert (ends[event.trial].outcome, ends[event.trial].turns) == ("solved", turns)
        assert ends[event.trial].reward == 1.0
        samples = reader.samples(event.trial)
        assert [sample.turn for sample in samples] == [*range(3, turns + 1)]
        assert samples[0].prompt_ids == parent[2].prompt_ids
    reader.close()
    for reached in run.events(TrialForked):
        assert (reached.way, reached.replayed, reached.parted) == ("replay", 2, ())
    # They are no members of the batch.
    (scored,) = run.events(GroupScored)
    assert not {event.trial for event in queued} & set(scored.trials)


async def test_what_cant_be_forked_is_refused_in_one_line(run: Forked) -> None:
    await run.reach(1)
    for given, refused in (
        ({"turn": 0}, "turn 0: turns count from 1"),
        ({"turn": 9}, "s0001-solve-1 has no turn 9: it has turns 1 to "),
        ({"turn": "x"}, "fork: say from which turn, or bisect, or all"),
        (
            {"turn": "bisect"},
            "s0001-solve-1 still runs: its turns have values once it has ended",
        ),
        ({"turn": 2, "trials": 0}, "fork: between 1 and 256 trials, not 0"),
        ({"turn": 2, "temperature": -1}, "fork: temperature -1 is not more than 0"),
    ):
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
        return act(keys, duration=0.1) if keys else DONE


@pytest.mark.slow
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
    notes = state_at_end(JournalReader(run.directory)).notes
    (said,) = [note.text for note in notes if "chance to be solved" in note.text]
    assert said.startswith(
        f"{run.first}: lost at turn 2: 100% before it, 0% after; chance to be solved from"
        " turn 1 100% (34% to 100%), turn 2 100% (34% to 100%), turn 3 0% (0% to 66%)"
    )


@pytest.mark.slow
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


@pytest.mark.slow
async def test_where_the_keys_lead_elsewhere_the_fork_stops_unless_asked_to_go_on(
    run: Forked,
) -> None:
    run.keys = ("cat /dev/urandom | head -c 9 | xxd\n", *KEYS[1:])
    await run.reach(3)
    await run.fork(3, trials=1)
    await run.fork(3, trials=1, go_on=True)
    await until(lambda: len(run.events(TrialForked)) == 2)
    await run.end()
    stopped, went_on = (fork.trial for fork in run.forks())
    parted = {event.trial: event.parted for event in run.events(TrialForked)}
    assert parted[stopped] == (1,)
    assert 1 in parted[went_on]
    ends = {event.trial: event for event in run.events(TrialFinished)}
    assert (ends[stopped].outcome, ends[stopped].reward) == ("cancelled", None)
    assert ends[stopped].reason.startswith(
        "not forked: after turn 1 the screen is another than in s0001-solve-1: '00000000: "
    )
    assert ends[went_on].outcome == "solved"


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


@pytest.mark.uid
@pytest.mark.parametrize("run", [{"snapshots": "turns"}], indirect=True)
async def test_a_snapshot_brings_files_shell_and_screen_back(run: Forked) -> None:
    await expect_the_second_turn_back(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "run", [{}, {"agent": "shell"}], indirect=True, ids=["terminus-2", "shell"]
)
async def test_a_message_is_in_the_next_prompt_and_marks_the_trial(run: Forked) -> None:
    task = asyncio.create_task(run.begin())
    await until(lambda: len(run.policy.prompts) == 3)
    await task
    run.submit(Command("pause", run.first))
    run.policy.go.set()
    await until(lambda: [e for e in run.events(TrialPaused) if e.trial == run.first])
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
