"""What credit by turn gains and costs, against one advantage for a whole trial:
`python -m tests.benchmarks.turn_credit [SEED ...] [NAME=VALUE ...]`.

Of each seed there is a run with `advantage=leave_one_out`, and one with `advantage=turn_value`, on
the starter tasks with the embedded policy, through the real command. Forks are sampled too: the
runs are compared at equal sampled tokens, those of forks included and those of evaluations not.
Prints the held-out pass rate by sampled tokens of each run, the tokens that each needs to reach a
pass rate, and the mean difference over seeds at the tokens that the plain run has taken.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.learning_curve import run

METHODS = ("leave_one_out", "turn_value")
REACHED = 0.7
type Curve = list[tuple[int, float]]
"""(Sampled tokens of training trials and forks before it, pass rate) of each evaluation."""


def curve(events: Sequence[dict[str, Any]]) -> Curve:
    counted = {
        event["trial"]
        for event in events
        if event["kind"] == "trial_queued" and event["purpose"] != "eval"
    }
    found: Curve = []
    tokens = 0
    for event in events:
        if event["kind"] == "turn_sampled" and event["trial"] in counted:
            tokens += event["completion_tokens"]
        elif event["kind"] == "eval_finished":
            found.append((tokens, event["pass_rate"]))
    return found


def at(curve: Curve, tokens: int) -> float:
    """The pass rate at so many tokens, between two evaluations in proportion."""
    before = curve[0]
    for point in curve:
        if point[0] >= tokens:
            share = (tokens - before[0]) / max(1, point[0] - before[0])
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


def main(seeds: list[str], settings: list[str]) -> None:
    folder = tempfile.mkdtemp(prefix="tbtui-turn-credit-")
    differences = []
    for seed in seeds:
        curves = {}
        for method in METHODS:
            events = run(
                f"seed={seed}", f"logs_dir={folder}", f"run_name={method}-{seed}",
                f"advantage={method}", "eval_every=5", *settings,
            )  # fmt: skip
            curves[method] = found = curve(events)
            points = "  ".join(f"{tokens / 1000:.1f}k {rate:.2f}" for tokens, rate in found)
            needed = next((tokens for tokens, rate in found if rate >= REACHED), None)
            reached = f"{needed / 1000:.1f}k tokens" if needed is not None else "never"
            print(f"seed {seed} {method:14} {REACHED:.2f} after {reached}\n  {points}", flush=True)
        plain, credited = (curves[method] for method in METHODS)
        tokens = min(plain[-1][0], credited[-1][0])
        differences.append(at(credited, tokens) - at(plain, tokens))
        print(f"  at {tokens / 1000:.1f}k tokens: {differences[-1]:+.3f}", flush=True)
    spread = statistics.stdev(differences) / len(differences) ** 0.5 if len(seeds) > 1 else 0.0
    print(f"turn_value less leave_one_out, at equal tokens: {statistics.mean(differences):+.3f}"
          f" (standard error {spread:.3f}, {len(seeds)} seeds)")  # fmt: skip


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        [each for each in arguments if each.isdecimal()] or ["0", "1", "2"],
        [each for each in arguments if "=" in each],
    )
