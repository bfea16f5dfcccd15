"""Shows states as glyph, word and colour: never colour alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.style import Style

from tbtui.server_status import ServerStatus
from tbtui.ui.theme.palette import Palette
from tbtui.view.state import Spending, TrialView
from tbtui.vocabulary import TrialPhase

if TYPE_CHECKING:
    from tbtui.journal.timeline import MarkKind

HELD_OUT_MARK = "◇"
UNUSABLE_MARK = "∅"
LEFT_OUT_MARK = "⊘"
ALARM_MARK = "⚑"
TYPIST_MARK = "✎"
SETUP_MARK = "◌"
VERIFYING_MARK = "▞"
SUSPECT_MARK = "?"
RELABELLED_MARK = "*"

SPENDING_MARKS: dict[Spending, str] = {
    "queue": "·",
    "build": "▒",
    "setup": "░",
    "sampling": "█",
    "commands": "▓",
    "delayed": "┄",
    "paused": "‖",
    "verifying": VERIFYING_MARK,
    "teardown": "▁",
}
"""What fills a bar of a trial's time; distinct without colour too."""

LEGEND: tuple[tuple[str, str], ...] = (
    ("·", "queued"),
    (SETUP_MARK, "setting up"),
    ("…", "waiting for the model"),
    ("▶", "acting"),
    ("‖", "paused at the end of a turn; faint: queued, and pauses at its first turn"),
    (TYPIST_MARK, "a person types, or has typed, in its terminal"),
    ("❄", "frozen within a turn, its processes stopped"),
    (VERIFYING_MARK, "being verified"),
    ("✓", "solved"),
    ("◐", "solved in part"),
    ("✗", "failed"),
    ("!", "infrastructure failed: no reward, never counted as a failed trial"),
    ("–", "cancelled"),
    (LEFT_OUT_MARK, "not trained on: excluded by a person, or masked by its outcome"),
    (f"✗{SUSPECT_MARK}", "under review: a suspect reward"),
    (f"✓{RELABELLED_MARK}", "relabelled: a person overrode the verifier's reward"),
    (HELD_OUT_MARK, "held out: never trained on"),
    (UNUSABLE_MARK, "can't be used in this environment"),
    (ALARM_MARK, "an alarm: training looks wrong; the notes say why"),
)

CLOCK_MARKS: dict[MarkKind, str] = {
    "step": "┼",
    "evaluation": HELD_OUT_MARK,
    "failure": "✗",
    "broken": "!",
    "command": "▲",
}
"""On the clock of a replayed run; distinct without colour too."""

CLOCK_LEGEND: tuple[tuple[str, str], ...] = (
    (CLOCK_MARKS["step"], "the end of a step; of many steps every second, fifth, tenth, ..."),
    (CLOCK_MARKS["evaluation"], "the end of an evaluation"),
    (CLOCK_MARKS["failure"], "a failed trial, where they are few"),
    (CLOCK_MARKS["broken"], "a trial that infrastructure broke"),
    (CLOCK_MARKS["command"], "a command that a person or a script gave"),
)

_PHASE_GLYPHS = {
    TrialPhase.QUEUED: "·",
    TrialPhase.SETUP: SETUP_MARK,
    TrialPhase.MODEL: "…",
    TrialPhase.ACTING: "▶",
    TrialPhase.PAUSED: "‖",
    TrialPhase.VERIFYING: VERIFYING_MARK,
    TrialPhase.TEARDOWN: SETUP_MARK,
    TrialPhase.FINISHED: "·",
}


@dataclass(frozen=True, slots=True)
class Glyph:
    char: str
    style: Style


def trial_glyph(trial: TrialView, palette: Palette) -> Glyph:
    """The one character that says how a trial stands."""
    if trial.outcome is not None:
        if trial.outcome == "cancelled":
            return Glyph("–", palette.muted)
        if trial.outcome == "human_touched":
            return Glyph(TYPIST_MARK, palette.muted)
        if trial.infrastructure:
            return Glyph("!", palette.infrastructure)
        if trial.reward is None:
            return Glyph(LEFT_OUT_MARK, palette.muted)
        char = "✓" if trial.reward >= 1 else "✗" if trial.reward <= 0 else "◐"
        return Glyph(char, palette.reward(trial.reward))
    if trial.hold.typist:
        return Glyph(TYPIST_MARK, palette.attention)
    if trial.hold.frozen:
        return Glyph("❄", palette.frozen)
    if trial.hold.paused:
        return Glyph("‖", palette.attention)
    if trial.armed:
        return Glyph("‖", palette.faint)
    char = _PHASE_GLYPHS[trial.phase]
    match trial.phase:
        case TrialPhase.QUEUED:
            return Glyph(char, palette.faint)
        case TrialPhase.ACTING:
            return Glyph(char, palette.accent)
        case _:
            return Glyph(char, palette.muted)


def server_glyph(server: ServerStatus, palette: Palette) -> Glyph:
    """The one character that says how the policy's server stands."""
    if server.state == "active":
        return Glyph("●", palette.good)
    if server.state in ("unreachable", "failing"):
        return Glyph("!", palette.infrastructure)
    return Glyph("‖", palette.attention) if server.held_up else Glyph("○", palette.muted)
