"""The reading half of `tbtui ctl`: tables for people, JSON for scripts. Everything raises
`UserError`, `JournalError` and `RunDirectoryError`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import typer

from tbtui.config import RunConfig
from tbtui.ctl.reading import (
    GROUP_COLUMNS,
    Row,
    RunReading,
    event_row,
    group_cells,
    policy_row,
    read_run,
    review_row,
    review_words,
    task_row,
    trial_row,
    without_content,
)
from tbtui.ctl.targets import choose_run, choose_trial
from tbtui.errors import UserError
from tbtui.terminal import visible
from tbtui.view.current import current_trials
from tbtui.view.curriculum import shares
from tbtui.view.runs import RunList, RunSummary, row_document, summarise, with_outlook
from tbtui.view.waiting import duration

_GAP = "  "
_SHOWN = (
    *("run", "directory", "status", "pid", "policy", "model", "phase", "waiting_for", "step"),
    *("max_steps", "pass_rate", "rollouts", "trials_running", "trials_queued", "alarms"),
    *("seconds", "silent_sec", "reason"),
)
"""Words of a run's row, for people."""


def list_runs(logs_dir: Path | None, *, ended: bool, as_json: bool) -> None:
    """Print live runs; with `ended` those of `logs_dir` that are over, too."""
    where = logs_dir or RunConfig().logs_dir
    listed = RunList((where,), outlook=True, elsewhere=True).read(-inf if ended else inf)
    listed.sort(key=lambda each: (not each.live, each.name, each.path))
    rows = [without_content(each) for each in listed]
    if as_json:
        print_json({"runs": [row_document(row) for row in rows]})
        return
    empty = f"no run in {where}" if ended else "no live run; those that are over: --ended"
    columns = ("run", "status", "step", "pass", "trials", "for", "waiting for / directory")
    print_table(columns, [_run_cells(row) for row in rows], empty)


def show_run(run: str | None, *, content: bool, as_json: bool) -> None:
    with read_run(choose_run(run)) as reading:
        summary = summarise(reading.directory)
        if summary.standing == "live":
            summary = with_outlook(summary, reading.state, reading.now)
        reviews = _review_rows(reading, content=content)
    row = row_document(summary if content else without_content(summary))
    if as_json:
        print_json(row | {"reviews": reviews})
        return
    words = "; ".join(map(review_words, reviews))
    _print_row({name: row[name] for name in _SHOWN} | {"reviews": words}, as_json)


def list_groups(run: str | None, *, content: bool, as_json: bool) -> None:
    """Print the groups of the steps that wait for a review."""
    with read_run(choose_run(run)) as reading:
        reviews = _review_rows(reading, content=content)
    if as_json:
        print_json({"run": reading.directory.name, "reviews": reviews})
        return
    cells = [line for review in reviews for line in group_cells(review)]
    print_table(GROUP_COLUMNS, cells, "no step waits for a review")


def list_trials(run: str | None, *, ended: bool, content: bool, as_json: bool) -> None:
    """Print the trials of the batches under way; with `ended` all that are kept."""
    with read_run(choose_run(run)) as reading:
        state = reading.state
        trials = state.trials.values() if ended else current_trials(state)
        rows = [trial_row(trial, reading, content=content) for trial in trials]
    if as_json:
        print_json({"run": reading.directory.name, "trials": rows})
        return
    columns = ["trial", "doing", "for", "idle", "reward", "step"]
    columns += ["last command, reason"] if content else []
    empty = "no trial" if ended else "no trial under way; those that are over: --ended"
    print_table(columns, [_trial_cells(row, content=content) for row in rows], empty)


def show_trial(trial: str, run: str | None, *, content: bool, as_json: bool) -> None:
    with read_run(choose_run(run)) as reading:
        view = choose_trial(trial, reading)
        _print_row(trial_row(view, reading, content=content), as_json)


def list_events(trial: str, run: str | None, after: int, *, content: bool, as_json: bool) -> None:
    """Print everything that the journal has of a trial; as JSON one event a line."""
    with read_run(choose_run(run)) as reading:
        name = _recorded_trial(trial, reading)
        for entry in reading.reader.read_trial(name, after):
            row = event_row(entry, content=content)
            if as_json:
                print_json(row)
            else:
                print_line(_event_line(row, reading.state.started_at or row["time"]))


def list_tasks(run: str | None, *, as_json: bool) -> None:
    with read_run(choose_run(run)) as reading:
        chances = shares(reading.state)
        rows = [
            task_row(task, reading.state, chances.get(task.name))
            for task in reading.state.tasks.values()
        ]
    if as_json:
        print_json({"run": reading.directory.name, "tasks": rows})
        return
    columns: tuple[str, ...]
    columns = ("task", "kind", "split", "pass rate", "lately", "scored", "unscored", "live")
    columns = (*columns, "wanted", "share", "p (95%)", "no signal")
    print_table(columns, [_task_cells(row) for row in rows], "no task is known yet")


