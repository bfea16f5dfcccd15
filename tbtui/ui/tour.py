"""The five lines that newcomers are shown once."""

from __future__ import annotations

from tbtui.ui.keymap import KeyTable


def tour_lines(table: KeyTable, *, replayed: bool) -> tuple[str, ...]:
    """Five lines of at most 56 cells, with the keys in force; `replayed`: of a recorded run."""
    shown = {key.id: key.shown for key in table.keys}
    act = (
        f"{shown['play']} plays it, {shown['replay-turn']} goes on by a turn"
        if replayed
        else f"{shown['pause']} pauses a trial, {shown['stop']} ends and verifies it"
    )
    return (
        f"Arrows choose a trial, {shown['open']} opens it, {shown['back']} leads back",
        act,
        f"{shown['pane-1']} to {shown['pane-6']} show one pane in full, {shown['all-panes']} all",
        f"{shown['palette']} finds any command, {shown['help']} lists keys and signs",
        f"{shown['quit']} leaves; {shown['tour']} shows these lines again",
    )
