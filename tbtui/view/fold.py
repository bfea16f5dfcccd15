"""The fold: one event at a time into the run's state. Pure: no clock, no files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from tbtui.journal.events import (
    AlarmRaised,
    AlertSent,
    AnyEvent,
    BudgetReached,
    CommandDone,
    CommandIssued,
    DeadlinePassed,
    DemonstrationKept,
    Entry,
    EvalFinished,
    ForksStarted,
    GpusMeasured,
    GroupAdded,
    GroupRefilled,
    GroupScored,
    Noted,
    OutageBegan,
    OutageEnded,
    PolicyLost,
    PolicyMeasured,
    ProbeMeasured,
    ProbeStarted,
    ResourcesMeasured,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    RunFinished,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    RunResumed,
    RunStarted,
    SettingsChanged,
    StepFinished,
    StepStarted,
    TasksJudged,
    TasksSetAside,
    TasksWeighted,
    TrialFinished,
    TrialPaused,
    TrialQueued,
    TrialResumed,
    TurnsValued,
    WorkerLost,
    WorkerRecycled,
    WorkerStarted,
)
from tbtui.view.review import signal
from tbtui.view.sentences import (
    HeldOut,
    alarm_words,
    beginning_missing,
    budget_words,
    ends_missing,
    speed_line,
    undelivered_words,
    values_line,
    weight_words,
)
from tbtui.view.server import RATE_SEC, PolicyLostView, PolicyView
from tbtui.view.state import (
    CommandView,
    EvalView,
    GroupView,
    Note,
    ReviewView,
    RunState,
    StepView,
    TaskView,
)
from tbtui.view.times import cut_off, evaluation_seconds, leave_out, note_activity
from tbtui.view.trial_fold import TrialFold
from tbtui.view.waiting import duration, number_range, verb_words
from tbtui.vocabulary import category_of

_JUMP_SEC = 60.0
"""Between two events of processes that are measured every second; no load of a machine takes as
long."""
_TURNING_POINTS = frozenset(
    {
        *(RunPhaseChanged, RunPaused, RunResumed, RunStarted, RunContinued, RunFinished),
        *(PolicyLost, StepStarted, StepFinished, TrialQueued, TrialFinished),
        *(TrialPaused, TrialResumed),
    }
)
"""Events after which the run may be doing something else."""


class Fold:
    """Keeps one `RunState` up to date. What the screen shows is exactly what was recorded."""

    def __init__(self, state: RunState | None = None) -> None:
        self.state = state or RunState()
        self._trials = TrialFold(self.state)
        self._drawn: tuple[tuple[float, int], ...] = ()
        self._speed_noted = False
        """Whether the process that runs the run now has one in the notes."""
        self._worded: set[str] = set()
        """What earlier versions also wrote into their journals in words."""

    def apply_all(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        state = self.state
        self._leave_out_jump(entry)
        state.downtime.see(entry)
        state.seq, state.time = entry.seq, entry.time
        state.version = entry.seq
        state.lanes.see(entry)
        self._apply(entry.event, entry.time)
        if type(entry.event) in _TURNING_POINTS:
            note_activity(state, entry.time)

    def _leave_out_jump(self, entry: Entry) -> None:
        """Count as nobody's work a time in which nothing ran: the machine slept, or its clock was
        set forward, or back."""
        state, event = self.state, entry.event
        jump = entry.time - state.time
        if not state.processes or abs(jump) <= _JUMP_SEC or isinstance(event, RunContinued):
            return
        if isinstance(event, RunPhaseChanged) and event.phase is RunPhase.STARTING:
            return  # another process
        self._trials.leave_out(jump)
        leave_out(state, entry.time)

    def pass_over(self, seq: int) -> None:
        """The events up to number `seq` that were not applied change nothing."""
        self.state.seq = self.state.version = max(self.state.seq, seq)

    def _apply(self, event: AnyEvent, now: float) -> None:
        state = self.state
        if isinstance(event, TrialFinished) and event.trial not in state.trials:
            self._note(now, "error", beginning_missing(event.trial))
        if self._trials.apply(event, now):
            return
        match event:
            case PolicyMeasured():
                self._policy_measured(event, now)
            case ResourcesMeasured():
                state.processes, state.engine_lag_ms = event.processes, event.engine_lag_ms
            case GpusMeasured():
                state.gpus[event.host] = event
            case RunPhaseChanged():
                state.phase, state.phase_since, state.phase_detail = event.phase, now, event.detail
                state.step = state.phase_step = event.step
                if event.phase not in (RunPhase.STARTING, RunPhase.STOPPING):
                    state.policy_lost = None
            case PolicyLost():
                self._policy_lost(event, now)
            case OutageBegan():
                self._note(now, "warning", f"{event.text}; {event.remedy}")
            case OutageEnded():
                count, seconds = state.outages.get(event.what, (0, 0.0))
                state.outages[event.what] = count + 1, seconds + event.seconds
                if event.text:
                    lasted = duration(event.seconds)
                    self._note(now, "info", f"{event.text} after {lasted}")
            case StepStarted():
                state.steps.append(StepView(event.step, now))
                for group, task in event.groups.items():
                    self._add_group(event.step, GroupView(group, task, event.step))
            case GroupAdded():
                self._add_group(
                    event.step,
                    GroupView(event.group, event.task, event.step, replaces=event.replaces),
                )
            case ForksStarted():
                state.groups[event.group] = GroupView(
                    event.group, event.task, event.step, forks=event
                )
            case TurnsValued() if not event.parent_run:
                state.turn_values[event.parent] = event
                self._word(now, values_line(event))
            case GroupScored():
                self._group_scored(event, now)
            case ReviewOpened():
                self._review_opened(event, now)
            case ReviewChanged():
                if review := state.reviews.get(event.step):
                    review.groups, review.undecided = event.groups, event.undecided
            case ReviewClosed():
                review = state.reviews.pop(event.step, None) or ReviewView(event.step, now)
                review.closed, review.closed_at = event, now
                state.review_closed = review
                self._note(now, "info", f"step {event.step} goes on: {review.ending}")
            case StepFinished():
                state.step, state.weights_version = event.step, event.weights_version
                self._consumed(event.metrics)
                if step := state.step_view(event.step):
                    step.finished_at, step.metrics = now, event.metrics
                if not self._speed_noted and (speed := speed_line(event.metrics)) is not None:
                    self._speed_noted = True
                    self._word(now, speed)
            case EvalFinished():
                state.held_out_rates = event.by_task
                self._consumed(event.metrics)
                state.evals.append(
                    EvalView(
                        event.step,
                        event.temperature,
                        event.pass_rate,
                        event.scored,
                        event.unscored,
                        event.by_kind,
                        now,
                        event.pass_at,
                        HeldOut.of(event),
                        event.metrics,
                        *evaluation_seconds(state, event.step, now),
                    )
                )
            case ProbeStarted():
                state.probe = event
            case ProbeMeasured():
                state.probed = event
            case CommandIssued():
                self._command_issued(event, now)
            case CommandDone():
                self._command_done(event, now)
            case SettingsChanged():
                state.settings = {**state.settings, **event.settings}
            case RunPaused():
                state.paused, state.paused_for = True, event.reason
                for review in state.reviews.values():
                    review.pause(now)
            case RunResumed():
                state.paused, state.paused_for = False, ""
                for review in state.reviews.values():
                    review.resume(now)
            case RunStarted():
                self._run_started(event, now)
            case RunContinued():
                self._run_continued(event, now)
            case AlarmRaised():
                self._alarm_raised(event, now)
            case RunFinished():
                state.status, state.reason, state.finished_at = event.status, event.reason, now
                state.phase, state.phase_since = RunPhase.FINISHED, now
                state.policy_lost = None
                if (policy := state.policy_now) is not None:
                    state.policy_now = policy.ended()
                # What was measured last is of processes that have ended.
                state.workers.clear()
                state.gpus.clear()
                state.processes = ()
            case WorkerStarted():
                state.workers[event.worker] = event.pid
            case WorkerRecycled():
                state.workers.pop(event.worker, None)
                self._note(now, "info", f"worker {event.worker} is replaced: {event.reason}")
            case GroupRefilled():
                self._group_refilled(event, now)
            case TasksSetAside():
                self._tasks_set_aside(event, now)
            case BudgetReached():
                self._note(now, "warning", f"budget: {budget_words(event)}")
            case AlertSent(ok=False):
                self._note(now, "warning", undelivered_words(event))
            case TasksJudged():
                state.unseen = event.unseen
                for name, belief in event.tasks.items():
                    if judged := state.tasks.get(name):
                        judged.belief = belief
            case TasksWeighted():
                self._tasks_weighted(event, now)
            case DeadlinePassed():
                self._deadline_passed(event, now)
            case WorkerLost():
                state.workers.pop(event.worker, None)
                self._note(now, "warning", f"worker {event.worker} lost: {event.reason}")
            case Noted():
                if event.text not in self._worded:
                    self._note(now, event.level, event.text)
            case DemonstrationKept():
                trial = self.state.trials.get(event.trial)
                label = trial.label if trial is not None else event.trial
                text = (
                    f"{label}: what {event.actor} typed is kept as a demonstration, to be reviewed"
                )
                self._note(now, "info", text)
            case _:
                # Which checkpoints there are matters to other readers of the journal.
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
            task.name: TaskView(
                task.name,
                category_of(task.kind, task.category),
                task.difficulty,
                task.split,
                dataset=task.dataset,
            )
            for task in event.tasks
        }

    def _run_continued(self, event: RunContinued, now: float) -> None:
        """The run goes on in another process: of the one before, nothing runs any more."""
        state = self.state
        cut_off(state, state.downtime.gaps)
        state.status, state.reason, state.finished_at = None, "", None
        state.phase, state.phase_since, state.phase_detail = RunPhase.STARTING, now, ""
        state.paused, state.paused_for, state.settings = False, "", event.settings
        state.workers.clear()
        state.gpus.clear()
        state.reviews.clear()
        state.processes, state.policy_now, self._drawn = (), None, ()
        self._speed_noted = False
        state.policy_lost = None
        self._trials.requeue(event.requeued, now)
        where = f"step {event.step}" if event.checkpoint else "the start"
        text = f"resumed from {where}; {event.reused} finished trials are used again"
        if event.requeued:
            text += f", {len(event.requeued)} start again"
        if event.replayed:
            text += f"; trained again on what was recorded: {number_range(event.replayed)}"
        self._note(now, "info", text)

    def _alarm_raised(self, event: AlarmRaised, now: float) -> None:
        state = self.state
        state.alarms.append(event)
        state.alarms_raised += 1
        self._note(now, "alarm", alarm_words(event))

    def _add_group(self, step: int, group: GroupView) -> None:
        self.state.groups[group.group] = group
        if view := self.state.step_view(step):
            view.groups.append(group.group)

    def _consumed(self, metrics: Mapping[str, float]) -> None:
        """Evaluations consume too, and the last event of a run may be one."""
        self.state.totals |= {
            name: value
            for name, value in metrics.items()
            if name.startswith(("tokens/total/", "cost/total", "progress/"))
        }

    def _group_scored(self, event: GroupScored, now: float) -> None:
        state = self.state
        if group := state.groups.get(event.group):
            group.disposition, group.baseline = event.disposition, event.baseline
        step = state.step_view(event.step)
        normalizer = str(state.settings.get("loss_normalizer", "token"))
        signals = {
            name: signal(score.advantage, score.tokens, score.segments, normalizer)
            for name, score in event.trials.items()
        }
        if step is not None:
            step.signals[event.group] = sum(signals.values())
        unended = [name for name in event.trials if (t := state.trials.get(name)) and t.live]
        if unended:
            self._note(now, "error", ends_missing(event, unended))
        for name, score in event.trials.items():
            if trial := state.trials.get(name):
                trial.baseline, trial.advantage = event.baseline, score.advantage
                trial.tokens, trial.signal = score.tokens, signals[name]

    def _review_opened(self, event: ReviewOpened, now: float) -> None:
        until = None if event.timeout_sec is None else now + event.timeout_sec
        if event.step not in self.state.reviews:
            self._note(now, "info", f"step {event.step} waits for a review")
        review = ReviewView(event.step, now, event.groups, event.undecided, until)
        if self.state.paused:
            review.pause(now)
        self.state.reviews[event.step] = review

    def _policy_measured(self, event: PolicyMeasured, now: float) -> None:
        if self._drawn and event.sampled_tokens < self._drawn[-1][1]:
            # Another policy took the place of the one that was measured before.
            self._drawn = ()
        # One from before the window stays, to tell what came within it.
        old = [each for each in self._drawn if each[0] <= now - RATE_SEC]
        recent = [each for each in self._drawn if each[0] > now - RATE_SEC]
        self._drawn = (*old[-1:], *recent, (now, event.sampled_tokens))
        self.state.policy_now = PolicyView(
            event.activity,
            event.in_flight,
            event.running,
            event.completed,
            event.p50_sec,
            event.p95_sec,
            now,
            self._drawn,
            event.server,
        )

    def _policy_lost(self, event: PolicyLost, now: float) -> None:
        self.state.policy_lost = PolicyLostView(event.step, event.reason, now, now + event.wait_sec)
        self._note(now, "warning", f"policy lost at step {event.step}: {event.reason}")

    def _group_refilled(self, event: GroupRefilled, now: float) -> None:
        task = event.group
        if group := self.state.groups.get(event.group):
            group.refilled += len(event.trials)
            task = group.task
        fresh = f"{len(event.trials)} fresh trial{'s' if len(event.trials) != 1 else ''}"
        self._note(now, "info", f"{task}: the group had lost members and gets {fresh}")

    def _tasks_set_aside(self, event: TasksSetAside, now: float) -> None:
        if event.by == "preflight":
            self.state.unusable = {}
        self.state.unusable |= event.unusable
        if event.by == "trial":
            for task, reason in event.tasks.items():
                self._note(now, "warning", f"{task} is not tried again: {reason}")

    def _tasks_weighted(self, event: TasksWeighted, now: float) -> None:
        for name in event.tasks:
            if task := self.state.tasks.get(name):
                task.factor, task.pinned = event.factor, event.pinned
        which = event.tasks[0] if len(event.tasks) == 1 else f"{len(event.tasks)} tasks"
        why = f" ({event.reason})" if event.reason else ""
        words = weight_words(event.factor, event.pinned)
        self._note(now, "info", f"{which}: {words}, by {event.actor}{why}")

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
            event.command,
            event.verb,
            event.target,
            label,
            event.actor,
            event.reason,
            now,
            arguments=event.arguments,
        )
        if event.verb != "type":
            # Typed keys are listed only where they were refused: there are too many of them.
            self._list(view)
        state.pending[event.command] = view
        if trial is not None and trial.live and event.verb != "type":
            trial.pending = event.verb

    def _command_done(self, event: CommandDone, now: float) -> None:
        state = self.state
        view = state.pending.pop(event.command, None)
        result = event.result
        if view is not None:
            # By the name that the trial has on every screen.
            result = result.replace(view.target, view.label) if view.target else result
            view.done_at, view.ok, view.result = now, event.ok, result
            if view.verb == "type" and not event.ok:
                self._list(view)
            if trial := state.trials.get(view.target):
                others = [
                    each
                    for each in state.pending.values()
                    if each.target == view.target and each.verb != "type"
                ]
                trial.pending = others[-1].verb if others and trial.live else ""
        if not event.ok:
            what = "" if view is None else f"{verb_words(view.verb)} refused: "
            # The person who asked sees it at once; nobody else has to do anything about it.
            self._note(now, "info", f"{what}{result}")

    def _list(self, command: CommandView) -> None:
        self.state.commands.append(command)
        self.state.commands_listed += 1

    def _word(self, now: float, text: str) -> None:
        self._worded.add(text)
        self._note(now, "info", text)

    def _note(
        self, now: float, level: Literal["info", "warning", "error", "alarm"], text: str
    ) -> None:
        self.state.notes.append(Note(now, level, text))
        self.state.notes_made += 1
