"""Panes of words and numbers: the queue, where the time went, the notes."""

from __future__ import annotations

import time
from collections.abc import Hashable

from textual.strip import Strip

from tbtui.ui.charts import bar
from tbtui.ui.draw import Span, row, split_row
from tbtui.ui.pane import Frame, Pane
from tbtui.ui.text import number, visible_lines, wrap
from tbtui.view.current import time_shares


class QueuePane(Pane):
    """The policy's queue, the workers, and what the processes use."""

    def title(self, frame: Frame) -> str:
        return "queue"

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        return state.policy_now, state.processes, len(state.workers), state.engine_lag_ms

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        state, palette = frame.state, frame.palette
        now = state.policy_now
        rows: list[Strip] = []

        def pair(name: str, *value: Span) -> None:
            rows.append(split_row(width, [(f" {name}", palette.muted)], [*value, (" ", None)]))

        if now is None and not state.processes:
            return [row(width, (" when the policy is loaded", palette.faint))]
        if now is not None:
            pair("policy", (now.activity, palette.accent if now.in_flight else palette.muted))
            pair("in flight", (f"{now.in_flight}", palette.text))
            if now.p50_sec is not None and now.p95_sec is not None:
                pair(
                    "p50 · p95",
                    (number(now.p50_sec), palette.text),
                    (" · ", palette.faint),
                    (number(now.p95_sec), palette.text),
                    (" s", palette.muted),
                )
            if now.tokens_per_sec is not None:
                pair("tokens", (f"{now.tokens_per_sec:,.0f}", palette.text), ("/s", palette.muted))
            pair("completions", (f"{now.completed:,}", palette.text))
        if state.workers:
            pair("workers", (f"{len(state.workers)}", palette.text))
        if state.processes:
            rows.append(
                split_row(width, [(" process", palette.faint)], [("MB  cores ", palette.faint)])
            )
            rows.extend(
                split_row(
                    width,
                    [(f" {process.role}", palette.muted)],
                    [
                        (f"{process.rss_mb:6,.0f}", palette.text),
                        (f"  {process.cpu:5.2f} ", palette.text),
                    ],
                )
                for process in state.processes
            )
            rows.append(
                split_row(
                    width,
                    [(" engine lag, worst", palette.muted)],
                    [(f"{state.engine_lag_ms:.0f} ms ", palette.text)],
                )
            )
        return rows


class TimesPane(Pane):
    """Where the wall time of recent trials went."""

    def title(self, frame: Frame) -> str:
        return "where trials' time went"

    def key(self, frame: Frame) -> Hashable:
        return frame.state.trials_finished

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        shares = time_shares(frame.state.trials.values())
        if not shares:
            return [row(width, (" after the first trials", palette.faint))]
        longest = max(share.share for share in shares)
        room = max(1, width - 17)
        return [
            row(
                width,
                (f" {share.name:<9}", palette.muted),
                (
                    bar(share.share / longest, room),
                    palette.accent if share.share == longest else palette.muted,
                ),
                (f" {share.share:.0%}", palette.text),
            )
            for share in shares
        ]


_NOTE_GLYPHS = {"info": "·", "warning": "▲", "error": "✗"}


class NotesPane(Pane):
    """What a person should know; newest first."""

    def title(self, frame: Frame) -> str:
        warnings = sum(1 for note in frame.state.notes if note.level != "info")
        return f"notes ▲{warnings}" if warnings else "notes"

    def key(self, frame: Frame) -> Hashable:
        notes = frame.state.notes
        return (len(notes), notes[-1].time) if notes else 0

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette = frame.palette
        if not frame.state.notes:
            return [row(width, (" nothing needs you", palette.faint))]
        rows: list[Strip] = []
        for note in reversed(frame.state.notes):
            style = {
                "info": palette.muted,
                "warning": palette.attention,
                "error": palette.bad,
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
        return rows
