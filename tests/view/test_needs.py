"""What a run needs a person for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tbtui.journal.events import (
    AnyEvent,
    Outcome,
    RunPhase,
    RunPhaseChanged,
    StepStarted,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialResumed,
    TrialTakenOver,
)
from tbtui.view.times import Outlook
from tbtui.view.waiting import needs, news_of, waiting_for
from tests.events import run_started, trial_queued

from .story import finished, outlook


def batch(trials: int, places: int = 16, step: int = 1) -> Iterator[AnyEvent]:
    """A step whose first `places` trials run."""
    if step == 1:
        yield run_started(settings={"n_parallel_envs": places, "max_steps": 3})
    yield StepStarted(step=step, groups={"g": "copy-01"})
    yield RunPhaseChanged(phase=RunPhase.SAMPLING, step=step - 1)
    for number in range(trials):
        yield trial_queued(f"{step}-{number}", label=f"copy-01/{number}", step=step)
        if number < places:
            yield TrialPhaseChanged(trial=f"{step}-{number}", phase=TrialPhase.ACTING)


def told(look: Outlook) -> list[str]:
    return [need.text for need in needs(look)]


def test_a_frozen_trial_that_all_others_have_left_alone_needs_somebody() -> None:
    frozen = TrialPaused(trial="1-0", frozen=True)
    begun = [*batch(3), frozen, finished("1-1", 1.0)]
    assert told(outlook([*begun])) == []
    look = outlook([*begun, finished("1-2", 0.0)])
    assert told(look) == ["copy-01/0 holds the step up, frozen"]
    assert needs(look)[0].calls
    assert waiting_for(look) == "copy-01/0, frozen"
    assert told(outlook([*begun, finished("1-2", 0.0), TrialResumed(trial="1-0")])) == []


def test_what_is_queued_behind_a_paused_trial_can_start_or_not() -> None:
    paused = TrialPaused(trial="1-0", frozen=False)
    free = outlook([*batch(3, places=2), paused, finished("1-1", 1.0)])
    assert told(free) == []
    assert waiting_for(free) == "a trial to start"
    full = outlook([*batch(3, places=1), paused])
    assert told(full) == ["copy-01/0 holds the step up, paused"]


def test_who_types_in_a_trial_needs_no_bell() -> None:
    typing = TrialTakenOver(trial="1-0", actor="ann")
    look = outlook([*batch(1), TrialPaused(trial="1-0", frozen=False), typing])
    assert [(need.text, need.calls) for need in needs(look)] == [("ann types in copy-01/0", False)]
    assert waiting_for(look) == "ann to give copy-01/0 back"


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ([(Outcome.FAILED, 0.0)] * 5, ""),
        ([(Outcome.FAILED, 0.0)] * 10, "all 10 trials of step 1 failed"),
        ([(Outcome.FAILED, 0.0)] * 9 + [(Outcome.SOLVED, 1.0)], ""),
        ([(Outcome.FAILED, 0.0)] * 9 + [(Outcome.FAILED, 0.2)], ""),
        ([(Outcome.CONTEXT_OVERFLOW, 0.0)] * 7, ""),
        (
            [(Outcome.CONTEXT_OVERFLOW, 0.0)] * 8,
            "all 8 trials of step 1 failed so far: context overflow, raise context_limit",
        ),
        (
            [(Outcome.SETUP_ERROR, None)] * 10,
            "all 10 trials of step 1 failed: setup error, run tbtui doctor",
        ),
        (
            [(Outcome.SETUP_ERROR, None)] * 7 + [(Outcome.PARSE_ERROR, 0.0)] * 3,
            "all 10 trials of step 1 failed: 7 setup error, run tbtui doctor",
        ),
    ],
)
def test_a_batch_in_which_all_trials_fail_says_why(
    ends: list[tuple[Outcome, float | None]], words: str
) -> None:
    events = [
        finished(f"1-{number}", reward, outcome) for number, (outcome, reward) in enumerate(ends)
    ]
    look = outlook([*batch(10), *events])
    assert told(look) == ([words] if words else [])


def test_all_failing_is_said_until_a_later_batch_says_otherwise_and_is_news_once() -> None:
    failed = [finished(f"1-{number}", 0.0, Outcome.FAILED) for number in range(4)]
    first = [*batch(4), *failed]
    begun = outlook([*first, *batch(4, step=2), finished("2-0", 0.0, Outcome.FAILED)])
    assert told(begun) == ["all 4 trials of step 1 failed"]
    again = [finished(f"2-{number}", 0.0, Outcome.FAILED) for number in range(4)]
    later = outlook([*first, *batch(4, step=2), *again])
    assert told(later) == ["all 4 trials of step 2 failed"]
    assert news_of(needs(later)[0]) == news_of(needs(begun)[0])
    assert told(outlook([*first, *batch(4, step=2), finished("2-0", 1.0)])) == []
