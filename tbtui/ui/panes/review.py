"""The groups of a step under review, and the trials of the chosen group."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.invocation import to_type
from tbtui.ui.drawing.group_rows import SiblingStrip, distinct_width, name_cell
from tbtui.ui.drawing.rows import Span, row
from tbtui.ui.drawing.text import clip, clip_name, number, rate, visible, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.pane import Frame, Pane
from tbtui.ui.selection import ReviewCursor
from tbtui.ui.theme.glyphs import LEFT_OUT_MARK, RELABELLED_MARK, SUSPECT_MARK, trial_glyph
from tbtui.ui.theme.palette import Palette
from tbtui.view.review import ReviewedGroup, ReviewedTrial
from tbtui.view.state import ReviewView
from tbtui.view.waiting import doing, duration

_NOTHING = {
    "constant": "no signal: all equal",
    "short": "too few rewards: dropped",
}
_NARROW_GLYPHS = 34
"""Cells of a group's rewards in a small window."""
_TASK = 13
"""Cells of a task's name in a small window, or as many as names need to differ."""


def reward_cell(trial: ReviewedTrial, palette: Palette) -> tuple[Span, Span]:
    """Return the trial's reward as a glyph, and its state in the review as a mark."""
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
        """The chosen trial is to be opened."""

    def __init__(self, id: str, cursor: ReviewCursor) -> None:
        super().__init__(id)
        self.cursor = cursor
        self.review: ReviewView | None = None
        self._glyphs_at = 0
        self._strip = SiblingStrip(0, 2)

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
        self._header = int(self.review is not None)
        if self.review is None:
            return _nothing(frame, width)
        palette, groups = frame.palette, self.cursor.groups
        members = max((len(each.trials) for each in groups), default=0)
        room = _NARROW_GLYPHS if width < 110 else width // 2
        each = 2 if 2 * members <= room else 1
        self._strip = SiblingStrip(max(8, min(room, each * members)), each)
        names = tuple(visible(group.task) for group in groups)
        task = distinct_width(names, 23 if width >= 110 else _TASK) + 1
        self._glyphs_at = task + 2
        heads = [("task", task), ("siblings", self._strip.cells + 1), ("mean", 5), ("±", 7)]
        heads += [("advantage", 15), ("gradient", 9)]
        rows = [
            row(
                width,
                ("  ", None),
                *((f"{name:<{cells}}", palette.faint) for name, cells in heads),
                ("suspects", palette.faint),
            )
        ]
        rows += [self._row(group, palette, width, task) for group in groups]
        return rows

    def _row(self, group: ReviewedGroup, palette: Palette, width: int, task: int) -> Strip:
        chosen = self.cursor.group is group
        spans: list[Span] = [
            ("▸ " if chosen else "  ", palette.accent),
            (
                name_cell(group.task, task - 1) + " ",
                palette.strong if chosen else palette.text,
            ),
        ]
        siblings = [reward_cell(trial, palette) for trial in group.trials]
        spans += self._strip.spans(siblings, self._chosen_of(group), palette)
        spans.append((f" {rate(group.mean):<5}", palette.strong))
        spread = group.spread
        shown = "–" if spread is None else f"±{number(spread)}"
        spans.append((f"{shown:<7}", palette.muted))
        if (ends := group.advantages) is not None:
            low, high = ends
            spans.append((f"{f'{low:+.2f} {high:+.2f}':<15}", palette.text))
            spans.append((f"{f'{group.share:.0%}':<9}", palette.strong))
        else:
            spans.append((f"{_NOTHING.get(group.disposition, 'nothing'):<24}", palette.muted))
        spans += _suspects(group, palette)
        return row(width, *spans, base=palette.on_raised if chosen else None)

    def _chosen_of(self, group: ReviewedGroup) -> int | None:
        """The place of the chosen trial, if it is one of the group's."""
        if self.cursor.group is not group or self.cursor.trial is None:
            return None
        return group.trials.index(self.cursor.trial)

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
        at = place.x - self._glyphs_at
        index = self._strip.at(at, len(group.trials), self._chosen_of(group))
        self.cursor.choose(group.group, None if index is None else group.trials[index].name)
        self.redraw()
        if event.chain > 1:
            self.post_message(self.Opened())


