"""The task browser: choose what to train on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, Static

from tbtui.errors import UserError
from tbtui.ui.context import ScopedScreen, app_of
from tbtui.ui.drawing.rows import Span
from tbtui.ui.drawing.text import visible
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.library import Preview, Start, TaskLibrary
from tbtui.ui.panes.key_bar import KeyLine, WayBack, WordsLine
from tbtui.ui.panes.library import TABS, LibraryTree, TaskPreview
from tbtui.ui.screens.base import SMALLEST
from tbtui.ui.screens.task_sets import TaskSets
from tbtui.ui.task_choice import TaskChoice, term_value, with_term
from tbtui.ui.textual_seam import Columns, Rows
from tbtui.ui.theme.palette import Palette

_SETTLE_SEC = 0.04
"""A cursor that moves on within this reads no preview."""
_PREVIEWS = 200
"""Kept in memory."""


class TaskBrowser(ScopedScreen):
    """Tree left, preview right; in a small window the preview is below, or in full."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("library-tree", "library", "everywhere")
    BINDINGS = bindings("library")
    AUTO_FOCUS = "#library-tree"

    def __init__(
        self,
        library: TaskLibrary,
        palette: Callable[[], Palette],
        start: Callable[[Start], None],
        *,
        starts: bool = True,
        task: str = "",
    ) -> None:
        """`palette` gives the colours in use; `start` is called with a run that is to start.
        Unless it `starts` one, its command is copied. Begins at `task`, by a name as a run has
        it, if there is such a one."""
        super().__init__()
        self._library = library
        self._palette = palette
        self._starts = starts
        self._first = task
        self.choice = TaskChoice()
        self._sets = TaskSets(self, library, start)
        self._previews: dict[str, Preview] = {}
        self._one_at_a_time = asyncio.Lock()

    def compose(self) -> ComposeResult:
        palette = self._palette()
        with Rows(id="all"):
            yield Static(id="library-title")
            box = Input(
                placeholder=f"{self._name_of('library-search')} and words,"
                " or kind:copy pass:<.5 -is:heldout",
                id="library-search",
                compact=True,
            )
            yield WordsLine("search", box)
            with Columns(id="library-columns"):
                yield LibraryTree("library-tree", self.choice, palette)
                yield TaskPreview("library-preview", palette)
            yield Static(id="library-totals")
            back = WayBack("library-back", "drop")
            yield KeyLine(
                *("keys", palette, "library-tree", "library"),
                also=("help",),
                back=back,
                labels={} if self._starts else {"library-run": "copy command"},
            )
        yield Static(id="too-small")

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._recolour())
        self._tree.empty = "reading the tasks"
        self.say()
        self.run_worker(self._load(), name="library")

    def _name_of(self, key: str) -> str:
        return app_of(self).user.keys.name_of(key)

    @property
    def _tree(self) -> LibraryTree:
        return self.query_one("#library-tree", LibraryTree)

    @property
    def _pane(self) -> TaskPreview:
        return self.query_one("#library-preview", TaskPreview)

    @property
    def _search(self) -> Input:
        return self.query_one("#library-search", Input)

    # Reading: on threads, one call at a time

    async def ask[T](self, what: Callable[[], T]) -> T:
        """Call the library on a thread and return its answer."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(what)

    async def _load(self) -> None:
        try:
            entries = await self.ask(self._library.entries)
        except UserError as error:
            self._tree.empty = visible(str(error))
            self._tree.refresh()
            self._pane.show_note("")
            return
        self.choice.load(entries)
        first = self.choice.unfold_to(self._first)
        self._tree.empty = f"no task matches: {self._name_of('library-back')} clears the search"
        self._changed()
        if first is not None:
            self._tree.go_to(first)
        try:
            self.choice.records = await self.ask(self._library.records)
        except UserError as error:
            self.notify(str(error), title="Past runs can't be read", severity="warning")
            return
        self.choice.search(self.choice.query)
        self._changed()
        try:
            self.choice.unusable = await self.ask(self._library.unusable)
        except UserError as error:
            text = visible(str(error))
            self.notify(text, title="Trials can't run on this machine", severity="warning")
            return
        self._changed()

    @work(group="preview", exclusive=True)
    async def _show_preview(self, id: str) -> None:
        await asyncio.sleep(_SETTLE_SEC)
        try:
            preview = await self.ask(lambda: self._library.preview(id))
        except UserError as error:
            self._pane.show_note(visible(str(error)))
            return
        if len(self._previews) >= _PREVIEWS:
            del self._previews[next(iter(self._previews))]
        self._previews[id] = preview
        self._show_current()

    def _show_current(self) -> None:
        """Show the task under the cursor, and its files once they are read."""
        row = self._tree.current
        if row is None or row.level != "task":
            count = len(row.ids) if row is not None else 0
            opens = f"{self._name_of('library-unfold')} unfolds them"
            self._pane.show_note(f"{count} tasks; {opens}" if count else "")
            return
        (id,) = row.ids
        preview = self._previews.get(id)
        choice = self.choice
        unusable = choice.unusable.get(id, "")
        self._pane.show(choice.entries[id], choice.record(id), preview, unusable)
        if preview is None:
            self._show_preview(id)

    # Showing

    def _changed(self) -> None:
        """Handle a change of rows."""
        self._tree.settle()
        self._show_current()
        self.say()

    def say(self) -> None:
        """Show what is listed and selected, in the head line."""
        palette, choice = self._palette(), self.choice
        shown, total = len(choice.shown), len(choice.entries)
        title: list[Span] = [
            (" tasks ▸ ", palette.accent),
            (visible(self._library.title), palette.strong),
        ]
        if total:
            of = f"{shown} of {total} shown" if shown != total else f"{total} tasks"
            title.append((f" · {of}", palette.text))
        if broken := self._library.defects():
            title.append((f" · {broken} are broken", palette.attention))
        if unusable := len(choice.unusable):
            title.append((f" · {unusable} can't run on this machine", palette.infrastructure))
        if choice.query_error:
            title.append((f" · {visible(choice.query_error)}", palette.bad))
        self._write("#library-title", title)
        totals: list[Span] = [(f" {choice.totals(self._library.plan)}", palette.strong)]
        if self._sets.name:
            totals.append((f" · @{self._sets.name}", palette.accent))
        self._write("#library-totals", totals if total else [])
        self._search.set_class(bool(choice.query) or self._search.has_focus, "-used")

    def _write(self, id: str, spans: Sequence[Span]) -> None:
        text = Text(no_wrap=True, overflow="ellipsis")
        for part, style in spans:
            text.append(part, style)
        self.query_one(id, Static).update(text)

    def _recolour(self) -> None:
        palette = self._palette()
        self._tree.use(palette)
        self._pane.use(palette)
        self.query_one(KeyLine).use(palette)
        self.say()

    def on_resize(self, event: events.Resize) -> None:
        size = event.size
        tiny = size.width < SMALLEST[0] or size.height < SMALLEST[1]
        self.set_class(size.width < 110, "-compact")
        self.set_class(size.width >= 150, "-wide")
        self.query_one("#all").display = not tiny
        self.query_one("#too-small").display = tiny
        self.query_one("#too-small", Static).update(
            Content(
                f"tbtui needs {SMALLEST[0]} columns and {SMALLEST[1]} rows;\n"
                f"this window has {size.width} and {size.height}."
            )
        )

    @on(LibraryTree.Moved)
    def _on_moved(self) -> None:
        self._show_current()

    @on(LibraryTree.Chosen)
    def _on_chosen(self) -> None:
        self.selection_changed()

    def selection_changed(self, name: str = "") -> None:
        """Handle a change of selection, to that of the saved set `name`."""
        self._sets.name = name
        if "is:selected" in self.choice.query:
            self.choice.search(self.choice.query)
            self._tree.settle()
        self._tree.refresh()
        self.say()

    # Searching

    def action_search(self) -> None:
        self.set_focus(self._search)
        self.say()

    @on(events.DescendantFocus)
    def _on_other_keys(self) -> None:
        self.query_one(KeyLine).refresh()

    @on(Input.Changed, "#library-search")
    def _on_search(self, event: Input.Changed) -> None:
        self.choice.search(event.value)
        self._changed()

    @on(Input.Submitted, "#library-search")
    def _on_searched(self) -> None:
        self.set_focus(self._tree)

    def action_cycle(self, term: Literal["difficulty", "kind", "pass", "size", "is"]) -> None:
        """Set a term of the search to its next value; after the last, none."""
        values: list[str | None] = [None, *self.choice.values(term)]
        now = term_value(self.choice.query, term)
        at = values.index(now) if now in values else 0
        self._search.value = with_term(self.choice.query, term, values[(at + 1) % len(values)])

    # Selecting, sets, running

    def action_select(self, which: Literal["all", "none", "invert"]) -> None:
        match which:
            case "all":
                self.choice.select_shown()
            case "none":
                self.choice.select(())
            case "invert":
                self.choice.invert_shown()
        self.selection_changed()

    def action_save(self) -> None:
        self._sets.ask_name()

    def action_sets(self) -> None:
        self._sets.offer()

    def action_start(self) -> None:
        self._sets.start()

    # Reading

    def action_read(self) -> None:
        self.set_focus(self._pane)
        self.set_class(True, "-reading")

    def action_tab(self, by: int) -> None:
        self._pane.choose_tab(self._pane.tab + by)

    def action_show_tab(self, number: int) -> None:
        if 1 <= number <= len(TABS):
            self._pane.choose_tab(number - 1)

    def action_back(self) -> None:
        if self._search.has_focus:
            self._search.value = ""
        if not self._tree.has_focus:
            self.set_class(False, "-reading")
            self.set_focus(self._tree)
            self.say()
        elif self.choice.query:
            self._search.value = ""
        else:
            self.dismiss()
