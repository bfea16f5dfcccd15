"""Holding a trial: what is reported, whose keys are typed, and how long its sandbox lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tbtui.journal.commands import Typed
from tbtui.rollout import control
from tbtui.rollout.budget import Budget, Stopwatch
from tbtui.rollout.control import TimeLeft, TrialControl
from tbtui.rollout.keyboard import Keyboard
from tbtui.rollout.messages import (
    ControlRefused,
    ControlVerb,
    FromWorker,
    GivenBack,
    KeysTyped,
    PauseEntered,
    PauseLeft,
    TakenOver,
    TypeKeys,
)
from tests.waiting import until

HASTY: tuple[ControlVerb, ...] = ("resume", "pause")


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
    """A trial's control, with what it has posted and recorded."""

    def __init__(self, sandbox: MortalSandbox) -> None:
        self.posted: list[FromWorker] = []
        self.recorded: list[str] = []
        self._news = asyncio.Event()
        self.keyboard = Keyboard("t", self._post, lambda part: self.recorded.append("key"))
        self.control = TrialControl(
            *("t", self._post, Budget(60), Stopwatch(), self.keyboard),
            lambda words, taken: self.recorded.append(words),
        )
        self.control.attach(sandbox)

    def _post(self, message: FromWorker) -> None:
        self.posted.append(message)
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._news.clear()
            await self._news.wait()

    def told(self, *kinds: type[FromWorker]) -> list[type[FromWorker]]:
        return [type(m) for m in self.posted if isinstance(m, kinds or (PauseEntered, PauseLeft))]

    def refusals(self) -> list[str]:
        return [m.reason for m in self.posted if isinstance(m, ControlRefused)]


async def test_a_sandbox_that_can_be_extended_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_EXTEND_EVERY_SEC", 0.01)
    sandbox = MortalSandbox(TimeLeft(3600, secured=True))
    held = Held(sandbox)
    held.control.obey("pause")
    standing = asyncio.create_task(held.control.boundary())
    await until(lambda: sandbox.asked >= 1)
    for verb in HASTY:
        held.control.obey(verb)
    asked = sandbox.asked
    await until(lambda: sandbox.asked >= asked + 3)
    assert not standing.done()
    held.control.obey("resume")
    await standing
    asked = sandbox.asked
    await asyncio.sleep(0.05)
    assert sandbox.asked == asked
    assert held.refusals() == []


async def test_what_is_asked_at_once_is_all_reported() -> None:
    held = Held(MortalSandbox(None))
    held.control.obey("pause")
    standing = asyncio.create_task(held.control.boundary())
    await held.until(lambda: bool(held.told()))
    for verb in (*HASTY, "resume"):
        held.control.obey(verb)
    await standing
    assert held.told() == [PauseEntered, PauseLeft] * 2


@pytest.mark.parametrize("verb", ["pause", "freeze", "take_over"])
async def test_too_little_left_is_a_refusal(verb: ControlVerb) -> None:
    held = Held(MortalSandbox(TimeLeft(42.4, secured=False, note="sandbox_timeout_secs")))
    held.control.obey(verb, "ada")
    await held.until(lambda: bool(held.refusals()))
    assert [m.verb for m in held.posted if isinstance(m, ControlRefused)] == [verb]
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
    assert held.told() == [PauseEntered, PauseLeft]
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


TYPING = (TakenOver, KeysTyped, GivenBack)


class Taken(Held):
    """A trial that stands, in whose terminal a key may take a while."""

    def __init__(self) -> None:
        super().__init__(MortalSandbox(None))
        self.may_type = asyncio.Event()
        self.keyboard.attach(self)
        self.control.obey("take_over", "ada")
        self.standing = asyncio.create_task(self.control.boundary())

    async def type(self, part: Typed) -> None:
        await self.may_type.wait()

    async def type_two(self) -> None:
        await self.until(lambda: self.control.taken)
        for command in ("1", "2"):
            self.keyboard.type(TypeKeys("t", command, (Typed("text", "a"),)))
        await until(lambda: "key" in self.recorded)


async def test_keys_typed_before_come_before() -> None:
    trial = Taken()
    await trial.type_two()
    trial.control.obey("give_back")
    assert not trial.control.taken  # no more keys
    trial.may_type.set()
    await until(lambda: GivenBack in trial.told(*TYPING))
    assert trial.told(*TYPING) == [TakenOver, KeysTyped, KeysTyped, GivenBack]
    assert trial.recorded == ["taken over by ada", "key", "key", "given back to the agent"]
    assert not trial.standing.done()
    trial.control.obey("resume")
    await trial.standing


async def test_a_trial_that_is_ended_waits_for_no_key() -> None:
    trial = Taken()
    await trial.type_two()
    trial.control.obey("stop")
    trial.standing.cancel()
    await asyncio.wait((trial.standing,))
    # The second was never sent, and the first is being sent.
    assert trial.told(*TYPING) == [TakenOver, KeysTyped, GivenBack]
    trial.may_type.set()
    await trial.keyboard.typed_all()
    assert trial.told(*TYPING) == [TakenOver, KeysTyped, GivenBack, KeysTyped]
