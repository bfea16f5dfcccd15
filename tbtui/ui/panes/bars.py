"""The lines at the edges: status on top, summary in small windows, keys at the bottom."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from textual import events
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip

from tbtui.journal.vocabulary import RunPhase
from tbtui.ui.base_app import app_of
from tbtui.ui.charts import reward_bins
from tbtui.ui.draw import Span, row, split_row
from tbtui.ui.glyphs import (
    ALARM_MARK,
    LEFT_OUT_MARK,
    RELABELLED_MARK,
    Glyph,
    server_glyph,
    trial_glyph,
)
from tbtui.ui.keys import Key, Scope
from tbtui.ui.pane import Frame, Pane
from tbtui.ui.panes.curves import interval
from tbtui.ui.panes.notice import review_notice
from tbtui.ui.perform import perform
from tbtui.ui.text import clip, clock_time, level, number, rate
from tbtui.ui.theme import Palette
from tbtui.ui.words import WayBack, keys_in_bar
from tbtui.view.current import active_seconds, attempts, awaited
from tbtui.view.curves import STALENESS, held_out_rates
from tbtui.view.estimate import remaining_sec, time_left
from tbtui.view.server import ServerView
from tbtui.view.state import TrialView
from tbtui.view.tasks import dataset_name
from tbtui.view.waiting import doing, duration, retry_wait, step_of, verb_words, waiting_for
from tbtui.view.waits import in_words, step_wait


class Line(Pane, can_focus=False):
    """A pane without a title that never scrolls."""

    EVERY = 1

    def title(self, frame: Frame) -> str:
        return ""


class StatusLine(Line):
    """What the run does, and what it is waiting for."""

    def key(self, frame: Frame) -> Hashable:
        return (
            frame.state.version,
            int(frame.now),
            frame.ending,
            frame.badge,
            frame.run.behind,
            frame.run.trouble,
        )

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, state = frame.palette, frame.state
        dot: Span = (" · ", palette.faint)
        left: list[Span] = []
        if frame.badge:
            left.append((f" {clip(frame.badge, width // 3)} ", palette.badge))
        if width >= 110:
            left += [(" tbtui ", palette.accent), ("▸ ", palette.faint)]
            left += [
                (dataset_name(state) if state.tasks else frame.run.directory.name, palette.strong)
            ]
            left.append(dot)
        else:
            left.append((" ", None))
        left += self._progress(frame)
        if frame.ending:
            left += [dot, (frame.ending, palette.attention)]
        elif frame.run.trouble:
            left += [dot, (frame.run.trouble, palette.attention)]
        elif frame.run.behind:
            left += [dot, (f"reading the journal, {frame.run.progress():.0%}", palette.muted)]
        elif state.status is None:
            waiting = waiting_for(frame.outlook)
            left += [dot]
            if width >= 110:
                left.append(("waiting for ", palette.muted))
            left.append((waiting, palette.text))
            wait = step_wait(frame.outlook)
            if width >= 150 and wait is not None and wait.live and (words := in_words(wait)):
                left += [dot, (words, palette.muted)]
        right = review_notice(frame, self.screen)
        if state.alarms:
            name = f" {state.alarms[-1].words}" if width >= 110 else ""
            right.append((f"{ALARM_MARK}{state.alarms_raised}{name} ", palette.bad))
        warnings = sum(1 for note in state.notes if note.level in ("warning", "error"))
        if warnings:
            right.append((f"▲{warnings} ", palette.attention))
        if state.policy and width >= 150:
            right.append(self._policy(frame))
            right.append((f" {state.model_name} · {state.environment} · ", palette.muted))
        if state.started_at is not None:
            right.append((f"{duration(frame.now - state.started_at)} ", palette.text))
        return [split_row(width, left, right, palette.on_surface)]

    def _policy(self, frame: Frame) -> Span:
        palette, state = frame.palette, frame.state
        server = state.policy_now.server if state.policy_now is not None else None
        if state.status is not None:
            return f"● {state.policy}", palette.muted
        if state.policy_lost is not None:
            return f"! {state.policy}", palette.bad
        glyph = Glyph("●", palette.good) if server is None else server_glyph(server, palette)
        return f"{glyph.char} {state.policy}", glyph.style

    def _progress(self, frame: Frame) -> list[Span]:
        palette, state = frame.palette, frame.state
        if state.started_at is None:
            return [("starting", palette.text)]
        if state.status is not None:
            style = {"finished": palette.good, "failed": palette.bad}.get(
                state.status, palette.attention
            )
            return [(state.status, style), (f" · {state.reason}", palette.text)]
        # The step under way counts from 1; `state.step` says how many are done.
        under_way = state.open_steps() or list(state.steps)[-1:]
        current = under_way[0].step if under_way else 0
        spans: list[Span] = []
        if state.paused:
            spans += [("‖ paused", palette.attention), (" · ", palette.faint)]
        if state.phase is RunPhase.STARTING:
            return [*spans, ("starting", palette.strong)]
        if state.phase is RunPhase.EVALUATING:
            spans.append((f"held-out tasks after step {state.step}", palette.strong))
        else:
            spans.append((step_of(current, state.max_steps), palette.strong))
            spans += [(" · ", palette.faint), (f"{state.phase}", palette.text)]
        if state.phase in (RunPhase.SAMPLING, RunPhase.EVALUATING) and frame.shown:
            batch = awaited(state)
            now = [trial for trial in frame.shown if (trial.step, trial.purpose) == batch]
            spans.append((f" {_done(now or frame.shown)}", palette.text))
            ahead = [each for each in frame.shown if now and (each.step, each.purpose) != batch]
            if ahead:
                spans.append((f" · ahead {_done(ahead)}", palette.muted))
        return spans


def _done(trials: list[TrialView]) -> str:
    return f"{sum(1 for trial in trials if not trial.live)}/{len(trials)}"


class Summary(Line):
    """Reward, pass rate and queue in one line each, for small windows. A click shows more."""

    EVERY = 5

    class Chosen(Message):
        """Somebody wants to see more of a line, by its number from 0."""

        def __init__(self, line: int) -> None:
            super().__init__()
            self.line = line

    def on_click(self, event: events.Click) -> None:
        if (at := self.place_of(event)) is not None:
            self.post_message(self.Chosen(at.y))

    def key(self, frame: Frame) -> Hashable:
        state = frame.state
        return (
            *(state.rollouts, len(state.evals), state.step, len(state.steps)),
            *(state.policy_now, state.policy_lost, int(frame.now)),
        )

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, state = frame.palette, frame.state
        rewards = list(state.rewards)
        bins: list[Span] = [(" reward    ", palette.muted)]
        if rewards:
            columns = reward_bins(rewards, 8)
            most = max(each.count for each in columns)
            for each in columns:
                style = palette.reward(each.value)
                bins += [(f"{each.label} ", palette.muted), (level(each.count / most) * 2, style)]
                bins.append((f" {each.count}  ", palette.text))
            mean = sum(rewards) / len(rewards)
            tail: list[Span] = [
                ("mean ", palette.muted),
                (rate(mean), palette.strong),
                (f"  last {len(rewards)} ", palette.muted),
            ]
        else:
            bins.append(("after the first training trials", palette.faint))
            tail = []
        held_out = held_out_rates(state)
        passed: list[Span] = [(" held out  ", palette.muted)]
        if held_out:
            values = [value for _, value in held_out]
            passed.append((" ".join(level(value) for value in values[-20:]), palette.held_out))
        else:
            passed.append(("after the first evaluation", palette.faint))
        rates: list[Span] = []
        if held_out:
            first, last = held_out[0][1], held_out[-1][1]
            rates = [
                (f"{rate(first)} → " if len(held_out) > 1 else "", palette.muted),
                (rate(last), palette.strong),
                (interval(state), palette.muted),
                (f"  after step {held_out[-1][0]:.0f} ", palette.muted),
            ]
            if stale := state.latest_metric(STALENESS):
                rates.insert(3, (f"  stale {stale:.0f}", palette.attention))
        return [
            split_row(width, bins, tail),
            split_row(width, passed, rates),
            self._queue(frame, width),
        ]

    def _queue(self, frame: Frame, width: int) -> Strip:
        palette, now = frame.palette, frame.state.policy_now
        spans: list[Span] = [(" queue     ", palette.muted)]
        if (lost := frame.state.policy_lost) is not None:
            spans += [("! policy lost", palette.bad), (f"  {lost.reason}", palette.text)]
            return row(width, *spans)
        if now is None:
            return row(width, *spans, ("when the policy is loaded", palette.faint))
        if now.server is not None:
            spans += self._server(frame, now.server)
        else:
            spans += [(now.activity, palette.text), ("  ", None)]
        spans += [(f"{now.in_flight}", palette.text), (" in flight  ", palette.muted)]
        oldest = now.server.oldest_at if now.server is not None else None
        if oldest is not None:
            spans += [("oldest ", palette.muted), (clock_time(frame.now - oldest), palette.text)]
            spans.append(("  ", None))
        elif now.p50_sec is not None:
            spans += [("p50 ", palette.muted), (number(now.p50_sec), palette.text)]
            spans.append(("s  ", palette.muted))
        if now.p95_sec is not None and not (now.server is not None and now.server.held_up):
            spans += [("p95 ", palette.muted), (number(now.p95_sec), palette.text)]
            spans.append(("s", palette.muted))
        right: list[Span] = []
        if (tokens := now.tokens_per_sec(frame.now)) is not None:
            right = [(f"{tokens:,.0f}", palette.text), (" tok/s ", palette.muted)]
        return split_row(width, spans, right)

    def _server(self, frame: Frame, server: ServerView) -> list[Span]:
        glyph = server_glyph(server, frame.palette)
        spans: list[Span] = [(f"{glyph.char} {server.words}", glyph.style)]
        if server.held_up:
            spans.append((f" {clock_time(frame.now - server.since)}", glyph.style))
        return [*spans, ("  ", None)]


class TrialHead(Line):
    """Which trial this is and how it stands."""

    def key(self, frame: Frame) -> Hashable:
        return frame.state.version, int(frame.now), frame.ending

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, trial = frame.palette, frame.selected
        if trial is None:
            return [row(width, (" this trial is no longer kept", palette.muted))]
        dot: Span = (" · ", palette.faint)
        glyph = trial_glyph(trial, palette)
        left: list[Span] = [
            (f" {glyph.char} ", glyph.style),
            (trial.label, palette.strong),
            (f"  {doing(trial)}", palette.frozen if trial.frozen else palette.text),
            (f"  {clock_time(active_seconds(trial, frame.now))}", palette.muted),
        ]
        if (remaining := remaining_sec(trial, frame.state, frame.now)) is not None:
            left.append((f" {time_left(remaining)} left", palette.muted))
        if trial.excluded:
            left += [dot, (f"{LEFT_OUT_MARK} excluded", palette.attention)]
        elif trial.relabelled:
            left += [dot, (f"{RELABELLED_MARK} relabelled", palette.accent)]
        elif trial.left_out == "masked":
            left += [dot, (f"{LEFT_OUT_MARK} masked", palette.attention)]
        if trial.overdue and trial.live:
            left += [dot, ("past the deadline", palette.attention)]
        if wait := retry_wait(trial, frame.now):
            left += [dot, (wait, palette.attention)]
        if trial.pending:
            left += [dot, (f"{verb_words(trial.pending)}…", palette.attention)]
        count = len(attempts(trial, frame.state))
        if count > 1:
            key = frame.keys.name_of("attempt")
            left += [dot, (f"attempt {trial.attempt} of {count} ({key})", palette.attention)]
        if trial.reason:
            left += [dot, (trial.reason, palette.muted)]
        left += [dot, ("held out" if trial.purpose == "eval" else "training", palette.muted)]
        left += [(f", step {trial.step}", palette.muted)]
        right = [*review_notice(frame, self.screen), ("reward ", palette.muted)]
        right.append(
            ("–", palette.faint)
            if trial.reward is None
            else (number(trial.reward), palette.reward(trial.reward))
        )
        if trial.advantage is not None:
            right += [("  advantage ", palette.muted), (f"{trial.advantage:+.2f}", palette.text)]
        if trial.weights_version is not None:
            right += [("  weights ", palette.muted), (f"v{trial.weights_version}", palette.text)]
        right.append((" ", None))
        return [split_row(width, left, right, palette.on_surface)]


class KeyBar(Line):
    """The keys that matter here; each can be clicked."""

    def __init__(self, id: str, *scopes: Scope, back: WayBack | None = None) -> None:
        """`back`: out of the screen's box of words, if it has one."""
        super().__init__(id)
        self._scopes = scopes
        self._back = back
        self._places: list[KeyPlace] = []

    def key(self, frame: Frame) -> Hashable:
        return tuple((key.id, key.label) for key in self._keys())

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        more = frame.keys.entry("palette")
        strip, self._places = key_row(self._keys(), more, width, frame.palette)
        return [strip]

    def _keys(self) -> list[Key]:
        app = app_of(self)
        keys = app.keys_in_bar(*self._scopes)
        return keys_in_bar(keys, app.user.keys, self.screen.focused, self._back)

    async def on_click(self, event: events.Click) -> None:
        await click_key(self.screen, self._places, event.x)


