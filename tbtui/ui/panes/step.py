"""The panes of the latest steps: rewards, where the time went, notes with alarms."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message
from textual.strip import Strip

from tbtui.findings import Finding, Rule
from tbtui.outcomes import Outcome
from tbtui.ui.drawing.charts import Bin, bar, reward_bins
from tbtui.ui.drawing.rows import Span, row, sentence, split_row
from tbtui.ui.drawing.text import Name, rate, visible_lines, wrap
from tbtui.ui.input.keys import bindings
from tbtui.ui.panes.bars import with_key
from tbtui.ui.panes.pane import MOMENT, Frame, GrowingPane, Pane
from tbtui.ui.theme.glyphs import ALARM_MARK, LEFT_OUT_MARK
from tbtui.ui.theme.palette import Palette
from tbtui.view.listing import RewardRange
from tbtui.view.state import SPENDINGS, LeftOut, Spending, StepView
from tbtui.view.times import StepWait, remaining_sec, step_wait, time_left, time_shares
from tbtui.view.waiting import need_words, needs, unrewarded_words

if TYPE_CHECKING:
    from tbtui.view.diagnosis.rules import Diagnosis


class RewardPane(Pane):
    """Rewards of a step's trials. A chosen bar filters the grid."""

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
        step = frame.state.rewarded_step()
        if step is None:
            return "rewards"
        title = f"rewards of step {step.step}"
        live = step.queued - step.ended
        return f"{title} so far" if step.finished_at is None and live else title

    def key(self, frame: Frame) -> Hashable:
        state, chosen = frame.state, frame.listing.filter.rewards
        step = state.rewarded_step() or StepView(0, 0.0)
        ends = tuple(step.outcomes.items()), tuple(step.left_out.items())
        return step.step, tuple(step.rewards), ends, chosen, unrewarded_words(frame.state)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, step = frame.palette, frame.state.rewarded_step()
        if step is None:
            return sentence(f" {unrewarded_words(frame.state)}", palette.faint, width)
        rewards = step.rewards
        bins = self._bins = reward_bins(rewards, height - 2)
        self._chosen = frame.listing.filter.rewards
        places = self._places
        most = max(1, *(each.count for each in bins))
        label = max(len(each.label) for each in bins)
        room = max(1, width - 7 - label)
        rows = []
        mix = +step.outcomes
        beside = _mix_column(mix, len(bins) + 1) if width >= _MIX_WIDTH else []
        room -= max(map(len, beside), default=0)
        for place, each in enumerate(bins):
            chosen = place in places
            ending = beside[place] if place < len(beside) else ""
            dim = bool(places) and not chosen
            bar_spans: list[Span] = [
                ("▸" if chosen else " ", palette.accent),
                (f"{each.label:<{label}} ", palette.accent if chosen else palette.muted),
                (
                    bar(each.count / most, room),
                    palette.faint if dim else palette.reward(each.value),
                ),
                (f" {each.count}", palette.text),
            ]
            rows.append(split_row(width, bar_spans, [(ending, palette.muted)]))
        mean: list[Span] = [
            (" mean ", palette.muted),
            (rate(step.mean_reward), palette.strong),
            (f" of {len(rewards)}", palette.muted),
        ]
        rows.append(split_row(width, mean, [(each, palette.muted) for each in beside[len(bins) :]]))
        if any(step.left_out.values()):
            rows.append(row(width, *left_out_spans(step.left_out, palette, width)))
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


_MIX_WIDTH = 40
"""Columns from which on there is room for outcomes beside the bars."""


def _mix_column(mix: Counter[Outcome], rows: int) -> list[str]:
    """`19 failed`, the commonest outcome first; the last of the rows counts what has none."""
    ends = mix.most_common()
    named = ends if len(ends) <= rows else ends[: max(0, rows - 1)]
    lines = [f"{count} {outcome.replace('_', ' ')}" for outcome, count in named]
    if len(named) < len(ends) and rows:
        lines.append(f"{sum(count for _, count in ends[len(named) :])} other")
    cells = max(map(len, lines), default=0)
    return [f" {line:<{cells}} " for line in lines]


def left_out_spans(counts: Counter[LeftOut], palette: Palette, width: int) -> list[Span]:
    """Count the training trials that are not trained on, by reason; abbreviated where narrow."""
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


