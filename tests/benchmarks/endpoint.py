"""What two trials that attack the model endpoint cost eight others beside them.

    uv run python -m tests.benchmarks.endpoint

One process has all: the endpoint, which a worker serves, and the conversations, which the engine
has; so whatever costs either loop anything is seen. The sampler stands in for a model. The honest
agents are eight conversations of one other process, the attackers a process each, with the lower
priority that a box has. They hand in prompts to be counted as long as they may be and of as many
messages, bodies of empty lists, of tools, calls and brackets in quotes, deep ones, half-requests on
as many connections as they get, wrong keys and no HTTP at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp
import numpy as np

from tbtui.awake import AwakeLoop
from tbtui.chat import most_chars
from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall
from tbtui.endpoint.server import ModelEndpoint, most_nests
from tbtui.engines.grpo.sampling import Conversation, LoopTurns, SamplingLimits
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import ContextOverflowError, Policy, Sample, SampleRequest
from tbtui.policies.local.renderer import EmbeddedRenderer
from tbtui.rollout.messages import SampleWanted
from tbtui.sampling import MODEL_ITSELF

HONEST, ATTACKERS, CALLS = 8, 2, 12
ALLOWED_RATIO, ALLOWED_LAG_MS = 2.0, 100.0
CONTEXT = 32_768
_SAMPLING_SEC = 0.2, 0.6
_TALK = "root@box:/app# ls -la\ntotal 4\ndrwxr-xr-x 2 root root 4096 .\n" * 20
_ANSWER = "I look at the files of the folder first."


class _NoJournal:
    def append(self, event: object) -> int:
        return 0

    def add_sample(self, record: object) -> int:
        return 0


class _Policy:
    renderer = EmbeddedRenderer()

    async def sample(self, request: SampleRequest) -> Sample:
        await asyncio.sleep(random.Random(request.seed).uniform(*_SAMPLING_SEC))
        ids = self.renderer.spell(_ANSWER)
        return Sample(ids, np.zeros(len(ids), np.float32), "stop", 0)


@dataclass
class Trial:
    """A conversation; implements `tbtui.endpoint.calls.CallHandler`."""

    turns: LoopTurns
    seed: int
    model: str = "policy"
    most_bytes: int = 2 * most_chars(CONTEXT)
    number: int = 0
    policy: _Policy = field(default_factory=_Policy)

    def __post_init__(self) -> None:
        limits = SamplingLimits(CONTEXT, 400)
        journal, policy = cast(JournalWriter, _NoJournal()), cast(Policy, self.policy)
        self.talk = Conversation("t", self.seed, MODEL_ITSELF, limits, policy, journal, self.turns)

    async def answer(self, call: ModelCall) -> ModelAnswer:
        return ModelAnswer((await self._ask(call, count_only=False)).text)

    async def count_tokens(self, call: ModelCall) -> int:
        return int((await self._ask(call, count_only=True)).prompt_tokens)

    async def _ask(self, call: ModelCall, *, count_only: bool) -> Any:
        self.number += 1
        wanted = SampleWanted(self.number, "t", self.number, call.messages, count_only=count_only)
        try:
            return await self.talk.answer(wanted, self.policy.sample)
        except ContextOverflowError as error:
            raise CallRefused("context_overflow", str(error)) from error

    def abandoned(self, call: ModelCall) -> None:
        pass

    def refused(self, api: Api, refusal: CallRefused) -> None:
        pass


async def agents(ports: list[int]) -> None:
    """The honest agents: prints the seconds of each call, and how many went wrong."""
    took: list[float] = []
    wrong = 0

    async def agent(session: aiohttp.ClientSession, port: int) -> None:
        nonlocal wrong
        messages: list[dict[str, str]] = []
        headers = {"Authorization": f"Bearer sk-{port}"}
        for _ in range(CALLS):
            messages.append({"role": "user", "content": _TALK})
            began = time.perf_counter()
            body = {"model": "m", "messages": messages}
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            async with session.post(url, json=body, headers=headers) as response:
                answer = await response.json()
            took.append(time.perf_counter() - began)
            if response.status != 200 or answer["choices"][0]["message"]["content"] != _ANSWER:
                wrong += 1
            messages.append({"role": "assistant", "content": _ANSWER})

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(agent(session, port) for port in ports))
    print(json.dumps([wrong, took]))


async def attack(port: int) -> None:
    """One attacker, until it is killed."""
    os.nice(5)
    url, key = f"http://127.0.0.1:{port}/v1", {"x-api-key": f"sk-{port}"}
    long = {"messages": [{"role": "user", "content": "ls -la " * (most_chars(CONTEXT) // 7 - 9)}]}
    most = 2 * most_chars(CONTEXT)
    lists = b'{"input":[{"x":[' + b"[]," * (most // 3 - 9) + b"[]]}]}"
    deep = b'{"messages":' + b"[" * 5000 + b"]" * 5000 + b"}"
    said = {"role": "user", "content": "a"}
    nests = most_nests(most) - 9
    many = {"messages": [said] * nests}
    hosted, own = {"type": "web_search_1"}, {"name": "a", "input_schema": None}
    tools = {"messages": [said], "tools": [hosted, own] * (nests // 2)}
    called = {"type": "function_call", "call_id": "", "name": "", "arguments": ""}
    quoted = b'{"messages":[' + b'"{",' * (most // 4 - 9) + b'""]}'
    bodies: list[tuple[str, bytes, dict[str, str]]] = [
        ("messages/count_tokens", json.dumps(long).encode(), key),
        ("messages", b" " * (most + 1), key),
        ("messages/count_tokens", json.dumps(many).encode(), key),
        ("messages/count_tokens", json.dumps(tools).encode(), key),
        ("responses", json.dumps({"input": [called] * nests}).encode(), key),
        ("responses", lists, key),
        ("chat/completions", quoted, key),
        ("chat/completions", deep, key),
        ("chat/completions", deep, {"x-api-key": "none"}),
    ]

    async def flood(session: aiohttp.ClientSession, path: str, body: bytes, by: Any) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.post(f"{url}/{path}", data=body, headers=by) as response:
                    await response.read()

    async def connect(begun: bytes) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(begun)
                await reader.read(1)
                writer.close()

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        floods = [flood(session, *each) for each in bodies for _ in range(4)]
        silent = [connect(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n") for _ in range(200)]
        await asyncio.gather(*floods, *silent, connect(b"\x16\x03\x01\r\n\r\n"))


async def _process(*arguments: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "tests.benchmarks.endpoint", *arguments)
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def _lag(found: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.01)
        found.append((time.perf_counter() - before - 0.01) * 1000)


async def _round(name: str, ports: list[int]) -> tuple[float, float, int]:
    lags: list[float] = []
    probe = asyncio.create_task(_lag(lags))
    output, _ = await (await _process("agents", *map(str, ports))).communicate()
    probe.cancel()
    wrong, took = json.loads(output)
    p95, lag = float(np.percentile(took, 95)), float(np.percentile(lags, 99))
    print(
        f"{name}: {len(took)} calls, {wrong} wrong; p50 {np.percentile(took, 50) * 1000:.0f} ms,"
        f" p95 {p95 * 1000:.0f} ms; loop late by p99 {lag:.0f} ms, at most {max(lags):.0f} ms",
        flush=True,
    )
    return p95, lag, wrong


async def main() -> int:
    turns, endpoint = LoopTurns(), ModelEndpoint()
    ports = []
    for seed in range(3 * HONEST + ATTACKERS):
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        ports.append(port := sock.getsockname()[1])
        endpoint.admit(f"sk-{port}", Trial(turns, seed % HONEST))
        await endpoint.listen(sock, f"sk-{port}")
    before, _, _ = await _round("alone", ports[:HONEST])
    attackers = [await _process("attack", str(port)) for port in ports[3 * HONEST :]]
    await asyncio.sleep(5)  # they are under way
    beside, lag, wrong = await _round("beside two attackers", ports[HONEST : 2 * HONEST])
    for each in attackers:
        each.kill()
        await each.wait()
    after, _, _ = await _round("alone again", ports[2 * HONEST : 3 * HONEST])
    alone = min(before, after)
    asleep = cast(AwakeLoop, asyncio.get_running_loop()).clock.asleep()
    print(
        f"p95 {beside / alone:.2f} times ({ALLOWED_RATIO:g}); taken for sleep: {asleep:.0f} s;"
        f" load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    await endpoint.close()
    bad = wrong or asleep or beside > ALLOWED_RATIO * alone or lag > ALLOWED_LAG_MS
    return int(bool(bad))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["agents", *given]:
            asyncio.run(agents([int(port) for port in given]))
        case ["attack", given]:
            asyncio.run(attack(int(given)))
        case _:
            with asyncio.Runner(loop_factory=AwakeLoop) as runner:
                sys.exit(runner.run(main()))
