"""Commands on a Prime-RL run: carried out, and journalled with their results, each once.

A command on a trial goes into the control file that the plugin's environment servers read, and
its result is read from that trial's log. One on the whole run is carried out by every environment
server, and none of them answers. `freeze` and `resume` of the whole run go to the inference
servers first: `/pause`, `/resume` and `/is_paused` of vLLM, which has the three where it was
started with `VLLM_SERVER_DEV_MODE=1`; Prime-RL's own server has the first two always. Prime-RL
itself pauses and resumes its servers around every update of whole weights, so that such an update
ends a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from tbtui.engines.command_queue import CommandQueue, answered_outside
from tbtui.engines.events_of import issued
from tbtui.engines.prime_rl.plugin.files import ControlFile, append_command
from tbtui.engines.prime_rl.watch.recorder import TraceRecorder
from tbtui.http_response import ENCODINGS, ResponseError, limited_body
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CommandDone, CommandIssued, Outcome, RunPaused, RunResumed
from tbtui.journal.reader import JournalReader
from tbtui.journal.verbs import WEIGHTS_UNDER_PRIME_RL, run_refusal
from tbtui.terminal import both_ends, one_line

if TYPE_CHECKING:
    import httpx

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

    def carry_out(self, commands: CommandJournal, command: Command) -> bool:
        """Begin to carry a command out. Returns True: none has to wait."""
        if (answer := answered_outside(command)) is not None:
            commands.answer(command.id, True, answer)
        elif command.verb == "set":
            # No environment server has anything to do with it.
            of_task = "" if command.target == RUN else WEIGHTS_UNDER_PRIME_RL
            commands.answer(command.id, False, of_task or run_refusal("set", prime_rl=True))
        elif command.target == RUN and command.verb in ("freeze", "resume"):
            task = asyncio.create_task(self._hold_servers(commands, command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._pass_on(commands, command)
        return True

    @contextlib.asynccontextmanager
    async def serving(self, commands: CommandJournal) -> AsyncIterator[None]:
        """Carry commands out while the context lasts; `commands` journals them."""
        self._queue.serve(_Serving(self, commands))
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


@dataclass(frozen=True, slots=True)
class _Serving:
    """Implements `TakesCommands` while a run is watched."""

    control: PrimeRlControl
    commands: CommandJournal

    def take_up(self, command: Command) -> None:
        self.commands.issued(command)

    def carry_out(self, command: Command) -> bool:
        return self.control.carry_out(self.commands, command)


ANSWER_SEC = 10.0
"""How long an environment server may take to read a command."""


class CommandJournal:
    """Journals commands where they are read first; refuses those that no server takes up."""

    def __init__(
        self, recorder: TraceRecorder, directory: Path | None, clock: Callable[[], float]
    ) -> None:
        """`directory`: what the environment servers share; None: there is none."""
        self._recorder = recorder
        self._file = ControlFile(directory) if directory is not None else None
        self._clock = clock
        self._issued: set[str] = set()
        self._done: set[str] = set()
        self._not_taken: dict[str, tuple[CommandIssued, float]] = {}
        """Commands on trials that no server has taken up, with the time of giving up."""
        self._taken: dict[str, CommandIssued] = {}
        """Taken up by a server, and not answered yet."""
        self._past: set[str] = set()
        """Answered while an earlier watcher ran."""
        self.paused_by = ""
        """Who paused the whole run; empty: it is not paused."""
        self.frozen = False
        """The inference servers were asked to pause, and not to resume since."""

    def restore(self, reader: JournalReader) -> None:
        """Restore the state that an earlier watcher journalled."""
        kinds = ("command_issued", "command_done", "run_resumed")
        holds: dict[str, CommandIssued] = {}
        for entry in reader.each(kinds):
            match entry.event:
                case CommandIssued() as command:
                    self._issued.add(command.command)
                    self._wait(command)
                    if command.target == RUN and command.verb in ("pause", "freeze"):
                        holds[command.command] = command
                case CommandDone(command=name, ok=ok):
                    self._over(name)
                    hold = holds.pop(name, None)
                    if ok and hold is not None:
                        self.paused_by = hold.actor
                        self.frozen |= hold.verb == "freeze"
                case _:
                    self.paused_by, self.frozen = "", False
                    holds.clear()
        # The watcher may have ended while it waited for the servers' answer.
        self.frozen |= any(hold.verb == "freeze" for hold in holds.values())
        self._past = set(self._done)

    def run_continues(self) -> None:
        """Journal that a pause lasts on: Prime-RL was launched again."""
        if self.paused_by:
            self._recorder.record(RunPaused())

    def issued(self, command: Command) -> None:
        """Journal a command that a person issued."""
        self._record(issued(command), None)

    def taken_up(self, event: CommandIssued, at: float) -> None:
        """Journal that an environment server has taken a command up."""
        self._record(event, at)
        if self._not_taken.pop(event.command, None) is not None:
            self._taken[event.command] = event

    def done(self, event: CommandDone, at: float | None = None) -> None:
        """Journal a result; the first one counts."""
        if event.command not in self._done:
            self._over(event.command)
            self._recorder.record(event, at)

    def answer(self, command: str, ok: bool, result: str) -> None:
        self.done(CommandDone(command=command, ok=ok, result=result))

    def over(self, trial: str, outcome: Outcome) -> None:
        """Refuse the commands on a trial that ended without answering them."""
        for event in (*self._taken.values(), *(event for event, _ in self._not_taken.values())):
            if event.target == trial:
                self.answer(event.command, False, f"{trial} ended as {outcome} first")

    def read(self, live: int, *, hosts: bool) -> None:
        """Carry out what is new in the control file.

        Args:
            live: how many of the plugin's trials run.
            hosts: the plugin has trials, or the run has none at all.
        """
        for command in self._file.poll() if self._file is not None else ():
            self.issued(command)
            if command.target == RUN and command.id not in self._past:
                self._run(command, live, hosts=hosts)
        now = self._clock()
        for event, deadline in list(self._not_taken.values()):
            if now >= deadline:
                text = f"no environment server of tbtui's plugin runs {event.target}"
                self.answer(event.command, False, f"{text}: nothing to {event.verb}")

    def _run(self, command: Command, live: int, *, hosts: bool) -> None:
        match command.verb:
            case "pause" if not hosts:
                text = "no trial runs in tbtui's plugin, so that none can be paused"
                self.answer(command.id, False, f"{text}; Prime-RL itself has no pause")
            case "pause" | "freeze":
                if not self.paused_by:
                    self._recorder.record(RunPaused())
                self.paused_by, self.frozen = command.actor, self.frozen or command.verb == "freeze"
                how = "at the end of its turn" if command.verb == "pause" else "at once"
                each = f"each of {live} live trials stops {how}" if live else "none is live"
                self.answer(command.id, True, f"no new trial starts; {each}")
            case "resume":
                if self.paused_by:
                    self._recorder.record(RunResumed())
                self.paused_by, self.frozen = "", False
                self.answer(command.id, True, "the run goes on")
            case "accept" | "set" as verb:
                self.answer(command.id, False, run_refusal(verb, prime_rl=True))
            case verb:
                self.answer(command.id, False, f"{verb} needs a trial; to end the run, quit")

    def _record(self, event: CommandIssued, at: float | None) -> None:
        if event.command not in self._issued:
            self._issued.add(event.command)
            self._recorder.record(event, at)
            self._wait(event)

    def _wait(self, event: CommandIssued) -> None:
        if event.target != RUN:
            self._not_taken[event.command] = (event, self._clock() + ANSWER_SEC)

    def _over(self, command: str) -> None:
        self._done.add(command)
        self._not_taken.pop(command, None)
        self._taken.pop(command, None)


_MOST_BYTES = 1 << 20
"""Longest answer."""
_CONNECT_SEC = 5.0
_SERVER_SEC = 60.0
"""vLLM answers `/pause` when what it is computing has come to a stop."""


class InferenceError(Exception):
    """A server can't be held or released; the message is one line for a person."""


