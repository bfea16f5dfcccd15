"""The commands that people and scripts gave in this run, and their results."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import ClassVar

from textual.app import ComposeResult
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import clip, clip_name, wrap
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.key_bar import KeyBar
from tbtui.ui.panes.pane import Frame, GrowingPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.textual_seam import Rows
from tbtui.ui.theme.palette import Palette
from tbtui.view.state import CommandView
from tbtui.view.waiting import verb_words

_WHEN, _WHO, _WHAT = 10, 10, 10
"""Columns, the gap after each included."""
_ON_A_TRIAL = ("pause", "freeze", "stop", "cancel", "retry", "exclude")
"""Ids of keys."""


class CommandPane(GrowingPane):
    """The commands, newest last; a long reason or result goes on below."""

    def count(self, frame: Frame) -> int:
        return frame.state.commands_listed

    def title(self, frame: Frame) -> str:
        commands = frame.state.commands
        refused = sum(1 for each in commands if each.ok is False)
        if not commands:
            return "history of commands"
        return f"history of commands {len(commands)}" + (f" · {refused} refused" if refused else "")

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        newest = state.commands[-1].command if state.commands else ""
        return newest, state.commands_listed, frozenset(state.pending)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, state = frame.palette, frame.state
        self._header = int(bool(state.commands))
        if not state.commands:
            verbs = " ".join(frame.keys.name_of(id) for id in _ON_A_TRIAL)
            hint = f" {verbs} steer a trial, {frame.keys.name_of('pause-run')} pauses the run"
            return [
                row(width, (" no commands yet", palette.muted)),
                row(width, (hint, palette.faint)),
            ]
        target = min(30, max(len(each.label) for each in state.commands) + 2)
        heads = [("when", _WHEN), ("who", _WHO), ("command", _WHAT), ("target", target)]
        rows = [
            row(
                width,
                ("   ", None),
                *((f"{name:<{cells}}", palette.faint) for name, cells in heads),
                ("result and reason", palette.faint),
            )
        ]
        for each in state.commands:
            self.newest_row = len(rows)
            rows.extend(_rows(each, palette, width, target))
        return rows


def _rows(each: CommandView, palette: Palette, width: int, target: int) -> list[Strip]:
    mark, style, came = {
        None: ("…", palette.attention, "under way"),
        True: ("✓", palette.good, each.result or "done"),
        False: ("✗", palette.bad, each.result or "refused"),
    }[each.ok]
    stamp = time.strftime("%H:%M:%S", time.localtime(each.time))
    lead: list[Span] = [
        (f" {mark} ", style),
        (f"{stamp:<{_WHEN}}", palette.faint),
        (f"{clip(each.actor, _WHO - 1):<{_WHO}}", palette.text),
        (f"{verb_words(each.verb):<{_WHAT}}", palette.accent),
        (f"{clip_name(each.label, target - 1):<{target}}", palette.text),
    ]
    used = 3 + _WHEN + _WHO + _WHAT + target
    room = max(20, width - used - 1)
    rows: list[Strip] = []
    texts = [(came, palette.bad if each.ok is False else palette.muted)]
    if each.reason:
        texts.append((f"reason: {each.reason}", palette.text))
    for text, text_style in texts:
        for part in list(wrap(text, room))[:6]:
            rows.append(row(width, *lead, (part, text_style)))
            lead = [(" " * used, None)]
    return rows


class CommandScreen(LiveScreen):
    SCOPES: ClassVar[tuple[Scope, ...]] = ("commands", "everywhere")
    BINDINGS = bindings("commands")
    AUTO_FOCUS = "#given"
    OVERVIEW = ("given",)
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {"list": ("given",)}

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Rows(id="list"):
            yield CommandPane("given")
        yield KeyBar("keys", *self.SCOPES)

    def action_back(self) -> None:
        self.dismiss()
