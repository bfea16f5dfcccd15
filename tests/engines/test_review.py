"""The gate before training: who is asked, what they may decide, and what is trained then."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tbtui.catalog.split import Split
from tbtui.engines.grpo.engine import GrpoEngine
from tbtui.engines.grpo.history import place_of
from tbtui.engines.grpo.recovery import recover
from tbtui.engines.grpo.review import examined
from tbtui.export.record import read_trial
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    AgentCommand,
    AnyEvent,
    CommandDone,
    CommandIssued,
    CommandVerb,
    GroupRefilled,
    GroupScored,
    GroupUnderReview,
    Noted,
    PhaseSeconds,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    RunFinished,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    RunResumed,
    StepFinished,
    TrialExcluded,
    TrialFinished,
    TrialRelabelled,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.rollout.messages import TrialDone, TrialSpec, TurnUnderstood
from tbtui.whatif.recorded import read_step
from tests.events import run_continued
from tests.waiting import until

from .conftest import TASKS, Bench
from .fakes import FakePool, facts
from .real_run import RealRun
from .test_engine import by_index, by_index_but_first
from .test_resume import (
    Part,
    Script,
    Whole,
    by_what_it_says,
    require_order,
    uninterrupted,
)


class Review:
    """A run whose reviews somebody attends to."""

    def __init__(self, bench: Bench, engine: GrpoEngine) -> None:
        self.bench, self.engine = bench, engine

    async def opens(self, times: int = 1) -> ReviewOpened:
        await until(lambda: len(self.bench.events(ReviewOpened)) >= times)
        return self.bench.events(ReviewOpened)[-1]

    def ask(
        self, verb: CommandVerb, target: str = RUN, reason: str = "", **arguments: object
    ) -> CommandDone:
        command = Command(verb, target, "ada", reason, arguments)
        self.engine.queue.submit(command)
        (done,) = [done for done in self.bench.events(CommandDone) if done.command == command.id]
        return done

    def shown(self, trial: str) -> GroupUnderReview:
        """What the journal says of its group since the last change."""
        groups = self.bench.events(ReviewChanged)[-1].groups
        return next(group for group in groups if trial in group.trials)


@contextlib.asynccontextmanager
async def under_review(bench: Bench, **settings: object) -> AsyncIterator[Review]:
    """A run of one step, which is over when the context is left."""
    engine = bench.engine(**{"review": "always", "eval_every": 0, "group_size": 3} | settings)
    running = asyncio.create_task(engine.run())
    try:
        yield Review(bench, engine)
        async with asyncio.timeout(20):
            await running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def as_scored(group: GroupUnderReview) -> tuple[object, ...]:
    return group.group, group.disposition, group.baseline, group.trials


def solved_first(pool: FakePool, spec: TrialSpec) -> object:
    """The first of three siblings is solved; a person typed in the third of a group of copies."""
    place = spec.trial.partition("-retry")[0]
    touched = place.endswith("-3") and "copy" in spec.trial
    result = dataclasses.replace(facts(float(place.endswith("-1"))), human_touched=touched)
    return pool.end(spec, result)


async def test_what_is_accepted_is_what_is_trained(bench: Bench) -> None:
    bench.script = by_index
    async with under_review(bench) as review:
        opened = await review.opens()
        first, second = opened.groups
        trials = list(first.trials)
        assert set(opened.undecided) == {*first.trials, *second.trials}
        assert not bench.events(GroupScored)
        assert review.ask("exclude", trials[0]).ok
        done = review.ask("relabel", trials[1], "the test is wrong", reward=0.25)
        assert done.result == f"{trials[1]}: reward 0.25 (was 0)"
        changed = bench.events(ReviewChanged)
        assert [set(opened.undecided) - set(each.undecided) for each in changed] == [
            {trials[0]},
            {trials[0], trials[1]},
        ]
        assert changed[-1].groups[0].trials[trials[0]].reward is None
        assert changed[-1].groups[0].trials[trials[1]].reward == 0.25
        assert changed[-1].groups[1] == second
        assert review.ask("accept", reason="looks right").ok
        late = review.ask("exclude", trials[2])
        assert late.result == f"{trials[2]}: the review of step 1 is closed"
    scored = [(e.group, e.disposition, e.baseline, e.trials) for e in bench.events(GroupScored)]
    assert scored == [as_scored(group) for group in changed[-1].groups]
    (closed,) = bench.events(ReviewClosed)
    assert (closed.step, closed.how, closed.actor, closed.reason) == (
        1,
        "accepted",
        "ada",
        "looks right",
    )
    phases = [event.phase for event in bench.events(RunPhaseChanged)]
    assert phases[:4] == [
        RunPhase.EVALUATING,
        RunPhase.SAMPLING,
        RunPhase.REVIEWING,
        RunPhase.TRAINING,
    ]
    relabelled = bench.events(TrialRelabelled)
    assert [(e.trial, e.before, e.reward, e.taken_back) for e in relabelled] == [
        (trials[1], 0.0, 0.25, False)
    ]
    verdicts = {event.trial: event.verdict for event in bench.events(TrialFinished)}
    assert verdicts[trials[1]] == 0.0
    (step,) = bench.events(StepFinished)
    assert 0 < step.metrics["time/reviewing"] < step.metrics["time/total"]


async def test_fresh_trials_are_reviewed_too(bench: Bench) -> None:
    bench.script = by_index
    async with under_review(bench, batch_size=1) as review:
        (group,) = (await review.opens()).groups
        first, second, third = group.trials
        assert "no member is missing" in review.ask("refill", group.group).result
        assert review.ask("retry", first).result == f"{first} goes on as {first}-retry1"
        refused = review.ask("accept")
        assert (refused.ok, refused.result) == (False, "step 1: fresh trials are under way")
        assert list(bench.events(ReviewChanged)[-1].groups[0].trials) == [second, third]
        (group,) = (await review.opens(2)).groups
        assert list(group.trials) == [f"{first}-retry1", second, third]
        review.ask("exclude", second)
        review.ask("exclude", third)
        assert review.shown(second).disposition == "short"
        assert review.ask("refill", group.group).result == f"{group.group} gets 2 fresh trials"
        (group,) = (await review.opens(3)).groups
        assert len(group.trials) == 5
        assert group.trials[second].advantage is None
        # What was decided is decided.
        assert not {second, third} & set(bench.events(ReviewOpened)[-1].undecided)
        review.ask("accept")
    (scored,) = bench.events(GroupScored)
    assert scored.trials == group.trials
    phases = [event.phase for event in bench.events(RunPhaseChanged)]
    waited = [p for p in phases if p in (RunPhase.SAMPLING, RunPhase.REVIEWING)]
    assert waited == [RunPhase.SAMPLING, RunPhase.REVIEWING] * 3


async def test_what_can_have_another_reward(bench: Bench) -> None:
    def script(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial.endswith("-2"):  # says something, and is then lost
            return pool.end(spec, facts(None, "sandbox_lost"))
        return solved_first(pool, spec)

    bench.script = script
    async with under_review(bench, batch_size=6, max_retries=0, short_groups="drop") as review:
        copies = [g for g in (await review.opens()).groups if "copy" in g.task]
        first, lost, touched = copies[0].trials
        for trial, reason, arguments, why in (
            (first, "x", {}, "say which reward"),
            (first, "x", {"reward": "1"}, "say which reward"),
            (first, "x", {"reward": True}, "say which reward"),
            (first, "x", {"reward": float("nan")}, "a finite number"),
            (first, "x", {"reward": 10**400}, "a finite number"),
            (first, " ", {"reward": 1}, "needs a reason"),
            (touched, "x", {"reward": 1}, "on_outcome.human_touched=train"),
            ("s0001-nobody-1", "x", {"reward": 1}, "no part of the step"),
        ):
            done = review.ask("relabel", trial, reason, **arguments)
            assert (done.ok, why in done.result) == (False, True), done.result
        assert review.ask("relabel", first, reward=None).ok
        assert not bench.events(ReviewChanged)[1:]  # it is decided upon, and that is all
        assert copies[0].trials[lost].reward is None
        assert review.ask("relabel", lost, "it had done it", reward=1).ok
        assert review.shown(lost).trials[lost].reward == 1.0
        assert review.ask("relabel", lost, reward=None).ok
        assert review.shown(lost).trials[lost].reward is None
        assert review.ask("relabel", lost, "it had done it after all", reward=0.5).ok
        review.ask("accept")
    scored = next(e for e in bench.events(GroupScored) if e.group == copies[0].group)
    assert {trial: score.reward for trial, score in scored.trials.items()} == {
        first: 1.0,
        lost: 0.5,
        touched: None,
    }
    assert [e.taken_back for e in bench.events(TrialRelabelled)] == [False, True, False]


async def test_typed_in_and_trained_it_can_have_another_reward(bench: Bench) -> None:
    bench.script = solved_first
    train = {"human_touched": "train"}
    async with under_review(bench, batch_size=6, on_outcome=train) as review:
        group = next(g for g in (await review.opens()).groups if "copy" in g.task)
        touched = list(group.trials)[2]
        assert any(s.suspect == "human_touched" for s in group.suspects[touched])
        assert review.ask("relabel", touched, "all mine", reward=0).ok
        review.ask("accept")


async def test_without_a_review_a_reward_can_be_changed_too(bench: Bench) -> None:
    held: list[TrialSpec] = []
    bench.script = by_index_but_first(held)
    async with under_review(bench, review="off", batch_size=1) as review:
        await until(
            lambda: len([e for e in bench.events(TrialFinished) if "s0001" in e.trial]) == 2
        )
        other = next(e.trial for e in bench.events(TrialFinished) if "s0001" in e.trial)
        assert review.ask("relabel", other, "why not", reward=0.75).ok
        assert "not over yet" in review.ask("relabel", held[0].trial, "x", reward=1).result
        assert review.ask("accept").result == "no step is under review"
        assert not review.ask("accept", other).ok
        bench.pool.end(held[0], facts(1.0))
    (scored,) = bench.events(GroupScored)
    assert scored.trials[other].reward == 0.75
    assert not bench.events(ReviewOpened)
    assert not bench.events(ReviewClosed)


# Who is asked


async def test_nobody_is_asked_where_nothing_is_odd(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(0.0))
    async with under_review(bench, review="suspects"):
        pass
    assert not [*bench.events(ReviewOpened), *bench.events(ReviewClosed)]


async def test_suspects_are_waited_for(bench: Bench) -> None:
    bench.script = by_index  # the first is solved without a single command
    async with under_review(bench, review="suspects") as review:
        opened = await review.opens()
        firsts = tuple(next(iter(group.trials)) for group in opened.groups)
        assert opened.undecided == firsts
        assert [set(group.suspects) for group in opened.groups] == [{each} for each in firsts]
        assert review.ask("accept", firsts[0]).ok
        assert bench.events(ReviewChanged)[-1].undecided == firsts[1:]
        assert not bench.events(ReviewClosed)
        review.ask("accept", step=1)


def write_rules(bench: Bench, text: str) -> Path:
    bench.directory.review_rules.write_text(text)
    return bench.directory.review_rules


ACCEPT = '[[rule]]\nname = "fine"\nwhen = {}\ndo = "accept"\n'


async def test_rules_decide_in_a_persons_place(bench: Bench) -> None:
    bench.script = by_index
    write_rules(
        bench,
        '[[rule]]\nname = "idle"\nwhen = { suspect = "no_commands" }\n'
        'do = "relabel"\nreward = 0.5\nreason = "did nothing"\n' + ACCEPT,
    )
    async with under_review(bench):
        pass
    (closed,) = bench.events(ReviewClosed)
    assert (closed.how, closed.actor) == ("rules", "rules")
    assert not bench.events(ReviewOpened)
    asked = [(e.verb, e.actor) for e in bench.events(CommandIssued)]
    assert asked == [("relabel", "rule:idle"), *[("accept", "rule:fine")] * 2] * 2
    assert all(done.ok for done in bench.events(CommandDone))
    for scored in bench.events(GroupScored):
        assert [score.reward for score in scored.trials.values()] == [0.5, 0, 0]


async def test_a_rule_refills_a_group_once(bench: Bench) -> None:
    bench.script = by_index
    write_rules(
        bench,
        '[[rule]]\nname = "again"\nwhen = { outcome = "failed" }\ndo = "refill"\n' + ACCEPT,
    )
    async with under_review(bench, batch_size=1, group_size=2):
        pass
    (refilled,) = bench.events(GroupRefilled)
    assert len(refilled.trials) == 1
    out = [event.trial for event in bench.events(TrialExcluded)]
    assert out[-1] == refilled.trials[0]  # failed again: it is only left out
    (scored,) = bench.events(GroupScored)
    assert (scored.disposition, len(scored.trials)) == ("short", 3)


async def test_a_rule_may_hold_what_is_not_odd(bench: Bench) -> None:
    bench.script = lambda pool, spec: pool.end(spec, facts(0.0))
    write_rules(bench, '[[rule]]\nname = "look"\nwhen = { task = "copy-*" }\ndo = "hold"\n')
    async with under_review(bench, review="suspects", batch_size=6) as review:
        opened = await review.opens()
        assert {trial.partition("-")[2][:4] for trial in opened.undecided} == {"copy"}
        review.ask("accept")


async def test_rules_are_read_again_and_broken_ones_leave_those_before(bench: Bench) -> None:
    bench.script = by_index
    rules = write_rules(bench, ACCEPT)
    engine = bench.engine(review="always", eval_every=0, max_steps=3)
    steps = 0

    def watch(event: object) -> tuple[()]:
        nonlocal steps
        if isinstance(event, StepFinished):
            steps += 1
            broken, exclude = "[[rule]]\ndo = 1\n", ACCEPT.replace("accept", "exclude")
            rules.write_text(broken if steps == 1 else exclude)
        return ()

    engine._check_alarms = watch
    await engine.run()
    assert [event.how for event in bench.events(ReviewClosed)] == ["rules"] * 3
    (warning,) = [note.text for note in bench.events(Noted) if note.level == "warning"]
    assert warning.endswith("; those before stay in force")
    kinds = [event.disposition for event in bench.events(GroupScored)]
    assert kinds == ["trained"] * 4 + ["short"] * 2


# Waiting


@pytest.mark.parametrize("action", ["accept", "exclude"])
async def test_nobody_comes(bench: Bench, action: str) -> None:
    bench.script = by_index
    settings = {"review_timeout_sec": 0.05, "at_review_timeout": action}
    async with under_review(bench, **settings) as review:
        assert (await review.opens()).timeout_sec == 0.05
    (closed,) = bench.events(ReviewClosed)
    assert (closed.how, closed.actor) == ("timeout", "timeout")
    left_out = {event.trial for event in bench.events(TrialExcluded)}
    firsts = {next(iter(group.trials)) for group in bench.events(ReviewOpened)[0].groups}
    assert left_out == (firsts if action == "exclude" else set())


async def test_a_run_can_be_paused_and_saved_under_review(bench: Bench) -> None:
    bench.script = by_index
    async with under_review(bench, max_steps=2, save_every=0) as review:
        await review.opens()
        review.ask("accept")
        await review.opens(2)
        review.ask("pause")
        await until(lambda: any("paused and saved" in n.text for n in bench.events(Noted)))
        assert [event.phase for event in bench.events(RunPhaseChanged)][-2:] == [
            RunPhase.SAVING,
            RunPhase.REVIEWING,
        ]
        review.ask("resume")
        review.ask("accept")
    assert len(bench.events(StepFinished)) == 2


async def test_a_pause_stops_the_clock(bench: Bench) -> None:
    held: list[TrialSpec] = []
    bench.script = by_index_but_first(held)
    async with under_review(bench, review_timeout_sec=0.005) as review:
        await until(lambda: held)
        review.ask("pause")
        bench.runner.on_message(1, TrialDone(held[0].trial, facts(1.0)))
        await until(lambda: len(bench.events(TrialFinished)) == 2 + 6)
        await review.opens()
        await asyncio.sleep(0.1)
        assert not bench.events(ReviewClosed)
        review.ask("resume")
    assert [event.how for event in bench.events(ReviewClosed)] == ["timeout"]


async def test_steps_sampled_ahead_are_reviewed_each_by_itself(bench: Bench) -> None:
    bench.script = by_index
    async with under_review(bench, max_steps=3, max_steps_off_policy=1) as review:
        await review.opens(2)
        assert {event.step for event in bench.events(ReviewOpened)} == {1, 2}
        assert review.ask("accept", step=3).result == "step 3 is not under review"
        assert not review.ask("accept", step="2").ok
        assert review.ask("accept", step=2).result == "step 2 is accepted"
        await asyncio.sleep(0)
        assert not bench.events(StepFinished)
        assert review.ask("accept").result == "step 1 is accepted"
        await review.opens(3)
        await until(lambda: len(bench.events(StepFinished)) == 2)
        review.ask("accept")
    assert [event.step for event in bench.events(StepFinished)] == [1, 2, 3]
    phases = [event.phase for event in bench.events(RunPhaseChanged)]
    # Step 2 was accepted before it came to its turn.
    assert phases.count(RunPhase.REVIEWING) == 2


async def test_what_is_tried_again_before_its_steps_turn_is_reviewed_too(bench: Bench) -> None:
    """Nothing of step 2 was odd, and step 1 still samples."""
    held: list[TrialSpec] = []

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if spec.trial.startswith("s0001") and not held:
            held.append(spec)
            return True
        return pool.end(spec, facts(float("-retry" in spec.trial)))

    bench.script, bench.heldout = script, 0
    write_rules(bench, '[[rule]]\nname = "odd"\nwhen = { reward = 1 }\ndo = "hold"\n')
    settings = {"review": "suspects", "max_steps": 2, "max_steps_off_policy": 1}
    async with under_review(bench, **settings) as review:
        await until(
            lambda: sum(e.trial.startswith("s0002") for e in bench.events(TrialFinished)) == 6
        )
        trial = next(e.trial for e in bench.events(TrialFinished) if e.trial.startswith("s0002"))
        assert review.ask("retry", trial).ok
        opened = await review.opens()
        assert (opened.step, opened.undecided) == (2, (f"{trial}-retry1",))
        bench.pool.end(held[0], facts(0.0))
        await until(lambda: bench.events(StepFinished))
        assert review.ask("accept").result == "step 2 is accepted"


async def test_a_review_that_is_switched_off_is_over_after_its_fresh_trials(bench: Bench) -> None:
    bench.script = by_index
    async with under_review(bench, batch_size=1) as review:
        (group,) = (await review.opens()).groups
        assert review.ask("set", review="off").ok
        assert not bench.events(ReviewClosed)
        review.ask("retry", next(iter(group.trials)))
    (closed,) = bench.events(ReviewClosed)
    assert (closed.actor, closed.reason) == ("settings", "review=off")


async def test_streamed_groups_and_evaluations_have_no_review(bench: Bench) -> None:
    bench.script = by_index
    async with under_review(bench, stream=True, eval_every=1):
        pass
    assert not bench.events(ReviewOpened)
    assert len(bench.events(StepFinished)) == 1


# Interruptions


def talkative(pool: FakePool, spec: TrialSpec) -> object:
    """Its agent sends commands, its verifier takes its time and says something."""
    for turn, error in ((1, None), (2, "unreadable")):
        commands = (AgentCommand(keystrokes=f"ls {turn}\n", duration_sec=0.1),)
        message = TurnUnderstood(spec.trial, turn, "a", "p", commands, False, error, None)
        pool.runner.on_message(1, message)
    seconds = PhaseSeconds(sampling=0.5, verifying=1.5)
    result = dataclasses.replace(facts(0.5), seconds=seconds, verifier_output="1 passed")
    return pool.end(spec, result, turns=2)


async def test_what_is_looked_at_is_in_the_journal(bench: Bench) -> None:
    bench.script = talkative
    async with under_review(bench, batch_size=1) as review:
        await review.opens()
        (batch,) = review.engine._batches
        live = batch.groups[0].members()
        split = Split(train=tuple(TASKS[:6]), heldout=tuple(TASKS[6:]))
        with contextlib.closing(JournalReader(bench.directory)) as reader:
            recorded = recover(reader, split, review.engine.config).start.batches[1].places
            again = [recorded[rollout.plan.key].rollout for rollout in live]
        assert [examined(rollout) for rollout in again if rollout] == [
            examined(rollout) for rollout in live
        ]
        assert live[0].commands == ("ls 1\n",)
        assert (live[0].verifying_sec, live[0].verifier_output) == (1.5, "1 passed")
        review.ask("accept")


@dataclasses.dataclass
class Attended(Whole):
    """A run with somebody who accepts each step after `decide` has said all it has to say."""

    decide: Callable[[Attended, GrpoEngine, GroupUnderReview], None] = lambda *_: None

    async def attend(self, engine: GrpoEngine) -> None:
        running = asyncio.create_task(engine.run())
        try:
            async with asyncio.timeout(60):
                while not running.done():
                    waiting = [batch for batch in engine._batches if batch.reviewing]
                    for batch in waiting:
                        opened = [e for e in self.events(ReviewOpened) if e.step == batch.step]
                        for group in opened[-1].groups:
                            self.decide(self, engine, group)
                        if batch.reviewing:
                            engine.queue.submit(Command("accept", RUN, "ada"))
                    await asyncio.sleep(0 if not waiting else 0.001)
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def busy(whole: Attended, engine: GrpoEngine, group: GroupUnderReview) -> None:
    """The first is left out and replaced, the second gets another reward."""
    for trial in group.trials:
        _, index = place_of(trial, group.group)
        if index == 1:
            engine.queue.submit(Command("exclude", trial, "ada"))
        if index == 2:
            engine.queue.submit(Command("relabel", trial, "ada", "odd", {"reward": 0.25}))
    engine.queue.submit(Command("refill", group.group, "ada"))


def again(whole: Attended, engine: GrpoEngine, group: GroupUnderReview) -> None:
    """The first is tried once more, and the fresh one left out."""
    first = next(iter(group.trials))
    retried = "-retry" in first
    engine.queue.submit(Command("exclude" if retried else "retry", first, "ada"))


ENDED = RunFinished(status="interrupted", reason="everything is cleaned up")
CONTINUED = run_continued()


async def attended(where: Path, decide: Any, script: Script, **settings: object) -> Any:
    directory = RunDirectory.create(where / "attended")
    whole = Attended(directory, {"eval_every": 0, **settings}, script, decide)
    return whole, await whole.begin()


async def test_a_review_that_changes_nothing_changes_nothing(tmp_path: Path) -> None:
    settings = {"max_steps": 3, "eval_every": 2}
    alone, part = await uninterrupted(tmp_path, **settings)
    whole, reviewed = await attended(
        tmp_path, lambda *_: None, by_what_it_says, review="always", **settings
    )
    assert len(whole.events(ReviewClosed)) == 3
    assert whole.outcome() == alone.outcome()
    assert reviewed.policy.weights == part.policy.weights


@pytest.mark.parametrize(
    ("meanwhile", "left"),
    [
        ([(1000, ENDED)], 2600),
        ([(200, RunPaused()), (700, RunResumed()), (1000, ENDED)], 3100),
        ([(1000, RunPaused()), (3000, ENDED)], 2600),  # resumed, it isn't paused any more
        ([(1000, ENDED), (90_000, CONTINUED), (90_100, ENDED)], 2500),  # nobody could answer
        ([(9000, ENDED)], 0),
    ],
)
async def test_a_review_that_a_resumed_run_opens_again_has_the_time_that_was_left(
    tmp_path: Path, meanwhile: list[tuple[float, AnyEvent]], left: float
) -> None:
    whole, _ = await attended(
        tmp_path, lambda *_: None, by_what_it_says,
        review="always", review_timeout_sec=3600.0, max_steps=1,
    )  # fmt: skip
    (opened,) = [e for e in whole.entries() if isinstance(e.event, ReviewOpened)]
    copy = whole.cut(tmp_path / "copy", opened.seq)
    times = iter([opened.time + seconds for seconds, _ in meanwhile])
    with JournalWriter(copy.directory, lambda: next(times), continues=True) as journal:
        for _, event in meanwhile:
            journal.append(event)
    if not left:
        copy = Whole(copy.directory, copy.settings, copy.script)  # nobody comes
    await copy.resume()
    assert copy.events(ReviewOpened)[-1].timeout_sec == pytest.approx(left)
    (closed,) = copy.events(ReviewClosed)
    assert closed.how == ("accepted" if left else "timeout")


async def require_same_wherever_it_ends(
    tmp_path: Path, whole: Whole, part: Part, stride: int
) -> None:
    expected = whole.outcome()
    for last in range(0, whole.length() + 1, stride):
        copy = whole.cut(tmp_path / "copy", last)
        resumed = await copy.resume()
        assert copy.outcome() == expected, f"cut off after event {last}"
        assert resumed.policy.weights == part.policy.weights, f"cut off after event {last}"
        require_order(copy)
        closed = [event.step for event in copy.events(ReviewClosed)]
        assert sorted(set(closed)) == closed, f"cut off after event {last}"
        shutil.rmtree(copy.directory.path)


STRIDES = [61, pytest.param(13, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]


@pytest.mark.parametrize("decide", [busy, pytest.param(again, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stride", STRIDES)
async def test_decisions_survive_being_cut_off_anywhere(
    tmp_path: Path, decide: Any, stride: int
) -> None:
    whole, part = await attended(
        tmp_path, decide, by_what_it_says, review="always", max_steps=2, save_every=1
    )
    assert len(whole.events(ReviewClosed)) == 2
    assert len(whole.events(ReviewOpened)) > 2
    await require_same_wherever_it_ends(tmp_path, whole, part, stride)


RULES = """
[[rule]]
name = "again"
when = { reward = 0, task = "*-[12]" }
do = "refill"

