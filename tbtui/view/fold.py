"""The fold: one event at a time into the run's state. Pure: no clock, no files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    DeadlinePassed,
    Entry,
    EvalFinished,
    EvalStarted,
    GroupRefilled,
    GroupScored,
    Noted,
    PolicyMeasured,
    ResourcesMeasured,
    RunFinished,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
    WorkerLost,
    WorkerRecycled,
    WorkerStarted,
)
from tbtui.view.state import (
    CommandView,
    EvalView,
    GroupView,
    Note,
    PolicyView,
    RunState,
    StepView,
    TaskView,
)
from tbtui.view.trial_fold import TrialFold


class Fold:
    """Keeps one `RunState` up to date. What the screen shows is exactly what was recorded."""

    def __init__(self) -> None:
        self.state = RunState()
        self._trials = TrialFold(self.state)
        self._measured: tuple[float, int] | None = None

    def apply_all(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        state = self.state
        state.seq, state.time = entry.seq, entry.time
        state.version += 1
        self._apply(entry.event, entry.time)

    def _apply(self, event: AnyEvent, now: float) -> None:
        state = self.state
        if self._trials.apply(event, now):
            return
        match event:
            case PolicyMeasured():
                self._policy_measured(event, now)
            case ResourcesMeasured():
                state.processes, state.engine_lag_ms = event.processes, event.engine_lag_ms
            case RunPhaseChanged():
                state.phase, state.phase_since, state.phase_detail = event.phase, now, event.detail
                state.step = event.step
            case StepStarted():
                state.steps.append(StepView(event.step, now, groups=list(event.groups)))
                for group, task in event.groups.items():
                    state.groups[group] = GroupView(group, task, event.step)
            case GroupScored():
                self._group_scored(event)
            case StepFinished():
                state.step, state.weights_version = event.step, event.weights_version
                if state.steps and state.steps[-1].step == event.step:
                    state.steps[-1].finished_at = now
                    state.steps[-1].metrics = event.metrics
            case EvalStarted():
                state.eval_expected = event.trials
            case EvalFinished():
                state.evals.append(
                    EvalView(
                        event.step,
                        event.temperature,
                        event.pass_rate,
                        event.scored,
                        event.unscored,
                        event.by_kind,
                        now,
                    )
                )
            case CommandIssued():
                self._command_issued(event, now)
            case CommandDone():
                self._command_done(event, now)
            case RunPaused():
                state.paused = True
            case RunResumed():
                state.paused = False
            case RunStarted():
                self._run_started(event, now)
            case RunFinished():
                state.status, state.reason, state.finished_at = event.status, event.reason, now
                state.phase, state.phase_since = RunPhase.FINISHED, now
            case WorkerStarted():
                state.workers[event.worker] = event.pid
            case WorkerRecycled():
                state.workers.pop(event.worker, None)
                self._note(now, "info", f"worker {event.worker} is replaced: {event.reason}")
            case GroupRefilled():
                self._group_refilled(event, now)
            case DeadlinePassed():
                self._deadline_passed(event, now)
            case WorkerLost():
                state.workers.pop(event.worker, None)
                self._note(now, "warning", f"worker {event.worker} lost: {event.reason}")
            case Noted():
                self._note(now, event.level, event.text)
            case _:
                # CheckpointSaved matters to other readers of the journal.
                pass

    def _run_started(self, event: RunStarted, now: float) -> None:
        state = self.state
        state.run, state.started_at, state.phase_since = event.run, now, now
        state.policy, state.model_name = event.policy, event.model_name
        state.parameters = event.parameters
        state.environment = event.environment
        state.environment_reason = event.environment_reason
        state.tasks_dir, state.settings = event.tasks_dir, event.settings
        state.tasks = {
            task.name: TaskView(task.name, task.kind, task.difficulty, task.split)
            for task in event.tasks
        }

    def _group_scored(self, event: GroupScored) -> None:
        state = self.state
        if group := state.groups.get(event.group):
            group.disposition, group.baseline = event.disposition, event.baseline
        if event.disposition == "constant" and state.steps:
            state.steps[-1].constant_groups += 1
        for name, score in event.trials.items():
            if trial := state.trials.get(name):
                trial.baseline, trial.advantage = event.baseline, score.advantage

    def _policy_measured(self, event: PolicyMeasured, now: float) -> None:
        rate = None
        if self._measured and now > self._measured[0]:
            then, tokens = self._measured
            rate = (event.sampled_tokens - tokens) / (now - then)
        self._measured = (now, event.sampled_tokens)
        self.state.policy_now = PolicyView(
            event.activity,
            event.in_flight,
            event.running,
            event.completed,
            event.p50_sec,
            event.p95_sec,
            rate,
        )

    def _group_refilled(self, event: GroupRefilled, now: float) -> None:
        task = event.group
        if group := self.state.groups.get(event.group):
            group.refilled += len(event.trials)
            task = group.task
        fresh = f"{len(event.trials)} fresh trial{'s' if len(event.trials) != 1 else ''}"
        self._note(now, "info", f"{task}: the group had lost members and gets {fresh}")

    def _deadline_passed(self, event: DeadlinePassed, now: float) -> None:
        for name in event.trials:
            if trial := self.state.trials.get(name):
                trial.overdue = True
        one = len(event.trials) == 1
        what = "1 trial is" if one else f"{len(event.trials)} trials are"
        done = "stopped and verified" if event.action == "stop" else "left out of training"
        self._note(now, "warning", f"step {event.step} has had its time: {what} {done}")

    def _command_issued(self, event: CommandIssued, now: float) -> None:
        state = self.state
        trial = state.trials.get(event.target)
        label = trial.label if trial else event.target
        view = CommandView(
            event.command, event.verb, event.target, label, event.actor, event.reason, now
        )
        state.commands.append(view)
        state.pending[event.command] = view
        if trial is not None and trial.live:
            trial.pending = event.verb

    def _command_done(self, event: CommandDone, now: float) -> None:
        state = self.state
        view = state.pending.pop(event.command, None)
        if view is not None:
            view.done_at, view.ok, view.result = now, event.ok, event.result
            if trial := state.trials.get(view.target):
                others = [each for each in state.pending.values() if each.target == view.target]
                trial.pending = others[-1].verb if others and trial.live else ""
        if not event.ok:
            self._note(now, "warning", event.result)

    def _note(self, now: float, level: Literal["info", "warning", "error"], text: str) -> None:
        self.state.notes.append(Note(now, level, text))
