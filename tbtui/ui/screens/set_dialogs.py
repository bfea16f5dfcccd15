"""Named sets: what to call one, and which of them to take or to delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tbtui.ui.library import SavedSet
from tbtui.ui.screens.dialog import Choices, Dialog, hint
from tbtui.ui.text import visible


class SetNameDialog(Dialog[str | None]):
    """What the selection is to be called; None: leave it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "leave it")]
    AUTO_FOCUS = "#name"

    def __init__(self, tasks: int, name: str) -> None:
        super().__init__()
        self._tasks, self._name_before = tasks, name

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content(f"Save the selected {self._tasks} tasks as a set"), id="question")
            yield Input(
                self._name_before,
                placeholder="name: letters, digits, . _ -",
                id="name",
                restrict=r"[A-Za-z0-9._-]*",
                max_length=64,
                compact=True,
            )
            save = ("enter  save it, in place of one of that name", "save")
            yield Static(hint(save, ("esc  leave it", "give_up")), id="hint")

    def on_input_submitted(self) -> None:
        self.action_save()

    def action_save(self) -> None:
        self.dismiss(self.query_one("#name", Input).value or None)

    def action_give_up(self) -> None:
        self.dismiss(None)


class LoadSetDialog(Dialog[tuple[Literal["load", "delete"], SavedSet] | None]):
    """The saved sets; deleting asks for the same key once more."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,o", "give_up", "leave it"),
        Binding("x,delete", "delete", "delete"),
    ]
    AUTO_FOCUS = "#sets"

    def __init__(self, sets: Sequence[SavedSet]) -> None:
        super().__init__()
        self._sets = list(sets)
        self._doomed: int | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(Content("Saved sets"), id="question")
            yield Choices(*(Option(_line(each)) for each in self._sets), id="sets", compact=True)
            yield Static(_HINT, id="hint")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(("load", self._sets[event.option_index]))

    def on_option_list_option_highlighted(self) -> None:
        self._doomed = None
        self.query_one("#hint", Static).update(_HINT)

    def action_load(self) -> None:
        self.query_one(OptionList).action_select()

    def action_delete(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is None:
            return
        if self._doomed == at:
            self.dismiss(("delete", self._sets[at]))
            return
        self._doomed = at
        delete = (f"x  delete @{visible(self._sets[at].name)} for good", "delete")
        self.query_one("#hint", Static).update(hint(delete, _LEAVE))

    def action_give_up(self) -> None:
        self.dismiss(None)


_LEAVE = ("esc  leave it", "give_up")
_HINT = hint(("enter  select its tasks", "load"), ("x  delete it", "delete"), _LEAVE)


def _line(saved: SavedSet) -> Content:
    here = "" if len(saved.ids) == saved.tasks else f", {len(saved.ids)} of them here"
    tasks = "1 task" if saved.tasks == 1 else f"{saved.tasks} tasks"
    return Content(visible(f"@{saved.name}  {tasks}{here}"))
