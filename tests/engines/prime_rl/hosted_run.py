"""What our plugin's environment servers leave of a trial, written as they write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tbtui.engines.events_of import issued
from tbtui.engines.prime_rl.plugin.files import TrialLog, hosted_name, turn_sampled
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    CommandDone,
    Outcome,
    PhaseSeconds,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TurnObserved,
    TurnStarted,
)
from tbtui.rollout.messages import Completion, SampleWanted
from tests.events import trial_finished, trial_queued, turn_parsed

from .recorded_run import BEGIN


class HostedRun:
    """One trial, bit by bit. `name` is the trial's; `trace` the id of Prime-RL's trace of it."""

    def __init__(self, directory: Path, trace: str, task: str = "copy-file") -> None:
        self.trace = trace
        self.task = task
        self.name = hosted_name(task, trace)
        self.now = BEGIN
        self._log = TrialLog(directory, self.name, lambda: self.now)

    def queued(self) -> None:
        self._log.append(
            trial_queued(self.name, label=self.name, task=self.task, group=self.task, step=0)
        )

    def phase(self, phase: TrialPhase) -> None:
        self.now += 1
        self._log.append(TrialPhaseChanged(trial=self.name, phase=phase))

    def turn(self, number: int, text: str | None = None, purpose: str = "turn") -> None:
        self.now += 5
        self._log.append(TurnStarted(trial=self.name, turn=number, purpose=purpose))
        self.now += 4
        said = f"command {number}" if text is None else text
        wanted = SampleWanted(
            trial=self.name, request=number, turn=number, messages=(), purpose=purpose
        )
        self._log.append(
            turn_sampled(wanted, Completion(number, self.name, said, False, 5, 3), 4.0)
        )
        if purpose != "turn":
            return
        self._log.append(turn_parsed(self.name, turn=number))
        seen = TurnObserved(trial=self.name, turn=number, observation="screen", seconds=1.0)
        self._log.append(seen)

    def finished(self, reward: float | None = 1.0, outcome: Outcome = Outcome.SOLVED) -> None:
        self.now += 2
        self._log.append(
            trial_finished(
                self.name,
                reward,
                outcome=outcome,
                reason="as told",
                turns=2,
                seconds=PhaseSeconds(sampling=8.0),
            )
        )
        self._log.close()

    def model(self) -> None:
        self.phase(TrialPhase.MODEL)

    def paused(self) -> None:
        self.now += 1
        self._log.append(TrialPaused(trial=self.name))

    def takes_up(self, command: Command) -> None:
        self._log.append(issued(command))

    def answers(self, command: Command, ok: bool, result: str) -> None:
        self._log.append(CommandDone(command=command.id, ok=ok, result=result))

    def bits(self) -> Iterator[None]:
        """A whole trial of two turns; stops after each line or two."""
        self.queued()
        yield
        self.phase(TrialPhase.MODEL)
        yield
        self.turn(1)
        yield
        self.turn(2)
        yield
        self.phase(TrialPhase.VERIFYING)
        yield
        self.finished()

    def whole(self) -> None:
        for _ in self.bits():
            pass
