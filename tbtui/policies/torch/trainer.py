"""The model that learns: gradients, optimiser steps, scores, checkpoints.

Where memory runs out, the gradient that has been added up since the last step is forgotten, and
all of its data are gone through again in micro-batches of half the size. So no step is lost, and
the result is the same but for the order in which numbers are added.
"""

from __future__ import annotations

import contextlib
import gc
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from tbtui.policies.base import (
    Datum,
    GradientResult,
    LossSettings,
    OptimSettings,
    PolicyError,
    StepResult,
)
from tbtui.policies.torch.batches import SegmentTensors, micro_batches, padded, tensors_of
from tbtui.policies.torch.checkpoint_file import (
    Header,
    export_weights,
    read_fitting,
    write_checkpoint,
)
from tbtui.policies.torch.free_memory import free_memory
from tbtui.policies.torch.loading import (
    context_of,
    load_base,
    resolve_device,
    resolve_dtype,
    with_lora,
)
from tbtui.policies.torch.logprobs import OutputHead, policy_loss, token_logprobs
from tbtui.policies.torch.memory_plan import (
    activation_bytes_per_token,
    chunk_length,
    micro_batch_for,
    micro_batch_on_cpu,
)
from tbtui.policies.torch.optimizer import MasterAdamW
from tbtui.policies.torch.settings import TrainerSettings

Array = npt.NDArray[np.float32]
Weights = Literal["trained", "reference"]


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """What a pass found of one segment of N trained tokens."""

    loss: float
    logprobs: Array
    entropies: Array


_NOTHING = SegmentResult(0.0, np.zeros(0, np.float32), np.zeros(0, np.float32))
type Handed = tuple[list[SegmentTensors], LossSettings]


