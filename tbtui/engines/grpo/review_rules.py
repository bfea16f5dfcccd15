"""The rule file of a review: read and checked, asked about trials, and added to."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

from tbtui.catalog import nearest
from tbtui.config import ConfigError
from tbtui.findings import SUSPECTS, Rule
from tbtui.journal.commands import rule_actor
from tbtui.journal.events import Outcome
from tbtui.journal.review_rule import Between, ReviewRule, RuleVerb, When, rule_toml

_KEYS = ("name", "when", "do", "reward", "reason")
_CONDITIONS = ("suspect", "outcome", "task", "kind", "reward", "turns")
_VERBS: tuple[RuleVerb, ...] = get_args(RuleVerb)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """What rules can ask of a trial that is over."""

    task: str
    kind: str | None
    outcome: Outcome
    reward: float | None
    """What the verdict led to, whatever people have made of it since."""
    turns: int
    suspects: frozenset[Rule]


@dataclass(frozen=True, slots=True)
class RuleDecision:
    """What a rule decides of a trial."""

    rule: str
    """Name of the rule."""
    verb: RuleVerb
    reward: float | None
    """What `relabel` gives; None for other verbs."""
    reason: str

    @property
    def actor(self) -> str:
        """Who the journal says has decided."""
        return rule_actor(self.rule)


@dataclass(frozen=True, slots=True)
class ReviewRules:
    """A file's rules, in its order; without any, nothing is decided."""

    rules: tuple[ReviewRule, ...] = ()

    def decide(self, facts: RuleFacts) -> RuleDecision | None:
        """The decision of the first rule that matches; None: no rule does."""
        for rule in self.rules:
            if _matches(rule, facts):
                return RuleDecision(rule.name, rule.verb, rule.reward, rule.reason)
        return None


def load_rules(path: Path) -> ReviewRules:
    """Read the rules of a file.

    Raises:
        ConfigError: it can't be read, or a rule in it can't be; the line names file and rule.
    """
    return _rules(path, _text(path))


