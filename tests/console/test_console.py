"""What a run prints without the app."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

from tbtui.console import HumanLines, follow, json_line, printable
from tbtui.journal.events import AnyEvent, Noted, RunFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter

from ..view.story import entries, one_step_run


def human(events: list[AnyEvent]) -> list[str]:
    lines = HumanLines()
    return [line for entry in entries(events) for line in lines.lines(entry)]


def test_a_run_reads_as_a_story() -> None:
    lines = human(list(one_step_run()))
    text = "\n".join(lines)
    assert "policy  local starter, 0.77M parameters" in text
    assert "tasks   1 to train on, 1 held out, from /tasks/starter" in text
    assert "eval    after step 0: held-out pass rate 0.00 of 1 trials · move 0.00" in text
    assert "trial   t3 sandbox_lost: because" in text
    assert "step    1/2 · reward 0.50 · failed 1 sandbox_lost 1 solved 1" in text
    assert lines[-1] == "finished: 1 step, held-out pass rate 0.00 -> 0.50"


def test_the_last_line_of_a_failed_run_is_the_reason() -> None:
    lines = human([RunFinished(status="failed", reason="the disk is full")])
    assert lines[-1] == "failed: the disk is full"


def test_json_lines_are_whole_events() -> None:
    events = list(one_step_run())
    for entry, event in zip(entries(events), events, strict=True):
        line = json_line(entry)
        assert "\n" not in line
        fields = json.loads(line)
        assert fields["kind"] == event.kind
        assert fields["seq"] == entry.seq


def test_nothing_that_is_printed_can_steer_the_terminal() -> None:
    hostile = "\x1b[2J\x07\x9b31m\r\x7f[bold]"
    (line,) = human([Noted(level="warning", text=hostile)])
    assert line == "warning ␛[2J␇␡31m␍␡[bold]"
    assert "\x9b" not in json_line(entries([Noted(level="warning", text=hostile)])[0])
    assert printable("naïve 🦀 日本") == "naïve 🦀 日本"


async def test_a_journal_is_followed_until_it_is_complete(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    complete = asyncio.Event()
    out = io.StringIO()
    following = asyncio.create_task(follow(run, complete, HumanLines().lines, out))
    await asyncio.sleep(0)
    with JournalWriter(run) as writer:
        for event in one_step_run():
            writer.append(event)
        complete.set()
        await following
    assert out.getvalue().splitlines()[-1].startswith("finished:")


async def test_a_run_that_never_wrote_is_followed_to_nothing(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    complete = asyncio.Event()
    complete.set()
    out = io.StringIO()
    await follow(run, complete, HumanLines().lines, out)
    assert out.getvalue() == ""
