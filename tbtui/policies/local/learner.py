"""The policy without its process: trained and published weights, AdamW, versions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tbtui.algorithm.losses import policy_loss
from tbtui.policies.base import (
    Datum,
    GradientResult,
    LossSettings,
    OptimSettings,
    PolicyError,
    Sample,
    SampleRequest,
    StepResult,
)
from tbtui.policies.local.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from tbtui.policies.local.gradient import (
    SequenceOutcome,
    TokenLoss,
    TrainingSequence,
    loss_and_gradient,
)
from tbtui.policies.local.model import Array, IntArray, ModelConfig, Parameters, Rotary
from tbtui.policies.local.sampling import sample
from tbtui.policies.policy_process import Weights


class AdamW:
    """AdamW (Loshchilov & Hutter 2019) on the flat parameter vector: its first and second moments
    and the number of steps taken."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        beta1: float = 0.9,
        beta2: float = 0.95,
        epsilon: float = 1e-8,
    ) -> None:
        self.first: Array = np.zeros(config.size(), np.float32)
        self.second: Array = np.zeros(config.size(), np.float32)
        self.steps = 0
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon

    def step(
        self,
        parameters: Parameters,
        gradient: Array,
        learning_rate: float,
        *,
        grad_clip: float = 0.0,
        weight_decay: float = 0.0,
    ) -> float:
        """Update `parameters` in place; returns the gradient's norm before clipping.

        A gradient longer than `grad_clip` is shortened to it (0: never). Weight decay is
        decoupled and leaves the norms' gains alone. Raises `FloatingPointError` when the gradient
        isn't finite, and then changes nothing.
        """
        norm = float(np.sqrt(np.dot(gradient, gradient)))
        if not np.isfinite(norm):
            raise FloatingPointError("the gradient is not finite")
        if grad_clip and norm > grad_clip:
            gradient = gradient * np.float32(grad_clip / norm)
        beta1, beta2 = np.float32(self._beta1), np.float32(self._beta2)
        self.steps += 1
        self.first *= beta1
        self.first += (1 - beta1) * gradient
        self.second *= beta2
        self.second += (1 - beta2) * np.square(gradient)
        step_size = np.float32(learning_rate / (1 - self._beta1**self.steps))
        correction = np.float32(1 / (1 - self._beta2**self.steps))
        update = self.first / (np.sqrt(self.second * correction) + np.float32(self._epsilon))
        if weight_decay:
            keep = np.float32(1 - learning_rate * weight_decay)
            for name, view in parameters.views.items():
                if not name.endswith("norm"):
                    view *= keep
        parameters.flat -= step_size * update
        return norm