def append_rule(path: Path, rule: ReviewRule) -> None:
    """Write a rule to the end of the file, or to a new one; all that stands there stays.

    Raises:
        ConfigError: the file would not be one of rules, or can't be written; it is as it was.
    """
    before = _text(path) if path.exists() else ""
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    after = before + gap + rule_toml(rule)
    _rules(path, after)
    file = path.resolve()  # a link stays one
    new = file.with_suffix(".new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(after, encoding="utf-8", newline="")
        new.replace(file)
    except OSError as error:
        raise ConfigError(f"{path}: can't be written ({error.strerror})") from error


def _matches(rule: ReviewRule, facts: RuleFacts) -> bool:
    when = rule.when
    return (
        _suspected(rule, facts.suspects)
        and (not when.outcome or facts.outcome in when.outcome)
        and (not when.task or any(fnmatchcase(facts.task, pattern) for pattern in when.task))
        and (not when.kind or facts.kind in when.kind)
        and (when.reward is None or (facts.reward is not None and facts.reward in when.reward))
        and (when.turns is None or facts.turns in when.turns)
    )


def _suspected(rule: ReviewRule, suspects: frozenset[Rule]) -> bool:
    named = rule.when.suspect
    if not named:
        return True
    if "any" in named:
        return bool(suspects)
    # A trial is not waved through for one suspicion when there is another one against it.
    if rule.verb == "accept" and not suspects.issubset(named):
        return False
    return not suspects.isdisjoint(named)


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error


def _rules(path: Path, text: str) -> ReviewRules:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML ({error})") from error
    for key in document:
        if key != "rule":
            hint = nearest(key, ["rule"])
            raise ConfigError(f"{path}: unknown key {key!r}{hint or '; rules are [[rule]] tables'}")
    tables = document.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: rule should be [[rule]] tables, with two brackets")
    rules: list[ReviewRule] = []
    for number, table in enumerate(tables, start=1):
        where = f"{path}: rule {number}"
        rule = _Table(table, where).rule(str(number))
        if any(rule.name == other.name for other in rules):
            raise ConfigError(f"{where}: another rule is called {rule.name!r} too")
        rules.append(rule)
    return ReviewRules(tuple(rules))


@dataclass(frozen=True, slots=True)
class _Table:
    """One `[[rule]]` of a file."""

    values: dict[str, Any]
    where: str

    def rule(self, name: str) -> ReviewRule:
        """The rule, called `name` if it has none. Raises `ConfigError`."""
        self._only(self.values, _KEYS, "key")
        verb = self._one_of("do", self._required("do"), _VERBS)
        name = self._string("name", self.values.get("name", name))
        if not _NAME.fullmatch(name):
            raise self._error("name should be letters, digits and . _ - , at most 64")
        reason = self._string("reason", self.values.get("reason", "")).strip()
        reward = self.values.get("reward")
        if verb == "relabel":
            reward = self._number("reward", self._required("reward"))
            if not reason:
                raise self._error('relabel needs a reason; add reason = "..."')
        elif reward is not None:
            raise self._error(f'reward is for do = "relabel", not for {verb}')
        return ReviewRule(name, verb, self._when(self.values.get("when", {})), reward, reason)

    def _when(self, when: Any) -> When:
        if not isinstance(when, dict):
            raise self._error('when should be a table, such as { suspect = "few_turns" }')
        self._only(when, _CONDITIONS, "condition")
        outcomes = [outcome.value for outcome in Outcome]
        return When(
            suspect=tuple(
                self._one_of("suspect", name, (*SUSPECTS, "any"))
                for name in self._strings("suspect", when)
            ),
            outcome=tuple(
                Outcome(self._one_of("outcome", name, outcomes))
                for name in self._strings("outcome", when)
            ),
            task=self._strings("task", when),
            kind=self._strings("kind", when),
            reward=self._between("reward", when),
            turns=self._between("turns", when),
        )

    def _between(self, name: str, when: dict[str, Any]) -> Between | None:
        value = when.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            number = self._number(name, value)
            return Between(number, number)
        self._only(value, ("min", "max"), f"bound of {name}")
        bounds = {key: self._number(f"{name}.{key}", bound) for key, bound in value.items()}
        between = Between(bounds.get("min"), bounds.get("max"))
        if not bounds:
            raise self._error(f"{name} = {{}}: give min, max or both")
        if between.least is not None and between.least not in Between(most=between.most):
            raise self._error(f"{name}: min {between.least:g} is above max {between.most:g}")
        return between

    def _strings(self, name: str, when: dict[str, Any]) -> tuple[str, ...]:
        value = when.get(name, [])
        values = value if isinstance(value, list) else [value]
        if name in when and not values:
            raise self._error(f"{name} = []: nothing would match; leave it out, or name some")
        return tuple(self._string(name, each) for each in values)

    def _string(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._error(f"{name} should be a text, and is {value!r}")
        return value

    def _number(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._error(f"{name} should be a number, and is {value!r}")
        if not math.isfinite(value):
            raise self._error(f"{name} should be a finite number, and is {value}")
        return float(value)

    def _one_of[T: str](self, name: str, value: Any, known: Sequence[T]) -> T:
        text = self._string(name, value)
        for each in known:
            if text == each:
                return each
        hint = nearest(text, known) or f"; there are {', '.join(known)}"
        raise self._error(f"{name} = {text!r}: unknown{hint}")

    def _required(self, name: str) -> Any:
        if name not in self.values:
            raise self._error(f"{name} is missing")
        return self.values[name]

    def _only(self, table: dict[str, Any], known: Sequence[str], what: str) -> None:
        for key in table:
            if key not in known:
                hint = nearest(key, known) or f"; there are {', '.join(known)}"
                raise self._error(f"unknown {what} {key!r}{hint}")

    def _error(self, text: str) -> ConfigError:
        return ConfigError(f"{self.where}: {text}")
