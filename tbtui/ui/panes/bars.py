"""The lines at the edges: status and trial head on top, a summary in small windows."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import PurePath

from rich.cells import cell_len
from textual import events
from textual.message import Message
from textual.screen import Screen
from textual.strip import Strip

from tbtui.findings import Finding, Rule
from tbtui.server_status import ServerStatus
from tbtui.ui.drawing.charts import reward_bins
from tbtui.ui.drawing.rows import Span, row, split_row
from tbtui.ui.drawing.text import Name, clip, clock_time, elapsed, level, number, rate, visible
from tbtui.ui.panes.curves import interval
from tbtui.ui.panes.pane import MOMENT, Frame, Pane
from tbtui.ui.panes.probe import probe_summary
from tbtui.ui.terminal.tty import file_link
from tbtui.ui.theme.glyphs import (
    ALARM_MARK,
    LEFT_OUT_MARK,
    RELABELLED_MARK,
    Glyph,
    server_glyph,
    trial_glyph,
)
from tbtui.view.current import active_seconds, attempts, tallies
from tbtui.view.curves import STALENESS, held_out_rates
from tbtui.view.forecast import forecast
from tbtui.view.state import TrialView
from tbtui.view.tasks import dataset_name
from tbtui.view.times import in_words, remaining_sec, step_wait, time_left
from tbtui.view.waiting import (
    RUN_PAUSED,
    doing,
    duration,
    need_words,
    needs,
    retry_wait,
    stage,
    unrewarded_words,
    verb_words,
    waiting_for,
)
from tbtui.vocabulary import RunPhase

_KEYS = {
    Rule.WAITS_REVIEW: "review",
    Rule.HELD_TRIALS: "pause",
    Rule.WAITS_PAUSED: "pause-run",
}
"""Ids of the keys that answer a need."""


def notice(frame: Frame, screen: Screen[object], *, said: frozenset[Rule]) -> list[Span]:
    """`review waits · V`, with the key that opens it; `said` are the needs that the line shows
    elsewhere. The review's own screen shows it without this."""
    from tbtui.ui.context import ScopedScreen

    if frame.state.status is not None:
        return []
    scopes = screen.SCOPES if isinstance(screen, ScopedScreen) else ()
    elsewhere = said | {Rule.WAITS_REVIEW} if "review" in scopes else said
    spans: list[Span] = []
    for need in needs(frame.outlook):
        if need.rule in elsewhere:
            continue
        if need.rule is Rule.WAITS_REVIEW:
            spans.append((f"review waits{with_key(need, frame)} ", frame.palette.attention))
        else:
            spans.append((f"{need_words(need, frame.outlook)} ", frame.palette.attention))
    return spans


def with_key(need: Finding, frame: Frame) -> str:
    """` · V`, ` · z resumes`: the key that answers the need; empty where the run takes no
    commands."""
    id, review = _KEYS.get(need.rule), need.rule is Rule.WAITS_REVIEW
    if need.rule is Rule.HELD_TRIALS and frame.state.trials[need.trials[0]].hold.frozen:
        id = "freeze"
    if id is None or (frame.run.replay is not None and not review):
        return ""
    return f" · {frame.keys.name_of(id)}{'' if review else ' resumes'}"


_WAITED_FOR: frozenset[Rule] = frozenset({Rule.WAITS_POLICY, Rule.WAITS_PAUSED, Rule.HELD_TRIALS})
"""Needs of a run that are what it waits for."""
NOT_ABOVE_TRIALS: frozenset[Rule] = frozenset(
    {Rule.WAITS_POLICY, Rule.WAITS_PAUSED, Rule.ALL_FAILING}
)
"""Needs that are not shown above a single trial."""


class LinePane(Pane, can_focus=False):
    """A pane without a title that never scrolls."""

    EVERY = MOMENT

    def title(self, frame: Frame) -> str:
        return ""


