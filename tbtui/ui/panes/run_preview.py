"""The preview of the chosen run in the list of runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from textual.strip import Strip

from tbtui.ui.drawing.charts import Series, axes
from tbtui.ui.drawing.group_rows import group_row, heading_row, row_layout
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import Name, clip, rate, wrap
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.theme.palette import Palette
from tbtui.view.charts import thinned
from tbtui.view.preview import RunPreview, changed_settings
from tbtui.view.runs import RunSummary

type Defaults = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_CHART = 7
"""Rows of the curves at least."""


class RunPreviewPane(Pane):
    """Curves, how it went, the newest step's groups, notes, the settings that differ from the
    defaults."""

    EVERY = 2

    def __init__(self, id: str, defaults: Defaults | None) -> None:
        """`defaults`: of every setting, for a run of given settings."""
        super().__init__(id)
        self.summary: RunSummary | None = None
        self.preview: RunPreview | None = None
        """None: it is being read."""
        self._defaults = defaults

    def title(self, frame: Frame) -> str:
        return "" if self.summary is None else self.summary.directory.name

    def key(self, frame: Frame) -> Hashable:
        return self.summary, id(self.preview)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, summary, preview = frame.palette, self.summary, self.preview
        if summary is None or preview is None:
            return [row(width, (" reading the run" if summary else "", palette.faint))]
        if preview.trouble:
            return [row(width, (f" {preview.trouble}", palette.bad))]
        head = [_outcome(summary, palette, width)]
        notes = [row(width, (" ✎ ", palette.accent), (n, palette.text)) for n in preview.notes[-3:]]
        notes += [
            row(width, (" ! ", palette.attention), (text, palette.text))
            for text in preview.warnings[-2:]
        ]
        settings = self._settings(preview, palette, width)
        room = height - len(head) - len(notes)
        if room - _CHART < len(settings) and width < 100:
            settings = settings[: max(1, room - _CHART)]
        if room < _CHART:
            return [*head, *notes, *settings]
        room -= len(settings)
        groups = _groups(preview, palette, width, room - _CHART)
        chart = min(max(_CHART, room - len(groups)), 18)
        curves = _curves(preview, palette, width, chart)
        return [*head, *curves, *groups, *notes, *settings]

    def _settings(self, preview: RunPreview, palette: Palette, width: int) -> list[Strip]:
        if self._defaults is None or preview.settings is None:
            return []
        changed = changed_settings(preview.settings, self._defaults(preview.settings))
        if not changed:
            return [row(width, (" every setting is the default", palette.faint))]
        text = " · ".join(f"{name}={clip(_shown(value), 40)}" for name, value in changed)
        return [row(width, (f" {part}", palette.muted)) for part in wrap(text, width - 2)]


def _outcome(summary: RunSummary, palette: Palette, width: int) -> Strip:
    style = {"live": palette.accent, "finished": palette.good}.get(summary.standing, palette.bad)
    left: list[Span] = [(f" {summary.standing}", style)]
    if summary.reason:
        left.append((f" · {summary.reason}", palette.text))
    return split_row(width, left, [(Name(f"{summary.model_name} "), palette.muted)])


def _groups(preview: RunPreview, palette: Palette, width: int, height: int) -> list[Strip]:
    """The newest step's groups, in the rows that the cockpit has for them, as far as they fit."""
    groups = preview.groups
    if not groups or height < 3:
        return []
    layout = row_layout(groups, width)
    # Below a heading of two rows.
    shown = groups if len(groups) <= height - 2 else groups[: height - 3]
    rows = [
        row(width, (f" step {preview.step}", palette.strong)),
        heading_row(layout, palette),
        *(
            group_row(group, layout, palette, preview.until, chosen=None, opened=False)
            for group in shown
        ),
    ]
    if left := len(groups) - len(shown):
        rows.append(row(width, (f"   and {left} more", palette.faint)))
    return rows


def _curves(preview: RunPreview, palette: Palette, width: int, height: int) -> list[Strip]:
    training, held_out = preview.training, preview.held_out
    if not training and not held_out:
        return [row(width, (" no step or evaluation has finished", palette.faint))]
    last = max(point.x for point in (*training, *held_out)) or 1.0
    values = [
        (" • held out ", palette.held_out),
        (rate(held_out[-1].y if held_out else None).strip(), palette.strong),
        ("  ⠤ training ", palette.training),
        (rate(training[-1].y if training else None).strip(), palette.strong),
    ]
    training, held_out = (thinned(points, 0.0, last, width) for points in (training, held_out))
    series = [
        Series(tuple((p.x, p.y) for p in training), palette.training),
        Series(
            tuple((p.x, p.y) for p in held_out),
            palette.held_out,
            marks=len(held_out) <= width // 4,
            band=tuple((p.x, p.low, p.high) for p in held_out),
            band_style=palette.faint,
        ),
    ]
    chart = axes(series, width - 1, height - 1, last, (0.0, 1.0), palette.muted)
    return [row(width, *values), *(row(width, *spans) for spans in chart)]


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
