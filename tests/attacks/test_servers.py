"""Servers of models that lie: an answer is a sound sample, or an error of one line, and in time.

What the server says is damaged in seeded ways, or is one of a table. Nothing of it may become a
log-probability, a token or a reward. `TBTUI_HOSTILE_ANSWERS=2000` tries so many.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp.test_utils
import numpy as np
import pytest
import zstandard
from aiohttp import web
from tinker.proto import tinker_public_pb2 as pb

from tbtui.engines.grpo.sampling import _require_sound
from tbtui.policies.base import MODEL_ITSELF, LossSettings, Message, PolicyError, SampleRequest
from tbtui.policies.openai.policy import OpenAIPolicy
from tbtui.policies.vllm import connection
from tbtui.policies.vllm.policy import VllmPolicy
from tbtui.policies.work import ServerSettings
from tests.attacks.run_damage import RAW, changed
from tests.policies.asking import datum_of, prompt_of
from tests.policies.served.scripted_chat import chunk, whole
from tests.policies.tinker.conftest import MakePolicy, lasting_server, make_policy, tinker_server

__all__ = ["lasting_server", "make_policy", "tinker_server"]

MANY = int(os.environ.get("TBTUI_HOSTILE_ANSWERS", "60"))
POLICIES = (VllmPolicy, OpenAIPolicy)
LOGPROBS = {"content": [{"token": "a", "logprob": -0.5}]}
CHAT: dict[str, Any] = whole("a", reasoning_content="b")
CHAT["choices"][0] |= {"logprobs": LOGPROBS}
CALL = {"index": 0, "function": {"name": "bash", "arguments": "{}"}}
ANSWERS: dict[str, Any] = {
    "/v1/models": {"data": [{"id": "m", "max_model_len": 1024, "parent": None, "root": "m"}]},
    "/tokenize": {"tokens": [1, 2]},
    "/v1/completions": {
        "choices": [
            {"token_ids": [5, 6], "logprobs": {"token_logprobs": [-0.5, -0.25]}}
            | {"finish_reason": "stop", "prompt_token_ids": None}
        ],
        "usage": {"prompt_tokens_details": {"cached_tokens": 1}},
    },
    "/v1/chat/completions": CHAT,
}
STREAM = [
    chunk({"content": "a", "tool_calls": [CALL]}, logprobs=LOGPROBS),
    chunk({"content": ""}, "stop"),
]


class LyingServer:
    """Answers as a server of models does, but for what `damage` makes of one path's answer."""

    def __init__(self, damage: Callable[[str, str], web.StreamResponse | None]) -> None:
        self._damage = damage

    async def answer(self, request: web.Request) -> web.StreamResponse:
        sent = await request.json() if request.can_read_body else {}
        if "stream" in sent:
            text = "".join(f"data: {json.dumps(each)}\n\n" for each in STREAM)
        else:
            text = json.dumps(ANSWERS.get(request.path, {}))
        damaged = self._damage(request.path, text)
        kind = "text/event-stream" if text.startswith("data:") else "application/json"
        return web.Response(text=text, content_type=kind) if damaged is None else damaged


@asynccontextmanager
async def lying(
    damage: Callable[[str, str], web.StreamResponse | None],
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None,
) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer or LyingServer(damage).answer)
    async with aiohttp.test_utils.TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def asked(kind: type[VllmPolicy | OpenAIPolicy], url: str) -> None:
    """Start a policy and sample; what comes is sound, or the error that is raised says why."""
    renderer = "embedded" if kind is VllmPolicy else "auto"
    policy = kind(ServerSettings(model_name="m", base_url=url, renderer=renderer))
    try:
        async with asyncio.timeout(20):
            await policy.start()
            prompt = policy.renderer.render([Message("user", "list")])
            sample = await policy.sample(SampleRequest(prompt, 32, MODEL_ITSELF, 5))
        _require_sound(sample, policy.renderer)
        assert sample.completion_ids
    finally:
        await policy.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(connection, "_WAITS_SEC", (0.0,))
    monkeypatch.setattr(connection, "_PATIENT_WAITS_SEC", (0.0,))


