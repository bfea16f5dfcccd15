"""A model behind a Chat Completions API, as engines see it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from tbtui.chat import ToolCall, chars_of, most_chars
from tbtui.policies.base import (
    ContextOverflowError,
    Ended,
    Message,
    PolicyError,
    PolicyInfo,
    PolicyRefusedError,
    PolicyStatus,
    PolicyWithheldError,
    Sample,
    SampleRequest,
    unknown_unless_model,
)
from tbtui.policies.meter import RequestMeter
from tbtui.policies.openai.conversation import ConversationRenderer
from tbtui.policies.vllm.connection import PROBE, Connection, only_choice, when_it_has_time
from tbtui.policies.work import (
    SampledOnly,
    ServerSettings,
    Work,
    fitted,
    library_log_to,
    offer,
    unless_closed,
)
from tbtui.terminal import one_line

DEFAULT_URL = "https://api.openai.com"
_SEEDS = 2**31
"""Some servers' seeds are smaller than this."""
_UNKNOWN_CONTEXT = 2**20
_LEAST_LOGPROB = -1e4
_FLOAT32 = 3e38
_ROUNDING = 1e-3
"""By how much a log-probability may be above 0."""
_ASKED_FOR = ("top_p", "top_k", "min_p", "stop")
"""Sent only where they are set: a run that goes on without is not what was asked for."""
_LONGEST = "max_completion_tokens"
"""Takes the place of `max_tokens` in OpenAI's newer models."""
_PROBE_TOKENS = 16
"""Some APIs take no smaller limit."""


class OpenAIPolicy(SampledOnly[ConversationRenderer]):
    """Implements `tbtui.policies.base.Policy`, but for training, which raises `PolicyError`."""

    CANNOT = "a model behind a Chat Completions API can't be {}: it can only be evaluated"

    def __init__(self, settings: ServerSettings, log: IO[bytes] | None = None) -> None:
        """`log`: where what the libraries log goes; None: where it goes without us."""
        self._settings = settings
        self._log = log
        self._meter = RequestMeter()
        self._resources = contextlib.ExitStack()
        self._connection: Connection | None = None
        self._path = ""
        self._parameters = _Parameters()
        self._closed = False
        self._unanswered: set[asyncio.Task[Any]] = set()
        self._work = Work()
        self._heard = 0
        """Events of streams."""
        self._starting = ""
        """What is waited for while it starts."""

    async def start(self, resume: Path | None = None) -> None:
        """Ask the server for its models, and for a few words of this one.

        Raises `PolicyError` when it can't be reached or doesn't have the model, or is busy for
        long."""
        settings = self._settings
        if self._log is not None:
            self._resources.enter_context(library_log_to(self._log))
        self._connection = connection = Connection(
            settings.base_url, self._meter, setting="openai_base_url", default_url=DEFAULT_URL
        )
        self._path = connection.api_path
        limit = settings.context_limit or await self._context_limit()
        self._renderer = renderer = ConversationRenderer()
        probe = SampleRequest(renderer.render(PROBE), _PROBE_TOKENS, settings.sampling, 0)
        with contextlib.suppress(PolicyWithheldError):  # it is there, and has the model
            await when_it_has_time(lambda: self._draw(probe), self._tell)
        self._info = PolicyInfo(
            name="openai",
            model_name=settings.model_name,
            parameters=None,
            context_limit=limit or _UNKNOWN_CONTEXT,
            losses=(),
            honours=frozenset({"openai_base_url"}),
            notes=(*renderer.notes, *self._parameters.notes),
            address=connection.address,
        )

    async def sample(self, request: SampleRequest) -> Sample:
        """Raises `ContextOverflowError` when the server says that the prompt doesn't fit. Takes as
        long as the server does."""
        asked = fitted(request, self.info.context_limit)
        started = time.monotonic()
        drawn = await self._draw(asked)
        self._work.answered(drawn, time.monotonic() - started)
        return drawn

    def status(self) -> PolicyStatus:
        in_flight = len(self._unanswered)
        heard = self._heard if self._parameters.streams else None
        status = self._work.status(
            in_flight, in_flight, server=self._meter.status(), progress=heard
        )
        return dataclasses.replace(status, starting=self._starting)

    async def close(self, ended: Ended = "success") -> None:
        self._closed = True
        for task in self._unanswered:
            task.cancel()
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                await connection.close()
        finally:
            self._resources.close()

    def _tell(self, line: str) -> None:
        self._starting = line

    def _hear(self) -> None:
        self._heard += 1

    async def _context_limit(self) -> int | None:
        """What the server says of the model, if it lists its models. Raises `PolicyRefusedError`:
        it lists others."""
        connection, name = self._open(), self._settings.model_name
        doing = f"asking {connection.address} for its models"
        try:
            content = await when_it_has_time(
                lambda: connection.get(f"{self._path}/models", doing), self._tell
            )
            cards = {str(card["id"]): card for card in content["data"]}
        except (PolicyError, KeyError, TypeError):
            return None  # it lists none: the first words show whether it has the model
        if cards and name not in cards:
            raise PolicyRefusedError(
                f"model_name={name}: the server has no such model; {offer(name, cards)}"
            )
        limit = cards.get(name, {}).get("max_model_len")
        return limit if isinstance(limit, int) and limit > 0 else None

    async def _draw(self, request: SampleRequest) -> Sample:
        connection, renderer = self._open(), self.renderer
        messages, tools = renderer.read(request.prompt_ids)
        with self._meter.request("sample"):
            while True:
                parameters = self._parameters.of(request)
                body = {
                    "model": self._settings.model_name,
                    "messages": messages,
                    **({"tools": tools} if tools else {}),
                    **parameters,
                }
                asking = asyncio.create_task(
                    connection.streamed(
                        f"{self._path}/chat/completions", body, "sampling", self._hear
                    )
                )
                self._unanswered.add(asking)
                try:
                    events = await unless_closed(asking, "sampling: the policy has been closed")
                    break
                except ContextOverflowError:
                    raise
                except PolicyRefusedError as error:
                    if not self._parameters.give_up(parameters, str(error)):
                        raise
                finally:
                    self._unanswered.discard(asking)
        whole = _put_together(events) if _is_stream(events) else events[0]
        answer = read_answer(whole, renderer, self._parameters, request.max_tokens)
        known = unknown_unless_model(request.sampling, len(answer.completion_ids))
        return dataclasses.replace(answer, model_logprobs=known)

    def _open(self) -> Connection:
        if self._closed or self._connection is None:
            raise PolicyError("the policy has been closed")
        return self._connection


