"""A group as one row: its task, its siblings as glyphs, its figures, and who holds it up."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import clip, clip_name, elapsed, number, rate, visible
from tbtui.ui.theme.glyphs import HELD_OUT_MARK, LEFT_OUT_MARK, RELABELLED_MARK, trial_glyph
from tbtui.ui.theme.palette import Palette
from tbtui.view.current import active_seconds
from tbtui.view.groups import TrialGroup
from tbtui.view.state import TrialView
from tbtui.view.waiting import doing, retry_wait, verb_words
from tbtui.vocabulary import all_equal

FOLD = 3
"""Cells before a row's marks and name."""
_NAME = 12
"""Cells of a name that are kept before anything else."""
_SPREAD, _SIGNAL, _SLOWEST, _SLOWEST_MOST = 6, 13, 18, 26
_NOTE = 16
"""Cells from which on there is room for a note."""

Sibling = tuple[Span, Span]
"""A sibling's glyph, and the mark of a decision on it or a blank."""


def sibling_of(trial: TrialView, palette: Palette) -> Sibling:
    """A trial's glyph, and the mark of a person's decision on it."""
    glyph = trial_glyph(trial, palette)
    mark: Span = (" ", None)
    if trial.excluded:
        mark = (LEFT_OUT_MARK, palette.muted)
    elif trial.relabelled:
        mark = (RELABELLED_MARK, palette.accent)
    return (glyph.char, glyph.style), mark


def dimmed(sibling: Sibling, palette: Palette) -> Sibling:
    """The same, of a trial that a filter leaves aside."""
    (glyph, _), (mark, _) = sibling
    return (glyph, palette.faint), (mark, palette.faint)


@lru_cache(256)
def distinct_width(names: tuple[str, ...], least: int) -> int:
    """The fewest cells, of `least` and more, in which no two different names are cut alike."""
    different = set(names)
    longest = max(map(cell_len, different), default=0)
    for width in range(min(least, longest), longest):
        if len({clip_name(name, width) for name in different}) == len(different):
            return width
    return longest


