"""What a run without the app says of a step under review."""

from __future__ import annotations

import msgspec

from tbtui.console import HumanLines
from tbtui.findings import Rule
from tbtui.journal.commands import rule_actor
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    GroupUnderReview,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    StepFinished,
    StepStarted,
    Suspicion,
    TrialRelabelled,
    TrialScore,
)

from ..view.story import entries, finished, queued, started


def group(name: str, trials: int, *, suspicious: int = 0) -> GroupUnderReview:
    return GroupUnderReview(
        group=name,
        task="move-1",
        disposition="trained",
        baseline=0.5,
        trials={
            f"{name}-{n}": TrialScore(reward=float(n % 2), advantage=0.5, tokens=9, segments=1)
            for n in range(trials)
        },
        suspects={
            f"{name}-{n}": (Suspicion(suspect=Rule.FEW_TURNS, why="solved in \x1b[31m1 turn"),)
            for n in range(suspicious)
        },
    )


def told(*events: AnyEvent, **settings: object) -> list[str]:
    first = started()
    first = msgspec.structs.replace(first, settings={**first.settings, **settings})
    lines = HumanLines()
    [*lines.lines(entries([first])[0])]
    return [line for entry in entries(list(events)) for line in lines.lines(entry)]


def opened(*, trials: int = 4, suspicious: int = 1, timeout: float | None = None) -> ReviewOpened:
    under = group("g", trials, suspicious=suspicious)
    undecided = tuple(under.suspects)
    return ReviewOpened(step=3, groups=(under,), undecided=undecided, timeout_sec=timeout)


def test_a_review_says_what_it_waits_for_and_how_to_answer() -> None:
    run = started().run
    assert told(opened()) == [
        "review  step 3 waits for a review before it is trained: 1 of 4 trials undecided",
        "review  g-0, reward 0, few turns: solved in ␛[31m1 turn",
        f"review  look: tbtui attach {run}, or tbtui ctl group list --run {run}",
        f"review  go on: tbtui ctl run accept {run}",
    ]


def test_it_says_when_it_closes_by_itself_and_what_then() -> None:
    (first, *_) = told(opened(timeout=90))
    assert first.endswith("undecided; after 1m30s undecided suspects are excluded")
    (first, *_) = told(opened(timeout=90), at_review_timeout="accept")
    assert first.endswith("; after 1m30s it goes on")


def test_of_many_suspects_some_are_told_and_the_others_counted() -> None:
    lines = told(opened(trials=20, suspicious=12))
    assert sum("few turns" in line for line in lines) == 8
    assert "review  and 4 trials more" in lines


def test_decisions_and_the_end_of_it_are_told() -> None:
    command = CommandIssued(
        command="c",
        verb="relabel",
        target="g-0",
        actor="ann",
        reason="it did it",
        arguments={"reward": 0.5},
    )
    before = opened(suspicious=2)
    after = ReviewChanged(step=3, groups=before.groups, undecided=("g-1",))
    lines = told(
        StepStarted(step=3, groups={"g": "move-1"}),
        queued("g-0", group="g", step=3),
        finished("g-0", 0.0),
        before,
        command,
        TrialRelabelled(trial="g-0", reward=0.5, before=0.0, reason="it did it"),
        CommandDone(command="c", ok=True, result="g-0 has reward 0.5"),
        after,
        after,
        ReviewClosed(step=3, how="accepted", actor="ann", reason="looked at"),
        StepFinished(
            step=3,
            weights_version=3,
            metrics={"time/sampling": 1.0, "time/training": 1.0, "time/total": 2.0},
        ),
    )
    assert lines[5:-1] == [
        "asked   ann: relabel g-0 reward=0.5 (it did it)",
        "trial   g-0 has reward 0.5, not 0: it did it",
        "done    g-0 has reward 0.5",
        "review  step 3: 1 trial undecided",
        "review  step 3 goes on: accepted by ann (looked at)",
    ]
    assert " · 1 relabelled · " in lines[-1]


def test_a_relabelled_trial_that_has_the_verdicts_reward_again_is_not_counted() -> None:
    lines = told(
        StepStarted(step=1, groups={"g": "move-1"}),
        queued("g-0", group="g"),
        TrialRelabelled(trial="g-0", reward=0.5, before=None, reason="so"),
        TrialRelabelled(trial="g-0", reward=None, before=0.5, reason="", taken_back=True),
        StepFinished(
            step=1,
            weights_version=1,
            metrics={"time/sampling": 1.0, "time/training": 1.0, "time/total": 2.0},
        ),
    )
    assert lines[:2] == [
        "trial   g-0 has reward 0.5, not none: so",
        "trial   g-0 has the verifier's reward again: none",
    ]
    assert "relabelled" not in lines[-1]


def test_rules_and_time_close_it_too() -> None:
    assert told(
        ReviewClosed(step=3, how="rules", actor="rules"),
        ReviewClosed(step=4, how="timeout", actor="timeout"),
    ) == [
        "review  step 3 goes on: decided by rules",
        "review  step 4 goes on: no decision in time",
    ]


def test_a_rules_decision_is_one_line_unless_it_is_refused() -> None:
    def asked(command: str, target: str) -> CommandIssued:
        return CommandIssued(
            command=command,
            verb="relabel",
            target=target,
            actor=rule_actor("tried"),
            reason="it tried",
            arguments={"reward": 0.1},
        )

    assert told(
        asked("c", "g-0"),
        TrialRelabelled(trial="g-0", reward=0.1, before=0.0, reason="it tried"),
        CommandDone(command="c", ok=True, result="g-0: reward 0.1 (was 0)"),
        asked("d", "g-1"),
        CommandDone(command="d", ok=False, result="g-1 has no tokens"),
        TrialRelabelled(trial="g-0", reward=1.0, before=0.1, reason="no"),
    ) == [
        "asked   rule:tried: relabel g-0 reward=0.1 (it tried)",
        "asked   rule:tried: relabel g-1 reward=0.1 (it tried)",
        "refused g-1 has no tokens",
        "trial   g-0 has reward 1, not 0.1: no",
    ]
