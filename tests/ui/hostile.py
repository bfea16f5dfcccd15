"""A run whose texts no terminal should be sent."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from textual.pilot import Pilot

from tbtui.journal.events import (
    AgentCommand,
    Noted,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TurnObserved,
    TurnParsed,
    TurnStarted,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import SampleRecord
from tbtui.journal.writer import JournalWriter
from tests.events import turn_sampled
from tests.ui.opening import run_at

HOSTILE = [
    "[/]",
    "[bold red]not bold[/bold red] [@click=app.leave]x[/] [link=http://x]",
    "\x1b[2J\x1b[31mred\x1b]0;title\x07\x1bP1$q\x1b\\",
    "nul\x00bell\x07back\x08del\x7fcsi\x9b31m",
    "line\nline\r\nline\rtab\tend",
    "\u202eright to left\u202c \u200bzero\u2066width\u2069",
    "e" + "\u0301" * 7 + " \U0001f469\u200d\U0001f469\u200d\U0001f467 \u2708\ufe0f 漢字",
    "\ud83d broken surrogate".encode("utf-8", "replace").decode(),
    "x" * 100_000,
    "漢" * 20_000,
]


def hostile_run(path: Path, text: str) -> RunDirectory:
    """A run whose one trial, task and note say `text` wherever words can stand."""
    run = run_at(path, 0.5)
    writer = JournalWriter(run, clock=lambda: 1_750_000_001.0, continues=True)
    name = "hostile"
    writer.append(
        TrialQueued(
            trial=name,
            label=text[:200],
            task="copy-01",
            group="g",
            step=1,
            purpose="train",
            budget_sec=60,
        )
    )
    writer.append(TrialPhaseChanged(trial=name, phase=TrialPhase.ACTING, detail=text))
    writer.append(TurnStarted(trial=name, turn=1))
    pieces = (text[: len(text) // 2], text[len(text) // 2 :])
    sample = writer.add_sample(
        SampleRecord(
            trial=name,
            turn=1,
            prompt_ids=(1, 2),
            completion_ids=(3, 4),
            logprobs=np.array([-0.1, -4.0], dtype=np.float32),
            pieces=pieces,
            prompt_text=text,
            stop_reason="length",
            weights_version=0,
            temperature=1.0,
            seconds=0.1,
        )
    )
    writer.append(
        turn_sampled(
            name,
            sample=sample,
            text=text,
            prompt_tokens=2,
            mean_logprob=-2.0,
            min_logprob=-4.0,
            stop_reason="length",
        )
    )
    writer.append(
        TurnParsed(
            trial=name,
            turn=1,
            analysis=text,
            plan=text,
            commands=(AgentCommand(keystrokes=text, duration_sec=0.1),),
            task_complete=False,
            error=text,
        )
    )
    writer.append(TurnObserved(trial=name, turn=1, observation=text, seconds=0.1))
    writer.append(Noted(level="error", text=text))
    writer.close()
    recording = run.recording(name)
    recording.parent.mkdir()
    recording.write_text(
        json.dumps({"version": 2, "width": 160, "height": 40})
        + "\nnot json\n[1]\n"
        + json.dumps([0.1, "o", text])
        + '\n[0.2, "o", "cut off'
    )
    return run


def check_screen(pilot: Pilot[int]) -> None:
    width = pilot.app.size.width
    for strip in pilot.app.screen._compositor.render_strips():
        assert strip.text.isprintable()
        assert strip.cell_length == width
