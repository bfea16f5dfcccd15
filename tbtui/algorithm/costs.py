"""What a run consumes: episodes, turns, tokens by kind, and money where prices are given.

Pure. The names are tinker-cookbook's where it has one (`env/all/*`, `tokens/*`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from tbtui.algorithm.segments import Call

PER_MILLION = 1e-6
_GIGABYTE = 1e9
_MONTH_SEC = 720 * 3600.0
"""Tinker's month: 720 hours."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token counts, by the kinds that are priced."""

    prompt: int = 0
    """Read by the sampler: every call's whole prompt, cached tokens included."""
    cached: int | None = None
    """How many of these the sampler had in its cache; None where it does not report them."""
    sampled: int = 0
    """Written by the sampler."""
    trained: int = 0
    """In the sequences that a forward-backward pass was computed on."""
    scored: int = 0
    """In the sequences of further forward passes: of the reference, of the trainer itself."""
    calls: int = 0
    """How often the sampler was called."""

    def __add__(self, other: Tokens) -> Tokens:
        known = [each.cached for each in (self, other) if each.cached is not None]
        return Tokens(
            self.prompt + other.prompt,
            sum(known) if known else None,
            self.sampled + other.sampled,
            self.trained + other.trained,
            self.scored + other.scored,
            self.calls + other.calls,
        )

    @property
    def total(self) -> int:
        """The sum of all kinds; cached ones are prompt tokens."""
        return self.prompt + self.sampled + self.trained + self.scored

    def metrics(self, prefix: str) -> dict[str, float]:
        """`{prefix}KIND` of each kind; what is not reported, or was never done, is left out."""
        values = {
            "prompt": self.prompt,
            "cached": self.cached,
            "sampled": self.sampled,
            "trained": self.trained,
            "scored": self.scored or None,
        }
        return {f"{prefix}{kind}": float(n) for kind, n in values.items() if n is not None}


def sampled_tokens(calls: Iterable[Call]) -> Tokens:
    """What these model calls read and wrote."""
    total = Tokens()
    for call in calls:
        total += Tokens(
            prompt=len(call.prompt_ids),
            cached=call.cached_tokens,
            sampled=len(call.completion_ids),
            calls=1,
        )
    return total


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars for a million tokens of each kind."""

    prompt: float = 0.0
    sampled: float = 0.0
    trained: float = 0.0
    cached: float | None = None
    """None: as any other token of a prompt."""
    scored: float | None = None
    """None: as a prompt, which is read by the same kind of pass."""
    storage: float | None = None
    """Price of checkpoint storage, dollars per gigabyte and month; None: storage isn't counted."""

    def of(self, tokens: Tokens) -> float:
        """What these tokens cost, in US dollars."""
        cached = tokens.cached or 0
        return PER_MILLION * (
            self.prompt * (tokens.prompt - cached)
            + _or(self.cached, self.prompt) * cached
            + self.sampled * tokens.sampled
            + self.trained * tokens.trained
            + _or(self.scored, self.prompt) * tokens.scored
        )


