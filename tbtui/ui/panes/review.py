"""The groups of a step under review: their rewards at a glance, and what would be trained."""

from __future__ import annotations

import time
from collections.abc import Hashable

from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import clip_name, number, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.selection import ReviewCursor
from tbtui.ui.theme.glyphs import LEFT_OUT_MARK, RELABELLED_MARK, SUSPECT_MARK, trial_glyph
from tbtui.ui.theme.palette import Palette
from tbtui.view.review import ReviewedGroup, ReviewedTrial
from tbtui.view.state import ReviewView
from tbtui.view.waiting import duration

_NOTHING = {
    "constant": "all equal: nothing to learn",
    "short": "too few left: dropped",
}
_NARROW_GLYPHS = 34
"""Cells of a group's rewards in a small window."""


def reward_cell(trial: ReviewedTrial, palette: Palette) -> tuple[Span, Span]:
    """The trial's reward as a glyph, and what is to be known about it as a mark."""
    view = trial.trial
    mark: Span = (" ", None)
    if view is not None:
        glyph = trial_glyph(view, palette)
        char, style = glyph.char, glyph.style
    else:
        reward = None if trial.score is None else trial.score.reward
        char = "·" if reward is None else "✓" if reward >= 1 else "✗" if reward <= 0 else "◐"
        style = palette.muted if reward is None else palette.reward(reward)
    if view is not None and view.excluded:
        return (char, palette.muted + Style(strike=True)), (LEFT_OUT_MARK, palette.muted)
    if view is not None and view.relabelled:
        mark = (RELABELLED_MARK, palette.accent)
    if trial.suspicions and (trial.undecided or mark[0] == " "):
        mark = (SUSPECT_MARK, palette.attention if trial.undecided else palette.muted)
    return (char, style), mark


class ReviewGroups(Pane):
    """A line for each group."""

    BINDINGS = bindings("review-groups")
    EVERY = 1

    class Opened(Message):
        """Somebody wants to see the chosen trial."""

    def __init__(self, id: str, cursor: ReviewCursor) -> None:
        super().__init__(id)
        self.cursor = cursor
        self.review: ReviewView | None = None
        self._glyphs_at = 0
        self._glyph_cells = 2

    def title(self, frame: Frame) -> str:
        review, state = self.review, frame.state
        if review is None:
            return "review"
        parts = [f"review of step {review.step}"]
        if len(state.reviews) > 1:
            others = ", ".join(str(step) for step in state.reviews if step != review.step)
            parts.append(f"step {others} waits too ({frame.keys.name_of('next-review')})")
        if undecided := len(review.undecided):
            parts.append(f"{undecided} undecided")
        if (left := review.left(frame.now)) is not None:
            parts.append(f"closes in {duration(left)}" + (", paused" if state.paused else ""))
        trials = [each for group in self.cursor.groups for each in group.trials]
        parts.append(f"trains on {sum(map(_counts, trials))} of {len(trials)} trials")
        return " · ".join(parts)

    def key(self, frame: Frame) -> Hashable:
        return frame.state.version, self.cursor.key, self.has_focus, self.review is None

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        if self.review is None:
            return _nothing(frame, width)
        palette, groups = frame.palette, self.cursor.groups
        members = max((len(each.trials) for each in groups), default=0)
        room = _NARROW_GLYPHS if width < 110 else width // 2
        self._glyph_cells = 2 if 2 * members <= room else 1
        cells = max(8, min(room, self._glyph_cells * members)) + 1
        task = min(24 if width >= 110 else 14, max((len(e.task) for e in groups), default=4) + 2)
        self._glyphs_at = task + 2
        heads = [("task", task), ("rewards", cells), ("spread", 7)]
        heads += [("advantages", 15), ("of step", 8)]
        rows = [
            row(
                width,
                ("  ", None),
                *((f"{name:<{cells}}", palette.faint) for name, cells in heads),
                ("suspects", palette.faint),
            )
        ]
        rows += [self._row(each, palette, width, task, cells) for each in groups]
        return rows

    def _row(
        self, group: ReviewedGroup, palette: Palette, width: int, task: int, cells: int
    ) -> Strip:
        chosen = self.cursor.group is group
        spans: list[Span] = [
            ("▸ " if chosen else "  ", palette.accent),
            (
                f"{clip_name(group.task, task - 1):<{task}}",
                palette.strong if chosen else palette.text,
            ),
        ]
        used = 0
        for trial in group.trials:
            pair = reward_cell(trial, palette)
            if used + self._glyph_cells >= cells:
                spans[-1] = ("…", palette.muted)
                break
            if chosen and trial is self.cursor.trial:
                pair = ((pair[0][0], palette.selected), (pair[1][0], palette.selected))
            spans += pair if self._glyph_cells == 2 else [_one_cell(pair)]
            used += self._glyph_cells
        spans.append((" " * (cells - used), None))
        spread = group.spread
        spans.append((f"{'–' if spread is None else number(spread):<7}", palette.muted))
        if (ends := group.advantages) is not None:
            low, high = ends
            spans.append((f"{f'{low:+.2f} … {high:+.2f}':<15}", palette.text))
            spans.append((f"{f'{group.share:.0%}':<8}", palette.strong))
        else:
            spans.append((f"{_NOTHING.get(group.disposition, 'nothing'):<23}", palette.muted))
        spans += _suspects(group, palette)
        return row(width, *spans, base=palette.on_raised if chosen else None)

    def show(self, frame: Frame) -> None:
        super().show(frame)
        if (group := self.cursor.group) is not None and self.review is not None:
            self.reveal(self.cursor.groups.index(group) + 1)

    def action_group(self, steps: int) -> None:
        self.cursor.move_group(steps)
        self.redraw()

    def action_sibling(self, steps: int) -> None:
        self.cursor.move_trial(steps)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        place = self.place_of(event)
        if place is None or self.review is None or not 0 < place.y <= len(self.cursor.groups):
            return
        group = self.cursor.groups[place.y - 1]
        index = (place.x - self._glyphs_at) // self._glyph_cells
        trial = group.trials[index].name if 0 <= index < len(group.trials) else None
        self.cursor.choose(group.group, trial)
        self.redraw()
        if event.chain > 1:
            self.post_message(self.Opened())


