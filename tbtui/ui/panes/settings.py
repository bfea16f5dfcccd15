"""The settings of a run: the list of all, and what there is to say of one."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.journal.verbs import run_refusal
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import clip, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.services import RunSettings, SettingEntry
from tbtui.ui.theme.palette import Palette
from tbtui.view.standing import is_prime_rl
from tbtui.view.state import CommandView, RunState

Narrowed = Literal["", "changed", "live"]
"""Which settings are listed: all, those that differ from their default, those that may change
while the run goes on."""

_NAME, _VALUE = 38, 16
"""Cells of a row's first columns at most."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting with what the shown run has."""

    entry: SettingEntry
    value: str | None
    """None: the run has not recorded it; it is older than the setting, or is starting."""
    default: str
    default_why: str
    """Why the default is not the table's."""
    last: CommandView | None
    """The last command that was to change it."""

    @property
    def differs(self) -> bool:
        return self.value is not None and self.value != self.default

    @property
    def source(self) -> str:
        """Where the value comes from."""
        last = self.last
        if self.value is None:
            return "not recorded in this run"
        if last is not None and last.ok:
            return f"changed by {last.actor} at {_clock(last.time)}"
        if self.differs:
            return "given when the run was started"
        return f"default: {self.default_why}" if self.default_why else "default"


def setting_rows(book: RunSettings, state: RunState) -> list[SettingRow]:
    """Every setting, with the values of a run."""
    values = state.settings
    defaults, last = book.defaults(values), _last_changes(state)
    return [
        SettingRow(
            entry,
            book.text(entry.name, values[entry.name]) if entry.name in values else None,
            *defaults[entry.name],
            last.get(entry.name),
        )
        for entry in book.entries
    ]


def _last_changes(state: RunState) -> Mapping[str, CommandView]:
    return {
        name: command
        for command in state.commands
        if command.verb == "set"
        for name in command.arguments
    }


def changeable(entry: SettingEntry, state: RunState) -> bool:
    """Whether the shown run's process may change it while it goes on."""
    return bool(entry.live) and not run_refusal("set", prime_rl=is_prime_rl(state))


