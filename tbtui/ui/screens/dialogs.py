"""The dialogs: leaving a live run, and help."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from tbtui.ui.glyphs import LEGEND
from tbtui.ui.keys import KEYS, SCOPE_TITLES


class LeaveDialog(ModalScreen[bool]):
    """Asks whether to stop the run; True means yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "stop and leave"),
        Binding("n,escape,q", "answer(False)", "stay"),
        Binding("left,right,tab", "app.focus_next", "choose", show=False),
    ]
    AUTO_FOCUS = "#stay"

    def __init__(self, running: int) -> None:
        super().__init__()
        self._trials = running

    def compose(self) -> ComposeResult:
        trials = (
            "No trial is running."
            if not self._trials
            else "1 trial is running: it will be cancelled and its sandbox removed."
            if self._trials == 1
            else f"{self._trials} trials are running: they will be cancelled and their "
            f"sandboxes removed."
        )
        with Vertical(id="dialog"):
            yield Static(Content("Stop the run and clean up?"), id="question")
            yield Static(Content(trials), id="detail")
            yield Button("y  stop and leave", id="leave", variant="warning", compact=True)
            yield Button("n  stay", id="stay", variant="primary", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "leave")

    def action_answer(self, leave: bool) -> None:
        self.dismiss(leave)


class HelpDialog(ModalScreen[None]):
    """Every key and glyph."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,q,enter", "close", "close")
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="dialog"):
            yield Static(help_text())

    def action_close(self) -> None:
        self.dismiss(None)


def help_text() -> Content:
    """The table of keys by scope, and the legend."""
    parts: list[Content] = []
    for scope, heading in SCOPE_TITLES.items():
        parts.append(Content.styled(f"{heading}\n", "bold $accent"))
        for key in KEYS:
            if key.scope == scope:
                parts.append(Content.styled(f"  {key.shown:>6}  ", "bold"))
                parts.append(Content(f"{key.help}\n"))
        parts.append(Content("\n"))
    parts.append(Content.styled("what the glyphs mean\n", "bold $accent"))
    for glyph, meaning in LEGEND:
        parts.append(Content.styled(f"  {glyph:>6}  ", "bold"))
        parts.append(Content(f"{meaning}\n"))
    return Content("").join(parts)
