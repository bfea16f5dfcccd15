"""What the proxy makes of requests, before an upstream that answers as SkyRL 0.4.0 does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tinker.proto import tinker_public_pb2

from tests.tinker_server.skyrl_proxy import application

URL = "http://upstream"


class Upstream:
    """Takes note of what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []

    def messages(self, path: str) -> list[dict[str, Any]]:
        return [json.loads(body) for asked, body in self.asked if asked == path]

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/api/v1/")
        self.asked.append((path, request.content))
        match path.partition("/")[0]:
            case "training_runs":
                return httpx.Response(200, json={"base_model": "starter", "lora_rank": 8})
            case "create_model":
                return httpx.Response(200, json={"model_id": "model_1", "request_id": "1"})
            case "gone":
                raise httpx.ConnectError("connection refused", request=request)
            case "refused":
                return httpx.Response(409, json={"detail": "already exists"})
            case _:
                return httpx.Response(200, json={"request_id": str(len(self.asked))})


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
async def client(upstream: Upstream) -> AsyncIterator[httpx.AsyncClient]:
    behind = httpx.AsyncClient(base_url=URL, transport=httpx.MockTransport(upstream.answer))
    proxy = httpx.ASGITransport(application(behind))
    async with behind, httpx.AsyncClient(base_url=f"{URL}/api/v1", transport=proxy) as client:
        yield client


async def test_samples_have_ids_and_seeds_that_jax_takes(
    client: httpx.AsyncClient, upstream: Upstream
) -> None:
    message = {"num_samples": 2, "sampling_params": {"max_tokens": 4, "seed": 2**40 + 7}}
    answer = await client.post("/asample", json=message)
    assert len(set(answer.json()["sample_sequence_ids"])) == 2
    assert upstream.messages("asample")[0]["sampling_params"]["seed"] == 7


async def test_a_model_that_was_resumed_is_found_under_the_clients_name(
    client: httpx.AsyncClient, upstream: Upstream
) -> None:
    load = {
        "session_id": "s",
        "model_seq_id": 3,
        "path": "tinker://model_0/weights/a",
        "optimizer": True,
    }
    first = await client.post("/load_weights", json=load)
    assert (await client.post("/load_weights", json=load)).json() == first.json()
    assert upstream.messages("create_model") == [
        {"session_id": "s", "base_model": "starter", "lora_config": {"rank": 8}}
    ]
    assert upstream.messages("load_weights") == [
        {"model_id": "model_1", "path": "tinker://model_0/weights/a", "optimizer": True}
    ]
    await client.post("/optim_step", json={"model_id": "s:train:3"})
    assert upstream.messages("optim_step") == [{"model_id": "model_1"}]
    gradient = tinker_public_pb2.ForwardBackwardRequest(model_id="s:train:3")
    headers = {"content-type": "application/x-protobuf"}
    await client.post("/forward_backward", content=gradient.SerializeToString(), headers=headers)
    sent = tinker_public_pb2.ForwardBackwardRequest()
    sent.ParseFromString(upstream.asked[-1][1])
    assert sent.model_id == "model_1"


async def test_saving_again_is_the_same_request(
    client: httpx.AsyncClient, upstream: Upstream
) -> None:
    save = {"model_id": "model_1", "path": "a"}
    first = await client.post("/save_weights", json=save)
    assert (await client.post("/save_weights", json=save)).json() == first.json()
    assert len(upstream.messages("save_weights")) == 1


async def test_a_server_that_is_gone_is_a_bad_gateway(client: httpx.AsyncClient) -> None:
    """And no failure of the server's own: the client has to tell them apart."""
    answer = await client.post("/gone", json={})
    assert answer.status_code == 502
    assert "connection refused" in answer.json()["detail"]


async def test_the_rest_passes_through(client: httpx.AsyncClient, upstream: Upstream) -> None:
    refused = await client.post("/refused", json={})
    assert (refused.status_code, refused.json()) == (409, {"detail": "already exists"})
    assert (await client.post("/sessions/s/finish", json={})).status_code == 204
    assert [path for path, _ in upstream.asked] == ["refused"]