def show_policy(run: str | None, *, as_json: bool) -> None:
    with read_run(choose_run(run)) as reading:
        _print_row(policy_row(reading.state, reading.now), as_json)


def show_settings(name: str | None, run: str | None, *, as_json: bool) -> None:
    """Print the settings in force now."""
    with read_run(choose_run(run)) as reading:
        settings = reading.state.settings
        if name is not None and name not in settings:
            raise UserError(f"{name}: {reading.directory.name} has no such setting")
        shown = settings if name is None else {name: settings[name]}
        if as_json:
            print_json(shown)
        else:
            print_facts({each: "none" if v is None else v for each, v in shown.items()})


def _review_rows(reading: RunReading, *, content: bool) -> list[Row]:
    reviews = reading.state.reviews.values() if reading.live else ()
    return [review_row(review, reading.now, content=content) for review in reviews]


def _recorded_trial(trial: str, reading: RunReading) -> str:
    """Its id: a trial that has left the state is in the journal still."""
    if reading.reader.last_time(trial) is not None:
        return trial
    return choose_trial(trial, reading).trial


def _print_row(row: Row, as_json: bool) -> None:
    if as_json:
        print_json(row)
    else:
        print_facts({name.replace("_", " "): value for name, value in row.items()})


def _run_cells(row: RunSummary) -> list[str]:
    what = row.waiting_for or row.reason
    return [
        row.name,
        row.status,
        row.steps if row.known else "",
        _rate(row.last_pass_rate),
        f"{row.trials_running}+{row.trials_queued}" if row.live else "",
        _time(row.seconds),
        f"{what} · {row.path}" if what else row.path,
    ]


def _trial_cells(row: Row, *, content: bool) -> list[str]:
    doing = row["doing"]
    if row["pending"]:
        doing += f" ({row['pending']} asked)"
    if row["excluded"]:
        doing += " (left out)"
    elif row["relabelled"]:
        doing += " (relabelled)"
    cells = [
        row["trial"],
        doing,
        _time(row["for_sec"]),
        _time(row["idle_sec"]),
        "" if row["reward"] is None else f"{row['reward']:g}",
        f"{row['purpose']} {row['step']}",
    ]
    return [*cells, row["last_command"] or row["reason"]] if content else cells


def _task_cells(row: Row) -> list[str]:
    counts = (str(row[name]) for name in ("scored", "unscored", "live"))
    return [
        row["task"],
        row["kind"] or "",
        row["split"],
        _rate(row["pass_rate"]),
        _rate(row["recent_rate"]),
        *counts,
        row["wanted"] or "",
        "" if row["share"] is None else f"{row['share']:.1%}",
        "" if row["p"] is None else f"{row['p']:.2f} {row['p_low']:.2f}–{row['p_high']:.2f}",
        "" if row["no_signal"] is None else f"{row['no_signal']:.0%}",
    ]


def _event_line(row: Row, start: float) -> str:
    shown = {k: v for k, v in row.items() if k not in ("seq", "time", "kind", "trial", "withheld")}
    words = " ".join(f"{name}={_short(value)}" for name, value in shown.items() if value != "")
    withheld = f" ({', '.join(row['withheld'])} withheld)" if row.get("withheld") else ""
    return f"{row['seq']:>7} {row['time'] - start:>8.1f}s {row['kind']:<20} {words}{withheld}"


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


# Output


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Columns as wide as what is in them; on a terminal the last one is cut at its edge.

    Without rows it is one line: `empty`.
    """
    if not rows:
        print_line(empty)
        return
    cells = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[n]) for row in [columns, *cells]) for n in range(len(columns))]
    room = _terminal_width()
    for row in [list(columns), *cells]:
        line = _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        _print_line(line.rstrip(), room)


def print_line(text: str) -> None:
    """Print a line, cut at a terminal's edge."""
    _print_line(visible(text), _terminal_width())


def _print_line(text: str, room: int | None) -> None:
    typer.echo(text if room is None or len(text) <= room else text[: room - 1] + "…")


def print_facts(facts: dict[str, Any]) -> None:
    """A name and a value on each line; what isn't known is left out."""
    known = {name: text for name, value in facts.items() if (text := _text(value))}
    width = max((len(name) for name in known), default=0)
    for name, text in known.items():
        typer.echo(f"{name.ljust(width)}{_GAP}{visible(text)}")


def _text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple() | dict():
            return json.dumps(value)
        case _:
            return str(value)


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
