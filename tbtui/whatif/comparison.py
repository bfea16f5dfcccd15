"""A recorded step as it was trained, beside the same step under other settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tbtui.algorithm.losses import LossSettings
from tbtui.algorithm.whatif import StepEffect, StepSettings, recomputed, step_effect
from tbtui.config import RunConfig, parse_settings, to_json
from tbtui.whatif.recorded import RecordedStep

_ON_POLICY_GAP = 1e-3
"""Nats. Below it sampler and trainer had the same weights, and differ by rounding."""

CAVEAT = (
    "This shows one step's surrogate loss on the rollouts that were recorded, not what would have"
    " been learned: other settings lead to other weights, and those to other rollouts."
)


@dataclass(frozen=True, slots=True)
class Comparison:
    recorded: RecordedStep
    other: RunConfig
    trained: StepEffect
    instead: StepEffect
    notes: tuple[str, ...]
    """What the numbers assume and leave out, a sentence each."""


def compare(recorded: RecordedStep, changes: Mapping[str, object]) -> Comparison:
    """The step with the advantages that were trained with, and with its settings changed.

    `changes` are settings by name; None leaves one as it was.

    Raises:
        ConfigError: a change is not a value that the setting can have.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    read = to_json(parse_settings([f"{name}={value}" for name, value in given.items()]))
    update = {name: read[name] for name in given}
    if "advantage" in update:
        update["normalize_advantages_by_std"] = False
    other = recorded.config.replace(**update)
    trials = [group.trials for group in recorded.groups]
    settings = step_settings(other)
    return Comparison(
        recorded,
        other,
        step_effect(
            trials, [group.scored for group in recorded.groups], step_settings(recorded.config)
        ),
        step_effect(trials, recomputed(trials, settings), settings),
        _notes(recorded),
    )


def step_settings(config: RunConfig) -> StepSettings:
    return StepSettings(
        advantage=config.advantage_method,
        normalizer=config.loss_normalizer,
        loss=LossSettings(config.loss_fn, config.clip_low, config.clip_high, config.dro_beta),
        min_group=config.min_group,
        remove_constant_reward_groups=config.remove_constant_reward_groups,
        train_summaries=config.train_summaries,
    )


def settings_shown(config: RunConfig) -> dict[str, str | float]:
    """The settings that can be changed, as they are in force."""
    return {
        "loss_fn": config.loss_fn,
        "advantage": config.advantage_method,
        "loss_normalizer": config.loss_normalizer,
        "clip_low": config.clip_low,
        "clip_high": config.clip_high,
    }


def _notes(recorded: RecordedStep) -> tuple[str, ...]:
    config = recorded.config
    trials = [trial for group in recorded.groups for trial in group.trials if trial.calls]
    unknown = sum(trial.trainer_logprobs is None for trial in trials)
    notes = []
    if recorded.metrics.get("optim/max_logprob_gap", 1.0) < _ON_POLICY_GAP:
        notes.append(
            "Sampled with the weights that were trained, so every ratio is 1: there the losses and"
            " their clip bounds have the same gradient, and nothing is clipped."
        )
    if unknown:
        notes.append(
            f"clip ?: {unknown} of {len(trials)} trials taught nothing and met other weights than"
            " they were sampled with, so the trainer's log-probabilities are not known; their"
            " shares take the ratio as 1."
        )
    measured = [
        f"{name.removeprefix('optim/')} {recorded.metrics[name]:.3g}"
        for name in ("optim/clip_fraction", "optim/kl_sample_train_v2", "optim/max_logprob_gap")
        if name in recorded.metrics
    ]
    if measured:
        notes.append(f"Measured when the step was trained: {', '.join(measured)}.")
    if config.overlong_penalty or config.turn_penalty:
        notes.append("Rewards are those that training saw, with their penalties taken off.")
    if config.num_substeps > 1:
        notes.append(f"Its {config.num_substeps} substeps are taken together here.")
    if config.kl_penalty_coef or config.importance_cap:
        notes.append("Left out: the reference penalty and the importance correction.")
    return tuple(notes)
