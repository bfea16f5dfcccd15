"""Reads one training step from a run's journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.advantages import GroupAdvantages
from tbtui.algorithm.segments import Call, merge
from tbtui.algorithm.step import RewardSettings, longest_context, shaped
from tbtui.algorithm.whatif import RecordedTrial
from tbtui.config import RunConfig, read_config, settings
from tbtui.config.earlier import as_now
from tbtui.errors import UserError
from tbtui.journal.events import (
    GroupScored,
    RunContinued,
    RunStarted,
    SideCall,
    StepFinished,
    TrialFinished,
    TrialQueued,
    TrialScore,
    TurnAbandoned,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import SampleRecord

_KINDS = (
    "run_started",
    "run_continued",
    "trial_queued",
    "turn_abandoned",
    "side_call",
    "trial_finished",
    "group_scored",
    "step_finished",
)


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    task: str
    trials: tuple[RecordedTrial, ...]
    labels: tuple[str, ...]
    """Trials' labels, as on the screen: `copy-03/2`."""
    scored: GroupAdvantages
    """What was trained with, in the order of `trials`."""


@dataclass(frozen=True, slots=True)
class RecordedStep:
    run: str
    step: int
    config: RunConfig
    """The settings in force."""
    groups: tuple[RecordedGroup, ...]
    metrics: Mapping[str, float]
    """The step's metrics; empty if it has not finished."""


def read_step(run: RunDirectory, step: int | None) -> RecordedStep:
    """Step `step`, or the last one whose groups were scored.

    Raises:
        UserError: nothing was scored in that step.
        JournalError: the journal can't be read.
        ConfigError: the run's settings can't be.
    """
    with closing(JournalReader(run)) as reader:
        return _step(reader, _fold(reader), step)


@dataclass(slots=True)
class _Fold:
    """What is kept of the journal's events while it is read."""

    settings: dict[str, Any] = field(default_factory=dict)
    context_limit: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    abandoned: dict[str, set[int]] = field(default_factory=dict)
    sides: dict[str, set[int]] = field(default_factory=dict)
    """Trial -> turns whose answers the agent didn't take."""
    groups: dict[int, dict[str, GroupScored]] = field(default_factory=dict)
    settings_of: dict[int, dict[str, Any]] = field(default_factory=dict)
    finished: dict[int, StepFinished] = field(default_factory=dict)


def _fold(reader: JournalReader) -> _Fold:
    fold = _Fold()
    after = 0
    while entries := reader.read_kinds(_KINDS, after):
        after = entries[-1].seq
        for entry in entries:
            match entry.event:
                case RunStarted() as event:
                    fold.settings, fold.context_limit = event.settings, event.context_limit
                case RunContinued() as event:
                    fold.settings = event.settings
                case TrialQueued(purpose="train") as event:
                    fold.labels[event.trial] = event.label
                case TurnAbandoned() as event:
                    fold.abandoned.setdefault(event.trial, set()).add(event.turn)
                case SideCall() as event:
                    fold.sides.setdefault(event.trial, set()).add(event.turn)
                case TrialFinished() as event:
                    fold.turns[event.trial] = event.turns
                case GroupScored() as event:
                    fold.groups.setdefault(event.step, {})[event.group] = event
                    fold.settings_of[event.step] = fold.settings
                case StepFinished() as event:
                    fold.finished[event.step] = event
    return fold


