"""The SDK's hooks, with the genuine SDK against a real server: fails when a new SDK drops one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tinker
from tinker.lib.public_interfaces import service_client

from tbtui.policies.meter import RequestMeter, StateSource
from tbtui.policies.tinker.hooks import (
    watch_beginning,
    watch_connection,
    watch_creation,
    watch_sampling,
    watch_training,
)
from tbtui.policies.tinker.session import open_session
from tbtui.server_status import ServerState, ServerStatus
from tests.tinker_server.server import TinkerServer, serving


class TellingMeter(RequestMeter):
    """Sets an event at each report."""

    def __init__(self) -> None:
        super().__init__()
        self.told = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def state(self, state: ServerState, reason: str = "", source: StateSource = "caller") -> None:
        super().state(state, reason, source)
        self._loop.call_soon_threadsafe(self.told.set)

    def withdraw(self, source: StateSource) -> None:
        super().withdraw(source)
        self._loop.call_soon_threadsafe(self.told.set)


@dataclass
class Watched:
    server: TinkerServer
    service: tinker.ServiceClient
    meter: TellingMeter

    async def create(self) -> tinker.TrainingClient:
        with watch_creation(self.meter), self.meter.request("create"):
            client = await self.service.create_lora_training_client("starter", rank=8)
        watch_training(self.meter, client)
        return client

    async def sampler(self) -> tinker.SamplingClient:
        client = await self.service.create_sampling_client(base_model="starter")
        watch_sampling(self.meter, client)
        return client

    async def asking(self, kind: str) -> Callable[[], Coroutine[Any, Any, object]]:
        """A request of that kind, by a client of its own."""
        if kind == "forward":
            return partial(forward, await self.create())
        return partial(sample, await self.sampler())

    async def until(self, true: Callable[[ServerStatus], bool]) -> ServerStatus:
        while not true(status := self.meter.status()):
            self.meter.told.clear()
            await self.meter.told.wait()
        return status


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    async with serving(state_dir=tmp_path, poll_seconds=0.2) as server:
        service = tinker.ServiceClient(base_url=server.url)
        meter = TellingMeter()
        await asyncio.to_thread(watch_connection, meter, service)
        yield Watched(server, service, meter)
        with contextlib.suppress(tinker.TinkerError):
            # Refused by a server that has been restarted: it doesn't know the session.
            await service.close("success")


@pytest.fixture(autouse=True)
def hooks_as_they_were() -> Iterator[None]:
    before = service_client.QueueStateLogger
    yield
    assert service_client.QueueStateLogger is before


async def sample(client: tinker.SamplingClient) -> None:
    prompt = tinker.ModelInput.from_ints([1, 2, 3])
    await client.sample(prompt, 1, tinker.SamplingParams(max_tokens=4))


async def forward(client: tinker.TrainingClient) -> None:
    datum = tinker.Datum(
        model_input=tinker.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={
            "target_tokens": tinker.TensorData(data=[2, 3, 4], dtype="int64", shape=[3]),
            "weights": tinker.TensorData(data=[1.0, 1.0, 1.0], dtype="float32", shape=[3]),
        },
    )
    await client.forward([datum], "cross_entropy")


async def test_a_pause_is_told_while_a_training_client_is_made(watched: Watched) -> None:
    watched.server.faults.pause("paused_rate_limit", "too many clients")
    making = asyncio.create_task(watched.create())
    status = await watched.until(lambda status: status.state == "paused_rate_limit")
    assert status.reason == "too many clients"
    watched.server.faults.resume()
    await making
    assert watched.meter.status().state != "paused_rate_limit"


@pytest.mark.parametrize(("held", "kind"), [("forward", "forward"), ("asample", "sample")])
async def test_a_pause_is_told_and_taken_back(watched: Watched, held: str, kind: str) -> None:
    ask = await watched.asking(kind)
    watched.server.faults.pause("paused_capacity", "full", kinds=[held])
    with watched.meter.request(kind):
        answer = asyncio.create_task(ask())
        status = await watched.until(lambda status: status.state == "paused_capacity")
        assert status.reason == "full"
        watched.server.faults.resume()
        await answer
        assert watched.meter.status().state == "active"


@pytest.mark.slow
async def test_requests_that_the_sdk_sends_again_are_counted(watched: Watched) -> None:
    client, sampler = await watched.create(), await watched.sampler()
    assert watched.meter.status().retries == 0
    watched.server.faults.answer("forward", 503)
    await forward(client)
    assert watched.meter.status().retries == 1
    watched.server.faults.answer("asample", 429)
    await sample(sampler)
    assert watched.meter.status().retries == 2
    watched.server.faults.answer("asample", 500)
    await sample(sampler)
    assert watched.meter.status().retries == 3


async def test_a_server_that_is_gone_is_unreachable_until_its_next_answer(
    watched: Watched,
) -> None:
    client = await watched.sampler()
    await sample(client)
    await watched.server.kill()
    with watched.meter.request("sample"):
        sampling = asyncio.create_task(sample(client))
        status = await watched.until(lambda status: status.state == "unreachable")
        assert status.reason
        watched.server.start()
        await watched.until(lambda status: status.state != "unreachable")
        sampling.cancel()
        await asyncio.wait([sampling])


@pytest.mark.slow
async def test_an_account_that_does_not_pay_pauses_the_run(watched: Watched) -> None:
    ask = await watched.asking("forward")
    watched.server.faults.answer("forward", 402, detail="the card has expired")
    with watched.meter.request("forward"):
        answer = asyncio.create_task(ask())
        status = await watched.until(lambda status: status.state == "paused_billing")
        assert "the card has expired" in status.reason
        await answer
    assert watched.meter.status().state == "active"


async def test_an_sdk_without_the_hooks_makes_the_state_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Bare:
        """A client of an SDK that has moved everything."""

    meter = RequestMeter()
    monkeypatch.delattr(service_client, "QueueStateLogger")
    with watch_creation(meter):
        assert meter.status().state == "unknown"
        assert "doesn't report the making of training clients" in meter.status().reason
    monkeypatch.undo()
    bare = Bare()
    watch_connection(meter, bare)  # type: ignore[arg-type]
    watch_training(meter, bare)  # type: ignore[arg-type]
    watch_sampling(meter, bare)  # type: ignore[arg-type]
    meter.state("active", "", "caller")
    status = meter.status()
    assert status.state == "unknown"
    assert tinker.__version__ in status.reason


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("asample", "sample"),
        ("forward", "forward"),
        pytest.param("retrieve:asample", "sample", marks=pytest.mark.slow),
    ],
)
async def test_a_server_that_fails_requests_is_named_until_one_succeeds(
    watched: Watched, fault: str, kind: str
) -> None:
    ask = await watched.asking(kind)
    await ask()
    watched.server.faults.answer(fault, 500, times=10_000, detail="out of memory")
    with watched.meter.request(kind):
        answer = asyncio.create_task(ask())
        status = await watched.until(lambda status: status.state == "failing")
        assert "500 Internal Server Error" in status.reason
        # Heartbeats and other answers don't say that such requests work again.
        await watched.service.create_sampling_client(base_model="starter")
        assert watched.meter.status().state == "failing"
        watched.server.faults.clear()
        await watched.until(lambda status: status.state != "failing")
        await answer


async def test_what_failed_is_forgotten_when_nobody_waits_for_it(watched: Watched) -> None:
    client = await watched.sampler()
    watched.server.faults.answer("asample", 500, times=10_000)
    with contextlib.suppress(asyncio.CancelledError), watched.meter.request("sample"):
        sampling = asyncio.create_task(sample(client))
        await watched.until(lambda status: status.state == "failing")
        sampling.cancel()
        await sampling
    assert watched.meter.status().state != "failing"


@pytest.mark.parametrize(("kind", "status"), [("config", 502), ("create_session", 503)])
async def test_a_server_that_is_not_up_yet_is_told_while_a_session_is_opened(
    kind: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    async with serving(state_dir=tmp_path) as server:
        meter = TellingMeter()
        watched = Watched(server, tinker.ServiceClient(base_url=server.url), meter)
        server.faults.answer(kind, status, times=10_000)
        with watch_beginning(meter):
            opening = asyncio.create_task(open_session(server.url, None, meter))
            told = await watched.until(lambda told: told.state == "unreachable")
            assert told.reason.startswith(f"{status} ")
            server.faults.clear()
            session = await opening
        assert meter.status().state != "unreachable"
        await session.close("success")
