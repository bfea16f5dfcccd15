"""The arms of a probe: how far each is, what came of it, and what to run next."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from textual.strip import Strip

from tbtui.journal.events import ArmMeasured, ProbeMeasured, ProbeStarted
from tbtui.ui.drawing.rows import Span, pair, row, sentence
from tbtui.ui.drawing.text import rate
from tbtui.ui.panes.pane import Frame
from tbtui.ui.theme.palette import Palette
from tbtui.view.probe import (
    arms_done,
    budget_left,
    closing,
    head,
    judge,
    next_command,
    readable_share,
    rows,
)

_ALL_COLUMNS = 78
"""Cells from which on the whole table has room."""


def probe_key(frame: Frame) -> Hashable:
    """What the rows of a probe depend on."""
    state = frame.state
    seconds = 0 if state.status else int(frame.now - (state.started_at or frame.now))
    rounds = 0 if state.probed is None else state.probed.rounds
    return rounds, state.trials_finished, state.status, seconds


def probe_rows(frame: Frame, width: int) -> list[Strip]:
    """Draw the arms; at the end the verdict and the next command."""
    state, palette = frame.state, frame.palette
    started, measured = state.probe, state.probed
    assert started is not None
    wide = width >= _ALL_COLUMNS and measured is not None
    drawn = [*(_table(measured, width, palette) if wide and measured else ())]
    if not wide or state.status is None:
        drawn += _arms(frame, started, measured, width)
    for text in closing(measured, state.settings) if measured and wide else ():
        drawn += sentence(f" {text}", palette.muted, width)
    if left := budget_left(state, frame.now):
        drawn.append(pair(width, palette, "budget", (left, palette.text)))
    if measured is not None and measured.stopped:
        verdict = judge(measured.arms, state.settings, started.untried)
        style = palette.good if verdict.goes else palette.attention
        drawn += sentence(f" {verdict.why}", style, width)
        drawn += sentence(f" {next_command(verdict, started, state.settings)}", palette.text, width)
    return drawn


def _arms(
    frame: Frame, started: ProbeStarted, measured: ProbeMeasured | None, width: int
) -> Iterator[Strip]:
    """A row for each arm with its trials so far, and one with its figures."""
    state, palette = frame.state, frame.palette
    known: Sequence[ArmMeasured | None] = measured.arms if measured else (None,) * len(started.arms)
    for place, (arm, found) in enumerate(zip(started.arms, known, strict=True), 1):
        done, total = arms_done(state, place), len(started.tasks) * started.trials
        name = f"p{place} {arm.agent}@{arm.temperature:g}"
        yield pair(width, palette, name, (f"{done}/{total}", palette.text))
        if found is not None and width < _ALL_COLUMNS:
            yield row(width, ("  ", None), *_figures(found, palette))


def probe_summary(frame: Frame, width: int) -> list[Strip]:
    """Draw two rows: how the run would be, and the best of what was tried beside it."""
    state, palette = frame.state, frame.palette
    started, measured = state.probe, state.probed
    assert started is not None
    numbered = list(enumerate(measured.arms if measured is not None else started.arms, 1))
    plan, others = numbered[0], numbered[1:]
    if measured is not None:
        others.sort(key=lambda each: _rank(measured.arms[each[0] - 1]), reverse=True)
    drawn = []
    for name, shown in (("as asked", [plan]), ("best other", others[:1])):
        spans: list[Span] = [(f" {name:<11}", palette.muted)]
        for place, arm in shown:
            spans.append((f"p{place} {arm.agent}@{arm.temperature:g}  ", palette.text))
            if isinstance(arm, ArmMeasured):
                spans += _figures(arm, palette)
            else:
                spans.append(("after the first round", palette.faint))
        drawn.append(row(width, *(spans if shown else [*spans, ("none is tried", palette.faint)])))
    return drawn


def _rank(arm: ArmMeasured) -> tuple[float, float, float]:
    passed = arm.pass_at.get(1)
    signal = arm.signal.value if arm.signal else 0.0
    return signal, passed.value if passed else 0.0, readable_share(arm)


def _figures(arm: ArmMeasured, palette: Palette) -> list[Span]:
    passed, signal = arm.pass_at.get(1), arm.signal
    spans: list[Span] = [
        (rate(passed.value if passed else None).strip(), palette.text),
        (" pass@1 ", palette.muted),
        (rate(signal.value if signal else None).strip(), palette.text),
        (" signal ", palette.muted),
    ]
    if arm.readable is not None and arm.answers:
        spans += [(f"{readable_share(arm):.0%}", palette.text), (" read", palette.muted)]
    return spans


def _table(measured: ProbeMeasured, width: int, palette: Palette) -> Iterator[Strip]:
    names, cells = head(measured), rows(measured)
    sizes = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    for place, line in enumerate((names, *cells)):
        style = palette.text if place else palette.muted
        text = " ".join(
            f"{cell:<{size}}" if index == 0 else f"{cell:>{size}}"
            for index, (cell, size) in enumerate(zip(line, sizes, strict=True))
        )
        yield row(width, (f" {text}", style))
