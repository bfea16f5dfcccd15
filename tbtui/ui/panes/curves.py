"""Curves by step: pass rates on one axis, and training's signals."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from textual.strip import Strip

from tbtui.ui.context import app_of
from tbtui.ui.drawing.charts import Series, axes, curve, scaled, value_range
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import number, rate
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.panes.probe import probe_key, probe_rows
from tbtui.ui.theme.palette import Palette
from tbtui.view.curves import (
    SIGNALS,
    Points,
    Signal,
    fences,
    held_out_intervals,
    held_out_rates,
    last_step,
    points,
    training_rates,
)
from tbtui.view.state import RunState

_LARGE = (60, 18)
"""Columns and rows from which on the charts have axes."""
_SIDE_BY_SIDE = 26
"""Columns that a small chart with axes needs."""
_INTERVAL_FITS = 36
"""Columns from which on the heading has room for the confidence interval."""
_COVERAGE_FITS = 62
"""Columns from which on it has room for what the rate leaves out, in words."""
_NOTHING = 1e-6
"""What sums of 32-bit numbers differ by."""
_ROWS_FOR_LINES = 12
"""Rows from which on the other signals have curves of one line each."""


class CurvePane(Pane):
    """Held-out pass rate, training reward and the other signals, by step; of a probe its arms."""

    def title(self, frame: Frame) -> str:
        return "curves" if frame.state.probe is None else "probe"

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        if state.probe is not None:
            return probe_key(frame)
        return len(state.evals), len(state.steps), state.step, state.max_steps, self._pinned

    @property
    def _pinned(self) -> tuple[str, ...]:
        """Metrics that a person has chosen on the chart screen."""
        return tuple(app_of(self).user.preferences.curves)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        if width < 16 or height < 4:
            return []
        if frame.state.probe is not None:
            return probe_rows(frame, width)
        known = _known(frame.state, self._pinned)
        if width >= _LARGE[0] and height >= _LARGE[1]:
            return _large(frame, known, width, height)
        lines = min(len(known), (height - 6) // 3) if height >= _ROWS_FOR_LINES else 0
        words = [] if lines or height < 9 else _in_words(frame, known)
        rows = _pass_rates(frame, width, height - lines - bool(words))
        if words:
            rows.append(row(width, *words))
        return rows + [_line(each, frame, width) for each in known[:lines]]


def pass_rate_series(state: RunState, palette: Palette) -> list[Series]:
    return [
        Series(training_rates(state), palette.training),
        Series(
            held_out_rates(state),
            palette.held_out,
            marks=True,
            band=held_out_intervals(state),
            band_style=palette.faint,
        ),
    ]


def interval(state: RunState) -> str:
    """` .60–.83`: where the held-out pass rate lies with 95% confidence; empty if unknown."""
    estimate = state.evals[-1].pass_at.get(1) if state.evals else None
    if estimate is None:
        return ""
    return f" {rate(estimate.low).strip()}–{rate(estimate.high).strip()}"


def at_k(state: RunState) -> str:
    """`pass@4 .88 .74–.95`, of the latest evaluation; empty where each task had one attempt."""
    pass_at = state.evals[-1].pass_at if state.evals else {}
    k = max(pass_at, default=1)
    if k == 1:
        return ""
    each = pass_at[k]
    numbers = [rate(value).strip() for value in (each.value, each.low, each.high)]
    return f"pass@{k} {numbers[0]} {numbers[1]}–{numbers[2]}"


def _known(state: RunState, pinned: Sequence[str]) -> list[Signal]:
    """Return the signals that the run has, the pinned ones first; else our own choice, without a
    staleness that is always none."""
    chosen = [
        next((each for each in SIGNALS if each.metric == name), Signal(_short(name), name, name))
        for name in pinned
        if state.latest_metric(name) is not None
    ]
    return chosen or [
        signal
        for signal in SIGNALS
        if (signal.whole and any(value for _, value in points(state, signal.metric)))
        or (not signal.whole and state.latest_metric(signal.metric) is not None)
    ]


def _short(metric: str) -> str:
    """A metric's name for a narrow place: its last part."""
    return metric.rpartition("/")[2].replace("_", " ")


def _head(frame: Frame, width: int) -> Strip:
    """The legend, with the latest values."""
    state, palette = frame.state, frame.palette
    training, held_out = training_rates(state), held_out_rates(state)
    left: list[Span] = [
        (" • held out ", palette.held_out),
        (rate(held_out[-1][1] if held_out else None).strip(), palette.strong),
    ]
    if width >= _INTERVAL_FITS:
        left.append((interval(state), palette.muted))
    latest = next((each for each in reversed(state.evals) if each.pass_rate is not None), None)
    if latest is not None and latest.held_out is not None and latest.held_out.share:
        # What the rate leaves out matters more than how sure it is.
        words = latest.held_out.coverage if width >= _COVERAGE_FITS else latest.held_out.share
        left[2:] = [(f" {words}", palette.attention)]
    if width >= _LARGE[0] and (words := at_k(state)):
        left.append((f"  {words}", palette.muted))
    right: list[Span] = [
        ("⠤ training ", palette.training),
        (f"{rate(training[-1][1] if training else None).strip()} ", palette.text),
    ]
    return split_row(width, left, right)


