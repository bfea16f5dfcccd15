"""The five lines that newcomers are shown once."""

from __future__ import annotations

from tbtui.ui.abilities import Abilities
from tbtui.ui.keymap import KeyTable


def tour_lines(table: KeyTable, abilities: Abilities) -> tuple[str, ...]:
    """Five lines of at most 56 cells, with the keys in force, on what can be done with the run."""
    shown = {key.id: key.shown for key in table.keys}
    return (
        f"Arrows choose a trial, {shown['open']} opens it, {shown['back']} leads back",
        _acting(shown, abilities),
        f"{shown['pane-1']} to {shown['pane-6']} show one pane in full, {shown['all-panes']} all",
        f"{shown['palette']} finds any command, {shown['help']} lists keys and signs",
        f"{shown['quit']} leaves; {shown['tour']} shows these lines again",
    )


def _acting(shown: dict[str, str], abilities: Abilities) -> str:
    if not abilities.refusal("clock"):
        return f"{shown['play']} plays it, {shown['replay-turn']} goes on by a turn"
    if abilities.refusal("steer"):
        return f"{shown['follow']} follows what happens, {shown['group']} compares a group's trials"
    if abilities.reviewed:
        return f"{shown['pause']} pauses a trial, {shown['review']} reviews a step before training"
    return f"{shown['pause']} pauses a trial, {shown['stop']} ends and verifies it"
