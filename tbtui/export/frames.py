"""What a trial's terminal showed at some moments, as text."""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.recordings import Moment, Recording


def frames(run: RunDirectory, trial: str, times: Sequence[float]) -> list[str]:
    """The used rows of the screen at each of the times (seconds since the epoch, ascending).

    Empty where nothing was recorded by then.
    """
    recording = Recording(run.recording(trial))
    try:
        return [_frame(recording, Moment(time, times[0])) for time in times]
    finally:
        recording.close()


def _frame(recording: Recording, moment: Moment) -> str:
    while recording.advance(moment):
        pass
    screen = recording.screen
    if screen is None:
        return ""
    return "\n".join(screen.plain(y) for y in range(screen.used_rows())).rstrip()