class _Parameters:
    """The parameters of a request, less those that this server or model is known to refuse."""

    def __init__(self) -> None:
        self._refused: set[str] = set()
        self.has_logprobs = True

    @property
    def streams(self) -> bool:
        """Whether answers come as they are drawn."""
        return "stream" not in self._refused

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know, one line each."""
        refused = sorted(self._refused - {"logprobs", "max_tokens", "stream"})
        found = [f"the server refuses {name}: it is left out" for name in refused]
        if "logprobs" in self._refused or not self.has_logprobs:
            found.append("the server gives no log-probabilities: they are shown as 0")
        return tuple(found)

    def of(self, request: SampleRequest) -> dict[str, Any]:
        longest = _LONGEST if "max_tokens" in self._refused else "max_tokens"
        sampling = request.sampling
        wanted: dict[str, Any] = {
            "temperature": sampling.temperature,
            "seed": request.seed % _SEEDS,
            "logprobs": True,
            "stream": True,
            longest: request.max_tokens,
        }
        # What is left out leaves a server its own: some know nothing of these.
        if sampling.top_p < 1:
            wanted["top_p"] = sampling.top_p
        if sampling.top_k:
            wanted["top_k"] = sampling.top_k
        if sampling.min_p:
            wanted["min_p"] = sampling.min_p
        if sampling.stop:
            wanted["stop"] = list(sampling.stop)
        return {name: value for name, value in wanted.items() if name not in self._refused}

    def give_up(self, sent: Iterable[str], why: str) -> bool:
        """Leave out what a refusal names of what was sent; False: it is about something else, or
        about what a person has set."""
        named = {name for name in sent if name in why and name not in (_LONGEST, *_ASKED_FOR)}
        self._refused |= named
        return bool(named)


def _is_stream(events: Sequence[Any]) -> bool:
    """Whether these are a stream's events, and not one whole answer of a server without streams."""
    return len(events) != 1 or (
        isinstance(events[0], dict) and events[0].get("object") == "chat.completion.chunk"
    )


