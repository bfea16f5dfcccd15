"""Secrets, sockets, waiting, clients that go away, and floods, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import httpx
import openai
import pytest

from tbtui.endpoint.calls import CallRefused, ModelAnswer, ModelCall
from tbtui.endpoint.server import AT_ONCE, WAITING, ModelEndpoint
from tests.endpoint.served import SECRET, Scripted, Served, served
from tests.endpoint.test_openai import user

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