def _or(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has consumed so far, evaluations included."""

    tokens: Tokens = Tokens()
    usd: float = 0.0
    eval_usd: float = 0.0
    """The part of `usd` that evaluations cost."""
    storage_usd: float = 0.0
    """The part of `usd` that checkpoint storage at the server cost while the run was live."""
    useful_groups: int = 0
    rollouts: int = 0
    """Training trials of the steps that were trained."""
    hours: float = 0.0
    """In which the run was live."""

    @classmethod
    def after(cls, metrics: Mapping[str, float]) -> Spent:
        """Read from the `metrics` of a run's last step or evaluation: where a resumed run goes on
        counting."""
        kinds = [kind.name for kind in fields(Tokens)]
        total = {kind: metrics.get(f"tokens/total/{kind}") for kind in kinds}
        return cls(
            Tokens(**{kind: int(value) for kind, value in total.items() if value is not None}),
            metrics.get("cost/total_usd", 0.0),
            metrics.get("cost/total/eval_usd", 0.0),
            metrics.get("cost/total/storage_usd", 0.0),
            int(metrics.get("env/all/total_useful_groups", 0)),
            int(metrics.get("progress/rollouts", 0)),
            metrics.get("progress/hours", 0.0),
        )

    def metrics(self, prices: Prices | None) -> dict[str, float]:
        """Without `prices` there are no `cost/*`; without a useful group so far, no cost of one."""
        metrics = {
            **self.tokens.metrics("tokens/total/"),
            "env/all/total_useful_groups": float(self.useful_groups),
            "progress/rollouts": float(self.rollouts),
            "progress/hours": self.hours,
        }
        if prices is not None:
            metrics["cost/total_usd"] = self.usd
            metrics["cost/total/eval_usd"] = self.eval_usd
            if self.storage_usd:
                metrics["cost/total/storage_usd"] = self.storage_usd
            if self.useful_groups:
                metrics["cost/total/useful_group_usd"] = (
                    self.usd - self.eval_usd - self.storage_usd
                ) / self.useful_groups
        return metrics


class Costs:
    """Counts what a run consumes, from `spent` on."""

    def __init__(self, spent: Spent, prices: Mapping[str, float]) -> None:
        """`prices`: fields of `Prices`; empty: money is not counted."""
        self.spent = spent
        self._prices = Prices(**prices) if prices else None

    def step(self, tokens: Tokens, useful_groups: int, rollouts: int) -> dict[str, float]:
        """The metrics of a step that consumed `tokens`, and of the run with it.

        `useful_groups`: its groups with an advantage that is not zero; `rollouts`: its trials.
        """
        usd = self.add(tokens)
        self.spent = replace(
            self.spent,
            useful_groups=self.spent.useful_groups + useful_groups,
            rollouts=self.spent.rollouts + rollouts,
        )
        kinds = tokens.metrics("tokens/")
        # The name that the sequences' tokens have had: `tokens/trained` are those with a loss.
        kinds["tokens/in_sequences"] = kinds.pop("tokens/trained")
        metrics = kinds | {"env/all/useful_groups": float(useful_groups)}
        if tokens.calls:
            metrics["env/all/ob_tokens_per_turn"] = tokens.prompt / tokens.calls
            metrics["env/all/ac_tokens_per_turn"] = tokens.sampled / tokens.calls
        if self._prices is not None:
            metrics["cost/step_usd"] = usd
            if useful_groups:
                metrics["cost/useful_group_usd"] = usd / useful_groups
        return metrics | self.spent.metrics(self._prices)

    def evaluation(self, tokens: Tokens) -> dict[str, float]:
        """The metrics of an evaluation that consumed `tokens`, and of the run with it."""
        usd = self.add(tokens)
        self.spent = replace(self.spent, eval_usd=self.spent.eval_usd + usd)
        metrics = tokens.metrics("tokens/eval/")
        del metrics["tokens/eval/trained"]  # an evaluation trains on nothing
        if self._prices is not None:
            metrics["cost/eval_usd"] = usd
        return metrics | self.spent.metrics(self._prices)

    def lived(self, hours: float) -> None:
        """Count time in which the run was live."""
        self.spent = replace(self.spent, hours=self.spent.hours + hours)

    @property
    def counts_storage(self) -> bool:
        """Whether storage has a price."""
        return self._prices is not None and self._prices.storage is not None

    def stored(self, size_bytes: int, seconds: float) -> None:
        """Count checkpoints of this size that the server has held for so long."""
        if self._prices is None or self._prices.storage is None:
            return
        usd = self._prices.storage * size_bytes / _GIGABYTE * seconds / _MONTH_SEC
        self.spent = replace(
            self.spent, usd=self.spent.usd + usd, storage_usd=self.spent.storage_usd + usd
        )

    def add(self, tokens: Tokens) -> float:
        """Count tokens that belong to the totals alone; returns what they cost, in US dollars."""
        usd = self._prices.of(tokens) if self._prices is not None else 0.0
        self.spent = replace(
            self.spent, tokens=self.spent.tokens + tokens, usd=self.spent.usd + usd
        )
        return usd


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
