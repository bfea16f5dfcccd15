"""The reward histogram."""

from __future__ import annotations

from collections.abc import Hashable

from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.charts import Bin, bar, reward_bins
from tbtui.ui.draw import Span, row
from tbtui.ui.glyphs import LEFT_OUT_MARK
from tbtui.ui.keys import bindings
from tbtui.ui.pane import Frame, Pane
from tbtui.ui.text import rate
from tbtui.view.listing import RewardRange


class RewardPane(Pane):
    """How the latest training trials were rewarded. A chosen bar filters the grid."""

    BINDINGS = bindings("rewards")

    class Chosen(Message):
        """Only trials rewarded so are wanted; None: all."""

        def __init__(self, rewards: RewardRange | None) -> None:
            super().__init__()
            self.rewards = rewards

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._bins: list[Bin] = []
        self._chosen = ""
        """Label of the chosen bar."""

    def title(self, frame: Frame) -> str:
        count = len(frame.state.rewards)
        return f"reward, last {count}" if count else "reward"

    def key(self, frame: Frame) -> Hashable:
        state, chosen = frame.state, frame.listing.filter.rewards
        return state.rollouts, tuple(state.rewards), tuple(state.left_out.items()), chosen

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, rewards = frame.palette, list(frame.state.rewards)
        if not rewards:
            return [row(width, (" after the first training trials", palette.faint))]
        bins = self._bins = reward_bins(rewards, height - 2)
        wanted = frame.listing.filter.rewards
        self._chosen = wanted.label if wanted is not None else ""
        most = max(each.count for each in bins)
        label = max(len(each.label) for each in bins)
        room = max(1, width - 7 - label)
        rows = []
        for each in bins:
            chosen = each.label == self._chosen
            dim = bool(self._chosen) and not chosen
            rows.append(
                row(
                    width,
                    ("▸" if chosen else " ", palette.accent),
                    (f"{each.label:<{label}} ", palette.accent if chosen else palette.muted),
                    (
                        bar(each.count / most, room),
                        palette.faint if dim else palette.reward(each.value),
                    ),
                    (f" {each.count}", palette.text),
                )
            )
        mean = sum(rewards) / len(rewards)
        rows.append(row(width, (" mean ", palette.muted), (rate(mean), palette.strong)))
        if any(frame.state.left_out.values()):
            rows.append(row(width, *left_out_spans(frame, width)))
        return rows

    def action_choose(self, bars: int) -> None:
        """The bar so many further down; beyond the ends, none."""
        labels = [each.label for each in self._bins]
        if not labels:
            return
        if self._chosen in labels:
            place = labels.index(self._chosen) + bars
        else:
            place = 0 if bars > 0 else len(labels) - 1
        self._choose(place)

    def _choose(self, place: int) -> None:
        rewards = None
        if 0 <= place < len(self._bins):
            chosen = self._bins[place]
            rewards = RewardRange(chosen.label, chosen.low, chosen.high)
        self.post_message(self.Chosen(rewards))

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        if at is not None and at.y < len(self._bins):
            self._choose(-1 if self._bins[at.y].label == self._chosen else at.y)


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