class InferenceServers:
    """The vLLM engines of a run, paused and resumed together."""

    def __init__(self, urls: Sequence[str]) -> None:
        """`urls`: with or without a path; none: nothing is ever asked."""
        self.urls = tuple(_root(url) for url in urls)

    async def pause(self) -> bool:
        """Hold all servers; their requests wait (`mode=keep`). Returns whether each has confirmed
        that it is paused; some servers have no way to say so.

        Raises:
            InferenceError: one can't be paused; the others go on again.
        """
        async with _client() as client:
            paused: list[str] = []
            try:
                for url in self.urls:
                    params = {"mode": "keep", "clear_cache": "false"}
                    await _ask(client, "POST", f"{url}/pause", params)
                    paused.append(url)
                return all([await self._is_held(client, url) for url in paused])
            except InferenceError:
                for url in paused:
                    await _ask(client, "POST", f"{url}/resume")
                raise

    async def resume(self) -> None:
        """Let all servers go on.

        Raises:
            InferenceError: a server can't be asked, or says that it is still paused.
        """
        async with _client() as client:
            for url in self.urls:
                await _ask(client, "POST", f"{url}/resume")
            for url in self.urls:
                if await self._is_paused(client, url) is True:
                    raise InferenceError(f"{url} still says that it is paused")

    async def _is_held(self, client: httpx.AsyncClient, url: str) -> bool:
        paused = await self._is_paused(client, url)
        if paused is False:
            raise InferenceError(f"{url} took /pause and says that it isn't paused")
        return paused is True

    async def _is_paused(self, client: httpx.AsyncClient, url: str) -> bool | None:
        """Whether the server says that it is paused; None: it has no such request."""
        try:
            answer = await _ask(client, "GET", f"{url}/is_paused")
        except _MissingError:
            return None
        try:
            return bool(json.loads(answer)["is_paused"])
        except (ValueError, LookupError, RecursionError, TypeError) as error:
            raise InferenceError(f"{url}/is_paused: no such answer as vLLM's") from error


class _MissingError(InferenceError):
    """The server doesn't know the path."""


def _client() -> httpx.AsyncClient:
    import httpx

    return httpx.AsyncClient(
        headers=ENCODINGS, timeout=httpx.Timeout(_SERVER_SEC, connect=_CONNECT_SEC)
    )


async def _ask(
    client: httpx.AsyncClient, method: str, url: str, params: dict[str, str] | None = None
) -> bytes:
    """What the server answers."""
    import httpx

    try:
        async with (
            asyncio.timeout(_SERVER_SEC),
            client.stream(method, url, params=params) as answer,
        ):
            body = b"".join([part async for part in limited_body(answer, _MOST_BYTES)])
    except (TimeoutError, ResponseError, httpx.HTTPError) as error:
        raise InferenceError(f"{url}: {str(error) or type(error).__name__}") from error
    if answer.status_code in (404, 405):
        raise _MissingError(
            f"{url}: the server has no such request; start vLLM with VLLM_SERVER_DEV_MODE=1"
        )
    if answer.status_code != httpx.codes.OK:
        words = both_ends(one_line(body.decode(errors="replace")), 200)
        raise InferenceError(f"{url}: HTTP {answer.status_code} {words}".rstrip())
    return body


def _root(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    return urlunsplit((parts.scheme, parts.netloc, "", "", ""))