def _counts(trial: ReviewedTrial) -> bool:
    """Whether it would be trained on: equal rewards give no gradient."""
    return trial.share is not None


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
    """Explain what a review is, and how to turn reviews on."""
    state, palette = frame.state, frame.palette
    setting = str(state.settings.get("review", "off"))
    texts: list[tuple[str, Style]] = [("No step waits for a review.", palette.strong)]
    if (last := state.review_closed) is not None:
        stamp = time.strftime("%H:%M:%S", time.localtime(last.closed_at))
        texts.append(
            (f"The review of step {last.step} closed at {stamp}: {last.ending}.", palette.text)
        )
    texts += [
        ("", palette.muted),
        (
            "A review stops the run before an optimiser step. It shows the step's groups here, "
            "with suspicions about their rewards and what would be trained. Exclude trials, "
            "override rewards, start fresh trials; the step is trained when you accept it.",
            palette.muted,
        ),
        ("", palette.muted),
    ]
    if setting == "off":
        run = frame.run.directory.path
        set_it = to_type("ctl", "config", "set", "review=suspects", "--run", run)
        texts += [
            (
                "Reviews are off in this run. To review steps with suspect trials from now on:",
                palette.muted,
            ),
            (f"  {set_it}", palette.accent),
            ("To review every step of another run:", palette.muted),
            (f"  {to_type('run', 'review=always')}", palette.accent),
        ]
    else:
        which = {"suspects": "a step with suspect trials waits", "always": "each step waits"}
        texts.append(
            (f"This run has review={setting}: {which.get(setting, 'steps wait')}.", palette.muted)
        )
    if frame.run.replay is not None:
        key = frame.keys.name_of("replay-milestone")
        texts.append((f"{key} goes to the next milestone, such as a review.", palette.muted))
    return [
        row(width, (" ", None), (part, style))
        for text, style in texts
        for part in (wrap(text, min(100, width - 2)) if text else [""])
    ]


_LABEL, _OUTCOME = 14, 15
"""Cells of a trial's first columns where the window has no more."""
_ALL_COLUMNS = 78
"""Cells of all columns with these."""
_WORDS_BESIDE = 150
"""Columns from which on there is room beside a trial's figures for its suspicions."""


class ReviewedTrials(Pane):
    """One line a trial, and below it why it is suspect, excluded or relabelled."""

    BINDINGS = bindings("review-trials")
    EVERY = 1

    class Opened(Message):
        """The chosen trial is to be opened."""

    def __init__(self, id: str, cursor: ReviewCursor) -> None:
        super().__init__(id)
        self.cursor = cursor
        self._header = 1
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
        columns = ("reward", "advantage", "turns", "tokens", "gradient")
        longest = max(cell_len(each.label) for each in group.trials) + 1
        label = max(_LABEL, min(longest, _LABEL + width - _ALL_COLUMNS))
        heads = f"     {'trial':<{label}}{'outcome':<{_OUTCOME}}"
        heads += "".join(f"{name:>{len(name) + 2}}" for name in columns)
        rows = [row(width, (heads, palette.faint))]
        for each in group.trials:
            self._trials_at.append(len(rows))
            chosen = each is self.cursor.trial
            base = palette.on_raised if chosen else None
            figures, words = _figures(each, label, palette, chosen), _words(each, palette)
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


def _figures(each: ReviewedTrial, label: int, palette: Palette, chosen: bool) -> list[Span]:
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
        (f"{clip_name(each.label, label - 1):<{label}}", name_style),
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
    spans.append((f"{share:>10}", palette.muted if each.share is None else palette.strong))
    return spans


def _words(each: ReviewedTrial, palette: Palette) -> list[list[Span]]:
    """Its suspicions and the decisions on it, a line each."""
    view = each.trial
    lines: list[list[Span]] = []
    style = palette.attention if each.undecided else palette.muted
    body = palette.text if each.undecided else palette.muted
    for suspicion in each.suspicions:
        name = suspicion.suspect.words
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
                (view.exclusion_reason or "no reason given", palette.muted),
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
