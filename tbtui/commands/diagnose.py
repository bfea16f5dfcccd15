"""`tbtui diagnose`: what is wrong with a run, ranked, on the console."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from tbtui.config import RunConfig, fixed_on_resume, live_effects
from tbtui.ctl.reading import RunReading, read_run
from tbtui.ctl.targets import choose_run
from tbtui.findings import Finding, Remedy
from tbtui.invocation import to_type
from tbtui.terminal import visible
from tbtui.ui.drawing.text import sparkline
from tbtui.view.diagnosis.rules import diagnose
from tbtui.view.ending import name_to_type, read_ending
from tbtui.view.times import Outlook

_COLOURS = {"blocks": "bold red", "costs": "yellow", "watch": "dim"}
_HEAD = 10
_NAMED = 6
"""Trials that are named."""


def print_diagnosis(run: str | None, *, as_json: bool) -> bool:
    """Print the findings; returns whether one of them blocks the run or costs it something.

    Raises:
        UserError: there is no such run, or several.
        JournalError: it can't be read.
    """
    with read_run(choose_run(run)) as reading:
        found = diagnose(Outlook(reading.state, reading.now))
        if as_json:
            sys.stdout.write(json.dumps(document(reading, found), indent=1) + "\n")
        else:
            _print(reading, found)
    return any(each.severity != "watch" for each in found)


def document(reading: RunReading, found: tuple[Finding, ...]) -> dict[str, Any]:
    """All findings, the most important first."""
    return {
        "run": reading.directory.name,
        "status": reading.status,
        "step": reading.state.step,
        "findings": [
            {
                "finding": each.rule,
                "severity": each.severity,
                "share": round(each.share, 4),
                "figure": each.text,
                "limit": each.limit,
                "why": each.why,
                "advice": each.advice,
                "trend": [round(value, 6) for value in each.trend],
                "trials": list(each.trials),
                "setting": None if each.remedy is None else each.remedy.setting,
                "value": None if each.remedy is None else each.remedy.value,
                "preview": None if each.remedy is None else each.remedy.preview,
                "command": None if each.remedy is None else command_for(each.remedy, reading),
            }
            for each in found
        ],
    }


def command_for(remedy: Remedy, reading: RunReading) -> str:
    """The command that makes the change: now, as the run is resumed, or for the next run."""
    name = name_to_type(reading.directory, RunConfig().logs_dir)
    if reading.live and remedy.setting in live_effects():
        return to_type("ctl", "config", "set", remedy.text, "--run", name)
    ending = read_ending(reading.directory)
    anew = ending.to_start_anew(reading.directory, remedy.text)
    if reading.live or remedy.setting in fixed_on_resume():
        return anew
    return ending.to_resume(name, remedy.text) or anew


def _print(reading: RunReading, found: tuple[Finding, ...]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if not found:
        name = visible(reading.directory.name)
        console.print(f"{name}: nothing is wrong by these rules", markup=False)
        return
    for each in found:
        style = _COLOURS[each.severity]
        blocks = _trend(each)
        console.print(
            Text.assemble(
                (f"{each.severity:<{_HEAD}}", style),
                (f"{each.rule.words}: ", "bold"),
                visible(each.text),
                (f"  {blocks}" if blocks else "", style),
            )
        )
        for head, text in _facts(each, reading):
            console.print(Text.assemble(" " * _HEAD, (f"{head:<{_HEAD}}", "dim"), visible(text)))


def _facts(each: Finding, reading: RunReading) -> list[tuple[str, str]]:
    facts = [("threshold", each.limit), ("cause", each.why), ("fix", each.advice)]
    known = reading.state.trials
    labels = [known[name].label for name in reversed(each.trials) if name in known]
    if labels:
        first = list(dict.fromkeys(labels))[:_NAMED]
        more = ", ..." if len(set(labels)) > len(first) else ""
        facts.append(("trials", f"{len(labels)}: {', '.join(first)}{more}"))
    if (remedy := each.remedy) is not None:
        facts.append(("setting", f"{remedy.text}: {remedy.preview}"))
        facts.append(("command", command_for(remedy, reading)))
    return facts


def _trend(each: Finding) -> str:
    """The latest values, drawn against their own maximum."""
    most = max((abs(value) for value in each.trend), default=0.0)
    if len(each.trend) < 2 or not most:
        return ""
    return sparkline([value / most for value in each.trend], min(16, len(each.trend)))
