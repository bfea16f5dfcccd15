"""A training client small enough to know its gradient: one table of logits, by preceding token.

It has what `Training` asks of a `tinker.TrainingClient`. `sums` reduces a loss as Tinker's hosted
service does. `averages` is SkyRL's JAX engine (0.4.0): each sequence's loss is divided by its
positions (for cross-entropy: by the sum of its weights, no less than 1e-9), a gradient by the
number of sequences in it, and only the losses of tokens are reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal, cast, get_args

import httpx
import numpy as np
import numpy.typing as npt
import tinker
from tinker.types import LossFnType

from tbtui.vocabulary import LossName

Array = npt.NDArray[np.float64]
Datum = tinker.Datum
VOCABULARY = 12
LOSSES: tuple[LossName, ...] = get_args(LossName)
NATIVE = frozenset(LOSSES) & frozenset(get_args(LossFnType)) - {"dro"}
"""Losses that a server can compute as we define them. The weights of dro can't be sent."""


class Toy:
    def __init__(
        self,
        reduction: Literal["sums", "averages"] = "sums",
        *,
        losses: Collection[str] = NATIVE,
        tells: bool = True,
        seed: int = 0,
    ) -> None:
        """`tells`: what the loss is, in its answers."""
        self.logits = np.random.default_rng(seed).normal(0, 1.5, (VOCABULARY, VOCABULARY))
        self.log: list[str] = []
        """Submissions, in order."""
        self.answers: list[asyncio.Future[Any]] = []
        self.asked = asyncio.Event()
        """There has been one."""
        self.steps: list[Array] = []
        """The gradient of each optimiser step."""
        self.params: list[tinker.AdamParams] = []
        self.lies = 1.0
        """A factor of every policy-gradient loss."""
        self.hold: dict[str, asyncio.Event] = {}
        """Answers to that kind of request wait for the event."""
        self.fails: dict[str, Exception] = {}
        """Requests of that kind fail, once."""
        self.reduction = reduction
        self._losses = losses
        self._tells = tells
        self._gradient = np.zeros_like(self.logits)
        self._sequences = 0

    @property
    def client(self) -> tinker.TrainingClient:
        return cast(tinker.TrainingClient, self)

    def forward(
        self, data: list[Datum], loss_fn: str, loss_fn_config: Mapping[str, float] | None = None
    ) -> Awaitable[tinker.ForwardBackwardOutput]:
        return self._submit(
            "forward", lambda: self._pass(data, loss_fn, loss_fn_config, backward=False)
        )

    def forward_backward(
        self, data: list[Datum], loss_fn: str, loss_fn_config: Mapping[str, float] | None = None
    ) -> Awaitable[tinker.ForwardBackwardOutput]:
        return self._submit(
            "forward_backward", lambda: self._pass(data, loss_fn, loss_fn_config, backward=True)
        )

    def optim_step(self, params: tinker.AdamParams) -> Awaitable[tinker.types.OptimStepResponse]:
        return self._submit("optim_step", lambda: self._step(params))

    def _submit[T](self, kind: str, work: Callable[[], T]) -> Awaitable[T]:
        self.log.append(kind)
        self.asked.set()
        failure = self.fails.pop(kind, None)

        # The work is done at once, in order; only its answer may take its time.
        try:
            outcome: T | Exception = failure or work()
        except tinker.APIError as error:
            outcome = error
        self.answers.append(asyncio.ensure_future(self._answer(kind, outcome)))
        return self.answers[-1]

    async def _answer[T](self, kind: str, outcome: T | Exception) -> T:
        if kind in self.hold:
            await self.hold[kind].wait()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _step(self, params: tinker.AdamParams) -> tinker.types.OptimStepResponse:
        divisor = max(self._sequences, 1) if self.reduction == "averages" else 1
        gradient = self._gradient / divisor
        self.steps.append(gradient)
        self.params.append(params)
        self.logits -= params.learning_rate * gradient
        self._gradient = np.zeros_like(self.logits)
        self._sequences = 0
        norm = float(np.linalg.norm(gradient))
        return tinker.types.OptimStepResponse(metrics={"skyrl.ai/grad_norm": norm})

    def _pass(
        self,
        data: list[Datum],
        loss_fn: str,
        config: Mapping[str, float] | None,
        *,
        backward: bool,
    ) -> tinker.ForwardBackwardOutput:
        if loss_fn != "cross_entropy" and loss_fn not in self._losses:
            raise refusal(422, f"unknown loss_fn {loss_fn}")
        outputs, total = [], 0.0
        for datum in data:
            inputs = {name: tensor.to_numpy() for name, tensor in datum.loss_fn_inputs.items()}
            tokens, targets = np.array(datum.model_input.to_ints()), inputs["target_tokens"]
            table = log_softmax(self.logits)
            new = table[tokens, targets]
            losses, slopes = token_losses(loss_fn, new, inputs, config or {})
            if loss_fn != "cross_entropy":
                losses, slopes = losses * self.lies, slopes * self.lies
            divisor = 1.0
            if self.reduction == "averages":
                weights = inputs.get("weights", np.ones(len(new)))
                divisor = max(float(weights.sum()), 1e-9)
            total += float(losses.sum()) / divisor
            if backward:
                residual = np.eye(VOCABULARY)[targets] - np.exp(table[tokens])
                np.add.at(self._gradient, tokens, slopes[:, None] / divisor * residual)
            fields = {"logprobs": tensor(new)}
            if self._tells and self.reduction == "averages":
                fields["elementwise_loss"] = tensor(losses)
            outputs.append(fields)
        if backward:
            self._sequences += len(data)
        told = self._tells and self.reduction == "sums"
        return tinker.ForwardBackwardOutput(
            loss_fn_output_type="ArrayRecord",
            loss_fn_outputs=outputs,
            metrics={"loss:sum": total} if told else {},
        )


def log_softmax(logits: Array) -> Array:
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def token_losses(
    loss_fn: str, new: Array, inputs: Mapping[str, Array], config: Mapping[str, float]
) -> tuple[Array, Array]:
    """Each token's loss, and its derivative: as Tinker's documentation defines them."""
    if loss_fn == "cross_entropy":
        return -inputs["weights"] * new, -inputs["weights"]
    advantages = inputs["advantages"]
    ratio = np.exp(new - inputs["logprobs"])
    if loss_fn == "importance_sampling":
        return -ratio * advantages, -ratio * advantages
    if loss_fn == "gspo":
        counted = inputs["sequence_ratio_mask"] != 0
        ratio[:] = np.exp((new - inputs["logprobs"])[counted].mean())
    clipped = np.clip(ratio, config["clip_low_threshold"], config["clip_high_threshold"])
    if loss_fn == "cispo":
        return -clipped * new * advantages, -clipped * advantages
    whole = ratio * advantages <= clipped * advantages
    return -np.minimum(ratio * advantages, clipped * advantages), np.where(
        whole, -ratio * advantages, 0
    )


def tensor(values: Array) -> tinker.TensorData:
    return tinker.TensorData.from_numpy(values.astype(np.float32))


def refusal(status: int, detail: str) -> tinker.APIStatusError:
    request = httpx.Request("POST", "http://server/api/v1/forward_backward")
    response = httpx.Response(status, request=request, json={"detail": detail})
    return tinker.APIStatusError(detail, response=response, body={"detail": detail})
