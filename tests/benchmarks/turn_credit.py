"""What credit by turn gains and costs, against one advantage for a whole trial:
`python -m tests.benchmarks.turn_credit [SEED ...] [METHOD ...] [NAME=VALUE ...]`.

Of each seed there is a run of plain GRPO (`leave_one_out`) and one of each other method
(`turn_value`, `fork`: `group_from=fork`), with the embedded policy, through the real command:
on the mazes with `model_name=maze`, else on the starter tasks. Forks are sampled too: the runs are
compared at equal sampled tokens, those of forks included and those of evaluations not; a run ends
at the first evaluation after as many as the plain one took. Prints the held-out pass rate by
sampled tokens of each run, the tokens that each needs to reach a pass rate, and the mean difference
over seeds from the plain run: at its last tokens, and on average over all of its tokens.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import tempfile

PLAIN = "leave_one_out"
METHODS = {
    PLAIN: ("advantage=leave_one_out",),
    "turn_value": ("advantage=turn_value", "snapshots=turns"),
    "fork": ("group_from=fork", "snapshots=turns"),
}
# A run that is stopped before its last step is to have had the same learning rates.
DEFAULTS = ("lr_schedule=constant", "eval_every=5", "pace_sec=0")
REACHED = 0.7
SAMPLES = 50
type Curve = list[tuple[int, float]]
"""(Sampled tokens of training trials and forks before it, pass rate) of each evaluation."""


def curve(settings: list[str], most_tokens: float) -> Curve:
    """The curve of a run that is stopped at the first evaluation after `most_tokens`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tbtui", "run", "--json", *settings],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    counted: set[str] = set()
    found: Curve = []
    tokens, stopped = 0, False
    for line in process.stdout:
        event = json.loads(line)
        if event["kind"] == "trial_queued" and event["purpose"] != "eval":
            counted.add(event["trial"])
        elif event["kind"] == "turn_sampled" and event["trial"] in counted:
            tokens += event["completion_tokens"]
        elif event["kind"] == "eval_finished":
            found.append((tokens, event["pass_rate"]))
            if tokens >= most_tokens and not stopped:
                process.send_signal(signal.SIGTERM)
                stopped = True
    if process.wait() and not stopped:
        sys.exit(f"the run ended with exit status {process.returncode}: {' '.join(settings)}")
    return found


def at(curve: Curve, tokens: float) -> float:
    """The pass rate at so many tokens, between two evaluations in proportion."""
    before = curve[0]
    for point in curve:
        if point[0] >= tokens:
            share = (tokens - before[0]) / max(1, point[0] - before[0])
            return before[1] + share * (point[1] - before[1])
        before = point
    return before[1]


def differences(curve: Curve, plain: Curve) -> tuple[float, float]:
    """From the plain run's pass rate: at the most tokens of both, and on average up to there."""
    most = min(curve[-1][0], plain[-1][0])
    points = [most * (number + 1) / SAMPLES for number in range(SAMPLES)]
    mean = statistics.mean(at(curve, tokens) - at(plain, tokens) for tokens in points)
    return at(curve, most) - at(plain, most), mean


def spread(values: list[float]) -> str:
    """Mean and standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):+.3f} (standard error {error:.3f})"


def main(seeds: list[str], methods: list[str], settings: list[str]) -> None:
    folder = tempfile.mkdtemp(prefix="tbtui-turn-credit-")
    given = {each.partition("=")[0] for each in settings}
    found: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
    for seed in seeds:
        plain: Curve = []
        for method in (PLAIN, *methods):
            run = curve(
                [
                    *(f"seed={seed}", f"logs_dir={folder}", f"run_name={method}-{seed}"),
                    *(*METHODS[method], *settings),
                    *(each for each in DEFAULTS if each.partition("=")[0] not in given),
                ],
                plain[-1][0] if plain else float("inf"),
            )
            points = "  ".join(f"{tokens / 1000:.1f}k {rate:.2f}" for tokens, rate in run)
            needed = next((tokens for tokens, rate in run if rate >= REACHED), None)
            reached = f"{needed / 1000:.1f}k tokens" if needed is not None else "never"
            print(f"seed {seed} {method:14} {REACHED:.2f} after {reached}\n  {points}", flush=True)
            if plain:
                last, mean = differences(run, plain)
                found[method].append((last, mean))
                print(
                    f"  against {PLAIN}: {last:+.3f} at the end, {mean:+.3f} on average", flush=True
                )
            else:
                plain = run
    for method, each in found.items():
        print(
            f"{method} less {PLAIN}, at equal tokens, {len(seeds)} seeds:"
            f" {spread([last for last, _ in each])} at the end,"
            f" {spread([mean for _, mean in each])} on average"
        )


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        [each for each in arguments if each.isdecimal()] or ["0", "1", "2"],
        [each for each in arguments if each in METHODS] or [m for m in METHODS if m != PLAIN],
        [each for each in arguments if "=" in each],
    )
