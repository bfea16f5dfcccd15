"""What the app costs under load: `python tests/benchmarks/ui_load.py`.

Three processes: one writes a run (64 trials that print four times a second and sample some 300
tokens a second together; those that end make room for others), one is the app in a pty of
220 x 60, this one drains the pty and, with --keys, presses keys and waits for what they should
bring. With --speed the run's time goes faster than ours. Prints what it measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tbtui.journal.rundir import RunDirectory
from tbtui.terminal import set_delays
from tests import session
from tests.terminal import Terminal

SETTLING_SEC = 4.0
"""From the app's start until it is measured."""
PRINTS = 4
"""Prints of each trial a second."""
TURN_SECONDS = 40.0
"""So long, about, that 64 trials sample 300 tokens a second."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is written and shown."""

    trials: int = 64
    seconds: float = 20.0
    """For which it is measured."""
    fps: str = "normal"
    speed: float = 1.0
    """How fast the run's clock goes, against ours."""
    size: tuple[int, int] = (220, 60)
    """Columns and rows."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of the app; `keys_ms` has one for each key that was pressed."""

    lag_p99_ms: float
    lag_max_ms: float
    cpu_share: float
    """As a share of one core."""
    rss_mb: float
    rss_growth: float
    """Growth in the last third of the time, as a share."""
    events: int
    run_minutes: float
    """By the run's clock, that were shown."""
    tokens_per_sec: float
    """Per second of the run's clock."""
    output_kb_per_sec: float
    keys_ms: tuple[float, ...] = ()


def drive(load: Load, keys: bool = False) -> Measured:
    """Play the load to an app in a pty; with `keys`, press some all the while."""
    with tempfile.TemporaryDirectory() as place:
        run, report = RunDirectory.create(Path(place) / "run"), Path(place) / "report.json"
        given = json.dumps(asdict(load))
        write = [sys.executable, __file__, "--write", str(run.path), "--load", given]
        with subprocess.Popen(write) as writer:
            try:
                while not (run.path / "began").exists():
                    time.sleep(0.05)
                show = [__file__, "--show", run.path, "--report", report, "--load", given]
                with open_terminal([sys.executable, *map(str, show)], load.size) as terminal:
                    pressed = KeyPresses(terminal) if keys else None
                    painted = drain(terminal, SETTLING_SEC + load.seconds, pressed)
                if not report.exists():
                    raise SystemExit("the app has broken: --show says why")
                result = json.loads(report.read_text())
                seconds, tokens = played(run)
            finally:
                writer.terminate()
    output = painted / 1000 / load.seconds
    return Measured(
        **result,
        run_minutes=seconds / 60,
        tokens_per_sec=tokens,
        output_kb_per_sec=output,
        keys_ms=() if pressed is None else tuple(pressed.latencies_ms),
    )


def played(run: RunDirectory) -> tuple[float, float]:
    """Seconds by the run's clock since the load began to be played, and tokens a second of them."""
    began = json.loads((run.path / "began").read_text())["at"]
    with contextlib.closing(sqlite3.connect(run.database)) as journal:
        counts = journal.execute(
            "SELECT time, json_extract(body, '$.sampled_tokens') FROM events"
            " WHERE kind = 'policy_measured' AND time >= ? ORDER BY seq",
            (began,),
        ).fetchall()
    (first, before), (last, after) = counts[0], counts[-1]
    return last - first, (after - before) / (last - first)


# The terminal


def open_terminal(command: list[str], size: tuple[int, int]) -> Terminal:
    """Run a command in a terminal as `tbtui` itself would, which sets delays before it imports."""
    environment = {**os.environ, "COLORTERM": "truecolor"}
    set_delays(environment)
    return Terminal(*command, size=size, controls=False, env=environment)


def drain(terminal: Terminal, seconds: float, pressed: KeyPresses | None) -> int:
    """Read until the app has gone; the bytes between settling and `seconds`."""
    painted, began = 0, time.monotonic()
    while (data := terminal.read(0.005)) is not None:
        if SETTLING_SEC <= time.monotonic() - began < seconds:
            painted += len(data)
            if pressed is not None:
                pressed.look(data)
    return painted


