"""Watches what the Tinker SDK knows of its server: its queue, its connection, its retries.

None of these places is part of the SDK's public interface. Each is looked for before it is used;
where one is gone, the state is `unknown` and the reason says so, and nothing else changes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from tbtui.policies.meter import RequestMeter, StateSource
from tbtui.policies.tinker.errors import GATEWAY_STATUSES, server_words
from tbtui.server_status import ServerState

if TYPE_CHECKING:
    import tinker
    from tinker import SamplingClient, ServiceClient, TrainingClient
    from tinker._client import AsyncTinker
    from tinker.lib.api_future_impl import QueueState
    from tinker.lib.client_connection_pool_type import ClientConnectionPoolType

_STATES: dict[str, ServerState] = {
    "ACTIVE": "active",
    "PAUSED_CAPACITY": "paused_capacity",
    "PAUSED_RATE_LIMIT": "paused_rate_limit",
}
_CREATION = "QueueStateLogger"
_TRAINING = "_queue_state_logger"
_SAMPLING = "on_queue_state_change"
_CALLS = "aclient"
_SUBMISSIONS = "execute_with_retries"
_RESENDS = "_sleep_for_retry"

_POOL = "ClientConnectionPool"
_HTTP_CLIENT = "AsyncHttpxClientWrapper"
_ERRORS: dict[str, StateSource] = {
    "SAMPLE": "errors_sampling",
    "TRAIN": "errors_training",
    "RETRIEVE_PROMISE": "errors_retrieving",
    "RETRIEVE_FUTURES": "errors_retrieving",
}
"""By the SDK's pool of connections."""
_UNPAID, _TOO_MANY, _SERVER_ERRORS = 402, 429, 500

type _Submission = Callable[..., Awaitable[Any]]


class QueueStates:
    """Observes one queue in place of the SDK's observer, which logs, and only after 15 minutes."""

    def __init__(self, meter: RequestMeter, source: StateSource) -> None:
        self._meter = meter
        self._source = source

    def on_queue_state_change(
        self, queue_state: QueueState, queue_state_reason: str | None
    ) -> None:
        """Called by the SDK on its own thread, once for every poll."""
        state = _STATES.get(queue_state.name, "unknown")
        self._meter.state(state, queue_state_reason or "", self._source)


def follow_no_redirects() -> None:
    """Make the SDK's HTTP clients of this process answer a redirect with an error from now on.

    They would follow it to any host, with the API key: `X-API-Key` is none of the headers that
    httpx leaves out for another host.
    """
    from tinker import _base_client

    if hasattr(_base_client, _HTTP_CLIENT):
        client = vars(_base_client)[_HTTP_CLIENT]
        setattr(_base_client, _HTTP_CLIENT, functools.partial(client, follow_redirects=False))


@contextlib.contextmanager
def watch_creation(meter: RequestMeter) -> Iterator[None]:
    """The queue's state while a training client is being made within; one at a time."""
    from tinker.lib.public_interfaces import service_client

    if not hasattr(service_client, _CREATION):
        _unreported(meter, "creation", "the making of training clients")
        yield
        return

    def observer(identifier: str, message_prefix: str = "") -> QueueStates:
        return QueueStates(meter, "creation")

    before = vars(service_client)[_CREATION]
    setattr(service_client, _CREATION, observer)
    try:
        yield
    finally:
        setattr(service_client, _CREATION, before)
        meter.withdraw("creation")


def watch_training(meter: RequestMeter, training_client: TrainingClient) -> None:
    """The state of the queue of this client's training requests from now on."""
    if hasattr(training_client, _TRAINING):
        setattr(training_client, _TRAINING, QueueStates(meter, "training"))
    else:
        _unreported(meter, "training", "training")


def watch_sampling(meter: RequestMeter, sampling_client: SamplingClient) -> None:
    """The state of the queue of this client's sampling requests from now on, and its retries."""
    if hasattr(sampling_client, _SAMPLING):
        observer = QueueStates(meter, "sampling")
        setattr(sampling_client, _SAMPLING, observer.on_queue_state_change)
    else:
        _unreported(meter, "sampling", "sampling")
    retrying = getattr(sampling_client, "retry_handler", None)
    if hasattr(retrying, "execute"):
        _count_resends(meter, retrying, "execute")


def watch_connection(
    meter: RequestMeter, client: ServiceClient | TrainingClient | SamplingClient
) -> None:
    """Whether the server can be reached and the account pays, and how often requests are sent
    again: of this client, and of all that share its session.

    A `ServiceClient` that has no session yet gets one here, which blocks and may raise what the
    SDK raises: call it in a thread.
    """
    holder: Any = getattr(client, "holder", None)
    if not hasattr(holder, _CALLS):
        _unreported(meter, "connection", "its connection")
        return
    if _CALLS in vars(holder):
        return
    setattr(holder, _CALLS, _watched_calls(meter, holder.aclient))
    if hasattr(holder, _SUBMISSIONS):
        _count_resends(meter, holder, _SUBMISSIONS)


