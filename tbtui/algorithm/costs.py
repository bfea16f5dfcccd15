"""What a step consumed: episodes by outcome, turns, tokens, and money where prices are given.

Pure. The names are tinker-cookbook's where it has one (`env/all/*`, `tokens/*`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PER_MILLION = 1e-6


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts, of a step or of a whole run so far."""

    prompt: int = 0
    """Read by the sampler: every call's whole prompt, as it is billed."""
    sampled: int = 0
    """Written by the sampler."""
    trained: int = 0
    """In the sequences that a forward-backward pass was computed on."""

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.prompt + other.prompt, self.sampled + other.sampled, self.trained + other.trained
        )


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens."""

    prompt: float = 0.0
    sampled: float = 0.0
    trained: float = 0.0

    def of(self, tokens: Tokens) -> float:
        """US dollars."""
        return PER_MILLION * (
            self.prompt * tokens.prompt
            + self.sampled * tokens.sampled
            + self.trained * tokens.trained
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has consumed up to and including a step."""

    tokens: Tokens = Tokens()
    usd: float = 0.0
    useful_groups: int = 0

    @classmethod
    def after(cls, metrics: Mapping[str, float]) -> Spent:
        """As the last step's metrics tell it: where a resumed run goes on counting."""
        return cls(
            Tokens(
                int(metrics.get("tokens/total/prompt", 0)),
                int(metrics.get("tokens/total/sampled", 0)),
                int(metrics.get("tokens/total/trained", 0)),
            ),
            metrics.get("cost/total_usd", 0.0),
            int(metrics.get("env/all/total_useful_groups", 0)),
        )


def outcome_metrics(outcomes: Iterable[str], known: Iterable[str]) -> dict[str, float]:
    """`env/all/outcome/NAME` for every known name, zeros included: a chart has no gaps then."""
    counts = Counter(outcomes)
    return {f"env/all/outcome/{name}": float(counts[name]) for name in known}


def turn_metrics(turns: Sequence[int]) -> dict[str, float]:
    """`turns[i]`: model calls of episode i."""
    return {
        "env/all/total_turns": float(sum(turns)),
        "env/all/turns_per_episode": sum(turns) / len(turns) if turns else 0.0,
        "env/all/max_turns": float(max(turns, default=0)),
    }


def consumption(
    tokens: Tokens,
    turns: int,
    useful_groups: int,
    before: Spent,
    prices: Prices | None = None,
) -> tuple[Spent, dict[str, float]]:
    """The run's consumption with this step, and the step's metrics.

    `turns`: model calls of the step; `useful_groups`: its groups with an advantage that is not
    zero. Without `prices` there are no `cost/*`; without a useful group so far, no cost of one.
    """
    usd = prices.of(tokens) if prices is not None else 0.0
    spent = Spent(before.tokens + tokens, before.usd + usd, before.useful_groups + useful_groups)
    metrics = {
        "tokens/prompt": float(tokens.prompt),
        "tokens/sampled": float(tokens.sampled),
        "tokens/in_sequences": float(tokens.trained),
        "tokens/total/prompt": float(spent.tokens.prompt),
        "tokens/total/sampled": float(spent.tokens.sampled),
        "tokens/total/trained": float(spent.tokens.trained),
        "env/all/useful_groups": float(useful_groups),
        "env/all/total_useful_groups": float(spent.useful_groups),
    }
    if turns:
        metrics["env/all/ob_tokens_per_turn"] = tokens.prompt / turns
        metrics["env/all/ac_tokens_per_turn"] = tokens.sampled / turns
    if prices is not None:
        metrics["cost/step_usd"] = usd
        metrics["cost/total_usd"] = spent.usd
        if useful_groups:
            metrics["cost/useful_group_usd"] = usd / useful_groups
        if spent.useful_groups:
            metrics["cost/total/useful_group_usd"] = spent.usd / spent.useful_groups
    return spent, metrics
