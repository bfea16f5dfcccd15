"""Looks for a text in the transcripts of runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Input

from tbtui.journal.database import JournalError
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.search import Hit, search
from tbtui.ui.drawing.text import visible
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.hits import HitsPane
from tbtui.ui.panes.key_bar import KeyBar, WayBack, WordsLine
from tbtui.ui.panes.pane import Redraw
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.textual_seam import Rows

_PAUSE_SEC = 0.25
"""After the last key that was typed."""
_SHORTEST = 2


class SearchScreen(LiveScreen):
    """Searches on a thread for what is typed, and shows hits as they are found."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("hits", "search", "everywhere")
    BINDINGS = bindings("search")
    AUTO_FOCUS = "#filter"
    OVERVIEW = ("hits",)
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {"list": ("hits",)}

    class Wanted(Message):
        """This place is to be shown."""

        def __init__(self, hit: Hit) -> None:
            super().__init__()
            self.hit = hit

    def __init__(self, runs: Sequence[RunDirectory]) -> None:
        super().__init__()
        self._runs = runs
        self._stop = threading.Event()

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Rows(id="list"):
            one = len(self._runs) == 1
            where = visible(self._runs[0].name) if one else f"{len(self._runs)} runs"
            placeholder = f"a text in the transcripts of {where}"
            yield WordsLine("find", Input(placeholder=placeholder, id="filter", max_length=200))
            yield HitsPane("hits", one_run=one)
        yield KeyBar("keys", *self.SCOPES, back=WayBack("search-back", "back"))

    def on_input_changed(self, event: Input.Changed) -> None:
        self._stop.set()
        self._stop = threading.Event()
        text = event.value if len(event.value.strip()) >= _SHORTEST else ""
        self.query_one(HitsPane).begin(text)
        self.post_message(Redraw())
        if text:
            self.run_worker(self._look(text, self._stop), name="search", exclusive=True)

    def on_input_submitted(self) -> None:
        self.set_focus(self.query_one(HitsPane))

    def on_unmount(self) -> None:
        self._stop.set()

    async def _look(self, text: str, stop: threading.Event) -> None:
        await asyncio.sleep(_PAUSE_SEC)
        loop, pane = asyncio.get_running_loop(), self.query_one(HitsPane)

        def found(hits: Sequence[Hit], share: float, trouble: str) -> None:
            if not stop.is_set():
                pane.take(hits, share, trouble)

        def tell(hits: Sequence[Hit], share: float, trouble: str) -> None:
            loop.call_soon_threadsafe(found, hits, share, trouble)

        await asyncio.to_thread(_search_all, self._runs, text, tell, stop)
        self.post_message(Redraw())

    def on_hits_pane_opened(self, event: HitsPane.Opened) -> None:
        self.post_message(self.Wanted(event.hit))

    def action_back(self) -> None:
        self.dismiss()

    def action_edit(self) -> None:
        self.query_one("#filter").focus()


def _search_all(
    runs: Sequence[RunDirectory],
    text: str,
    tell: Callable[[Sequence[Hit], float, str], None],
    stop: threading.Event,
) -> None:
    """Run after run, until all are done or `stop` is set.

    `tell` is called with what was found, the share of the runs that has been looked through, and
    why the rest of a run can't be.
    """
    for done, run in enumerate(runs, start=1):
        trouble = ""
        try:
            for progress in search(run, text):
                if stop.is_set():
                    return
                tell(progress.hits, (done - 1 + progress.share) / len(runs), "")
        except JournalError as error:
            trouble = str(error)
        tell((), done / len(runs), trouble)
