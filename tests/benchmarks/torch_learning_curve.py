"""Whether a model that PyTorch trains learns as the embedded one does, on the same tasks:
`uv run --extra torch python -m tests.benchmarks.torch_learning_curve [SEED ...] [KIND ...]
[NAME=VALUE ...]`.

The embedded model is exported to Hugging Face form. Of each seed there is a run of the embedded
policy with default settings, and one of each KIND with the same ones, through the real command:
`whole` (`policy=torch lora_rank=0`), `adapter` (LoRA of rank 16, whose learning rate is ten times
as high: Schulman et al. 2025, "LoRA Without Regret") and, where it is named, `vllm` (that adapter,
sampled by a vLLM server, which tbtui installs first where it isn't yet). Prints each run's held-out
pass rates; then, for the mean reward of the latest quarter of the training steps, the mean over
seeds and the difference from the embedded policy with its standard error over seeds (Welch).
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED
from tests import session
from tests.benchmarks.learning_curve import evaluations, run

LORA_RANK = 16
LORA_RATE = 10.0
"""Learning rate of an adapter, as a multiple of that of all weights."""
EMBEDDED = "local"
KINDS = {
    "whole": "torch, all weights",
    "adapter": f"torch, LoRA {LORA_RANK}",
    "vllm": f"torch, LoRA {LORA_RANK}, vLLM",
}


def reward_by_step(events: list[dict[str, Any]]) -> list[float]:
    """Mean reward of each training step's trials that have one."""
    steps: dict[str, int] = {}
    rewards: dict[int, list[float]] = {}
    for event in events:
        if event["kind"] == "trial_queued" and event["purpose"] == "train":
            steps[event["trial"]] = event["step"]
        elif event["kind"] == "trial_finished" and event["reward"] is not None:
            step = steps.get(event["trial"])
            if step is not None:
                rewards.setdefault(step, []).append(event["reward"])
    return [statistics.mean(rewards[step]) for step in sorted(rewards)]


def alarms(events: list[dict[str, Any]]) -> int:
    return sum(e["kind"] == "alarm_raised" and e["alarm"] == "sampler_mismatch" for e in events)


def difference(ours: list[float], theirs: list[float]) -> str:
    """The difference of two means, with its standard error over seeds."""
    moved = statistics.mean(ours) - statistics.mean(theirs)
    if min(len(ours), len(theirs)) < 2:
        return f"{moved:+.3f} (one seed: no standard error)"
    error = math.sqrt(
        statistics.variance(ours) / len(ours) + statistics.variance(theirs) / len(theirs)
    )
    verdict = "within" if abs(moved) <= 2 * error else "beyond"
    return f"{moved:+.3f}, standard error {error:.3f}: {verdict} two of them"


def settings_of(kind: str, rate: float) -> list[str]:
    """`rate`: that of all weights."""
    if kind == "whole":
        return [f"learning_rate={rate}", "lora_rank=0"]
    sampler = "vllm" if kind == "vllm" else "transformers"
    return [*(f"learning_rate={rate * LORA_RATE}", f"lora_rank={LORA_RANK}", f"sampler={sampler}")]


def main(seeds: list[str], kinds: list[str], extra: list[str]) -> None:
    session.begin()
    folder = Path(tempfile.mkdtemp(prefix="tbtui-torch-curve-"))
    export(SHIPPED, folder / "model")
    latest: dict[str, list[float]] = {EMBEDDED: [], **{KINDS[kind]: [] for kind in kinds}}
    for seed in seeds:
        settings: list[str] = []
        rate = 0.0
        for kind, name in ((EMBEDDED, EMBEDDED), *((kind, KINDS[kind]) for kind in kinds)):
            chosen = [*settings, *(settings_of(kind, rate) if kind != EMBEDDED else ())]
            began = time.monotonic()
            run_name = f"{seed}-{name.replace(', ', '-').replace(' ', '-')}"
            events = run(
                f"seed={seed}", f"logs_dir={folder}", f"run_name={run_name}", *chosen, *extra
            )
            if name == EMBEDDED:
                used = next(e for e in events if e["kind"] == "run_started")["settings"]
                settings = [
                    *("policy=torch", f"model_name={folder / 'model'}", "renderer=embedded"),
                    *("train_device=cpu", f"max_tokens={used['max_tokens']}"),
                ]
                rate = float(used["learning_rate"])
            curve = reward_by_step(events)
            latest[name].append(statistics.mean(curve[-max(1, len(curve) // 4) :]))
            rates = " ".join(f"{rate:.2f}" for _, _, rate, _ in evaluations(events))
            print(
                f"seed {seed} {name:20} held out {rates} · reward first {curve[0]:.2f},"
                f" latest quarter {latest[name][-1]:.3f} · {alarms(events)} sampler alarms"
                f" · {time.monotonic() - began:.0f} s",
                flush=True,
            )
    print()
    for name, means in latest.items():
        against = "" if name == EMBEDDED else f"   {difference(means, latest[EMBEDDED])}"
        print(f"{name:20} {statistics.mean(means):.3f}{against}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        [a for a in arguments if a.isdecimal()] or ["0", "1", "2"],
        [a for a in arguments if a in KINDS] or ["whole", "adapter"],
        [a for a in arguments if "=" in a],
    )