def damaged_answer(chance: random.Random, text: str) -> web.Response:
    match chance.choice(("value", "value", "value", "raw", "status", "header", "cut", "bytes")):
        case "value" if text.startswith("data:"):
            events = [changed(json.dumps(each), chance) for each in STREAM]
            body = "".join(f"data: {each}\n\n" for each in events).encode(errors="replace")
            return web.Response(body=body, content_type="text/event-stream")
        case "value":
            return web.Response(body=changed(text, chance).encode(errors="replace"))
        case "raw":
            return web.Response(body=chance.choice(RAW).encode(errors="replace"))
        case "status":
            status = chance.choice(
                (204, 301, 302, 307, 400, 401, 402, 403, 404, 418, 429, 500, 503)
            )
            after = chance.choice(("1e309", "nan", "-1", "x", "Mon, 01 Jan 0001 00:00:00 -0000"))
            headers = {"Location": "http://127.0.0.1:9/", "Retry-After": after}
            said = changed('{"error": {"message": "x", "code": 400}}', chance)
            return web.Response(
                status=status, headers=headers, text=None if status == 204 else said
            )
        case "header":
            name, value = chance.choice(
                (
                    ("Content-Encoding", "gzip"),
                    ("Content-Encoding", "zstd"),
                    ("Content-Encoding", "br, gzip"),
                    ("Content-Type", "text/event-stream"),
                    ("Content-Type", "text/html; charset=x"),
                    ("Content-Type", "\x7f"),
                )
            )
            response = web.Response(body=text.encode())
            response.headers[name] = value
            return response
        case "cut":
            return web.Response(body=text.encode()[: chance.randrange(len(text))])
        case _:
            return web.Response(body=chance.randbytes(500))


@pytest.mark.slow
@pytest.mark.timeout(0)
async def test_damaged_answers() -> None:
    current: list[tuple[random.Random, str]] = []

    def damage(path: str, text: str) -> web.StreamResponse | None:
        chance, struck = current[-1]
        return damaged_answer(chance, text) if path == struck else None

    broken: list[str] = []
    async with lying(damage) as url:
        for seed in range(MANY):
            chance = random.Random(seed)
            kind = chance.choice(POLICIES)
            completes = "/v1/completions" if kind is VllmPolicy else "/v1/chat/completions"
            path = chance.choice(("/v1/models", "/tokenize", completes, completes, completes))
            current.append((chance, path))
            try:
                await asked(kind, url)
            except PolicyError as error:
                if "\n" in str(error) or len(str(error)) > 1000:
                    broken.append(f"seed {seed}: {path}: not one line: {error!r:.300}")
            except Exception as error:  # noqa: BLE001 - the attack's finding
                broken.append(f"seed {seed}: {path}: {error!r:.300}")
    assert broken == []


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize("packing", ["zstd", "gzip, gzip"])
async def test_what_unpacks_to_gigabytes_is_not_unpacked(
    kind: type[VllmPolicy | OpenAIPolicy], packing: str
) -> None:
    """A piece of some kilobytes would, before anybody could look at its length."""
    zeros = bytes(1 << 20)
    bodies = {"zstd": zstandard.compress(zeros), "gzip, gzip": gzip.compress(gzip.compress(zeros))}

    def damage(path: str, text: str) -> web.StreamResponse | None:
        if "completions" not in path:
            return None
        return web.Response(body=bodies[packing], headers={"Content-Encoding": packing})

    async with lying(damage) as url:
        with pytest.raises(PolicyError, match=f"packed as '{packing}'"):
            await asked(kind, url)


async def test_an_answer_that_drips_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_QUESTION_SEC", 0.3)

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.05)

    async with lying(lambda path, text: None, drip) as url:
        with pytest.raises(PolicyError, match="didn't answer in"):
            await asked(VllmPolicy, url)


# Tinker's protocol

TWO = np.array([5, 6], np.int32)


