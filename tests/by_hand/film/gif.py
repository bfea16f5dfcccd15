"""An asciicast as an animated GIF: the one moving picture that every README shows as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tbtui.ui.terminal.emulator import Emulator
from tbtui.ui.theme.palette import Palette
from tests.by_hand.film.screencast import Cast

FONTS = Path("/usr/share/fonts/truetype/dejavu")
FONT_SIZE, CELL = 12, (7, 15)
"""Pixels. A window of 120 columns is 840 wide, which a README shows without shrinking it."""
FRAME_SEC = 0.5
"""Time between two looks at the screen."""
LONGEST_SEC = 2.6
"""Longest time for which nothing moves: what a program waits for is cut."""
COLOURS = 128
LEVELS = 4
"""Shades of a character's edge."""

BRAILLE = "".join(map(chr, range(0x2800, 0x2900)))
BRAILLE_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and line of each bit: Unicode's chapter 21.1."""

type Picture = Image.Image


class Painter:
    """Draws a terminal's rows, each only once while it stays as it is."""

    def __init__(self, palette: Palette) -> None:
        self._palette = palette
        self._fonts = {
            bold: ImageFont.truetype(
                str(FONTS / f"DejaVuSansMono{'-Bold' if bold else ''}.ttf"), FONT_SIZE
            )
            for bold in (False, True)
        }
        self._glyphs: dict[tuple[str, bool], Picture] = {}
        self._rows: dict[tuple[Segment, ...], Picture] = {}

    def paint(self, screen: Emulator) -> Picture:
        """Return the screen as a picture, its cursor included."""
        picture = Image.new("RGB", (screen.columns * CELL[0], screen.rows * CELL[1]))
        for y in range(screen.rows):
            picture.paste(self._row(screen.row(y, self._palette)), (0, y * CELL[1]))
        if screen.cursor is not None:
            x, y = screen.cursor
            at = (x * CELL[0], y * CELL[1], (x + 1) * CELL[0] - 1, (y + 1) * CELL[1] - 1)
            ImageDraw.Draw(picture).rectangle(at, outline="#d3dae6")
        return picture

    def _row(self, strip: Strip) -> Picture:
        segments = tuple(strip)
        if segments not in self._rows:
            self._rows[segments] = self._draw(strip)
        return self._rows[segments]

    def _draw(self, strip: Strip) -> Picture:
        row = Image.new("RGB", (strip.cell_length * CELL[0], CELL[1]))
        x = 0
        for text, style, _ in strip:
            front, back = self._colours(style or Style.null())
            for char in text:
                row.paste(back, (x, 0, x + CELL[0], CELL[1]))
                row.paste(front, (x, 0), self._glyph(char, bold=bool(style and style.bold)))
                x += CELL[0]
        return row

    def _glyph(self, char: str, *, bold: bool) -> Picture:
        """Return how much of each pixel the character covers, in few levels: they compress well."""
        if (char, bold) not in self._glyphs:
            mask = Image.new("L", CELL)
            draw = ImageDraw.Draw(mask)
            if char in BRAILLE:
                _dots(draw, ord(char) - ord(BRAILLE[0]))
            else:
                draw.text((0, 0), char, fill=255, font=self._fonts[bold])
            step = 255 / (LEVELS - 1)
            self._glyphs[char, bold] = mask.point(
                [round(round(v / step) * step) for v in range(256)]
            )
        return self._glyphs[char, bold]

    def _colours(self, style: Style) -> tuple[tuple[int, ...], tuple[int, ...]]:
        ground = self._palette.terminal
        front = _rgb(style.color or ground.color)
        back = _rgb(style.bgcolor or ground.bgcolor)
        if style.reverse:
            front, back = back, front
        if style.dim:
            front = tuple((a + b) // 2 for a, b in zip(front, back, strict=True))
        return front, back


def _dots(draw: ImageDraw.ImageDraw, bits: int) -> None:
    """Draw the dots of a Braille pattern, which the font lacks."""
    for bit, (column, line) in enumerate(BRAILLE_DOTS):
        if bits >> bit & 1:
            left, top = 1 + 3 * column, 1 + 4 * line
            draw.rectangle((left, top, left + 1, top + 1), fill=255)


def _rgb(colour: Color | None) -> tuple[int, ...]:
    return tuple(colour.get_truecolor()) if colour is not None else (0, 0, 0)


def frames(cast: Cast, palette: Palette, begins: str) -> Iterator[tuple[Picture, float]]:
    """Yield each picture that differs from the one before, and the seconds that it stands.

    It begins where the screen shows `begins`: what doesn't play a film has its first picture only.
    """
    painter, screen = Painter(palette), Emulator(cast.columns, cast.rows)
    shown: Picture | None = None
    since = due = 0.0
    for at, text in cast.output:
        if at >= due and (shown is not None or _shows(screen, begins)):
            picture = painter.paint(screen)
            if shown is not None and picture.tobytes() != shown.tobytes():
                yield shown, min(at - since, LONGEST_SEC)
            if shown is None or picture.tobytes() != shown.tobytes():
                since = at
            shown = picture if shown is None or picture.tobytes() != shown.tobytes() else shown
            due = at + FRAME_SEC
        screen.feed(text)
    yield painter.paint(screen), LONGEST_SEC


def _shows(screen: Emulator, text: str) -> bool:
    return any(text in screen.plain(y) for y in range(screen.rows))


def write(cast: Cast, palette: Palette, path: Path, begins: str) -> None:
    """Write the film; all frames share their colours, so that they differ only where it moves."""
    pictures, seconds = zip(*frames(cast, palette, begins), strict=True)
    common = _common_colours(pictures)
    quantized = [each.quantize(palette=common, dither=Image.Dither.NONE) for each in pictures]
    quantized[0].save(
        path,
        save_all=True,
        append_images=quantized[1:],
        duration=[max(20, round(each * 100) * 10) for each in seconds],
        loop=0,
        optimize=False,
        disposal=1,
    )


def _common_colours(pictures: tuple[Picture, ...]) -> Picture:
    """Return a picture whose palette has the colours that most pixels have."""
    counts = Counter[tuple[int, int, int]]()
    for each in pictures:
        counts.update({colour: count for count, colour in each.getcolors(1 << 16)})
    common = Image.new("P", (1, 1))
    common.putpalette([part for colour, _ in counts.most_common(COLOURS) for part in colour])
    return common
