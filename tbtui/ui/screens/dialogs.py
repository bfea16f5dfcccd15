"""The base of every dialog, and the dialogs that ask, warn, help and export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Literal, override

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.style import Style as ContentStyle
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from tbtui.paths import PathError, expanded
from tbtui.ui.drawing.text import visible
from tbtui.ui.textual_seam import BufferedScreen, Choices
from tbtui.view.exports import ENDINGS, MEANINGS, ExportFormat, file_name

HintPart = tuple[str, str]
"""A key with what it does, and the action for a click on that; empty: there is none."""
_GAP = " " * 5


class Dialog[Result](ModalScreen[Result], BufferedScreen[Result]):
    """A dialog. A click beside it dismisses it with None, and so does what makes it pointless."""

    pointless: Callable[[], str] | None = None
    """Why what it asks makes no sense any more, in a line; empty while it does."""

    @override
    def run_went_on(self) -> None:
        if self.pointless is not None and (why := self.pointless()):
            self.dismiss(None)
            self.app.notify(why, timeout=5)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.dismiss(None)


class Hint(Static):
    """The keys of a dialog, each with the dialog's action that a click on it does. Where they
    don't fit in one row, each stays whole."""

    def __init__(self, *parts: HintPart) -> None:
        super().__init__(id="hint")
        self._parts = parts

    def show_parts(self, *parts: HintPart) -> None:
        """Replace the keys shown."""
        self._parts = parts
        self._arrange()

    def on_resize(self) -> None:
        self._arrange()

    def on_mount(self) -> None:
        self._arrange()

    def _arrange(self) -> None:
        # Before there is a width, in one row.
        rows = hint_rows([text for text, _ in self._parts], self.size.width or 1000)
        actions = dict(self._parts)
        gap = Content(_GAP)
        lines = [gap.join(_part(text, actions[text]) for text in each) for each in rows]
        content = Content("\n").join(lines)
        if content != self._hint_content:
            self._hint_content = content
            self.update(content)

    _hint_content = Content("")


def hint_rows(texts: Sequence[str], width: int) -> list[list[str]]:
    """Arrange texts in rows of `width` cells."""
    rows: list[list[str]] = [[]]
    for text in texts:
        if rows[-1] and cell_len(_GAP.join([*rows[-1], text])) > width:
            rows.append([])
        rows[-1].append(text)
    return rows


def _part(text: str, action: str) -> Content:
    clicked = {"@click": f"screen.{action}"}
    style = ContentStyle.from_meta(clicked) if action else ContentStyle.null()
    return Content.styled(text, style)


class ConfirmDialog(Dialog[bool]):
    """Asks before something costly; True means yes. `enter` means no."""

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


Leaving = Literal["stop", "detach", "stay"]
"""What becomes of a run, and of the app, when a person wants to leave."""


