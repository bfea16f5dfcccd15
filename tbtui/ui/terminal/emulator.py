"""A terminal's screen from the bytes written to it. The only module that knows bittty."""

from __future__ import annotations

from functools import lru_cache

from bittty import Board  # type: ignore[import-untyped]
from bittty.style import Color as CellColor  # type: ignore[import-untyped]
from bittty.style import Style as CellStyle
from bittty.video import Cell  # type: ignore[import-untyped]
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tbtui.ui.drawing.text import visible
from tbtui.ui.theme.palette import Palette

MAX_COLUMNS = 500
MAX_ROWS = 200


class Emulator:
    """One terminal screen of a fixed size. `version` grows whenever it may have changed."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns = min(max(1, columns), MAX_COLUMNS)
        self.rows = min(max(1, rows), MAX_ROWS)
        self.version = 0
        self.failure = ""
        """Why it stopped following its terminal; empty while all is well."""
        self._board = Board(width=self.columns, height=self.rows)
        self._strips: list[Strip | None] = [None] * self.rows
        self._seen = 0
        self._seen_version = -1
        self._page: object = None
        self._palette: Palette | None = None
        self._used: tuple[int, int] = (-1, 0)

    def __del__(self) -> None:
        # bittty's board and its devices hold each other: half a megabyte that only the collector
        # would free, and seldom does.
        board = self._board
        for device in vars(board).values():
            if hasattr(device, "__dict__") and vars(device).get("board") is board:
                vars(device).clear()
        vars(board).clear()

    def feed(self, text: str) -> None:
        """Write to the terminal. Whatever the text does, it does it to this screen only."""
        if self.failure:
            return
        self.version += 1
        board = self._board
        try:
            board.parser.feed(text)
            if (board.width, board.height) != (self.columns, self.rows):
                # Output may ask a terminal to resize itself; a recording's size is its header's.
                board.resize(self.columns, self.rows)
        except Exception as error:  # noqa: BLE001 - hostile bytes must never end the app
            self.failure = f"this terminal can't be shown any further ({error!r})"

    @property
    def cursor(self) -> tuple[int, int] | None:
        """Column and row; None while the program hides it."""
        cursor: tuple[int, int] | None = self._board.display.cursor
        return cursor

    def row(self, y: int, palette: Palette) -> Strip:
        """One row in full width, in the palette's colours; cached until it changes."""
        self._drop_changed(palette)
        strip = self._strips[y]
        if strip is None:
            strip = self._strips[y] = _render(self._board.display.page.grid[y], palette)
        return strip

    def plain(self, y: int) -> str:
        return "".join(char for _, char in self._board.display.page.grid[y]).rstrip()

    def window(self, height: int) -> range:
        """The rows to show in `height`: down to the last one with text, the cursor's among them."""
        used = self.used_rows()
        top = max(0, used - height)
        cursor = self.cursor
        if cursor is not None and cursor[1] < top:
            # A program that uses the whole screen: what happens is where the cursor is.
            top = max(0, cursor[1] - height // 2)
        return range(top, min(self.rows, top + height))

    def used_rows(self) -> int:
        """Rows down to the last one with text on it, the cursor's included."""
        version, used = self._used
        if version != self.version:
            grid = self._board.display.page.grid
            cursor = self.cursor
            used = 0 if cursor is None else cursor[1] + 1
            for y in range(len(grid) - 1, used - 1, -1):
                if any(char not in ("", " ") for _, char in grid[y]):
                    used = y + 1
                    break
            self._used = (self.version, used)
        return used

    def _drop_changed(self, palette: Palette) -> None:
        page = self._board.display.page
        if self._palette is not palette:
            self._palette = palette
            self._strips = [None] * self.rows
        elif self._seen_version != self.version:
            for y in page.dirty_rows(self._seen):
                self._strips[y] = None
        else:
            return
        # The alternate screen is another page with generations of its own.
        if self._page is not page:
            self._page = page
            self._strips = [None] * self.rows
        self._seen = page.observe()
        self._seen_version = self.version


def _render(cells: list[Cell], palette: Palette) -> Strip:
    segments: list[Segment] = []
    run: list[str] = []
    style: CellStyle | None = None
    width = len(cells)
    for x, (cell_style, char) in enumerate(cells):
        if cell_style is not style and cell_style != style:
            if run and style is not None:
                segments.append(Segment("".join(run), _style(style, palette)))
                run = []
            style = cell_style
        if char and (char < " " or char > "~"):
            wide = x + 1 < width and cells[x + 1][1] == ""
            char = _cell_text(char, 2 if wide else 1)
        run.append(char)
    if run and style is not None:
        segments.append(Segment("".join(run), _style(style, palette)))
    return Strip(segments, width)


@lru_cache(maxsize=4096)
def _cell_text(char: str, width: int) -> str:
    """A cell's text in exactly as many cells as the emulator gave it."""
    text = visible(char)
    if cell_len(text) == width:
        return text
    # Emulator and screen disagree about this character's width: show a stand-in.
    return "�".ljust(width) if text else " " * width


@lru_cache(maxsize=8192)
def _style(style: CellStyle, palette: Palette) -> Style:
    base = palette.terminal
    return Style(
        color=_colour(style.fg, palette) or base.color,
        bgcolor=_colour(style.bg, palette) or base.bgcolor,
        bold=style.bold or None,
        dim=style.dim or None,
        italic=style.italic or None,
        underline=style.underline or None,
        reverse=style.reverse or None,
        strike=style.strike or None,
        conceal=style.conceal or None,
    )


def _colour(colour: CellColor | None, palette: Palette) -> Color | None:
    if colour is None:
        return None
    match colour.value:
        case int(index) if 0 <= index < 16:
            return palette.ansi[index]
        case int(index) if index < 256:
            # Not Color.from_ansi: terminals draw the first 16 of those in colours of their own.
            red, green, blue = Color.from_ansi(index).get_truecolor()
            return Color.from_rgb(red, green, blue)
        case (int(red), int(green), int(blue)):
            return Color.from_rgb(red, green, blue)
        case _:
            return None