class KeyPresses:
    """Presses a key, waits for what it should bring, and after a while presses the next one."""

    SELECTED = re.compile(rb"48;2;108;182;255m *(\w+-\d+/\d+)")
    """The label in the chosen tile's heading, on the dark theme's accent."""
    # Up and down, in and out; what is written of each comes with nothing else. It begins at the
    # first trial: at the end of its row none is to the right.
    ROUND = (
        ("\x1b[H", ""),
        *(("\x1b[C", "tile"), ("\x1b[B", "tile"), ("\x1b[D", "tile"), ("\x1b[A", "tile")),
        # Of a closed group, first its tiles.
        *(("\r", ""), ("\r", "turns"), ("\x1b", "▸"), ("\x1b", "")),
        *(("?", "everywhere"), ("\x1b", "")),
    )

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._keys = itertools.cycle(self.ROUND)
        self._awaited: str | None = None
        self._since = 0.0
        self._next = 0.0
        self._seen = b""
        self._tile = b""
        self._random = random.Random(0)
        self.latencies_ms: list[float] = []

    def look(self, data: bytes) -> None:
        """At what has come; called all the while, whether anything has or not."""
        now = time.monotonic()
        self._seen = self._seen[-4096:] + data
        if self._awaited is not None and self._answered(self._awaited):
            self.latencies_ms.append((now - self._since) * 1000)
            self._awaited = None
            self._next = now + self._random.uniform(0.2, 0.6)
        elif self._awaited is None and now >= self._next:
            key, awaited = next(self._keys)
            self._seen = b""
            self._terminal.type(key)
            self._since = now
            if awaited:
                self._awaited = awaited
            else:
                self._next = now + 1.0

    def _answered(self, awaited: str) -> bool:
        if awaited != "tile":
            return awaited.encode() in self._seen
        chosen = self.SELECTED.findall(self._seen)
        moved = bool(chosen) and chosen[-1] != self._tile
        self._tile = chosen[-1] if chosen else self._tile
        return moved


# The run


def write_run(run: RunDirectory, load: Load) -> None:
    """Play the load in real time, or faster, until somebody ends this process."""
    from tests.ui.synthetic import Simulation

    simulation = Simulation(
        run,
        steps=1_000_000,
        groups=32,
        group_size=8,
        parallel=load.trials,
        eval_every=10,
        turn_seconds=TURN_SECONDS,
    )
    while len(simulation.acting()) < load.trials:
        simulation.advance(simulation.now + 1.0)
    rng = random.Random(0)
    words = [
        " ".join(f"\x1b[3{rng.randrange(8)}m{rng.random():.8f}" for _ in range(20)) + "\x1b[0m\r\n"
        for _ in range(200)
    ]
    first, began = simulation.now, time.time()
    (run.path / "began").write_text(json.dumps({"at": first, "began": began}))
    for beat in itertools.count(1):
        simulation.advance(first + beat / PRINTS)
        for trial in simulation.acting():
            simulation.print_in(trial, rng.choice(words))
        time.sleep(max(0.0, began + beat / PRINTS / load.speed - time.time()))


# The app


def show_run(run: RunDirectory, load: Load, report: Path) -> None:
    """The app; measures itself once it has settled, and leaves."""
    from tbtui.ui.app import TbtuiApp
    from tbtui.ui.services import WatchedRun
    from tbtui.ui.user import frames_per_second

    begun = json.loads((run.path / "began").read_text())

    def clock() -> float:
        return float(begun["at"] + (time.time() - begun["began"]) * load.speed)

    fps = frames_per_second(load.fps)
    app = TbtuiApp(WatchedRun(run), clock=clock, fps=fps, theme="tbtui-dark")

    async def measure() -> dict[str, float]:
        import psutil

        await asyncio.sleep(SETTLING_SEC)
        process = psutil.Process()
        lags: list[float] = []
        memory: list[int] = []
        cpu, wall = process.cpu_times(), time.monotonic()
        while (passed := time.monotonic() - wall) < load.seconds:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            lags.append((time.monotonic() - before - 0.01) * 1000)
            if passed > len(memory) * load.seconds / 30:
                memory.append(process.memory_info().rss)
        spent = process.cpu_times()
        passed = time.monotonic() - wall
        lags.sort()
        return {
            "lag_p99_ms": lags[int(len(lags) * 0.99)],
            "lag_max_ms": lags[-1],
            "cpu_share": (spent.user + spent.system - cpu.user - cpu.system) / passed,
            "rss_mb": memory[-1] / 2**20,
            "rss_growth": memory[-1] / memory[len(memory) * 2 // 3] - 1,
            "events": app.live_run.state.seq,
        }

    async def both() -> dict[str, float]:
        task = asyncio.ensure_future(measure())
        task.add_done_callback(lambda _: app.exit(0))
        await app.run_async()
        if app.crash is not None:
            raise app.crash
        return await task

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    report.write_text(json.dumps(asyncio.run(both())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fps", default="normal", help="as of tbtui run: low, normal, 1 to 10")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--size", default="220x60")
    parser.add_argument("--keys", action="store_true")
    parser.add_argument("--load", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--show", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        return write_run(RunDirectory(given.write), Load(**given.load))
    if given.show:
        return show_run(RunDirectory(given.show), Load(**given.load), given.report)
    session.begin()
    width, _, height = given.size.partition("x")
    size = int(width), int(height)
    load = Load(given.trials, given.seconds, given.fps, given.speed, size)
    print(load)
    for name, value in asdict(drive(load, given.keys)).items():
        if name != "keys_ms":
            print(f"  {name:<20}{value:>10,.2f}")
        elif value:
            ordered = sorted(value)
            print(f"  {len(value)} keys: p50 {ordered[len(value) // 2]:.0f} ms, worst", end=" ")
            print(", ".join(f"{each:.0f}" for each in ordered[-5:]))
    print("  load average " + " ".join(f"{each:.1f}" for each in os.getloadavg()))
    return None


if __name__ == "__main__":
    main()
