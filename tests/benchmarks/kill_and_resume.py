"""What `kill -9` does to a run: `python tests/benchmarks/kill_and_resume.py [KILLS [SEED]]`.

One run is left alone. Another one, with the same settings, is killed at random moments and resumed
each time through the real command, with real trials and the embedded policy. Prints where it was
killed and how it went on, and compares the two runs: rewards of every step, optimiser steps,
held-out pass rates, and the final checkpoint file by file.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.engines.grpo.checkpoint_state import load_checkpoint
from tbtui.engines.grpo.history import place_of
from tbtui.engines.grpo.recorded import CUT_OFF
from tbtui.journal.events import (
    EvalFinished,
    GroupScored,
    Outcome,
    RunContinued,
    RunPhaseChanged,
    StepFinished,
    TrialFinished,
    TrialQueued,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tests import session

_PATIENCE_SEC = 300
_AT_START = 0.2
"""Share of kills that come before the first trial."""

TASKS = (
    *("mkdir-01", "mkdir-02", "remove-01", "remove-02", "copy-01", "copy-02"),
    *("mkdir-07", "remove-07", "copy-07"),
)
HELD_OUT = "mkdir-07,remove-07,copy-07"
DEFAULTS = {
    "max_steps": "16",
    "batch_size": "2",
    "group_size": "4",
    "save_every": "4",
    "eval_every": "5",
    "eval_tasks": HELD_OUT,
    # The sampler's arithmetic depends on how many requests share a batch, in the last bits of a
    # log-probability. One at a time, two runs with one seed are the same to the last bit.
    "n_parallel_envs": "1",
}


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, and how the run went on after it."""

    moment: str
    continued: RunContinued | None
    """None: the run had not begun, or had finished before the kill."""


def write_tasks(directory: Path) -> Path:
    for name in TASKS:
        shutil.copytree(tasks_dir() / "starter" / name, directory / name)
    return directory


def start(logs: Path, *arguments: str) -> subprocess.Popen[bytes]:
    output = (logs / "output.txt").open("ab")
    with output:
        return subprocess.Popen(
            [sys.executable, "-m", "tbtui", "run", "--no-ui", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "XDG_STATE_HOME": str(logs / "state")},
            start_new_session=True,
        )


def events(run: RunDirectory, after: int = 0, kind: type[Any] = object) -> list[Any]:
    if not run.database.exists():
        return []
    with contextlib.closing(JournalReader(run)) as reader:
        found = []
        while entries := reader.read(after):
            found += [entry.event for entry in entries if isinstance(entry.event, kind)]
            after = entries[-1].seq
        return found


def last_seq(run: RunDirectory) -> int:
    if not run.database.exists():
        return 0
    with contextlib.closing(JournalReader(run)) as reader:
        return reader.last_seq()


def wait_for(process: subprocess.Popen[bytes], condition: Callable[[], object]) -> None:
    """Until the condition holds or the process has ended."""
    deadline = time.monotonic() + _PATIENCE_SEC
    while process.poll() is None and not condition():
        if time.monotonic() > deadline:
            process.kill()
            raise TimeoutError("the run does not get on")
        time.sleep(0.02)


def killed_part(
    run: RunDirectory, draw: random.Random, longest_sec: float, arguments: Sequence[str]
) -> str | None:
    """Start or resume the run and kill it at a random moment; None: it ended before that."""
    before = last_seq(run)
    how = ("--resume", str(run.path)) if run.database.exists() else arguments
    process = start(run.path.parent, *how)
    if draw.random() < _AT_START:
        wait_for(process, lambda: last_seq(run) > before)
    else:
        wait_for(process, lambda: _verdicts(run, before))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(draw.uniform(0, longest_sec))
    if process.poll() is not None:
        if process.returncode != 0:
            raise RuntimeError((run.path.parent / "output.txt").read_text()[-2000:])
        return None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return moment(run)


def _verdicts(run: RunDirectory, after: int) -> list[TrialFinished]:
    return [e for e in events(run, after, TrialFinished) if e.verdict is not None]


def moment(run: RunDirectory) -> str:
    """Where the run is, by its last events."""
    phase = events(run, kind=RunPhaseChanged)[-1]
    queued = {event.trial for event in events(run, kind=TrialQueued)}
    ended = {event.trial for event in events(run, kind=TrialFinished)}
    return f"{phase.phase} after step {phase.step}, {len(queued - ended)} trials open"


def rewards(run: RunDirectory) -> dict[int, dict[tuple[str, int], tuple[float | None, ...]]]:
    """Step -> place -> reward and advantage."""
    found: dict[int, dict[tuple[str, int], tuple[float | None, ...]]] = {}
    for event in events(run, kind=GroupScored):
        places = found.setdefault(event.step, {})
        for trial, score in event.trials.items():
            place = place_of(trial, event.group)
            assert place not in places, f"{trial} is scored twice"
            places[place] = score.reward, score.advantage
    return found


def curve(run: RunDirectory) -> list[tuple[int, int, float | None]]:
    found = events(run, kind=EvalFinished)
    return [(event.step, event.weights_version, event.pass_rate) for event in found]