def _put_together(events: Sequence[Any]) -> Any:
    """The answer that a stream's events are, as it would have come in one piece.

    Raises:
        PolicyError: it broke off, or can't be read.
    """
    if not events:
        raise PolicyError("sampling: the server's answer broke off")
    text: dict[str, str] = {}
    calls: dict[int, dict[str, str]] = {}
    drawn: list[Any] = []
    whole: dict[str, Any] = {"choices": []}
    finish = None
    try:
        for event in events:
            choices = event.get("choices") or ()
            if event.get("error"):
                return event
            if not choices:
                whole |= {name: value for name, value in event.items() if name != "choices"}
                continue
            (choice,) = choices
            if choice.get("error"):
                return event
            delta = choice.get("delta") or {}
            for name in ("content", "refusal", "reasoning_content", "reasoning"):
                if isinstance(delta.get(name), str):
                    text[name] = text.get(name, "") + delta[name]
            for part in delta.get("tool_calls") or ():
                # Some servers send whole calls, without numbers.
                call = calls.setdefault(
                    part.get("index", len(calls)), {"name": "", "arguments": ""}
                )
                for name, value in (part.get("function") or {}).items():
                    if name in call and value:
                        call[name] += value
            drawn += (choice.get("logprobs") or {}).get("content") or ()
            finish = choice.get("finish_reason") or finish
            whole["choices"] = [{}]
        said = [{"function": each} for _, each in sorted(calls.items(), key=lambda call: call[0])]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(f"sampling: the server's answer can't be read ({error!r})") from error
    if whole["choices"]:
        if finish is None:
            raise PolicyError("sampling: the server's answer broke off")
        whole["choices"][0] = {
            "message": {**text, "tool_calls": said},
            "finish_reason": finish,
            "logprobs": {"content": drawn},
        }
    return whole


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} for a text")
    return value


def _logprob(value: Any) -> float:
    if not isinstance(value, int | float) or not -_FLOAT32 <= value <= _ROUNDING:
        raise ValueError(f"{one_line(str(value), 40)} for a log-probability")
    return float(value)


def read_answer(
    content: Any, renderer: ConversationRenderer, parameters: _Parameters, max_tokens: int
) -> Sample:
    """Raises `PolicyError` for an answer that can't be read, `PolicyWithheldError` for one that the
    server withholds."""
    choice = only_choice(content, "sampling")
    try:
        message, finish = choice["message"], choice["finish_reason"]
        calls = tuple(
            ToolCall("", _text(call["function"]["name"]), _text(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        )
        thinking = _text(message.get("reasoning_content") or message.get("reasoning") or "")
        # A model that refuses says so in a field of its own: that is its answer.
        text = _text(message.get("content") or message.get("refusal") or "")
        said = Message("assistant", text, thinking, calls)
        drawn = (choice.get("logprobs") or {}).get("content") or ()
        pieces = [_text(each["token"]) for each in drawn]
        logprobs = [_logprob(each["logprob"]) for each in drawn]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PolicyError(f"sampling: the server's answer can't be read ({error!r})") from error
    length = chars_of((said,))
    if length > most_chars(max_tokens):
        raise PolicyError(
            f"sampling: the server's answer has {length} characters; max_tokens={max_tokens}"
        )
    spelt = "".join(pieces)
    if pieces and len(spelt) < len(text) and text.startswith(spelt):
        raise PolicyError(
            f"sampling: the server gives the log-probabilities of {len(pieces)} tokens, which are"
            f" {len(spelt)} of its answer's {len(text)} characters"
        )
    ended = finish != "length"
    ids, place = renderer.completion(said, pieces, ended=ended)
    values = np.zeros(len(ids), np.float32)
    if place is not None:
        # Some servers write a number for minus infinity where a token can't be drawn.
        values[place] = np.maximum(logprobs, _LEAST_LOGPROB)
    elif said.content:
        parameters.has_logprobs = False
    known = place is not None
    return Sample(ids, values, "stop" if ended else "length", 0, has_logprobs=known)