def _step(reader: JournalReader, fold: _Fold, step: int | None) -> RecordedStep:
    if not fold.groups:
        raise UserError(f"{reader.run.path}: no group has been scored in this run yet")
    chosen = max(fold.groups) if step is None else step
    if chosen not in fold.groups:
        known = f"{min(fold.groups)} to {max(fold.groups)}"
        raise UserError(
            f"{reader.run.path}: step {chosen} has no scored groups; choose --step from {known}"
        )
    config = _config(reader, fold.settings_of[chosen])
    before = [number for number in fold.finished if number < chosen]
    circumstances = _Circumstances(
        config,
        config.context_limit or fold.context_limit,
        fold.finished[max(before)].weights_version if before else None,
    )
    groups = []
    for scored in fold.groups[chosen].values():
        trials = tuple(
            _trial(
                score,
                scored.disposition == "short",
                reader.samples(trial),
                fold.abandoned.get(trial, set()),
                fold.sides.get(trial, set()),
                reader.trained_logprobs(trial, chosen),
                fold.turns.get(trial),
                circumstances,
            )
            for trial, score in scored.trials.items()
        )
        labels = tuple(fold.labels.get(trial, trial) for trial in scored.trials)
        advantages = tuple(score.advantage for score in scored.trials.values())
        result = GroupAdvantages(scored.baseline, advantages, scored.disposition)
        groups.append(RecordedGroup(scored.task, trials, labels, result))
    metrics = fold.finished[chosen].metrics if chosen in fold.finished else {}
    return RecordedStep(reader.run.name, chosen, config, tuple(groups), metrics)


def _config(reader: JournalReader, recorded: Mapping[str, Any]) -> RunConfig:
    """Settings that an older run had not are as they were then: at their defaults."""
    now, _ = as_now(recorded)
    known = {name: value for name, value in now.items() if name in settings()}
    return read_config(known, f"{reader.run.path}: ")


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """Facts that the trials of a step have in common."""

    config: RunConfig
    context_limit: int
    """Tokens."""
    trainer: int | None
    """Version of the weights that were trained; None: the run's first, whichever that is."""


def _trial(
    score: TrialScore,
    short: bool,
    samples: Sequence[SampleRecord],
    abandoned: Set[int],
    sides: Set[int],
    trained: npt.NDArray[np.float32] | None,
    turns: int | None,
    step: _Circumstances,
) -> RecordedTrial:
    """`short`: its whole group was left out, which other settings may not do."""
    calls = tuple(
        Call(
            s.prompt_ids,
            s.completion_ids,
            s.of_model,
            s.weights_version,
            s.summary,
            abandoned=s.turn in abandoned,
            side=s.turn in sides,
        )
        for s in samples
    )
    reward = score.reward
    if score.advantage is None and not short:
        reward = None
    if reward is not None:
        penalties = RewardSettings(
            step.config.overlong_penalty, step.config.overlong_buffer, step.config.turn_penalty
        )
        reward = shaped(
            reward,
            len(calls) if turns is None else turns,
            longest_context(calls),
            step.context_limit,
            penalties,
        )
    trainer = _trainer_logprobs(samples, calls, trained, step)
    if trainer is not None:
        # As in training: what a sampler doesn't give is the trainer's.
        calls = tuple(
            replace(call, logprobs=np.where(np.isnan(call.logprobs), known, call.logprobs))
            for call, known in zip(calls, trainer, strict=True)
        )
    return RecordedTrial(reward, calls, trainer)


def _trainer_logprobs(
    samples: Sequence[SampleRecord],
    calls: Sequence[Call],
    trained: npt.NDArray[np.float32] | None,
    step: _Circumstances,
) -> tuple[npt.NDArray[np.float32], ...] | None:
    """As they were recorded; where nothing was trained, known only if they must be the sampler's of
    the model itself: with the sampler's weights."""
    if trained is not None:
        config, start = step.config, 0
        logprobs = [call.logprobs for call in calls]  # of what is masked, they count for nothing
        for segment in merge(
            calls, config.train_summaries, config.train_abandoned_calls, config.train_side_calls
        ):
            for number in segment.trained:
                length = len(calls[number].completion_ids)
                logprobs[number] = trained[start : start + length]
                start += length
        return tuple(logprobs) if start == len(trained) else None
    on_policy = step.config.num_substeps == 1 and all(
        not np.isnan(sample.of_model).any() and step.trainer in (None, sample.weights_version)
        for sample in samples
    )
    return tuple(sample.of_model for sample in samples) if on_policy else None
