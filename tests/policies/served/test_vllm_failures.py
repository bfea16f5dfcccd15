"""What a vLLM server, or the way to it, can do wrong: one line each, of the right class."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tbtui.policies.base import (
    PolicyError,
    PolicyRefusedError,
)
from tbtui.policies.vllm import connection
from tbtui.policies.vllm.connection import status_error
from tbtui.policies.vllm.policy import VllmPolicy
from tbtui.policies.work import ServerSettings
from tests.policies.asking import request
from tests.policies.served.conftest import MakePolicy
from tests.policies.served.server import VllmServer


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"model_name": "startr"},
            "model_name=startr: the server has no such model; the nearest is starter; it also has"
            " starter-lora",
        ),
        ({"model_name": "Qwen3-8B"}, "it has starter, starter-lora"),
        ({"base_url": "localhost:8000"}, "vllm_base_url=localhost:8000: no address of a server"),
        ({"base_url": "ftp://me:secret@there/v1"}, "vllm_base_url=ftp://there: no address"),
        ({"renderer": "template"}, "tokenizer org/starter can't be loaded"),
        ({"base_url": "http://[::1/v1"}, "vllm_base_url=http://[::1: no address of a server"),
        ({"renderer": "nothing"}, "renderer=nothing"),
    ],
)
async def test_what_cannot_be_had_is_refused(
    settings: dict[str, Any],
    text: str,
    make_policy: MakePolicy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PolicyRefusedError) as raised:
        await make_policy(**settings)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_servers_own_directory_needs_a_tokenizer(
    make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    vllm_server.served.root = "/models/ours"
    with pytest.raises(PolicyRefusedError, match="from /models/ours, which is not on this machine"):
        await make_policy(renderer="template")


async def test_a_context_that_nobody_tells_is_asked_for(
    make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    vllm_server.served.context = None
    with pytest.raises(PolicyRefusedError, match="context_limit: the server doesn't say"):
        await make_policy()
    assert (await make_policy(context_limit=500)).info.context_limit == 500


async def test_a_key_is_asked_for_and_used(
    make_policy: MakePolicy, vllm_server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm_server.served.key = "sk-of-a-test"
    with pytest.raises(PolicyRefusedError, match=r"401: Unauthorized.*OPENAI_API_KEY"):
        await make_policy()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-\N{SNOWMAN}")
    with pytest.raises(PolicyRefusedError, match="OPENAI_API_KEY: that is no key"):
        await make_policy()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    monkeypatch.setenv("OPENAI_BASE_URL", vllm_server.url + "/v1")
    policy = await make_policy(base_url=None)
    assert (await policy.sample(request(policy))).completion_ids


@pytest.mark.parametrize(
    ("change", "text"),
    [({"tells_ids": False}, "no token ids"), ({"tells_logprobs": False}, "log-probability")],
)
async def test_a_server_that_tells_too_little_is_refused_at_the_start(
    change: dict[str, bool], text: str, make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    for name, value in change.items():
        setattr(vllm_server.served, name, value)
    with pytest.raises(PolicyRefusedError, match=text):
        await make_policy()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"token_ids": []}, "log-probability"),
        ({"token_ids": [], "logprobs": {"token_logprobs": []}}, "drew 0 tokens"),
        ({"token_ids": [1] * 9, "logprobs": {"token_logprobs": [-1.0] * 9}}, "drew 9 tokens"),
        ({"logprobs": {"token_logprobs": [None] * 8}}, "log-probability"),
        ({"token_ids": [1 << 40], "logprobs": {"token_logprobs": [-1.0]}}, "token ids that are"),
        ({"token_ids": [1.5], "logprobs": {"token_logprobs": [-1.0]}}, "token ids that are"),
        ({"token_ids": [1], "logprobs": {"token_logprobs": ["-1"]}}, "no log-probabilities"),
        ({"prompt_token_ids": [1, 2]}, "took 2 tokens for a prompt of"),
        ({"finish_reason": "abort"}, r"gave the completion up \(abort\)"),
    ],
)
async def test_an_answer_that_is_none_is_no_sample(
    changes: dict[str, Any], text: str, make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    policy = await make_policy()
    vllm_server.served.changes = changes
    with pytest.raises(PolicyError, match=text):
        await policy.sample(request(policy, max_tokens=8))
    vllm_server.served.changes = {}
    assert (await policy.sample(request(policy, max_tokens=8))).completion_ids
    status = policy.status().server
    assert status is not None
    assert status.requests[0].failed == 1


@pytest.mark.parametrize(
    ("status", "refused", "text"),
    [
        (429, False, "429: injected fault"),
        (500, False, "the server failed (500: injected fault)"),
        (503, False, "the server has too much to do (503"),
        (404, True, "the server doesn't have that (404"),
        (400, True, "the server refuses it (400"),
        (403, True, "the server refuses it (403"),
        (402, False, "can't pay for it (402"),
    ],
)
async def test_a_status_concerns_its_request_alone(
    status: int, refused: bool, text: str, make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    policy = await make_policy()
    vllm_server.faults.answer("completions", status)
    with pytest.raises(PolicyError) as raised:
        await policy.sample(request(policy))
    assert isinstance(raised.value, PolicyRefusedError) == refused
    assert text in str(raised.value)
    assert (await policy.sample(request(policy))).completion_ids


def test_bodies_of_errors_are_read_as_words() -> None:
    for body in ('{"error": {"message": "so", "code": 400}}', '{"detail": "so"}', "so\n"):
        assert "(400: so)" in str(status_error(400, body, "sampling"))
    unprocessable = '{"detail": [{"loc": ["body", "seed"], "msg": "too large"}]}'
    assert "too large" in str(status_error(422, unprocessable, "sampling"))
    assert len(str(status_error(500, "<html>" * 1000, "sampling"))) < 500


async def test_a_dropped_connection_is_tried_again_and_draws_the_same(
    make_policy: MakePolicy, vllm_server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_WAITS_SEC", (0.0, 0.0))
    policy = await make_policy()
    expected = await policy.sample(request(policy))
    vllm_server.faults.lose("completions", times=2)
    again = await policy.sample(request(policy))
    assert again.completion_ids == expected.completion_ids
    server = policy.status().server
    assert server is not None
    assert (server.retries, server.state) == (2, "active")


async def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_WAITS_SEC", (0.0,))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    policy = VllmPolicy(ServerSettings("starter", f"http://user:secret@127.0.0.1:{port}/v1"))
    with pytest.raises(PolicyError, match=rf"no answer from http://127.0.0.1:{port} \(") as raised:
        await policy.start()
    assert "secret" not in str(raised.value)
    server = policy.status().server
    assert server is not None
    assert server.state == "unreachable"
    await policy.close()


async def test_what_is_in_flight_fails_when_the_policy_is_closed(
    make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    policy = await make_policy()
    vllm_server.hold()
    vllm_server.reached.clear()
    asked = asyncio.create_task(policy.sample(request(policy)))
    assert await asyncio.to_thread(vllm_server.reached.wait, 20)
    await policy.close()
    with pytest.raises(PolicyError, match="closed"):
        await asked
    with pytest.raises(PolicyError, match="closed"):
        await policy.sample(request(policy))
    await policy.close()