def final_weights(run: RunDirectory) -> dict[str, str]:
    """File -> digest of the last checkpoint."""
    state = load_checkpoint(max(run.checkpoints.glob("step-*")))
    return {name: record.sha256 for name, record in state.files.items()}


def lost_or_doubled(run: RunDirectory) -> list[str]:
    """Places with other than one outcome of the policy's own."""
    groups = {event.trial: event.group for event in events(run, kind=TrialQueued)}
    ends: dict[tuple[str, int], int] = {
        place_of(trial, group): 0 for trial, group in groups.items()
    }
    for event in events(run, kind=TrialFinished):
        cut_off = event.outcome is Outcome.CANCELLED and event.reason in CUT_OFF
        ends[place_of(event.trial, groups[event.trial])] += not cut_off
    return [f"{group}-{index}: {count}" for (group, index), count in ends.items() if count != 1]


def differences(one: RunDirectory, other: RunDirectory) -> list[str]:
    """What must be the same and is not."""
    first, second = rewards(one), rewards(other)
    found = [
        f"rewards of step {step}"
        for step in sorted(first.keys() | second.keys())
        if first.get(step) != second.get(step)
    ]
    steps = [[e.step for e in events(run, kind=StepFinished)] for run in (one, other)]
    if steps[0] != steps[1]:
        found.append(f"steps {steps[0]} and {steps[1]}")
    if curve(one) != curve(other):
        found.append(f"evaluations {curve(one)} and {curve(other)}")
    if final_weights(one) != final_weights(other):
        found.append("the final weights")
    return found + [f"{place} outcomes" for place in lost_or_doubled(other)]


def experiment(
    where: Path, kills: int, seed: int, longest_sec: float, settings: dict[str, str]
) -> tuple[RunDirectory, RunDirectory, list[Kill]]:
    """The run that was left alone, the one that was killed, and its kills."""
    tasks = write_tasks(where / "tasks")
    shared = [f"{name}={value}" for name, value in (DEFAULTS | settings).items()]
    shared += [f"tasks_dir={tasks}", f"logs_dir={where}", f"seed={seed}"]
    alone, killed = RunDirectory(where / "alone"), RunDirectory(where / "killed")
    if start(where, *shared, "run_name=alone").wait(_PATIENCE_SEC) != 0:
        raise RuntimeError((where / "output.txt").read_text()[-2000:])

    draw = random.Random(seed)
    moments: list[str] = []
    while len(moments) < kills:
        known = killed_part(killed, draw, longest_sec, [*shared, "run_name=killed"])
        if known is None:
            break
        moments.append(known)
    else:
        if start(where, "--resume", str(killed.path)).wait(_PATIENCE_SEC) != 0:
            raise RuntimeError((where / "output.txt").read_text()[-2000:])
    continued = _after_each_kill(killed, moments)
    return alone, killed, [Kill(*both) for both in zip(moments, continued, strict=True)]


def _after_each_kill(run: RunDirectory, moments: Sequence[str]) -> list[RunContinued | None]:
    """A part that was killed before it could say how it goes on has no `RunContinued`."""
    parts: list[RunContinued | None] = []
    for event in events(run):
        if isinstance(event, RunPhaseChanged) and event.detail == "loading the policy":
            parts.append(None)
        elif isinstance(event, RunContinued):
            parts[-1] = event
    return parts[1 : len(moments) + 1]


def table(kills: Sequence[Kill]) -> str:
    lines = [f"{'killed while':<44} {'checkpoint':<12} {'replayed':<14} {'reused':>6} requeued"]
    for kill in kills:
        event = kill.continued
        if event is None:
            lines.append(f"{kill.moment:<44} (killed again before it went on)")
            continue
        steps = ",".join(map(str, event.replayed)) or "-"
        since = event.checkpoint.removeprefix("checkpoints/") if event.checkpoint else "none"
        lines.append(
            f"{kill.moment:<44} {since:<12} {steps:<14} {event.reused:>6} {len(event.requeued):>8}"
        )
    return "\n".join(lines)


def main(kills: int, seed: int, settings: dict[str, str]) -> int:
    session.begin()
    where = Path(tempfile.mkdtemp(prefix="tbtui-kill-"))
    began = time.monotonic()
    alone, killed, moments = experiment(where, kills, seed, 4.0, settings)
    print(table(moments))
    found = differences(alone, killed)
    trained = len(events(killed, kind=StepFinished))
    print(f"{len(moments)} kills, {trained} steps, {time.monotonic() - began:.0f} s in all")
    print("evaluations:", ", ".join(f"step {s}: {r}" for s, _, r in curve(killed)))
    print("different: " + "; ".join(found) if found else "no difference; the same final weights:")
    for name, digest in final_weights(killed).items():
        print(f"  {digest[:16]} {name}")
    if found:
        print(f"both runs are kept in {where}")
        return 1
    shutil.rmtree(where)
    return 0


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if "=" in argument]
    numbers = [int(argument) for argument in sys.argv[1:] if "=" not in argument]
    sys.exit(
        main(
            numbers[0] if numbers else 20,
            numbers[1] if len(numbers) > 1 else 0,
            dict(argument.split("=", 1) for argument in given),
        )
    )
