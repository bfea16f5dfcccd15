"""Rollouts of Prime-RL's, finished or in flight, as trials in the journal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tbtui.engines.prime_rl.watch.outcomes import End, end_of, end_without_trace
from tbtui.engines.prime_rl.watch.recorder import Recorder
from tbtui.engines.prime_rl.watch.records import (
    Call,
    Delta,
    Dispatch,
    Episode,
    Node,
    Timing,
    Trace,
)
from tbtui.engines.prime_rl.watch.turns import Turn, turns_of
from tbtui.journal.events import (
    Outcome,
    PhaseSeconds,
    Purpose,
    TrialFinished,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TurnObserved,
    TurnSampled,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.samples import SampleRecord

_UNKNOWN_BUDGET_SEC = 0.0
_MAY_BE_SHIPPED_STEPS = 8
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._-]")
_MAX_NAME = 80


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
    nodes: list[Node] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    timing: Timing = field(default_factory=Timing)


@dataclass(frozen=True, slots=True)
class Ended:
    """What is remembered of a finished trial, to score its group."""

    env: str
    group: str
    task: str
    purpose: Purpose
    step: int
    outcome: Outcome
    reward: float | None
    tokens: int


class Trials:
    """Journals every rollout once, however often and wherever its record is met."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._live: dict[str, _Trial] = {}
        self._seen: set[str] = set()
        """Finished ones, and those that were already there."""
        self._members: Counter[str] = Counter()
        """Trials by group."""

    def restore(self, reader: JournalReader, done: int) -> list[tuple[str, Ended]]:
        """Know what an earlier watcher wrote. Returns the trials that ended and may still be
        handed to the trainer, when step `done` was the last one that was trained."""
        queued: dict[str, TrialQueued] = {}
        finished: list[tuple[str, Ended]] = []
        after = 0
        while entries := reader.read_kinds(("trial_queued", "trial_finished"), after):
            after = entries[-1].seq
            for entry in entries:
                if isinstance(event := entry.event, TrialQueued):
                    queued[event.trial] = event
                    self._members[event.group] += 1
                elif isinstance(event, TrialFinished):
                    self._seen.add(event.trial)
                    begun = queued.pop(event.trial)
                    if begun.step > done - _MAY_BE_SHIPPED_STEPS:
                        finished.append((event.trial, _restored(reader, begun, event)))
        for name, begun in queued.items():
            turns = reader.sampled(name, before=2**62)
            self._live[name] = _Trial(begun.step, 0, turns=turns)
        return finished

    @property
    def live(self) -> Sequence[str]:
        return tuple(self._live)

    def episode(self, episode: Episode, step: int) -> list[tuple[str, Ended]]:
        """A finished episode of the batch `step`: the trials that are new with it."""
        ended = []
        for trace in episode.traces:
            name = trial_name(trace.id)
            # A judge's trace is no attempt at the task.
            if trace.agent.trainable and name not in self._seen:
                ended.append((name, self._trace(name, episode, trace, step)))
        name = trial_name(episode.id)
        if not episode.traces and name not in self._seen:
            self._open(name, _identity(episode), step)
            end = end_without_trace(episode.errors)
            self._finish(name, end, 0, PhaseSeconds(), self._live[name].latest)
            ended.append((name, _ended(_identity(episode), step, end, 0)))
        return ended

    def delta(self, delta: Delta) -> None:
        """News of a rollout in flight."""
        name = trial_name(delta.trace)
        if name in self._seen:
            return
        if delta.dispatch is not None and name not in self._live:
            self._open(name, delta.dispatch, delta.dispatch.step)
        if (trial := self._live.get(name)) is None:
            return
        if delta.set is not None and delta.set.timing is not None:
            trial.timing = delta.set.timing
        trial.nodes += delta.nodes
        trial.calls += delta.calls
        self._advance(name, trial.nodes, trial.calls, trial.timing)

    def lost(self, name: str) -> None:
        """Its record in flight is gone, and none of a finished one came."""
        if (trial := self._live.get(name)) is not None:
            reason = "Prime-RL gave it up"
            end = End(Outcome.CANCELLED, reason, None, None)
            self._finish(name, end, trial.turns, PhaseSeconds(), None)

    def _trace(self, name: str, episode: Episode, trace: Trace, step: int) -> Ended:
        identity = _identity(episode, trace)
        if name not in self._live:
            self._open(name, identity, step)
        trial = self._live[name]
        trial.weights_version = identity.policy_version
        self._advance(name, trace.nodes, trace.calls, trace.timing)
        end, spent = end_of(trace), _spent(trace)
        self._finish(name, end, trial.turns, spent, _last_moment(trace.timing))
        tokens = sum(sum(node.mask) for node in trace.nodes)
        return _ended(identity, step, end, tokens)

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
                purpose=_purpose(identity.kind),
                budget_sec=_UNKNOWN_BUDGET_SEC,
            ),
            identity.started,
        )

    def _advance(
        self, name: str, nodes: Sequence[Node], calls: Sequence[Call], timing: Timing
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
        at = self._moment(trial, turn.at)
        if turn.goes_on and turn.observed:
            seconds = max(0.0, turn.at - turn.seconds - trial.latest)
            event = TurnObserved(
                trial=name, turn=turn.number - 1, observation=turn.observed, seconds=seconds
            )
            self._recorder.record(event, at)
        logprobs = turn.known_logprobs
        sample = self._recorder.sample(
            SampleRecord(
                trial=name,
                turn=turn.number,
                prompt_ids=turn.prompt_ids,
                completion_ids=turn.completion_ids,
                logprobs=turn.logprobs,
                # The ids are known, what they read as only the tokenizer knows.
                pieces=tuple(f"‹{token}›" for token in turn.completion_ids),
                prompt_text=turn.observed,
                stop_reason=turn.stop_reason,
                weights_version=trial.weights_version,
                temperature=turn.temperature,
                seconds=turn.seconds,
            )
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
                mean_logprob=float(logprobs.mean()) if logprobs.size else 0.0,
                min_logprob=float(logprobs.min()) if logprobs.size else 0.0,
                stop_reason="length" if turn.stop_reason == "length" else "stop",
                weights_version=trial.weights_version,
                cached_tokens=turn.cached_tokens,
                seconds=turn.seconds,
            ),
            at,
        )
        trial.turns = turn.number

    def _finish(
        self, name: str, end: End, turns: int, spent: PhaseSeconds, at: float | None
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
        """Never before the trial's last event."""
        trial.latest = max(trial.latest, at)
        return trial.latest


def trial_name(identity: str) -> str:
    """Prime-RL's own id, which is also a directory's name with us."""
    return _NOT_A_NAME.sub("_", identity).lstrip(".")[:_MAX_NAME] or "_"


def _purpose(kind: str) -> Literal["train", "eval"]:
    return "eval" if kind == "eval" else "train"


def _identity(episode: Episode, trace: Trace | None = None) -> Dispatch:
    work = episode.work
    return Dispatch(
        kind=work.type,
        env=episode.env.name or episode.env.id,
        group=episode.group.id if episode.group is not None else episode.id,
        task=(trace or episode).task.name,
        policy_version=work.policy.start if work.policy is not None else 0,
        step=work.step,
        started=trace.timing.start if trace is not None else None,
    )


def _ended(identity: Dispatch, step: int, end: End, tokens: int) -> Ended:
    return Ended(
        identity.env,
        identity.group,
        identity.task,
        _purpose(identity.kind),
        step,
        end.outcome,
        end.reward,
        tokens,
    )


def _restored(reader: JournalReader, begun: TrialQueued, end: TrialFinished) -> Ended:
    turns = (entry.event for entry in reader.read_trial(begun.trial))
    tokens = sum(turn.completion_tokens for turn in turns if isinstance(turn, TurnSampled))
    # Which environment it was in is not in the journal.
    return Ended(
        "", begun.group, begun.task, begun.purpose, begun.step, end.outcome, end.reward, tokens
    )


def _last_moment(timing: Timing) -> float:
    spans = (timing.boot, timing.setup, timing.agent, timing.finalize, timing.scoring)
    return max(timing.start, *(max(span.start, span.end) for span in spans))


def _spent(trace: Trace) -> PhaseSeconds:
    timing = trace.timing
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
