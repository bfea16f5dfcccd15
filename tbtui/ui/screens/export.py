"""In which form, and where to, a trial is to be written."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tbtui.paths import PathError, expanded
from tbtui.ui.drawing.text import visible
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.ui.textual_seam import Choices
from tbtui.view.exports import ENDINGS, MEANINGS, ExportFormat, file_name

_FORMATS: tuple[ExportFormat, ...] = ("html", "cast", "atif", "jsonl")


class ExportDialog(Dialog[tuple[ExportFormat, Path] | None]):
    """Asks for form and file; None: nothing is written. An existing file is never offered."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "leave it")]
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
                ("enter  write it", "write"),
                ("tab  the other field", "focus_next"),
                ("esc  leave it", "give_up"),
            )
            yield Hint(*keys)

    def _offered(self, format: ExportFormat) -> Path:
        return self._directory / file_name(self._trial, format)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        before, self._format = self._format, _FORMATS[event.option_index]
        field = self.query_one("#path", Input)
        # A path of somebody's own keeps its name.
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
            self._refuse(f"{path.name} is there already; choose another name")
            return
        self.dismiss((self._format, path))

    def _refuse(self, reason: str) -> None:
        self.query_one("#problem", Static).update(Content(visible(reason)))
        self.query_one("#path", Input).focus()

    def action_give_up(self) -> None:
        self.dismiss(None)
