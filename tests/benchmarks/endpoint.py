"""What the model endpoint costs a call, and what a flood on one trial's secret costs another trial.

    uv run python -m tests.benchmarks.endpoint [ROUNDS]

The sampler stands in for a model: it answers after 0.2 to 0.6 s whatever is asked, drawn from the
request's seed and so the same both ways. Agents are processes of their own, as in trials. `direct`
asks the conversation in this process; `wire` asks it through HTTP. Rounds of both take turns, so
that the machine's other work falls on both alike; the processor time is this process's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import aiohttp
import numpy as np

from tbtui.chat import Message
from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall
from tbtui.endpoint.server import ModelEndpoint
from tbtui.engines.grpo.sampling import Conversation, LoopTurns, SamplingLimits
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import Policy, Sample, SampleRequest
from tbtui.policies.local.renderer import EmbeddedRenderer
from tbtui.rollout.messages import SampleWanted

AT_ONCE = 32
CALLS = 8
"""Each trial's, in a round."""
FLOOD = 1000
ALLOWED_MS = 5.0
ALLOWED_RATIO = 2.0
_SAMPLING_SEC = 0.2, 0.6
_CLIENTS = 4
"""Processes that the agents share."""
_TALK = "root@box:/app# ls -la\ntotal 4\ndrwxr-xr-x 2 root root 4096 .\n" * 20


class _NoJournal:
    def append(self, event: object) -> int:
        return 0

    def add_sample(self, record: object) -> int:
        return 0


class _Policy:
    renderer = EmbeddedRenderer()

    async def sample(self, request: SampleRequest) -> Sample:
        await asyncio.sleep(random.Random(request.seed).uniform(*_SAMPLING_SEC))
        ids = tuple(self.renderer.tokenizer.encode("I look at the files of the folder first.")[:40])
        return Sample(ids, np.zeros(len(ids), np.float32), "stop", 0)


@dataclass
class Trial:
    """A conversation; implements `tbtui.endpoint.calls.CallHandler`."""

    turns: LoopTurns
    seed: int = 1
    model: str = "policy"
    number: int = 0
    policy: _Policy = field(default_factory=_Policy)

    def __post_init__(self) -> None:
        self.talk = Conversation(
            "t",
            self.seed,
            1.0,
            SamplingLimits(1_000_000, 400),
            cast(Policy, self.policy),
            cast(JournalWriter, _NoJournal()),
            self.turns,
        )

    async def ask(self, messages: tuple[Message, ...]) -> str:
        self.number += 1
        wanted = SampleWanted(self.number, "t", self.number, messages)
        return (await self.talk.answer(wanted, self.policy.sample)).text

    async def answer(self, call: ModelCall) -> ModelAnswer:
        return ModelAnswer(await self.ask(call.messages))

    async def count_tokens(self, call: ModelCall) -> int:
        return 0

    def abandoned(self, call: ModelCall) -> None:
        pass

    def refused(self, api: Api, refusal: CallRefused) -> None:
        pass


Ask = Callable[[list[dict[str, str]]], Awaitable[str]]


async def conversation(ask: Ask, calls: int) -> list[float]:
    """Seconds of each call of an agent that goes on from every answer."""
    messages: list[dict[str, str]] = []
    took = []
    for _ in range(calls):
        messages.append({"role": "user", "content": _TALK})
        began = time.perf_counter()
        messages.append({"role": "assistant", "content": await ask(messages)})
        took.append(time.perf_counter() - began)
    return took


def over_http(session: aiohttp.ClientSession, url: str, secret: str) -> Ask:
    async def ask(messages: list[dict[str, str]]) -> str:
        body = {"model": "m", "messages": messages}
        headers = {"Authorization": f"Bearer {secret}"}
        async with session.post(f"{url}/chat/completions", json=body, headers=headers) as response:
            answer = await response.json()
            response.raise_for_status()
            return str(answer["choices"][0]["message"]["content"])

    return ask


