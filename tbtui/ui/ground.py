"""What lies under the panes: painted at the price of one row."""

from __future__ import annotations

from textual.containers import Horizontal, Vertical
from textual.geometry import Region
from textual.strip import Strip

from tbtui.ui.painted import Painted


class Ground(Painted):
    """Nothing is on it but its children, so all of its rows are alike.

    Textual makes every row of every container, though panes cover nearly all of them: half of what
    a paint of the whole screen costs.
    """

    BLANK = True

    def render_lines(self, crop: Region) -> list[Strip]:
        if not crop.height:
            return []
        return super().render_lines(Region(crop.x, crop.y, crop.width, 1)) * crop.height


class Columns(Horizontal, Ground):
    """Panes side by side."""


class Rows(Vertical, Ground):
    """Panes one below the other."""
