"""A vLLM server on the trainer's GPU sleeps while it trains: the stand-in server of `fake_vllm.py`,
which has vLLM's paths for that only if it is started as vLLM has to be, and fails what it is asked
asleep."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tbtui.policies.base import PolicyLostError
from tbtui.policies.torch.sleeping import Sleeper
from tbtui.policies.torch.vllm_environment import CUDA
from tbtui.policies.torch.vllm_sampler import VllmSampler, VllmSettings
from tests.policies.torch.fake_vllm import make_home
from tests.policies.torch.test_vllm_sampler import REQUEST, SETTINGS, adapter

pytestmark = pytest.mark.slow
ON_GPU = replace(SETTINGS, device="cuda")


class Bench:
    """A server, and what happened in order: its own words, and the trainer's memory given back."""

    def __init__(self, engine: VllmSampler, log: Path) -> None:
        self.engine = engine
        self._log = log
        self.released = 0
        self.sleeper = Sleeper(engine, self._release)

    async def _release(self) -> None:
        self.released += 1

    @property
    def said(self) -> list[str]:
        lines = self._log.read_text().splitlines()
        return [line for line in lines if line in ("asleep at level 1", "awake")]

    async def until_said(self, *lines: str) -> None:
        async with asyncio.timeout(10):
            while self.said != list(lines):  # noqa: ASYNC110 - another process says it
                await asyncio.sleep(0.01)


@asynccontextmanager
async def bench(tmp_path: Path, **changes: bool) -> AsyncIterator[Bench]:
    home = make_home(tmp_path / "home", build=CUDA)
    settings = replace(VllmSettings(home=home, sleeps=True), **changes)
    with (tmp_path / "log").open("wb") as log:
        engine = VllmSampler(ON_GPU, settings, log)
        try:
            await engine.start()
            yield Bench(engine, tmp_path / "log")
        finally:
            await engine.close()


async def test_it_sleeps_from_the_first_gradient_to_the_publication(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for _ in range(2):
            async with b.sleeper.training():
                pass
        await b.until_said("asleep at level 1")
        async with b.sleeper.drawing():
            await b.engine.publish(1, adapter(tmp_path / "weights", 11))
        await b.until_said("asleep at level 1", "awake")
        async with b.sleeper.drawing():
            assert (await b.engine.sample(REQUEST)).completion_ids[0] == 11
        assert b.released == 1


async def test_a_completion_waits_for_the_trainer_and_is_drawn_awake(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:

        async def draw() -> int:
            async with b.sleeper.drawing():
                return len((await b.engine.sample(REQUEST)).completion_ids)

        async with b.sleeper.training():
            drawing = asyncio.create_task(draw())
            await asyncio.sleep(0.2)
            assert not drawing.done()
        assert await drawing == 3
        assert b.said == ["asleep at level 1", "awake"]


async def test_it_does_not_sleep_while_something_is_drawn(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        async with b.sleeper.drawing(), b.sleeper.training():
            await b.engine.sample(REQUEST)
        assert b.said == []


async def test_a_server_that_may_not_sleep_is_never_asked_to(tmp_path: Path) -> None:
    async with bench(tmp_path, sleeps=False) as b:
        assert not b.engine.sleeps
        async with b.sleeper.training():
            await b.engine.sample(REQUEST)


async def test_one_that_can_not_is_trained_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without its development mode the server has no such path.
    async with bench(tmp_path, sleeps=False) as b:
        monkeypatch.setattr(VllmSampler, "sleeps", True)
        sleeper = Sleeper(b.engine, b._release)
        async with sleeper.training():
            await b.engine.sample(REQUEST)


async def test_one_that_does_not_wake_is_a_lost_policy(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        async with b.sleeper.training():
            pass
        await b.engine.close()
        with pytest.raises(PolicyLostError):
            async with b.sleeper.drawing():
                pass
