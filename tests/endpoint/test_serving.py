"""Secrets, sockets, waiting, clients that go away, and floods, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx
import openai
import psutil
import pytest

from tbtui.endpoint import server
from tbtui.endpoint.calls import CallRefused, ModelAnswer, ModelCall
from tbtui.endpoint.server import AT_ONCE, CONNECTIONS, WAITING, ModelEndpoint
from tbtui.endpoint.wire import require_few
from tests.endpoint.served import SECRET, Scripted, Served, served
from tests.endpoint.test_openai import user
from tests.waiting import until

BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
OTHER = "sk-trial-2"


class Held:
    """An answer that waits to be let go."""

    def __init__(self, answer: ModelAnswer | CallRefused) -> None:
        self._answer = answer
        self.go = asyncio.Event()

    async def __call__(self, call: ModelCall) -> ModelAnswer:
        await self.go.wait()
        if isinstance(self._answer, CallRefused):
            raise self._answer
        return self._answer


async def ask(here: Served, secret: str, **headers: str) -> int:
    async with aiohttp.ClientSession() as session:
        headers = headers or {"Authorization": f"Bearer {secret}"}
        url = f"{here.url}/v1/chat/completions"
        async with session.post(url, json=BODY, headers=headers) as response:
            await response.read()
            return response.status


async def test_nothing_but_an_admitted_secret_is_answered() -> None:
    handler, other = Scripted(), Scripted()
    async with served(handler) as here:
        here.endpoint.admit(OTHER, other)
        assert await ask(here, SECRET) == 200
        assert await ask(here, "", **{"x-api-key": SECRET}) == 200
        assert await ask(here, "guess") == 401
        assert await ask(here, "") == 401
        assert await ask(here, "", Authorization="Basic abc") == 401
        here.endpoint.revoke(SECRET)
        assert await ask(here, SECRET) == 401
        assert await ask(here, OTHER) == 200
    assert (len(handler.calls), len(other.calls)) == (2, 1)


async def test_a_socket_of_one_trial_refuses_anothers_secret() -> None:
    other = Scripted()
    async with served(Scripted(), only=SECRET) as here:
        here.endpoint.admit(OTHER, other)
        assert await ask(here, OTHER) == 401
        assert await ask(here, SECRET) == 200
        async with anthropic.AsyncAnthropic(base_url=here.url, api_key=OTHER) as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.messages.create(model="m", messages=user(), max_tokens=5)
        async with openai.AsyncOpenAI(base_url=here.url, api_key=OTHER) as client2:
            with pytest.raises(openai.AuthenticationError):
                await client2.models.list()
    assert not other.calls


async def test_what_it_does_not_have_is_said_in_the_form_of_the_api() -> None:
    """And the trial whose socket it is hears of that, as of a secret that is none of its own."""
    handler = Scripted()
    async with served(handler, only=SECRET) as here:
        assert await ask(here, "mine") == 401
        async with openai.AsyncOpenAI(base_url=f"{here.url}/v1", api_key=SECRET) as client:
            with pytest.raises(openai.NotFoundError, match="POST chat/completions") as caught:
                await client.completions.create(model="m", prompt="hello")
        assert caught.value.code == "unknown_url"
        async with aiohttp.ClientSession() as session:
            headers = {"x-api-key": SECRET, "anthropic-version": "2023-06-01"}
            async with session.get(f"{here.url}/v1/messages", headers=headers) as response:
                assert response.status == 404
                assert (await response.json())["error"]["type"] == "not_found_error"
    assert [kind for _, kind in handler.refusals] == ["unauthorized", "not_found", "not_found"]


async def test_a_unix_socket(tmp_path: Path) -> None:
    endpoint = ModelEndpoint()
    endpoint.admit(SECRET, Scripted())
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(tmp_path / "model.sock"))
    listening = await endpoint.listen(sock)
    transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "model.sock"))
    http = httpx.AsyncClient(transport=transport)
    async with openai.AsyncOpenAI(
        base_url="http://model/v1", api_key=SECRET, http_client=http
    ) as client:
        answer = await client.chat.completions.create(model="m", messages=user())
        assert answer.choices[0].message.content == "hi"
        await listening.close()
        with pytest.raises(openai.APIConnectionError):
            await client.with_options(max_retries=0).models.list()
    await endpoint.close()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_long_wait_is_kept_alive(streamed: bool) -> None:
    """A client that gives up after half a second of silence gets an answer that takes longer."""
    held = Held(ModelAnswer("at last"))
    handler = Scripted([held])
    async with served(handler, quiet_sec=0.05) as here:
        asyncio.get_running_loop().call_later(1.2, held.go.set)
        options: Any = {"api_key": SECRET, "timeout": 0.5, "max_retries": 0}
        async with openai.AsyncOpenAI(base_url=here.url, **options) as client:
            answer: Any
            if streamed:
                async with client.responses.stream(model="m", input="hello") as stream:
                    answer = await stream.get_final_response()
            else:
                answer = await client.responses.create(model="m", input="hello")
            assert answer.output_text == "at last"
        held.go.clear()
        asyncio.get_running_loop().call_later(1.2, held.go.set)
        async with anthropic.AsyncAnthropic(base_url=here.url, **options) as client2:
            asked: Any = {"model": "m", "messages": user(), "max_tokens": 5}
            if streamed:
                async with client2.messages.stream(**asked) as stream2:
                    said = await stream2.get_final_message()
            else:
                said = await client2.messages.create(**asked)
            assert said.content[0].type == "text"
    assert not handler.gone


async def test_an_error_after_a_long_wait() -> None:
    """A stream ends with the error; without a stream the client asks again, and reads it then."""
    late = Held(CallRefused("context_overflow", "", prompt_tokens=9, context_limit=8))
    handler = Scripted([late])
    async with served(handler, quiet_sec=0.02) as here:
        client = openai.AsyncOpenAI(base_url=here.url, api_key=SECRET, max_retries=1)
        async with client:
            asyncio.get_running_loop().call_later(0.2, late.go.set)
            with pytest.raises(openai.APIError, match="maximum context length"):
                async for _ in await client.chat.completions.create(
                    model="m", messages=user(), stream=True
                ):
                    pass
            late.go.clear()
            asyncio.get_running_loop().call_later(0.2, late.go.set)
            with pytest.raises(openai.BadRequestError, match="maximum context length"):
                await client.chat.completions.create(model="m", messages=user())
    assert not handler.gone
    assert handler.refusals == [("chat-completions", "context_overflow")] * 3


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_goes_away_has_abandoned_its_call(streamed: bool) -> None:
    held = Held(ModelAnswer("nobody reads this"))
    handler = Scripted([held, ModelAnswer("hi")])
    async with served(handler, quiet_sec=0.05) as here:
        async with openai.AsyncOpenAI(
            base_url=here.url, api_key=SECRET, timeout=0.3, max_retries=0
        ) as client:
            asking = asyncio.create_task(
                client.chat.completions.create(model="m", messages=user(), stream=streamed)  # type: ignore[call-overload]
            )
            await handler.until(lambda: len(handler.calls) == 1)
            if streamed:
                (await asking).response.stream  # noqa: B018
                await (await asking).close()
            else:
                asking.cancel()
        await handler.until(lambda: bool(handler.gone))
        assert handler.gone == handler.calls
        held.go.set()  # the answer comes all the same, for the record
        assert await ask(here, SECRET) == 200
    assert len(handler.gone) == 1


async def test_a_flood_is_limited_and_leaves_others_alone() -> None:
    held = Held(ModelAnswer("hi"))
    flooded, other = Scripted([held]), Scripted()
    async with served(flooded) as here:
        here.endpoint.admit(OTHER, other)
        url = f"{here.url}/v1/chat/completions"
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def request() -> int:
                key = {"Authorization": f"Bearer {SECRET}"}
                async with session.post(url, json=BODY, headers=key) as response:
                    return response.status

            flood = [asyncio.create_task(request()) for _ in range(AT_ONCE + WAITING + 20)]
            done: set[asyncio.Task[int]] = set()
            while len(done) < 20:
                waiting = [task for task in flood if not task.done()]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done = {task for task in flood if task.done()}
            assert {task.result() for task in done} == {503}
            assert len(flooded.calls) == AT_ONCE
            assert await ask(here, OTHER) == 200
            held.go.set()
            statuses = await asyncio.gather(*flood)
            assert sorted(set(statuses)) == [200, 503]
    assert len(flooded.calls) == AT_ONCE + WAITING


def taken(port: int) -> int:
    """Connections of that port of ours that this process has accepted."""
    found = psutil.Process().net_connections("tcp")
    return sum(c.laddr.port == port and c.status == psutil.CONN_ESTABLISHED for c in found)


@pytest.mark.slow
@pytest.mark.parametrize("begun", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"])
async def test_silent_connections_are_few_and_end(begun: bytes) -> None:
    """A call comes through after those before it, and then as long as one is made at all."""
    # Longer than all that there may be take to be accepted, one each 5 ms.
    async with served(Scripted(), silent_sec=1.5) as here:
        address = ("127.0.0.1", here.port)
        others = [socket.create_connection(address) for _ in range(2 * CONNECTIONS + 20)]
        for each in others:
            each.settimeout(10)
            each.sendall(begun)
        asking = asyncio.create_task(ask(here, SECRET))
        most = 0
        while not asking.done():
            most = max(most, taken(here.port))
            await asyncio.sleep(0.02)
        assert most <= CONNECTIONS
        assert asking.result() == 200
        for each in others[:CONNECTIONS]:
            with contextlib.suppress(ConnectionError):
                assert not each.recv(1)
        for each in others:
            each.close()


async def test_a_body_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_BODY_SEC", 0.2)
    handler = Scripted()
    async with served(handler) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        head = f"POST /v1/responses HTTP/1.1\r\nHost: x\r\nx-api-key: {SECRET}\r\n"
        writer.write(f"{head}Content-Length: 9\r\n\r\n{{".encode())
        assert b"400 Bad Request" in await reader.readline()
        writer.close()
    assert handler.said == ["its body has not come within 0.2 s"]


DEEP = json.loads("[" * 500 + "]" * 500)


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"tools": [{"name": "f", "parameters": {"a": DEEP}}]}, "nested more than 64 deep"),
        ({"messages": [{"role": "\x1b]0;\n" + "x" * 99_000, "content": ""}]}, "]0;"),
        (
            {"user": "x" * 100_000},
            "a request of more than 100000 bytes exceeds the maximum context",
        ),
        ({"metadata": {"a": [[]] * 2000}}, "more than 781 objects and arrays"),
        ({"metadata": dict.fromkeys(map(str, range(6500)))}, "or too many texts"),
    ],
)
async def test_what_costs_much_is_refused_in_few_words(
    path: str, more: dict[str, Any], says: str
) -> None:
    handler = Scripted(most_bytes=100_000)
    if path == "responses" and "messages" in more:
        more = {"input": [{"type": more["messages"][0]["role"]}]}
    body = {"max_tokens": 1, "messages": BODY["messages"], "input": "hello", **more}
    async with served(handler) as here, httpx.AsyncClient() as client:
        answer = await client.post(
            f"{here.url}/v1/{path}", json=body, headers={"x-api-key": SECRET}
        )
    assert answer.status_code == 400
    assert not handler.calls
    (said,) = handler.said
    assert says in said
    assert len(answer.content) < 1000
    assert said.isprintable()
    assert len(said) <= 400


@pytest.mark.parametrize("text", ["[{", '"[', "\\[", '\\\\"{\\'])
def test_what_is_in_texts_is_no_array(text: str) -> None:
    body = json.dumps({"a": text * 999, "b": [{}]}).encode()
    require_few(body, most=3)
    with pytest.raises(CallRefused, match="more than 2 objects and arrays"):
        require_few(body, most=2)


@pytest.mark.parametrize(
    ("limit", "value"),
    [("_BYTES_PER_SEC", 1e-3), ("_REST", 1e12), ("_SPACING_SEC", 3600), ("_SPACING_SEC", 7200)],
    ids=["bodies", "decoding", "requests", "connections"],
)
async def test_a_trial_that_sends_much_waits_and_no_other(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, limit: str, value: float
) -> None:
    monkeypatch.setattr(server, limit, value)
    connects = request.node.callspec.id == "connections"
    async with served(Scripted(), only=SECRET) as here, httpx.AsyncClient() as client:
        here.endpoint.admit(OTHER, Scripted())
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        await here.endpoint.listen(sock, OTHER)

        async def again() -> int:
            url, key = f"{here.url}/v1/chat/completions", {"x-api-key": SECRET}
            return (await client.post(url, json=BODY, headers=key)).status_code

        assert await again() == 200
        second = asyncio.create_task(ask(here, SECRET) if connects else again())
        assert await ask(Served(here.endpoint, sock.getsockname()[1]), OTHER) == 200
        for _ in range(2000):  # iterations of the loop that both sides share
            await asyncio.sleep(0)
        assert not second.done()
        assert taken(here.port) == 1
        second.cancel()


async def test_large_bodies_are_bounded_and_decoded_beside_the_loop_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However large the context is."""
    monkeypatch.setattr(server, "_LARGEST_BODY", 200_000)
    ran, alone, loop = threading.Event(), threading.Lock(), threading.get_ident()

    def looked_at(body: bytes, most: int) -> None:
        if len(body) > 100_000:
            assert threading.get_ident() != loop
            assert alone.acquire(blocking=False), "two bodies of a trial at a time"
            assert ran.wait(10), "the loop stands still"
            alone.release()

    monkeypatch.setattr(server, "require_few", looked_at)
    handler = Scripted(most_bytes=1 << 30)
    async with served(handler) as here, httpx.AsyncClient() as client:

        async def send(size: int) -> int:
            url, key = f"{here.url}/v1/chat/completions", {"x-api-key": SECRET}
            body = {**BODY, "user": "x" * size}
            return (await client.post(url, json=body, headers=key)).status_code

        sending = [asyncio.create_task(send(150_000)) for _ in range(2)]
        await until(lambda: here.endpoint._admitted[SECRET].requests == 2)
        for _ in range(2000):  # iterations of the loop that both sides share
            await asyncio.sleep(0)
        ran.set()
        assert await asyncio.gather(*sending) == [200, 200]
        assert await send(250_000) == 400
    assert handler.said[-1].startswith("a request of more than 200000 bytes")


async def test_names_of_parameters_make_no_headers() -> None:
    async with served(Scripted()) as here, httpx.AsyncClient() as client:
        body = {**BODY, "a\r\nSet-Cookie: b": 1, "größe": 2, "x" * 50_000: 3}
        answer = await client.post(
            f"{here.url}/v1/chat/completions", json=body, headers={"x-api-key": SECRET}
        )
    assert answer.status_code == 200
    assert answer.headers["x-ignored-parameters"].startswith("a Set-Cookie: b, gr??e, xxx")
    assert "Set-Cookie" not in answer.headers


async def test_what_is_no_http_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Scripted()) as here:
        for garbage in (
            b"\x16\x03\x01\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 500 + b"\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(garbage)
            assert b" 400 " in await reader.readline()
            writer.close()
    assert not caplog.records
