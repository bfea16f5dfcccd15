"""How the tiles of the grid are laid out, from 1 to 64 and more. Pure."""

from __future__ import annotations

from dataclasses import dataclass

NARROWEST = 24
"""Columns of a tile that shows more than its glyph and label."""
GLYPH = 3
"""Cells of a tile before its label."""
_LABELS_ALONE = 14
"""Columns of a tile that has no room but for its glyph and label: only where the others would
not fit."""
_TALLEST = 12


@dataclass(frozen=True, slots=True)
class TileLayout:
    """Equal tiles, row by row."""

    columns: int
    width: int
    """Of a tile, the gap to its right included."""
    height: int

    def place(self, index: int) -> tuple[int, int]:
        """Column and row of a tile's upper left cell."""
        return index % self.columns * self.width, index // self.columns * self.height


def tile_layout(count: int, width: int, height: int, label: int = 0) -> TileLayout:
    """The columns that show the most of `count` terminals; one-line tiles when they are many,
    narrow ones when they are very many.

    `label` are the cells that the longest label needs: it is cut only where that lets all tiles
    be seen at once.
    """
    roomy = min(NARROWEST, GLYPH + label + 1)
    best: tuple[float, TileLayout] | None = None
    for columns in range(1, max(1, min(count, width // _LABELS_ALONE)) + 1):
        rows = -(-max(1, count) // columns)
        tile = TileLayout(columns, width // columns, max(1, min(_TALLEST, height // rows)))
        if tile.width < NARROWEST and columns > 1 and tile.height > 1:
            continue
        # A tile of one line shows a little of the terminal beside its label.
        lines = tile.height - 1 if tile.height > 1 else 0.4
        worth = min(tile.width, 72) * lines
        if tile.height * rows > max(1, height):
            # Some have to be scrolled to: the fewer the better.
            worth = (0.001 if tile.width >= roomy else 0.0001) * columns
        if best is None or worth > best[0]:
            best = (worth, tile)
    assert best is not None
    return best[1]
