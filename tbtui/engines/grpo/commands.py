"""Commands on a run: each is journalled, carried out or refused, and answered."""

from __future__ import annotations

from typing import Any

from tbtui.config import ConfigError
from tbtui.engines.command_queue import CommandQueue, answered_outside
from tbtui.engines.events_of import issued
from tbtui.engines.grpo.batch import OpenBatches
from tbtui.engines.grpo.curriculum import WeightError
from tbtui.engines.grpo.forks import ForkGroups
from tbtui.engines.grpo.live_settings import LiveSettings
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CommandDone
from tbtui.journal.verbs import Standing, refusal, run_refusal
from tbtui.vocabulary import TrialPhase

_BATCHES_OWN = frozenset({"retry", "exclude", "include", "relabel", "accept", "refill"})
"""Verbs for a trial that may be over, or for its group."""


class RunCommands:
    """Commands on the whole run, and on single trials wherever they are."""

    def __init__(
        self,
        queue: CommandQueue,
        runner: TrialRunner[Any],
        batches: OpenBatches,
        settings: LiveSettings,
        forks: ForkGroups,
    ) -> None:
        """`queue`: is carried out from now on."""
        self._queue = queue
        self._journal = settings.journal
        self._steering = runner.steering
        self._pause = runner.pause
        self._batches = batches
        self._settings = settings
        self._forks = forks
        self._trials_there = False
        """The trials that commands may be about can be found."""
        queue.serve(self)

    def trials_are_there(self) -> None:
        """Carry out commands on trials that came before there were any."""
        self._trials_there = True
        self._queue.try_again()

    def end(self, why: str) -> None:
        """Refuse what still waits for trials: there will be none."""
        self._trials_there = True
        for command in self._queue.take_journalled():
            self._done(command, False, why)

    def take_up(self, command: Command) -> None:
        """Implements `TakesCommands`."""
        self._journal.append(issued(command))

    def carry_out(self, command: Command) -> bool:
        """Carry a command out and answer it; False: it has to wait for the trials."""
        if command.target == RUN and command.verb != "accept":
            self._control_run(command)
        elif command.verb == "set":
            self._set_weight(command)
        elif self._trials_there:
            self._control_batch(command)
        else:
            return False
        return True

    def _control_batch(self, command: Command) -> None:
        """Carry out a command on a batch: on a trial or group of it, or on its review."""
        if command.target == RUN:
            self._accept(command)
        elif command.verb == "fork":
            if why := self._steering.refusal(command):
                self._done(command, False, why)
            else:
                self._forks.ask(command)
        elif command.verb not in _BATCHES_OWN:
            self._steering.control(command)
        elif not any(batch.control(command) for batch in self._batches):
            unknown = Standing(command.target, TrialPhase.FINISHED, step_open=False)
            self._done(command, False, refusal(command.verb, unknown))

    def _accept(self, command: Command) -> None:
        """Accept the step that is asked for, or the one under review that is trained first."""
        step = command.arguments.get("step")
        if not isinstance(step, int | None):
            self._done(command, False, f"accept: step {str(step)[:20]!r} is not a number")
            return
        asked = [b for b in self._batches if b.under_review and step in (None, b.step)]
        if asked:
            next((batch for batch in asked if batch.reviewing), asked[0]).accept(command)
        else:
            text = "no step is" if step is None else f"step {step} is not"
            self._done(command, False, f"{text} under review")

    def _control_run(self, command: Command) -> None:
        if (answer := answered_outside(command)) is not None:
            self._done(command, True, answer)
            return
        match command.verb:
            case "pause" | "freeze":
                self._pause.begin(command.verb)
                self._done(command, True, "the run is paused")
            case "resume":
                self._pause.end()
                self._done(command, True, "the run goes on")
                self._pause.try_again()
            case "set":
                try:
                    self._done(command, True, self._settings.change(command.arguments))
                except ConfigError as error:
                    self._done(command, False, str(error))
            case "give_back":
                self._done(command, True, self._steering.leave(command.actor))
            case verb:
                self._done(command, False, run_refusal(verb))

    def _set_weight(self, command: Command) -> None:
        try:
            self._done(command, True, self._settings.weigh(command))
        except WeightError as error:
            self._done(command, False, str(error))

    def _done(self, command: Command, ok: bool, result: str) -> None:
        self._journal.append(CommandDone(command=command.id, ok=ok, result=result))
