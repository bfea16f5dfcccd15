"""From calls to training data: `python tests/benchmarks/datum_building.py [--trials 64]`.

A batch of long trials, each turn's prompt extending all that came before, becomes training data
twice: turns merged into one sequence as far as they extend each other, and one sequence for each
turn. No two prompts share an integer object, so that every token really is compared. Each is
measured five times and the median taken; the loss is that of random trainer log-probabilities.

Figures to reach: merged data in at most 1 s, at most a fifth of the tokens of one sequence per
turn, and losses that agree to 1e-6.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.losses import LossName, LossSettings, policy_loss
from tbtui.algorithm.segments import Call, merge
from tbtui.algorithm.step import Datum, ScoredTrial
from tests.algorithm.building import build_data

LOSSES: tuple[LossName, ...] = ("importance_sampling", "ppo", "cispo", "dro")
"""Whose loss is a sum over tokens; GSPO's depends on what a sequence is."""
VOCABULARY = 150_000
REPEATS = 5


def record(trials: int, turns: int, context: int, random: np.random.Generator) -> list[list[Call]]:
    """Half of what a turn adds to the context is observation, half completion."""
    batch = []
    for _ in range(trials):
        history = np.empty(0, np.int64)
        ends = np.linspace(0, context, turns + 1).astype(int)
        calls = []
        for added in np.diff(ends):
            seen, drawn = np.split(random.integers(0, VOCABULARY, added), [added // 2])
            history = np.append(history, seen)
            logprobs = -random.exponential(1.0, len(drawn)).astype(np.float32)
            calls.append(Call(tuple(history.tolist()), tuple(drawn.tolist()), logprobs))
            history = np.append(history, drawn)
        batch.append(calls)
    return batch


def merged(batch: Sequence[Sequence[Call]], advantages: Sequence[float]) -> list[Datum]:
    scored = [
        ScoredTrial(tuple(merge(calls)), advantage)
        for calls, advantage in zip(batch, advantages, strict=True)
    ]
    return build_data(scored)


def per_turn(batch: Sequence[Sequence[Call]], advantages: Sequence[float]) -> list[Datum]:
    scored = [
        ScoredTrial(tuple(merge([call])[0] for call in calls), advantage)
        for calls, advantage in zip(batch, advantages, strict=True)
    ]
    return build_data(scored)


def total_loss(data: Sequence[Datum], gaps: npt.NDArray[np.float32], loss: LossName) -> float:
    """`gaps`: trainer minus sampler log-probability of the trained tokens, in order."""
    done, total = 0, 0.0
    for datum in data:
        old = datum.logprobs[datum.mask]
        new = old + gaps[done : done + len(old)]
        done += len(old)
        advantages, weights = datum.advantages[datum.mask], datum.weights[datum.mask]
        total += policy_loss(new, old, advantages, weights, LossSettings(loss))[0]
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--context", type=int, default=6000)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    batch = record(options.trials, options.turns, options.context, random)
    advantages = random.choice([-0.75, -0.25, 0.25, 0.5], options.trials).tolist()

    print(
        f"{options.trials} trials x {options.turns} turns x {options.context} tokens at the end\n"
    )
    print(f"{'':22}{'seconds':>10}{'sequences':>12}{'tokens':>12}{'trained':>12}")
    built, seconds = {}, {}
    for name, build in (("merged turns", merged), ("one datum per turn", per_turn)):
        times = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            built[name] = build(batch, advantages)
            times.append(time.perf_counter() - started)
        seconds[name] = statistics.median(times)
        data = built[name]
        tokens = sum(len(datum.tokens) for datum in data)
        trained = sum(int(datum.mask.sum()) for datum in data)
        print(f"{name:22}{seconds[name]:>10.3f}{len(data):>12}{tokens:>12}{trained:>12}")

    one, other = built["merged turns"], built["one datum per turn"]
    share = sum(len(d.tokens) for d in one) / sum(len(d.tokens) for d in other)
    gaps = random.normal(0, 0.2, sum(int(d.mask.sum()) for d in one)).astype(np.float32)
    print(f"\n{'loss':22}{'merged':>16}{'per turn':>16}{'difference':>14}")
    differences = []
    for loss in LOSSES:
        values = [total_loss(data, gaps, loss) for data in (one, other)]
        differences.append(abs(values[0] - values[1]))
        print(f"{loss:22}{values[0]:>16.9f}{values[1]:>16.9f}{differences[-1]:>14.1e}")

    figures = [
        ("building merged data, s", seconds["merged turns"], 1.0),
        ("tokens against per turn", share, 0.2),
        ("largest difference of loss", max(differences), 1e-6),
    ]
    print()
    for name, value, limit in figures:
        verdict = "reached" if value <= limit else "MISSED"
        print(f"{name:28}{value:>10.3g}   at most {limit:<8g}{verdict}")
    return 0 if all(value <= limit for _, value, limit in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
