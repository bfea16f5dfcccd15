"""A rule that decides upon trials under review in a person's place, and how a file spells it.

[[rule]]
name = "shortcuts"
when = { suspect = "few_turns", task = "copy-*" }
do = "exclude"
reason = "seen too often"
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tbtui.findings import Rule
from tbtui.outcomes import Outcome
from tbtui.terminal import one_line

RuleVerb = Literal[
    "exclude",  # leave it out of training and of its group's baseline
    "relabel",  # give it the rule's reward, for the rule's reason
    "accept",  # train on it as it is
    "refill",  # leave it out, and start a fresh trial in its place
    "hold",  # somebody has to look at it, suspicious or not
]


@dataclass(frozen=True, slots=True)
class Between:
    """Numbers from `least` to `most`, both included; None: no bound."""

    least: float | None = None
    most: float | None = None

    def __contains__(self, number: float) -> bool:
        return (self.least is None or number >= self.least) and (
            self.most is None or number <= self.most
        )


@dataclass(frozen=True, slots=True)
class When:
    """Conditions on a trial, all of which have to hold; one that is empty or None always does."""

    suspect: tuple[Rule | Literal["any"], ...] = ()
    """One of these is suspected of it, and for `accept` nothing else; `any`: something is."""
    outcome: tuple[Outcome, ...] = ()
    task: tuple[str, ...] = ()
    """Names and globs, one of which is its task's."""
    kind: tuple[str, ...] = ()
    """Kinds of its task."""
    reward: Between | None = None
    """The verdict's; a trial without a reward is never between."""
    turns: Between | None = None


@dataclass(frozen=True, slots=True)
class ReviewRule:
    """The first rule of a file that matches a trial decides upon it."""

    name: str
    verb: RuleVerb
    when: When = When()
    reward: float | None = None
    """With `relabel` alone."""
    reason: str = ""
    """Never empty where a reward is given."""


def rule_toml(rule: ReviewRule) -> str:
    """The rule as TOML, several lines."""
    lines = ["[[rule]]", f"name = {_toml(rule.name)}"]
    if conditions := ", ".join(_conditions(rule.when)):
        lines.append(f"when = {{ {conditions} }}")
    lines.append(f"do = {_toml(rule.verb)}")
    if rule.reward is not None:
        lines.append(f"reward = {_number(rule.reward)}")
    if rule.reason:
        lines.append(f"reason = {_toml(rule.reason)}")
    return "\n".join(lines) + "\n"


def rule_line(rule: ReviewRule) -> str:
    """The rule on one line, for people."""
    what = f"{rule.verb} {rule.reward:g}" if rule.reward is not None else rule.verb
    conditions = ", ".join(_conditions(rule.when))
    when = f"when {conditions}" if conditions else "any trial"
    reason = one_line(rule.reason)
    return f"{rule.name}: {what} {when}" + (f" ({reason})" if reason else "")


def _conditions(when: When) -> Iterator[str]:
    for name in ("suspect", "outcome", "task", "kind"):
        values: tuple[str, ...] = {
            "suspect": when.suspect,
            "outcome": tuple(outcome.value for outcome in when.outcome),
            "task": when.task,
            "kind": when.kind,
        }[name]
        if values:
            yield f"{name} = {_toml(values[0] if len(values) == 1 else list(values))}"
    for name, between in (("reward", when.reward), ("turns", when.turns)):
        if between is not None:
            yield f"{name} = {_between(between)}"


def _between(between: Between) -> str:
    if between.least is not None and between.least == between.most:
        return _number(between.least)
    bounds = (("min", between.least), ("max", between.most))
    inside = ", ".join(f"{name} = {_number(bound)}" for name, bound in bounds if bound is not None)
    return f"{{ {inside} }}"


def _number(number: float) -> str:
    return str(int(number) if number == int(number) else number)


def _toml(value: Any) -> str:
    # Every JSON string, number and list of strings is also TOML; only control characters differ.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
