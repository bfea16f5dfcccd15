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

What is wanted is one `Hold`, and what the trial has come to is another, which it reports.

A sandbox that has a lifetime of its own is kept alive while the trial is held. Where that can't be
done, a hold is refused when little is left, and ended before the sandbox is lost: the trial goes
on while it still can.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from tbtui.journal.events import TrialPhase
from tbtui.journal.hold import ENDED, FROZEN, PAUSED, RUNNING, Hold
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
        self._trial = trial
        self._post = post
        self._budget = budget
        self._watch = watch
        self.hold = RUNNING
        """What was reported last."""
        self._wanted = RUNNING
        self._changed = asyncio.Event()
        """Set when something else is wanted."""
        self._pauses = False
        """It is to be paused where it can't be frozen."""
        self._refusal = "it is being ended"
        """Why it can't be held, once it can't."""
        self.ending: FinishReason | None = None
        self.stopping = asyncio.Event()
        """Set together with `ending`."""
        self.cancelled = False
        self._sandbox: Sandbox | None = None
        """While the agent acts."""
        self._standing = False
        """The agent waits at a turn boundary."""
        self._stopped = False
        """The sandbox's processes are stopped."""
        self._stuck: str | None = None
        """Why they can't be continued."""
        self._phase: PhaseEntered | None = None
        self._freezing: asyncio.Task[None] | None = None
        """From a freeze to the end of its thaw."""
        self._keeping: asyncio.Task[None] | None = None

    # What the trial reports

    def attach(self, sandbox: Sandbox) -> None:
        """Begin to hold this sandbox: the agent acts in it now."""
        self._sandbox = sandbox

    async def detach(self) -> None:
        """The agent acts no more. Returns when nothing is frozen any more."""
        if self._wanted.frozen:
            self._want(self._unfrozen())
        await self.settled()
        self._sandbox = None

    def close(self, why: str) -> None:
        """Stop holding: the trial is over."""
        self._refusal = why
        self._want(ENDED)

    def enter(self, phase: TrialPhase, detail: str = "") -> None:
        """Say what the trial is doing; if it is frozen, as soon as it is not."""
        self._phase = PhaseEntered(self._trial, phase, detail)
        if not self.hold.frozen:
            self._post(self._phase)

    async def boundary(self) -> None:
        """Stand here while paused, with the clocks standing still.

        Raises:
            SandboxLostError: it can't be thawed.
        """
        if self._wanted.paused:
            self._standing = True
            self._hold_clocks()
            self._report()
            self._freeze()
            self._keep()
            try:
                while self._wanted.paused:
                    self._changed.clear()
                    await self._changed.wait()
                    await self._keyboard.typed_all()
                    await self.settled()
            finally:
                self._report()
                self._standing = False
                self._release_clocks()
        await self.thawed()

    async def thawed(self) -> None:
        """Wait here while frozen.

        Raises:
            SandboxLostError: it can't be thawed.
        """
        await self.settled()
        if self._stuck is not None:
            raise SandboxLostError(f"the sandbox does not go on after a freeze: {self._stuck}")

    async def settled(self) -> None:
        """Wait until the sandbox is thawed, or does not answer."""
        if self._freezing is not None:
            await asyncio.wait((self._freezing,))

    @property
    def taken(self) -> bool:
        """Whether a person may type now."""
        return bool(self.hold.typist and self._wanted.typist)

    # What people ask

    def obey(self, verb: ControlVerb, who: str = "") -> None:
        """Carry out a command; `who` gave it, which the recording notes."""
        match verb:
            case "stop":
                self._end("stopped")
            case "expire":
                self._end("deadline")
            case "cancel":
                self.cancelled = True
                self._want(ENDED)
            case _ if (wanted := self._wanted.after(verb, who)) is None:
                self._refuse(verb, self._refusal, past_holding=True)
            case _:
                if verb == "pause" or not self._wanted.frozen:
                    self._pauses = verb == "pause" or self._wanted.paused
                self._want(wanted)

    def _end(self, finish: FinishReason) -> None:
        if self._wanted == ENDED:
            return
        self.ending = finish
        self._want(ENDED)
        self.stopping.set()
        self._budget.interrupt()

    def _want(self, hold: Hold) -> None:
        """Bring about a hold, or the end of one."""
        self._wanted = hold
        self._changed.set()
        if hold == ENDED:
            self._keyboard.drop("it is being ended")
        if hold.paused:
            self._keep()
        elif self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None
        self._freeze()
        self._report()

    def _refuse(self, verb: ControlVerb, why: str, *, past_holding: bool = False) -> None:
        self._post(ControlRefused(self._trial, verb, why, past_holding))

    def _report(self) -> None:
        """Say what the trial has come to, if that is new."""
        hold = self._reached()
        if hold == self.hold:
            return
        typing = self._keyboard.typing
        if self.hold.typist and typing is not None and self._wanted != ENDED:
            # Keys that were typed before it is given back are in the terminal before that is said.
            typing.add_done_callback(lambda _: self._report())
            return
        before, self.hold = self.hold, hold
        if before.typist:
            self._mark("given back to the agent", False)
            self._post(GivenBack(self._trial))
            before = PAUSED
        if not hold.paused:
            self._post(PauseLeft(self._trial))
            if not self._standing and self._phase is not None:
                self._post(self._phase)
            return
        if not before.paused:
            self._post(PhaseEntered(self._trial, TrialPhase.PAUSED))
        if hold.frozen or before != PAUSED:
            self._post(PauseEntered(self._trial, frozen=hold.frozen))
        if hold.typist:
            self._mark(f"taken over by {hold.typist}", True)
            self._post(TakenOver(self._trial))

    def _reached(self) -> Hold:
        if self._stopped:
            return FROZEN
        if self._standing and self._wanted.paused:
            return PAUSED if self._wanted.frozen else self._wanted
        return RUNNING

    # The clocks

    def _hold_clocks(self) -> None:
        self._budget.hold()
        self._watch.hold()

    def _release_clocks(self) -> None:
        self._budget.release()
        self._watch.release()

    # The sandbox

    def _freeze(self) -> None:
        """Begin to freeze the sandbox, if that is wanted and not under way."""
        if not self._wanted.frozen or self._sandbox is None:
            return
        if self._freezing is None or self._freezing.done():
            self._hold_clocks()
            self._freezing = asyncio.create_task(
                self._hold_frozen(self._sandbox), name=f"{self._trial} freeze"
            )

    async def _hold_frozen(self, sandbox: Sandbox) -> None:
        while self._wanted.frozen:
            if (error := await _attempt(sandbox.freeze())) is not None:
                await _attempt(sandbox.thaw())  # some of them may have been stopped
                if self._wanted.frozen:
                    self._refuse("freeze", reason(error))
                    self._want(self._unfrozen())
                continue
            self._stopped = self._wanted.frozen
            self._report()
            while self._wanted.frozen:
                self._changed.clear()
                await self._changed.wait()
            await self._thaw(sandbox)
            self._stopped = False
            self._report()
        self._release_clocks()

    async def _thaw(self, sandbox: Sandbox) -> None:
        for _ in range(_THAW_ATTEMPTS):
            error = await _attempt(sandbox.thaw())
            if error is None:
                self._stuck = None
                break
            self._stuck = reason(error)
            _log.warning("%s: not thawed: %s", self._trial, self._stuck)

    def _unfrozen(self) -> Hold:
        """What is wanted of it where it can't be frozen."""
        return PAUSED if self._pauses else RUNNING

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
        wanted = self._wanted
        verb: ControlVerb = "freeze" if wanted.frozen else "take_over" if wanted.typist else "pause"
        note = f" ({left.note})" if left.note else ""
        has = f"its sandbox has {max(left.seconds, 0.0):.0f} s left and can't be extended{note}"
        self._refuse(verb, has if refused else f"resumed: {has}")
        self._keeping = None  # it is this task, which `_want` would cancel
        self._want(RUNNING)


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