[[rule]]
name = "half"
when = { reward = 0 }
do = "relabel"
reward = 0.25
reason = "close enough"

[[rule]]
name = "fine"
when = {}
do = "accept"
"""


@pytest.mark.parametrize("stride", STRIDES)
async def test_rules_decide_the_same_wherever_it_is_cut_off(tmp_path: Path, stride: int) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    settings = {"review": "always", "review_rules": rules, "max_steps": 2, "batch_size": 3}
    whole, part = await attended(tmp_path, lambda *_: None, by_what_it_says, **settings)
    assert [event.how for event in whole.events(ReviewClosed)] == ["rules"] * 2
    assert whole.events(GroupRefilled)
    await require_same_wherever_it_ends(tmp_path, whole, part, stride)


# Real trials


@pytest.mark.slow
async def test_real_trials_are_reviewed(tmp_path: Path) -> None:
    """What is looked for in them is what their agents and verifiers did."""
    run = RealRun(tmp_path / "run", review="always")
    await run.begin()
    try:
        run.policy.go.set()
        await until(lambda: run.events(ReviewOpened))
        (group,) = run.events(ReviewOpened)[0].groups
        assert group.disposition == "constant"  # nobody has solved it
        first, second = list(group.trials)[:2]
        reward = {"reward": 1.0}
        assert (await run.asked(Command("relabel", first, "ada", "nearly", reward))).ok
        assert (await run.asked(Command("exclude", second, "ada"))).ok
        assert (await run.asked(Command("accept", RUN, "ada"))).ok
        assert (await run.end()).status == "finished"
    finally:
        await run.stop()
    (scored,) = run.events(GroupScored)
    assert scored.trials == run.events(ReviewChanged)[-1].groups[0].trials
    assert [score.advantage for score in scored.trials.values()] == [0.5, None, -0.5]
    record = read_trial(run.directory, first)
    assert (record.reward, record.advantage) == (1.0, 0.5)
    (recomputed,) = read_step(run.directory, 1).groups
    assert [trial.reward for trial in recomputed.trials] == [1.0, None, 0.0]
