"""The task browser's search, its tree as it is folded, and the selection. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tbtui.errors import UserError
from tbtui.ui.library import PastTask, Plan, TaskEntry
from tbtui.vocabulary import natural_order

_FEW = 30
"""Tasks that are shown unfolded from the start."""
_UNTRIED = PastTask()
_DIFFICULTIES = ("easy", "medium", "hard")
_PASS = ("0", ".01-.94", ">.94", "none")
_SIZE = ("<10k", "10k-1M", ">1M")


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One visible line of the tree."""

    level: Literal["dataset", "kind", "task"]
    key: str
    name: str
    ids: tuple[str, ...]
    """The tasks that are shown at or below it."""


class TaskChoice:
    """Which tasks are shown and which are selected."""

    def __init__(self) -> None:
        self.entries: Mapping[str, TaskEntry] = {}
        self.records: Mapping[str, PastTask] = {}
        self.unusable: Mapping[str, str] = {}
        """Why a task can't be used here, by id."""
        self.selected: set[str] = set()
        self.query = ""
        self.query_error = ""
        self.shown: list[str] = []
        """Ids of the tasks that the query leaves, in order."""
        self.rows: list[TreeRow] = []
        self._open: set[str] = set()

    def load(self, entries: Sequence[TaskEntry]) -> None:
        """Take the tasks; what was selected and is still there stays selected."""
        ordered = sorted(
            entries, key=lambda each: (each.dataset, each.kind, natural_order(each.name))
        )
        self.entries = {entry.id: entry for entry in ordered}
        self.selected &= self.entries.keys()
        self._open = {_key(entry.dataset) for entry in ordered}
        if len(ordered) <= _FEW:
            self._open |= {_key(entry.dataset, entry.kind) for entry in ordered}
        self.search(self.query)

    def record(self, id: str) -> PastTask:
        return self.records.get(id, _UNTRIED)

    def search(self, query: str) -> None:
        """Show what matches the query; an invalid one changes only the error."""
        self.query = query
        try:
            means = parse_query(query)
        except QueryError as error:
            self.query_error = str(error)
            return
        self.query_error = ""
        self.shown = [
            entry.id
            for entry in self.entries.values()
            if means(Candidate(entry, self.record(entry.id), entry.id in self.selected))
        ]
        self._arrange()

    def fold(self, row: TreeRow, unfold: bool | None = None) -> bool:
        """Open or close a row's node, None: the other way round; says whether it was not so before.

        As long as something is searched for, everything is open.
        """
        if row.level == "task" or self.query.strip() or unfold is self.is_open(row):
            return False
        self._open ^= {row.key}
        self._arrange()
        return True

    def unfold_to(self, task: str) -> TreeRow | None:
        """The row of a task, by its name as a run has it, unfolded; None: there is no such task."""
        ends = f"/{task}"
        entry = next(
            (each for id, each in self.entries.items() if task and id.endswith(ends)), None
        )
        if entry is None:
            return None
        self._open |= {_key(entry.dataset), _key(entry.dataset, entry.kind)}
        self._arrange()
        return next(
            (row for row in self.rows if row.ids == (entry.id,) and row.level == "task"), None
        )

    def is_open(self, row: TreeRow) -> bool:
        return row.key in self._open or bool(self.query.strip())

    def _arrange(self) -> None:
        self.rows = []
        searched = bool(self.query.strip())
        for dataset, kinds in _grouped(self.entries, self.shown).items():
            below = tuple(id for ids in kinds.values() for id in ids)
            self.rows.append(TreeRow("dataset", _key(dataset), dataset, below))
            if not searched and _key(dataset) not in self._open:
                continue
            for kind, ids in kinds.items():
                self.rows.append(TreeRow("kind", _key(dataset, kind), kind, tuple(ids)))
                if searched or _key(dataset, kind) in self._open:
                    names = (self.entries[id].name for id in ids)
                    self.rows += [
                        TreeRow("task", id, name, (id,))
                        for id, name in zip(ids, names, strict=True)
                    ]

    # Selecting

    def toggle(self, row: TreeRow) -> None:
        """Select all that the row shows, or, if all of it is selected, none of it."""
        if self.selected.issuperset(row.ids):
            self.selected.difference_update(row.ids)
        else:
            self.selected.update(row.ids)

    def select(self, ids: Iterable[str]) -> None:
        """Select these and no others."""
        self.selected = set(ids) & self.entries.keys()

    def select_shown(self) -> None:
        self.selected.update(self.shown)

    def invert_shown(self) -> None:
        self.selected.symmetric_difference_update(self.shown)

    def chosen(self) -> list[str]:
        """Ids of the selected tasks, in the tree's order."""
        return [id for id in self.entries if id in self.selected]

    def values(self, term: str) -> Sequence[str]:
        """The values that a term of the search can be set to in turn."""
        entries = self.entries.values()
        match term:
            case "difficulty":
                found = {entry.difficulty.lower() for entry in entries if entry.difficulty}
                known = [each for each in _DIFFICULTIES if each in found]
                return [*known, *sorted(found.difference(known))]
            case "kind":
                return sorted({entry.kind.lower() for entry in entries if " " not in entry.kind})
            case "pass":
                return _PASS
            case "size":
                return _SIZE
            case _:
                return STATES

    # In words

    def totals(self, plan: Plan) -> str:
        """`24 tasks · 8 rollouts each · about 6 min a step`."""
        chosen = [self.entries[id] for id in self.chosen()]
        if not chosen:
            return f"none of {len(self.entries)} tasks is selected"
        parts = ["1 task" if len(chosen) == 1 else f"{len(chosen)} tasks"]
        if held_out := sum(entry.use != "train" for entry in chosen):
            parts[0] += f", {held_out} of them held out"
        parts.append(f"{plan.group_size} rollouts each")
        parts.append(self._step_time(chosen, plan))
        return " · ".join(parts)

    def _step_time(self, chosen: Sequence[TaskEntry], plan: Plan) -> str:
        train = [entry.id for entry in chosen if entry.use == "train"]
        known = [seconds for id in train if (seconds := self.record(id).seconds) is not None]
        if not known:
            return "step time unknown: no recorded run"
        rollouts = min(plan.batch_size, len(train)) * plan.group_size
        seconds = rollouts * sum(known) / len(known) / min(plan.n_parallel, rollouts)
        of = "" if len(known) == len(train) else f" ({len(known)} timed)"
        return f"about {about(seconds)} a step{of}"


