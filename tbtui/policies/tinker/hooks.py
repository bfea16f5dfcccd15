"""Where the Tinker SDK tells how its server is doing: its queue, its connection, its retries.

None of these places is part of the SDK's public interface. Each is looked for before it is used;
where one is gone, the state is `unknown` and the reason says so, and nothing else changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from tbtui.policies.base import ServerState
from tbtui.policies.meter import RequestMeter, StateSource

if TYPE_CHECKING:
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

_GATEWAY_STATUSES = frozenset({502, 503, 504, *range(520, 531)})
"""What a proxy answers for a server that it can't reach."""

type _Submission = Callable[..., Awaitable[Any]]


class QueueStates:
    """Takes the place of the SDK's observer of one queue, which logs, and not before 15 minutes."""

    def __init__(self, meter: RequestMeter, source: StateSource) -> None:
        self._meter = meter
        self._source = source

    def on_queue_state_change(
        self, queue_state: QueueState, queue_state_reason: str | None
    ) -> None:
        """Called by the SDK on its own thread, once for every poll."""
        state = _STATES.get(queue_state.name, "unknown")
        self._meter.state(state, queue_state_reason or "", self._source)


@contextlib.contextmanager
def watch_creation(meter: RequestMeter) -> Iterator[None]:
    """The queue's state while a training client is being made within; one at a time."""
    from tinker.lib.public_interfaces import service_client

    if not hasattr(service_client, _CREATION):
        _not_told(meter, "creation", "the making of training clients")
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
        _not_told(meter, "training", "training")


def watch_sampling(meter: RequestMeter, sampling_client: SamplingClient) -> None:
    """The state of the queue of this client's sampling requests from now on, and its retries."""
    if hasattr(sampling_client, _SAMPLING):
        told = QueueStates(meter, "sampling").on_queue_state_change
        setattr(sampling_client, _SAMPLING, told)
    else:
        _not_told(meter, "sampling", "sampling")
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
        _not_told(meter, "connection", "its connection")
        return
    if _CALLS in vars(holder):
        return
    setattr(holder, _CALLS, _watched_calls(meter, holder.aclient))
    if hasattr(holder, _SUBMISSIONS):
        _count_resends(meter, holder, _SUBMISSIONS)


def _watched_calls(
    meter: RequestMeter,
    aclient: Callable[[ClientConnectionPoolType], contextlib.AbstractContextManager[AsyncTinker]],
) -> Callable[[ClientConnectionPoolType], contextlib.AbstractContextManager[AsyncTinker]]:
    """`aclient` lends an HTTP client for one call to the server; how the call went is seen as it
    is given back."""
    import tinker

    @contextlib.contextmanager
    def watched(pool: ClientConnectionPoolType) -> Iterator[AsyncTinker]:
        told = pool.name != "TELEMETRY"
        try:
            with aclient(pool) as client:
                if told:
                    _watch_resends(meter, client)
                yield client
        except tinker.APIConnectionError as error:
            if told:
                _unreachable(meter, error)
            raise
        except tinker.APIStatusError as error:
            if told:
                _answered_with(meter, error)
                if pool.name == "SAMPLE" and error.status_code == 429:
                    # A sampling client takes this one for "not yet", and asks again by itself.
                    meter.retried()
            raise
        else:
            if told:
                meter.withdraw("connection")
                if pool.name != "SESSION":
                    # A heartbeat goes through whether the account pays or not.
                    meter.withdraw("billing")

    return watched


def _unreachable(meter: RequestMeter, error: Exception) -> None:
    cause = error.__cause__ or error
    meter.state("unreachable", str(cause) or type(cause).__name__, "connection")


def _answered_with(meter: RequestMeter, error: Exception) -> None:
    import tinker

    assert isinstance(error, tinker.APIStatusError)
    if error.status_code in _GATEWAY_STATUSES:
        meter.state("unreachable", _status_line(error.response), "connection")
        return
    meter.withdraw("connection")
    if error.status_code == 402:
        meter.state("paused_billing", error.message, "billing")


def _status_line(response: Any) -> str:
    return f"{response.status_code} {response.reason_phrase}".strip()


def _watch_resends(meter: RequestMeter, client: Any) -> None:
    """An HTTP client sends some requests again by itself, and waits before each time."""
    if _RESENDS in vars(client) or not hasattr(client, _RESENDS):
        return
    wait = client._sleep_for_retry

    async def counted(*args: Any, **kwargs: Any) -> None:
        meter.retried()
        response = kwargs.get("response")
        if response is None:
            meter.state("unreachable", "no answer; it is asked again", "connection")
        elif response.status_code in _GATEWAY_STATUSES:
            meter.state("unreachable", _status_line(response), "connection")
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


def _not_told(meter: RequestMeter, source: StateSource, what: str) -> None:
    import tinker

    meter.state("unknown", f"Tinker SDK {tinker.__version__} doesn't tell of {what}", source)
