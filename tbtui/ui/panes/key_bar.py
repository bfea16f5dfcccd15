"""The row of keys at the bottom, and the box in which a filter or search is typed."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from tbtui.journal.verbs import meant
from tbtui.ui.context import ScopedScreen, app_of
from tbtui.ui.drawing.rows import Span, split_row
from tbtui.ui.input.abilities import perform
from tbtui.ui.input.keys import Key, KeyTable, Scope
from tbtui.ui.panes.bars import LinePane
from tbtui.ui.panes.pane import Frame
from tbtui.ui.textual_seam import Columns, Painted
from tbtui.ui.theme.palette import Palette
from tbtui.view.current import attempts
from tbtui.view.standing import standing
from tbtui.view.state import RunState, TrialView
from tbtui.vocabulary import CommandVerb

_ASKED: dict[str, CommandVerb] = {
    "pause": "pause",
    "freeze": "freeze",
    "stop": "stop",
    "cancel": "cancel",
    "retry": "retry",
    "exclude": "exclude",
    "relabel": "relabel",
    "take-over": "take_over",
    "message": "message",
    "fork": "fork",
}
"""Id of a key that is for a trial -> what it asks of it."""

_OF_A_TRIAL = frozenset({"open", "group", "trial-group"})
"""Ids of further keys that need one."""


def keys_that_work(keys: Iterable[Key], trial: TrialView | None, state: RunState) -> list[Key]:
    """Leave out keys that would be refused for the trial, or the run, as it stands; name each for
    what it does now."""
    working = []
    for key in keys:
        if key.id == "pause-run" and state.paused:
            working.append(replace(key, label="resume run"))
        elif key.id in _OF_A_TRIAL and trial is None:
            continue
        elif key.id == "parent":
            if trial is not None and trial.parent in state.trials:
                working.append(key)
        elif key.id == "attempt":
            if trial is not None and len(attempts(trial, state)) > 1:
                working.append(key)
        elif (verb := _ASKED.get(key.id)) is None:
            working.append(key)
        elif trial is not None:
            now, why = meant(verb, standing(trial, state))
            if not why:
                working.append(key if now == verb else replace(key, label=now))
    return working


class WordsLine(Columns):
    """A text box with a label."""

    def __init__(self, label: str, box: Input) -> None:
        super().__init__()
        self._label = label
        self._box = box

    def compose(self) -> ComposeResult:
        yield Static(self._label)
        yield self._box


def filter_line(words: str, placeholder: str) -> WordsLine:
    """Make the line for a filter that has these words already."""
    box = Input(words, placeholder=placeholder, id="filter", max_length=100, select_on_focus=False)
    return WordsLine("filter", box)


@dataclass(frozen=True, slots=True)
class WayBack:
    """How a screen closes its text box and discards its text."""

    key: str
    """Id of the screen's own key for it."""
    label: str
    """What it does then."""


def keys_in_bar(
    keys: list[Key], table: KeyTable, focused: Widget | None, back: WayBack | None
) -> list[Key]:
    """A screen's `keys`; while words are typed, which most of them only add a letter to, those
    that work then."""
    if back is None or not isinstance(focused, Input):
        return keys
    return [table.entry("keep-words"), replace(table.entry(back.key), label=back.label)]


def without_idle(keys: list[Key], screen: Screen[Any]) -> list[Key]:
    """The keys that do something as things stand on the screen."""
    idle = frozenset(screen.idle_keys() if isinstance(screen, ScopedScreen) else ())
    return [key for key in keys if key.id not in idle]


class KeyBar(LinePane):
    """The keys that matter here and work now; each can be clicked."""

    EVERY = 1

    def __init__(self, id: str, *scopes: Scope, back: WayBack | None = None) -> None:
        """`back` leaves the screen's text box, if it has one."""
        super().__init__(id)
        self._scopes = scopes
        self._back = back
        self._places: list[KeyPlace] = []

    def key(self, frame: Frame) -> Hashable:
        return tuple((key.id, key.label) for key in self._keys(frame))

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        more = frame.keys.entry("palette")
        strip, self._places = key_row(self._keys(frame), more, width, frame.palette)
        return [strip]

    def _keys(self, frame: Frame) -> list[Key]:
        app = app_of(self)
        keys = keys_that_work(app.keys_in_bar(*self._scopes), frame.selected, frame.state)
        keys = without_idle(keys, self.screen)
        return keys_in_bar(keys, app.user.keys, self.screen.focused, self._back)

    async def on_click(self, event: events.Click) -> None:
        await click_key(self.screen, self._places, event.x)


