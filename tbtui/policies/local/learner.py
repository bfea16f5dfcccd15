"""The policy without its process: trained weights, published weights, optimiser and versions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tbtui.policies.base import (
    Datum,
    PolicyError,
    Sample,
    SampleRequest,
    TrainResult,
    TrainSettings,
)
from tbtui.policies.local.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from tbtui.policies.local.gradient import TokenLoss, TrainingSequence, loss_and_gradient
from tbtui.policies.local.losses import policy_loss
from tbtui.policies.local.model import Array, Parameters, Rotary
from tbtui.policies.local.optimizer import AdamW
from tbtui.policies.local.sampling import sample


class Learner:
    """Weights are kept twice: `train_step` changes the trained ones, sampling uses the published
    ones, `publish` copies the former to the latter. So `sample` may run in one thread while
    `train_step` runs in another."""

    def __init__(self, checkpoint: Path, tokenizer_digest: str, stop_id: int, threads: int) -> None:
        """Raises `PolicyError` when `checkpoint` can't be used."""
        self._digest = tokenizer_digest
        self._stop_id = stop_id
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "gradient")
        self.load(checkpoint)

    def load(self, directory: Path) -> None:
        checkpoint = read_checkpoint(directory)
        if checkpoint.tokenizer_digest != self._digest:
            raise PolicyError(f"{directory} was made for another tokenizer; it can't be used here")
        self.config = checkpoint.config
        self._rotary = Rotary(self.config)
        self._trained = Parameters(self.config, checkpoint.weights)
        self._optimizer = AdamW(self.config)
        if checkpoint.first_moment is not None and checkpoint.second_moment is not None:
            self._optimizer.first[:] = checkpoint.first_moment
            self._optimizer.second[:] = checkpoint.second_moment
            self._optimizer.steps = checkpoint.optimizer_steps
        self._trained_version = checkpoint.weights_version
        # One object, replaced as a whole, so that a sampler never sees a version and weights
        # that don't belong together.
        self._published = (self._trained.copy(), self._trained_version)

    def save(self, directory: Path) -> None:
        write_checkpoint(
            directory,
            Checkpoint(
                config=self.config,
                tokenizer_digest=self._digest,
                weights_version=self._trained_version,
                weights=self._trained.flat,
                first_moment=self._optimizer.first,
                second_moment=self._optimizer.second,
                optimizer_steps=self._optimizer.steps,
            ),
        )

    def publish(self) -> int:
        """The version that is sampled from now on: the number of optimiser steps behind it."""
        if self._published[1] != self._trained_version:
            self._published = (self._trained.copy(), self._trained_version)
        return self._trained_version

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        parameters, version = self._published
        completions = sample(parameters, self._rotary, requests, self._stop_id)
        return [Sample(c.ids, c.logprobs, c.stop_reason, version) for c in completions]

    def train_step(self, data: Sequence[Datum], settings: TrainSettings) -> TrainResult:
        """Raises `PolicyError` for data or settings that can't be trained on; the weights are
        then what they were."""
        started = time.perf_counter()
        sequences = [_sequence(datum, self.config.context_limit, settings) for datum in data]
        if not any(len(sequence.trained) for sequence in sequences):
            raise PolicyError("there are no trained tokens in the data")
        # A sequence without trained tokens has nothing to compute.
        kept = [i for i, sequence in enumerate(sequences) if len(sequence.trained)]
        outcomes, gradient = loss_and_gradient(
            self._trained, self._rotary, [sequences[i] for i in kept], self._pool, self._threads
        )
        try:
            norm = self._optimizer.step(
                self._trained,
                gradient,
                settings.learning_rate,
                grad_clip=settings.grad_clip,
                weight_decay=settings.weight_decay,
            )
        except FloatingPointError as error:
            raise PolicyError(f"{error}: the step was not taken; lower learning_rate") from error
        self._trained_version += 1
        logprobs: list[Array] = [np.zeros(0, np.float32) for _ in sequences]
        largest = 0.0
        for index, outcome in zip(kept, outcomes, strict=True):
            logprobs[index] = outcome.logprobs
            old = data[index].logprobs[sequences[index].trained]
            largest = max(largest, float(np.abs(outcome.logprobs - old).max()))
        return TrainResult(
            loss=float(sum(outcome.loss for outcome in outcomes)),
            grad_norm=norm,
            entropy=float(np.concatenate([outcome.entropies for outcome in outcomes]).mean()),
            logprobs=tuple(logprobs),
            seconds=time.perf_counter() - started,
            metrics={
                "trained_tokens": float(sum(len(outcome.logprobs) for outcome in outcomes)),
                "largest_logprob_change": largest,
            },
        )


def _sequence(datum: Datum, limit: int, settings: TrainSettings) -> TrainingSequence:
    length = len(datum.tokens)
    arrays = (datum.mask, datum.logprobs, datum.advantages, datum.weights)
    if any(array.shape != (length,) for array in arrays) or length < 2 or datum.mask[0]:
        raise PolicyError("a datum's arrays differ in length, or it trains its first token")
    if length > limit:
        raise PolicyError(f"a datum has {length} tokens; the context limit is {limit}")
    trained = np.flatnonzero(datum.mask)
    return TrainingSequence(datum.tokens.astype(np.int64), trained, _loss(datum, trained, settings))


def _loss(datum: Datum, trained: np.ndarray, settings: TrainSettings) -> TokenLoss:
    old, advantages = datum.logprobs[trained], datum.advantages[trained]
    weights = datum.weights[trained]

    def loss(new: Array) -> tuple[float, Array]:
        return policy_loss(new, old, advantages, weights, settings)

    return loss