class LeaveDialog(Dialog[Leaving]):
    """Asks whether to stop the run, or to leave it running; `enter` means neither. It says how many
    trials run now, and goes when the run has ended: nothing is left to stop."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('stop')", "stop"),
        Binding("d", "answer('detach')", "detach"),
        Binding("n,escape,q", "answer('stay')", "stay"),
        Binding("left,up", "app.focus_previous", "choose", show=False),
        Binding("right,down,tab", "app.focus_next", "choose", show=False),
    ]
    AUTO_FOCUS = "#stay"

    def __init__(
        self,
        running: Callable[[], int],
        ended: Callable[[], bool],
        detachable: Callable[[], bool] = lambda: False,
        instead: Callable[[], str] = str,
    ) -> None:
        """
        Args:
            detachable: whether the run can go on without the app.
            instead: what else a person can do, in a sentence; may be empty.
        """
        super().__init__()
        self._count, self._over = running, ended
        self._detachable, self._instead = detachable, instead
        self._detail = self._consequence()

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static("Stop the run and clean up?", id="question")
            yield Static(Content(self._detail), id="detail")
            yield Button("y  stop and quit", id="stop", variant="warning", compact=True)
            yield Button("d  detach and keep it running", id="detach", compact=True)
            yield Button("n  stay", id="stay", variant="primary", compact=True)

    def on_mount(self) -> None:
        self._show_whether_detachable()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return parameters != ("detach",) or self._detachable()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        match event.button.id:
            case "stop" | "detach" | "stay" as answer:
                self.action_answer(answer)

    def action_answer(self, answer: Leaving) -> None:
        self.dismiss(answer)

    def _consequence(self) -> str:
        return " ".join(filter(None, (_cancelled(self._count()), self._instead())))

    @override
    def run_went_on(self) -> None:
        if self._over():
            self.dismiss(None)
        elif self.is_mounted:
            self._show_whether_detachable()
            if (now := self._consequence()) != self._detail:
                self._detail = now
                self.query_one("#detail", Static).update(Content(now))

    def _show_whether_detachable(self) -> None:
        # A run may begin while the question stands.
        self.query_one("#detach").display = self._detachable()


def _cancelled(running: int) -> str:
    if not running:
        return "No trial is running."
    if running == 1:
        return "1 trial is running: it will be cancelled and its sandbox removed."
    return f"{running} trials are running: they will be cancelled and their sandboxes removed."


class ReasonDialog(Dialog[str | None]):
    """Asks for a reason, which may be empty; None: do nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "go back")]
    AUTO_FOCUS = "#reason"

    def __init__(self, question: str, detail: str, hint: str = "reason (may be empty)") -> None:
        super().__init__()
        self._question, self._detail, self._hint = question, detail, hint

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content(visible(self._question)), id="question")
            yield Static(Content(visible(self._detail)), id="detail")
            yield Input(placeholder=self._hint, id="reason", max_length=200)
            yield Hint(("enter  confirm", "do_it"), ("esc  go back", "give_up"))

    def on_input_submitted(self) -> None:
        self.action_do_it()

    def action_do_it(self) -> None:
        self.dismiss(self.query_one("#reason", Input).value.strip())

    def action_give_up(self) -> None:
        self.dismiss(None)


class PlaceDialog(ReasonDialog):
    """Asks for a place in a recorded run."""

    def __init__(self) -> None:
        super().__init__(
            "Where in the run?",
            "A share of it (50%), a time since its start (1:02:03, or seconds), or the end of a "
            "step (step 12).",
            "50%, 1:02:03, step 12",
        )


_FORMATS: tuple[ExportFormat, ...] = ("html", "cast", "atif", "jsonl")


class ExportDialog(Dialog[tuple[ExportFormat, Path] | None]):
    """Asks for a format and a new file; None: write nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "go back")]
    AUTO_FOCUS = "#formats"

    def __init__(self, trial: str, directory: Path) -> None:
        super().__init__()
        self._trial, self._directory = trial, directory
        self._format: ExportFormat = _FORMATS[0]

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content(visible(f"Export {self._trial}")), id="question")
            yield Choices(
                *(Option(Content(f"{name:<6} {MEANINGS[name]}")) for name in _FORMATS),
                id="formats",
                compact=True,
            )
            yield Input(str(self._offered(self._format)), id="path", compact=True)
            yield Static("", id="problem")
            keys = (
                ("enter  write", "write"),
                ("tab  other field", "focus_next"),
                ("esc  go back", "give_up"),
            )
            yield Hint(*keys)

    def _offered(self, format: ExportFormat) -> Path:
        return self._directory / file_name(self._trial, format)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        before, self._format = self._format, _FORMATS[event.option_index]
        field = self.query_one("#path", Input)
        # A path that was typed keeps its name.
        if field.value.endswith(ENDINGS[before]):
            field.value = field.value.removesuffix(ENDINGS[before]) + ENDINGS[self._format]

    def on_option_list_option_selected(self) -> None:
        self.action_write()

    def on_input_submitted(self) -> None:
        self.action_write()

    def action_focus_next(self) -> None:
        self.focus_next()

    def action_write(self) -> None:
        given = self.query_one("#path", Input).value.strip()
        try:
            path = expanded(given or self._offered(self._format))
            if path.is_dir():
                path = expanded(path / file_name(self._trial, self._format))
        except PathError as error:
            self._refuse(str(error))
            return
        if path.exists():
            self._refuse(f"{path.name} exists already; choose another name")
            return
        self.dismiss((self._format, path))

    def _refuse(self, reason: str) -> None:
        self.query_one("#problem", Static).update(Content(visible(reason)))
        self.set_focus(self.query_one("#path", Input))

    def action_give_up(self) -> None:
        self.dismiss(None)
