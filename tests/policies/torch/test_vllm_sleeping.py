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
import pytest_asyncio

from tbtui.policies.base import PolicyLostError
from tbtui.policies.torch.sleeping import Sleeper
from tbtui.policies.torch.vllm_environment import CUDA
from tbtui.policies.torch.vllm_sampler import VllmSampler, VllmSettings
from tests.policies.torch.fake_vllm import make_home
from tests.policies.torch.test_vllm_sampler import REQUEST, SETTINGS, adapter
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]
ON_GPU = replace(SETTINGS, device="cuda")


class Bench:
    """A server, and what happened in order: its own words, and the trainer's memory given back."""

    def __init__(self, engine: VllmSampler, log: Path) -> None:
        self.engine = engine
        self._log = log
        self._begun = len(self._lines())
        self.released = 0
        self.sleeper = Sleeper(engine, self._release)

    async def _release(self) -> None:
        self.released += 1

    def _lines(self) -> list[str]:
        lines = self._log.read_text().splitlines()
        return [line for line in lines if line in ("asleep at level 1", "awake")]

    @property
    def said(self) -> list[str]:
        return self._lines()[self._begun :]

    async def until_said(self, *lines: str) -> None:
        await until(lambda: self.said == list(lines))


@asynccontextmanager
async def serving(directory: Path, *, sleeps: bool) -> AsyncIterator[tuple[VllmSampler, Path]]:
    """A server on a GPU, and its log."""
    home = make_home(directory / "home", build=CUDA)
    with (directory / "log").open("wb") as log:
        engine = VllmSampler(ON_GPU, VllmSettings(home=home, sleeps=sleeps), log)
        try:
            await engine.start()
            yield engine, directory / "log"
        finally:
            await engine.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sleepy(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[VllmSampler, Path]]:
    async with serving(tmp_path_factory.mktemp("sleepy"), sleeps=True) as served:
        yield served


@pytest.fixture
def b(sleepy: tuple[VllmSampler, Path]) -> Bench:
    return Bench(*sleepy)


async def test_it_sleeps_from_the_first_gradient_to_the_publication(
    b: Bench, tmp_path: Path
) -> None:
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


async def test_a_completion_waits_for_the_trainer_and_is_drawn_awake(b: Bench) -> None:
    async def draw() -> int:
        async with b.sleeper.drawing():
            return len((await b.engine.sample(REQUEST)).completion_ids)

    async with b.sleeper.training():
        drawing = asyncio.create_task(draw())
        await asyncio.sleep(0.2)
        assert not drawing.done()
    assert await drawing == 3
    assert b.said == ["asleep at level 1", "awake"]


async def test_it_does_not_sleep_while_something_is_drawn(b: Bench) -> None:
    async with b.sleeper.drawing(), b.sleeper.training():
        await b.engine.sample(REQUEST)
    assert b.said == []


async def test_one_that_may_not_or_can_not_sleep_is_trained_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, sleeps=False) as served:
        b = Bench(*served)
        assert not b.engine.sleeps
        async with b.sleeper.training():
            await b.engine.sample(REQUEST)
        # Without its development mode the server has no such path.
        monkeypatch.setattr(VllmSampler, "sleeps", True)
        async with Bench(*served).sleeper.training():
            await b.engine.sample(REQUEST)


async def test_one_that_does_not_wake_is_a_lost_policy(tmp_path: Path) -> None:
    async with serving(tmp_path, sleeps=True) as served:
        b = Bench(*served)
        async with b.sleeper.training():
            pass
        await b.engine.close()
        with pytest.raises(PolicyLostError):
            async with b.sleeper.drawing():
                pass
