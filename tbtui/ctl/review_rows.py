"""What the lists say of steps that wait for somebody's look."""

from __future__ import annotations

from collections.abc import Iterator

from tbtui.ctl.rows import Row
from tbtui.journal.events import GroupUnderReview
from tbtui.view.state import ReviewView
from tbtui.view.waiting import duration

GROUP_COLUMNS = ("step", "group", "would be", "rewards", "suspects (* undecided), others")


def review_row(review: ReviewView, now: float, *, content: bool = False) -> Row:
    """Why a trial is suspicious quotes commands and verifiers: only with `content`."""
    return {
        "step": review.step,
        "for_sec": round(now - review.since, 1),
        "closes_in_sec": None if review.until is None else round(review.until - now, 1),
        "undecided": list(review.undecided),
        "groups": [_group_row(group, content=content) for group in review.groups],
    }


def _group_row(group: GroupUnderReview, *, content: bool) -> Row:
    trials: dict[str, Row] = {}
    for trial, score in group.trials.items():
        found = group.suspects.get(trial, ())
        trials[trial] = {
            "reward": score.reward,
            "advantage": score.advantage,
            "tokens": score.tokens,
            "suspects": [str(each.suspect) for each in found],
        }
        if content:
            trials[trial]["why"] = [each.why for each in found]
    return {
        "group": group.group,
        "task": group.task,
        "disposition": group.disposition,
        "baseline": group.baseline,
        "trials": trials,
    }


def review_words(row: Row) -> str:
    """`step 3, 2 of 32 trials undecided (tbtui ctl group list)`."""
    trials = sum(len(group["trials"]) for group in row["groups"])
    closes = row["closes_in_sec"]
    ends = "" if closes is None else f", closes in {duration(max(0.0, closes))}"
    undecided = len(row["undecided"])
    return f"step {row['step']}, {undecided} of {trials} trials undecided{ends}"


def group_cells(review: Row) -> list[list[str]]:
    """A line for each group of a review."""
    return [
        [
            str(review["step"]),
            group["group"],
            group["disposition"],
            " ".join(_reward(trial["reward"]) for trial in group["trials"].values()),
            "; ".join(_doubts(group["trials"], review["undecided"])),
        ]
        for group in review["groups"]
    ]


def _doubts(trials: dict[str, Row], undecided: list[str]) -> Iterator[str]:
    """Each suspect, and how many more nobody has decided upon."""
    for name, trial in trials.items():
        if trial["suspects"]:
            words = [suspect.replace("_", " ") for suspect in trial["suspects"]]
            yield f"{name}{'*' * (name in undecided)} {', '.join(trial.get('why') or words)}"
    plain = [name for name in trials if name in undecided and not trials[name]["suspects"]]
    if plain:
        yield f"{len(plain)} undecided"


def _reward(reward: float | None) -> str:
    return "-" if reward is None else f"{reward:g}"
