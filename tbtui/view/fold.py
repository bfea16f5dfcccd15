"""The fold: one event at a time into the run's state. Pure: no clock, no files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    Entry,
    EvalFinished,
    EvalStarted,
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
    TrialFinished,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialResumed,
    TrialRetried,
    TurnParsed,
    TurnSampled,
    TurnStarted,
    WorkerLost,
    WorkerStarted,
)
from tbtui.view.state import (
    MAX_FINISHED_TRIALS,
    RECENT_REWARDS,
    EvalView,
    GroupView,
    Note,
    PolicyView,
    RunState,
    StepView,
    TaskView,
    TrialView,
)


class Fold:
    """Keeps one `RunState` up to date. What the screen shows is exactly what was recorded."""

    def __init__(self) -> None:
        self.state = RunState()
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
        match event:
            case TrialPhaseChanged():
                self._trial_phase(event, now)
            case TurnStarted():
                if trial := state.trials.get(event.trial):
                    trial.turn = event.turn
            case TurnSampled():
                self._turn_sampled(event)
            case TurnParsed():
                if (trial := state.trials.get(event.trial)) and event.commands:
                    trial.last_command = " ".join(
                        command.keystrokes.strip() for command in event.commands
                    )
            case TrialQueued():
                self._trial_queued(event, now)
            case TrialFinished():
                self._trial_finished(event, now)
            case TrialPaused():
                if trial := state.trials.get(event.trial):
                    trial.paused, trial.phase_since = True, now
            case TrialResumed():
                if (trial := state.trials.get(event.trial)) and trial.paused:
                    trial.paused = False
                    trial.paused_sec += now - trial.phase_since
                    trial.phase_since = now
            case TrialRetried():
                if trial := state.trials.get(event.trial):
                    trial.successor = event.successor
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
                if trial := state.trials.get(event.target):
                    trial.pending = event.verb
                    state.pending[event.command] = event.target
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
            case WorkerLost():
                state.workers.pop(event.worker, None)
                state.notes.append(
                    Note(now, "warning", f"worker {event.worker} lost: {event.reason}")
                )
            case Noted():
                state.notes.append(Note(now, event.level, event.text))
            case _:
                # TurnObserved and CheckpointSaved matter to other readers of the journal.
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

    def _trial_queued(self, event: TrialQueued, now: float) -> None:
        state = self.state
        state.trials[event.trial] = TrialView(
            trial=event.trial,
            label=event.label,
            task=event.task,
            group=event.group,
            step=event.step,
            purpose=event.purpose,
            attempt=event.attempt,
            budget_sec=event.budget_sec,
            queued_at=now,
            phase_since=now,
        )
        if task := state.tasks.get(event.task):
            task.live += 1
        if group := state.groups.get(event.group):
            group.trials.append(event.trial)
        self._drop_old_trials()

    def _drop_old_trials(self) -> None:
        trials = self.state.trials
        surplus = len(trials) - MAX_FINISHED_TRIALS
        if surplus <= 0:
            return
        old = [name for name, trial in trials.items() if not trial.live][:surplus]
        for name in old:
            group = self.state.groups.get(trials.pop(name).group)
            if group and not any(member in trials for member in group.trials):
                self.state.groups.pop(group.group)

    def _trial_phase(self, event: TrialPhaseChanged, now: float) -> None:
        if not (trial := self.state.trials.get(event.trial)):
            return
        if trial.started_at is None and event.phase is not TrialPhase.QUEUED:
            trial.started_at = now
        trial.phase, trial.phase_since, trial.detail = event.phase, now, event.detail

    def _turn_sampled(self, event: TurnSampled) -> None:
        if not (trial := self.state.trials.get(event.trial)):
            return
        trial.turn = event.turn
        trial.samples.append(event.sample)
        trial.last_text = event.text
        trial.completion_tokens += event.completion_tokens
        trial.logprob_sum += event.mean_logprob * event.completion_tokens
        trial.weights_version = event.weights_version

    def _trial_finished(self, event: TrialFinished, now: float) -> None:
        state = self.state
        state.trials_finished += 1
        state.outcomes[event.outcome] = state.outcomes.get(event.outcome, 0) + 1
        if not (trial := state.trials.get(event.trial)):
            return
        trial.phase, trial.phase_since, trial.finished_at = TrialPhase.FINISHED, now, now
        trial.paused, trial.pending = False, ""
        trial.outcome, trial.reason = event.outcome, event.reason
        trial.verdict, trial.reward = event.verdict, event.reward
        trial.turn, trial.seconds = event.turns, event.seconds
        if task := state.tasks.get(trial.task):
            task.live -= 1
            if event.reward is None:
                task.unscored += 1
            else:
                task.scored += 1
                task.reward_sum += event.reward
                task.recent.append(event.reward)
                latest = state.kind_rewards.setdefault(
                    task.kind or "other", deque(maxlen=RECENT_REWARDS)
                )
                latest.append(event.reward)
        if trial.purpose == "train":
            state.rollouts += 1
            if event.reward is not None:
                state.rewards.append(event.reward)
            if state.steps and state.steps[-1].step == trial.step:
                if event.reward is None:
                    state.steps[-1].unscored += 1
                else:
                    state.steps[-1].rewards.append(event.reward)

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

    def _command_done(self, event: CommandDone, now: float) -> None:
        state = self.state
        target = state.pending.pop(event.command, None)
        if target and (trial := state.trials.get(target)):
            trial.pending = ""
        if not event.ok:
            state.notes.append(Note(now, "warning", event.result))