KeyPlace = tuple[int, int, Key]
"""Its first column, and the one after its last."""


async def click_key(screen: Screen[Any], places: list[KeyPlace], x: int) -> None:
    """Do what the key at this column does."""
    for start, end, key in places:
        if start <= x < end:
            await perform(screen, key)
            return


def key_row(
    keys: list[Key], last: Key, width: int, palette: Palette
) -> tuple[Strip, list[KeyPlace]]:
    """The keys that fit, the screen's own first, `last` at the right; where each can be clicked."""
    keys = sorted(keys, key=lambda key: key.scope == "everywhere")
    more = "commands" if width >= 110 else "more"
    right: list[Span] = [(last.shown, palette.accent), (f" {more} ", palette.muted)]
    room = width - len(more) - len(last.shown) - 3
    if sum(map(_cells, keys)) > room:
        keys = _grouped(keys)
    chosen = _that_fit(keys, room)
    spans: list[Span] = []
    places: list[KeyPlace] = []
    x = 0
    for key in keys:
        if key.id in chosen:
            spans += [(f" {key.shown}", palette.accent), (f" {key.label} ", palette.muted)]
            places.append((x, x + _cells(key), key))
            x += _cells(key)
    places.append((width - len(more) - len(last.shown) - 2, width, last))
    return split_row(width, spans, right, palette.on_surface), places


def _cells(key: Key) -> int:
    return len(key.shown) + len(key.label) + 3


def _that_fit(keys: list[Key], room: int) -> set[str]:
    """The ids of the keys that fit, by their rank."""
    chosen: set[str] = set()
    # Of one rank, a screen's own go before those that every screen has.
    for key in sorted(keys, key=lambda key: (key.bar, key.scope == "everywhere")):
        if _cells(key) <= room:
            chosen.add(key.id)
            room -= _cells(key)
    return chosen


def _grouped(keys: list[Key]) -> list[Key]:
    """The number keys as one, `1-5 panes`; a click on it is for the next pane."""
    numbers = [key for key in keys if key.shown.isdecimal()]
    if not numbers:
        return keys
    shown = f"{numbers[0].shown}-{numbers[-1].shown}"
    one = replace(numbers[0], shown=shown, label="panes", action="next_full")
    return [one if key is numbers[0] else key for key in keys if key not in numbers[1:]]
