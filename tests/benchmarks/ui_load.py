"""What the app costs under load: `python tests/benchmarks/ui_load.py`.

Three processes: one writes a run (trials that print four times a second and sample a completion
every second), one is the app in a pty of 220 x 60, this one drains the pty. Prints a table of
the app's loop lag, CPU share, memory and output; compare with the targets beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import random
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

MOST_OUTPUT = {"normal": 300.0, "low": 60.0}
"""kB/s to the terminal."""
TARGETS = {"lag_p99_ms": 50.0, "cpu_share": 0.40, "rss_mb": 250.0}


def write_run(directory: Path, trials: int, seconds: float) -> None:
    """Play the load in real time."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ui"))
    import numpy as np
    from synthetic import PROMPT, Simulation, completion, turns_of

    from tbtui.journal.events import (
        AgentCommand,
        PolicyMeasured,
        RunPhase,
        RunPhaseChanged,
        StepStarted,
        TrialPhase,
        TrialPhaseChanged,
        TrialQueued,
        TurnObserved,
        TurnParsed,
        TurnSampled,
        TurnStarted,
    )
    from tbtui.journal.rundir import RunDirectory
    from tbtui.journal.samples import SampleRecord
    from tbtui.journal.writer import JournalWriter

    run = RunDirectory(directory)
    simulation = Simulation(run, steps=1)
    simulation._heap.clear()
    simulation._writer._clock = time.time
    # Its first step writes who runs what; the load takes the place of the rest.
    next(simulation._main())
    writer: JournalWriter = simulation._writer
    names = [f"copy-{n:02d}" for n in range(trials)]
    writer.append(StepStarted(step=1, groups={"g": "copy-01"}))
    writer.append(RunPhaseChanged(phase=RunPhase.SAMPLING, step=0))
    casts = {}
    for name in names:
        writer.append(
            TrialQueued(
                trial=name,
                label=f"{name}/1",
                task="copy-01",
                group="g",
                step=1,
                purpose="train",
                budget_sec=600,
            )
        )
        writer.append(TrialPhaseChanged(trial=name, phase=TrialPhase.ACTING))
        path = run.recording(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        casts[name] = path.open("w")
        casts[name].write(json.dumps({"version": 2, "width": 160, "height": 40}) + "\n")
    rng = random.Random(0)
    begin, turn, tokens = time.monotonic(), 0, 0
    while (now := time.monotonic() - begin) < seconds:
        for name in names:
            words = " ".join(f"\x1b[3{rng.randrange(8)}m{rng.random():.8f}" for _ in range(20))
            print(json.dumps([round(now, 3), "o", f"{words}\x1b[0m\r\n{PROMPT}"]), file=casts[name])
            casts[name].flush()
        if int(now * 4) % 4 == 0:
            turn += 1
            for name in names:
                script = turns_of("copy", rng, True)[0]
                text = completion(script)
                pieces = tuple(text[i : i + 4] for i in range(0, len(text), 4))
                logprobs = -np.array([rng.random() ** 4 * 5 for _ in pieces], dtype=np.float32)
                tokens += len(pieces)
                writer.append(TurnStarted(trial=name, turn=turn))
                sample = writer.add_sample(
                    SampleRecord(
                        name, turn, (1, 2), tuple(range(len(pieces))), logprobs, pieces, "", "stop",
                        1, 1.0, 0.2,
                    )
                )  # fmt: skip
                writer.append(
                    TurnSampled(
                        trial=name,
                        turn=turn,
                        sample=sample,
                        text=text,
                        prompt_tokens=2,
                        completion_tokens=len(pieces),
                        mean_logprob=-0.4,
                        min_logprob=-5,
                        stop_reason="stop",
                        weights_version=1,
                        seconds=0.2,
                    )
                )
                writer.append(
                    TurnParsed(
                        trial=name,
                        turn=turn,
                        analysis=script.analysis,
                        plan=script.plan,
                        commands=(AgentCommand(keystrokes="ls\n", duration_sec=0.1),),
                        task_complete=False,
                    )
                )
                writer.append(TurnObserved(trial=name, turn=turn, observation=PROMPT, seconds=0.1))
            writer.append(
                PolicyMeasured(
                    activity="sampling",
                    in_flight=8,
                    running=8,
                    completed=turn * trials,
                    sampled_tokens=tokens,
                    p50_sec=0.2,
                    p95_sec=0.4,
                )
            )
        time.sleep(max(0.0, begin + (int(now * 4) + 1) / 4 - time.monotonic()))


def show_run(directory: Path, seconds: float, report: Path, fps: int) -> None:
    """The app; measures itself from its third second on."""
    from tbtui.journal.commands import Command
    from tbtui.journal.rundir import RunDirectory
    from tbtui.ui.app import TbtuiApp
    from tbtui.ui.host import RunEnd

    class Follower:
        def __init__(self) -> None:
            self.directory = RunDirectory(directory)

        def start(self) -> None: ...

        def submit(self, command: Command) -> None: ...

        def interrupt(self) -> None: ...

        outlives = False
        read_only = ""

        async def ended(self) -> RunEnd:
            await asyncio.sleep(3600)
            raise AssertionError

    app = TbtuiApp(Follower(), fps=fps)

    result: dict[str, float] = {}

    async def measure() -> None:
        import psutil

        await asyncio.sleep(3)
        process = psutil.Process()
        lags = []
        cpu, wall = process.cpu_times(), time.monotonic()
        while time.monotonic() - wall < seconds:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append((time.monotonic() - before - 0.01) * 1000)
        spent = process.cpu_times()
        lags.sort()
        result.update(
            {
                "lag_p50_ms": lags[len(lags) // 2],
                "lag_p99_ms": lags[int(len(lags) * 0.99)],
                "lag_max_ms": lags[-1],
                "cpu_share": (spent.user + spent.system - cpu.user - cpu.system)
                / (time.monotonic() - wall),
                "rss_mb": process.memory_info().rss / 2**20,
                "events": app.live_run.state.seq,
            }
        )
        app.exit(0)

    async def both() -> None:
        task = asyncio.ensure_future(measure())
        await app.run_async()
        await task

    asyncio.run(both())
    report.write_text(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fps", default="normal", help="as of tbtui run: low, normal, 1 to 10")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--show", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    from tbtui.ui.settings import frames_per_second

    if given.write:
        return write_run(given.write, given.trials, given.seconds + 6)
    if given.show:
        return show_run(given.show, given.seconds, given.report, frames_per_second(given.fps))
    with tempfile.TemporaryDirectory() as place:
        _drive(Path(place), given.trials, given.seconds, given.fps)
    return None


def _drive(place: Path, trials: int, seconds: float, fps: str) -> None:
    from tbtui.journal.rundir import RunDirectory

    run, report = RunDirectory.create(place / "run").path, place / "report.json"
    common = [sys.executable, __file__, "--trials", str(trials), "--seconds", str(seconds)]
    common += ["--fps", fps]
    writer = subprocess.Popen([*common, "--write", str(run)])
    while not (run / "run.db").exists():
        time.sleep(0.05)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 220, 0, 0))
    screen = subprocess.Popen(
        [*common, "--show", str(run), "--report", str(report)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
    )
    os.close(slave)
    painted = 0
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        painted += len(data)
    screen.wait()
    writer.terminate()
    writer.wait()
    result = json.loads(report.read_text())
    result["output_kb_per_sec"] = painted / 1000 / (seconds + 3)
    what = f"{trials} trials, 4 updates/s each, {seconds:.0f} s, 220 x 60, fps {fps}"
    sys.stdout.write(f"{what}\n")
    targets = {**TARGETS, "output_kb_per_sec": MOST_OUTPUT["low" if fps == "low" else "normal"]}
    for name, value in result.items():
        target = targets.get(name)
        verdict = (
            ""
            if target is None
            else f"   target <= {target:g}: {'ok' if value <= target else 'MISSED'}"
        )
        sys.stdout.write(f"  {name:<20}{value:>10,.2f}{verdict}\n")


if __name__ == "__main__":
    main()
