"""`tbtui export`: trials into files, or one to the output; metrics as a chart or as values."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tbtui.config import parse_settings
from tbtui.errors import UserError
from tbtui.export.record import TrialRecord, read_advantages, read_trial
from tbtui.journal.database import JournalError, require_format
from tbtui.journal.metrics import metric_names
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, find_run
from tbtui.journal.timeline import find_trial
from tbtui.paths import PathError, expanded
from tbtui.view.chart_files import ChartFormat, chart_file_name, chart_text, write_chart
from tbtui.view.charts import ChartReader, ChartRequest, available
from tbtui.view.exports import ExportFormat, file_name, require_free, write_export


def export(
    run: str, trial: str | None, format: ExportFormat, out: Path | None, *, overwrite: bool
) -> str:
    """Export trials; returns one line that says where they went, empty for standard output.

    Raises:
        UserError: one line for a person.
    """
    directory = find_run(run, parse_settings([]).logs_dir)
    require_format(directory)
    if out is not None and str(out) != "-":
        try:
            out = expanded(out)
        except PathError as error:
            raise UserError(f"--out {error}") from error
    if trial is None:
        return _all(directory, format, out, overwrite=overwrite)
    return _one(directory, find_trial(directory, trial), format, out, overwrite=overwrite)


def _one(
    run: RunDirectory, trial: str, format: ExportFormat, out: Path | None, *, overwrite: bool
) -> str:
    if str(out) == "-":
        sys.stdout.write(rendered(read_trial(run, trial), format))
        return ""
    path = out if out is not None else Path(file_name(trial, format))
    if path.is_dir():
        path /= file_name(trial, format)
    export_trial(run, trial, format, path, overwrite=overwrite)
    return f"wrote {path}"


def _all(run: RunDirectory, format: ExportFormat, out: Path | None, *, overwrite: bool) -> str:
    if str(out) == "-":
        raise UserError("- takes one trial: name it, or a directory with --out")
    directory = out if out is not None else Path(f"{run.name}-{format}")
    if directory.is_file():
        raise UserError(f"{directory}: a file; name a trial, or a directory for all of them")
    advantages = read_advantages(run)
    written, without = 0, 0
    unreadable: list[JournalError] = []
    for trial in _finished(run):
        if format == "cast" and not run.recording(trial).is_file():
            without += 1
            continue
        path = directory / file_name(trial, format)
        try:
            export_trial(run, trial, format, path, overwrite=overwrite, advantages=advantages)
        except JournalError as error:
            unreadable.append(error)
            continue
        written += 1
    rest = f"; {without} without a recording" if without else ""
    said = f"wrote {written} trials to {directory}{rest}"
    if unreadable:
        raise UserError(f"{said}; not {len(unreadable)} more: {unreadable[0]}")
    return said


def _finished(run: RunDirectory) -> list[str]:
    with closing(JournalReader(run)) as reader:
        return reader.trials("trial_finished")


def export_trial(
    run: RunDirectory,
    trial: str,
    format: ExportFormat,
    path: Path,
    *,
    overwrite: bool = False,
    advantages: Mapping[str, float | None] | None = None,
) -> None:
    """Write a trial to a file, whole or not at all.

    Args:
        advantages: `read_advantages` of the run, for a caller that writes many; else they are read.

    Raises:
        UserError: the file is there already or can't be written; or the trial isn't there, or
            has nothing of this kind.
        JournalError: the journal can't be read.
    """
    path = expanded(path)
    require_free(path, overwrite=overwrite)
    write_export(path, rendered(read_trial(run, trial, advantages), format), overwrite=overwrite)


def rendered(record: TrialRecord, format: ExportFormat) -> str:
    """The file's text.

    Raises:
        UserError: the trial has nothing of this kind.
    """
    match format:
        case "cast":
            from tbtui.export.formats import cast

            return cast(record)
        case "atif":
            from tbtui.export.formats import atif

            return atif(record)
        case "jsonl":
            from tbtui.export.formats import json_lines

            return json_lines(record)
        case "html":
            from tbtui.export.page import page

            return page(record)


# Metrics of runs

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
        UserError, UserError, RunDirectoryError, JournalError: one line for a person.
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
            raise UserError(f"--metric {name}: {directories[0].name} has no such metric{hint}")
    chart = ChartReader().read(directories, request, _COLUMNS)
    if chart.troubles:
        raise UserError(chart.troubles[0])
    if str(out) == "-":
        sys.stdout.write(chart_text(chart, format))
        return ""
    metrics = tuple(panel.metric for panel in chart.panels)
    few = metrics if len(metrics) <= 2 else (f"{len(metrics)}-metrics",)
    name = chart_file_name(directories[0].name, few, format)
    try:
        path = expanded(out) if out is not None else Path(name)
    except PathError as error:
        raise UserError(f"--out {error}") from error
    if path.is_dir():
        path /= name
    if path.suffix != f".{format}":
        raise UserError(f"--out {path}: --format {format} needs a name that ends in .{format}")
    write_chart(chart, path, overwrite=overwrite)
    return f"wrote {path}"