async def client(url: str, secrets: list[str], calls: int) -> None:
    """The agents' process: prints the seconds of all calls of all trials."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        asks = [over_http(session, url, secret) for secret in secrets]
        took = await asyncio.gather(*(conversation(ask, calls) for ask in asks))
    print(json.dumps([each for trial in took for each in trial]))


async def flood(url: str, secret: str) -> None:
    """The flooding agent's process: prints how its requests ended."""
    ended: dict[int, int] = {}

    async def request(session: aiohttp.ClientSession) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": _TALK}]}
        headers = {"Authorization": f"Bearer {secret}"}
        async with session.post(f"{url}/chat/completions", json=body, headers=headers) as response:
            await response.read()
            ended[response.status] = ended.get(response.status, 0) + 1

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(request(session) for _ in range(FLOOD)))
    print(json.dumps(ended))


async def process(*arguments: str) -> Any:
    command = (sys.executable, "-m", "tests.benchmarks.endpoint", *arguments)
    started = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await started.communicate()
    return json.loads(output)


async def direct(turns: LoopTurns) -> list[float]:
    def asking(trial: Trial) -> Ask:
        async def ask(messages: list[dict[str, str]]) -> str:
            return await trial.ask(tuple(Message(**cast(Any, each)) for each in messages))

        return ask

    trials = [asking(Trial(turns, seed)) for seed in range(AT_ONCE)]
    took = await asyncio.gather(*(conversation(ask, CALLS) for ask in trials))
    return [each for trial in took for each in trial]


async def main(rounds: int) -> int:
    turns = LoopTurns()
    endpoint = ModelEndpoint()
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    await endpoint.listen(sock)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}/v1"
    extra = []
    for number in range(rounds):
        secrets = [f"sk-{number}-{index}" for index in range(AT_ONCE)]
        for seed, secret in enumerate(secrets):
            endpoint.admit(secret, Trial(turns, seed))
        cpu = [time.process_time()]
        alone = statistics.fmean(await direct(turns))
        cpu.append(time.process_time())
        parts = [secrets[part::_CLIENTS] for part in range(_CLIENTS)]
        took = await asyncio.gather(*(process("client", url, str(CALLS), *p) for p in parts))
        wire = statistics.fmean(each for part in took for each in part)
        cpu.append(time.process_time())
        extra.append((wire - alone) * 1000)
        ours, wires = ((b - a) * 1000 / (AT_ONCE * CALLS) for a, b in pairwise(cpu))
        print(
            f"{AT_ONCE} at once: direct {alone * 1000:.1f} ms ({ours:.2f} of it processor time),"
            f" wire {wire * 1000:.1f} ms ({wires:.2f}) a call"
        )
    overhead = statistics.median(extra)
    print(f"overhead of the wire: {overhead:.2f} ms a call (median of {rounds}; {ALLOWED_MS:g})")

    ratios = []
    for _ in range(rounds):
        endpoint.admit("sk-flood", Trial(turns))
        endpoint.admit("sk-other", Trial(turns))
        before = statistics.fmean(await process("client", url, "12", "sk-other"))
        endpoint.admit("sk-other", Trial(turns))
        flooding = asyncio.create_task(process("flood", url, "sk-flood"))
        during = statistics.fmean(await process("client", url, "12", "sk-other"))
        ended = await flooding
        ratios.append(during / before)
        print(
            f"another trial: {before * 1000:.1f} ms a call, {during * 1000:.1f} ms during a flood"
            f" of {FLOOD} (statuses {ended})"
        )
    ratio = statistics.median(ratios)
    print(f"a flood slows another trial {ratio:.2f} times (median of {rounds}; {ALLOWED_RATIO:g})")
    await endpoint.close()
    return int(overhead > ALLOWED_MS or ratio > ALLOWED_RATIO)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["client", url, calls, *secrets]:
            asyncio.run(client(url, secrets, int(calls)))
        case ["flood", url, secret]:
            asyncio.run(flood(url, secret))
        case rest:
            sys.exit(asyncio.run(main(int(rest[0]) if rest else 5)))
