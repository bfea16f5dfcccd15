"""Carries out commands on a Prime-RL run.

They go into the control file that the plugin's environment servers read, and their results are
read from the servers' logs (`watch/commands.py`). `freeze` and `resume` of the whole run go to the
inference servers first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from tbtui.engines.command_queue import CommandQueue, answered_outside
from tbtui.engines.prime_rl.inference import InferenceError, InferenceServers
from tbtui.engines.prime_rl.plugin.control_file import append_command
from tbtui.engines.prime_rl.watch.commands import CommandJournal
from tbtui.journal.commands import RUN, Command
from tbtui.journal.verbs import run_refusal

_FROZEN = (
    "the inference server is paused and keeps its requests; the trials in tbtui's plugin freeze"
    " with their clocks, but time limits of verifiers' own run on, and an update of whole weights"
    " lets the server go on"
)
_NOT_CHECKED = " (it has no /is_paused to check that with)"
_NO_SERVER = "the trials freeze with their clocks; no inference server is known that could be held"


class PrimeRlControl:
    """Takes commands at any time on the event loop, and carries them out while it is `serving`."""

    def __init__(self, trials_dir: Path, urls: Sequence[str] = ()) -> None:
        """
        Args:
            trials_dir: the directory that the plugin's environment servers share.
            urls: all inference servers.
        """
        self._directory = trials_dir
        self._servers = InferenceServers(urls)
        self._queue = CommandQueue()
        self._whole_run = asyncio.Lock()
        """Requests to the servers go out in the order of the commands."""
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, command: Command) -> None:
        """Return at once; the journal gets the result."""
        self._queue.submit(command)

    def _carry_out(self, commands: CommandJournal, command: Command) -> bool:
        """Begin to carry a command out. Returns True: none has to wait."""
        if (answer := answered_outside(command)) is not None:
            commands.answer(command.id, True, answer)
        elif command.target == RUN and command.verb == "set":
            # No environment server has anything to do with it.
            commands.answer(command.id, False, run_refusal("set", prime_rl=True))
        elif command.target == RUN and command.verb in ("freeze", "resume"):
            task = asyncio.create_task(self._hold_servers(commands, command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._pass_on(commands, command)
        return True

    @contextlib.asynccontextmanager
    async def serving(self, commands: CommandJournal) -> AsyncIterator[None]:
        """`commands`: journals them."""
        self._queue.serve(commands.issued, lambda command: self._carry_out(commands, command))
        try:
            yield
        finally:
            self._queue.hold()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _frozen(self, *, checked: bool) -> str:
        if not self._servers.urls:
            return _NO_SERVER
        return _FROZEN if checked else _FROZEN + _NOT_CHECKED

    def _pass_on(self, commands: CommandJournal, command: Command) -> None:
        if error := self._append(command):
            commands.answer(command.id, False, error)

    def _append(self, command: Command) -> str:
        """Append to the control file. Returns the error in one line; empty: none."""
        try:
            append_command(self._directory, command)
        except OSError as error:
            return f"{self._directory}: {error.strerror or error}"
        return ""

    async def _hold_servers(self, commands: CommandJournal, command: Command) -> None:
        async with self._whole_run:
            try:
                if command.verb == "resume":
                    if commands.frozen:
                        await self._servers.resume()
                    self._pass_on(commands, command)
                else:
                    await self._freeze(commands, command)
            except InferenceError as error:
                commands.answer(command.id, False, str(error))

    async def _freeze(self, commands: CommandJournal, command: Command) -> None:
        checked = await self._servers.pause()
        # Set now, and not when the watcher reads of it: a resume that waits here comes before that.
        commands.frozen = True
        if not (error := self._append(command)):
            commands.answer(command.id, True, self._frozen(checked=checked))
            return
        try:
            await self._servers.resume()
        except InferenceError as stuck:
            error += f"; and the servers stand still: {stuck}"
        else:
            commands.frozen = False
        commands.answer(command.id, False, error)
