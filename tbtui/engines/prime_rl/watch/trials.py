"""Journals Prime-RL's rollouts as trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tbtui.engines.prime_rl.watch.formats import (
    Dispatch,
    Episode,
    FinishedTrial,
    Node,
    RolloutEnd,
    Timing,
    Trace,
    TraceCall,
    end_of,
    end_without_trace,
    identity_of,
    purpose_of,
    trial_name,
)
from tbtui.engines.prime_rl.watch.plugin_trials import PluginTrials
from tbtui.engines.prime_rl.watch.recorder import TraceRecorder
from tbtui.engines.prime_rl.watch.turns import Turn, turns_of
from tbtui.journal.events import (
    PhaseSeconds,
    TrialFinished,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialTraced,
    TurnObserved,
    TurnSampled,
    TurnStarted,
)
from tbtui.journal.reader import JournalReader

_UNKNOWN_BUDGET_SEC = 0.0
_MAY_BE_SHIPPED_STEPS = 8


@dataclass(slots=True)
class _Trial:
    """A trial under way."""

    step: int
    weights_version: int
    phase: TrialPhase = TrialPhase.QUEUED
    turns: int = 0
    """Already in the journal."""
    latest: float = 0.0
    """Time of its last event."""


class RolloutJournal:
    """Journals every rollout once, however often its record is read, and from which file."""

    def __init__(self, recorder: TraceRecorder, plugin_trials: PluginTrials) -> None:
        """`plugin_trials`: those that tbtui's plugin logs live."""
        self._recorder = recorder
        self._plugin_trials = plugin_trials
        self._live: dict[str, _Trial] = {}
        self._seen: set[str] = set()
        """Finished ones, and those that were already there."""
        self._members: Counter[str] = Counter()
        """Trials by group."""

    def restore(self, reader: JournalReader, done: int) -> list[tuple[str, FinishedTrial]]:
        """Restore what an earlier watcher journalled.

        Returns the trials that ended and may still be handed to the trainer, when step `done` was
        the last one trained.
        """
        hosted: dict[str, TrialFinished | None] = dict.fromkeys(self._plugin_trials.restore(reader))
        queued: dict[str, TrialQueued] = {}
        finished: list[tuple[str, FinishedTrial]] = []
        kinds = ("trial_queued", "trial_finished", "trial_traced")
        for entry in reader.each(kinds):
            match entry.event:
                case TrialQueued(trial=name) as begun:
                    queued[name] = begun
                    if name not in hosted:
                        self._members[begun.group] += 1
                case TrialFinished(trial=name) as end if name not in hosted:
                    self._seen.add(name)
                    begun = queued.pop(name)
                    if begun.step > done - _MAY_BE_SHIPPED_STEPS:
                        finished.append((name, _restored(reader, begun, end)))
                case TrialFinished(trial=name) as end:
                    hosted[name] = end
                case TrialTraced(trial=name) as traced if known := hosted.get(name):
                    begun = queued.pop(name)
                    if traced.step > done - _MAY_BE_SHIPPED_STEPS:
                        finished.append((name, _restored_traced(begun, known, traced)))
                case _:
                    pass
        for name in queued.keys() - hosted.keys():
            turns = reader.sampled(name, before=2**62)
            self._live[name] = _Trial(queued[name].step, 0, turns=turns)
        return finished

    @property
    def any(self) -> bool:
        """Whether there was a trial that only Prime-RL writes about."""
        return bool(self._seen or self._live)

    def name(self, trace: str) -> str:
        """The name of the trial with this trace."""
        return self._plugin_trials.find(trace) or trial_name(trace)

    def episode(self, episode: Episode, step: int) -> list[tuple[str, FinishedTrial]]:
        """Journal a finished episode of the batch `step`. Returns its new trials."""
        ended = []
        for trace in episode.traces:
            # A judge's trace is no attempt at the task.
            if not trace.agent.trainable:
                continue
            if (name := self._plugin_trials.find(trace.id)) is not None:
                if (known := self._plugin_trials.traced(name, episode, trace, step)) is not None:
                    ended.append((name, known))
            elif (name := trial_name(trace.id)) not in self._seen:
                with self._recorder.together():
                    ended.append((name, self._trace(name, episode, trace, step)))
        name = trial_name(episode.id)
        if not episode.traces and name not in self._seen:
            self._open(name, identity_of(episode), step)
            end = end_without_trace(episode.errors)
            self._finish(name, end, 0, PhaseSeconds(), self._live[name].latest)
            who = identity_of(episode)
            ended.append((name, FinishedTrial.of(who, step, end.outcome, end.reward, 0)))
        return ended

    def _trace(self, name: str, episode: Episode, trace: Trace, step: int) -> FinishedTrial:
        identity = identity_of(episode, trace)
        if name not in self._live:
            self._open(name, identity, step)
        trial = self._live[name]
        trial.weights_version = identity.policy_version
        self._advance(name, trace.nodes, trace.calls, trace.timing)
        end = end_of(trace)
        self._finish(name, end, trial.turns, _spent(trace.timing), _last_moment(trace.timing))
        tokens = sum(sum(node.mask) for node in trace.nodes)
        return FinishedTrial.of(identity, step, end.outcome, end.reward, tokens)

    def _open(self, name: str, identity: Dispatch, step: int) -> None:
        self._members[identity.group] += 1
        self._live[name] = trial = _Trial(step, identity.policy_version)
        trial.latest = identity.started or 0.0
        self._recorder.record(
            TrialQueued(
                trial=name,
                label=f"{identity.task}/{self._members[identity.group]}",
                task=identity.task,
                group=identity.group,
                step=step,
                purpose=purpose_of(identity.kind),
                budget_sec=_UNKNOWN_BUDGET_SEC,
            ),
            identity.started,
        )

    def _advance(
        self, name: str, nodes: Sequence[Node], calls: Sequence[TraceCall], timing: Timing
    ) -> None:
        """Journal the phases and the turns that are new."""
        self._reach(name, TrialPhase.SETUP, timing.boot.start or timing.setup.start)
        self._reach(name, TrialPhase.MODEL, timing.agent.start)
        for turn in turns_of(nodes, calls, self._live[name].turns):
            self._turn(name, turn)
        ending = timing.finalize.start or timing.scoring.start
        self._reach(name, TrialPhase.VERIFYING, ending)

    def _reach(self, name: str, phase: TrialPhase, at: float) -> None:
        order = (TrialPhase.QUEUED, TrialPhase.SETUP, TrialPhase.MODEL, TrialPhase.VERIFYING)
        trial = self._live[name]
        if at and order.index(phase) > order.index(trial.phase):
            trial.phase = phase
            event = TrialPhaseChanged(trial=name, phase=phase)
            self._recorder.record(event, self._moment(trial, at))

    def _turn(self, name: str, turn: Turn) -> None:
        trial = self._live[name]
        since, asked = trial.latest, self._moment(trial, turn.at - turn.seconds)
        if turn.goes_on and turn.observed:
            event = TurnObserved(
                trial=name,
                turn=turn.number - 1,
                observation=turn.observed,
                seconds=asked - since,
            )
            self._recorder.record(event, asked)
        self._recorder.record(TurnStarted(trial=name, turn=turn.number), asked)
        at = self._moment(trial, turn.at)
        sample = self._recorder.sample(
            turn.sample(name, turn.number, trial.weights_version, "turn", self._recorder.pieces)
        )
        self._recorder.record(
            TurnSampled(
                trial=name,
                turn=turn.number,
                sample=sample,
                text=turn.text,
                thinking=turn.thinking,
                prompt_tokens=turn.prompt_tokens,
                completion_tokens=turn.completion_tokens,
                mean_logprob=turn.mean_logprob,
                min_logprob=turn.min_logprob,
                stop_reason="length" if turn.stop_reason == "length" else "stop",
                weights_version=trial.weights_version,
                cached_tokens=turn.cached_tokens,
                seconds=turn.seconds,
            ),
            at,
        )
        trial.turns = turn.number

    def _finish(
        self, name: str, end: RolloutEnd, turns: int, spent: PhaseSeconds, at: float | None
    ) -> None:
        trial = self._live.pop(name)
        self._seen.add(name)
        self._recorder.record(
            TrialFinished(
                trial=name,
                outcome=end.outcome,
                reason=end.reason,
                verdict=end.verdict,
                reward=end.reward,
                turns=turns,
                seconds=spent,
            ),
            None if at is None else self._moment(trial, at),
        )
        self._recorder.forget(name)

    def _moment(self, trial: _Trial, at: float) -> float:
        """The time `at`, or that of the trial's last event if it is later."""
        trial.latest = max(trial.latest, at)
        return trial.latest


