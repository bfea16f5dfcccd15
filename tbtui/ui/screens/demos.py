"""The review of demonstrations: what was asked, what was typed, and whether it is trained on."""

from __future__ import annotations

import asyncio
import getpass
import re
from typing import ClassVar, override

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from tbtui.errors import UserError
from tbtui.journal.demonstrations import (
    Demonstration,
    Demonstrations,
    Status,
    answer_text,
    read_answer,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.drawing.text import visible
from tbtui.ui.input.keys import KeyTable
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.ui.textual_seam import Choices, Columns, Ground

_MARKS: dict[Status, str] = {"pending": "?", "accepted": "✓", "dropped": "✗"}
_BLANK_ROWS = re.compile(r"\n\s*\n\s*\n")


class DemosScreen(Dialog[None], Ground):
    """The list of demonstrations, and one of them with its answer, which can be edited."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("a", "decide('accepted')", "accept"),
        Binding("d", "decide('dropped')", "drop"),
        Binding("e", "edit", "edit"),
        Binding("ctrl+s", "save", "save", priority=True),
    ]
    AUTO_FOCUS = "#demos"

    def __init__(self, run: RunDirectory, demos: str | None, keys: KeyTable) -> None:
        """`demos`: the run's setting; None: it has none, it is none of ours."""
        super().__init__()
        self._files = Demonstrations(run)
        self._trains = demos == "train"
        self._keys = keys
        self._known: list[Demonstration] = []

    @override
    def compose(self) -> ComposeResult:
        with Columns(id="demo-columns"):
            yield Choices(id="demos")
            with Vertical(id="demo"):
                yield Static(id="demo-title")
                with VerticalScroll(id="asked-scroll", can_focus=False):
                    yield Static(id="asked")
                yield Static(Content(self._use), id="answer-title")
                yield TextArea(id="answer", read_only=True, soft_wrap=True)
        yield Hint()

    async def on_mount(self) -> None:
        await self._read()

    @property
    def _use(self) -> str:
        """What becomes of an answer that is accepted."""
        if self._trains:
            return "the answer, trained on once it is accepted"
        return (
            f"the answer; nothing is trained until demos=train ({self._keys.name_of('settings')})"
        )

    @property
    def _none_yet(self) -> str:
        take, give = (self._keys.name_of(each) for each in ("take-over", "give-back"))
        return (
            "This run has no demonstrations yet.\n\n"
            f"Open a trial, take it over with {take}, type what it should have done, and give it"
            f" back with {give}: what you typed comes here. Nothing is trained on before you"
            " accept it."
        )

    @property
    def _list(self) -> OptionList:
        return self.query_one("#demos", OptionList)

    @property
    def _answer(self) -> TextArea:
        return self.query_one(TextArea)

    @property
    def _current(self) -> Demonstration | None:
        at = self._list.highlighted
        return None if at is None or at >= len(self._known) else self._known[at]

    async def _read(self, chosen: str = "") -> None:
        """Read what there is, and go to the one with this id."""
        self._known, problems = await asyncio.to_thread(self._files.readable)
        for problem in problems:
            self.app.notify(str(problem), severity="warning", markup=False)
        at = next((n for n, each in enumerate(self._known) if each.id == chosen), 0)
        self._list.clear_options()
        self._list.add_options(Option(Content(_row(each))) for each in self._known)
        if self._known:
            self._list.highlighted = at
        self._hint()
        self._show()

    def _show(self) -> None:
        current = self._current
        empty = current is None
        for id in ("#demos", "#demo-title", "#answer-title", "#answer"):
            self.query_one(id).display = not empty
        if current is None:
            self.query_one("#asked", Static).update(Content(self._none_yet))
            return
        decided = f" by {visible(current.reviews[-1].actor)}" if current.reviews else ""
        title = (
            f"{current.task}, turn {current.turn} · typed by {visible(current.actor)} ·"
            f" {current.status}{decided}"
        )
        self.query_one("#demo-title", Static).update(Content(title))
        # A captured pane is filled up with blank rows to its height.
        prompt = _BLANK_ROWS.sub("\n\n", current.prompt.rstrip())
        asked = "\n".join(visible(line) for line in prompt.split("\n"))
        self.query_one("#asked", Static).update(Content(asked))
        scroll = self.query_one("#asked-scroll", VerticalScroll)
        self.call_after_refresh(scroll.scroll_end, animate=False)
        self._answer.load_text(answer_text(current.answer, compact=False))

    def _hint(self) -> None:
        hint = self.query_one(Hint)
        if not self._known:
            hint.show_parts(("esc close", "back"))
        elif self._answer.read_only:
            hint.show_parts(
                ("a accept", "decide('accepted')"),
                ("d drop", "decide('dropped')"),
                ("e edit", "edit"),
                ("esc close", "back"),
            )
        else:
            hint.show_parts(("ctrl+s keep", "save"), ("esc as it was", "back"))

    def on_option_list_option_highlighted(self) -> None:
        self._show()

    def on_option_list_option_selected(self) -> None:
        self.action_edit()

    async def action_decide(self, status: Status) -> None:
        """Accept the chosen one, or drop it; the next pending one is chosen then."""
        if (current := self._current) is not None:
            following = [each for each in self._known if each.status == "pending"]
            chosen = next((each.id for each in following if each.id != current.id), current.id)
            await self._write(current.reviewed(status, getpass.getuser()), chosen)

    def action_edit(self) -> None:
        """Edit the chosen one's answer."""
        if self._current is not None:
            self._answer.read_only = False
            self.set_focus(self._answer)
            self._hint()

    async def action_save(self) -> None:
        """Keep the answer as it is edited."""
        current = self._current
        if current is None or self._answer.read_only:
            return
        try:
            answer = read_answer(self._answer.text)
        except UserError as error:
            self.app.notify(str(error), severity="warning", markup=False)
            return
        self._leave_answer()
        if answer != current.answer:
            edited = current.reviewed(current.status, getpass.getuser(), answer)
            await self._write(edited, current.id)

    async def _write(self, demonstration: Demonstration, chosen: str) -> None:
        try:
            await asyncio.to_thread(self._files.write, demonstration)
        except UserError as error:
            self.app.notify(str(error), severity="error", markup=False)
        await self._read(chosen)

    def _leave_answer(self) -> None:
        self._answer.read_only = True
        self.set_focus(self._list)
        self._hint()

    def action_back(self) -> None:
        if self._answer.read_only:
            self.dismiss(None)
        else:
            self._leave_answer()
            self._show()


def _row(each: Demonstration) -> str:
    return f"{_MARKS[each.status]} {each.task} t{each.turn}"