class Trainer:
    """A new training, at version 0, from the model's own weights or those of a checkpoint, which
    are its reference."""

    def __init__(self, settings: TrainerSettings) -> None:
        """Raises `PolicyError` when the model, its adapter or the checkpoint can't be had."""
        self._settings = settings
        # Nothing draws in training, but a checkpoint has the generator's state, which PyTorch
        # seeds anew in each process.
        torch.manual_seed(settings.seed)
        self.device = resolve_device(settings.train_device)
        self.dtype = resolve_dtype(settings.dtype, self.device)
        causal = load_base(settings.model_name, self.dtype, self.device)
        self.context_limit = context_of(causal.config, settings.context_limit, settings.model_name)
        self._head = OutputHead(causal)
        self._causal = _with_every_token(_without_chance(causal))
        self._head.check(causal, settings.model_name)
        if settings.lora_rank:
            self._model = with_lora(
                causal,
                settings.lora_rank,
                settings.lora_alpha,
                settings.lora_targets,
                settings.seed,
            )
            self._head = OutputHead(causal)  # it may have an adapter by now
        else:
            self._model = causal
        if settings.gradient_checkpointing:
            # In evaluation mode there is no checkpointing; nothing draws at random in either.
            causal.gradient_checkpointing_enable({"use_reentrant": False})
            self._model.train()
        self.parameters = {
            name: parameter
            for name, parameter in self._model.named_parameters()
            if parameter.requires_grad
        }
        self._optimizer = MasterAdamW(self.parameters)
        self._most_tokens = settings.micro_batch_tokens or _tokens_that_fit(
            causal, self.device, settings.gradient_checkpointing
        )
        self._chunk = chunk_length(self._head.vocab_size)
        self._reference: dict[str, torch.Tensor] | None = None
        self._out_of_memory = 0
        self._version = 0
        self._published = 0
        """Version of the weights that samplers were given; they begin with the model's own."""
        self._forget()
        if settings.checkpoint is not None:
            _, tensors = self._read(settings.checkpoint)
            self._optimizer.restore(_weights_alone(tensors), steps=0)
            self._published = -1

    @property
    def size(self) -> int:
        """Parameters of the model, without an adapter."""
        adapter = sum(map(torch.Tensor.numel, self.parameters.values()))
        every = sum(map(torch.Tensor.numel, self._model.parameters()))
        return int(every - adapter if self._settings.lora_rank else every)

    @property
    def vocab_size(self) -> int:
        return self._head.vocab_size

    @property
    def description(self) -> str:
        """What is trained, in what numbers and where: one line."""
        trained = sum(map(torch.Tensor.numel, self.parameters.values()))
        what = f"LoRA rank {rank}" if (rank := self._settings.lora_rank) else "all weights"
        return (
            f"training {what}: {trained:,} parameters, {self.dtype} on {self.device}, micro-batches"
            f" of {self._most_tokens} tokens, contexts of {self.context_limit}"
        )

    def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        """Raises `PolicyError` for data that can't be trained on; `apply` then refuses too."""
        started = time.perf_counter()
        try:
            segments = [tensors_of(d, self.context_limit, self.vocab_size) for d in data]
            if not any(len(segment.targets) for segment in segments):
                raise PolicyError("there are no trained tokens in the data")
            self._handed.append((segments, loss))
            outcomes = self._whole_gradient()
        except PolicyError:
            self._incomplete = True
            raise
        batches = micro_batches(segments, self._most_tokens)
        changes = [
            np.abs(outcome.logprobs - segment.old.numpy()).max(initial=0.0)
            for outcome, segment in zip(outcomes, segments, strict=True)
        ]
        metrics = {
            "trained_tokens": float(sum(len(outcome.logprobs) for outcome in outcomes)),
            "largest_logprob_change": float(max(changes)),
            "micro_batches": float(len(batches)),
            "micro_batch_tokens": float(self._most_tokens),
            "out_of_memory": float(self._out_of_memory),
        }
        return GradientResult(
            loss=math.fsum(outcome.loss for outcome in outcomes),
            entropy=float(np.concatenate([outcome.entropies for outcome in outcomes]).mean()),
            logprobs=tuple(outcome.logprobs for outcome in outcomes),
            seconds=time.perf_counter() - started,
            metrics=metrics,
        )

    def apply(self, settings: OptimSettings) -> StepResult:
        """Raises `PolicyError` when there is no whole, finite gradient to take a step along; the
        weights are then what they were. The accumulated gradient is zero either way."""
        started = time.perf_counter()
        incomplete, empty = self._incomplete, not self._handed
        divisor = settings.divide_by
        try:
            if incomplete:
                raise PolicyError("a part of the gradient failed: the step was not taken")
            if empty:
                raise PolicyError("there is no gradient: the step was not taken")
            if not (math.isfinite(divisor) and divisor > 0):
                raise PolicyError(f"a gradient can't be divided by {divisor}")
            norm = self._optimizer.step(settings)
        except FloatingPointError as error:
            raise PolicyError(f"{error}: the step was not taken; lower learning_rate") from error
        finally:
            self._forget()
        self._version += 1
        return StepResult(grad_norm=norm, seconds=time.perf_counter() - started)

    def score(self, data: Sequence[Datum], weights: Weights) -> tuple[Array, ...]:
        """Raises `PolicyError` for data that can't be scored."""
        segments = [tensors_of(d, self.context_limit, self.vocab_size) for d in data]
        with torch.no_grad(), self._in_force(weights):
            while (outcomes := self._passes(segments, None)) is None:
                self._take_smaller(segments)
        return tuple(outcome.logprobs for outcome in outcomes)

    def publish(self, root: Path) -> tuple[int, Path | None]:
        """The version of the weights, and the new directory in `root` that has them as samplers
        read them; None: samplers were given this version before."""
        if self._published == self._version:
            return self._version, None
        directory = root / f"version-{self._version}"
        export_weights(self._model, directory)
        self._published = self._version
        return self._version, directory

    def release(self) -> None:
        """Give the GPU memory that isn't in use to other programs."""
        gc.collect()
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()

    def save(self, directory: Path) -> None:
        """Write all that training goes on from between two steps: not the accumulated gradient."""
        settings = self._settings
        header = Header(
            model_name=settings.model_name,
            architecture=type(self._causal).__name__,
            lora_rank=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            weights_version=self._version,
            optimizer_steps=self._optimizer.steps,
        )
        write_checkpoint(directory, header, self._optimizer.state())

    def load(self, directory: Path) -> None:
        """Go on with the training that was saved in `directory`.

        Raises `PolicyError`, and changes nothing, when the checkpoint can't be used.
        """
        header, tensors = self._read(directory)
        self._optimizer.restore(tensors, header.optimizer_steps)
        self._version, self._published = header.weights_version, -1
        self._forget()

    def _read(self, directory: Path) -> tuple[Header, dict[str, torch.Tensor]]:
        architecture = type(self._causal).__name__
        return read_fitting(directory, self._settings, architecture, self.parameters)

    def _forget(self) -> None:
        self._optimizer.forget_gradient()
        self._handed: list[Handed] = []
        """What the accumulated gradient is of."""
        self._incomplete = False
        """Data were handed in whose gradient could not be added."""
        self._out_of_memory = 0

    def _whole_gradient(self) -> list[SegmentResult]:
        """Add the gradient of what was handed in last; of all again, where memory runs out."""
        todo = self._handed[-1:]
        while True:
            outcomes: list[SegmentResult] | None = None
            for segments, loss in todo:
                outcomes = self._passes(segments, loss)
                if outcomes is None:
                    self._optimizer.forget_gradient()
                    self._take_smaller(segments)
                    break
            if outcomes is not None:
                return outcomes
            todo = self._handed

    def _passes(
        self, segments: Sequence[SegmentTensors], loss: LossSettings | None
    ) -> list[SegmentResult] | None:
        """Forward, and backward where there is a loss, one micro-batch at a time; None: memory has
        run out."""
        outcomes = [_NOTHING] * len(segments)
        try:
            for indices in micro_batches(segments, self._most_tokens):
                found = self._pass([segments[index] for index in indices], loss)
                for index, outcome in zip(indices, found, strict=True):
                    outcomes[index] = outcome
        except torch.OutOfMemoryError:
            return None  # the error keeps what it met alive, and goes first
        return outcomes

    def _pass(
        self, segments: Sequence[SegmentTensors], loss: LossSettings | None
    ) -> list[SegmentResult]:
        batch = padded(segments, self.device)
        # PEFT changes the layers in place: the model's own parts have the adapter in them.
        decoder = self._causal.get_decoder()
        hidden = decoder(input_ids=batch.tokens, use_cache=False).last_hidden_state
        logprobs, entropies = token_logprobs(
            self._head, hidden[batch.rows, batch.columns], batch.targets, self._chunk
        )
        each = logprobs.split(batch.counts)
        losses = [0.0] * len(segments)
        if loss is not None:
            values = [
                policy_loss(
                    new,
                    segment.old.to(self.device),
                    segment.advantages.to(self.device),
                    segment.weights.to(self.device),
                    loss,
                )
                for new, segment in zip(each, segments, strict=True)
            ]
            torch.stack(values).sum().backward()
            losses = [float(value.detach()) for value in values]
        return [
            SegmentResult(value, _array(new), _array(entropy))
            for value, new, entropy in zip(losses, each, entropies.split(batch.counts), strict=True)
        ]

    def _take_smaller(self, segments: Sequence[SegmentTensors]) -> None:
        """Halve what is computed at once, and remember it.

        Raises:
            PolicyError: one segment alone doesn't fit.
        """
        self._out_of_memory += 1
        self.release()
        sizes = [
            len(indices) * len(segments[indices[0]].tokens)
            for indices in micro_batches(segments, self._most_tokens)
        ]
        longest = max(len(segment.tokens) for segment in segments)
        if max(sizes) > longest:
            self._most_tokens = max(longest, min(self._most_tokens, max(sizes)) // 2)
        elif self._chunk > 1 and self._chunk > longest // 64:
            self._chunk = max(1, min(self._chunk, longest) // 2)
        else:
            raise PolicyError(
                f"a segment of {longest} tokens doesn't fit the memory of {self.device}; lower"
                " context_limit or lora_rank, or take a smaller model"
            )

    @contextlib.contextmanager
    def _in_force(self, weights: Weights) -> Iterator[None]:
        if weights == "trained":
            yield
        elif self._settings.lora_rank and self._settings.checkpoint is None:
            with self._model.disable_adapter():
                yield
        else:
            yield from self._exchanged(self._reference_weights())

    def _exchanged(self, others: dict[str, torch.Tensor]) -> Iterator[None]:
        trained = {name: parameter.data for name, parameter in self.parameters.items()}
        try:
            for name, parameter in self.parameters.items():
                parameter.data = others[name].to(parameter.device, parameter.dtype)
            yield
        finally:
            for name, parameter in self.parameters.items():
                parameter.data = trained[name]

    def _reference_weights(self) -> dict[str, torch.Tensor]:
        """The weights that training started from, read again when they are first needed."""
        if self._reference is None:
            if self._settings.checkpoint is not None:
                _, tensors = self._read(self._settings.checkpoint)
                own = _weights_alone(tensors)
                self._reference = {name: own[f"weight/{name}"] for name in self.parameters}
            else:
                base: Any = load_base(self._settings.model_name, self.dtype, "cpu")
                self._reference = {name: p.detach() for name, p in base.named_parameters()}
        return self._reference


def _weights_alone(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name.startswith("weight/")}


def _without_chance(causal: Any) -> Any:
    """The model with all dropout and noise of its training mode switched off."""
    for module in causal.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("drop" in name or "jitter" in name):
                setattr(module, name, 0.0)
    return causal


def _with_every_token(causal: Any) -> Any:
    """The model with a gradient for the embedding of each token.

    transformers leaves out that of `pad_token_id`, which for many models also ends a message.
    What pads a batch here has no part in the loss, whatever token it is.
    """
    for module in causal.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    return causal


def _array(tensor: torch.Tensor) -> Array:
    array: Array = tensor.detach().float().cpu().numpy()
    return array


def _tokens_that_fit(causal: Any, device: str, checkpointing: bool) -> int:
    """Tokens of one forward and backward pass that the free memory has room for."""
    config = causal.config.get_text_config(decoder=True)
    width = int(config.hidden_size)
    per_token = activation_bytes_per_token(
        width,
        int(getattr(config, "intermediate_size", None) or 4 * width),
        int(config.num_hidden_layers),
        int(causal.dtype.itemsize),
        checkpointing=checkpointing,
    )
    if not device.startswith("cuda"):
        return micro_batch_on_cpu(free_memory(device).free, per_token)
    free, _ = torch.cuda.mem_get_info(device)
    return micro_batch_for(free, per_token)
