"""Moves the clock of a replayed run: play, stop, go to an event, turn, step or place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tbtui.journal.timeline import Direction, Moment
    from tbtui.ui.context import ControllerContext
    from tbtui.ui.runs import ReplayedRun

Go = Literal["event", "turn", "milestone", "failure", "command", "seconds", "edge"]

_PLACE = re.compile(
    r"(?P<percent>\d+(?:\.\d+)?)\s*%|step\s*(?P<step>\d+)|(?P<clock>\d+(?::\d{1,2}){0,2})"
)
_TOPIC = "clock"
"""Topic of notifications about the clock: the last one alone is shown."""
_NAMES = {
    "step_finished": "step {text} has finished",
    "eval_finished": "an evaluation has finished",
    "review_opened": "step {text} waits for a review",
    "alarm_raised": "alarm: {text}",
    "policy_lost": "policy lost: {text}",
    "worker_lost": "worker lost: {text}",
    "noted": "{text}",
    "command_issued": "command: {text}",
}


def seconds_meant(text: str, run: ReplayedRun) -> float | str:
    """The seconds since the epoch that `50%`, `1:02:03` or `step 12` mean; else what is wrong."""
    clock = run.playback
    found = _PLACE.fullmatch(text.strip().lower())
    if found is None:
        return "write a place as 50%, 1:02:03, 90 (seconds) or step 12"
    if found["percent"]:
        return clock.start + (clock.end - clock.start) * min(100.0, float(found["percent"])) / 100
    if found["step"]:
        done = run.timeline.step_end(int(found["step"]))
        return f"step {found['step']} was never finished" if done is None else done
    seconds = 0
    for part in found["clock"].split(":"):
        seconds = seconds * 60 + int(part)
    return clock.start + seconds


class Transport:
    """Plays, stops and moves the shown run, if it is a replay."""

    def __init__(self, app: ControllerContext) -> None:
        self._app = app
        self._last: float | None = None
        """When the clock was moved on last."""
        self._idle_at: tuple[object, ...] = ()
        self._idle: frozenset[str] = frozenset()
        """Ids of the keys that lead nowhere, and where the clock stood then."""

    @property
    def run(self) -> ReplayedRun | None:
        return self._app.live_run.replay

    def idle_keys(self) -> frozenset[str]:
        """Ids of the clock's keys that lead nowhere from where it stands; none while it plays."""
        run = self.run
        if run is None or run.playback.playing or not run.opened:
            return frozenset()
        opened = self._app.opened_trial
        at = (run.directory, run.now, opened, self._app.selection.shown)
        if at != self._idle_at:
            self._idle_at, self._idle = at, frozenset(self._leading_nowhere(run, opened))
        return self._idle

    def _leading_nowhere(self, run: ReplayedRun, opened: str | None) -> Iterator[str]:
        now, turns_of = run.now, opened or self._app.selection.shown
        start, end = run.span(opened) if opened else (run.playback.start, run.playback.end)
        if now <= start:
            yield from ("replay-start", "replay-milestone-back", "replay-failure-back")
        if now >= end:
            yield "replay-end"
        if now >= run.playback.end:
            yield from ("replay-on", "replay-event", "replay-milestone", "replay-failure")
            yield "replay-turn"
        else:
            if run.timeline.event(now, 1, opened) is None:
                yield "replay-event"
            if run.timeline.milestone(now, 1) is None:
                yield "replay-milestone"
            if run.timeline.failure(now, 1) is None:
                yield "replay-failure"
            if turns_of is None or run.timeline.turn_end(now, 1, turns_of) is None:
                yield "replay-turn"
        if turns_of is None or run.timeline.turn_end(now, -1, turns_of) is None:
            yield "replay-turn-back"

    def pass_time(self, monotonic: float) -> None:
        """Move a playing replay on by the time passed, unless it is still reading."""
        last, self._last = self._last, monotonic
        run = self.run
        if run is None or last is None or run.behind or not run.opened:
            return
        trial = self._app.opened_trial
        run.playback.pass_time(monotonic - last, run.span(trial)[1] if trial else None)

    def toggle(self) -> None:
        run = self.run
        if run is None:
            return
        trial = self._app.opened_trial
        if trial and not run.playback.playing and run.now >= run.span(trial)[1]:
            # The trial is over: once more from its start.
            run.playback.go_to(run.span(trial)[0])
        run.moved_to = ""
        run.playback.toggle()
        self._app.moved()

    def change_speed(self, steps: int) -> None:
        if (run := self.run) is not None:
            run.playback.change_speed(steps)
            self._app.moved()

    def to_share(self, share: float) -> None:
        """Go to a share, from 0 to 1, of the opened trial or of the run."""
        if (run := self.run) is None:
            return
        trial = self._app.opened_trial
        start, end = run.span(trial) if trial else (run.playback.start, run.playback.end)
        run.moved_to = ""
        run.playback.go_to(start + (end - start) * share)
        self._app.moved()

    def go(self, what: Go, amount: int) -> None:
        """Go to the next one (`amount` 1), or the one before (-1); or by seconds."""
        if (run := self.run) is None:
            return
        direction: Direction = 1 if amount > 0 else -1
        run.moved_to = ""
        opened = self._app.opened_trial
        match what:
            case "seconds":
                run.playback.go_to(run.now + amount)
            case "edge":
                self.to_share(0.0 if amount < 0 else 1.0)
            case "event":
                self._go_to(run.timeline.event(run.now, direction, opened), direction)
            case "turn":
                trial = opened or self._app.selection.shown
                if trial is not None:
                    self._go_to(run.timeline.turn_end(run.now, direction, trial), direction)
            case "milestone":
                self._go_to(run.timeline.milestone(run.now, direction), direction, announce=True)
            case "failure":
                self._go_to(run.timeline.failure(run.now, direction), direction, announce=True)
            case "command":
                self._go_to(run.timeline.command(run.now, direction), direction, announce=True)
        self._app.moved()

    def to_step(self, step: int) -> None:
        """Go to the end of a step."""
        self._go_to_place(f"step {step}")

    def ask_where(self) -> None:
        """Ask for a place in words."""
        from tbtui.ui.screens.dialogs import PlaceDialog

        self._app.push_screen(PlaceDialog(), self._go_to_place)

    def _go_to_place(self, text: str | None) -> None:
        run = self.run
        if run is None or not text:
            return
        place = seconds_meant(text, run)
        if isinstance(place, str):
            self._app.notify(place, severity="warning", topic=_TOPIC)
            return
        run.moved_to = ""
        run.playback.go_to(place)
        self._app.moved()

    def _go_to(
        self, moment: Moment | None, direction: Direction, *, announce: bool = False
    ) -> None:
        run = self.run
        assert run is not None
        if not run.go_to(moment):
            run.moved_to = f"none {'before' if direction < 0 else 'after'} this"
        elif announce and moment is not None:
            if moment.trial is not None and self._app.opened_trial is None:
                self._app.selection.choose(moment.trial)
            text = _NAMES.get(moment.kind, "{text}").replace("{text}", moment.text)
            run.moved_to = text
