"""What policies have in common: settings of a served model, checks of requests, counts of work."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import difflib
import io
import logging
import re
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, ClassVar, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from tbtui.policies.base import (
    MODEL_ITSELF,
    Activity,
    ContextOverflowError,
    Datum,
    GradientResult,
    LossSettings,
    OptimSettings,
    PolicyError,
    PolicyInfo,
    PolicyRefusedError,
    PolicyStatus,
    Sample,
    SampleRequest,
    SamplingParams,
    StepResult,
    Thinking,
)
from tbtui.policies.chat.tool_formats import ToolFormat
from tbtui.policies.meter import LATENCIES_KEPT
from tbtui.server_status import ServerStatus
from tbtui.terminal import one_line

_MODELS_NAMED = 5
_LONGEST_NAMED = 80


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
    tool_format: ToolFormat = "auto"
    sampling: SamplingParams = MODEL_ITSELF
    """How the run draws: asked for once at the start, where a server may refuse some of it."""


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


class SampledOnly[R](Startable[R]):
    """The part of `tbtui.policies.base.Policy` in which a policy refuses to be trained.

    There is one version of its weights, 0.
    """

    CANNOT: ClassVar[str]
    """Its refusal, with a place for what is asked."""

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

    def _refuse(self, what: str) -> NoReturn:
        raise PolicyError(self.CANNOT.format(what))


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
    known = sorted(one_line(name, _LONGEST_NAMED) for name in names)
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
        tokens = len(request.prompt_ids)
        raise ContextOverflowError(
            f"the prompt has {tokens} tokens; the context limit is {context_limit}",
            tokens,
            context_limit,
        )
    if not request.prompt_ids or request.max_tokens < 1 or request.sampling.temperature < 0:
        raise PolicyError("a sampling request needs a prompt, max_tokens >= 1 and temperature >= 0")
    return dataclasses.replace(request, max_tokens=min(room, request.max_tokens), on_drawn=None)


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
        progress: int | None = None,
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
            progress=progress,
        )


async def in_daemon_thread[T](work: Callable[[], T], name: str) -> T:
    """As `asyncio.to_thread`, but neither a caller that is cancelled nor the end of the process
    waits for `work`: what connects to a dead server may block for minutes."""
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def main() -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            result.set_exception(error)
        else:
            result.set_result(value)

    threading.Thread(target=main, name=name, daemon=True).start()
    return await asyncio.wrap_future(result)


# Every library under a policy's client and the tokenizers that logs, or warns, by itself.
_LOGGERS: tuple[tuple[str, int], ...] = (
    ("tinker", logging.INFO),
    ("httpx", logging.WARNING),
    ("httpcore", logging.WARNING),
    ("huggingface_hub", logging.WARNING),
    ("transformers", logging.WARNING),
    ("py.warnings", logging.WARNING),
)
CREDENTIAL = re.compile(r"\b(?:tml-[\w.-]+|eyJ[\w.-]{8,})")
"""What looks like a Tinker key or a token of a login."""


class _OneHandler(list[logging.Handler]):
    """A logger's handlers, to which none can be added.

    Hugging Face's libraries add one that writes to the screen as soon as they are imported, which
    is while a tokenizer is fetched.
    """

    def append(self, handler: logging.Handler) -> None:
        pass


class _WithoutKeys(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return CREDENTIAL.sub("[key]", super().format(record))


@contextlib.contextmanager
def library_log_to(file: IO[bytes]) -> Iterator[None]:
    """Send what the libraries log to `file`, and nowhere else, meanwhile.

    `file` stays open afterwards. Credentials are left out.
    """
    text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", write_through=True)
    handler = logging.StreamHandler(text)
    handler.setFormatter(_WithoutKeys("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    with contextlib.ExitStack() as stack:
        # Last of all: until then a library's thread may still be writing.
        stack.callback(text.detach)
        stack.callback(handler.close)
        for name, level in _LOGGERS:
            stack.enter_context(_only_to(handler, logging.getLogger(name), level))
        logging.captureWarnings(True)
        stack.callback(logging.captureWarnings, False)
        yield


@contextlib.contextmanager
def _only_to(handler: logging.Handler, logger: logging.Logger, level: int) -> Iterator[None]:
    handlers, before, propagate = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = _OneHandler([handler]), False
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(before)
