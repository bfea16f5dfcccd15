"""A run whose texts no terminal should be sent."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from textual.pilot import Pilot

from tbtui.journal.events import AgentCommand, Noted, TrialPhase, TrialPhaseChanged, TurnObserved
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import sample_record, trial_queued, turn_parsed, write_answer
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
    writer.append(trial_queued(name, label=text[:200]))
    writer.append(TrialPhaseChanged(trial=name, phase=TrialPhase.ACTING, detail=text))
    pieces = (text[: len(text) // 2], text[len(text) // 2 :])
    logprobs = np.array([-0.1, -4.0], dtype=np.float32)
    write_answer(
        writer,
        sample_record(name, pieces, prompt_text=text, logprobs=logprobs),
        text=text,
        prompt_tokens=2,
        mean_logprob=-2.0,
        min_logprob=-4.0,
        stop_reason="length",
    )
    keys = (AgentCommand(keystrokes=text, duration_sec=0.1),)
    writer.append(turn_parsed(name, analysis=text, plan=text, commands=keys, error=text))
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