class Learner:
    """Trains and samples the model.

    Weights are kept twice: `apply` changes the trained ones, sampling uses the published ones,
    `publish` copies the former to the latter. So `sample` may run in one thread while the others
    run, one at a time, in another. A third copy, never changed, is the reference."""

    def __init__(self, start: Path, tokenizer_digest: str, stop_id: int, threads: int) -> None:
        """A new training, at version 0, from the weights of `start`, which are its reference.

        Raises `PolicyError` when `start` can't be used.
        """
        self._digest = tokenizer_digest
        self._stop_id = stop_id
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "gradient")
        checkpoint = self._read(start)
        self.config = checkpoint.config
        self._rotary = Rotary(self.config)
        self._reference = checkpoint.weights
        self._begin(Parameters(self.config, checkpoint.weights.copy()), version=0)

    def load(self, directory: Path) -> None:
        """Go on with the training that was saved in `directory`.

        A checkpoint that was never trained is where training starts, so it is the reference too.
        Raises `PolicyError`, and changes nothing, when the checkpoint can't be used.
        """
        checkpoint = self._read(directory)
        if checkpoint.config != self.config:
            raise PolicyError(
                f"{directory} is a model of another shape ({checkpoint.config}); it can't be"
                f" loaded into {self.config}"
            )
        if checkpoint.reference is not None:
            self._reference = checkpoint.reference
        elif not checkpoint.optimizer_steps:
            self._reference = checkpoint.weights.copy()
        self._begin(Parameters(self.config, checkpoint.weights), checkpoint.weights_version)
        if checkpoint.first_moment is not None and checkpoint.second_moment is not None:
            self._optimizer.first[:] = checkpoint.first_moment
            self._optimizer.second[:] = checkpoint.second_moment
            self._optimizer.steps = checkpoint.optimizer_steps

    def _read(self, directory: Path) -> Checkpoint:
        checkpoint = read_checkpoint(directory)
        if checkpoint.tokenizer_digest != self._digest:
            raise PolicyError(f"{directory} was made for another tokenizer; it can't be used here")
        return checkpoint

    def _begin(self, parameters: Parameters, version: int) -> None:
        self._trained = parameters
        self._trained_version = version
        self._optimizer = AdamW(self.config)
        # One object, replaced as a whole, so that a sampler never sees a version and weights
        # that don't belong together.
        self._published = (parameters.copy(), version)
        self._forget_gradient()

    def _forget_gradient(self) -> None:
        self._gradient: Array | None = None
        self._incomplete = False
        """Data were handed in whose gradient could not be added."""

    def save(self, directory: Path) -> None:
        """Write all that training goes on from between two steps: not the accumulated gradient."""
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
                reference=self._reference,
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
        return [
            Sample(c.ids, c.logprobs, c.stop_reason, version, model_logprobs=c.model_logprobs)
            for c in completions
        ]

    def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        """Raises `PolicyError` for data that can't be trained on; `apply` then refuses too."""
        started = time.perf_counter()
        try:
            sequences = [self._sequence(datum, loss) for datum in data]
            if not any(len(sequence.trained) for sequence in sequences):
                raise PolicyError("there are no trained tokens in the data")
        except PolicyError:
            self._incomplete = True
            raise
        outcomes, gradient = self._compute(self._trained, sequences, want_gradient=True)
        if self._gradient is None:
            self._gradient = gradient
        else:
            self._gradient += gradient
        changes = [
            np.abs(outcome.logprobs - datum.logprobs[datum.mask]).max(initial=0.0)
            for outcome, datum in zip(outcomes, data, strict=True)
        ]
        return GradientResult(
            loss=float(sum(outcome.loss for outcome in outcomes)),
            entropy=float(np.concatenate([outcome.entropies for outcome in outcomes]).mean()),
            logprobs=tuple(outcome.logprobs for outcome in outcomes),
            seconds=time.perf_counter() - started,
            metrics={
                "trained_tokens": float(sum(len(outcome.logprobs) for outcome in outcomes)),
                "largest_logprob_change": float(max(changes)),
            },
        )

    def apply(self, settings: OptimSettings) -> StepResult:
        """Raises `PolicyError` when there is no whole, finite gradient to take a step along; the
        weights are then what they were. The accumulated gradient is zero either way."""
        started = time.perf_counter()
        gradient, incomplete = self._gradient, self._incomplete
        self._forget_gradient()
        if incomplete:
            raise PolicyError("a part of the gradient failed: the step was not taken")
        if gradient is None:
            raise PolicyError("there is no gradient: the step was not taken")
        if not (np.isfinite(settings.divide_by) and settings.divide_by > 0):
            raise PolicyError(f"a gradient can't be divided by {settings.divide_by}")
        gradient /= np.float32(settings.divide_by)
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
        return StepResult(grad_norm=norm, seconds=time.perf_counter() - started)

    def score(self, data: Sequence[Datum], weights: Weights) -> tuple[Array, ...]:
        """Raises `PolicyError` for data that can't be scored."""
        sequences = [self._sequence(datum, None) for datum in data]
        match weights:
            case "trained":
                parameters = self._trained
            case "reference":
                parameters = Parameters(self.config, self._reference)
        outcomes, _ = self._compute(parameters, sequences, want_gradient=False)
        return tuple(outcome.logprobs for outcome in outcomes)

    def _compute(
        self, parameters: Parameters, sequences: Sequence[TrainingSequence], *, want_gradient: bool
    ) -> tuple[list[SequenceOutcome], Array]:
        # A sequence without trained tokens has nothing to compute.
        kept = [i for i, sequence in enumerate(sequences) if len(sequence.trained)]
        found, gradient = loss_and_gradient(
            parameters,
            self._rotary,
            [sequences[i] for i in kept],
            self._pool,
            self._threads,
            want_gradient=want_gradient,
        )
        nothing = SequenceOutcome(0.0, np.zeros(0, np.float32), np.zeros(0, np.float32))
        outcomes = [nothing] * len(sequences)
        for index, outcome in zip(kept, found, strict=True):
            outcomes[index] = outcome
        return outcomes, gradient

    def _sequence(self, datum: Datum, loss: LossSettings | None) -> TrainingSequence:
        length, limit = len(datum.tokens), self.config.context_limit
        arrays = (datum.mask, datum.logprobs, datum.advantages, datum.weights)
        if any(array.shape != (length,) for array in arrays) or length < 2 or datum.mask[0]:
            raise PolicyError("a datum's arrays differ in length, or it trains its first token")
        if length > limit:
            raise PolicyError(f"a datum has {length} tokens; the context limit is {limit}")
        if datum.tokens.min() < 0 or datum.tokens.max() >= self.config.vocab_size:
            raise PolicyError(f"a datum has a token outside of 0 to {self.config.vocab_size - 1}")
        trained = np.flatnonzero(datum.mask)
        return TrainingSequence(
            datum.tokens.astype(np.int64),
            trained,
            _no_loss if loss is None else _loss(datum, trained, loss),
        )


def _loss(datum: Datum, trained: IntArray, settings: LossSettings) -> TokenLoss:
    old, advantages = datum.logprobs[trained], datum.advantages[trained]
    weights = datum.weights[trained]

    def loss(new: Array) -> tuple[float, Array]:
        return policy_loss(new, old, advantages, weights, settings)

    return loss


def _no_loss(logprobs: Array) -> tuple[float, Array]:
    return 0.0, np.zeros_like(logprobs)
