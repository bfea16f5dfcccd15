"""All settings of the run: value, default, source, meaning; the live ones are changed here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.journal.commands import RUN
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.context import run_app_of
from tbtui.ui.drawing.text import visible
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.bars import StatusLine
from tbtui.ui.panes.key_bar import KeyBar, WayBack, WordsLine, filter_line
from tbtui.ui.panes.pane import Frame, Redraw
from tbtui.ui.panes.settings import (
    Narrowed,
    SettingListPane,
    SettingPane,
    SettingRow,
    changeable,
    when_changed,
)
from tbtui.ui.screens.base import LiveScreen
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.ui.services import RunSettings
from tbtui.ui.terminal.tty import copy
from tbtui.ui.textual_seam import Choices, Columns
from tbtui.view.ending import read_ending

_SETTLE_SEC = 0.2
"""What another value leads to is computed so long after the last key."""


class SettingsScreen(LiveScreen):
    """The list at the left, the chosen setting at the right; below it in a small window."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("settings-list", "settings", "everywhere")
    BINDINGS = bindings("settings")
    AUTO_FOCUS = "#settings-list"
    OVERVIEW = ("settings-list", "setting")
    COLUMNS: ClassVar[dict[str, tuple[str, ...]]] = {"settings-columns": OVERVIEW}

    def __init__(self, make: Callable[[], RunSettings], name: str = "") -> None:
        """`make` is called on a thread; `name` is the setting to begin at."""
        super().__init__()
        self._make, self._wanted = make, name
        self._frame: Frame | None = None

    def compose_panes(self) -> ComposeResult:
        yield StatusLine("status")
        with Columns(id="settings-columns"):
            yield SettingListPane("settings-list")
            yield SettingPane("setting")
        yield KeyBar("keys", *self.SCOPES, back=WayBack("settings-back", "show all"))

    def on_mount(self) -> None:
        self._list.choose(self._wanted)
        self.run_worker(self._read(), name="settings")

    async def _read(self) -> None:
        self._list.book = await asyncio.to_thread(self._make)
        self.post_message(Redraw())

    @property
    def _list(self) -> SettingListPane:
        return self.query_one(SettingListPane)

    def choose(self, name: str) -> None:
        """Go to a setting."""
        self._list.choose(name)
        self._close_box()
        self.post_message(Redraw())

    def show(self, frame: Frame, beat: int) -> None:
        self._frame = frame
        self._list.take(frame)
        self.query_one(SettingPane).shown = self._list.current
        super().show(frame, beat)

    def on_setting_list_pane_opened(self) -> None:
        """Ask for another value of the chosen setting."""
        row, book, frame = self._list.current, self._list.book, self._frame
        if row is None or book is None or frame is None:
            return
        app = run_app_of(self)
        live = changeable(row.entry, frame.state) and not app.shown.refusal
        dialog = SettingDialog(
            row, book, frame.run.directory, live=live, when=self._when(row, frame)
        )

        def answered(text: str | None) -> None:
            if text is None:
                return
            if live:
                name = row.entry.name
                values = {name: book.value(name, text)}
                app.steering.submit("set", RUN, f"{name}={text}", arguments=values)
            else:
                copy(self.app, text)
                self.notify(text, title="Copied: run it once this run is over", timeout=10)

        self.app.push_screen(dialog, answered)

    def _when(self, row: SettingRow, frame: Frame) -> str:
        why = run_app_of(self).shown.refusal if changeable(row.entry, frame.state) else ""
        return why or f"Changes {when_changed(row.entry, frame)}."

    async def action_filter(self) -> None:
        """Open the box for words."""
        if not self.query(WordsLine):
            line = filter_line(self._list.words, "words of a name, group or meaning")
            await self.query_one("#all").mount(line, before="#settings-columns")
        self.set_focus(self.query_one("#filter"))

    def on_input_changed(self, event: Input.Changed) -> None:
        self._list.words = event.value
        self.post_message(Redraw())

    def on_input_submitted(self) -> None:
        self._close_box()

    def _close_box(self) -> None:
        self.query(WordsLine).remove()
        self.set_focus(self._list)

    def action_narrow(self, which: Narrowed) -> None:
        """Show only these settings; the same again shows all."""
        self._list.narrowed = "" if self._list.narrowed == which else which
        self.post_message(Redraw())

    def action_back(self) -> None:
        if self.query(WordsLine) or self._list.words or self._list.narrowed:
            self._close_box()
            self._list.words, self._list.narrowed = "", ""
            self.post_message(Redraw())
        else:
            self.dismiss()


