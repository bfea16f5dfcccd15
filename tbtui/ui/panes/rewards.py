"""The histogram of rewards."""

from __future__ import annotations

from collections.abc import Hashable

from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.charts import Bin, bar, reward_bins
from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import rate
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.theme.glyphs import LEFT_OUT_MARK
from tbtui.view.listing import RewardRange


class RewardPane(Pane):
    """Rewards of the latest training trials. A chosen bar filters the grid."""

    BINDINGS = bindings("rewards")

    class Chosen(Message):
        """The grid is to show trials with these rewards; None: all."""

        def __init__(self, rewards: RewardRange | None) -> None:
            super().__init__()
            self.rewards = rewards

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._bins: list[Bin] = []
        self._chosen: RewardRange | None = None
        """What was chosen, among bars that may have been others."""

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
        self._chosen = frame.listing.filter.rewards
        places = self._places
        most = max(each.count for each in bins)
        label = max(len(each.label) for each in bins)
        room = max(1, width - 7 - label)
        rows = []
        for place, each in enumerate(bins):
            chosen = place in places
            dim = bool(places) and not chosen
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
        """Choose the bar so many further down; beyond the ends, none."""
        if not self._bins:
            return
        # From none it is as from beyond the ends.
        places = self._places or [len(self._bins), -1]
        self._choose(places[-1] + bars if bars > 0 else places[0] + bars)

    @property
    def _places(self) -> list[int]:
        """Places of the chosen bars: a chosen one may have split."""
        if self._chosen is None:
            return []
        return [place for place, each in enumerate(self._bins) if each.value in self._chosen]

    def _choose(self, place: int) -> None:
        rewards = None
        if 0 <= place < len(self._bins):
            chosen = self._bins[place]
            rewards = RewardRange(chosen.label, chosen.low, chosen.high)
        self.post_message(self.Chosen(rewards))

    def on_click(self, event: events.Click) -> None:
        at = self.place_of(event)
        if at is not None and at.y < len(self._bins):
            self._choose(-1 if at.y in self._places else at.y)


def left_out_spans(frame: Frame, width: int) -> list[Span]:
    """Count the training trials that are not trained on, by reason; abbreviated where narrow."""
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
