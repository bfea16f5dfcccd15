"""Holding a trial whose sandbox has a lifetime of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tbtui.rollout import control
from tbtui.rollout.budget import Budget, Stopwatch
from tbtui.rollout.control import TimeLeft, TrialControl
from tbtui.rollout.keyboard import Keyboard
from tbtui.rollout.messages import ControlRefused, ControlVerb, FromWorker, PauseEntered, PauseLeft
from tests.rollout.scripted import eventually


class MortalSandbox:
    """`left` is what it says at each question, the last one again and again."""

    def __init__(self, *left: TimeLeft | None) -> None:
        self._left = list(left)
        self.asked = 0

    async def freeze(self) -> None:
        pass

    async def thaw(self) -> None:
        pass

    async def keep_alive(self) -> TimeLeft | None:
        self.asked += 1
        return self._left.pop(0) if len(self._left) > 1 else self._left[0]


class Held:
    """A trial's control, with an agent that stands at its turn boundary."""

    def __init__(self, sandbox: MortalSandbox) -> None:
        self.posted: list[FromWorker] = []
        self._news = asyncio.Event()
        self.control = TrialControl(
            *("t", self._post, Budget(60), Stopwatch()),
            Keyboard("t", self._post, lambda typed: None),
            lambda words, taken: None,
        )
        self.control.attach(sandbox)

    def _post(self, message: FromWorker) -> None:
        self.posted.append(message)
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    def refusals(self) -> list[str]:
        return [m.reason for m in self.posted if isinstance(m, ControlRefused)]


async def test_a_sandbox_that_can_be_extended_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_EXTEND_EVERY_SEC", 0.01)
    sandbox = MortalSandbox(TimeLeft(3600, secured=True))
    held = Held(sandbox)
    held.control.obey("pause")
    standing = asyncio.create_task(held.control.boundary())
    await eventually(lambda: sandbox.asked >= 4)
    assert not standing.done()
    held.control.obey("resume")
    await standing
    asked = sandbox.asked
    await asyncio.sleep(0.05)
    assert sandbox.asked == asked
    assert held.refusals() == []


@pytest.mark.parametrize("verb", ["pause", "freeze"])
async def test_too_little_left_is_a_refusal(verb: ControlVerb) -> None:
    held = Held(MortalSandbox(TimeLeft(42.4, secured=False, note="sandbox_timeout_secs")))
    held.control.obey(verb)
    await held.until(lambda: bool(held.refusals()))
    assert held.refusals() == [
        "its sandbox has 42 s left and can't be extended (sandbox_timeout_secs)"
    ]
    await held.control.boundary()  # goes on
    await held.control.settled()
    await held.control.thawed()


async def test_a_hold_ends_before_the_sandbox_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "MARGIN_SEC", 999.0)
    enough, little = TimeLeft(998.5, secured=False), TimeLeft(997.0, secured=False)
    held = Held(MortalSandbox(enough, little))
    held.control.obey("pause")
    await held.control.boundary()
    assert [type(m) for m in held.posted if isinstance(m, PauseEntered | PauseLeft)] == [
        PauseEntered,
        PauseLeft,
    ]
    assert held.refusals() == ["resumed: its sandbox has 997 s left and can't be extended"]
    assert not any(m.past_holding for m in held.posted if isinstance(m, ControlRefused))


async def test_nothing_is_done_in_a_frozen_sandbox() -> None:
    held = Held(MortalSandbox(None))
    held.control.obey("freeze")
    await held.until(lambda: any(isinstance(m, PauseEntered) for m in held.posted))
    next_command = asyncio.create_task(held.control.thawed())
    await asyncio.sleep(0.05)
    assert not next_command.done()
    held.control.obey("resume")
    await next_command


async def test_one_without_a_lifetime_is_asked_once() -> None:
    sandbox = MortalSandbox(None)
    held = Held(sandbox)
    held.control.obey("freeze")
    await held.until(lambda: any(isinstance(m, PauseEntered) for m in held.posted))
    assert sandbox.asked == 1
    held.control.obey("stop")
    await held.control.settled()
    await held.control.thawed()
