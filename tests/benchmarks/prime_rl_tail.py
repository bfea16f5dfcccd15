"""Watching a run of Prime-RL's that writes a lot: `python tests/benchmarks/prime_rl_tail.py`.

This process appends rollouts to a run directory at a steady rate, the watcher is the real command
in a process of its own. It prints the share of a core that the watcher takes (its start not
counted) and how long after a rollout was written its end can be read in the journal. The figures
to reach at 20 MB a minute: at most 10% of a core, and at most 1 s behind. With `--hosted` our
plugin has reported each rollout too, and the trace is what completes the trial.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tbtui.journal.events import TrialFinished, TrialTraced
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tests.engines.prime_rl.hosted_run import HostedRun
from tests.engines.prime_rl.recorded_run import LAYOUTS, RecordedRun

LOOK_SEC = 0.02
TURNS = 20
TOKENS = 400
"""Sampled in each turn."""


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--mb-per-minute", type=float, default=20.0)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--layout", choices=LAYOUTS, default=LAYOUTS[0])
    arguments.add_argument("--hosted", action="store_true")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(
            Path(directory), given.layout, given.mb_per_minute, given.seconds, hosted=given.hosted
        )
    print(json.dumps(figures))


def measure(
    root: Path, layout: Any, mb_per_minute: float, seconds: float, *, hosted: bool
) -> dict[str, float]:
    run = RecordedRun(root / "run", layout)
    run.launch()
    run.ready()
    into = root / "journal"
    trials_dir = root / "trials" if hosted else None
    run.harness(trials_dir)
    command = [sys.executable, "-m", "tbtui", "prime-rl", "watch", str(run.path)]
    with subprocess.Popen([*command, "--into", str(into)], stdout=subprocess.DEVNULL) as watcher:
        try:
            journal = RunDirectory(into)
            return _measure(run, journal, trials_dir, watcher.pid, mb_per_minute, seconds)
        finally:
            watcher.terminate()


def _measure(
    run: RecordedRun,
    journal: RunDirectory,
    trials_dir: Path | None,
    pid: int,
    mb_per_minute: float,
    seconds: float,
) -> dict[str, float]:
    template = episode(run)
    size = len(json.dumps(template))
    every = size / (mb_per_minute * 1e6 / 60)
    while not journal.database.exists():
        time.sleep(LOOK_SEC)
    reader, process = JournalReader(journal), psutil.Process(pid)
    while not reader.last_seq():
        time.sleep(LOOK_SEC)
    # The start is over, and the first rollouts have warmed it up.
    written: dict[str, float] = {}
    behind: list[float] = []
    seq = number = 0
    kind = "trial_finished" if trials_dir is None else "trial_traced"
    begin = time.monotonic()
    cpu, counted = _cpu(process), begin
    while (now := time.monotonic()) < begin + seconds or written:
        if now < begin + seconds and now >= begin + number * every:
            trace = f"{number:032x}"[::-1]
            template["id"] = f"episode-{trace}"
            template["traces"][0]["id"] = trace
            name = trace if trials_dir is None else _told(trials_dir, trace, template)
            run.arrived(template, 1 + number // 32)
            written[name] = time.monotonic()
            number += 1
        for entry in reader.read_kinds((kind,), seq):
            seq = entry.seq
            assert isinstance(entry.event, TrialFinished | TrialTraced)
            at = written.pop(entry.event.trial)
            behind.append(time.monotonic() - at)
        time.sleep(LOOK_SEC)
    share = (_cpu(process) - cpu) / (time.monotonic() - counted)
    behind.sort()
    return {
        "mb_per_minute": round(number * size / seconds * 60 / 1e6, 1),
        "rollouts": number,
        "kb_per_rollout": round(size / 1e3, 1),
        "core_share": round(share, 4),
        "behind_p50_sec": round(behind[len(behind) // 2], 3),
        "behind_p95_sec": round(behind[int(len(behind) * 0.95)], 3),
        "behind_max_sec": round(behind[-1], 3),
        "rss_mb": round(process.memory_info().rss / 1e6, 1),
    }


def _told(trials_dir: Path, trace: str, episode: dict[str, Any]) -> str:
    """What the plugin has reported of the trial by its end."""
    trial = HostedRun(trials_dir, trace)
    trial.queued()
    for number, node in enumerate((n for n in episode["traces"][0]["nodes"] if n["sampled"]), 1):
        trial.turn(number, node["message"]["content"])
    trial.finished()
    return trial.name


def episode(run: RecordedRun) -> dict[str, Any]:
    """A long rollout, with tokens and texts as large as a terminal task's are."""
    made = run.episode("trial", 1, turns=TURNS)
    for node in made["traces"][0]["nodes"]:
        count = TOKENS if node["sampled"] else 2 * TOKENS
        node["message"]["content"] = "lorem ipsum " * (count // 3)
        node["token_ids"] = [1000 + (7919 * i) % 150_000 for i in range(count)]
        node["mask"] = [node["sampled"]] * count
        node["is_content"] = [True] * count
        node["logprobs"] = [-0.123456789 - i / 1e4 for i in range(count * node["sampled"])]
    return made


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