def drawn(tokens: Any, logprobs: Any) -> bytes:
    message = pb.SampleResponse()
    message.sequences.add(
        stop_reason=pb.STOP_REASON_STOP,
        tokens=np.asarray(tokens, np.int32).tobytes(),
        logprobs=np.asarray(logprobs, np.float32).tobytes(),
    )
    return bytes(message.SerializeToString())


DRAWN: dict[str, Any] = {
    "not a number": drawn(TWO, [np.nan, -1]),
    "infinite": drawn(TWO, [-np.inf, -1]),
    "positive": drawn(TWO, [0.5, -1]),
    "too few": drawn(TWO, [-1]),
    "too many": drawn(TWO, [-1, -1, -1]),
    "none": drawn(TWO, []),
    "negative ids": drawn([-1, 5], [-1, -1]),
    "ids out of the vocabulary": drawn([2**31 - 1, 5], [-1, -1]),
    "no tokens": drawn([], []),
    "more than were asked for": drawn([5] * 33, [-1] * 33),
    "no sequence": bytes(pb.SampleResponse().SerializeToString()),
    "half a token": bytes(
        pb.SampleResponse(
            sequences=[pb.SampledSequence(tokens=b"\1\2\3", logprobs=b"\1")]
        ).SerializeToString()
    ),
    "no protobuf": b"\xff" * 50,
    "a number": {"sequences": 5},
    "texts": {"sequences": [{"tokens": ["5"], "logprobs": ["-1"], "stop_reason": "stop"}]},
    "another reason": {"sequences": [{"tokens": [5], "logprobs": [-1], "stop_reason": {}}]},
    "nothing": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("what", DRAWN)
async def test_what_a_tinker_server_draws_is_sound_or_an_error(
    what: str, make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = await make_policy()
    monkeypatch.setattr("tests.tinker_server.sampling.sample_answer", lambda *sample: DRAWN[what])
    with pytest.raises(PolicyError) as caught:
        async with asyncio.timeout(30):
            sample = await policy.sample(SampleRequest(prompt_of(policy), 32, MODEL_ITSELF, 5))
        _require_sound(sample, policy.renderer)
    assert "\n" not in str(caught.value)


def trained(logprobs: Any, **changes: Any) -> bytes:
    message = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
    record = message.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=1)
    tensor = record.fields["logprobs"]
    tensor.dtype = pb.DTYPE_FLOAT32
    tensor.data = np.asarray(logprobs, np.float32).tobytes()
    tensor.offsets = np.array([0, len(tensor.data)], np.int64).tobytes()
    message.metrics["loss:sum"] = 1.0
    for name, value in changes.items():
        setattr(tensor, name, value)
    return bytes(message.SerializeToString())


TRAINED: dict[str, Callable[[int], Any]] = {
    "not a number": lambda n: trained([np.nan] * n),
    "infinite": lambda n: trained([-np.inf] * n),
    "positive": lambda n: trained([1e30] * n),
    "too few": lambda n: trained([-1.0] * (n - 1)),
    "none": lambda n: trained([]),
    "others' offsets": lambda n: trained([-1.0] * n, offsets=np.array([4, 8], np.int64).tobytes()),
    "another type": lambda n: trained([-1.0] * n, dtype=77),
    "no protobuf": lambda n: b"\xff" * 50,
    "nothing": lambda n: {},
    "a text": lambda n: {"loss_fn_outputs": "x", "metrics": {}, "loss_fn_output_type": "x"},
}


@pytest.mark.slow
@pytest.mark.parametrize("what", TRAINED)
async def test_what_a_tinker_server_trains_is_sound_or_an_error(
    what: str, make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = await make_policy()
    sample = await policy.sample(SampleRequest(prompt_of(policy), 32, MODEL_ITSELF, 5))
    datum = datum_of(prompt_of(policy), sample)
    answer = TRAINED[what](len(datum.tokens) - 1)
    monkeypatch.setattr("tests.tinker_server.training.training_answer", lambda *sums: answer)
    with pytest.raises(PolicyError) as caught:
        async with asyncio.timeout(30):
            await policy.accumulate([datum], LossSettings("importance_sampling"))
    assert "\n" not in str(caught.value)
