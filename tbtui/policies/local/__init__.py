"""The embedded policy: a Llama-shaped language model of 0.8M parameters in NumPy.

client                      LocalPolicy, the Policy that engines use; it batches requests and owns
                            the child process
process                     the child process around a Learner
learner, checkpoint_file    trained and published weights, optimiser, versions; save, load
sampling                    batched sampling with a key/value cache
gradient                    loss and gradient of a batch, packed and spread over threads
model                       parameters and the forward pass
tokenizer, renderer         text to tokens and back
checkpoints/                the shipped models; tests/by_hand/starter and maze make them
export                      to a Hugging Face Llama checkpoint
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tbtui.policies import Backend, off_policy_sampling

if TYPE_CHECKING:
    from tbtui.config import RunConfig
    from tbtui.config.values import Problem
    from tbtui.policies.base import Policy


def _make(config: RunConfig, log_file: IO[bytes]) -> Policy:
    from tbtui.policies.local.client import LocalPolicy
    from tbtui.policies.local.tokenizer import CHECKPOINTS

    checkpoint = Path(config.checkpoint or CHECKPOINTS / config.model_name)
    return LocalPolicy(checkpoint, model_name=config.model_name, log=log_file)


def _problems(config: RunConfig) -> Iterator[Problem]:
    from tbtui.config.values import error

    if "lora_rank" in config.given:
        yield error("lora_rank: the embedded policy trains all its weights; leave it out")
    yield from off_policy_sampling(config, "the embedded policy")


BACKEND = Backend(_make, _problems)
