"""Keys on their way into the terminal when a trial is given back."""

from __future__ import annotations

import asyncio

from tbtui.journal.commands import Typed
from tbtui.rollout.budget import Budget, Stopwatch
from tbtui.rollout.control import TrialControl
from tbtui.rollout.keyboard import Keyboard
from tbtui.rollout.messages import FromWorker, GivenBack, KeysTyped, TakenOver, TypeKeys
from tests.rollout.scripted import eventually


class SlowTerminal:
    """Takes a key when it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()

    async def type(self, part: Typed) -> None:
        await self.may.wait()


class Taken:
    """A trial that stands, with what became of it so far."""

    def __init__(self) -> None:
        self.posted: list[FromWorker] = []
        self.recorded: list[str] = []
        self.terminal = SlowTerminal()
        self.keyboard = Keyboard("t", self.posted.append, lambda part: self.recorded.append("key"))
        self.keyboard.attach(self.terminal)
        self.control = TrialControl(
            *("t", self.posted.append, Budget(60), Stopwatch(), self.keyboard),
            lambda words, taken: self.recorded.append(words),
        )
        self.control.obey("take_over", "ada")
        self.standing = asyncio.create_task(self.control.boundary())

    def told(self) -> list[str]:
        kinds = (TakenOver, KeysTyped, GivenBack)
        return [type(m).__name__ for m in self.posted if isinstance(m, kinds)]

    async def type_two(self) -> None:
        await eventually(lambda: self.control.taken)
        for command in ("1", "2"):
            self.keyboard.type(TypeKeys("t", command, (Typed("text", "a"),)))
        await eventually(lambda: "key" in self.recorded)


async def test_keys_typed_before_come_before() -> None:
    trial = Taken()
    await trial.type_two()
    trial.control.obey("give_back")
    assert not trial.control.taken  # no more keys
    trial.terminal.may.set()
    await eventually(lambda: "GivenBack" in trial.told())
    assert trial.told() == ["TakenOver", "KeysTyped", "KeysTyped", "GivenBack"]
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
    assert trial.told() == ["TakenOver", "KeysTyped", "GivenBack"]
    trial.terminal.may.set()
    await trial.keyboard.typed_all()
    assert trial.told() == ["TakenOver", "KeysTyped", "GivenBack", "KeysTyped"]
