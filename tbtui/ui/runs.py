"""The runs that can be shown: read from their files as they grow, or at a replay clock's time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from tbtui.journal.database import JournalError
from tbtui.journal.rundir import RunDirectory, RunDirectoryError
from tbtui.ui.services import RunEnd, RunHost
from tbtui.ui.stories import Stories
from tbtui.ui.terminal.recordings import ReadLimit, Recordings
from tbtui.view.state import RunState

if TYPE_CHECKING:
    from tbtui.journal.reader import JournalReader
    from tbtui.journal.timeline import Moment, TimelineMarks
    from tbtui.view.prompt import PromptPart
    from tbtui.view.reading import Reading
    from tbtui.view.transcript import Transcript


class LiveRun:
    """A run as its journal tells it, growing or finished."""

    def __init__(
        self,
        directory: RunDirectory,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        still_at: float | None = None,
    ) -> None:
        """With `still_at` it is read no further than that many seconds after its start."""
        self.directory = directory
        self.clock = clock
        self.recordings = Recordings(directory, monotonic)
        self.stories = Stories(self)
        self.over = False
        """The run's process has ended, whether or not its journal says so."""
        self.trouble = ""
        """Why the journal can't be read, in one line; empty while it can."""
        self._corrupt = ""
        """What is wrong with a model call that was to be shown."""
        self.behind = False
        """There is more in the journal than has been read."""
        self.terminals_behind = False
        """There is more in the recordings than has been read."""
        self.rewound = 0
        """How often the state has gone back in time."""
        self._monotonic = monotonic
        self._still_at = still_at
        self._empty = RunState()
        self._reading: Reading | None = None
        self._reader: JournalReader | None = None

    @property
    def state(self) -> RunState:
        return self._empty if self._reading is None else self._reading.fold.state

    @property
    def replay(self) -> ReplayedRun | None:
        """This run, if it is a recorded one with a clock."""
        return None

    @property
    def opened(self) -> bool:
        return self._reader is not None

    @property
    def now(self) -> float:
        """Seconds since the epoch; a run that is over stands still at its end, and of one that is
        still being read it is the time of what has been read."""
        if self.state.finished_at is not None:
            return self.state.finished_at
        if self.over:
            return self.state.time
        if (until := self._until) is not None:
            return until
        return self.state.time if self.behind and self.state.seq else self.clock()

    @property
    def _until(self) -> float | None:
        """Nothing later than this is shown."""
        if self._still_at is None or self.state.started_at is None:
            return None
        return self.state.started_at + self._still_at

    def follow(self, budget: float) -> bool:
        """Read on for about `budget` seconds; says whether anything was new."""
        deadline = self._monotonic() + budget
        before = self.state.seq
        try:
            if (reading := self._open()) is None:
                return False
            target = self._target(reading)
            reading.begin(target)
            self.behind = self.state.seq < target
            while self.behind and self._monotonic() < deadline:
                reading.bite(target)
                self._has_read(reading)
                self.behind = self.state.seq < target
            # Its start may only now be known, and with it how far to read.
            self.behind = self.state.seq < self._target(reading)
            self.trouble = self._corrupt or reading.trouble
        except JournalError as error:
            self.trouble = str(error)
        return self.state.seq != before

    def _target(self, reading: Reading) -> int:
        """Number of the last event to be shown."""
        assert self._reader is not None
        if self._still_at is not None and self.state.started_at is None:
            # Before that there are words on how the policy is loaded.
            started = self._reader.read_kinds(("run_started",), 0, limit=1)
            return started[0].seq if started else self._reader.last_seq()
        until = self._until
        return self._reader.last_seq() if until is None else self._seq_at(self._reader, until)

    def _seq_at(self, reader: JournalReader, time: float) -> int:
        return reader.seq_at(time)

    def _has_read(self, reading: Reading) -> None:
        """Note what has been read, after each bite."""

    def progress(self) -> float:
        """How much of the journal has been read, from 0 to 1."""
        if self._reader is None:
            return 0.0
        return self.state.seq / max(1, self._reader.last_seq())

    def tokens(self, sample: int) -> list[tuple[str, float]]:
        return self._of_call(lambda reader: reader.sample_tokens(sample))

    def turn_of(self, sample: int) -> int | None:
        return self._reader.turn_of(sample) if self._reader else None

    def last_heard(self, trial: str) -> float:
        """When a trial did something last, as far as is shown; now, where it did nothing."""
        last = self._reader.last_time(trial) if self._reader else None
        return self.now if last is None else min(last, self.now)

    def prompt(self, sample: int) -> list[PromptPart]:
        """The exact prompt of a model call."""
        from tbtui.view.prompt import prompt_parts

        return prompt_parts(self._of_call(lambda reader: reader.calls_until(sample)))

    def first_prompt(self, trial: str) -> str:
        """Text of a trial's first prompt; empty: none is recorded."""
        return "".join(self._of_call(lambda reader: [reader.first_prompt(trial)]))

    def _of_call[T](self, read: Callable[[JournalReader], list[T]]) -> list[T]:
        """What there is of a model call: nothing, where that is corrupt."""
        if self._reader is None:
            return []
        try:
            return read(self._reader)
        except JournalError as error:
            # Whose it is, is on the screen.
            self._corrupt = str(error).removeprefix(f"{self.directory.database}: ")
            self.trouble = self._corrupt
            return []

    def read_on(self, trial: str, transcript: Transcript) -> bool:
        """Bring a trial's transcript up to the state, which the rest of the screen shows; says
        whether anything was new."""
        if self._reader is None:
            return False
        if not transcript.seq:
            # Not before a trial is looked at: the first frame needs not wait for it.
            from tbtui.view.transcript import shared_turns

            transcript.turns = shared_turns(self._reader, trial)
        entries = self._reader.read_trial(trial, transcript.seq)
        until, last = self._until, self.state.seq
        return transcript.apply(
            each for each in entries if each.seq <= last and (until is None or each.time <= until)
        )

    def follow_terminals(
        self,
        focused: str | None,
        shown: Sequence[str],
        budget: float,
        *,
        only_new: bool = False,
    ) -> None:
        """Read terminals on; with `only_new`, of the `shown` only those not read before."""
        all_read = self.recordings.advance(
            focused, shown, budget, self._recorded_until, only_new=only_new
        )
        self.terminals_behind = only_new or not all_read

    def _recorded_until(self, trial: str) -> ReadLimit | None:
        """How far into a trial's recording to read; None: to its end."""
        view = self.state.trials.get(trial)
        if self._until is None or view is None:
            return None
        return ReadLimit(self._until, inf if view.started_at is None else view.started_at)

    def close(self) -> None:
        self.recordings.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self) -> Reading | None:
        if self._reading is None and self.directory.database.is_file():
            # They bring numpy and every class of event along: not before the first frame.
            from tbtui.journal.reader import JournalReader
            from tbtui.view.reading import Reading

            try:
                self._reader = JournalReader(self.directory, lenient=True)
                self._reader.last_seq()
            except JournalError as error:
                # The engine may be in the middle of making it: tried again at the next tick.
                self._reader = None
                self.trouble = str(error)
            else:
                self._reading = Reading(self._reader)
        return self._reading