def _pass_rates(frame: Frame, width: int, height: int) -> list[Strip]:
    """Draw without axes: three labels on the left, the last step below."""
    state, palette = frame.state, frame.palette
    series = pass_rate_series(state, palette)
    chart = max(1, height - 2)
    labels = {0: "1.0", chart // 2: ".50", chart - 1: "0.0"}
    last = last_step(state)
    rows = [_head(frame, width)]
    for index, spans in enumerate(curve(series, width - 6, chart, last)):
        rows.append(row(width, (f" {labels.get(index, ''):>3} ", palette.muted), *spans))
    if not any(line.points for line in series):
        rows[1 + chart // 3] = row(width, (f" {'':>3} after the first evaluation", palette.faint))
    steps: list[Span] = [(f"step {last:.0f} ", palette.muted)]
    rows.append(split_row(width, [("     0", palette.muted)], steps))
    return rows


def _in_words(frame: Frame, signals: Sequence[Signal]) -> list[Span]:
    """Return the latest evaluation's and step's other figures, as far as known."""
    state, palette = frame.state, frame.palette
    known: list[list[Span]] = []
    if words := at_k(state):
        known.append([(words, palette.muted)])
    for signal in signals[:3]:
        style = palette.attention if signal.whole else palette.text
        known.append([(f"{signal.name} ", palette.muted), (_latest(signal, state), style)])
    spans: list[Span] = []
    for each in known:
        spans += [(" · " if spans else " ", palette.faint), *each]
    return spans


def _line(signal: Signal, frame: Frame, width: int) -> Strip:
    """Name, curve of one row, latest value."""
    state, palette = frame.state, frame.palette
    known = _points(state, signal)
    (low, high), _ = _ends(known)
    series = Series(scaled(known, low, high), palette.accent)
    style = palette.attention if signal.whole else palette.text
    name = f" {signal.name} "
    latest = f"{_latest(signal, state):<{max(1, 16 - len(name))}} "
    (spans,) = curve([series], max(1, width - 18), 1, last_step(state))
    return row(width, (name, palette.muted), (latest, style), *spans)


def _large(frame: Frame, signals: Sequence[Signal], width: int, height: int) -> list[Strip]:
    """Draw every chart with its axes: the pass rates above, the signals side by side below."""
    state, palette = frame.state, frame.palette
    known = signals[: width // _SIDE_BY_SIDE]
    upper = height - 1 - (max(6, (height - 1) * 2 // 5) if known else 0)
    series = pass_rate_series(state, palette)
    last = last_step(state)
    rows = [_head(frame, width)]
    chart = axes(series, width - 1, upper, last, (0.0, 1.0), palette.muted)
    rows += [row(width, *spans) for spans in chart]
    if not any(line.points for line in series):
        rows[upper // 2] = row(width, ("       after the first evaluation", palette.faint))
    if known:
        blocks = _columns(known, frame, width, height - len(rows))
        rows += [Strip.join(line) for line in zip(*blocks, strict=True)]
    return rows


def _columns(signals: Sequence[Signal], frame: Frame, width: int, height: int) -> list[list[Strip]]:
    count = len(signals)
    return [
        _chart(signal, frame, width // count + (place < width % count), height)
        for place, signal in enumerate(signals)
    ]


def _chart(signal: Signal, frame: Frame, width: int, height: int) -> list[Strip]:
    state, palette = frame.state, frame.palette
    known = _points(state, signal)
    ends, outliers = _ends(known)
    chart = axes(
        [Series(known, palette.accent)],
        width - 1,
        height - 1,
        last_step(state),
        ends,
        palette.muted,
    )
    head = row(
        width,
        (f" {signal.name} ", palette.text),
        (_latest(signal, state), palette.strong),
        (f"  {outliers} outlier{'s' * (outliers > 1)}" if outliers else "", palette.attention),
        (f"  {signal.meaning}", palette.faint),
    )
    return [head, *(row(width, *spans) for spans in chart)]


def _ends(known: Points) -> tuple[tuple[float, float], int]:
    """The ends of an axis for these points, and how many of them are outliers beyond it."""
    low, high = fences([value for _, value in known])
    kept = [value for _, value in known if low <= value <= high]
    return value_range(kept), len(known) - len(kept)


def _latest(signal: Signal, state: RunState) -> str:
    value = state.latest_metric(signal.metric)
    if value is None:
        return "–"
    return f"{value:.0f}" if signal.whole else _small(value)


def _points(state: RunState, signal: Signal) -> Points:
    """Return a signal's points without rounding errors, which would look like movement."""
    return tuple((step, _exact(value)) for step, value in points(state, signal.metric))


def _exact(value: float) -> float:
    """Return the value; zero where it is rounding error alone."""
    return 0.0 if abs(value) < _NOTHING else value


def _small(value: float) -> str:
    """Like `number`; what would be shown as zero though it is not is shown by its power of ten,
    unless that is rounding alone."""
    value = _exact(value)
    return number(value) if value == 0 or abs(value) >= 0.001 else f"{value:.0e}"
