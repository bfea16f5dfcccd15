"""Metrics of an optimiser step, under tinker-cookbook's names.

Numbers that need data are empty without any. A step whose gradient was accumulated in parts hands
in the data of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tbtui.algorithm.advantages import GroupAdvantages
from tbtui.algorithm.losses import LossSettings, clipped_tokens
from tbtui.algorithm.step import Datum, Logprobs

SOLVED_REWARD = 0.5
"""A constant group counts as all good from this reward on."""


def sampler_trainer_metrics(data: Sequence[Datum], trained: Logprobs) -> dict[str, float]:
    """How far the sampler's log-probabilities are from the trainer's, before the step.

    `trained[i]` holds datum i's log-probabilities at its masked positions. `kl_sample_train_v1`
    and `_v2` are the estimators k1 and k2 of Schulman's note "Approximating KL Divergence"
    (2020): the mean of sampled minus trained, and of half its square. `surprise` is the mean
    negative log-probability of what was sampled. All in nats per token.
    """
    if not data:
        return {}
    sampled = np.concatenate([datum.logprobs[datum.mask] for datum in data]).astype(np.float64)
    now = np.concatenate(trained).astype(np.float64)
    gap = sampled - now
    return {
        "optim/kl_sample_train_v1": float(gap.mean()),
        "optim/kl_sample_train_v2": float((gap**2).mean() / 2),
        "optim/max_logprob_gap": float(np.abs(gap).max()),
        "optim/surprise": float(-sampled.mean()),
    }


def clip_metrics(
    data: Sequence[Datum], trained: Logprobs, settings: LossSettings
) -> dict[str, float]:
    """The share of trained tokens whose gradient the loss's clipping changed.

    `trained` as for `sampler_trainer_metrics`; the data are the ones that the loss was given.
    """
    if not data:
        return {}
    clipped = np.concatenate(
        [
            clipped_tokens(now, datum.logprobs[datum.mask], datum.advantages[datum.mask], settings)
            for datum, now in zip(data, trained, strict=True)
        ]
    )
    return {"optim/clip_fraction": float(clipped.mean())}


def staleness_metrics(ages: Iterable[tuple[int, int]]) -> dict[str, float]:
    """How many steps the trained weights are ahead of those that drew the tokens.

    `ages`: for each call, its age in steps and its number of completion tokens. The mean is over
    tokens, of which a trial may have several ages.
    """
    drawn = [(age, tokens) for age, tokens in ages if tokens]
    if not drawn:
        return {}
    return {
        "async/staleness_mean": sum(age * tokens for age, tokens in drawn)
        / sum(tokens for _, tokens in drawn),
        "async/staleness_max": float(max(age for age, _ in drawn)),
        "async/staleness_min": float(min(age for age, _ in drawn)),
    }


def group_metrics(results: Sequence[GroupAdvantages]) -> dict[str, float]:
    """Shares of the batch's groups: with something to learn, all good, all bad, constant (either
    of the two), and short of scored trials."""
    if not results:
        return {}
    constant = [result.baseline or 0.0 for result in results if result.disposition == "constant"]
    good = sum(reward >= SOLVED_REWARD for reward in constant)
    counts = {
        "mixed": sum(result.disposition == "trained" for result in results),
        "all_good": good,
        "all_bad": len(constant) - good,
        "constant": len(constant),
        "short": sum(result.disposition == "short" for result in results),
    }
    return {f"env/all/by_group/frac_{name}": count / len(results) for name, count in counts.items()}
