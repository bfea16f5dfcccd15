"""A stand-in for Prime-RL's launcher `rl`: its command line, files, parts and ends. It trains
nothing, and needs no GPU. After prime-rl 559b447 (`entrypoints/rl.py`, `utils/pathing.py`).

`STAND_IN_RL` says what becomes of it:

    whole    every step, then its end
    refuses  nothing, for it doesn't like the file
    early    nothing, though a dry run saw no fault
    crash    the trainer dies of a CUDA error
    server   an environment server dies, and no part says why but that one
    hold     one step, then its parts wait until they are ended
    slurm    a job is submitted, which somebody else runs

`STAND_IN_PIDS` names a file that takes the numbers of all its processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from tests.engines.prime_rl.recorded_run import BEGIN, RecordedRun

WAITING = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""


class LaunchedRun(RecordedRun):
    """One that other launches may have written into before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.attempt = len(list(path.glob("logs/attempt_*")))

    def step(self, step: int) -> None:
        start = BEGIN + 100 * step
        episodes = [
            self.episode(
                f"s{step}t{member}a{self.attempt}",
                step,
                group=f"g{step}a{self.attempt}",
                reward=float(member == 0),
                start=start,
                version=step - 1,
            )
            for member in (0, 1)
        ]
        for episode in episodes:
            self.arrived(episode, step)
        self.shipped(episodes, step, 0.5)
        self.orchestrator_row(step)
        self.broadcast(step)
        self.trained(step)
        if not (self.path / "checkpoints" / f"step_{step}").exists():
            self.checkpoint(step)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    at, file, *options = sys.argv[1:]
    assert at == "@"
    toml = tomllib.loads(Path(file).read_text())
    mode = os.environ.get("STAND_IN_RL", "whole")
    if mode == "refuses":
        say("12:00:00   ERROR Error occurred: 1 validation error for RLConfig")
        say("ValueError: seq_len is too short")
        return 1
    if mode == "early" and "--dry-run" not in options:
        say("12:00:00   ERROR Error occurred: Requested 2 GPUs")
        say("ValueError: Requested 2 GPUs, but only 1 is available")
        return 1
    place = Path(toml["output_dir"]) / toml["run"]["dir"]
    if "--dry-run" in options:
        (place / "configs").mkdir(parents=True)
        say("Dry run complete.")
        return 0
    if "resume" not in toml and place.is_dir() and any(place.iterdir()):
        raise FileExistsError(f"Run directory '{place}' already contains artifacts")
    if mode == "slurm":
        say("12:00:00 SUCCESS Submitted batch job 4711")
        return 0
    run = LaunchedRun(place)
    say("12:00:00    INFO Starting RL run")
    return play(run, toml, mode)


def play(run: LaunchedRun, toml: dict[str, Any], mode: str) -> int:
    resumed = toml.get("resume", {}).get("step")
    run.launch(toml["max_steps"])
    if mode == "server":
        log = run.path / "logs" / "latest" / "envs" / "train" / "tb.log"
        log.parent.mkdir(parents=True)
        log.write_text("Traceback (most recent call last):\nImportError: no tbtui_harbor here\n")
        say("12:00:00   ERROR Error: Train env server tb failed with exit code 1")
        return 1
    if resumed is not None:
        run.clean_after(resumed)
    run.ready(resumed)
    last = 1 if mode in ("hold", "crash") else toml["max_steps"]
    for step in range((resumed or 0) + 1, last + 1):
        run.step(step)
    if mode == "crash":
        run.raw("trainer", "[default0]:Fatal error in train\n")
        run.raw("trainer", "[default0]:torch.OutOfMemoryError: CUDA out of memory\n")
        say("12:00:00   ERROR Error: Trainer failed with exit code 1")
        return 1
    if mode == "hold":
        hold()
    run.finished()
    return 0


def hold() -> NoReturn:
    """With a part in a session of its own, as torchrun has them, which takes no hint but one."""
    command = [sys.executable, "-c", WAITING]
    parts = [
        subprocess.Popen(command),
        subprocess.Popen([*command, "stubborn"], start_new_session=True),
    ]
    with Path(os.environ["STAND_IN_PIDS"]).open("a") as file:
        file.write("".join(f"{pid}\n" for pid in (os.getpid(), *(part.pid for part in parts))))

    def end(number: int, _: object) -> NoReturn:
        for part in parts:
            part.terminate()
        parts[0].wait()
        sys.exit(1)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    sys.exit(main())
