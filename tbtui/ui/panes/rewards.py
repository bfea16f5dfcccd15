"""The reward histogram and the pass-rate curve."""

from __future__ import annotations

from collections.abc import Hashable

from textual.strip import Strip

from tbtui.ui.charts import Series, bar, curve, reward_bins
from tbtui.ui.draw import Span, row, split_row
from tbtui.ui.glyphs import LEFT_OUT_MARK
from tbtui.ui.pane import Frame, Pane
from tbtui.ui.text import rate
from tbtui.ui.theme import Palette
from tbtui.view.state import RunState


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
        chart_height = height - 2
        if chart_height < 2 or width < 16:
            return []
        latest = [line.points[-1][1] if line.points else None for line in series]
        head = row(
            width,
            (" • held out ", palette.held_out),
            (rate(latest[1]).strip(), palette.strong),
            ("   ⠤", palette.training),
            (" training ", palette.training),
            (rate(latest[0]).strip(), palette.text),
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
        return rows
