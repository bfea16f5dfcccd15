"""The fold of single trials' events into the run's state. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice

from tbtui.journal.events import (
    AnyEvent,
    HumanMessaged,
    HumanTyped,
    Outcome,
    PhaseSeconds,
    TrialExcluded,
    TrialFinished,
    TrialForked,
    TrialGivenBack,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialRelabelled,
    TrialResumed,
    TrialRetried,
    TrialTakenOver,
    TrialTraced,
    TurnObserved,
    TurnParsed,
    TurnSampled,
    TurnStarted,
    TurnWriting,
)
from tbtui.journal.hold import ENDED, FROZEN, PAUSED, RUNNING, typed_in
from tbtui.view.current import active_seconds, batches_under_way
from tbtui.view.state import (
    MAX_FINISHED_TRIALS,
    RECENT_REWARDS,
    TASK_DURATIONS,
    Duration,
    RunState,
    StepView,
    TrialView,
)
from tbtui.view.times import spend, spending_of
from tbtui.vocabulary import Purpose, is_paced


def _release(trial: TrialView, now: float) -> None:
    """End the time in which a pace has held the trial."""
    if trial.held_since is not None:
        trial.paused_sec += now - trial.held_since
        trial.held_since = None


def _batch(trial: TrialView) -> tuple[int, Purpose, str]:
    return trial.step, trial.purpose, "" if trial.purpose == "eval" else trial.group


class TrialFold:
    """Keeps a state's trials, and what is counted of them, up to date."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._requeued: dict[tuple[str, str], TrialView] = {}
        """Trials that were cut off with their process and start again, by group and label."""
        self._retries: dict[str, tuple[str, float]] = {}
        """Successor that is not queued yet -> the attempt it replaces, when it may start."""

    def apply(self, event: AnyEvent, now: float) -> bool:
        """Fold an event of a trial in; False: it is another kind of event."""
        match event:
            case TrialQueued():
                self._queued(event, now)
            case TrialPhaseChanged():
                self._phase(event, now)
            case TurnStarted():
                if trial := self._state.trials.get(event.trial):
                    trial.turn = event.turn
                    trial.writing, trial.drawn = "", 0
            case TurnWriting():
                if trial := self._state.trials.get(event.trial):
                    trial.writing = trial.writing * bool(event.before) + event.text
                    trial.drawn = event.before + event.tokens
            case TurnSampled():
                self._sampled(event, now)
            case TurnParsed():
                self._parsed(event)
            case TurnObserved():
                # Only who reads the trial itself needs it.
                pass
            case TrialFinished():
                self._finished(event, now)
            case TrialPaused() | TrialResumed() | TrialTakenOver() | TrialGivenBack():
                self._held(event, now)
            case HumanTyped() | HumanMessaged():
                if trial := self._state.trials.get(event.trial):
                    trial.touched = True
            case TrialForked():
                if trial := self._state.trials.get(event.trial):
                    trial.forked = event
            case TrialTraced():
                self._traced(event)
            case TrialRetried():
                self._retried(event, now)
            case TrialExcluded():
                self._excluded(event)
            case TrialRelabelled():
                self._relabelled(event)
            case _:
                return False
        return True

    def requeue(self, trials: Iterable[str], now: float) -> None:
        """Queue these again, which were cut off with their process.

        When the process died nobody knows, so none of their time is shown.
        """
        for name in trials:
            if trial := self._state.trials.get(name):
                self._requeued[trial.group, trial.label] = trial
                trial.started_at = None
                trial.spent.clear()
                trial.spent_until = now

    def leave_out(self, seconds: float) -> None:
        """Count so many seconds, which may be negative, as no work of the trials under way."""
        for trial in self._state.live_trials():
            trial.spent_until += seconds
            # A pause that is under way is left out as a whole when it ends.
            if not trial.hold.paused and trial.held_since is None:
                trial.paused_sec += seconds

    def _queued(self, event: TrialQueued, now: float) -> None:
        state = self._state
        trial = TrialView(
            trial=event.trial,
            label=event.label,
            task=event.task,
            group=event.group,
            step=event.step,
            purpose=event.purpose,
            attempt=event.attempt,
            budget_sec=event.budget_sec,
            parent=event.parent,
            fork_turn=event.fork_turn,
            queued_at=now,
            phase_since=now,
            spent_until=now,
        )
        trial.predecessor, trial.retry_at = self._retries.pop(event.trial, (None, None))
        if (cut_off := self._requeued.pop((event.group, event.label), None)) is not None:
            trial.predecessor, cut_off.successor = cut_off.trial, event.trial
        state.trials[event.trial] = trial
        if event.purpose == "train" and (step := self._step_of(trial)):
            step.queued += 1
        if task := state.tasks.get(event.task):
            task.live += 1
        if group := state.groups.get(event.group):
            group.trials.append(event.trial)
        self._drop_old_trials()

    def _drop_old_trials(self) -> None:
        """Drop the oldest trials with all of their groups: what is left of one would be counted as
        if it were all of it. An evaluation, which may try each task once, is one group here."""
        trials = self._state.trials
        surplus = len(trials) - MAX_FINISHED_TRIALS
        if surplus <= 0:
            return
        # Those of batches under way are counted, and shown whole.
        kept = batches_under_way(self._state)
        over = (
            trial
            for trial in trials.values()
            if not trial.live and (trial.step, trial.purpose) not in kept
        )
        for oldest in list(islice(over, surplus)):
            for trial in self._together_with(oldest):
                if trial.live:
                    continue
                del trials[trial.trial]
                group = self._state.groups.get(trial.group)
                if group and not any(member in trials for member in group.trials):
                    self._state.groups.pop(group.group)

    def _together_with(self, trial: TrialView) -> list[TrialView]:
        """Those of the trials whose figures are shown with this one's, itself among them."""
        trials = self._state.trials
        group = self._state.groups.get(trial.group)
        if group is not None and trial.purpose != "eval":
            return [trials[name] for name in group.trials if name in trials]
        return [each for each in trials.values() if _batch(each) == _batch(trial)]

    def _phase(self, event: TrialPhaseChanged, now: float) -> None:
        if not (trial := self._state.trials.get(event.trial)):
            return
        if trial.started_at is None and event.phase is not TrialPhase.QUEUED:
            trial.started_at = now
        _release(trial, now)
        trial.phase, trial.detail = event.phase, event.detail
        trial.answered = False
        if not trial.hold.paused:
            trial.phase_since = now
            spend(trial, spending_of(event.phase, event.detail), now)

    def _sampled(self, event: TurnSampled, now: float) -> None:
        if not (trial := self._state.trials.get(event.trial)):
            return
        if self._state.settings.get("pace_sec") and is_paced(trial.step, trial.purpose):
            trial.held_since = now
            spend(trial, "delayed", now)
            if self._state.timeline:
                self._state.timeline[-1].paced = True
        trial.turn = event.turn
        trial.answered = True
        trial.writing, trial.drawn = "", 0
        trial.last_text = event.text
        self._state.thinks |= bool(event.thinking)
        trial.completion_tokens += event.completion_tokens
        if event.sample is not None and event.mean_logprob is not None:
            trial.samples.append(event.sample)
            trial.logprob_sum += event.mean_logprob * event.completion_tokens
            trial.weights_version = event.weights_version

    def _parsed(self, event: TurnParsed) -> None:
        if not (trial := self._state.trials.get(event.trial)):
            return
        trial.unreadable += event.error is not None
        if event.commands:
            trial.last_command = " ".join(command.keystrokes.strip() for command in event.commands)

    def _held(
        self, event: TrialPaused | TrialResumed | TrialTakenOver | TrialGivenBack, now: float
    ) -> None:
        if not (trial := self._state.trials.get(event.trial)) or not trial.live:
            return
        before = trial.hold
        match event:
            case TrialPaused():
                trial.hold = FROZEN if event.frozen else PAUSED
            case TrialResumed():
                trial.hold = RUNNING
            case TrialTakenOver():
                trial.hold = typed_in(event.actor)
            case TrialGivenBack() if before.typist:
                trial.hold = PAUSED
        if trial.hold.paused:
            self._state.held = True
            _release(trial, now)
        if trial.hold.paused == before.paused:
            return
        if before.paused:
            trial.paused_sec += now - trial.phase_since
        trial.phase_since = now
        spending = "paused" if trial.hold.paused else spending_of(trial.phase, trial.detail)
        spend(trial, spending, now)

    def _finished(self, event: TrialFinished, now: float) -> None:
        state = self._state
        state.trials_finished += 1
        if not (trial := state.trials.get(event.trial)):
            return
        _release(trial, now)
        if trial.hold.paused:
            trial.paused_sec += now - trial.phase_since
        spend(trial, "teardown", now)
        trial.phase, trial.phase_since, trial.finished_at = TrialPhase.FINISHED, now, now
        trial.hold, trial.pending = ENDED, ""
        trial.outcome, trial.reason = event.outcome, event.reason
        trial.verdict, trial.reward = event.verdict, event.reward
        trial.turn, trial.seconds = event.turns, event.seconds
        if not event.outcome.infrastructure and trial.outcome is not Outcome.CANCELLED:
            self._remember_duration(trial, event.seconds, now)
        if task := state.tasks.get(trial.task):
            task.live -= 1
            if event.reward is None:
                task.unscored += 1
                task.lost += event.outcome.infrastructure
            else:
                task.scored += 1
                task.reward_sum += event.reward
                task.recent.append(event.reward)
                if trial.purpose == "train":
                    state.dataset_rewards.setdefault(
                        task.dataset, deque(maxlen=RECENT_REWARDS)
                    ).append(event.reward)
                latest = state.kind_rewards.setdefault(
                    (task.dataset, task.kind, trial.purpose),
                    deque(maxlen=RECENT_REWARDS),
                )
                latest.append(event.reward)
        if trial.purpose == "train":
            state.rollouts += trial.outcome is not Outcome.CANCELLED
            if step := self._step_of(trial):
                step.ended += 1
        self._count(trial)

    def _remember_duration(self, trial: TrialView, seconds: PhaseSeconds, now: float) -> None:
        # What was measured where it ran knows nothing of clocks that are set.
        active = seconds.active or active_seconds(trial, now)
        if active <= 0:
            return
        duration = Duration(trial.turn, active)
        self._state.durations.append(duration)
        self._state.task_durations.setdefault(trial.task, deque(maxlen=TASK_DURATIONS)).append(
            duration
        )

    def _traced(self, event: TrialTraced) -> None:
        if not (trial := self._state.trials.get(event.trial)):
            return
        if trial.step != event.step:
            self._uncount(trial)
            trial.step = event.step
            self._count(trial)
        if trial.group != event.group:
            trial.group = event.group
            if group := self._state.groups.get(event.group):
                group.trials.append(event.trial)
        trial.weights_version = event.weights_version
        if not event.calls:
            return
        trial.samples = [call.sample for call in event.calls]
        trial.completion_tokens = sum(call.completion_tokens for call in event.calls)
        trial.logprob_sum = sum(call.mean_logprob * call.completion_tokens for call in event.calls)

    def _retried(self, event: TrialRetried, now: float) -> None:
        self._retries[event.successor] = (event.trial, now + event.wait_sec)
        if trial := self._state.trials.get(event.trial):
            self._uncount(trial)
            trial.successor, trial.retry_reason = event.successor, event.reason
            trial.retry_at = now + event.wait_sec
            self._count(trial)
        if successor := self._state.trials.get(event.successor):
            successor.predecessor, successor.retry_at = self._retries.pop(event.successor)

    def _excluded(self, event: TrialExcluded) -> None:
        if trial := self._state.trials.get(event.trial):
            self._uncount(trial)
            trial.excluded = event.excluded
            trial.exclusion_reason = event.reason if event.excluded else ""
            self._count(trial)

    def _relabelled(self, event: TrialRelabelled) -> None:
        if trial := self._state.trials.get(event.trial):
            self._uncount(trial)
            trial.reward, trial.relabelled = event.reward, not event.taken_back
            trial.relabel_reason = "" if event.taken_back else event.reason
            self._count(trial)

    def _count(self, trial: TrialView) -> None:
        """Count a finished training trial among the rewards, or among what is left out."""
        state = self._state
        if trial.live or trial.purpose != "train":
            return
        step = self._step_of(trial)
        if (why := trial.left_out) is not None:
            state.left_out[why] += 1
            if step is not None:
                step.left_out[why] += 1
        elif trial.reward is not None:
            state.rewarded.append((trial.trial, trial.reward))
            if step is not None:
                step.rewards.append(trial.reward)
                step.outcomes.update([trial.outcome] if trial.outcome is not None else ())

    def _uncount(self, trial: TrialView) -> None:
        """Take back what `_count` did."""
        state = self._state
        if trial.live or trial.purpose != "train":
            return
        step = self._step_of(trial)
        if (why := trial.left_out) is not None:
            state.left_out[why] -= 1
            if step is not None:
                step.left_out[why] -= 1
        elif trial.reward is not None:
            # It may have left the latest ones, and others of its reward be among them.
            if (counted := (trial.trial, trial.reward)) in state.rewarded:
                state.rewarded.remove(counted)
            if step is not None and trial.reward in step.rewards:
                step.rewards.remove(trial.reward)
                step.outcomes.subtract([trial.outcome] if trial.outcome is not None else ())

    def _step_of(self, trial: TrialView) -> StepView | None:
        return self._state.step_view(trial.step)
