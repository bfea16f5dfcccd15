"""Compares a recorded step with itself under other settings, as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tbtui.algorithm.losses import LossSettings
from tbtui.algorithm.whatif import StepEffect, StepSettings, TrialEffect, recomputed, step_effect
from tbtui.config import RunConfig, parse_settings, to_json
from tbtui.journal.rundir import find_run
from tbtui.terminal import visible
from tbtui.whatif.recorded import RecordedGroup, RecordedStep, read_step

_ON_POLICY_GAP = 1e-3
"""Nats. Below it sampler and trainer had the same weights, and differ by rounding."""

CAVEAT = (
    "This shows one step's surrogate loss on the rollouts that were recorded, not what would have"
    " been learned: other settings lead to other weights, and those to other rollouts."
)


@dataclass(frozen=True, slots=True)
class WhatIfComparison:
    recorded: RecordedStep
    other: RunConfig
    trained: StepEffect
    instead: StepEffect
    notes: tuple[str, ...]
    """What the numbers assume and leave out, a sentence each."""


def compare(recorded: RecordedStep, changes: Mapping[str, object]) -> WhatIfComparison:
    """The step with the advantages that were trained with, and with its settings changed.

    `changes` are settings by name; None leaves one as it was.

    Raises:
        ConfigError: a change is not a value that the setting can have.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    read = to_json(parse_settings([f"{name}={value}" for name, value in given.items()]))
    update = {name: read[name] for name in given}
    other = recorded.config.replace(**update)
    trials = [group.trials for group in recorded.groups]
    settings = step_settings(other)
    return WhatIfComparison(
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
        advantage=config.advantage,
        normalizer=config.loss_normalizer,
        loss=LossSettings(config.loss_fn, config.clip_low, config.clip_high, config.dro_beta),
        min_group=config.min_group,
        remove_constant_reward_groups=config.remove_constant_reward_groups,
        train_summaries=config.train_summaries,
        train_abandoned=config.train_abandoned_calls,
        train_side_calls=config.train_side_calls,
    )