class TimesPane(Pane):
    """What the step waits for, and where the wall time of recent trials went."""

    EVERY = MOMENT

    def title(self, frame: Frame) -> str:
        wait = step_wait(frame.outlook)
        if wait is None:
            return "where trials' time went"
        return f"what step {wait.step} {'waits' if wait.live else 'waited'} for"

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        return state.trials_finished, state.phase, state.step, int(frame.now)

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, state = frame.palette, frame.state
        wait = step_wait(frame.outlook)
        trials = time_shares(state.trials.values())
        waited = wait.shares if wait is not None else {}
        if not trials and not waited:
            return sentence(" after the first trials", palette.faint, width)
        rows: list[Strip] = []
        if waited:
            heads: list[Span] = [("step", palette.faint), (" trials ", palette.faint)]
            rows.append(split_row(width, self._held_up_by(frame, wait), heads))
        shares = waited or trials
        names = [name for name in SPENDINGS if max(shares.get(name, 0), trials.get(name, 0)) > 0]
        names = _largest(names, shares, height - len(rows))
        room = max(1, width - (24 if waited else 17))
        longest = max(shares.values())
        for name in names:
            share = shares.get(name, 0.0)
            bar_spans: list[Span] = [
                (f" {name:<9} ", palette.muted),
                (bar(share / longest, room), palette.spending[name]),
            ]
            numbers: list[Span] = [(f"{share:.0%}", palette.text)]
            if waited:
                numbers.append((f"{trials.get(name, 0):>6.0%} ", palette.muted))
            rows.append(split_row(width, bar_spans, [*numbers, (" ", None)]))
        return rows

    def _held_up_by(self, frame: Frame, wait: StepWait | None) -> list[Span]:
        palette = frame.palette
        if wait is None or not wait.live:
            return []
        spans: list[Span] = []
        for trial in frame.outlook.holding_up[:2]:
            remaining = remaining_sec(trial, frame.state, frame.now)
            spans += [(" ", None), (Name(trial.label), palette.text)]
            if remaining is not None:
                spans.append((f" {time_left(remaining)}", palette.muted))
        return spans


def _largest(names: list[Spending], shares: dict[Spending, float], most: int) -> list[Spending]:
    """Return the largest names that fit, in their own order."""
    kept = sorted(names, key=lambda name: -shares.get(name, 0.0))[: max(1, most)]
    return [name for name in names if name in kept]


_NOTE_GLYPHS = {"info": "·", "warning": "▲", "error": "✗", "alarm": ALARM_MARK}


class NotesPane(GrowingPane):
    """Notes and alarms, newest last, and below them what holds now."""

    EVERY = MOMENT

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._diagnosis: Diagnosis | None = None

    def count(self, frame: Frame) -> int:
        return frame.state.notes_made

    def title(self, frame: Frame) -> str:
        state = frame.state
        warnings = sum(1 for note in state.notes if note.level in ("warning", "error"))
        title = f"alarms {ALARM_MARK}{state.alarms_raised} · notes" if state.alarms else "notes"
        title = f"{title} ▲{warnings}" if warnings else title
        count = len(self._costly(frame))
        key = frame.keys.name_of("diagnosis")
        return f"{title} · {key} {count} finding{'s' * (count != 1)}" if count else title

    def key(self, frame: Frame) -> Hashable:
        standing = [need_words(need, frame.outlook) for need in needs(frame.outlook)]
        return frame.state.notes_made, tuple(standing), self._finding(frame)

    def _finding(self, frame: Frame) -> str:
        """What costs the run most at every step, in a line; empty: nothing does."""
        costly = self._costly(frame)
        if not costly:
            return ""
        return f"{costly[0].line} · {frame.keys.name_of('diagnosis')} diagnosis"

    def _costly(self, frame: Frame) -> list[Finding]:
        """What blocks the run is among its needs."""
        if not frame.state.trials_finished:
            return []
        if self._diagnosis is None:
            # The first frame needs none of the rules.
            from tbtui.view.diagnosis.rules import Diagnosis

            self._diagnosis = Diagnosis()
        found = self._diagnosis.at(frame.outlook)
        return [each for each in found if each.severity == "costs"]

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, standing = frame.palette, needs(frame.outlook)
        finding = self._finding(frame)
        if not frame.state.notes and not standing and not finding:
            return [row(width, (" no alerts", palette.faint))]
        rows: list[Strip] = []
        for note in frame.state.notes:
            self.newest_row = len(rows)
            style = {
                "info": palette.muted,
                "warning": palette.attention,
                "error": palette.bad,
                "alarm": palette.bad,
            }[note.level]
            stamp = time.strftime("%H:%M:%S", time.localtime(note.time))
            lead: list[Span] = [
                (f" {_NOTE_GLYPHS[note.level]} ", style),
                (f"{stamp} ", palette.faint),
            ]
            for line in visible_lines(note.text)[:20]:
                for part in list(wrap(line, width - 13))[:20] or [""]:
                    rows.append(row(width, *lead, (part, palette.text)))
                    lead = [(" " * 12, None)]
        for need in standing:
            # What holds now comes after what has been.
            over = need.rule is Rule.RUN_OVER
            style, glyph = (palette.muted, "·") if over else (palette.attention, "▲")
            words = f"{need_words(need, frame.outlook)}{with_key(need, frame)}"
            for part in wrap(words, width - 4):
                rows.append(row(width, (f" {glyph} ", style), (part, style)))
                glyph = " "
        calm = finding and (not frame.state.notes or frame.state.notes[-1].level == "info")
        if calm or any(need.rule is not Rule.RUN_OVER for need in standing):
            # Goes before the beginning of a long note.
            self.newest_row = None
        glyph = "▲"
        for part in wrap(finding, width - 4) if finding else ():
            rows.append(row(width, (f" {glyph} ", palette.attention), (part, palette.text)))
            glyph = " "
        return rows
