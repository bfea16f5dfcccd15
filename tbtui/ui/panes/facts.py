"""Panes of words and numbers: where the time went, the notes."""

from __future__ import annotations

import time
from collections.abc import Hashable

from textual.strip import Strip

from tbtui.ui.drawing.charts import bar
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import Name, visible_lines, wrap
from tbtui.ui.panes.bars import with_key
from tbtui.ui.panes.pane import MOMENT, Frame, GrowingPane, Pane
from tbtui.ui.theme.glyphs import ALARM_MARK
from tbtui.view.estimate import remaining_sec, time_left
from tbtui.view.needs import needs
from tbtui.view.state import SPENDINGS, Spending
from tbtui.view.times import StepWait, step_wait, time_shares


class TimesPane(Pane):
    """What the step waits for, and where the wall time of recent trials went."""

    EVERY = MOMENT

    def title(self, frame: Frame) -> str:
        wait = step_wait(frame.outlook)
        if wait is None:
            return "where trials' time went"
        return f"what step {wait.step} {'waits' if wait.live else 'waited'} for"

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        return state.trials_finished, state.phase, state.step, int(frame.now)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, state = frame.palette, frame.state
        wait = step_wait(frame.outlook)
        trials = time_shares(state.trials.values())
        waited = wait.shares if wait is not None else {}
        if not trials and not waited:
            return [row(width, (" after the first trials", palette.faint))]
        rows: list[Strip] = []
        if waited:
            heads: list[Span] = [("step", palette.faint), (" trials ", palette.faint)]
            rows.append(split_row(width, self._held_up_by(frame, wait), heads))
        shares = waited or trials
        names = [name for name in SPENDINGS if max(shares.get(name, 0), trials.get(name, 0)) > 0]
        names = _largest(names, shares, height - len(rows))
        room = max(1, width - (24 if waited else 17))
        longest = max(shares.values())
        for name in names:
            share = shares.get(name, 0.0)
            bar_spans: list[Span] = [
                (f" {name:<9} ", palette.muted),
                (bar(share / longest, room), palette.spending[name]),
            ]
            numbers: list[Span] = [(f"{share:.0%}", palette.text)]
            if waited:
                numbers.append((f"{trials.get(name, 0):>6.0%} ", palette.muted))
            rows.append(split_row(width, bar_spans, [*numbers, (" ", None)]))
        return rows

    def _held_up_by(self, frame: Frame, wait: StepWait | None) -> list[Span]:
        palette = frame.palette
        if wait is None or not wait.live:
            return []
        spans: list[Span] = []
        for trial in frame.outlook.holding_up[:2]:
            remaining = remaining_sec(trial, frame.state, frame.now)
            spans += [(" ", None), (Name(trial.label), palette.text)]
            if remaining is not None:
                spans.append((f" {time_left(remaining)}", palette.muted))
        return spans


def _largest(names: list[Spending], shares: dict[Spending, float], most: int) -> list[Spending]:
    """As many names as there is room for, in their own order."""
    kept = sorted(names, key=lambda name: -shares.get(name, 0.0))[: max(1, most)]
    return [name for name in names if name in kept]


_NOTE_GLYPHS = {"info": "·", "warning": "▲", "error": "✗", "alarm": ALARM_MARK}


class NotesPane(GrowingPane):
    """What a person should know, alarms among it; newest last, and what holds now after it."""

    EVERY = MOMENT

    def count(self, frame: Frame) -> int:
        return frame.state.notes_made

    def title(self, frame: Frame) -> str:
        state = frame.state
        warnings = sum(1 for note in state.notes if note.level in ("warning", "error"))
        title = f"alarms {ALARM_MARK}{state.alarms_raised} · notes" if state.alarms else "notes"
        return f"{title} ▲{warnings}" if warnings else title

    def key(self, frame: Frame) -> Hashable:
        return frame.state.notes_made, needs(frame.outlook)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, standing = frame.palette, needs(frame.outlook)
        if not frame.state.notes and not standing:
            return [row(width, (" no alerts", palette.faint))]
        rows: list[Strip] = []
        for note in frame.state.notes:
            self.newest_row = len(rows)
            style = {
                "info": palette.muted,
                "warning": palette.attention,
                "error": palette.bad,
                "alarm": palette.bad,
            }[note.level]
            stamp = time.strftime("%H:%M:%S", time.localtime(note.time))
            lead: list[Span] = [
                (f" {_NOTE_GLYPHS[note.level]} ", style),
                (f"{stamp} ", palette.faint),
            ]
            for line in visible_lines(note.text)[:20]:
                for part in list(wrap(line, width - 13))[:20] or [""]:
                    rows.append(row(width, *lead, (part, palette.text)))
                    lead = [(" " * 12, None)]
        for need in standing:
            # What holds now comes after what has been.
            style = palette.muted if need.kind == "over" else palette.attention
            glyph = "·" if need.kind == "over" else "▲"
            for part in wrap(f"{need.text}{with_key(need, frame)}", width - 4):
                rows.append(row(width, (f" {glyph} ", style), (part, style)))
                glyph = " "
        return rows
