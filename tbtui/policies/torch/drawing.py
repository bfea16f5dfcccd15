"""Draws tokens by inverting the cumulative distribution, with the log-probability of each.

The distribution is the one that is sampled from, so temperature is part of it; logits are taken to
32 bits first, whatever the model computes in. A row's uniform number comes from the random stream
of its own completion, so that what is drawn doesn't depend on what else is in the batch, as far as
floating point allows: a matrix product's last bits depend on its height.
"""

from __future__ import annotations

import torch


def draw(
    logits: torch.Tensor, temperatures: list[float], uniforms: list[float]
) -> tuple[list[int], list[float]]:
    """One token per row of `logits` [R, vocabulary], and its log-probability in nats.

    A temperature of 0 takes the likeliest token, with probability 1. A row without finite
    probabilities gives one that isn't finite.
    """
    device = logits.device
    greedy = torch.tensor([each == 0 for each in temperatures], device=device)
    scales = torch.tensor([each or 1.0 for each in temperatures], device=device)
    logprobs = torch.log_softmax(logits.float() / scales[:, None], dim=-1)
    # MPS has no 64 bits.
    exact = torch.float32 if device.type == "mps" else torch.float64
    cumulative = logprobs.to(exact).exp().cumsum(-1)
    total = cumulative[:, -1:]
    thresholds = torch.tensor(uniforms, dtype=exact, device=device)[:, None] * total
    # Rounding must not take it to the end, where tokens of no probability may lie.
    thresholds = torch.minimum(thresholds, torch.nextafter(total, torch.zeros_like(total)))
    tokens = torch.searchsorted(cumulative, thresholds, right=True)[:, 0]
    tokens = tokens.clamp(max=logits.shape[-1] - 1)
    tokens = torch.where(greedy, logprobs.argmax(-1), tokens)
    drawn = logprobs.gather(1, tokens[:, None])[:, 0]
    drawn = torch.where(greedy & drawn.isfinite(), torch.zeros_like(drawn), drawn)
    return tokens.tolist(), drawn.tolist()
