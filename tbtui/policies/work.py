"""What policies have in common: settings of a served model, checks of requests, counts of work."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import difflib
from collections import deque
from collections.abc import Awaitable, Iterable, Iterator

from tbtui.policies.base import (
    Activity,
    ContextOverflowError,
    PolicyError,
    PolicyInfo,
    PolicyRefusedError,
    PolicyStatus,
    Sample,
    SampleRequest,
    Thinking,
)
from tbtui.policies.meter import LATENCIES_KEPT
from tbtui.server_status import ServerStatus

_MODELS_NAMED = 5


@dataclasses.dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a run that a policy on a server needs, under their own names."""

    model_name: str
    """As the server calls it; for training a base model, else perhaps a LoRA adapter."""
    base_url: str | None = None
    """None: from the environment, as the server's own clients do, else their default."""
    context_limit: int | None = None
    """Tokens; None: all that the server allows for the model."""
    tokenizer: str | None = None
    """Directory, or name on the Hugging Face hub; None: what the server names."""
    renderer: str = "template"
    thinking: Thinking = "keep"


class Startable[R]:
    """What is known of a policy once it has started."""

    _info: PolicyInfo | None = None
    _renderer: R | None = None

    @property
    def info(self) -> PolicyInfo:
        if self._info is None:
            raise PolicyError("the policy has not been started")
        return self._info

    @property
    def renderer(self) -> R:
        if self._renderer is None:
            raise PolicyError("the policy has not been started")
        return self._renderer


def context_limit(served: int | None, setting: int | None, model: str, server: str) -> int:
    """Tokens of prompt and completion together, by what the server says and what is asked for.

    Raises:
        PolicyRefusedError: neither says it.
    """
    limits = [limit for limit in (served, setting) if limit is not None]
    if not limits:
        raise PolicyRefusedError(
            f"context_limit: {server} doesn't say how long a context {model} has; set it"
        )
    return min(limits)


def offer(wanted: str, names: Iterable[str]) -> str:
    """The models that a server has in place of `wanted`: the nearest first, and a few others."""
    known = sorted(names)
    if not known:
        return "it names none that it has"
    folded = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(wanted.casefold(), folded, n=_MODELS_NAMED, cutoff=0.5)
    named = [folded[name] for name in near]
    named += [name for name in known if name not in named][: _MODELS_NAMED - len(named)]
    left = len(known) - len(named)
    more = f" and {left} more" if left else ""
    if not near:
        return f"it has {', '.join(named)}{more}"
    others = f"; it also has {', '.join(named[1:])}{more}" if named[1:] else ""
    return f"the nearest is {named[0]}{others}"


def fitted(request: SampleRequest, context_limit: int) -> SampleRequest:
    """The request, asking for no more tokens than fit behind its prompt.

    Raises:
        ContextOverflowError: not one fits.
        PolicyError: there is nothing to sample from or for.
    """
    room = context_limit - len(request.prompt_ids)
    if room < 1:
        raise ContextOverflowError(
            f"the prompt has {len(request.prompt_ids)} tokens; the context limit is {context_limit}"
        )
    if not request.prompt_ids or request.max_tokens < 1 or request.temperature < 0:
        raise PolicyError("a sampling request needs a prompt, max_tokens >= 1 and temperature >= 0")
    return dataclasses.replace(request, max_tokens=min(room, request.max_tokens))


async def unless_closed[T](answer: Awaitable[T], closed: str) -> T:
    """Await an answer, which is cancelled when the policy is closed: no cancellation of the caller.

    Raises:
        PolicyError: `closed`, in that case.
    """
    try:
        return await answer
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise PolicyError(closed) from None


class Work:
    """Counts what a policy has answered, and knows what it was asked for beside sampling."""

    def __init__(self) -> None:
        self._completed = 0
        self._sampled_tokens = 0
        self._latencies: deque[float] = deque(maxlen=LATENCIES_KEPT)
        self._beside: list[Activity] = []

    def answered(self, drawn: Sample, seconds: float) -> None:
        """A sampling request was answered, so long after it was made."""
        self._completed += 1
        self._sampled_tokens += len(drawn.completion_ids)
        self._latencies.append(seconds)

    @contextlib.contextmanager
    def beside_sampling(self, activity: Activity) -> Iterator[None]:
        """From the asking to the answer: of several, the first one is under way."""
        self._beside.append(activity)
        try:
            yield
        finally:
            self._beside.remove(activity)

    def status(
        self,
        in_flight: int,
        running: int,
        pid: int | None = None,
        server: ServerStatus | None = None,
        stored_bytes: int | None = None,
    ) -> PolicyStatus:
        """As in `PolicyStatus`."""
        sampling: Activity = "sampling" if in_flight else "idle"
        return PolicyStatus(
            in_flight=in_flight,
            running=running,
            completed=self._completed,
            sampled_tokens=self._sampled_tokens,
            latencies=tuple(self._latencies),
            activity=self._beside[0] if self._beside else sampling,
            pid=pid,
            server=server,
            stored_bytes=stored_bytes,
        )
