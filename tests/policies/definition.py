"""What a token is drawn from, as the definition has it: by sets of tokens, one condition at a time.

It shares nothing with the product, which works on ranks: no sorting, no cumulative sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tbtui.sampling import SamplingParams

CASES = (
    SamplingParams(),
    SamplingParams(temperature=0.7),
    SamplingParams(temperature=1.5),
    SamplingParams(top_p=0.6),
    SamplingParams(top_k=4),
    SamplingParams(min_p=0.1),
    SamplingParams(temperature=0.7, top_p=0.9),
    SamplingParams(temperature=1.3, top_p=0.8, top_k=12, min_p=0.05),
    SamplingParams(temperature=0),
    SamplingParams(temperature=0, top_p=0.5),
)


def drawn_from(logits: Sequence[float], sampling: SamplingParams) -> list[float]:
    """Each token's probability of being drawn."""
    tokens = range(len(logits))
    if sampling.temperature == 0:
        best = max(tokens, key=lambda token: logits[token])
        return [float(token == best) for token in tokens]
    highest = max(logits)
    weight = [math.exp((logit - highest) / sampling.temperature) for logit in logits]

    def ahead(one: int, other: int) -> bool:
        return weight[one] > weight[other] or (weight[one] == weight[other] and one < other)

    left = {token for token in tokens if weight[token] >= sampling.min_p}  # the likeliest has 1
    if sampling.top_k:
        # Fewer than k are likelier.
        left = {t for t in left if sum(weight[u] > weight[t] for u in left) < sampling.top_k}
    if sampling.top_p < 1:
        # Those ahead of it have not got the share together.
        share = sampling.top_p * math.fsum(weight[t] for t in left)
        left = {t for t in left if math.fsum(weight[u] for u in left if ahead(u, t)) < share}
    total = math.fsum(weight[token] for token in left)
    return [weight[token] / total if token in left else 0.0 for token in tokens]


def surprising(counts: Sequence[int], chances: Sequence[float]) -> str:
    """What is wrong with so many draws of each token; empty: nothing is.

    Pearson's chi-square of tokens that are expected five times at least, the others together, at
    a level of one in a million (Wilson and Hilferty 1931).
    """
    draws = sum(counts)
    if any(count and not chance for count, chance in zip(counts, chances, strict=True)):
        return "a token of no probability was drawn"
    often = [t for t, chance in enumerate(chances) if chance * draws >= 5]
    cells = [(counts[t], chances[t] * draws) for t in often]
    rest = draws - sum(expected for _, expected in cells)
    if rest >= 5:
        cells.append((draws - sum(counts[t] for t in often), rest))
    statistic = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = max(1, len(cells) - 1)
    limit = freedom * (1 - 2 / (9 * freedom) + 4.753 * math.sqrt(2 / (9 * freedom))) ** 3
    return "" if statistic <= limit else f"chi-square {statistic:.1f} > {limit:.1f} of {freedom}"