def settings_shown(config: RunConfig) -> dict[str, str | float]:
    """The settings that can be changed, as they are in force."""
    return {
        "loss_fn": config.loss_fn,
        "advantage": config.advantage,
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


_NUMBERS_WIDTH = 64
"""Cells that the table's columns of numbers take at most, the gaps before them included."""


def print_whatif(run: str, step: int | None, changes: Mapping[str, object], as_json: bool) -> None:
    """Print a recorded step beside the same step with changed settings.

    Raises:
        RunDirectoryError, JournalError, UserError: there is no such run or step.
        ConfigError: a change is not a value that the setting can have.
    """
    directory = find_run(run, parse_settings([]).logs_dir)
    comparison = compare(read_step(directory, step), changes)
    if as_json:
        sys.stdout.write(json.dumps(document(comparison), indent=1) + "\n")
    else:
        _print_table(Console(highlight=False), comparison)


def document(comparison: WhatIfComparison) -> dict[str, Any]:
    """The comparison as JSON, group by group, without the table's rounding."""
    recorded, trained, instead = comparison.recorded, comparison.trained, comparison.instead
    return {
        "run": recorded.run,
        "step": recorded.step,
        "settings": {
            "trained": settings_shown(recorded.config),
            "what_if": settings_shown(comparison.other),
        },
        "totals": {"trained": _totals(trained), "what_if": _totals(instead)},
        "trials": [
            {
                "trial": label,
                "task": group.task,
                "reward": trial.reward,
                "tokens": before.tokens,
                "trained": _numbers(before),
                "what_if": _numbers(after),
            }
            for group, befores, afters in zip(
                recorded.groups, trained.groups, instead.groups, strict=True
            )
            for label, trial, before, after in zip(
                group.labels, group.trials, befores, afters, strict=True
            )
        ],
        "measured": dict(recorded.metrics),
        "notes": [*comparison.notes, CAVEAT],
    }


def _totals(effect: StepEffect) -> dict[str, float | None]:
    return {
        "gradient": effect.signal,
        "learning_trials": effect.learning,
        "divisor": effect.divisor,
        "clip_fraction": effect.clip_fraction,
    }


def _numbers(effect: TrialEffect) -> dict[str, float | None]:
    return {
        "advantage": effect.advantage,
        "gradient": effect.signal,
        "share": effect.share,
        "clip_fraction": effect.clip_fraction,
    }


def _print_table(console: Console, comparison: WhatIfComparison) -> None:
    recorded, trained, instead = comparison.recorded, comparison.trained, comparison.instead
    console.print(Text(visible(f"Step {recorded.step} of {recorded.run}"), style="bold"))
    console.print(_settings_table(comparison))
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
        show_footer=True,
    )
    table.add_column("\ntrial", "all", no_wrap=True)
    table.add_column("\nreward", justify="right")
    table.add_column("\ntokens", justify="right")
    for title, effect in (("trained", trained), ("what if", instead)):
        table.add_column(
            f"{title}\nadvantage", f"{effect.learning} trained", justify="right", min_width=10
        )
        table.add_column("\nshare", _percent(1.0 if effect.signal else 0.0), justify="right")
        table.add_column("\nclip", _percent(effect.clip_fraction), justify="right")
    for group, befores, afters in zip(recorded.groups, trained.groups, instead.groups, strict=True):
        for row in _rows(group, befores, afters, max(8, console.width - _NUMBERS_WIDTH)):
            table.add_row(*row)
        table.add_section()
    console.print()
    console.print(table)
    console.print()
    console.print(
        f"Sum of |weight x advantage| over all tokens: {trained.signal:.4g} as trained,"
        f" {instead.signal:.4g} what if.\nDivisor of the loss: {trained.divisor:g} as trained,"
        f" {instead.divisor:g} what if.\n"
    )
    for note in comparison.notes:
        console.print(Text(visible(note), style="dim"))
    console.print()
    console.print(CAVEAT)


def _settings_table(comparison: WhatIfComparison) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    before = settings_shown(comparison.recorded.config)
    after = settings_shown(comparison.other)
    for name, value in before.items():
        changed = after[name] != value
        table.add_row(
            name,
            f"{value} -> {after[name]}" if changed else str(value),
            style="" if changed else "dim",
        )
    return table


def _rows(
    group: RecordedGroup,
    befores: Sequence[TrialEffect],
    afters: Sequence[TrialEffect],
    width: int,
) -> Iterable[Sequence[str | Text]]:
    """One for each trial, its name in `width` cells; a group with nothing to learn either way is
    one row."""
    rewards = {trial.reward for trial in group.trials}
    if len(rewards) == 1 and not any(effect.signal for effect in (*befores, *afters)):
        tokens = sum(effect.tokens for effect in befores)
        name = _name(group.task, f" (all {len(befores)})", width)
        yield (name, _number(rewards.pop()), str(tokens), *("0", _percent(0.0), "") * 2)
        return
    for label, trial, before, after in zip(
        group.labels, group.trials, befores, afters, strict=True
    ):
        task, slash, place = label.rpartition("/")
        yield (
            _name(task, slash + place, width),
            _number(trial.reward),
            str(before.tokens),
            *_cells(before),
            *_cells(after),
        )


def _name(task: str, place: str, width: int) -> Text:
    """A long task's name is cut; what tells its trials apart stays."""
    name = Text(visible(task))
    name.truncate(width - len(place), overflow="ellipsis")
    return name.append(visible(place))


def _cells(effect: TrialEffect) -> tuple[str, str, str]:
    if effect.advantage is None:
        return "left out", "", ""
    return f"{effect.advantage:+.3f}", _percent(effect.share), _percent(effect.clip_fraction)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{value:.1%}"