class StatusLine(LinePane):
    """Shows what the run does and waits for."""

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
        right = self._right(frame, width)

        def room(left: list[Span]) -> int:
            return width - 1 - sum(cell_len(text) for text, _ in (*left, *right))

        left: list[Span] = []
        if frame.badge:
            left.append((f" {clip(frame.badge, width // 3)} ", palette.badge))
        progress = self._progress(frame)
        files = file_link(frame.run.directory.path)
        name = Name(dataset_name(state) if state.tasks else frame.run.directory.name)
        of: list[Span] = [
            (" ", None),
            ("tbtui", palette.accent + files),
            (" ▸ ", palette.faint),
            (name, palette.strong),
            dot,
        ]
        # What a run needs of a person may be long: its name is known.
        left += of if width >= 110 and room([*left, *of, *progress]) >= 0 else [(" ", None)]
        left += progress
        if frame.ending:
            left += [dot, (frame.ending, palette.attention)]
        elif frame.run.trouble:
            left += [dot, (frame.run.trouble, palette.attention)]
        elif frame.run.behind:
            left += [dot, (reading_on(frame), palette.muted)]
        elif state.started_at is None or state.phase is RunPhase.STARTING:
            since = duration(frame.now - (state.phase_since or frame.now))
            if state.phase_detail:
                left += [dot, (f"{state.phase_detail} ({since})", palette.text)]
        elif state.status is None:
            left += [dot, *self._waiting(frame, width, room(left))]
            wait = step_wait(frame.outlook)
            words = in_words(wait) if wait is not None and wait.live and width >= 150 else ""
            if words and len(words) + 3 <= room(left):
                left += [dot, (words, palette.muted)]
        return [split_row(width, left, right, palette.on_surface)]

    def _right(self, frame: Frame, width: int) -> list[Span]:
        """What calls a person, the policy, and how long the run has gone on and will."""
        palette, state = frame.palette, frame.state
        right = notice(frame, self.screen, said=_WAITED_FOR)
        if state.alarms:
            name = f" {state.alarms[-1].alarm.words}" if width >= 110 else ""
            right.append((f"{ALARM_MARK}{state.alarms_raised}{name} ", palette.bad))
        warnings = sum(1 for note in state.notes if note.level in ("warning", "error"))
        if warnings:
            right.append((f"▲{warnings} ", palette.attention))
        runs_on: list[Span] = []
        if state.policy and width >= 150:
            model = state.model_name
            if PurePath(model).is_absolute():
                model = PurePath(model).name
            runs_on = [
                self._policy(frame),
                (f" {model} · {state.environment} · ", palette.muted),
            ]
        calls = sum(cell_len(text) for text, _ in right)
        if calls + sum(cell_len(text) for text, _ in runs_on) <= width // 2:
            right += runs_on
        if state.started_at is not None:
            right.append((f"{duration(state.seconds(frame.now))} ", palette.text))
            hours = forecast("hours", state, frame.now)
            goes_on = not (frame.ending or frame.run.trouble)
            if hours is not None and hours.left and goes_on and width >= 110:
                right.append((f"· {hours.left} left ", palette.muted))
        return right

    def _waiting(self, frame: Frame, width: int, room: int) -> list[Span]:
        """What the run waits for, and the key that resumes what a person holds; where that has
        no room, without what is in brackets."""
        palette, waiting = frame.palette, waiting_for(frame.outlook)
        waited_for = [need for need in needs(frame.outlook) if need.rule in _WAITED_FOR]
        style = palette.attention if waited_for else palette.text
        key = "".join(with_key(need, frame) for need in waited_for[:1])
        if key and waiting == RUN_PAUSED:
            return [(key.removeprefix(" · "), style)]  # what is left of it says "paused"
        words: list[Span] = [("waiting for ", palette.muted)] if width >= 110 else []
        if sum(map(len, (waiting, key, *(text for text, _ in words)))) + 3 > room:
            waiting = waiting.partition(" (")[0]
        return [*words, (waiting + key, style)]

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
        spans: list[Span] = []
        if state.paused:
            spans += [("‖ paused", palette.attention), (" · ", palette.faint)]
        spans.append((stage(state), palette.strong))
        if state.phase not in (RunPhase.STARTING, RunPhase.EVALUATING):
            spans += [(" · ", palette.faint), (f"{state.phase}", palette.text)]
        if state.phase in (RunPhase.SAMPLING, RunPhase.EVALUATING):
            for place, tally in enumerate(tallies(frame.shown, state)):
                ahead = f" · ahead {tally.words}"
                spans.append((ahead, palette.muted) if place else (f" {tally.words}", palette.text))
        return spans


