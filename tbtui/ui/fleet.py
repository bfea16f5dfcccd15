"""The fleet's app: a row for each live and recent run, here and elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, override

from rich.style import Style
from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.widgets import Static
from textual.worker import Worker

from tbtui.errors import UserError
from tbtui.ui.base_app import AppWithoutRun
from tbtui.ui.context import ScopedScreen, app_of
from tbtui.ui.drawing.text import clip, clip_name, sparkline, visible
from tbtui.ui.input.keys import Scope, bindings
from tbtui.ui.panes.key_bar import KeyLine
from tbtui.ui.textual_seam import Ground
from tbtui.ui.theme.palette import Palette
from tbtui.ui.user import User
from tbtui.view.runs import GpuUse, RunSummary
from tbtui.view.waiting import duration

_AGAIN_SEC = 3.0
_WIDE = 110
_CURVE = 12
_LAST = 12
"""Cells that the last column, what a run waits for, gets at least."""
_ORDER = ("unreachable", "unreadable", "live", "paused")


class Shown(Protocol):
    """The fleet, as the app knows it."""

    async def rows(self) -> list[RunSummary]:
        """A row for each run."""
        ...

    async def act(self, row: RunSummary, *words: str) -> str:
        """Do something with a run; what was said."""
        ...

    def open(self, row: RunSummary) -> None:
        """Show the run on this terminal, until it is left."""
        ...

    async def chart_command(self, rows: Sequence[RunSummary]) -> list[str]:
        """The command that overlays these runs' curves. Raises `UserError`."""
        ...

    def run(self, command: Sequence[str]) -> None:
        """Run a command on this terminal, until it is left."""
        ...


def ordered(rows: Sequence[RunSummary]) -> list[RunSummary]:
    """What needs a person first, then live runs, then those that are over, the newest first."""

    def rank(row: RunSummary) -> tuple[bool, int, float]:
        place = _ORDER.index(row.status) if row.status in _ORDER else len(_ORDER)
        return not row.silent, place, -(row.started_at or 0.0)

    return sorted(rows, key=rank)


def table_lines(rows: Sequence[RunSummary], width: int) -> list[str]:
    """The columns' names, and a line for each run, as wide as there is room."""
    wide = width >= _WIDE
    table = [_heads(wide=wide), *(_cells(row, wide=wide) for row in rows)]
    widths = [max(len(line[place]) for line in table) for place in range(len(table[0]))]
    free = width - sum(widths[1:]) - 2 * (len(widths) - 1)
    widths[0] = min(widths[0], max(free, 30 if wide else 22))
    widths[-1] = width - sum(widths[:-1]) - 2 * (len(widths) - 1)
    if widths[-1] < _LAST:
        widths[0] = max(10, widths[0] - (_LAST - widths[-1]))
        widths[-1] = max(0, width - sum(widths[:-1]) - 2 * (len(widths) - 1))
    lines = []
    for line in table:
        pairs = zip(line, widths, strict=True)
        name, *others = [(visible(text), cell) for text, cell in pairs]
        # The end of a name tells a sweep's runs apart.
        shown = [f"{clip_name(name[0], name[1]):<{name[1]}}"]
        lines.append("  ".join(shown + [f"{clip(text, cell):<{cell}}" for text, cell in others]))
    return lines


def _heads(*, wide: bool) -> list[str]:
    more = ["trials", "cost", "GPUs", "for"] if wide else []
    return ["run", "state", "step", "pass", "curve", *more, "alarms", "waits for"]


