"""Types a person's keys into a trial's terminal: in order, bounded, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from tbtui.journal.commands import Typed
from tbtui.rollout.messages import FromWorker, KeysTyped, TypeKeys
from tbtui.terminal import one_line

ANSWER_SEC = 10.0
"""How long the terminal may take for one key or paste, in wall time: the trial's clocks stand."""
MAX_WAITING = 1000
"""Commands that wait for their turn, of at most `journal.commands.MAX_TYPED_BYTES` each."""

_log = logging.getLogger(__name__)


class Terminal(Protocol):
    """A terminal that takes keys."""

    def type(self, part: Typed) -> Coroutine[Any, Any, None]:
        """Type into it. Raises `RuntimeError`: tmux refuses, or the sandbox is lost."""
        ...


class Keyboard:
    """One trial's keys. Nothing is typed before `attach`."""

    def __init__(
        self, trial: str, post: Callable[[FromWorker], None], record: Callable[[Typed], None]
    ) -> None:
        """`record` is called with each part just before it is sent."""
        self._trial = trial
        self._post = post
        self._record = record
        self._terminal: Terminal | None = None
        self._waiting: deque[TypeKeys] = deque()
        self._typing: asyncio.Task[None] | None = None
        self.used = False
        """Something may have been typed."""
        self.news = False
        """Something was typed that the agent has not seen."""
        self._typed: list[Typed] = []

    @property
    def attached(self) -> bool:
        return self._terminal is not None

    def attach(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def take_typed(self) -> tuple[Typed, ...]:
        """What was typed since the last call."""
        typed, self._typed = tuple(self._typed), []
        return typed

    def type(self, message: TypeKeys) -> None:
        """Send it when all before it is sent. Returns at once; `KeysTyped` reports the rest."""
        if len(self._waiting) >= MAX_WAITING:
            self.refuse(message, f"the terminal is behind: {MAX_WAITING} commands wait for it")
            return
        self._waiting.append(message)
        if self.typing is None:
            self._typing = asyncio.create_task(self._type_all(), name=f"{self._trial} keys")

    def refuse(self, message: TypeKeys, why: str) -> None:
        self._post(KeysTyped(self._trial, message.command, (), why))

    def drop(self, why: str) -> None:
        """Discard what is not typed yet."""
        while self._waiting:
            self.refuse(self._waiting.popleft(), why)

    @property
    def typing(self) -> asyncio.Task[None] | None:
        """The task that types what waits; None: nothing waits."""
        return None if self._typing is None or self._typing.done() else self._typing

    async def typed_all(self) -> None:
        """Wait until nothing waits any more. Bounded, as each part is."""
        if (typing := self.typing) is not None:
            await asyncio.wait((typing,))

    async def _type_all(self) -> None:
        while self._waiting:
            message = self._waiting.popleft()
            typed: list[Typed] = []
            error = ""
            for part in message.parts:
                if error := await self._type(part):
                    break
                typed.append(part)
            self._post(KeysTyped(self._trial, message.command, tuple(typed), error))

    async def _type(self, part: Typed) -> str:
        """What went wrong, in one line; empty: nothing."""
        if self._terminal is None:
            return "its agent has no terminal"
        self.used = self.news = True
        self._record(part)
        sending = asyncio.ensure_future(self._terminal.type(part))
        # Not `asyncio.timeout`: a call that hangs may not even react to being cancelled.
        done, _ = await asyncio.wait((sending,), timeout=ANSWER_SEC)
        if not done:
            sending.cancel()
            return f"the terminal did not answer within {ANSWER_SEC:g} s"
        try:
            sending.result()
        except (RuntimeError, OSError) as error:
            _log.info("%s: not typed: %s", self._trial, error)
            return one_line(str(error))
        self._typed.append(part)
        return ""
