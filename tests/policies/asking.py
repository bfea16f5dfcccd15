"""Requests to a policy, and data made of what it drew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbtui.policies.base import MODEL_ITSELF, Datum, Message, Policy, Sample, SampleRequest


def prompt_of(policy: Policy, text: str = "list the files") -> tuple[int, ...]:
    return policy.renderer.render([Message("user", text)])


def request(policy: Policy, seed: int = 7, max_tokens: int = 24) -> SampleRequest:
    return SampleRequest(prompt_of(policy), max_tokens, MODEL_ITSELF, seed)


def datum_of(
    prompt: Sequence[int], sample: Sample, advantage: float = 1.0, weight: float = 1.0
) -> Datum:
    """Trains what was drawn; all its tokens have the same advantage and weight."""
    tokens = np.array([*prompt, *sample.completion_ids], np.int32)
    mask = np.arange(len(tokens)) >= len(prompt)
    logprobs = np.zeros(len(tokens), np.float32)
    logprobs[mask] = sample.logprobs
    ones = mask.astype(np.float32)
    return Datum(tokens, mask, logprobs, ones * np.float32(advantage), ones * np.float32(weight))
