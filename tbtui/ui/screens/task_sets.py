"""Named sets of tasks: saves, loads and deletes them, and starts a run from one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Literal, Protocol

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tbtui.errors import UserError
from tbtui.ui.context import app_of
from tbtui.ui.drawing.text import visible
from tbtui.ui.library import SavedSet, Start, TaskLibrary
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.ui.task_choice import TaskChoice
from tbtui.ui.textual_seam import Choices


class SetNameDialog(Dialog[str | None]):
    """Asks for a set's name; None: save nothing."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "go back")]
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
            save = ("enter  save it; replaces a set of that name", "save")
            yield Hint(save, ("esc  go back", "give_up"))

    def on_input_submitted(self) -> None:
        self.action_save()

    def action_save(self) -> None:
        self.dismiss(self.query_one("#name", Input).value or None)

    def action_give_up(self) -> None:
        self.dismiss(None)


class LoadSetDialog(Dialog[tuple[Literal["load", "delete"], SavedSet] | None]):
    """Lists the saved sets; deleting one takes the same key twice."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,o", "give_up", "go back"),
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
            yield Hint(*_HINT)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(("load", self._sets[event.option_index]))

    def on_option_list_option_highlighted(self) -> None:
        self._doomed = None
        self.query_one(Hint).show_parts(*_HINT)

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
        delete = (f"x  again deletes @{visible(self._sets[at].name)}", "delete")
        self.query_one(Hint).show_parts(delete, _LEAVE)

    def action_give_up(self) -> None:
        self.dismiss(None)


_LEAVE = ("esc  go back", "give_up")
_HINT = (("enter  select its tasks", "load"), ("x  delete", "delete"), _LEAVE)


def _line(saved: SavedSet) -> Content:
    here = "" if len(saved.ids) == saved.tasks else f", {len(saved.ids)} of them here"
    tasks = "1 task" if saved.tasks == 1 else f"{saved.tasks} tasks"
    return Content(visible(f"@{saved.name}  {tasks}{here}"))


RUN_SET = "last-run"
"""The set that a run is started from when the selection has no name of its own."""


class SetBrowser(Protocol):
    """The screen whose selection becomes a set, and comes from one."""

    @property
    def choice(self) -> TaskChoice: ...

    @property
    def app(self) -> App[Any]: ...

    async def ask[T](self, what: Callable[[], T]) -> T:
        """Read from the library, on a thread."""
        ...

    def say(self) -> None:
        """Show the selection."""
        ...

    def selection_changed(self, name: str = "") -> None:
        """Handle a change of the selection, to the set `name` if it is one."""
        ...

    def notify(
        self,
        message: str,
        *,
        severity: Literal["information", "warning", "error"] = "information",
        markup: bool = True,
    ) -> None: ...

    def run_worker(self, work: Coroutine[Any, Any, Any], *, group: str = "default") -> Any: ...


class TaskSets:
    """Saves, loads, deletes and starts sets; every wait is a worker of the browser's."""

    def __init__(
        self, browser: SetBrowser, library: TaskLibrary, start: Callable[[Start], None]
    ) -> None:
        self._browser = browser
        self._library = library
        self._start = start
        self.name = ""
        """The saved set that the selection is, if it is one."""

    def ask_name(self) -> None:
        selected = len(self._browser.choice.selected)
        if not selected:
            self._notify(f"Select some tasks first: {self._how_to_select}.")
            return
        self._browser.app.push_screen(SetNameDialog(selected, self.name), self._name_given)

    def _name_given(self, name: str | None) -> None:
        if name:
            self._browser.run_worker(self._save(name), group="sets")

    async def _save(self, name: str) -> bool:
        chosen = self._browser.choice.chosen()
        try:
            await self._browser.ask(lambda: self._library.save_set(name, chosen))
        except UserError as error:
            self._notify(str(error), severity="error")
            return False
        self.name = name
        self._browser.say()
        self._notify(f"Saved: tasks=@{name} stands for these {len(chosen)}.")
        return True

    def offer(self) -> None:
        self._browser.run_worker(self._offer(), group="sets")

    async def _offer(self) -> None:
        try:
            sets = await self._browser.ask(self._library.sets)
        except UserError as error:
            self._notify(str(error), severity="error")
            return
        if not sets:
            saves = self._key("library-save")
            self._notify(f"No sets yet: {saves} saves the selection as one.")
            return
        self._browser.app.push_screen(LoadSetDialog(sets), self._chosen)

    def _chosen(self, chosen: tuple[Literal["load", "delete"], SavedSet] | None) -> None:
        if chosen is None:
            return
        what, saved = chosen
        if what == "delete":
            self._browser.run_worker(self._delete(saved.name), group="sets")
            return
        self._browser.choice.select(saved.ids)
        self._browser.selection_changed(saved.name)
        if missing := saved.tasks - len(saved.ids):
            self._notify(f"{missing} of the {saved.tasks} tasks of @{saved.name} are not here.")

    async def _delete(self, name: str) -> None:
        try:
            await self._browser.ask(lambda: self._library.delete_set(name))
        except UserError as error:
            self._notify(str(error), severity="error")
            return
        if self.name == name:
            self._browser.selection_changed()
        self._notify(f"@{name} deleted; the selection stays.")

    def start(self) -> None:
        """Start a run that trains on the selection, which is saved before if it has no name."""
        if not self._browser.choice.selected:
            self._notify(f"Select the tasks to train on first: {self._how_to_select}.")
            return
        self._browser.run_worker(self._start_run(), group="sets")

    async def _start_run(self) -> None:
        name = self.name or RUN_SET
        if not self.name and not await self._save(name):
            return
        try:
            start = await self._browser.ask(lambda: self._library.start(name))
        except UserError as error:
            self._notify(str(error), severity="error")
            return
        self._start(start)

    def _key(self, id: str) -> str:
        return app_of(self._browser.app).user.keys.name_of(id)

    @property
    def _how_to_select(self) -> str:
        toggles, all_shown = self._key("library-toggle"), self._key("library-all")
        return f"{toggles}, or {all_shown} for all that are shown"

    def _notify(self, text: str, severity: Literal["information", "error"] = "information") -> None:
        self._browser.notify(visible(text), severity=severity, markup=False)
