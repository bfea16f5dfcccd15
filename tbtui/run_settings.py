"""What the app shows of a run's settings: the table, the defaults that follow the model, and what
another value would have made of the last recorded step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

from tbtui.config import (
    GROUPS,
    Setting,
    absolute,
    defaults_for,
    parse_settings,
    settings,
    to_json,
)
from tbtui.ui.services import SettingEntry

if TYPE_CHECKING:
    from tbtui.journal.rundir import RunDirectory
    from tbtui.whatif.report import WhatIfComparison

TRIED = frozenset({"loss_fn", "advantage", "loss_normalizer", "clip_low", "clip_high"})
"""Settings whose effect on a recorded step can be computed."""
_MOST_MOVED = 3
"""Trials that are named: those whose share of the gradient changes most."""


class TableOfSettings:
    """Implements `tbtui.ui.services.RunSettings`."""

    @cached_property
    def entries(self) -> Sequence[SettingEntry]:
        return [
            _entry(settings()[name], heading) for heading, names in GROUPS.items() for name in names
        ]

    def text(self, name: str, value: Any) -> str:
        match value:
            case None:
                return "none"
            case bool():
                return str(value).lower()
            case float():
                return f"{value:g}"
            case list() | tuple():
                return ",".join(map(str, value))
            case dict():
                return " ".join(f"{entry}={self.text(name, it)}" for entry, it in value.items())
            case _:
                return str(value)

    def defaults(self, values: Mapping[str, Any]) -> Mapping[str, tuple[str, str]]:
        following = defaults_for(values)
        return {
            name: (self.text(name, following[name].value), following[name].why)
            if name in following
            else (row.default_text, "")
            for name, row in settings().items()
        }

    def value(self, name: str, text: str) -> Any:
        return to_json(absolute(parse_settings([f"{name}={text}"])))[name]

    def effect(self, run: RunDirectory, name: str, text: str) -> Sequence[str]:
        from tbtui.whatif.recorded import read_step
        from tbtui.whatif.report import compare

        return list(_effect(compare(read_step(run, None), {name: text})))


def _entry(row: Setting, heading: str) -> SettingEntry:
    unit = f" ({row.about.unit})" if row.about.unit else ""
    choices: tuple[str, ...] = ()
    if row.kind == "choice":
        choices = get_args(row.base)
    elif row.kind == "switch":
        choices = ("true", "false")
    if choices and row.optional:
        choices = (*choices, "none")
    return SettingEntry(
        name=row.name,
        heading=heading,
        meaning=row.about.meaning,
        why=row.about.why,
        kind=" ".join(filter(None, (row.type_text, row.bounds))) + unit,
        live=row.live.effect if row.live is not None else "",
        fixed=str(row.fixed) if row.fixed is not None else "",
        choices=choices,
        table=row.is_table,
        tried=row.name in TRIED,
    )


def _effect(comparison: WhatIfComparison) -> Iterator[str]:
    before, after = comparison.trained, comparison.instead
    yield f"Step {comparison.recorded.step} with it, as recorded:"
    yield f"trials with a gradient {before.learning} -> {after.learning}"
    yield f"sum of |weight x advantage| {before.signal:.4g} -> {after.signal:.4g}"
    if before.divisor != after.divisor:
        yield f"divisor of the loss {before.divisor:g} -> {after.divisor:g}"
    if before.clip_fraction is not None and after.clip_fraction is not None:
        yield f"tokens clipped {before.clip_fraction:.1%} -> {after.clip_fraction:.1%}"
    moved = [
        (abs(new.share - old.share), label, old.share, new.share)
        for group, olds, news in zip(
            comparison.recorded.groups, before.groups, after.groups, strict=True
        )
        for label, old, new in zip(group.labels, olds, news, strict=True)
    ]
    for change, label, old_share, new_share in sorted(moved, reverse=True)[:_MOST_MOVED]:
        if change >= 0.0005:
            yield f"share of {label} {old_share:.1%} -> {new_share:.1%}"
    yield "Other weights lead to other rollouts: this is one step, not what a run would learn."
