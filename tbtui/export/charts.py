"""`tbtui export --metric`: metrics of runs as a chart (SVG) or as values (CSV)."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tbtui.config import parse_settings
from tbtui.export.record import ExportError
from tbtui.journal.database import require_format
from tbtui.journal.metrics import metric_names
from tbtui.journal.rundir import find_run
from tbtui.paths import PathError, expanded
from tbtui.view.chart_files import ChartFormat, chart_file_name, chart_text, write_chart
from tbtui.view.charts import PROFILE, ChartReader, ChartRequest, available

ALL = "all"
_COLUMNS = 900
"""Points that a line of a picture is drawn with at most."""


def export_chart(
    runs: Sequence[str],
    request: ChartRequest,
    format: ChartFormat,
    out: Path | None,
    *,
    overwrite: bool,
) -> str:
    """Write a chart; returns one line that says where it went, empty for standard output.

    Args:
        runs: directories or names; the first one's metrics are asked for.
        request: `ALL` for its metrics is all that the first run has; without any it is the usual
            ones, as far as that run has them.

    Raises:
        ExportError, ChartFileError, RunDirectoryError, JournalError: one line for a person.
    """
    logs_dir = parse_settings([]).logs_dir
    directories = [find_run(run, logs_dir) for run in runs]
    for directory in directories:
        require_format(directory)
    known = metric_names(directories[0])
    if request.metrics == (ALL,):
        request = replace(request, metrics=known)
    elif not request.metrics:
        request = replace(request, metrics=available(ChartRequest().metrics, known))
    for name in request.metrics if request.axis != "position" else ():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ExportError(f"--metric {name}: {directories[0].name} has no such metric{hint}")
    chart = ChartReader().read(directories, request, _COLUMNS)
    if chart.troubles:
        raise ExportError(chart.troubles[0])
    if str(out) == "-":
        sys.stdout.write(chart_text(chart, format))
        return ""
    metrics = (PROFILE,) if request.axis == "position" else request.metrics
    few = metrics if len(metrics) <= 2 else (f"{len(metrics)}-metrics",)
    name = chart_file_name(directories[0].name, few, format)
    try:
        path = expanded(out) if out is not None else Path(name)
    except PathError as error:
        raise ExportError(f"--out {error}") from error
    if path.is_dir():
        path /= name
    if path.suffix != f".{format}":
        raise ExportError(f"--out {path}: --format {format} needs a name that ends in .{format}")
    write_chart(chart, path, overwrite=overwrite)
    return f"wrote {path}"
