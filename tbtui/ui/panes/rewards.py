"""The reward histogram and the pass-rate curve."""

from __future__ import annotations

from collections.abc import Hashable

from textual.strip import Strip

from tbtui.ui.charts import Series, bar, curve, reward_bins
from tbtui.ui.draw import Span, row, split_row
from tbtui.ui.glyphs import LEFT_OUT_MARK
from tbtui.ui.pane import Frame, Pane
from tbtui.ui.text import number, rate
from tbtui.ui.theme import Palette
from tbtui.view.state import RunState

STALENESS = "async/staleness_max"
"""Steps between the weights that drew a token and those that are trained on it, at most."""


class RewardPane(Pane):
    """How the latest training trials were rewarded."""

    def title(self, frame: Frame) -> str:
        count = len(frame.state.rewards)
        return f"reward, last {count}" if count else "reward"

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        return state.rollouts, tuple(state.rewards), tuple(state.left_out.items())

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, rewards = frame.palette, list(frame.state.rewards)
        if not rewards:
            return [row(width, (" after the first training trials", palette.faint))]
        bins = reward_bins(rewards, height - 2)
        most = max(each.count for each in bins)
        room = max(1, width - 10)
        rows = [
            row(
                width,
                (f" {each.label} ", palette.muted),
                (bar(each.count / most, room), palette.reward(each.low)),
                (f" {each.count}", palette.text),
            )
            for each in bins
        ]
        mean = sum(rewards) / len(rewards)
        rows.append(row(width, (" mean ", palette.muted), (rate(mean), palette.strong)))
        if any(frame.state.left_out.values()):
            rows.append(row(width, *left_out_spans(frame, width)))
        return rows


def left_out_spans(frame: Frame, width: int) -> list[Span]:
    """How many training trials have no part in training, by why; shorter where room is short."""
    palette, counts = frame.palette, frame.state.left_out
    lost, cancelled = counts["infrastructure"], counts["cancelled"]
    masked, excluded = counts["masked"], counts["excluded"]
    full = (
        (lost, "!", " lost", palette.infrastructure),
        (cancelled, "–", " cancelled", palette.muted),
        (masked, LEFT_OUT_MARK, " masked", palette.attention),
        (excluded, LEFT_OUT_MARK, " excluded", palette.attention),
    )
    short = (
        (lost, "!", " lost", palette.infrastructure),
        (cancelled, "–", "", palette.muted),
        (masked + excluded, LEFT_OUT_MARK, " left out", palette.attention),
    )
    spans: list[Span] = []
    for causes in (full, short):
        spans = [(f" {mark} {count}{word} ", style) for count, mark, word, style in causes if count]
        if sum(len(text) for text, _ in spans) <= width:
            break
    return spans


def pass_rate_series(state: RunState, palette: Palette) -> list[Series]:
    training = tuple(
        (float(step.step), step.mean_reward)
        for step in state.steps
        if step.mean_reward is not None and step.finished_at is not None
    )
    held_out = tuple(
        (float(each.step), each.pass_rate) for each in state.evals if each.pass_rate is not None
    )
    return [
        Series(training, palette.training),
        Series(held_out, palette.held_out, marks=True),
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


def last_step(state: RunState) -> float:
    """Where the curve's x axis ends."""
    done = max((step.step for step in state.steps), default=0)
    return float(max(1, state.max_steps, done))


class CurvePane(Pane):
    """Held-out pass rate, and the training reward, by step."""

    def title(self, frame: Frame) -> str:
        return "pass rate"

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        return len(state.evals), len(state.steps), state.step, state.max_steps

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        state, palette = frame.state, frame.palette
        series = pass_rate_series(state, palette)
        signals = self._signals(frame) if height >= 9 else []
        chart_height = height - 2 - bool(signals)
        if chart_height < 2 or width < 16:
            return []
        latest = [line.points[-1][1] if line.points else None for line in series]
        head = split_row(
            width,
            [
                (" • held out ", palette.held_out),
                (rate(latest[1]).strip(), palette.strong),
                (interval(state), palette.muted),
            ],
            [
                ("⠤ training ", palette.training),
                (f"{rate(latest[0]).strip()} ", palette.text),
            ],
        )
        labels = {0: "1.0", chart_height // 2: ".50", chart_height - 1: "0.0"}
        last = last_step(state)
        rows = [head]
        for index, spans in enumerate(curve(series, width - 6, chart_height, last)):
            rows.append(
                row(
                    width,
                    (f" {labels.get(index, ''):>3} ", palette.muted),
                    *spans,
                )
            )
        empty = not any(line.points for line in series)
        if empty:
            rows[1 + chart_height // 3] = row(
                width, (f" {'':>3} after the first evaluation", palette.faint)
            )
        rows.append(
            split_row(
                width,
                [("     0", palette.muted)],
                [(f"step {last:.0f} ", palette.muted)],
            )
        )
        if signals:
            rows.append(row(width, *signals))
        return rows

    def _signals(self, frame: Frame) -> list[Span]:
        """What else the latest evaluation and step say, each where it is known."""
        state, palette = frame.state, frame.palette
        known: list[list[Span]] = []
        if words := at_k(state):
            known.append([(words, palette.muted)])
        for name, metric in (("surprise", "optim/surprise"), ("KL", "optim/kl_sample_train_v2")):
            if (value := state.latest_metric(metric)) is not None:
                known.append([(f"{name} ", palette.muted), (_small(value), palette.text)])
        if stale := state.latest_metric(STALENESS):
            known.append([("stale ", palette.muted), (f"{stale:.0f}", palette.attention)])
        spans: list[Span] = []
        for each in known:
            spans += [(" · " if spans else " ", palette.faint), *each]
        return spans


def _small(value: float) -> str:
    """As `number`; what would be shown as zero though it is not is shown by its power of ten."""
    return number(value) if value == 0 or abs(value) >= 0.001 else f"{value:.0e}"
