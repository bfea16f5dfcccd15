"""What a run prints without the app."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

from tbtui.console import HumanLines, follow, json_line, printable
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    DeadlinePassed,
    GroupRefilled,
    Noted,
    Outcome,
    RunFinished,
    RunPaused,
    StepFinished,
    StepStarted,
    TrialExcluded,
    TrialPaused,
    TrialResumed,
    TrialRetried,
    WorkerRecycled,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter

from ..view.story import entries, finished, one_step_run, queued, started


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


def test_every_act_of_steering_is_one_line() -> None:
    lines = human(
        [
            StepStarted(step=1, groups={"g": "copy-01"}),
            CommandIssued(command="a", verb="freeze", target="t1", actor="ann", reason="stuck"),
            TrialPaused(trial="t1", frozen=True),
            CommandDone(command="a", ok=True, result=""),
            TrialResumed(trial="t1"),
            TrialPaused(trial="t1"),
            CommandDone(command="b", ok=False, result="t2 is still queued: nothing to pause"),
            TrialExcluded(trial="t1", excluded=True, reason="it cheated"),
            TrialExcluded(trial="t1", excluded=False),
            TrialRetried(trial="t1", successor="t1b", reason="sandbox_lost", wait_sec=4.0),
            GroupRefilled(step=1, group="g", trials=("t8", "t9")),
            DeadlinePassed(step=1, action="stop", trials=("t3",)),
            WorkerRecycled(worker=1, pid=7, reason="it had grown to 600 MB"),
            RunPaused(),
            # Of a paused run each trial says nothing new.
            TrialPaused(trial="t4"),
        ]
    )
    assert lines == [
        "asked   ann: freeze t1 (stuck)",
        "trial   t1 is frozen, its processes stopped",
        "done    freeze t1",
        "trial   t1 goes on",
        "trial   t1 is paused at the end of its turn",
        "refused t2 is still queued: nothing to pause",
        "trial   t1 is left out of training: it cheated",
        "trial   t1 counts for training again",
        "trial   t1 is attempted again in 4 s as t1b (sandbox_lost)",
        "group   copy-01 is refilled with t8, t9",
        "step    1 has had its time; stopped and verified: t3",
        "worker  1 is replaced: it had grown to 600 MB",
        "run     paused: no trial starts, running ones end their turn first",
    ]


def test_a_step_says_what_was_masked_and_what_it_waited_for() -> None:
    metrics = {"time/total": 3.0, "time/sampling": 2.5, "time/training": 0.5}
    lines = human(
        [
            started(),
            queued("t1"),
            finished("t1", None, Outcome.CONTEXT_OVERFLOW),
            StepFinished(
                step=1,
                weights_version=1,
                metrics={**metrics, "time/wait/sampling": 2.0, "time/wait/queue": 0.5},
            ),
        ]
    )
    assert "trial   t1 context_overflow, masked: because" in lines
    assert lines[-1] == (
        "step    1/2 · no reward · context_overflow 1 · 1 masked"
        " · 3.0s (trials 2.5, training 0.5; waited for sampling 80%, queue 20%)"
    )
