"""Gradients, optimiser steps and scores of one training client, in the order in which they are
asked for."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tbtui.policies.base import (
    Datum,
    GradientResult,
    LossSettings,
    OptimSettings,
    PolicyError,
    PolicyLostError,
    StepResult,
)
from tbtui.policies.meter import RequestMeter
from tbtui.policies.tinker.capabilities import ServerAbilities
from tbtui.policies.tinker.data import (
    Masked,
    answered,
    check_data,
    cross_entropy_data,
    linear_data,
    loss_and_slopes,
    loss_config,
    masked_ones,
    policy_data,
)
from tbtui.policies.tinker.errors import policy_error
from tbtui.policies.work import unless_closed
from tbtui.server_status import RequestKind

if TYPE_CHECKING:
    import tinker

BETA1, BETA2, EPSILON = 0.9, 0.95, 1e-12
"""AdamW's, as the Tinker SDK has them."""

# Hosted and SkyRL's names for it, and what else it may reasonably be called.
_GRAD_NORM = re.compile(
    r"(?:^|[/.])(?:unclipped_|total_)?grad(?:ient)?_(?:norm|l2|l2_norm)(?::\w+)?$"
)

_GRADIENT = "the gradient"
_STEP = "the optimiser step"
_FORWARD = "the log-probabilities of the data"
_CLOSED = "the policy was closed before the Tinker server answered"

Earlier = tuple[asyncio.Task[object], ...]
"""What was asked for before and is not done."""

Request = tuple["list[tinker.Datum]", "tinker.types.LossFnType", "dict[str, float] | None"]
"""Data, loss and its configuration."""


