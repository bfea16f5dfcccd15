"""How fast the embedded policy learns: `python tests/benchmarks/learning_curve.py [SEED ...]`.

Each seed is one `tbtui run` with default settings, through the real command; afterwards its last
checkpoint is evaluated near-greedily. Prints held-out pass rates against rollouts and wall time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests import session

NEAR_GREEDY = 0.05


def run(*settings: str) -> list[dict[str, Any]]:
    process = subprocess.run(
        [sys.executable, "-m", "tbtui", "run", "--json", *settings],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in process.stdout.splitlines()]


def evaluations(events: list[dict[str, Any]]) -> list[tuple[int, float, float, int]]:
    """(rollouts so far, seconds since the start, pass rate, trials) of each evaluation."""
    start = events[0]["time"]
    purposes: dict[str, str] = {}
    rollouts = 0
    rows = []
    for event in events:
        match event["kind"]:
            case "trial_queued":
                purposes[event["trial"]] = event["purpose"]
            case "trial_finished":
                rollouts += purposes[event["trial"]] == "train"
            case "eval_finished":
                rows.append((rollouts, event["time"] - start, event["pass_rate"], event["scored"]))
    return rows


def main(seeds: list[str], extra: list[str]) -> None:
    session.begin()
    for seed in seeds:
        logs = Path(tempfile.mkdtemp(prefix="tbtui-curve-"))
        began = time.monotonic()
        events = run(f"seed={seed}", f"logs_dir={logs}", "run_name=train", *extra)
        rows = evaluations(events)
        print(f"seed {seed}: {time.monotonic() - began:.0f} s in all")
        for rollouts, seconds, rate, scored in rows:
            bar = "█" * round(rate * 40)
            print(f"  {rollouts:5d} rollouts {seconds:6.0f} s  {rate:.3f} of {scored:3d}  {bar}")
        last = max((logs / "train" / "checkpoints").iterdir())
        greedy = evaluations(
            run(
                *("max_steps=0", f"checkpoint={last}", f"eval_temperature={NEAR_GREEDY}"),
                *(f"seed={seed}", f"logs_dir={logs}", "run_name=greedy"),
            )
        )
        print(f"  near-greedy (T={NEAR_GREEDY}): {greedy[-1][2]:.3f}", flush=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        [a for a in arguments if "=" not in a] or ["0", "1", "2"],
        [a for a in arguments if "=" in a],
    )
