"""Journals commands on a Prime-RL run, and their results, each once.

Commands travel in the plugin's control file. The result of one on a trial is in that trial's log;
one on the whole run is carried out by every environment server, and none of them answers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tbtui.engines.events_of import issued
from tbtui.engines.prime_rl.plugin.control_file import ControlFile
from tbtui.engines.prime_rl.watch.recorder import Recorder
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CommandDone, CommandIssued, Outcome, RunPaused, RunResumed
from tbtui.journal.reader import JournalReader
from tbtui.journal.verbs import run_refusal

ANSWER_SEC = 10.0
"""How long an environment server may take to read a command."""


class CommandJournal:
    """Journals commands where they are read first; refuses those that no server takes up."""

    def __init__(
        self, recorder: Recorder, directory: Path | None, clock: Callable[[], float]
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
        """Prime-RL was launched again; a pause lasts on."""
        if self.paused_by:
            self._recorder.record(RunPaused())

    def issued(self, command: Command) -> None:
        """A person issued a command."""
        self._record(issued(command), None)

    def taken_up(self, event: CommandIssued, at: float) -> None:
        """An environment server has taken a command up."""
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
