"""Brings a fresh terminal to where another trial stood, by typing that trial's keys again.

Each turn's keys are sent with the waits that the agent gave them, and the screen is compared with
the recorded one (`screens.py`). A machine that is slower now gets some time more to show the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tbtui.journal.commands import Typed
from tbtui.journal.events import AgentCommand
from tbtui.rollout.forking import ForkPartedError, ForkPoint, ForkReport, RecordedTurn
from tbtui.rollout.link import TrialLink
from tbtui.rollout.screens import difference, shown_of
from tbtui.rollout.session import GatedSession

TYPED_MEANWHILE = "Since then a person has typed in this terminal."
SETTLE_SEC = 0.3
"""What the terminal has to show what a person's last key did."""
_LATE_SEC = 2.0
_LOOK_SEC = 0.05

Execute = Callable[[Sequence[AgentCommand]], Awaitable[str]]
"""Sends the commands as the agent does; what it would be shown of the terminal."""


class Reexecution:
    """Types the shared turns of a fork again, turn after turn."""

    def __init__(
        self,
        link: TrialLink,
        session: GatedSession,
        execute: Execute,
        look: Callable[[], Awaitable[str]],
    ) -> None:
        """`look`: what is new in the terminal, as the agent would be shown it."""
        self._link = link
        self._session = session
        self._execute = execute
        self._look = look

    async def run(self, origin: ForkPoint, report: ForkReport, first_prompt: str) -> ForkReport:
        """Type the turns after the one that `report` has restored; returns how that went.

        Args:
            first_prompt: what the agent would be asked first in this terminal.

        Raises:
            ForkPartedError: a screen differs, and the fork is not to go on all the same.
            AgentEnded: a person ended it.
        """
        done = report.snapshot_turn - 1 if report.snapshot_turn else 0
        if report.parted and not origin.go_on:
            raise ForkPartedError(
                f"the restored terminal of turn {report.snapshot_turn} is another than in"
                f" {origin.trial}: {report.difference}",
                report,
            )
        if not done and origin.turns:
            report = self._compared(origin, report, 0, origin.turns[0].prompt, first_prompt)
        for turn in origin.turns[done:]:
            report = await self._person(origin, report, turn.turn, turn.typed, turn.prompt)
            report = await self._turn(origin, replace(report, way="replay"), turn)
        return await self._person(origin, report, origin.turn, origin.typed, origin.prompt)

    async def _turn(self, origin: ForkPoint, report: ForkReport, turn: RecordedTurn) -> ForkReport:
        await self._link.boundary()
        if turn.screen is None:  # nothing was executed
            return report
        before = self._session.previous_buffer
        screen = await self._execute(turn.commands)
        screen = self._cut(turn.screen, await self._settled(before, turn.screen, screen))
        report = replace(report, replayed=report.replayed + 1)
        return self._compared(origin, report, turn.turn, turn.screen, screen)

    async def _person(
        self,
        origin: ForkPoint,
        report: ForkReport,
        turn: int,
        typed: Sequence[Typed],
        prompt: str,
    ) -> ForkReport:
        """What a person typed before `turn`, and was shown to the agent in its prompt."""
        if not typed:
            return report
        before = self._session.previous_buffer
        for part in typed:
            await self._session.type(part)
            await asyncio.sleep(_LOOK_SEC)
        await asyncio.sleep(SETTLE_SEC)
        recorded = prompt.rpartition(f"{TYPED_MEANWHILE}\n\n")[2]
        screen = await self._settled(before, recorded, await self._look())
        return self._compared(origin, report, turn - 1, recorded, screen)

    async def _settled(self, before: str | None, recorded: str, screen: str) -> str:
        """The screen, once it is the recorded one or had its time to become it."""
        clock = asyncio.get_running_loop().time
        until = clock() + _LATE_SEC
        while difference(recorded, screen) and clock() < until:
            await self._link.budget.sleep(_LOOK_SEC)
            self._session.previous_buffer = before
            screen = await self._look()
        return screen

    def _cut(self, recorded: str, screen: str) -> str:
        """The recorded screen, where the terminal shows that and more: it was looked at before the
        last command had ended. The rest is new to the agent at its next look."""
        if not difference(recorded, screen):
            return screen
        shown, new = shown_of(recorded, screen), screen.partition("\n")[2]
        buffer = self._session.previous_buffer or ""
        if shown is None or not buffer.endswith(new):
            return screen
        self._session.previous_buffer = buffer[: len(buffer) - len(new)] + shown
        return recorded

    @staticmethod
    def _compared(
        origin: ForkPoint, report: ForkReport, turn: int, recorded: str, screen: str
    ) -> ForkReport:
        if not (found := difference(recorded, screen)):
            return report
        report = replace(
            report,
            parted=(*report.parted, turn),
            difference=report.difference or found,
        )
        if not origin.go_on:
            where = f"after turn {turn}" if turn else "before turn 1"
            raise ForkPartedError(
                f"{where} the screen is another than in {origin.trial}: {found}", report
            )
        return report
