"""What a run costs: the prices in force, and what to expect before the first step.

Tinker's public prices are here as far as they could be looked up: dollars for a million tokens,
storage for a gigabyte and month. They change, so their date is always said with them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tbtui.config import RunConfig

if TYPE_CHECKING:
    from tbtui.algorithm.costs import Tokens as TokenCounts

AS_OF = "2026-10-07"
SOURCE = "tinker-docs.thinkingmachines.ai/tinker/models/models_and_pricing"
_CACHED = 0.2
"""Share of the price of a prompt: cached tokens have a discount of 80%."""
_STORAGE = 0.10


def _priced(prompt: float, sampled: float, trained: float) -> Mapping[str, float]:
    return MappingProxyType(
        {
            "prompt": prompt,
            "cached": _CACHED * prompt,
            "sampled": sampled,
            "trained": trained,
            "storage": _STORAGE,
        }
    )


PUBLIC_PRICES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {"Qwen/Qwen3-8B": _priced(0.195, 0.60, 0.44)}
)
"""Models whose three prices are known."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices of one model."""

    prices: Mapping[str, float]
    """Fields of `Prices`; empty: unknown."""
    source: str
    """For a person."""


def price_list(config: RunConfig) -> PriceList:
    """The prices given, else the hosted service's public ones where they are known."""
    if config.prices:
        return PriceList(config.prices, "the prices given")
    hosted = config.tinker_base_url is None and not os.environ.get("TINKER_BASE_URL")
    if config.engine == "grpo" and config.policy == "tinker" and hosted:
        public = PUBLIC_PRICES.get(config.model_name)
        if public is not None:
            return PriceList(public, f"Tinker's public prices as of {AS_OF} ({SOURCE})")
    return PriceList({}, "")


def expected_cost(config: RunConfig, context_limit: int | None) -> str | None:
    """One line on what the run will cost, for a person; None where it costs nothing.

    `context_limit`: of the model, in tokens, where it is known.
    """
    known = price_list(config)
    if not known.prices:
        if config.engine != "grpo" or config.policy != "tinker":
            return None
        return (
            f"no prices of {config.model_name} are known, so its cost is unknown: set"
            " prices.prompt, prices.sampled and prices.trained"
        )
    # Not before it is needed: settings are checked before anything that takes time is imported.
    from tbtui.algorithm.costs import Prices

    limits = [each for each in (config.context_limit, context_limit) if each is not None]
    if not limits or config.step_limit == 0:
        return f"costs are counted by {known.source}"
    step = Prices(**known.prices).of(_most_tokens(config, min(limits)))
    steps = "" if config.step_limit is None else f", ${step * config.step_limit:,.2f} in all"
    return (
        f"at most ${step:,.2f} a step{steps}, evaluations and retries left out (each trial filling"
        f" its context, nothing cached), by {known.source}; step 1 measures it"
    )


def _most_tokens(config: RunConfig, context: int) -> TokenCounts:
    """Tokens of a step whose trials all fill their context in the first turn."""
    trials = config.batch_size * (config.group_size + config.oversample)
    from tbtui.algorithm.costs import Tokens

    # Where thinking is left out of the next prompt, each turn is a training sequence of its own.
    sequences = config.max_turns if config.thinking == "strip" else 1
    return Tokens(
        prompt=trials * config.max_turns * context,
        sampled=trials * min(context, config.max_turns * config.max_tokens),
        trained=trials * sequences * context,
    )