class ReplayedRun(LiveRun):
    """A recorded run as it stood at its clock's position."""

    def __init__(
        self, directory: RunDirectory, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Begins at the run's start and stands still.

        Raises:
            RunDirectoryError: nothing is recorded.
            JournalError: the journal can't be read.
        """
        # What only replays need comes after the first frame of the others.
        from tbtui.journal.timeline import Timeline
        from tbtui.view.reading import Playback, Snapshots

        super().__init__(directory, monotonic=monotonic)
        self.timeline = Timeline(directory)
        bounds = self.timeline.bounds()
        if bounds is None:
            raise RunDirectoryError(f"{directory.path}: this run has no journal")
        self.playback = Playback(*bounds, position=bounds[0])
        self.moved_to = ""
        """Where its clock was moved to, in words; empty once it is moved on."""
        self.marks: TimelineMarks | None = None
        """What its clock is marked with; None: not read yet."""
        self._snapshots = Snapshots()
        self._spans: dict[str, tuple[float, float]] = {}

    @property
    def replay(self) -> ReplayedRun:
        return self

    @property
    def now(self) -> float:
        return self.playback.position

    @property
    def _until(self) -> float:
        return self.playback.position

    def span(self, trial: str) -> tuple[float, float]:
        """When a trial began and ended; the run's own bounds where it never did."""
        if trial not in self._spans:
            whole = self.playback.start, self.playback.end
            self._spans[trial] = self.timeline.span(trial) or whole
        return self._spans[trial]

    def go_to(self, moment: Moment | None) -> bool:
        """Go to a moment and stop there; False: there is none."""
        if moment is None:
            return False
        self.playback.playing = False
        self.playback.go_to(moment.time)
        return True

    def _target(self, reading: Reading) -> int:
        target = super()._target(reading)
        if target < self.state.seq:
            reading.restart(self._snapshots.before(target))
            self.rewound += 1
        return target

    def _seq_at(self, reader: JournalReader, time: float) -> int:
        # It has looked through the journal's times already.
        return self.timeline.seq_at(time)

    def _has_read(self, reading: Reading) -> None:
        if reading.complete:
            self._snapshots.keep(reading.fold)

    def close(self) -> None:
        super().close()
        self.timeline.close()


@dataclass(eq=False, slots=True)
class OpenRun:
    """A run with its host: the app's own, or another one that a person opened."""

    run: LiveRun
    host: RunHost
    end: RunEnd | None = None
    """How the host ended; None while it goes on."""

    def has_ended(self, end: RunEnd) -> None:
        """Take the host's end: the clocks stand still where the run did something last."""
        self.end, self.run.over = end, True

    @property
    def over(self) -> str:
        """Why the run takes no commands from any client; empty: it does."""
        if self.run.replay is not None:
            return "This is a recorded run: nothing can be asked of it."
        if self.end is not None:
            return "The run is over."
        return "" if self.host.steerable else f"Read-only: {self.host.read_only}."

    @property
    def refusal(self) -> str:
        """Why the run takes no commands now; empty: it does."""
        if not self.over and self.host.read_only:
            return f"Read-only: {self.host.read_only}."
        return self.over

    @property
    def badge(self) -> str:
        """The status line's badge for a run other than the app's own."""
        name = self.run.directory.name
        if self.run.replay is not None:
            return f"replay {name}"
        if self.end is not None:
            return f"ended {name}"
        return f"watching {name}" if self.host.read_only else f"attached {name}"

    @property
    def ending(self) -> str:
        """How the run ended, where its journal lacks the end; empty otherwise."""
        if self.end is None or self.run.state.status is not None:
            return ""
        return f"{self.end.status}: {self.end.reason}"
