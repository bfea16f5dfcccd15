"""The genuine SDK's types from ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tinker

from tbtui.policies.base import Datum, Sample
from tbtui.policies.local.renderer import LocalRenderer
from tbtui.policies.local.tokenizer import TOKENIZER, LocalTokenizer

KEY = "tml-tests"
RENDERER = LocalRenderer(LocalTokenizer(TOKENIZER))
END = RENDERER.tokenizer.end_id


def prompt(tokens: Sequence[int]) -> tinker.ModelInput:
    return tinker.ModelInput.from_ints(list(tokens))


def sampling(seed: int, max_tokens: int = 24) -> tinker.SamplingParams:
    return tinker.SamplingParams(max_tokens=max_tokens, seed=seed, temperature=1.0)


def whole_datum(prompt_ids: Sequence[int], sample: Sample, advantage: float) -> Datum:
    """All tokens but the first are trained; a prompt's have no advantage."""
    before, length = len(prompt_ids), len(prompt_ids) + len(sample.completion_ids)
    logprobs, advantages = np.zeros(length, np.float32), np.zeros(length, np.float32)
    logprobs[before:], advantages[before:] = sample.logprobs, advantage
    return Datum(
        tokens=np.array([*prompt_ids, *sample.completion_ids], np.int32),
        mask=np.arange(length) > 0,
        logprobs=logprobs,
        advantages=advantages,
        weights=np.ones(length, np.float32),
    )


def tinker_datum(datum: Datum, names: Mapping[str, np.ndarray]) -> tinker.Datum:
    """`names`: arrays in the datum's own positions, which Tinker has shifted by one."""
    return tinker.Datum(
        model_input=prompt(datum.tokens[:-1].tolist()),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData.from_numpy(datum.tokens[1:].astype(np.int64)),
            **{
                name: tinker.TensorData.from_numpy(array[1:].astype(np.float32))
                for name, array in names.items()
            },
        },
    )


def policy_datum(datum: Datum) -> tinker.Datum:
    """For the losses that compare with what was sampled."""
    return tinker_datum(datum, {"logprobs": datum.logprobs, "advantages": datum.advantages})