KeyPlace = tuple[int, int, Key]
"""Its first column, and the one after its last."""


async def click_key(screen: Screen[Any], places: list[KeyPlace], x: int) -> None:
    """Do what the key at this column does."""
    for start, end, key in places:
        if start <= x < end:
            await perform(screen, key)
            return


def key_row(
    keys: list[Key], last: Key, width: int, palette: Palette
) -> tuple[Strip, list[KeyPlace]]:
    """The keys that fit, the screen's own first, `last` at the right; where each can be clicked."""
    keys = sorted(keys, key=lambda key: key.scope == "everywhere")
    more = "commands" if width >= 110 else "more"
    right: list[Span] = [(last.shown, palette.accent), (f" {more} ", palette.muted)]
    room = width - len(more) - len(last.shown) - 3
    if sum(map(_cells, keys)) > room:
        keys = _grouped(keys)
    fitting = _that_fit(keys, room)
    chosen = [key for key in keys if key.id in fitting]
    breaks = sum(_group(one) != _group(other) for one, other in pairwise(chosen))
    apart = sum(map(_cells, chosen)) + breaks * len(_APART) <= room
    spans: list[Span] = []
    places: list[KeyPlace] = []
    x = 0
    group = _group(chosen[0]) if chosen else ""
    for key in chosen:
        if apart and _group(key) != group:
            group = _group(key)
            spans.append((_APART, palette.faint))
            x += len(_APART)
        spans += [(f" {key.shown}", palette.accent), (f" {key.label} ", palette.muted)]
        places.append((x, x + _cells(key), key))
        x += _cells(key)
    places.append((width - len(more) - len(last.shown) - 2, width, last))
    return split_row(width, spans, right, palette.on_surface), places


_APART = " │"
"""Between groups of keys, where there is room."""


def _group(key: Key) -> str:
    """What its group is about: the screen, a replay's clock, or the app."""
    return key.scope if key.scope in ("replay", "everywhere") else "screen"


def _cells(key: Key) -> int:
    return len(key.shown) + len(key.label) + 3


def _that_fit(keys: list[Key], room: int) -> set[str]:
    """Return the ids of the keys that fit, by rank."""
    chosen: set[str] = set()
    # Among keys of one rank, a screen's own come before those that every screen has.
    for key in sorted(keys, key=lambda key: (key.bar, key.scope == "everywhere")):
        if _cells(key) <= room:
            chosen.add(key.id)
            room -= _cells(key)
    return chosen


def _grouped(keys: list[Key]) -> list[Key]:
    """The number keys as one, `1-5 panes`; a click on it is for the next pane."""
    numbers = [key for key in keys if key.shown.isdecimal()]
    if not numbers:
        return keys
    shown = f"{numbers[0].shown}-{numbers[-1].shown}"
    one = replace(numbers[0], shown=shown, label="panes", action="next_full")
    return [one if key is numbers[0] else key for key in keys if key not in numbers[1:]]


class KeyLine(Painted):
    """The keys of some scopes, and single ones of others; each can be clicked."""

    def __init__(
        self,
        id: str,
        palette: Palette,
        *scopes: Scope,
        also: tuple[str, ...] = (),
        back: WayBack | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """`back` leaves the screen's text box, if it has one. `labels`: id of a key -> what
        it does here, where that isn't what the table says."""
        super().__init__(id=id)
        self._back = back
        self._labels = labels or {}
        self._palette = palette
        self._scopes, self._also = scopes, also
        self._places: list[KeyPlace] = []

    def use(self, palette: Palette) -> None:
        self._palette = palette
        self.refresh()

    def render_line(self, y: int) -> Strip:
        app = app_of(self)
        keys = app.keys_in_bar(*self._scopes)
        keys += app.keys_met(key for key in app.user.keys.keys if key.id in self._also)
        keys = without_idle(keys, self.screen)
        keys = keys_in_bar(keys, app.user.keys, self.screen.focused, self._back)
        keys = [replace(key, label=self._labels.get(key.id, key.label)) for key in keys]
        more = app.user.keys.entry("palette")
        strip, self._places = key_row(keys, more, self.size.width, self._palette)
        return strip.apply_style(self._palette.ground)

    async def on_click(self, event: events.Click) -> None:
        await click_key(self.screen, self._places, event.x)
