"""Takes snapshots of a trial at its turn boundaries, and brings one back in a fork's terminal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

import msgspec
from harbor.environments.base import BaseEnvironment

from tbtui.rollout.environments.base import SandboxError
from tbtui.rollout.environments.snapshots import (
    KeepsStates,
    Snapshot,
    SnapshotStore,
    TerminalSnapshot,
    nearest,
    plain_text,
    remove_images,
    screen_script,
)
from tbtui.rollout.forking import ForkPoint, ForkReport, SnapshotPlan
from tbtui.rollout.link import TrialLink
from tbtui.rollout.messages import SnapshotTaken
from tbtui.rollout.screens import difference
from tbtui.rollout.session import GatedSession

_RESTORE_SEC = 5.0
_LOOK_SEC = 0.02

_log = logging.getLogger(__name__)


async def prepare_states(link: TrialLink, environment: BaseEnvironment) -> None:
    """Let an environment that has not started keep its states, and begin from a fork's.

    A state that it does not have (any more) is passed over: the recorded keys are typed again.
    """
    if not isinstance(environment, KeepsStates):
        return
    spec = link.spec
    if spec.snapshots is not None:
        environment.keep_states()
    if spec.origin is not None:
        found = nearest(spec.origin.snapshots, spec.origin.turn, inexact=spec.origin.go_on)
        if found is not None and await environment.has_state(found):
            environment.begin_from(found)
            link.notes.restored = found.snapshot


class States:
    """The snapshots of one running trial."""

    def __init__(
        self,
        plan: SnapshotPlan,
        link: TrialLink,
        environment: KeepsStates,
        session: GatedSession,
    ) -> None:
        self._plan = plan
        self._link = link
        self._environment = environment
        self._session = session
        self._store = SnapshotStore(plan.directory, plan.max_bytes)

    def due(self, turn: int) -> bool:
        """Whether the state before this turn is kept."""
        return (turn - 1) % self._plan.every == 0

    async def take(self, turn: int) -> None:
        """Take the snapshot of the state before a turn; what prevents it is reported only."""
        began = time.monotonic()
        trial = self._link.spec.trial
        removed: list[Snapshot] = []
        try:
            snapshot = await self._taken(turn)
            seconds = time.monotonic() - began
            snapshot = msgspec.structs.replace(snapshot, seconds=seconds)
            removed = await asyncio.to_thread(self._store.add, snapshot)
        except (SandboxError, OSError, RuntimeError) as error:
            _log.info("%s: turn %d: %s", trial, turn, error)
            await asyncio.to_thread(self._store.discard, turn)
            taken = SnapshotTaken(trial, turn, error=str(error))
        else:
            taken = SnapshotTaken(
                trial,
                turn,
                snapshot.written,
                snapshot.total,
                snapshot.programs,
                snapshot.not_at_prompt,
                seconds,
                tuple(each.turn for each in removed),
            )
        self._link.post(taken)
        if removed or taken.error:
            # What the engine does not remove now, it is asked to when the run ends.
            with contextlib.suppress(SandboxError):
                await remove_images(self._store.directory, dropped_only=True)

    async def _taken(self, turn: int) -> Snapshot:
        pane = await self._session.pane()
        draft = Snapshot(
            turn=turn,
            screen=pane.coloured,
            plain=plain_text(pane.coloured),
            seen=self._session.previous_buffer or "",
            history=pane.history,
            row=pane.row,
        )
        at, lines = pane.history + pane.row, draft.plain.split("\n")
        line = lines[at] if at < len(lines) else ""
        terminal = TerminalSnapshot(pane.shell, pane.server, line, pane.full_screen)
        return await self._environment.save_state(self._store, draft, terminal)


async def show_restored(link: TrialLink, environment: BaseEnvironment, height: int) -> None:
    """Prepare the restored environment's first shell, before its terminal starts."""
    if link.notes.restored is not None and isinstance(environment, KeepsStates):
        await environment.show(screen_script(link.notes.restored, height))


async def restored(session: GatedSession, origin: ForkPoint, snapshot: Snapshot) -> ForkReport:
    """Wait until the terminal shows what it showed then; how faithful it is."""
    until = time.monotonic() + _RESTORE_SEC
    while True:
        screen = await session.capture_pane(capture_entire=True)
        found = difference(snapshot.plain, screen)
        if not found or time.monotonic() > until:
            break
        await asyncio.sleep(_LOOK_SEC)
    session.previous_buffer = snapshot.seen or screen
    return ForkReport(
        "snapshot",
        snapshot_turn=snapshot.turn,
        parted=(snapshot.turn - 1,) if found else (),
        difference=found,
        lost=snapshot.programs,
    )
