"""The trials of one group under review: what each would be trained with, and what is odd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import clip, clip_name, number, rate, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.panes.review import reward_cell
from tbtui.ui.selection import ReviewCursor
from tbtui.ui.theme.glyphs import LEFT_OUT_MARK, RELABELLED_MARK, SUSPECT_MARK
from tbtui.ui.theme.palette import Palette
from tbtui.view.review import ReviewedTrial
from tbtui.view.waiting import doing

_LABEL, _OUTCOME = 14, 15
_WORDS_BESIDE = 150
"""Columns from which on there is room beside a trial's figures for what is odd about it."""


class ReviewedTrials(Pane):
    """One line a trial, and below it why it is suspected, left out or has another reward."""

    BINDINGS = bindings("review-trials")
    EVERY = 1

    class Opened(Message):
        """Somebody wants to see the chosen trial."""

    def __init__(self, id: str, cursor: ReviewCursor) -> None:
        super().__init__(id)
        self.cursor = cursor
        self._trials_at: list[int] = []
        """Row of each trial."""

    def title(self, frame: Frame) -> str:
        if (group := self.cursor.group) is None:
            return "trials"
        outcomes = Counter(
            doing(each.trial) if each.trial is not None and not each.trial.live else "running"
            for each in group.trials
            if each.trial is not None
        )
        parts = [group.task, *(f"{count} {words}" for words, count in outcomes.most_common())]
        if group.baseline is not None:
            parts.append(f"baseline {rate(group.baseline).strip()}")
        return " · ".join(parts)

    def key(self, frame: Frame) -> Hashable:
        return frame.state.version, self.cursor.key, self.has_focus

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, group = frame.palette, self.cursor.group
        self._trials_at = []
        if group is None:
            return []
        columns = ("reward", "advantage", "turns", "tokens", "of step")
        heads = f"     {'trial':<{_LABEL}}{'outcome':<{_OUTCOME}}"
        heads += "".join(f"{name:>{len(name) + 2}}" for name in columns)
        rows = [row(width, (heads, palette.faint))]
        for each in group.trials:
            self._trials_at.append(len(rows))
            chosen = each is self.cursor.trial
            base = palette.on_raised if chosen else None
            figures, words = _figures(each, palette, chosen), _words(each, palette)
            beside = width >= _WORDS_BESIDE
            used = sum(len(text) for text, _ in figures) + 3 if beside else 5
            lines = [part for spans in words for part in _wrapped(spans, width - used - 1)]
            if beside and lines:
                rows.append(row(width, *figures, ("   ", None), *lines.pop(0), base=base))
            else:
                rows.append(row(width, *figures, base=base))
            rows += [row(width, (" " * used, None), *line, base=base) for line in lines]
        return rows

    def show(self, frame: Frame) -> None:
        before = self._key
        super().show(frame)
        group, trial = self.cursor.group, self.cursor.trial
        if before != self._key and group is not None and trial is not None:
            place = group.trials.index(trial)
            following = self._trials_at[place + 1 :]
            self.reveal((following[0] if following else len(self._rows)) - 1)
            self.reveal(self._trials_at[place])

    def action_trial(self, steps: int) -> None:
        self.cursor.move_trial(steps)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        place, group = self.place_of(event), self.cursor.group
        if place is None or group is None:
            return
        above = [index for index, start in enumerate(self._trials_at) if start <= place.y]
        if above and place.y < len(self._rows):
            self.cursor.choose(group.group, group.trials[above[-1]].name)
            self.redraw()
            if event.chain > 1:
                self.post_message(self.Opened())


def _figures(each: ReviewedTrial, palette: Palette, chosen: bool) -> list[Span]:
    glyph, mark = reward_cell(each, palette)
    view, score = each.trial, each.score
    reward = view.reward if view is not None else score.reward if score is not None else None
    outcome = doing(view) if view is not None else ""
    name_style = palette.strong if chosen else palette.text
    spans: list[Span] = [
        ("▸ " if chosen else "  ", palette.accent),
        glyph,
        mark,
        (" ", None),
        (f"{clip_name(each.label, _LABEL - 1):<{_LABEL}}", name_style),
        (f"{clip(outcome, _OUTCOME - 1):<{_OUTCOME}}", palette.muted),
    ]
    spans.append(
        (f"{'–':>8}", palette.faint)
        if reward is None
        else (f"{number(reward):>8}", palette.reward(reward))
    )
    if (advantage := each.advantage) is None:
        spans.append((f"{'–':>11}", palette.faint))
    else:
        style = palette.good if advantage > 0 else palette.bad if advantage < 0 else palette.muted
        spans.append((f"{f'{advantage:+.2f}':>11}", style))
    turns = str(view.turn) if view is not None else "–"
    spans.append((f"{turns:>7}", palette.text))
    spans.append((f"{'–' if score is None else f'{score.tokens:,}':>8}", palette.text))
    share = "–" if each.share is None else f"{each.share:.1%}"
    spans.append((f"{share:>9}", palette.muted if each.share is None else palette.strong))
    return spans


def _words(each: ReviewedTrial, palette: Palette) -> list[list[Span]]:
    """What is odd about it, and what was decided, a line each."""
    view = each.trial
    lines: list[list[Span]] = []
    style = palette.attention if each.undecided else palette.muted
    body = palette.text if each.undecided else palette.muted
    for suspicion in each.suspicions:
        name = suspicion.suspect.replace("_", " ")
        lines.append([(f"{SUSPECT_MARK} {name}: ", style), (suspicion.why, body)])
    if view is None:
        return lines
    if view.relabelled:
        was = "none" if view.verdict is None else number(view.verdict)
        head = f"{RELABELLED_MARK} relabelled, the verifier's reward was {was}: "
        lines.append([(head, palette.accent), (view.relabel_reason, palette.text)])
    if view.excluded:
        lines.append(
            [
                (f"{LEFT_OUT_MARK} left out: ", palette.muted),
                (view.exclusion_reason or "no reason was given", palette.muted),
            ]
        )
    elif not view.live and view.left_out is not None:
        mark = "!" if view.infrastructure else LEFT_OUT_MARK
        lines.append([(f"{mark} {view.left_out}: ", palette.muted), (view.reason, palette.muted)])
    return lines


def _wrapped(spans: list[Span], width: int) -> list[list[Span]]:
    """A head and the words after it in as many rows as they need; further ones are indented."""
    (head, head_style), (body, style) = spans
    parts = list(wrap(head + " ".join(body.split()), width - 2))
    lines: list[list[Span]] = []
    for index, part in enumerate(parts):
        if index == 0:
            lines.append([(part[: len(head)], head_style), (part[len(head) :], style)])
        else:
            lines.append([("  ", None), (part, style)])
    return lines