@contextlib.contextmanager
def watch_beginning(meter: RequestMeter) -> Iterator[None]:
    """Whether the server can be reached while a session is being opened within; one at a time.

    Until there is a session there is no client to be watched, and the SDK sends its first requests
    again for minutes: so every client of the process is watched meanwhile.
    """
    from tinker.lib import internal_client_holder

    pool: Any = getattr(internal_client_holder, _POOL, None)
    if not hasattr(pool, _CALLS):
        _unreported(meter, "connection", "the opening of sessions")
        yield
        return
    before = pool.aclient

    def watched(self: object) -> contextlib.AbstractContextManager[AsyncTinker]:
        return _watched(meter, before(self), "errors_other")

    setattr(pool, _CALLS, watched)
    try:
        yield
    finally:
        setattr(pool, _CALLS, before)
        meter.withdraw("errors_other")


def _watched_calls(
    meter: RequestMeter,
    aclient: Callable[[ClientConnectionPoolType], contextlib.AbstractContextManager[AsyncTinker]],
) -> Callable[[ClientConnectionPoolType], contextlib.AbstractContextManager[AsyncTinker]]:
    """`aclient` lends an HTTP client for one call to the server; how the call went is seen as it
    is given back."""

    def watched(
        pool: ClientConnectionPoolType,
    ) -> contextlib.AbstractContextManager[AsyncTinker]:
        if pool.name == "TELEMETRY":
            return aclient(pool)
        return _watched(
            meter,
            aclient(pool),
            _ERRORS.get(pool.name, "errors_other"),
            # A heartbeat goes through whether the account pays or not.
            pays=pool.name != "SESSION",
            # A sampling client takes 429 for "not yet", and asks again by itself.
            asks_again=pool.name == "SAMPLE",
        )

    return watched


@contextlib.contextmanager
def _watched(
    meter: RequestMeter,
    lending: contextlib.AbstractContextManager[AsyncTinker],
    errors: StateSource,
    *,
    pays: bool = False,
    asks_again: bool = False,
) -> Iterator[AsyncTinker]:
    """The client that `lending` lends for one call.

    Args:
        errors: which of the server's errors this call shows.
        pays: its success says that the account pays.
        asks_again: after 429 the same is asked again.
    """
    import tinker

    try:
        with lending as client:
            _watch_resends(meter, client, errors)
            yield client
    except tinker.APIConnectionError as error:
        _unreachable(meter, error)
        raise
    except tinker.APIStatusError as error:
        status = error.status_code
        _answered_with(meter, status, _status_words(error), errors)
        if asks_again and status == _TOO_MANY:
            meter.retried()
        raise
    else:
        _withdraw(meter, errors)
        if pays:
            meter.withdraw("billing")


def _unreachable(meter: RequestMeter, error: Exception) -> None:
    cause = error.__cause__ or error
    meter.state("unreachable", str(cause) or type(cause).__name__, "connection")


def _answered_with(meter: RequestMeter, status: int, words: str, errors: StateSource) -> None:
    if status in GATEWAY_STATUSES:
        meter.state("unreachable", words, "connection")
    elif status >= _SERVER_ERRORS:
        # It is no sign that the server is there again: a proxy in front of a dead one may answer.
        meter.state("failing", words, errors)
    else:
        _withdraw(meter, errors)
        if status == _UNPAID:
            meter.state("paused_billing", words, "billing")


def _withdraw(meter: RequestMeter, errors: StateSource) -> None:
    meter.withdraw("connection")
    meter.withdraw(errors)


def _status_words(error: tinker.APIStatusError) -> str:
    """`503 Service Unavailable: upstream connect error`."""
    words = server_words(error)
    line = _status_line(error.response)
    return f"{line}: {words}" if words else line


def _status_line(response: Any) -> str:
    return f"{response.status_code} {response.reason_phrase}".strip()


def _watch_resends(meter: RequestMeter, client: Any, errors: StateSource) -> None:
    """An HTTP client sends some requests again by itself, and waits before each time."""
    if _RESENDS in vars(client) or not hasattr(client, _RESENDS):
        return
    wait = client._sleep_for_retry

    async def counted(*args: Any, **kwargs: Any) -> None:
        meter.retried()
        response = kwargs.get("response")
        if response is None:
            meter.state("unreachable", "no answer; it is asked again", "connection")
        elif response.status_code >= _SERVER_ERRORS:
            _answered_with(meter, response.status_code, _status_line(response), errors)
        await wait(*args, **kwargs)

    setattr(client, _RESENDS, counted)


def _count_resends(meter: RequestMeter, owner: Any, name: str) -> None:
    """`owner.name(submit, ...)` calls `submit` until it succeeds: count all calls but the first."""
    execute = getattr(owner, name)

    async def counting(submit: _Submission, *args: Any, **kwargs: Any) -> Any:
        attempts = 0

        async def attempt(*args: Any, **kwargs: Any) -> Any:
            nonlocal attempts
            attempts += 1
            if attempts > 1:
                meter.retried()
            return await submit(*args, **kwargs)

        return await execute(attempt, *args, **kwargs)

    setattr(owner, name, counting)


def _unreported(meter: RequestMeter, source: StateSource, what: str) -> None:
    import tinker

    meter.state("unknown", f"Tinker SDK {tinker.__version__} doesn't report {what}", source)
