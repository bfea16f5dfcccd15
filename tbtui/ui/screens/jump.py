"""A box that finds everything by its name, and opens it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, override

from rich.cells import cell_len
from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from tbtui.ui.context import app_of
from tbtui.ui.drawing.text import visible
from tbtui.ui.input.matching import Match, Matcher, ranked
from tbtui.ui.screens.dialogs import Dialog, Hint
from tbtui.ui.textual_seam import Choices
from tbtui.view.targets import Target

_KIND, _NAME = 9, 36
"""Cells of what a row is, and of its name at most before details leave their column."""


class JumpScreen(Dialog[Target | None]):
    """Finds trials, groups, tasks, steps, settings, metrics, commands, pages and themes.

    The result is what was chosen; None: nothing.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "go back"),
        Binding("down,ctrl+n", "move(1)", "down", priority=True),
        Binding("up", "move(-1)", "up", priority=True),
        Binding("pagedown", "move(10)", "page down", priority=True),
        Binding("pageup", "move(-10)", "page up", priority=True),
        Binding("tab", "narrow", "narrow", priority=True),
    ]
    AUTO_FOCUS = "#jump"

    def __init__(
        self,
        known: Sequence[Target],
        read: Callable[[], Awaitable[Sequence[Target]]],
        text: str = "",
    ) -> None:
        """
        Args:
            known: what can be gone to at once.
            read: the rest, which takes a moment.
            text: what the box has in it from the start.
        """
        super().__init__()
        self._targets, self._read, self._text = list(known), read, text
        self._matches: list[Match] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog") as box:
            box.border_title = "go to"
            yield Input(
                self._text,
                placeholder="trial, group, task, step (s3), setting, command, metric, guide page",
                id="jump",
                max_length=80,
                select_on_focus=False,
            )
            yield Choices(id="found", compact=True)
            yield Hint(
                ("enter  go", "go"),
                ("↑ ↓  choose", ""),
                ("tab  narrow", "narrow"),
                ("esc  go back", "give_up"),
            )

    def on_mount(self) -> None:
        self.query_one("#found", OptionList).can_focus = False
        self.run_worker(self._read_on(), name="jump-index")

    async def _read_on(self) -> None:
        found = await self._read()
        self._targets = [*found, *self._targets]
        self._look()

    @on(Input.Changed, "#jump")
    def _look(self) -> None:
        self._rank()

    @work(name="jump", group="jump", exclusive=True)
    async def _rank(self) -> None:
        matcher = Matcher(self.query_one("#jump", Input).value)
        rows = max(8, self.app.size.height - 10)
        self._matches = await ranked(matcher, self._targets, rows)
        self._show(matcher)

    def _show(self, matcher: Matcher) -> None:
        listed = self.query_one("#found", OptionList)
        listed.clear_options()
        before = ""
        names = max((cell_len(match.target.name) for match in self._matches), default=0)
        for match in self._matches:
            kind = match.target.kind
            text = self._row(match.target, matcher, min(names, _NAME), first=kind != before)
            # A list wraps what is wider than it.
            text.truncate(max(20, listed.size.width - 1), overflow="ellipsis")
            listed.add_option(Option(text))
            before = kind
        if self._matches:
            listed.highlighted = 0
        else:
            text = Text(" nothing of that name", app_of(self).palette.muted)
            listed.add_option(Option(text, disabled=True))

    def _row(self, target: Target, matcher: Matcher, names: int, *, first: bool) -> Text:
        """`names`: cells that a name takes, so that details begin in one column."""
        palette = app_of(self).palette
        name = visible(target.name)
        text = Text()
        text.append(f" {target.kind if first else '':<{_KIND}}", palette.muted)
        start = len(text)
        text.append(name, palette.text)
        if name == target.name:
            for at in matcher.positions(name):
                text.stylize(palette.accent, start + at, start + at + 1)
        if target.detail:
            gap = " " * max(0, names - cell_len(name))
            text.append(f"{gap}  {visible(target.detail)}", palette.muted)
        return text

    @override
    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        # How many rows a kind has depends on the room.
        self._look()

    def on_input_submitted(self) -> None:
        self.action_go()

    def on_option_list_option_selected(self) -> None:
        self.action_go()

    @property
    def _chosen(self) -> Target | None:
        at = self.query_one("#found", OptionList).highlighted
        return None if at is None or at >= len(self._matches) else self._matches[at].target

    def action_go(self) -> None:
        if (target := self._chosen) is not None:
            self.dismiss(target)

    def action_narrow(self) -> None:
        """Put the chosen one into the box; of a step, what belongs to it is found then."""
        if (target := self._chosen) is not None:
            box = self.query_one("#jump", Input)
            box.value = f"s{target.step} " if target.kind == "step" else f"{target.name} "
            box.cursor_position = len(box.value)

    def action_move(self, rows: int) -> None:
        listed = self.query_one("#found", OptionList)
        if self._matches:
            here = listed.highlighted or 0
            listed.highlighted = min(len(self._matches) - 1, max(0, here + rows))

    def action_give_up(self) -> None:
        self.dismiss(None)
