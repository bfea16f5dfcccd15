"""`tbtui export`: one trial into a file or to the output, or every trial into a directory."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from tbtui.config import parse_settings
from tbtui.export.record import ExportError, read_advantages, read_trial
from tbtui.export.trial import export_trial, rendered
from tbtui.journal.database import JournalError, require_format
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, find_run
from tbtui.journal.timeline import find_trial
from tbtui.paths import PathError, expanded
from tbtui.view.exports import ExportFormat, file_name


def export(
    run: str, trial: str | None, format: ExportFormat, out: Path | None, *, overwrite: bool
) -> str:
    """Do it; returns one line that says where it went, empty when it went to the output.

    Raises:
        ConfigError, ExportError, RunDirectoryError, JournalError, TrialNameError: one line for a
            person.
    """
    directory = find_run(run, parse_settings([]).logs_dir)
    require_format(directory)
    if out is not None and str(out) != "-":
        try:
            out = expanded(out)
        except PathError as error:
            raise ExportError(f"--out {error}") from error
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
        raise ExportError("- takes one trial: name it, or a directory with --out")
    directory = out if out is not None else Path(f"{run.name}-{format}")
    if directory.is_file():
        raise ExportError(f"{directory}: a file; name a trial, or a directory for all of them")
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
        raise ExportError(f"{said}; not {len(unreadable)} more: {unreadable[0]}")
    return said


def _finished(run: RunDirectory) -> list[str]:
    with closing(JournalReader(run)) as reader:
        return reader.trials("trial_finished")
