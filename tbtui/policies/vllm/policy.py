"""A model on a vLLM server, as engines see it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from tbtui.policies.base import (
    Datum,
    Ended,
    GradientResult,
    LossSettings,
    OptimSettings,
    PolicyError,
    PolicyInfo,
    PolicyRefusedError,
    PolicyStatus,
    Sample,
    SampleRequest,
    StepResult,
)
from tbtui.policies.chat.base import ChatRenderer
from tbtui.policies.meter import RequestMeter
from tbtui.policies.threads import in_daemon_thread
from tbtui.policies.vllm.completions import PATH, completion_body, read_completion
from tbtui.policies.vllm.connection import Connection
from tbtui.policies.vllm.metrics import InferenceStatus, InferenceWindow, read_metrics
from tbtui.policies.vllm.served import (
    PROBE,
    context_limit,
    served_model,
    tokenizer_notes,
    tokenizer_of,
)
from tbtui.policies.vllm.settings import VllmSettings
from tbtui.policies.work import Work, fitted

_BETWEEN_LOOKS_SEC = 1.0
_LATELY_SEC = 10.0
"""What the server told longer ago says nothing of now."""


class VllmPolicy:
    """Implements `tbtui.policies.base.Policy`, but for training: what would change or keep weights
    raises `PolicyError`. There is one version of them, 0."""

    def __init__(self, settings: VllmSettings, meter: RequestMeter | None = None) -> None:
        """`meter` counts requests; one of its own when None."""
        self._settings = settings
        self._meter = meter or RequestMeter()
        self._connection: Connection | None = None
        self._info: PolicyInfo | None = None
        self._renderer: ChatRenderer | None = None
        self._looking: asyncio.Task[None] | None = None
        self._running: int | None = None
        """Requests that the server computed when it was last looked at, anybody's."""
        self._inference: InferenceStatus | None = None
        self._looked_at = -math.inf
        self._closed = False
        self._unanswered: set[asyncio.Task[Any]] = set()
        self._asked = asyncio.Event()
        """There are some."""
        self._work = Work()

    @property
    def info(self) -> PolicyInfo:
        if self._info is None:
            raise PolicyError("the policy has not been started")
        return self._info

    @property
    def renderer(self) -> ChatRenderer:
        if self._renderer is None:
            raise PolicyError("the policy has not been started")
        return self._renderer

    async def start(self, resume: Path | None = None) -> None:
        """Ask the server for the model, and for one token of it.

        Raises `PolicyError` when it can't be reached, doesn't have the model, or tells no token
        ids or log-probabilities."""
        settings = self._settings
        self._connection = connection = Connection(settings.base_url, self._meter)
        model = await served_model(connection, settings.model_name)
        limit = context_limit(model, settings.context_limit)
        embedded = settings.renderer == "embedded"
        renderer = await _renderer(
            settings, model.name if embedded else settings.tokenizer or tokenizer_of(model)
        )
        self._renderer = renderer
        notes = await tokenizer_notes(connection, model, renderer)
        await self._draw(SampleRequest(renderer.render(PROBE), 1, 1.0, 0))
        self._info = PolicyInfo(
            name="vllm",
            model_name=model.name,
            parameters=None,
            context_limit=limit,
            losses=(),
            honours=frozenset({"vllm_base_url", "renderer"})
            | (frozenset() if embedded else {"tokenizer", "thinking"}),
            tokenizer=renderer.digest,
            notes=(*renderer.notes, *notes),
        )
        self._looking = asyncio.create_task(self._look(connection))

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises `ContextOverflowError` when not one token fits behind the prompt. A completion
        is cut off where the context ends. Takes as long as the server does."""
        asked = fitted(request, self.info.context_limit)
        started = time.monotonic()
        drawn = await self._draw(asked)
        self._work.answered(drawn, time.monotonic() - started)
        if drawn.cached_tokens is not None:
            # Told only by a server with --enable-prompt-tokens-details.
            self._meter.answered(len(request.prompt_ids), drawn.cached_tokens)
        return drawn

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        self._refuse("trained")

    async def apply(self, settings: OptimSettings) -> StepResult:
        self._refuse("trained")

    async def score(
        self, data: Sequence[Datum], weights: Literal["trained", "reference"]
    ) -> tuple[npt.NDArray[np.float32], ...]:
        self._refuse("scored")

    async def publish(self) -> int:
        return 0

    async def save(self, directory: Path) -> None:
        self._refuse("saved")

    async def load(self, directory: Path) -> None:
        self._refuse("loaded")

    async def forget(self, directory: Path) -> None:
        """There is nothing: the policy saves no checkpoint."""

    def status(self) -> PolicyStatus:
        in_flight = len(self._unanswered)
        # The server counts everybody's requests, and ours are no more than that.
        running = in_flight if self._running is None else min(in_flight, self._running)
        server = self._meter.status()
        if self._inference and time.monotonic() - self._looked_at < _LATELY_SEC:
            server = self._inference.added_to(server)
        return self._work.status(in_flight, running, server=server)

    async def close(self, ended: Ended = "success") -> None:
        self._closed = True
        looking, self._looking = self._looking, None
        for task in (looking, *self._unanswered):
            if task is not None:
                task.cancel()
        if looking is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _draw(self, request: SampleRequest) -> Sample:
        connection = self._connection
        if self._closed or connection is None:
            raise PolicyError("the policy has been closed")
        body = completion_body(self._settings.model_name, request, self.renderer.stop_ids)
        with self._meter.request("sample"):
            answer = asyncio.create_task(connection.post(PATH, body, "sampling", patient=True))
            self._unanswered.add(answer)
            self._asked.set()
            try:
                content = await answer
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                # It wasn't whoever asked that cancelled it.
                raise PolicyError("sampling: the policy has been closed") from None
            finally:
                self._unanswered.discard(answer)
                if not self._unanswered:
                    self._asked.clear()
                    self._running = None
            return read_completion(content, request)

    async def _look(self, connection: Connection) -> None:
        """At what the server counts itself, as long as there are requests."""
        window = InferenceWindow()
        while True:
            await self._asked.wait()
            try:
                metrics = read_metrics(await connection.text("/metrics", "reading metrics"))
            except PolicyRefusedError:
                return
            except (PolicyError, ValueError):
                # Something else answers there, or the requests themselves tell what is wrong.
                self._running = None
            else:
                self._running = metrics.gauge("num_requests_running")
                if metrics.values:
                    self._looked_at = time.monotonic()
                    self._inference = window.look(self._looked_at, [metrics])
            await asyncio.sleep(_BETWEEN_LOOKS_SEC)

    def _refuse(self, what: str) -> NoReturn:
        raise PolicyError(
            f"a model on a vLLM server can't be {what}: it can only be evaluated (policy=tinker"
            " trains)"
        )


async def _renderer(settings: VllmSettings, tokenizer: str) -> ChatRenderer:
    from tbtui.policies.chat.make import make_renderer

    return await in_daemon_thread(
        lambda: make_renderer(settings.renderer, tokenizer, settings.thinking), "vllm-renderer"
    )
