"""The exact prompt of one turn: every token that the policy was given."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.widgets import Input

from tbtui.errors import UserError
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import TrialHead
from tbtui.ui.panes.key_bar import KeyBar, WayBack, WordsLine
from tbtui.ui.panes.pane import Frame, Redraw
from tbtui.ui.panes.prompt import PromptPane
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.terminal.tty import copy, page
from tbtui.ui.textual_seam import Rows
from tbtui.view.prompt import PromptPart


class PromptScreen(LiveScreen):
    """Opens with what the journal has of the prompt; the tokenizer then adds the rest."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("prompt-text", "prompt", "everywhere")
    BINDINGS = bindings("prompt")
    AUTO_FOCUS = "#text"
    OVERVIEW = ("text",)
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {"list": ("text",)}

    def __init__(self, trial: str, sample: int, turn: int) -> None:
        super().__init__()
        self.trial = trial
        self._sample, self._turn = sample, turn
        self._loaded = False

    def compose_panes(self) -> ComposeResult:
        yield TrialHead("head")
        with Rows(id="list"):
            box = Input(placeholder=f"a text in the prompt of turn {self._turn}", id="filter")
            yield WordsLine("find", box)
            yield PromptPane("text")
        yield KeyBar("keys", *self.SCOPES, back=WayBack("prompt-back", "back"))

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(WordsLine).display = False

    def show(self, frame: Frame, beat: int) -> None:
        if not self._loaded and frame.run.opened:
            self._loaded = True
            parts = frame.run.prompt(self._sample)
            self.query_one(PromptPane).load(parts)
            self.run_worker(self._read(frame, parts), name="prompt")
        super().show(frame, beat)

    async def _read(self, frame: Frame, parts: list[PromptPart]) -> None:
        if self.tools is None or all(part.pieces is not None for part in parts):
            return
        tools = await asyncio.to_thread(self.tools)
        try:
            whole = await asyncio.to_thread(tools.prompt, frame.run.directory, parts)
        except UserError as error:
            self.notify(
                f"{error}. What is new in each turn is shown as the agent wrote it.",
                title="Not token by token",
                severity="warning",
                markup=False,
            )
            return
        self.query_one(PromptPane).load(whole)
        self.post_message(Redraw())

    def on_input_changed(self, event: Input.Changed) -> None:
        self.query_one(PromptPane).seek(event.value)
        self.post_message(Redraw())

    def on_input_submitted(self) -> None:
        self.set_focus(self.query_one(PromptPane))

    def action_search(self) -> None:
        self.query_one(WordsLine).display = True
        self.query_one("#filter").focus()

    def action_hit(self, direction: int) -> None:
        self.query_one(PromptPane).step(direction)
        self.post_message(Redraw())

    def action_part(self, direction: int) -> None:
        self.query_one(PromptPane).step_part(direction)

    def action_back(self) -> None:
        """Out of the search first."""
        line = self.query_one(WordsLine)
        if line.display:
            self.query_one("#filter", Input).value, line.display = "", False
            self.set_focus(self.query_one(PromptPane))
        else:
            self.dismiss()

    def action_copy(self) -> None:
        said = copy(self.app, self.query_one(PromptPane).contents)
        self.notify(said, title="Copied the prompt", markup=False, timeout=3)

    def action_pager(self) -> None:
        if problem := page(self.app, self.query_one(PromptPane).contents):
            self.notify(problem, severity="warning", markup=False)