class SettingListPane(Pane):
    """A row for each setting, under the headings of the guide's page."""

    BINDINGS = bindings("settings-list")
    EVERY = 1

    class Opened(Message):
        """The chosen setting is to be changed."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.book: RunSettings | None = None
        self.words = ""
        self.narrowed: Narrowed = ""
        self.chosen = ""
        """The name of the chosen setting."""
        self.rows: list[SettingRow] = []
        """Those that are listed."""
        self._all: list[SettingRow] = []
        self._known: Hashable = None
        self._lines: list[str] = []
        """Name of the setting on each line; empty: a heading."""

    def choose(self, name: str) -> None:
        """Go to a setting, whatever is filtered."""
        if name:
            self.words, self.narrowed, self.chosen = "", "", name

    @property
    def current(self) -> SettingRow | None:
        """The chosen setting, as the run has it."""
        here = (each for each in self.rows if each.entry.name == self.chosen)
        return next(here, self.rows[0] if self.rows else None)

    def take(self, frame: Frame) -> None:
        """Look at the settings in force, if they may have changed."""
        state = frame.state
        known = (
            self.book is not None, frame.run.directory, id(state.settings), state.commands_listed,
            frozenset(state.pending),
        )  # fmt: skip
        if self.book is not None and known != self._known:
            self._known, self._all = known, setting_rows(self.book, state)
        self.rows = [each for each in self._all if self._listed(each, state)]

    def _listed(self, each: SettingRow, state: RunState) -> bool:
        entry = each.entry
        text = f"{entry.name} {entry.heading} {entry.meaning}".lower()
        return all(word in text for word in self.words.lower().split()) and (
            not self.narrowed
            or (self.narrowed == "changed" and each.differs)
            or (self.narrowed == "live" and changeable(entry, state))
        )

    def title(self, frame: Frame) -> str:
        self.take(frame)
        of = f"{len(self.rows)} of {len(self._all)}"
        count = of if len(self.rows) != len(self._all) else str(len(self._all))
        which = {"": "", "changed": " · not at their default", "live": " · live"}[self.narrowed]
        return f"settings {count}{which}"

    def key(self, frame: Frame) -> Hashable:
        return self._known, self.words, self.narrowed, self.chosen

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, here = frame.palette, self.current
        if here is None:
            return [row(width, (f" {self._nothing()}", palette.faint))]
        strips: list[Strip] = []
        self._lines = []
        heading = ""
        for each in self.rows:
            if each.entry.heading != heading:
                heading = each.entry.heading
                strips.append(row(width, (f" {heading}", palette.accent)))
                self._lines.append("")
            live = changeable(each.entry, frame.state)
            strips.append(_line(each, palette, width, live=live, chosen=each is here))
            self._lines.append(each.entry.name)
        return strips

    def _nothing(self) -> str:
        return "reading the settings" if self.book is None else "no setting matches"

    def replace(self, rows: list[Strip], width: int) -> None:
        super().replace(rows, width)
        if self.current is not None:
            at = self._lines.index(self.current.entry.name)
            # Its group's heading stays in sight above the first of the group.
            self.reveal(max(0, at - 1))
            self.reveal(at)

    def action_move(self, steps: int) -> None:
        if (here := self.current) is not None:
            at = min(len(self.rows) - 1, max(0, self.rows.index(here) + steps))
            self.chosen = self.rows[at].entry.name
            self.redraw()

    def action_newest(self) -> None:
        self.action_move(len(self.rows))

    def action_oldest(self) -> None:
        self.action_move(-len(self.rows))

    def action_edit(self) -> None:
        if self.current is not None:
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        if at is None or at.y >= len(self._lines) or not (name := self._lines[at.y]):
            return
        here = self.current
        if here is not None and here.entry.name == name:
            self.action_edit()
        self.chosen = name
        self.redraw()


def _line(each: SettingRow, palette: Palette, width: int, *, live: bool, chosen: bool) -> Strip:
    name = min(_NAME, max(16, width * 2 // 5))
    value = palette.attention if each.differs else palette.text
    left: list[Span] = [
        (f"  {clip(each.entry.name, name - 3):<{name - 2}}", palette.text),
        (f"{clip(each.value or '', _VALUE - 1) or '–':<{_VALUE}}", value),
        (each.entry.meaning, palette.faint),
    ]
    right: list[Span] = []
    if each.differs and width >= name + 2 * _VALUE:
        right.append((f" default {clip(each.default, 14) or '–'}", palette.muted))
    right.append((" live " if live else "      ", palette.good))
    return split_row(width, left, right, palette.on_raised if chosen else None)


class SettingPane(Pane):
    """All that is known of one setting."""

    EVERY = 1

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.shown: SettingRow | None = None

    def title(self, frame: Frame) -> str:
        return self.shown.entry.name if self.shown is not None else "setting"

    def key(self, frame: Frame) -> Hashable:
        shown = self.shown
        if shown is None:
            return None
        answer = shown.last and (shown.last.ok, shown.last.result)
        return shown.entry.name, shown.value, answer, frame.state.status, frame.run.replay is None

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        if self.shown is None:
            return []
        return list(_about(self.shown, frame, width))


def _about(shown: SettingRow, frame: Frame, width: int) -> Iterator[Strip]:
    entry, palette = shown.entry, frame.palette

    def text(words: str, style: Any) -> Iterator[Strip]:
        for line in wrap(words, width - 2):
            yield row(width, (f" {line}", style))

    def fact(head: str, words: str, style: Any = None) -> Iterator[Strip]:
        for line in wrap(words, max(8, width - 11)):
            yield row(width, (f" {head:<9}", palette.muted), (line, style or palette.text))
            head = ""

    yield from text(f"{entry.meaning}.", palette.strong)
    yield row(width)
    yield from fact("value", shown.value or "–", palette.attention if shown.differs else None)
    yield from fact("source", shown.source)
    yield from fact("default", shown.default or "–")
    yield from fact("reason", shown.default_why or entry.why)
    yield from fact("type", entry.kind)
    yield row(width)
    yield from fact("change", when_changed(entry, frame))
    if (last := shown.last) is not None:
        yield row(width)
        words, style = _answer(last, palette)
        yield from fact("last", words, style)


def when_changed(entry: SettingEntry, frame: Frame) -> str:
    """When another value is felt, and how it is set."""
    over = frame.run.replay is not None or frame.state.status is not None
    if changeable(entry, frame.state) and not over:
        return f"now; {entry.live}"
    if entry.fixed:
        return f"in a new run: {entry.fixed}"
    return "when the run is resumed"


def _answer(last: CommandView, palette: Palette) -> tuple[str, Any]:
    asked = f"{last.actor} at {_clock(last.time)}: "
    if last.ok is None:
        return asked + "under way", palette.attention
    return asked + (last.result or "done"), palette.text if last.ok else palette.bad


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
