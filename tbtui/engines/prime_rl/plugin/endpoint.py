"""Asks the model behind an OpenAI-compatible chat endpoint, for a trial's agent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import aiohttp

from tbtui.endpoint.openai_chat import answered_message, request_object
from tbtui.policies.base import PolicyError, PolicyWithheldError
from tbtui.policies.vllm.connection import only_choice
from tbtui.rollout.messages import Completion, CompletionFailed, SampleWanted
from tbtui.terminal import both_ends

CONNECT_SEC = 30.0
RETRY_WAITS_SEC = (0.5, 2.0)
"""Before each further attempt at a request that failed in passing."""
_TRANSIENT = frozenset({408, 409, 429})
_NOT_THE_PROMPT = frozenset({401, 402, 404, 405})
"""What any other prompt would get, too: a key, an account or an address is wrong."""
_RETRY_COUNT = "x-stainless-retry-count"
"""Verifiers answers a repeated request that it had already taken with the same turn."""
_REASON_CHARS = 300
_OVERFLOWS = (
    "maximum context length",
    "context_length_exceeded",
    "context length",
    "maximum model length",
    "prompt is too long",
    "overlong",
)


@dataclass(frozen=True, slots=True)
class RequestsRefused:
    """The endpoint takes no more of this trial's requests; that is no failure."""

    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class ChatEndpoint:
    """An OpenAI-compatible server. `url` ends where `/chat/completions` begins; `client` is not
    closed here."""

    client: aiohttp.ClientSession
    url: str
    secret: str
    model: str
    max_tokens: int
    stopped_prefix: str = "rollout stopped"
    """How the endpoint's message begins when it ended the trial by a limit of its own."""

    async def answer(self, wanted: SampleWanted) -> Completion | CompletionFailed | RequestsRefused:
        """Ask for the completion, without a time limit. Never raises for what the endpoint does.

        How many tokens a prompt has is not asked: no such endpoint says it.

        Failures that may pass are tried again a few times; a refused request never is.
        """
        if wanted.count_only:
            return CompletionFailed(
                wanted.request, wanted.trial, "unsupported", "the trainer counts no tokens"
            )
        answer = await self._ask(wanted, attempt=0)
        for attempt, wait in enumerate(RETRY_WAITS_SEC, 1):
            if not isinstance(answer, _Passing):
                return answer
            await asyncio.sleep(wait)
            answer = await self._ask(wanted, attempt)
        if isinstance(answer, _Passing):
            return CompletionFailed(wanted.request, wanted.trial, "provider_error", answer.reason)
        return answer

    async def _ask(
        self, wanted: SampleWanted, attempt: int
    ) -> Completion | CompletionFailed | RequestsRefused | _Passing:
        headers = {"Authorization": f"Bearer {self.secret}", _RETRY_COUNT: str(attempt)}
        body = {
            "model": self.model,
            **request_object(wanted.messages, wanted.tools, wanted.tool_choice),
            "max_completion_tokens": min(self.max_tokens, wanted.max_tokens or self.max_tokens),
        }
        if wanted.one_tool_call:
            body["parallel_tool_calls"] = False
        if wanted.stop:
            body["stop"] = list(wanted.stop)
        try:
            async with self.client.post(
                f"{self.url}/chat/completions",
                json=body,
                headers=headers,
                # The trial's budget limits how long a completion may take.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SEC),
                # The secret is for this server alone.
                allow_redirects=False,
            ) as response:
                status, text = response.status, await response.text(errors="replace")
        except aiohttp.ClientError as error:
            return _Passing(f"{type(error).__name__}: {error}")
        if status < 400:
            return _completion(wanted, text)
        return self._failure(wanted, status, text)

    def _failure(
        self, wanted: SampleWanted, status: int, text: str
    ) -> CompletionFailed | RequestsRefused | _Passing:
        message = _error_message(text)
        reason = both_ends(f"HTTP {status}: {message}", _REASON_CHARS)
        if message.startswith(self.stopped_prefix):
            return RequestsRefused(wanted.request, both_ends(message, _REASON_CHARS))
        if status in _TRANSIENT or status >= 500:
            return _Passing(reason)
        if any(sign in message.lower() for sign in _OVERFLOWS):
            return CompletionFailed(wanted.request, wanted.trial, "context_overflow", reason)
        if status in _NOT_THE_PROMPT:
            return CompletionFailed(wanted.request, wanted.trial, "provider_error", reason)
        return CompletionFailed(wanted.request, wanted.trial, "refused", reason)


@dataclass(frozen=True, slots=True)
class _Passing:
    """A failure that may pass."""

    reason: str


def _completion(wanted: SampleWanted, text: str) -> Completion | CompletionFailed:
    try:
        body = json.loads(text)
        choice = only_choice(body, "sampling")
        message = answered_message(choice["message"])
        usage = body.get("usage") or {}
        return Completion(
            wanted.request,
            wanted.trial,
            text=message.content,
            truncated=choice.get("finish_reason") == "length",
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
            thinking=message.thinking,
            tool_calls=message.tool_calls,
        )
    except PolicyWithheldError as error:
        reason = both_ends(str(error), _REASON_CHARS)
        return CompletionFailed(wanted.request, wanted.trial, "refused", reason)
    except PolicyError as error:
        reason = both_ends(str(error), _REASON_CHARS)
        return CompletionFailed(wanted.request, wanted.trial, "provider_error", reason)
    except (LookupError, TypeError, AttributeError, RecursionError, ValueError) as error:
        reason = f"no chat completion: {type(error).__name__}: {error}: {text}"
        return CompletionFailed(
            wanted.request, wanted.trial, "provider_error", both_ends(reason, _REASON_CHARS)
        )


def _error_message(text: str) -> str:
    try:
        body: Any = json.loads(text)
    except (RecursionError, ValueError):
        return text or "no reason given"
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error) if isinstance(error, dict) else error
    return message if isinstance(message, str) else json.dumps(message)