def _counts(trial: ReviewedTrial) -> bool:
    """Whether it would be trained on: rewards that are all equal teach nothing."""
    return trial.share is not None


def _one_cell(pair: tuple[Span, Span]) -> Span:
    """The mark, where there is one, in place of the glyph."""
    (char, style), (mark, mark_style) = pair
    return (char, style) if mark == " " else (mark, mark_style)


def _suspects(group: ReviewedGroup, palette: Palette) -> list[Span]:
    found = group.suspects
    if not found:
        return []
    style = palette.attention if group.undecided else palette.muted
    words = ", ".join(
        name.replace("_", " ") + (f" ×{count}" if count > 1 else "")
        for name, count in found.most_common()
    )
    trials = sum(bool(each.suspicions) for each in group.trials)
    return [
        (f"{SUSPECT_MARK}{trials} ", style),
        (words, palette.text if group.undecided else style),
    ]


def _nothing(frame: Frame, width: int) -> list[Strip]:
    """What a review is, and how a run comes to have some."""
    state, palette = frame.state, frame.palette
    setting = str(state.settings.get("review", "off"))
    texts: list[tuple[str, Style]] = [("No step waits for a review.", palette.strong)]
    if (last := state.review_closed) is not None:
        stamp = time.strftime("%H:%M:%S", time.localtime(last.closed_at))
        texts.append((f"Step {last.step} went on at {stamp}: {last.ending}.", palette.text))
    texts += [
        ("", palette.muted),
        (
            "A review is a stop before an optimiser step. The step's groups are shown here, with "
            "what is odd about their rewards and what would be trained. Leave trials out, give "
            "them another reward, have fresh ones made; the step is trained when you accept it.",
            palette.muted,
        ),
        ("", palette.muted),
    ]
    if setting == "off":
        texts += [
            (
                "This run has none. From now on, for the steps in which something is odd:",
                palette.muted,
            ),
            ("  tbtui ctl config set review=suspects", palette.accent),
            ("Or every step of another run:", palette.muted),
            ("  tbtui run review=always", palette.accent),
        ]
    else:
        which = {"suspects": "a step in which something is odd waits", "always": "each step waits"}
        texts.append(
            (f"This run has review={setting}: {which.get(setting, 'steps wait')}.", palette.muted)
        )
    if frame.run.replay is not None:
        key = frame.keys.name_of("replay-milestone")
        texts.append(
            (f"{key} goes on to the next milestone; reviews are among them.", palette.muted)
        )
    return [
        row(width, (" ", None), (part, style))
        for text, style in texts
        for part in (wrap(text, min(100, width - 2)) if text else [""])
    ]
