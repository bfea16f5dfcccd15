"""How many tokens of a pass fit the memory that is free."""

from __future__ import annotations

from typing import Any

import torch

_SHARE = 0.6
"""Share of the free memory; the rest is for logits, gradients and fragmentation."""
_LEAST, _MOST = 512, 65_536
_ON_CPU = 4096
"""Larger ones are no faster there."""


def micro_batch_tokens(causal: Any, device: str, checkpointing: bool) -> int:
    """Tokens of one forward and backward pass, by an estimate of what each keeps alive.

    With gradient checkpointing that is each layer's input and one layer's activations, else all
    layers' activations: about 20 vectors of the model's width and 4 of the feed-forward's.
    """
    if not device.startswith("cuda"):
        return _ON_CPU
    config = causal.config.get_text_config(decoder=True)
    width, layers = int(config.hidden_size), int(config.num_hidden_layers)
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    one_layer = 20 * width + 4 * inner
    numbers = layers * width + one_layer if checkpointing else layers * one_layer
    free, _ = torch.cuda.mem_get_info(device)
    tokens = int(free * _SHARE) // (numbers * int(causal.dtype.itemsize))
    return max(_LEAST, min(_MOST, tokens))