class Training:
    """Gradients, optimiser steps and scores of one TrainingClient; knows the server's way with
    losses.

    Requests are submitted in the order of the calls, each as soon as the one before has been
    submitted: nothing waits for an answer. Only a loss that is computed on our side does: its
    backward pass needs the answer of its forward pass, and what follows waits until it has been
    submitted.

    The protocol has no way to take back a gradient. So once a part of one may be missing or left
    over, or a step's outcome is unknown, every further call raises `PolicyLostError`: that of the
    optimiser step too that was on its way already, whatever the server says of it.

    A caller that is cancelled stops waiting; the request goes on.
    """

    def __init__(
        self, client: tinker.TrainingClient, abilities: ServerAbilities, meter: RequestMeter
    ) -> None:
        self._client = client
        self._abilities = abilities
        self._meter = meter
        self._order = asyncio.Lock()
        """First in, first out."""
        self._running: dict[asyncio.Task[object], None] = {}
        self._lost: str | None = None
        self._sequences: int | None = None
        """Sequences of the first part of the gradient; None while there is no gradient."""
        self._refused = False
        """Data were handed in of which nothing was added to the gradient."""

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        """As `Policy.accumulate`. The loss is ours, computed from the server's log-probabilities;
        the server's own metrics are reported as `server/...`. Nothing is asked of the server for
        data without a trained token."""
        return await self._begin(lambda _: self._accumulate(data, loss))

    async def apply(self, settings: OptimSettings) -> StepResult:
        """As `Policy.apply`."""
        return await self._begin(lambda earlier: self._apply(settings, earlier))

    async def score(self, data: Sequence[Datum]) -> Masked:
        """Each datum's log-probabilities on its mask, under the trained weights."""
        return await self._begin(lambda _: self._score(data))

    async def in_order[T](self, submit: Callable[[], Awaitable[T]]) -> T:
        """Submit something else of the same client in its turn, and await it.

        Raises:
            PolicyLostError: what was being trained is lost, or was by the time of the answer.
            Exception: whatever the SDK raises, as it is.
        """
        return await self._begin(lambda earlier: self._in_order(submit, earlier))

    async def _begin[T](self, work: Callable[[Earlier], Coroutine[object, object, T]]) -> T:
        task = asyncio.create_task(work(tuple(self._running)))
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return await asyncio.shield(task)

    async def _accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        started = time.perf_counter()
        kept = [datum for datum in data if datum.mask.any()]
        async with self._order:
            self._check()
            self._check_data(kept)
            if not kept:
                return GradientResult(0.0, None, _spread(data, ()), 0.0)
            if loss.loss in self._abilities.native_losses:
                request = self._native(kept, loss)
            else:
                request = await self._linear(kept, loss)
            self._sequences = self._sequences or len(kept)
            answer = self._submit(_GRADIENT, lambda: self._client.forward_backward(*request))
        try:
            output = await self._answer("forward_backward", answer)
            logprobs = answered(kept, output)
        except Exception as error:
            raise self._in_doubt(policy_error(error, _GRADIENT)) from error
        value, _ = loss_and_slopes(kept, logprobs, loss)
        return GradientResult(
            loss=value,
            entropy=None,
            logprobs=_spread(data, logprobs),
            seconds=time.perf_counter() - started,
            metrics=_named(output.metrics),
        )

    def _check_data(self, data: Sequence[Datum]) -> None:
        try:
            check_data(data, self._abilities.context_limit)
        except PolicyError:
            self._refused = True
            raise

    def _native(self, data: Sequence[Datum], loss: LossSettings) -> Request:
        """To a server that has the loss."""
        return policy_data(data, loss.loss, self._scales(data)), loss.loss, loss_config(loss)

    async def _linear(self, data: Sequence[Datum], loss: LossSettings) -> Request:
        """The same gradient from a server that has only cross-entropy."""
        try:
            logprobs = await self._logprobs(data, self._submit_forward(data))
            _, slopes = loss_and_slopes(data, logprobs, loss)
            if not all(np.isfinite(each).all() for each in slopes):
                raise PolicyError(
                    "the gradient is not finite: no step can be taken; lower learning_rate"
                )
        except PolicyError:
            self._refused = True
            raise
        if self._abilities.reduction == "sum":
            return cross_entropy_data(data, slopes), "cross_entropy", None
        # A mean over a sequence's cross-entropy divides by the sum of its weights, which are of
        # either sign here.
        scales = map(np.float32, self._scales(data))
        scaled = tuple(slope * scale for slope, scale in zip(slopes, scales, strict=True))
        return linear_data(data, logprobs, scaled), "importance_sampling", None

    def _scales(self, data: Sequence[Datum]) -> list[float]:
        """What makes the server's reduction of each sequence a sum.

        A mean is taken over the T - 1 positions of a sequence, then over all sequences since the
        last optimiser step. How many that will be isn't known before the last of them, so the
        parts of one gradient are all scaled by the number in the first: in proportion to each
        other they are right.
        """
        if self._abilities.reduction == "sum":
            return [1.0] * len(data)
        sequences = self._sequences or len(data)
        return [float((len(datum.tokens) - 1) * sequences) for datum in data]

    def _submit_forward(self, data: Sequence[Datum]) -> Awaitable[tinker.ForwardBackwardOutput]:
        sent = cross_entropy_data(data, masked_ones(data))
        return self._submit(_FORWARD, lambda: self._client.forward(sent, "cross_entropy"))

    async def _logprobs(
        self, data: Sequence[Datum], answer: Awaitable[tinker.ForwardBackwardOutput]
    ) -> Masked:
        try:
            return answered(data, await self._answer("forward", answer))
        except Exception as error:
            found = policy_error(error, _FORWARD)
            if isinstance(found, PolicyLostError):
                found = self._in_doubt(found)
            raise found from error

    async def _apply(self, settings: OptimSettings, earlier: Earlier) -> StepResult:
        import tinker

        started = time.perf_counter()
        if settings.divide_by != 1:
            raise PolicyError(
                f"a Tinker server can't divide a gradient (by {settings.divide_by:g})"
            )
        params = tinker.AdamParams(
            learning_rate=settings.learning_rate,
            beta1=BETA1,
            beta2=BETA2,
            eps=EPSILON,
            weight_decay=settings.weight_decay,
            grad_clip_norm=settings.grad_clip,
        )
        async with self._order:
            self._check()
            self._check_gradient()
            answer = self._submit(_STEP, lambda: self._client.optim_step(params))
            self._sequences = None
        try:
            response = await self._answer("optim_step", answer)
        except Exception as error:
            # What failed first is what a person has to know.
            await self._settled(earlier)
            raise self._in_doubt(policy_error(error, _STEP)) from error
        await self._settled(earlier)
        metrics = response.metrics or {}
        norms = [value for name, value in metrics.items() if _GRAD_NORM.search(name)]
        return StepResult(
            grad_norm=norms[0] if norms else None,
            seconds=time.perf_counter() - started,
            metrics=_named(metrics),
        )

    def _check_gradient(self) -> None:
        """Raises unless there is a whole gradient to take a step along."""
        refused, self._refused = self._refused, False
        if refused:
            error = PolicyError("a part of the gradient failed: the step was not taken")
            raise error if self._sequences is None else self._in_doubt(error)
        if self._sequences is None:
            raise PolicyError("there is no gradient: the step was not taken")

    async def _score(self, data: Sequence[Datum]) -> Masked:
        kept = [datum for datum in data if datum.mask.any()]
        check_data(kept, self._abilities.context_limit)
        if not kept:
            return _spread(data, ())
        async with self._order:
            self._check()
            answer = self._submit_forward(kept)
        return _spread(data, await self._logprobs(kept, answer))

    async def _in_order[T](self, submit: Callable[[], Awaitable[T]], earlier: Earlier) -> T:
        async with self._order:
            self._check()
            answer = submit()
        result = await unless_closed(answer, _CLOSED)
        await self._settled(earlier)
        return result

    def _submit[T](self, doing: str, submit: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        try:
            return submit()
        except Exception as error:
            raise self._in_doubt(policy_error(error, doing)) from error

    async def _answer[T](self, kind: RequestKind, answer: Awaitable[T]) -> T:
        with self._meter.request(kind):
            return await unless_closed(answer, _CLOSED)

    async def _settled(self, earlier: Earlier) -> None:
        """Wait for what was asked for before; raises if it is lost then."""
        if earlier:
            await asyncio.wait(earlier)
        self._check()

    def _check(self) -> None:
        if self._lost is not None:
            raise PolicyLostError(self._lost)

    def _in_doubt(self, error: PolicyError) -> PolicyError:
        """From here on everything is refused; returns `error`."""
        if self._lost is None:
            self._lost = str(error)
            if not isinstance(error, PolicyLostError):
                self._lost += "; what there is of the gradient can't be taken back"
        return error


def _spread(data: Sequence[Datum], kept: Masked) -> Masked:
    """For all data, those without a mask included."""
    values = iter(kept)
    nothing = np.zeros(0, np.float32)
    return tuple(next(values) if datum.mask.any() else nothing for datum in data)


def _named(metrics: Mapping[str, float]) -> dict[str, float]:
    """Apart from our own names, and `loss:sum` as `loss_sum`."""
    return {f"server/{name.replace(':', '_')}": value for name, value in metrics.items()}