def _cells(row: RunSummary, *, wide: bool) -> list[str]:
    rate, cost = row.last_pass_rate, row.cost_usd
    more = []
    if wide:
        more = [
            str(row.rollouts) if row.known else "",
            "" if cost is None else f"${cost:.2f}",
            _gpus(row.gpus),
            "" if row.seconds is None else duration(row.seconds),
        ]
    return [
        f"{row.host}:{row.name}" if row.host else row.name,
        state_words(row),
        row.steps if row.known else "",
        "" if rate is None else f"{rate:.2f}".removeprefix("0"),
        sparkline(row.curve, _CURVE if wide else _CURVE // 2),
        *more,
        str(row.alarms or ""),
        row.waiting_for or row.reason,
    ]


def state_words(row: RunSummary) -> str:
    """`live`, `paused`, `finished`, `silent 3m05s`, ..."""
    if row.silent and row.silent_sec is not None:
        return f"silent {duration(row.silent_sec)}"
    return row.status


def _gpus(gpus: Sequence[GpuUse]) -> str:
    """`4x 83%`."""
    used = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    if not gpus:
        return ""
    return f"{len(gpus)}x" + (f" {sum(used) / len(used):.0%}" if used else "")


class FleetApp(AppWithoutRun[None]):
    """Shows a fleet until it is left."""

    SCOPES = ("fleet",)

    def __init__(
        self,
        fleet: Shown,
        *,
        user: User | None = None,
        theme_dirs: Sequence[Path] | None = None,
        theme: str | None = None,
    ) -> None:
        super().__init__(user=user, theme_dirs=theme_dirs, theme=theme)
        self._fleet = fleet

    def on_mount(self) -> None:
        self.push_screen(FleetScreen(self._fleet, lambda: self.palette))
        self.report_problems()


class FleetScreen(ScopedScreen, Ground):
    """The rows, and what is known of the chosen one."""

    SCOPES: ClassVar[tuple[Scope, ...]] = ("fleet", "everywhere")
    BINDINGS = bindings("fleet")

    def __init__(self, fleet: Shown, palette: Callable[[], Palette]) -> None:
        """`palette` gives the colours in use."""
        super().__init__()
        self._fleet = fleet
        self._palette = palette
        self._rows: list[RunSummary] = []
        self._read = False
        self._chosen = 0
        self._marked: set[tuple[str, str]] = set()
        self._stopping: tuple[str, str] | None = None
        """The run that the next press of the key stops."""
        self._reading: Worker[None] | None = None

    @override
    def compose(self) -> ComposeResult:
        yield Static(id="fleet-title")
        yield Static(id="fleet")
        yield KeyLine("keys", self._palette(), "fleet", "everywhere")

    @override
    def idle_keys(self) -> Iterable[str]:
        row = self.chosen
        if row is None:
            yield from ("fleet-open", "fleet-mark", "fleet-curves")
        elif not row.known:
            yield "fleet-open"
        if row is None or not row.live:
            yield from ("fleet-pause", "fleet-stop")

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._recolour())
        self._look()
        self.set_interval(_AGAIN_SEC, self._look)

    def _recolour(self) -> None:
        self.query_one(KeyLine).use(self._palette())
        self._draw()

    def on_resize(self, _: events.Resize) -> None:
        self._draw()

    def on_click(self, event: events.Click) -> None:
        if event.widget is not None and event.widget.id == "fleet" and event.y >= 1:
            self._choose(self._top + event.y - 1)

    @property
    def chosen(self) -> RunSummary | None:
        """The row that keys act on."""
        return self._rows[min(self._chosen, len(self._rows) - 1)] if self._rows else None

    def _look(self) -> None:
        if self.is_current and (self._reading is None or self._reading.is_finished):
            self._reading = self.run_worker(self._take(), name="fleet")

    async def _take(self) -> None:
        was = self.chosen
        self._rows, self._read = ordered(await self._fleet.rows()), True
        if was is not None:  # the choice stays with its run
            keys = [_key(row) for row in self._rows]
            self._chosen = keys.index(_key(was)) if _key(was) in keys else self._chosen
        self._draw()

    @property
    def _room(self) -> int:
        return max(1, self.size.height - 6)

    @property
    def _top(self) -> int:
        return max(0, min(self._chosen - self._room // 2, len(self._rows) - self._room))

    def _draw(self) -> None:
        palette, width = self._palette(), max(40, self.size.width - 2)
        live = sum(row.live for row in self._rows)
        title = Text(" fleet", palette.accent)
        if self._rows:
            title.append(f" · {live} live, {len(self._rows) - live} over", palette.text)
        self.query_one("#fleet-title", Static).update(title)
        lines: list[Text] = []
        if not self._rows:
            nothing = " no live or recent run" if self._read else " looking for runs"
            lines.append(Text(nothing, palette.muted))
        else:
            head, *table = table_lines(self._rows, width - 3)
            lines.append(Text(f"   {head}", palette.faint))
            for number in range(self._top, min(len(self._rows), self._top + self._room)):
                row = self._rows[number]
                mark = "◆" if _key(row) in self._marked else " "
                text = Text(f" {mark} ", palette.attention)
                text.append(table[number], _style(row, palette))
                text.pad_right(max(0, width - text.cell_len))
                if number == self._chosen:
                    text.stylize(palette.on_raised)
                lines.append(text)
            lines += [Text(), *self._details(palette, width)]
        self.query_one("#fleet", Static).update(Text("\n").join(lines))
        self.query_one(KeyLine).refresh()

    def _details(self, palette: Palette, width: int) -> list[Text]:
        row = self.chosen
        if row is None:
            return []
        where = visible(f"{row.host + ' ' if row.host else ''}{row.path}")
        facts = [f"{row.policy} {row.model_name}" if row.policy else "", row.phase or ""]
        alarm = f"last alarm: {row.alarm}" if row.alarm else row.reason
        return [
            Text(clip(f" {where}  {'  '.join(filter(None, facts))}", width), palette.muted),
            Text(clip(f" {visible(alarm)}", width), palette.bad if alarm else palette.faint),
        ]

    def _choose(self, number: int) -> None:
        self._chosen = max(0, min(number, len(self._rows) - 1))
        self._stopping = None
        self._draw()

    def action_choose_next(self, rows: int) -> None:
        self._choose(self._chosen + rows)

    def action_mark_chosen(self) -> None:
        if (row := self.chosen) is not None:
            self._marked ^= {_key(row)}
            self._choose(self._chosen + 1)

    def action_open_chosen(self) -> None:
        row = self.chosen
        if row is None or not row.known:
            return
        with self.app.suspend():
            self._fleet.open(row)
        self.app.refresh(layout=True)

    def action_curves(self) -> None:
        rows = [row for row in self._rows if _key(row) in self._marked]
        if not rows and self.chosen is not None:
            rows = [self.chosen]
        if rows:
            self._overlay(rows)

    @work(name="curves", exclusive=True)
    async def _overlay(self, rows: Sequence[RunSummary]) -> None:
        try:
            command = await self._fleet.chart_command(rows)
        except (UserError, OSError) as error:
            self.app.notify(str(error), severity="error")
            return
        with self.app.suspend():
            await asyncio.to_thread(self._fleet.run, command)
        self.app.refresh(layout=True)

    def action_close(self) -> None:
        self.app.exit()

    def action_pause_chosen(self) -> None:
        if (row := self.chosen) is not None and row.live:
            verb = "resume" if row.status == "paused" else "pause"
            self.run_worker(self._act(row, "ctl", "run", verb), name=verb)

    def action_stop_chosen(self) -> None:
        row = self.chosen
        if row is None or not row.live:
            return
        if self._stopping != _key(row):
            self._stopping = _key(row)
            again = app_of(self).user.keys.name_of("fleet-stop")
            self.notify(f"{again} again stops {row.name}")
            return
        self._stopping = None
        self.run_worker(self._act(row, "ctl", "run", "stop"), name="stop")

    async def _act(self, row: RunSummary, *words: str) -> None:
        self.app.notify(await self._fleet.act(row, *words))
        await self._take()


def _key(row: RunSummary) -> tuple[str, str]:
    return row.host, row.path


def _style(row: RunSummary, palette: Palette) -> Style:
    if row.silent or row.status in ("failed", "killed", "unreachable", "unreadable"):
        return palette.bad
    if row.status == "paused" or row.alarms:
        return palette.attention
    return palette.text if row.live else palette.muted