class Summary(LinePane):
    """Reward, pass rate and queue in one line each, for small windows. A click shows more."""

    EVERY = 2 * MOMENT

    class Chosen(Message):
        """A click asked for more of a line, by its number from 0."""

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
            0 if state.probed is None else state.probed.rounds,
        )

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, state = frame.palette, frame.state
        if state.probe is not None:
            return [*probe_summary(frame, width), self._queue(frame, width)]
        step = state.rewarded_step()
        rewards = step.rewards if step is not None else []
        bins: list[Span] = [(" reward    ", palette.muted)]
        if step is not None and rewards:
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
                (f" of {len(rewards)}, step {step.step} ", palette.muted),
            ]
        else:
            bins.append((unrewarded_words(state), palette.faint))
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
        oldest = now.age(now.server.oldest_sec, frame.now) if now.server is not None else None
        if oldest is not None:
            spans += [("oldest ", palette.muted), (clock_time(oldest), palette.text)]
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

    def _server(self, frame: Frame, server: ServerStatus) -> list[Span]:
        glyph = server_glyph(server, frame.palette)
        spans: list[Span] = [(f"{glyph.char} {server.words}", glyph.style)]
        if server.held_up:
            spans.append((f" {clock_time(frame.now - server.since)}", glyph.style))
        return [*spans, ("  ", None)]


_REASON = 24
"""Cells from which on there is room to say why a trial ended."""


class TrialHead(LinePane):
    """Shows which trial this is, and its state."""

    def key(self, frame: Frame) -> Hashable:
        known = frame.selected is not None or self._missing(frame)
        return frame.state.version, int(frame.now), frame.ending, known

    def build(self, frame: Frame, width: int, height: int) -> list[Strip]:
        palette, trial = frame.palette, frame.selected
        if trial is None:
            return [row(width, (f" {self._missing(frame)}", palette.muted))]
        dot: Span = (" · ", palette.faint)
        glyph = trial_glyph(trial, palette)
        left: list[Span] = [
            (f" {glyph.char} ", glyph.style),
            (Name(trial.label), palette.strong),
            (f"  {doing(trial)}", palette.frozen if trial.hold.frozen else palette.text),
            (f" by {visible(trial.hold.typist)}" if trial.hold.typist else "", palette.text),
            (f"  {elapsed(active_seconds(trial, frame.now))}", palette.muted),
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
        right = self._right(frame, trial)
        taken = sum(cell_len(text) for text, _ in (*left, *right))
        if trial.reason and width - taken >= _REASON:
            left += [dot, (trial.reason, palette.muted)]
        left += [dot, (purpose_words(trial), palette.muted)]
        left += [(f", step {trial.step}", palette.muted)]
        return [split_row(width, left, right, palette.on_surface)]

    def _right(self, frame: Frame, trial: TrialView) -> list[Span]:
        """What calls a person, and the trial's reward, advantage and weights."""
        palette = frame.palette
        right = [*notice(frame, self.screen, said=NOT_ABOVE_TRIALS), ("reward ", palette.muted)]
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
        return right

    def _missing(self, frame: Frame) -> str:
        """The reason why the trial is unknown."""
        run = frame.run
        if run.behind or not run.opened:
            return reading_on(frame)
        if run.replay is not None and frame.opened is not None:
            begins, _ = run.replay.span(frame.opened)
            if frame.now < begins:
                return f"this trial begins at {clock_time(begins - run.replay.playback.start)}"
        return "this trial is no longer in memory"


def reading_on(frame: Frame) -> str:
    """How far the journal has been read, in words."""
    # All of it is never still to be read.
    return f"catching up, {min(99, int(100 * frame.run.progress()))}%"


def purpose_words(trial: TrialView) -> str:
    """What a trial is for."""
    if trial.purpose == "fork":
        return f"fork at turn {trial.fork_turn}"
    return {"eval": "held out", "probe": "probe"}.get(trial.purpose, "training")
