"""A model on a vLLM server, as engines see it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from tbtui.policies.base import (
    ChatRenderer,
    Ended,
    PolicyError,
    PolicyInfo,
    PolicyRefusedError,
    PolicyStatus,
    Sample,
    SampleRequest,
    StopReason,
    unknown_unless_model,
)
from tbtui.policies.chat.make import load_renderer, may_think
from tbtui.policies.meter import RequestMeter
from tbtui.policies.vllm.connection import (
    PROBE,
    Connection,
    only_choice,
    served_model,
    tokenizer_notes,
    tokenizer_of,
    when_it_has_time,
)
from tbtui.policies.vllm.metrics import ServerWatch
from tbtui.policies.work import (
    SampledOnly,
    ServerSettings,
    Work,
    context_limit,
    fitted,
    library_log_to,
    unless_closed,
)

PATH = "/v1/completions"
_SEEDS = 2**63
"""A server's seeds are smaller than this."""
_FLOAT32 = 3e38


class VllmPolicy(SampledOnly[ChatRenderer]):
    """Implements `tbtui.policies.base.Policy`, but for training: what would change or keep weights
    raises `PolicyError`. There is one version of them, 0."""

    CANNOT = "a model on a vLLM server can't be {}: it can only be evaluated (policy=tinker trains)"

    def __init__(
        self,
        settings: ServerSettings,
        log: IO[bytes] | None = None,
        meter: RequestMeter | None = None,
    ) -> None:
        """
        Args:
            log: where what the libraries log goes; None: where it goes without us.
            meter: counts requests; one of its own when None.
        """
        self._settings = settings
        self._log = log
        self._meter = meter or RequestMeter()
        self._resources = contextlib.ExitStack()
        self._connection: Connection | None = None
        self._watch: ServerWatch | None = None
        self._closed = False
        self._unanswered: set[asyncio.Task[Any]] = set()
        self._work = Work()
        self._starting = ""
        """What is waited for while it starts."""

    async def start(self, resume: Path | None = None) -> None:
        """Ask the server for the model, and for one token of it.

        Raises `PolicyError` when it can't be reached, doesn't have the model, or gives no token
        ids or log-probabilities."""
        settings = self._settings
        if self._log is not None:
            self._resources.enter_context(library_log_to(self._log))
        self._connection = connection = Connection(settings.base_url, self._meter)
        model = await when_it_has_time(
            lambda: served_model(connection, settings.model_name), self._tell
        )
        limit = context_limit(model.context_limit, settings.context_limit, model.name, "the server")
        embedded = settings.renderer == "embedded"
        tokenizer = model.name if embedded else settings.tokenizer or tokenizer_of(model)
        renderer = await load_renderer(
            settings.renderer, tokenizer, settings.thinking, settings.tool_format, self._tell
        )
        self._tell("asking the server for a token")
        self._renderer = renderer
        notes = await tokenizer_notes(connection, model, renderer)
        probe = SampleRequest(renderer.render(PROBE), 1, settings.sampling, 0)
        await when_it_has_time(lambda: self._draw(probe), self._tell)
        self._info = PolicyInfo(
            name="vllm",
            model_name=model.name,
            parameters=None,
            context_limit=limit,
            losses=(),
            honours=frozenset({"vllm_base_url", "renderer"})
            | (frozenset() if embedded else {"tokenizer", "thinking", "tool_format"}),
            tokenizer=renderer.digest,
            thinks=may_think(renderer),
            notes=(*renderer.notes, *notes),
            address=connection.address,
        )
        self._watch = ServerWatch(connection, self._meter)

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises `ContextOverflowError` when not one token fits behind the prompt. A completion
        is cut off where the context ends. Takes as long as the server does."""
        asked = fitted(request, self.info.context_limit)
        started = time.monotonic()
        drawn = await self._draw(asked)
        self._work.answered(drawn, time.monotonic() - started)
        if drawn.cached_tokens is not None:
            # Given only by a server with --enable-prompt-tokens-details.
            self._meter.answered(len(request.prompt_ids), drawn.cached_tokens)
        return drawn

    def status(self) -> PolicyStatus:
        in_flight = len(self._unanswered)
        if self._watch is None:
            status = self._work.status(in_flight, in_flight, server=self._meter.status())
            return dataclasses.replace(status, starting=self._starting)
        return self._work.status(
            in_flight,
            self._watch.running(in_flight),
            server=self._watch.status(),
            progress=self._watch.progress,
        )

    async def close(self, ended: Ended = "success") -> None:
        self._closed = True
        watch, self._watch = self._watch, None
        for task in self._unanswered:
            task.cancel()
        if watch is not None:
            await watch.close()
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                await connection.close()
        finally:
            self._resources.close()

    async def _draw(self, request: SampleRequest) -> Sample:
        connection = self._connection
        if self._closed or connection is None:
            raise PolicyError("the policy has been closed")
        body = completion_body(self._settings.model_name, request, self.renderer.stop_ids)
        with self._meter.request("sample"):
            answer = asyncio.create_task(connection.post(PATH, body, "sampling", patient=True))
            self._unanswered.add(answer)
            self._count()
            try:
                content = await unless_closed(answer, "sampling: the policy has been closed")
            finally:
                self._unanswered.discard(answer)
                self._count()
            return read_completion(content, request)

    def _tell(self, line: str) -> None:
        self._starting = line

    def _count(self) -> None:
        if self._watch is not None:
            self._watch.in_flight(len(self._unanswered))


class UnableError(PolicyRefusedError):
    """The server doesn't give what a sample needs."""