def _grouped(
    entries: Mapping[str, TaskEntry], ids: Iterable[str]
) -> dict[str, dict[str, list[str]]]:
    """Group entries: data set -> kind -> ids, in order."""
    grouped: dict[str, dict[str, list[str]]] = {}
    for id in ids:
        entry = entries[id]
        grouped.setdefault(entry.dataset, {}).setdefault(entry.kind, []).append(id)
    return grouped


def _key(*names: str) -> str:
    return "\0".join(names)


def about(seconds: float) -> str:
    """`40 s`, `6 min`, `2.5 h`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def size_text(size: int) -> str:
    """`950 B`, `12 kB`, `3.4 MB`."""
    if size < 1000:
        return f"{size} B"
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.1f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


_SIZES = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}
_NUMBER = re.compile(r"(\d*\.?\d+)([kmg]?)b?")
_TERM = re.compile(r"(-?)([a-z]+):(.*)", re.IGNORECASE)

WORDS: Mapping[str, Callable[[TaskEntry], str]] = {
    "difficulty": lambda entry: entry.difficulty,
    "kind": lambda entry: entry.kind,
    "category": lambda entry: entry.kind,
    "dataset": lambda entry: entry.dataset,
}
NUMBERS: Mapping[str, Callable[[TaskEntry, PastTask], float | None]] = {
    "pass": lambda entry, record: record.pass_rate,
    "seconds": lambda entry, record: record.seconds,
    "size": lambda entry, record: entry.size,
    "tries": lambda entry, record: record.rollouts,
}
STATES = ("selected", "train", "heldout")
TERMS = (*WORDS, *NUMBERS, "is")


class QueryError(UserError):
    """The search line can't be read; one short line that says why."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task, and all that a search may ask of it."""

    entry: TaskEntry
    record: PastTask
    selected: bool


Query = Callable[[Candidate], bool]


def parse_query(text: str) -> Query:
    """Whether a task is meant: by every part of the line. A `-` before a term turns it round.

    Raises:
        QueryError: a term has an unknown name, or a value that can't be read.
    """
    parts = [_part(part) for part in text.split()]
    return lambda candidate: all(part(candidate) for part in parts)


def _part(text: str) -> Query:
    term = _TERM.fullmatch(text)
    if term is None:
        wanted = text.lower()
        return lambda candidate: (
            wanted in candidate.entry.name.lower() or wanted in candidate.entry.summary.lower()
        )
    minus, name, value = term[1], term[2].lower(), term[3].lower()
    if name in TERMS and not value:
        return lambda candidate: True  # it is being written
    wanted_part = _term(name, value)
    if minus:
        return lambda candidate: not wanted_part(candidate)
    return wanted_part


def _term(name: str, value: str) -> Query:
    if name == "is":
        if value not in STATES:
            raise QueryError(f"is:{value}: write one of {', '.join(STATES)}")
        if value == "selected":
            return lambda candidate: candidate.selected
        return lambda candidate: (candidate.entry.use == "train") == (value == "train")
    if name in WORDS:
        word = WORDS[name]
        return lambda candidate: word(candidate.entry).lower() == value
    if name in NUMBERS:
        return _range(name, value)
    raise QueryError(f"{name}: unknown term; known are {', '.join(TERMS)}")


def _range(name: str, value: str) -> Query:
    """`<.5`, `>.5`, `.2-.8`, `.5`, or `none`: nothing known."""
    measure = NUMBERS[name]
    if value == "none":
        return lambda candidate: not measure(candidate.entry, candidate.record)
    low, high = -1.0, float("inf")
    start, dash, end = value.partition("-")
    if value.startswith("<"):
        high, inclusive = _number(name, value[1:]), False
    elif value.startswith(">"):
        low, inclusive = _number(name, value[1:]), False
    else:
        low, inclusive = _number(name, start), True
        high = _number(name, end) if dash else low

    def within(candidate: Candidate) -> bool:
        measured = measure(candidate.entry, candidate.record)
        if measured is None:
            return False
        return low <= measured <= high if inclusive else low < measured < high

    return within


def _number(name: str, text: str) -> float:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise QueryError(f"{name}:{text}: write {name}:<N, >N, N-M or none")
    return float(found[1]) * _SIZES[found[2]]


def with_term(text: str, name: str, value: str | None) -> str:
    """The line with the term `name` set to `value`, or without it (None)."""
    parts = [part for part in text.split() if not part.lower().startswith(f"{name}:")]
    return " ".join([*parts, f"{name}:{value}"] if value is not None else parts)


def term_value(text: str, name: str) -> str | None:
    """The value of the term `name` in the line, if it is there."""
    for part in text.split():
        if part.lower().startswith(f"{name}:"):
            return part[len(name) + 1 :]
    return None
