"""Notifications in the app, what calls a person to it (the terminal's title, the bell), whether one
is there, and what happened in their absence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from textual.notifications import Notification

from tbtui.findings import Finding
from tbtui.ui.drawing.text import rate, visible
from tbtui.ui.user import Notify
from tbtui.view.state import RunState
from tbtui.view.times import Outlook
from tbtui.view.waiting import duration, needs, news_of, stage

KEEP_TITLE = "\x1b[22;2t"
"""Puts the terminal's title on its stack."""
RESTORE_TITLE = "\x1b[23;2t"
_BELL = "\a"


class Attention:
    """Shows the run's state in the terminal's title, and calls a person when it needs one."""

    def __init__(
        self,
        write: Callable[[str], None],
        notify: Notify,
        *,
        from_start: bool = False,
        watching: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            write: hands escapes to the terminal as they are.
            from_start: all that has happened by the first look is news; else that is the past.
            watching: whether the terminal has the focus; then the bell is enough.
        """
        self._write = write
        self._notify = notify
        self._watching = watching
        self._title = ""
        self._alarms: int | None = 0 if from_start else None
        self._known: frozenset[str] = frozenset()
        """The needs that there were at the last look."""
        self.titled = False
        """The terminal has a title of ours; `RESTORE_TITLE` gives it its own back."""

    def look(self, outlook: Outlook) -> None:
        """Show the state in the title, and call a person if the run has come to need one."""
        state, standing = outlook.state, needs(outlook)
        if self._alarms is not None:
            for text in self._news(state, standing):
                self._call(text)
        self._alarms = state.alarms_raised
        self._known = frozenset(map(news_of, standing))
        self._retitle(title(state, standing))

    def _news(self, state: RunState, standing: Sequence[Finding]) -> Iterator[str]:
        assert self._alarms is not None
        if (new := state.alarms_raised - self._alarms) > 0 and state.alarms:
            last = state.alarms[-1]
            more = f", and {new - 1} more" if new > 1 else ""
            yield f"{last.alarm.words} at step {last.step}{more}"
        for need in standing:
            if need.calls and news_of(need) not in self._known:
                yield need.text

    def _call(self, text: str) -> None:
        if self._notify == "desktop" and not self._watching():
            # Whatever is in it can't end the sequence early.
            self._write(f"\x1b]9;tbtui: {visible(text)}{_BELL}")
        if self._notify != "none":
            self._write(_BELL)

    def _retitle(self, title: str) -> None:
        if title == self._title:
            return
        if not self.titled:
            self._write(KEEP_TITLE)
            self.titled = True
        self._title = title
        self._write(f"\x1b]2;{visible(title)}{_BELL}")


def title(state: RunState, standing: Sequence[Finding]) -> str:
    """`tbtui demo: step 3 of 10, 12 running`; `! tbtui demo: the run has failed`."""
    if not state.run:
        return "tbtui"
    if standing:
        return f"! tbtui {state.run}: {standing[0].text}"
    what = stage(state)
    if running := len(state.running_trials()):
        what += f", {running} running"
    return f"tbtui {state.run}: {what}"


MAX_NOTIFICATIONS = 3
"""Boxes at once: more would hide the screen that they are about."""


@dataclass
class TopicNotification(Notification):
    """A notification that another one can take the place of."""

    topic: str = ""
    """One at a time is shown of a topic, the latest; without one they stand side by side."""
    holds: Callable[[], bool] | None = None
    """Whether it is still true; None: it is of what has happened, and stays so."""


def outdated(shown: Iterable[Notification]) -> list[Notification]:
    """Return the notifications that are no longer true."""
    return [
        each
        for each in shown
        if isinstance(each, TopicNotification) and each.holds is not None and not each.holds()
    ]


def displaced(shown: Iterable[Notification], new: Notification) -> list[Notification]:
    """Return the notifications that go when `new` comes: what says the same or is of its topic, and
    then the oldest, errors last, where there would be too many."""
    kept: list[Notification] = []
    gone: list[Notification] = []
    for each in shown:
        (gone if _same(each, new) else kept).append(each)
    surplus = max(0, len(kept) + 1 - MAX_NOTIFICATIONS)
    return gone + sorted(kept, key=lambda each: each.severity == "error")[:surplus]


def _same(one: Notification, new: Notification) -> bool:
    if isinstance(one, TopicNotification) and isinstance(new, TopicNotification) and new.topic:
        return one.topic == new.topic
    return (one.title, one.message) == (new.title, new.message)


AWAY_SEC = 60.0
"""Below it, nobody has missed anything."""


@dataclass(frozen=True, slots=True)
class _Moment:
    at: float
    run: str
    step: int
    held_out: float | None
    alarms: int


class Presence:
    """Follows the terminal's focus events. Terminals that report none leave it as it is."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._left: _Moment | None = None
        self._reports = False

    @property
    def watching(self) -> bool:
        """Whether the terminal reports that it has the focus."""
        return self._reports and self._left is None

    def leave(self, state: RunState) -> None:
        """Record that the terminal has lost the focus."""
        self._reports = True
        self._left = self._left or self._moment(state)

    def come_back(self, state: RunState) -> str:
        """Record the focus's return; returns one line on what has changed, or an empty text."""
        left, self._left = self._left, None
        if left is None:
            return ""
        now = self._moment(state)
        if now.run != left.run or now.at - left.at < AWAY_SEC:
            return ""
        parts = []
        if now.step != left.step:
            parts.append(f"step {left.step} → {now.step}")
        if now.held_out is not None and now.held_out != left.held_out:
            before = f"{rate(left.held_out)} → " if left.held_out is not None else ""
            parts.append(f"held out {before}{rate(now.held_out)}")
        if (alarms := now.alarms - left.alarms) > 0:
            parts.append("an alarm" if alarms == 1 else f"{alarms} alarms")
        if state.status is not None:
            parts.append(f"the run has {state.status}")
        return f"in {duration(now.at - left.at)}: {', '.join(parts)}" if parts else ""

    def _moment(self, state: RunState) -> _Moment:
        held_out = state.evals[-1].pass_rate if state.evals else None
        return _Moment(self._monotonic(), state.run, state.step, held_out, state.alarms_raised)
