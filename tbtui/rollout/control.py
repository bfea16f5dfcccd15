"""Pauses, freezes and stops one trial, as people ask.

- `pause` holds the agent at its next turn boundary.
- `freeze` holds it where it is: the sandbox's processes are stopped, no key is sent and no screen
  is read, and the time budget and the waiting for commands stand still. An answer of the model
  that arrives meanwhile is kept and used afterwards. Before the agent acts there is nothing to
  hold yet: then the freeze takes effect at the first turn boundary. Verification and teardown are
  never held: that is refused.
- `resume` ends both. Pausing a frozen trial changes nothing; freezing a paused one stops its
  sandbox too.
- `take_over` pauses it, thawed, and lets a person type in its terminal once it stands at the turn
  boundary; `give_back` ends that and leaves it paused. `resume` and whatever ends the trial give
  it back too; the agent does not go on before every key is in the terminal.
- `stop` and `expire` end the agent's run at once, in the middle of a command too, and let the
  verifier judge. `cancel` ends the trial. Each thaws the sandbox first.

A sandbox that has a lifetime of its own is kept alive while the trial is held. Where that can't be
done, a hold is refused when little is left, and ended before the sandbox is lost: the trial goes
on while it still can.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tbtui.journal.events import TrialPhase
from tbtui.rollout.budget import Budget, Stopwatch
from tbtui.rollout.environments.base import SandboxLostError
from tbtui.rollout.keyboard import Keyboard
from tbtui.rollout.messages import (
    ControlRefused,
    ControlVerb,
    FinishReason,
    FromWorker,
    GivenBack,
    PauseEntered,
    PauseLeft,
    PhaseEntered,
    TakenOver,
)
from tbtui.terminal import reason

ANSWER_SEC = 30.0
"""How long a sandbox may take to freeze or to thaw."""
WORTH_SEC = 300.0
"""A hold is refused in a sandbox that can't be kept alive and has less than this left."""
MARGIN_SEC = 120.0
"""What a sandbox that can't be kept alive must have left for its trial when a hold is ended."""
_EXTEND_EVERY_SEC = 300.0
_THAW_ATTEMPTS = 3

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """How long a sandbox will still live."""

    seconds: float
    secured: bool
    """It was extended, or has long to go."""
    note: str = ""
    """What sets the lifetime, for a person."""


class Sandbox(Protocol):
    """A running sandbox, as far as holding its trial goes."""

    async def freeze(self) -> None:
        """Stop its processes. The message of an exception says in one line why it can't."""
        ...

    async def thaw(self) -> None: ...

    async def keep_alive(self) -> TimeLeft | None:
        """Ask for more time; None if it has no lifetime of its own."""
        ...