def completion_body(
    model_name: str, request: SampleRequest, stop_ids: Sequence[int]
) -> dict[str, Any]:
    """What to post to `/v1/completions`, which takes a prompt of token ids as it is. With
    `return_token_ids` (vLLM from 0.10.2 on) the answer has those that were drawn, so that nothing
    is tokenised again. All that shapes the distribution is asked for: left out, a vLLM server takes
    `top_p`, `top_k` and penalties from the model's `generation_config.json`."""
    sampling = request.sampling
    return {
        "model": model_name,
        "prompt": list(request.prompt_ids),
        "max_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "seed": request.seed % _SEEDS,
        "stop_token_ids": list(stop_ids),
        "stop": list(sampling.stop),
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "logprobs": 1,
        "return_token_ids": True,
    }


def read_completion(content: Any, request: SampleRequest) -> Sample:
    """Raises `UnableError` where token ids or log-probabilities are missing, else `PolicyError`
    for an answer that can't be read or isn't one to the request."""
    choice = only_choice(content, "sampling")
    try:
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        finish, echoed = choice["finish_reason"], choice.get("prompt_token_ids")
        details = (content.get("usage") or {}).get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(f"sampling: the server's answer can't be read ({error!r})") from error
    if not isinstance(ids, list):
        raise UnableError(
            "sampling: the server gives no token ids (return_token_ids); vLLM does from 0.10.2 on"
        )
    if not isinstance(logprobs, list) or len(logprobs) != len(ids) or None in logprobs:
        raise UnableError("sampling: the server doesn't give each token's log-probability")
    if not all(type(each) is int and 0 <= each < 1 << 31 for each in ids):
        raise PolicyError("sampling: the server's answer can't be read (token ids that are none)")
    if not all(isinstance(each, int | float) and abs(each) <= _FLOAT32 for each in logprobs):
        raise PolicyError("sampling: the server's answer can't be read (no log-probabilities)")
    if not isinstance(echoed, list | None):
        raise PolicyError("sampling: the server's answer can't be read (prompt_token_ids)")
    if echoed is not None and tuple(echoed) != request.prompt_ids:
        raise PolicyError(
            f"sampling: the server took {len(echoed)} tokens for a prompt of"
            f" {len(request.prompt_ids)}, and not the same ones"
        )
    if not ids or len(ids) > request.max_tokens:
        raise PolicyError(
            f"sampling: the server drew {len(ids)} tokens; max_tokens={request.max_tokens}"
        )
    return Sample(
        completion_ids=tuple(ids),
        logprobs=np.array(logprobs, np.float32),
        stop_reason=cast(StopReason, finish),
        weights_version=0,
        cached_tokens=cached if type(cached) is int else None,
        model_logprobs=unknown_unless_model(request.sampling, len(ids)),
    )