def _restored(reader: JournalReader, begun: TrialQueued, end: TrialFinished) -> FinishedTrial:
    turns = (entry.event for entry in reader.read_trial(begun.trial))
    tokens = sum(turn.completion_tokens for turn in turns if isinstance(turn, TurnSampled))
    # Which environment it was in is not in the journal.
    return FinishedTrial(
        "", begun.group, begun.task, begun.purpose, begun.step, end.outcome, end.reward, tokens
    )


def _restored_traced(begun: TrialQueued, end: TrialFinished, traced: TrialTraced) -> FinishedTrial:
    tokens = sum(call.completion_tokens for call in traced.calls)
    return FinishedTrial(
        "", traced.group, begun.task, begun.purpose, traced.step, end.outcome, end.reward, tokens
    )


def _last_moment(timing: Timing) -> float:
    spans = (timing.boot, timing.setup, timing.agent, timing.finalize, timing.scoring)
    return max(timing.start, *(max(span.start, span.end) for span in spans))


def _spent(timing: Timing) -> PhaseSeconds:
    """Seconds by phase, from the spans that verifiers records."""
    began = timing.boot.start or timing.setup.start or timing.agent.start or timing.start
    model = timing.agent.model.duration
    return PhaseSeconds(
        queue=max(0.0, began - timing.start) if timing.start else 0.0,
        build=_seconds(timing.boot.start, timing.boot.end),
        setup=_seconds(timing.setup.start, timing.setup.end),
        sampling=model,
        commands=max(0.0, _seconds(timing.agent.start, timing.agent.end) - model),
        verifying=_seconds(timing.scoring.start, timing.scoring.end),
        teardown=_seconds(timing.finalize.start, timing.finalize.end),
    )


def _seconds(start: float, end: float) -> float:
    return max(0.0, end - start) if end else 0.0