class TrialControl:
    """Asked at any time, by `obey`; the agent asks `boundary` and `thawed` whether to go on."""

    def __init__(
        self,
        trial: str,
        post: Callable[[FromWorker], None],
        budget: Budget,
        watch: Stopwatch,
        keyboard: Keyboard,
        mark: Callable[[str, bool], None],
    ) -> None:
        """`mark` is called when a person takes over (True) and gives back, with words for it."""
        self._keyboard = keyboard
        self._mark = mark
        self._typist = ""
        """Who has taken it over, or will have when it stands."""
        self._trial = trial
        self._post = post
        self._budget = budget
        self._watch = watch
        self._pausing = False
        self._freezing = False
        self._pauses_to_freeze = False
        """The pause was never asked for: it is where a freeze takes effect."""
        self.ending: FinishReason | None = None
        self.stopping = asyncio.Event()
        """Set together with `ending`."""
        self.cancelled = False
        self._sandbox: Sandbox | None = None
        """While the agent acts."""
        self._closed: str | None = None
        self._standing = False
        self._frozen = False
        self._stuck: str | None = None
        self._told: Literal["paused", "frozen", "taken"] | None = None
        self._phase: PhaseEntered | None = None
        self._released = asyncio.Event()
        self._released.set()
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._steering: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    # What the trial reports

    def attach(self, sandbox: Sandbox) -> None:
        """Begin to hold this sandbox: the agent acts in it now."""
        self._sandbox = sandbox

    async def detach(self) -> None:
        """The agent acts no more. Returns when nothing is frozen any more."""
        self._freezing = False
        self._steer()
        await self.settled()
        self._sandbox = None

    def close(self, why: str) -> None:
        """Stop holding: the trial is over."""
        self._closed = why
        if self._keeping is not None:
            self._keeping.cancel()

    def enter(self, phase: TrialPhase, detail: str = "") -> None:
        """Say what the trial is doing; if it is frozen, as soon as it is not."""
        self._phase = PhaseEntered(self._trial, phase, detail)
        if self._told != "frozen":
            self._post(self._phase)

    async def boundary(self) -> None:
        """Stand here while paused, with the clocks standing still.

        Raises:
            SandboxLostError: it can't be thawed.
        """
        if self._pausing and self.ending is None:
            self._standing = True
            self._hold_clocks()
            self._tell()
            if self._freezing:
                self._hold_turn()
                self._steer()
            self._keep()
            try:
                while not self._released.is_set():
                    await self._released.wait()
                    await self._keyboard.typed_all()
            finally:
                self._tell()
                self._standing = False
                self._release_clocks()
        await self.thawed()

    async def thawed(self) -> None:
        """Wait here while frozen.

        Raises:
            SandboxLostError: it can't be thawed.
        """
        await self._thawed.wait()
        if self._stuck is not None:
            raise SandboxLostError(f"the sandbox does not go on after a freeze: {self._stuck}")

    async def settled(self) -> None:
        """Wait until the sandbox is in the wanted state, or does not answer."""
        if self._steering is not None:
            await asyncio.wait((self._steering,))

    # What people ask

    def obey(self, verb: ControlVerb, who: str = "") -> None:
        """Carry out a command; `who` gave it, which the recording notes."""
        match verb:
            case "take_over":
                self._take_over(who)
            case "give_back":
                self._typist = ""
                self._tell()
            case "pause":
                self._pause()
            case "freeze":
                self._freeze()
            case "resume":
                self._resume()
            case "stop":
                self._end("stopped")
            case "expire":
                self._end("deadline")
            case "cancel":
                self.cancelled = True
                self._keyboard.drop("it is being ended")
                self._resume()

    def _pause(self) -> None:
        if (refusal := self._no_hold()) is not None:
            self._refuse("pause", refusal, past_holding=True)
            return
        self._pausing = True
        self._pauses_to_freeze = False
        self._released.clear()
        self._keep()

    def _freeze(self) -> None:
        if (refusal := self._no_hold()) is not None:
            self._refuse("freeze", refusal, past_holding=True)
            return
        if self._freezing:
            return
        self._freezing = True
        if self._sandbox is None:
            self._pauses_to_freeze = not self._pausing
            self._pausing = True
            self._released.clear()
            return
        self._hold_turn()
        self._steer()
        self._keep()

    @property
    def held(self) -> bool:
        """Whether it stands, paused, frozen or taken over."""
        return self._told is not None

    @property
    def taken(self) -> bool:
        """Whether a person may type now."""
        return self._told == "taken" and bool(self._typist)

    def _take_over(self, who: str) -> None:
        if (refusal := self._no_hold()) is not None:
            self._refuse("take_over", refusal, past_holding=True)
            return
        self._typist = who
        self._pausing = True
        self._freezing = self._pauses_to_freeze = False
        self._released.clear()
        self._steer()
        self._keep()
        self._tell()

    def _resume(self) -> None:
        self._typist = ""
        self._pausing = self._freezing = self._pauses_to_freeze = False
        self._released.set()
        if self._keeping is not None:
            self._keeping.cancel()
        self._steer()

    def _end(self, finish: FinishReason) -> None:
        if self.ending is not None or self._closed is not None:
            return
        self.ending = finish
        self._keyboard.drop("it is being ended")
        self._resume()
        self.stopping.set()
        self._budget.interrupt()

    def _no_hold(self) -> str | None:
        if self._closed is not None:
            return self._closed
        return "it is being ended" if self.ending is not None or self.cancelled else None

    def _refuse(self, verb: ControlVerb, why: str, *, past_holding: bool = False) -> None:
        self._post(ControlRefused(self._trial, verb, why, past_holding))

    # The clocks

    def _hold_clocks(self) -> None:
        self._budget.hold()
        self._watch.hold()

    def _release_clocks(self) -> None:
        self._budget.release()
        self._watch.release()

    def _hold_turn(self) -> None:
        if self._thawed.is_set():
            self._thawed.clear()
            self._hold_clocks()

    def _release_turn(self) -> None:
        if not self._thawed.is_set():
            self._thawed.set()
            self._release_clocks()

    # The sandbox

    def _steer(self) -> None:
        """See to it that the sandbox is as it should be."""
        if self._thawed.is_set() and not self._frozen:
            return
        if self._steering is None or self._steering.done():
            self._steering = asyncio.create_task(self._bring_about(), name=f"{self._trial} freeze")

    async def _bring_about(self) -> None:
        while self._sandbox is not None and self._freezing != self._frozen:
            if self._freezing:
                await self._stop_processes(self._sandbox)
            else:
                await self._continue_processes(self._sandbox)
            self._tell()
        if not self._freezing:
            self._release_turn()

    async def _stop_processes(self, sandbox: Sandbox) -> None:
        error = await _attempt(sandbox.freeze())
        if error is None:
            self._frozen = True
            return
        await _attempt(sandbox.thaw())  # some of them may have been stopped
        if self._freezing:
            self._freezing = False
            if self._pauses_to_freeze:
                self._resume()
            self._refuse("freeze", reason(error))

    async def _continue_processes(self, sandbox: Sandbox) -> None:
        for _ in range(_THAW_ATTEMPTS):
            error = await _attempt(sandbox.thaw())
            if error is None:
                self._stuck = None
                break
            self._stuck = reason(error)
            _log.warning("%s: not thawed: %s", self._trial, self._stuck)
        self._frozen = False

    def _tell(self) -> None:
        state: Literal["paused", "frozen", "taken"] | None = None
        if self._frozen and self._freezing:
            state = "frozen"
        elif self._standing and self._pausing:
            state = "taken" if self._typist else "paused"
        if state == self._told:
            return
        typing = self._keyboard.typing
        if self._told == "taken" and typing is not None and self._no_hold() is None:
            # Keys that were typed before it is given back are in the terminal before that is said.
            typing.add_done_callback(lambda _: self._tell())
            return
        before, self._told = self._told, state
        if before == "taken":
            self._mark("given back to the agent", False)
            self._post(GivenBack(self._trial))
            before = "paused"
        if state is None:
            self._post(PauseLeft(self._trial))
            if not self._standing and self._phase is not None:
                self._post(self._phase)
            return
        if before is None:
            self._post(PhaseEntered(self._trial, TrialPhase.PAUSED))
        if state == "frozen" or before != "paused":
            self._post(PauseEntered(self._trial, frozen=state == "frozen"))
        if state == "taken":
            self._mark(f"taken over by {self._typist}", True)
            self._post(TakenOver(self._trial))

    # Its lifetime

    def _keep(self) -> None:
        if self._sandbox is not None and (self._keeping is None or self._keeping.done()):
            self._keeping = asyncio.create_task(
                self._keep_alive(self._sandbox), name=f"{self._trial} lifetime"
            )

    async def _keep_alive(self, sandbox: Sandbox) -> None:
        least = WORTH_SEC
        while (left := await sandbox.keep_alive()) is not None:
            if left.secured:
                await asyncio.sleep(min(left.seconds / 2, _EXTEND_EVERY_SEC))
                continue
            if left.seconds < least:
                self._give_up(left, refused=least == WORTH_SEC)
                return
            least = MARGIN_SEC
            await asyncio.sleep(max(left.seconds - MARGIN_SEC, 0.0) + 1.0)

    def _give_up(self, left: TimeLeft, *, refused: bool) -> None:
        verb: ControlVerb = "freeze" if self._freezing else "pause"
        note = f" ({left.note})" if left.note else ""
        has = f"its sandbox has {max(left.seconds, 0.0):.0f} s left and can't be extended{note}"
        self._refuse(verb, has if refused else f"resumed: {has}")
        self._keeping = None  # it is this task, which `_resume` would cancel
        self._resume()


async def _attempt(operation: Coroutine[Any, Any, None]) -> Exception | None:
    """What went wrong. An operation that does not even react to being cancelled is left behind."""
    task = asyncio.ensure_future(operation)
    done, _ = await asyncio.wait((task,), timeout=ANSWER_SEC)
    if not done:
        task.cancel()
        return TimeoutError(f"the sandbox did not answer within {ANSWER_SEC:g} s")
    if task.cancelled():
        return RuntimeError("it was cancelled")
    error = task.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return error
