"""What every policy checks of a sampling request, and counts of the work that it does."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Iterator

from tbtui.policies.base import (
    Activity,
    ContextOverflowError,
    PolicyError,
    PolicyStatus,
    Sample,
    SampleRequest,
)
from tbtui.server_status import ServerStatus

LATENCIES_KEPT = 256


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