class SettingDialog(Dialog[str | None]):
    """Asks for another value of a setting, and shows what it leads to where that can be computed.

    The result is the value as it is written; of a setting that can't change now, the command that
    starts a run with it. None: nothing.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "go back")]
    AUTO_FOCUS = "#value"

    def __init__(
        self, row: SettingRow, book: RunSettings, run: RunDirectory, *, live: bool, when: str
    ) -> None:
        """`live`: it changes at once; `when` says so, or why not."""
        super().__init__()
        self._row, self._book, self._run, self._live, self._when = row, book, run, live, when
        self._ending = read_ending(run)

    def compose(self) -> ComposeResult:
        entry = self._row.entry
        with Vertical(id="dialog"):
            yield Static(Content(visible(entry.name)), id="question")
            yield Static(Content(visible(f"{entry.meaning} ({entry.kind}).")), id="detail")
            if entry.choices:
                options = (Option(Content(each)) for each in entry.choices)
                yield Choices(*options, id="value", compact=True)
            else:
                yield Input(
                    self._row.value or self._row.default, id="value", max_length=400, compact=True
                )
            yield Static(Content(visible(self._when)), id="when")
            yield Static("", id="preview")
            yield Static("", id="problem")
            does = "change it" if self._live else "copy the command"
            yield Hint((f"enter  {does}", "take"), ("esc  go back", "give_up"))

    def on_mount(self) -> None:
        entry = self._row.entry
        if self._row.value in entry.choices:
            self.query_one("#value", OptionList).highlighted = entry.choices.index(self._row.value)
        self._look()

    @property
    def _text(self) -> str:
        if not self._row.entry.choices:
            return self.query_one("#value", Input).value.strip()
        at = self.query_one("#value", OptionList).highlighted
        return self._row.entry.choices[at or 0]

    @on(Input.Changed)
    @on(OptionList.OptionHighlighted)
    def _look(self) -> None:
        """Check the value, and show what it leads to."""
        self._write("#problem", "")
        self._write("#preview", "")
        if not self._live:
            self._write("#preview", self._command())
        if self._row.entry.tried and self._text != self._row.value:
            self._try(self._text)

    @work(name="what-if", group="what-if", exclusive=True)
    async def _try(self, text: str) -> None:
        await asyncio.sleep(_SETTLE_SEC)
        try:
            name = self._row.entry.name
            lines = await asyncio.to_thread(self._book.effect, self._run, name, text)
        except UserError as error:
            self._write("#problem", str(error))
        else:
            self._write("#preview", "\n".join([*lines, "", self._command()]))

    def _command(self) -> str:
        """The command that gives a run this value."""
        if self._live:
            return ""
        setting = f"{self._row.entry.name}={self._text}"
        anew = self._ending.to_start_anew(self._run, setting)
        if self._row.entry.fixed:
            return anew
        return self._ending.to_resume(str(self._run.path), setting) or anew

    def _write(self, id: str, text: str) -> None:
        shown = self.query_one(id, Static)
        shown.update(Content("\n".join(map(visible, text.split("\n")))))
        shown.display = bool(text)

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def action_take(self) -> None:
        entry, text = self._row.entry, self._text
        if entry.table:
            self._write(
                "#problem",
                f"{entry.name} has entries: {to_type('run', f'{entry.name}.NAME=VALUE')}",
            )
            return
        try:
            self._book.value(entry.name, text)
        except UserError as error:
            self._write("#problem", str(error))
            return
        self.dismiss(text if self._live else self._command())

    def action_give_up(self) -> None:
        self.dismiss(None)