@dataclass(frozen=True, slots=True)
class SiblingStrip:
    """The siblings that a row has room for."""

    cells: int
    """Cells of the row that all siblings share."""
    each: int
    """Cells per sibling: 2 for glyph and mark, or 1 for both."""

    def window(self, count: int, chosen: int | None) -> tuple[int, int]:
        """The first of `count` siblings that is shown and the one after the last, the chosen one
        among them."""
        room = max(1, self.cells // self.each)
        first = 0 if chosen is None or count <= room else chosen - room // 2
        first = max(0, min(first, count - room))
        return first, min(count, first + room)

    def spans(
        self, siblings: Sequence[Sibling], chosen: int | None, palette: Palette
    ) -> list[Span]:
        """All cells of the strip; `…` at an end beyond which there are more."""
        first, end = self.window(len(siblings), chosen)
        spans: list[Span] = []
        for place in range(first, end):
            glyph, mark = siblings[place]
            beyond = (place == first > 0) or (place == end - 1 < len(siblings) - 1)
            if beyond and place != chosen:
                glyph, mark = ("…", palette.muted), (" ", None)
            if self.each == 1 and mark[0] != " ":
                glyph = mark
            if place == chosen:
                glyph, mark = (glyph[0], palette.selected), (mark[0], palette.selected)
            spans += [glyph, mark] if self.each == 2 else [glyph]
        used = (end - first) * self.each
        return [*spans, (" " * (self.cells - used), None)]

    def at(self, x: int, count: int, chosen: int | None) -> int | None:
        """The sibling in a cell of the strip; None: there is none."""
        first, end = self.window(count, chosen)
        place = first + x // self.each
        return place if first <= place < end else None


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Where the parts of a group's row stand; a part without room has no cells."""

    width: int
    mark: int
    name: int
    siblings: SiblingStrip
    spread: int
    signal: int
    slowest: int
    note: int

    @property
    def siblings_at(self) -> int:
        return FOLD + self.mark + self.name + 1


def row_layout(groups: Sequence[TrialGroup], width: int) -> RowLayout:
    """Room for the parts of these groups' rows, the most important first: names that differ,
    siblings, mean, signal, whole names, who holds it up; then the rest."""
    members = max(len(group.trials) for group in groups)
    names = tuple(visible(group.name) for group in groups)
    labels = max(cell_len(visible(trial.label)) for group in groups for trial in group.listed)
    batches = {(group.step, group.held_out) for group in groups}
    mark = 0
    if len(batches) > 1 or any(group.held_out for group in groups):
        mark = max(len(_mark(group)) for group in groups) + 1
    # Beside the name one cell, and the mean with its gaps.
    room = width - FOLD - mark - 1 - 6
    name = distinct_width(names, _NAME)
    cells = min(members, max(8, (room - name) // (1 if members <= 32 else 2)))
    room -= name + cells
    # An evaluation has no advantages.
    teaches = not all(group.held_out for group in groups)
    signal = _SIGNAL if room >= _SIGNAL and teaches else 0
    room -= signal
    least = _SLOWEST // 2 if room >= _SLOWEST // 2 else 0
    more = max(0, min(room - least, max(labels, *map(cell_len, names)) - name))
    name, room = name + more, room - more
    slowest = min(_SLOWEST, room) if least else 0
    room -= slowest
    spread = _SPREAD if room >= _SPREAD else 0
    room -= spread
    each = 2 if cells == members <= room else 1
    room -= cells * (each - 1)
    more = max(0, min(room, _SLOWEST_MOST - slowest)) if slowest else 0
    slowest, room = slowest + more, room - more
    strip = SiblingStrip(cells * each, each)
    note = room if room >= _NOTE else 0
    return RowLayout(width, mark, name, strip, spread, signal, slowest, note)


def heading_row(layout: RowLayout, palette: Palette) -> Strip:
    """The names of the columns."""
    siblings = layout.siblings.cells
    parts = [
        ("", FOLD + layout.mark),
        ("task", layout.name + 1),
        ("siblings" if siblings >= 8 else "", siblings + 1),
        ("mean", 5),
        ("±", layout.spread),
        ("advantage", layout.signal),
        ("running longest", layout.slowest),
    ]
    text = "".join(f"{clip(word, cells - 1):<{cells}}" for word, cells in parts if cells)
    return row(layout.width, (text, palette.faint))


def row_key(
    group: TrialGroup, layout: RowLayout, chosen: int | None, now: float, palette: Palette
) -> Hashable:
    """What a group's row depends on, but for whether it is open."""
    slowest = group.slowest
    held_up = None
    if slowest is not None:
        wait = slowest.last_command if layout.note else ""
        held_up = (slowest.trial, slowest.turn, int(active_seconds(slowest, now)), wait)
    waits = retry_wait_of(group, now) if slowest is None else ""
    stand = tuple(
        (
            trial.phase,
            trial.hold,
            trial.pending,
            trial.outcome,
            trial.reward,
            trial.advantage,
            trial.excluded,
            trial.relabelled,
        )
        for trial in group.trials
    )
    figures = held_up, waits, stand, group.disposition, group.dimmed
    return group.key, layout, chosen, figures, palette.name


def group_row(
    group: TrialGroup,
    layout: RowLayout,
    palette: Palette,
    now: float,
    *,
    chosen: int | None,
    opened: bool,
) -> Strip:
    """The row; `chosen` is the place of the selected sibling, if it is one of this group's."""
    siblings = [
        dimmed(sibling, palette) if trial.trial in group.dimmed else sibling
        for trial in group.trials
        for sibling in (sibling_of(trial, palette),)
    ]
    spans: list[Span] = [
        (" ▾ " if opened else " ▸ ", palette.muted if chosen is None else palette.accent)
    ]
    if layout.mark:
        of_batch = palette.held_out if group.held_out else palette.muted
        spans.append((f"{_mark(group):<{layout.mark}}", of_batch))
    spans.append(_name(group, layout, palette, chosen, opened))
    spans.append((" ", None))
    spans += layout.siblings.spans(siblings, chosen, palette)
    mean = group.mean
    spans.append((f" {rate(mean)} ", palette.muted if not group.complete else palette.strong))
    if layout.spread:
        spread = None if group.many_tasks else group.spread
        text = "" if spread is None else f"±{number(spread)}"
        spans.append((f"{text:<{layout.spread}}", palette.muted))
    if layout.signal:
        text, style = signal_words(group, palette)
        spans.append((f"{clip(text, layout.signal - 1):<{layout.signal}}", style))
    if layout.slowest:
        parts = _slowest(group, layout.slowest, palette, now)
        spans += _padded(parts, layout.slowest)
    if layout.note:
        spans.append(_note(group, palette))
    return row(layout.width, *spans, base=palette.on_raised if chosen is not None else None)


def _mark(group: TrialGroup) -> str:
    return f"{HELD_OUT_MARK}{group.step}" if group.held_out else str(group.step)


def _name(
    group: TrialGroup, layout: RowLayout, palette: Palette, chosen: int | None, opened: bool
) -> Span:
    """The task; of the chosen group the label of its selected trial, where no tile has it."""
    if chosen is None or opened:
        style = palette.text if chosen is None else palette.strong
        return name_cell(group.name, layout.name), style
    return name_cell(group.trials[chosen].label, layout.name), palette.selected


def name_cell(name: str, width: int) -> str:
    """A name in exactly `width` cells, cut in its middle where it is longer."""
    shown = clip_name(visible(name), width)
    return shown + " " * (width - cell_len(shown))


def signal_words(group: TrialGroup, palette: Palette) -> Span:
    """The group's signal in words: its advantages, or that it has none so far."""
    match group.disposition:
        case "constant":
            return "no signal", palette.attention
        case "short":
            return "too few", palette.attention
    if (ends := group.advantages) is not None:
        low, high = ends
        return f"{low:+.2f} {high:+.2f}", palette.text
    rewards = group.rewards
    if group.held_out or len(rewards) < 2:
        return "", palette.faint
    if all_equal(rewards):
        return ("no signal" if group.complete else "equal so far"), palette.muted
    return "signal", palette.muted


def _slowest(group: TrialGroup, width: int, palette: Palette, now: float) -> list[Span]:
    """The member that holds the group up, for how long it has been at work, and what it does,
    where that has room beside a whole name."""
    trial = group.slowest
    if trial is None:
        if wait := retry_wait_of(group, now):
            return [(wait, palette.attention)]
        queued = sum(trial.live for trial in group.trials)
        return [(f"{queued} queued" if queued else "", palette.faint)]
    glyph = trial_glyph(trial, palette)
    spent = elapsed(active_seconds(trial, now))
    if trial.pending:
        words, style = f"{verb_words(trial.pending)}…", palette.attention
    else:
        words, style = _short(trial), palette.attention if trial.hold.paused else palette.muted
    member = trial.task if group.many_tasks else trial.label.rpartition("/")[2]
    room = width - 3 - len(spent) - 1
    name = clip_name(visible(member), max(8, room))
    if cell_len(name) + 1 + cell_len(words) > room:
        words = ""
    return [
        (f"{glyph.char} ", glyph.style),
        (f"{name} ", palette.text),
        (f"{spent} ", palette.text),
        (words, style),
    ]


def retry_wait_of(group: TrialGroup, now: float) -> str:
    """`retry in 4 s`, while one of its trials is held back; empty otherwise."""
    return next(filter(None, (retry_wait(trial, now) for trial in group.trials)), "")


def _short(trial: TrialView) -> str:
    """`turn 5`: what the glyph doesn't say; else what the trial is doing."""
    return doing(trial) if trial.hold.paused or not trial.turn else f"turn {trial.turn}"


def _note(group: TrialGroup, palette: Palette) -> Span:
    """Why a trial of it was lost; else what the one that holds it up does."""
    lost = next((t for t in reversed(group.trials) if t.infrastructure and t.reason), None)
    if lost is not None:
        return f"! {' '.join(lost.reason.split())}", palette.infrastructure
    slowest = group.slowest
    return (slowest.last_command if slowest is not None else "", palette.muted)


def _padded(spans: list[Span], width: int) -> list[Span]:
    """The spans in exactly `width` cells, with a gap to their right."""
    shown: list[Span] = []
    room = width - 1
    for text, style in spans:
        if part := clip(visible(text), room):
            shown.append((part, style))
            room -= cell_len(part)
    return [*shown, (" " * (room + 1), None)]
