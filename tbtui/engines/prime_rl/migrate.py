"""Configuration files of earlier Prime-RL, above all of its seed for Harbor, to today's.

Renames and what is gone stand in `migrate_rules`; every key that changes is listed. An unknown key
stays: Prime-RL's own classes name it (`launch/checkout.py`). Today's files come back unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tbtui.config import ConfigError
from tbtui.engines.prime_rl.migrate_rules import RULES, SEED_RULES, SOURCE_RULES, Move
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN

_SEED_IDS = ("harbor_env", "harbor-env", "harbor")
_ENVIRONMENTS = (
    ("orchestrator.env", "orchestrator.train.source"),
    ("orchestrator.train.env", "orchestrator.train.source"),
    ("orchestrator.eval.env", "orchestrator.eval.source"),
)
_TRAINER_LENGTH = 2048
"""The trainer's where the file says none. Once it took the orchestrator's."""


def migrate(toml: Mapping[str, Any]) -> tuple[dict[str, Any], list[Change]]:
    """Today's file, and what became of every key that isn't what it was.

    Raises:
        ConfigError: a value that is to be changed has the wrong type.
    """
    document = Document(toml)
    devices = [name for name in ("trainer_gpu_ids", "inference_gpu_ids") if document.has(name)]
    _follow(document, RULES)
    for table in ("trainer.model.experimental", "trainer.experimental", "inference.parallel"):
        document.remove_empty(table)
    if devices and not document.has("deployment.gpus_per_node"):
        new = "deployment.gpus_per_node"
        counts = (document.get(f"deployment.num_{each}_gpus") for each in ("train", "infer"))
        document.set(new, sum(count or 1 for count in counts))  # one of each is the default
        document.record(" + ".join(devices), new, "so many in all")
    length = document.get("orchestrator.seq_len")
    given = document.has("seq_len") or document.has("trainer.model.seq_len")
    if isinstance(length, int) and length > _TRAINER_LENGTH and not given:
        document.move("orchestrator.seq_len", "seq_len", "the trainer needs it too")
    for old, new in _ENVIRONMENTS:
        if document.has(old):
            sources = [*document.tables(new), *_sources(document, old, new)]
            document.pop(old)
            document.set(new, sources)
    return document.root, document.changes


def _follow(document: Document, rules: Iterable[Move]) -> None:
    for rule in rules:
        if rule.old.endswith(".*"):
            new = rule.new and rule.new.removesuffix(".*")
            document.move_table(rule.old.removesuffix(".*"), new, rule.reason)
        elif document.has(rule.old):
            _follow_one(document, rule)


def _follow_one(document: Document, rule: Move) -> None:
    before = document.get(rule.old)
    try:
        after = before if rule.convert is None else rule.convert(before)
    except ConfigError as error:
        raise ConfigError(f"{rule.old}={before}: {error}") from error
    if rule.new is None or after is None:
        document.drop(rule.old, rule.reason)
    elif rule.new != rule.old:
        document.move(rule.old, rule.new, rule.reason, lambda _: after)
    elif after != before:
        document.set(rule.new, after)
        document.record(rule.old, rule.new, rule.reason)


def _sources(document: Document, old: str, new: str) -> list[Table]:
    """Environments at `old` as the sources at `new` that they are today."""
    entries = document.tables(old)
    document.record(old, new, "environments are sources")
    sources = []
    for entry in entries:
        source = Document(entry)
        arguments = source.table("args") or {}
        if str(source.get("id")).rpartition(".")[2] in _SEED_IDS or "tasks_dir" in arguments:
            _seed(source, document.get("orchestrator.train.sampling.max_completion_tokens"))
        _follow(source, SOURCE_RULES)
        for change in source.changes:
            place = change.new and f"{new}[].{change.new}"
            document.record(f"{old}[].{change.old}", place, change.reason)
        sources.append(source.root)
    return sources


def _seed(source: Document, max_tokens: int | None) -> None:
    """An environment of the seed: tbtui's plugin runs its tasks."""
    if not source.has("id"):
        source.set("env.taskset.id", PLUGIN)
    source.set("env.agent.runtime", {"type": "subprocess"})
    source.set("env.agent.harness", {"id": PLUGIN})
    if max_tokens is not None and not source.has("args.max_tokens"):
        source.set("env.agent.harness.max_tokens", max_tokens)
    _follow(source, SEED_RULES)


Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one key of a file."""

    old: str
    new: str | None
    """Its new name; none: it is gone; the same as before: only its value changes."""
    reason: str

    def __str__(self) -> str:
        """`old key -> new key: reason`, in one line."""
        return f"{self.old} -> {self.new or '(gone)'}: {self.reason}"


class Document:
    """A TOML document by dotted names, with a list of what has changed; `set` makes tables."""

    def __init__(self, toml: Mapping[str, Any]) -> None:
        self.root: Table = copy.deepcopy(dict(toml))
        self.changes: list[Change] = []

    def table(self, path: str) -> Table | None:
        """The table of that name, if there is one.

        Raises:
            ConfigError: there is something else.
        """
        node: Table = self.root
        for place, key in _steps(path):
            if key not in node:
                return None
            below = node[key]
            if not isinstance(below, dict):
                raise ConfigError(f"{place}: should be a table")
            node = below
        return node

    def tables(self, path: str) -> list[Table]:
        """The list of tables of that name; empty: there is none.

        Raises:
            ConfigError: there is something else.
        """
        value = self.get(path)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise ConfigError(f"{path}: should be a list of tables, as [[{path}]] makes it")
        return value

    def get(self, path: str) -> Any:
        """The value, or None."""
        place, _, key = path.rpartition(".")
        table = self.table(place)
        return None if table is None else table.get(key)

    def set(self, path: str, value: Any) -> None:
        place, _, key = path.rpartition(".")
        node = self.root
        for _, step in _steps(place):
            node = node.setdefault(step, {})
        node[key] = value

    def pop(self, path: str) -> Any:
        """Take the value out, if it is there; else None."""
        place, _, key = path.rpartition(".")
        table = self.table(place)
        return None if table is None else table.pop(key, None)

    def has(self, path: str) -> bool:
        place, _, key = path.rpartition(".")
        table = self.table(place)
        return table is not None and key in table

    def record(self, old: str, new: str | None, reason: str) -> None:
        """List a change. If a key was moved to `old` before, both moves become one entry."""
        for index, before in enumerate(self.changes):
            if before.new == old != before.old:
                way = reason if reason == before.reason else f"{before.reason}; {reason}"
                self.changes[index] = Change(before.old, new, way)
                return
        self.changes.append(Change(old, new, reason))

    def drop(self, path: str, reason: str) -> None:
        """Take the key out, if it is there."""
        if self.has(path):
            self.pop(path)
            self.record(path, None, reason)

    def move(
        self, old: str, new: str, reason: str, convert: Callable[[Any], Any] | None = None
    ) -> None:
        """Rename the key, if it is there. What already stands under the new name stays."""
        if not self.has(old):
            return
        if self.has(new):
            self.drop(old, f"{new} is there already")
            return
        value = self.pop(old)
        self.set(new, value if convert is None else convert(value))
        self.record(old, new, reason)

    def move_table(self, old: str, new: str | None, reason: str) -> None:
        """Move each key of a table, or drop it where there is no `new` place.

        Raises:
            ConfigError: there is something else.
        """
        table = self.table(old)
        if table is None:
            return
        if new is None:
            for key in list(table):
                self.drop(f"{old}.{key}", reason)
        elif not table:  # that it is there says something
            if self.table(new) is None:
                self.set(new, {})
            self.record(old, new, reason)
        else:
            for key in list(table):
                self.move(f"{old}.{key}", f"{new}.{key}", reason)
        self.remove_empty(old)

    def remove_empty(self, path: str) -> None:
        """Remove a table that nothing is left in."""
        if self.get(path) == {}:
            self.pop(path)


def _steps(path: str) -> list[tuple[str, str]]:
    """(the dotted name so far, its last part) of each part."""
    parts = path.split(".") if path else []
    return [(".".join(parts[: n + 1]), part) for n, part in enumerate(parts)]
