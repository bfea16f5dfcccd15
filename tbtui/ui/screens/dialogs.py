"""The dialogs: questions that cost something, reasons, help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from tbtui.ui.glyphs import LEGEND
from tbtui.ui.keymap import KeyTable
from tbtui.ui.keys import SCOPE_TITLES
from tbtui.ui.text import visible, wrap

_HELP_WIDTH = 54
"""Cells of an explanation: what a dialog has in 80 columns."""


class ConfirmDialog(ModalScreen[bool]):
    """A question that costs something; True means yes. The way back is what `enter` does."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
        Binding("left,right,up,down,tab", "app.focus_next", "choose", show=False),
    ]
    AUTO_FOCUS = "#no"

    def __init__(self, question: str, detail: str, yes: str, no: str) -> None:
        super().__init__()
        self._question, self._detail, self._yes, self._no = question, detail, yes, no

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content(visible(self._question)), id="question")
            yield Static(Content(visible(self._detail)), id="detail")
            yield Button(f"y  {self._yes}", id="yes", variant="warning", compact=True)
            yield Button(f"n  {self._no}", id="no", variant="primary", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class LeaveDialog(ConfirmDialog):
    """Asks whether to stop the run; True means yes."""

    def __init__(self, running: int) -> None:
        super().__init__(
            "Stop the run and clean up?",
            "No trial is running."
            if not running
            else "1 trial is running: it will be cancelled and its sandbox removed."
            if running == 1
            else f"{running} trials are running: they will be cancelled and their "
            f"sandboxes removed.",
            "stop and leave",
            "stay",
        )


class ReasonDialog(ModalScreen[str | None]):
    """Asks why; the reason may be empty. None means that nothing is to be done."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "leave it alone")]
    AUTO_FOCUS = "#reason"

    def __init__(self, question: str, detail: str, hint: str = "why? (may be empty)") -> None:
        super().__init__()
        self._question, self._detail, self._hint = question, detail, hint

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content(visible(self._question)), id="question")
            yield Static(Content(visible(self._detail)), id="detail")
            yield Input(placeholder=self._hint, id="reason", max_length=200)
            yield Static(Content("enter  do it     esc  leave it alone"), id="hint")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_give_up(self) -> None:
        self.dismiss(None)


class PlaceDialog(ReasonDialog):
    """Asks for a place in a recorded run."""

    def __init__(self) -> None:
        super().__init__(
            "Go to which place of the run?",
            "A share of it (50%), a time since its start (1:02:03, or seconds), or the end of a "
            "step (step 12).",
            "50%, 1:02:03, step 12",
        )


class HelpDialog(ModalScreen[None]):
    """Every key and glyph."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,f1,q,enter", "close", "close")
    ]

    def __init__(self, keys: KeyTable) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="dialog"):
            yield Static(help_text(self._keys))

    def action_close(self) -> None:
        self.dismiss(None)


def help_text(keys: KeyTable) -> Content:
    """The table of keys by scope, and the legend."""
    parts: list[Content] = []
    for scope, heading in SCOPE_TITLES.items():
        parts.append(Content.styled(f"{heading}\n", "bold $accent"))
        for key in keys.in_scope(scope):
            parts.extend(_entry(key.shown, key.help))
        parts.append(Content("\n"))
    parts.append(Content.styled("what the glyphs mean\n", "bold $accent"))
    for glyph, meaning in LEGEND:
        parts.extend(_entry(glyph, meaning))
    return Content("").join(parts)


def _entry(head: str, text: str) -> Iterator[Content]:
    """What a key or glyph means; further lines begin below the first."""
    for line in wrap(text, _HELP_WIDTH):
        yield Content.styled(f"  {head:>6}  ", "bold")
        yield Content(f"{line}\n")
        head = ""
