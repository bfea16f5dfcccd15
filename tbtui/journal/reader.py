"""Reads a run's journal, finished or still growing."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tbtui.journal.database import Database, JournalError, in_body, is_time
from tbtui.journal.events import EVENT_TYPES, Entry, Noted, decode
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import SampleRecord, unpack_floats, unpack_ids, unpack_texts
from tbtui.journal.timeline import EventTimes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SAMPLE = (int, int, *(bytes,) * 5, str, int, float, float, int, int)
"""Types of what is read of a model call."""
PASSING_KINDS = (
    "turn_started",
    "turn_sampled",
    "turn_parsed",
    "turn_observed",
    "trial_phase_changed",
    "policy_measured",
    "resources_measured",
)
"""Most of a journal: they say what one trial does, or how things stand, for a while only."""
_LASTING_KINDS = tuple(kind for kind in EVENT_TYPES if kind not in PASSING_KINDS)


class JournalReader:
    """Reads one run's journal. Any number of readers may; none of them holds up the writer.

    Opens a database that another thread or process is writing. Everything raises `JournalError`
    when the file can't be read, or is not a journal of this version.
    """

    def __init__(self, run: RunDirectory, *, lenient: bool = False) -> None:
        """`lenient`, for showing a run: a `Noted` error takes the place of an event whose row is
        corrupt, and `left_out` has it. Else such a row is a `JournalError`."""
        self.run = run
        self.left_out: dict[int, str] = {}
        """Number -> kind of events that could not be read so far."""
        self._lenient = lenient
        self._db = Database(run)
        self._times = EventTimes(self._db)

    def read(self, after: int, limit: int = 1000) -> list[Entry]:
        """Up to `limit` events that follow sequence number `after` (0: from the start)."""
        rows = self._db.rows(
            "SELECT seq, time, kind, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, limit),
        )
        return self._entries(rows, after)

    def read_kinds(self, kinds: Sequence[str], after: int, limit: int = 1000) -> list[Entry]:
        """As `read`, of these kinds of events alone."""
        marks = ", ".join("?" * len(kinds))
        rows = self._db.rows(
            f"SELECT seq, time, kind, body FROM events WHERE kind IN ({marks}) AND seq > ?"
            " ORDER BY seq LIMIT ?",
            (*kinds, after, limit),
        )
        return self._entries(rows, after)

    def each(self, kinds: Sequence[str], after: int = 0) -> Iterator[Entry]:
        """All events of these kinds after `after`, those included that are written meanwhile."""
        while entries := self.read_kinds(kinds, after):
            yield from entries
            after = entries[-1].seq

    def read_lasting(self, after: int, until: int, trials: Collection[str]) -> list[Entry]:
        """The events after `after` up to `until`, without those of `PASSING_KINDS`.

        Of `trials` every event is among them.
        """
        kinds = ", ".join("?" * len(_LASTING_KINDS))
        names = ", ".join("?" * len(trials))
        rows = self._db.rows(
            f"SELECT seq, time, kind, body FROM events WHERE kind IN ({kinds})"
            " AND seq > ? AND seq <= ?"
            f" UNION SELECT seq, time, kind, body FROM events WHERE trial IN ({names})"
            " AND seq > ? AND seq <= ? ORDER BY seq",
            (*_LASTING_KINDS, after, until, *trials, after, until),
        )
        return self._entries(rows, after)

    @property
    def trouble(self) -> str:
        """What could not be read so far, in one line; empty: nothing."""
        if not self.left_out:
            return ""
        first = min(self.left_out)
        others = len(self.left_out) - 1
        more = f" and {others} other{'s' * (others > 1)}" if others else ""
        are = "are" if others else "is"
        where = f"row {first} ({self.left_out[first]}){more} of {self.run.database}"
        return f"{where} {are} corrupt, and left out here"

    def require_sound(self, kinds: Collection[str]) -> None:
        """Raise `JournalError` when an event of these kinds is no JSON."""
        if (error := self._db.first_corrupt(kinds)) is not None:
            raise error

    def trials(self, kind: str) -> list[str]:
        """Those with an event of this kind, in the order of these; nothing is read of it."""
        rows = self._db.rows(
            "SELECT trial FROM events WHERE kind = ? AND typeof(trial) = 'text' GROUP BY trial"
            " ORDER BY min(seq)",
            (kind,),
        )
        return [trial for (trial,) in rows]

    def nth_last(self, kind: str, n: int, until: int) -> int:
        """Number of the `n`th last event of a kind up to number `until`; 0: there are fewer."""
        row = self._db.row(
            "SELECT seq FROM events WHERE kind = ? AND seq <= ? ORDER BY seq DESC LIMIT 1 OFFSET ?",
            (kind, until, n - 1),
        )
        return int(row[0]) if row else 0

    def batches_begun(self, at: int) -> int:
        """Number of the event with which the first batch began that was under way when event
        number `at` was written: of a step that was not trained then, or of the newest trials."""
        begun = max(self.nth_last("step_started", 1, at), self.nth_last("eval_started", 1, at))
        started = self._db.rows(
            f"SELECT seq, {in_body('$.step')} FROM events"
            " WHERE kind = 'step_started' AND seq <= ? ORDER BY seq DESC",
            (at,),
        )
        for seq, step in started:
            trained = self._db.rows(
                "SELECT 1 FROM events WHERE kind = 'step_finished' AND seq > ? AND seq <= ?"
                f" AND {in_body('$.step')} = ?",
                (seq, at, step),
            )
            if trained:
                break
            begun = min(begun, int(seq))
        return begun

    def live_trials(self, at: int) -> set[str]:
        """The trials that were queued and not finished when event number `at` was written."""
        rows = self._db.rows(
            "SELECT trial FROM events WHERE kind = 'trial_queued' AND seq <= ?"
            " EXCEPT SELECT trial FROM events WHERE kind = 'trial_finished' AND seq <= ?",
            (at, at),
        )
        return {trial for (trial,) in rows}

    def read_trial(self, trial: str, after: int = 0) -> list[Entry]:
        """Every event that names the trial, in order."""
        rows = self._db.rows(
            "SELECT seq, time, kind, body FROM events WHERE trial = ? AND seq > ? ORDER BY seq",
            (trial, after),
        )
        return self._entries(rows, after)

    def last_time(self, trial: str) -> float | None:
        """Time of the trial's last event, seconds since the epoch; None: it has none."""
        row = self._db.row(
            "SELECT time FROM events WHERE trial = ? ORDER BY seq DESC LIMIT 1", (trial,)
        )
        return self._time(row)

    def time_before(self, seq: int | None) -> float | None:
        """Time of the event before number `seq`, or of the last one (None); None: there is none."""
        row = self._db.row(
            "SELECT time FROM events WHERE ? IS NULL OR seq < ? ORDER BY seq DESC LIMIT 1",
            (seq, seq),
        )
        return self._time(row)

    def _time(self, row: tuple[object] | None) -> float | None:
        if row is None:
            return None
        if not is_time(row[0]):
            raise JournalError(f"{self.run.database}: can't be read (a time in it is none)")
        return float(row[0])

    def seq_at(self, time: float) -> int:
        """Number of the last event whose replay time is at most `time`; 0: none."""
        return self._times.seq_at(time)

    def last_seq(self) -> int:
        return self._db.last_seq()

    def sampled(self, trial: str, before: int) -> int:
        """How many model calls of a trial had been answered before the event number `before`."""
        (calls,) = self._db.row(
            "SELECT count(*) FROM events WHERE trial = ? AND kind = 'turn_sampled' AND seq < ?",
            (trial, before),
        )
        return int(calls)

    def samples(self, trial: str, limit: int = -1) -> list[SampleRecord]:
        """Every model call of a trial in order (at most `limit`), prompts restored in full."""
        import numpy as np

        records: list[SampleRecord] = []
        tail: tuple[int, ...] = ()
        for row in self._db.rows(
            "SELECT turn, carried, new_prompt_ids, completion_ids, logprobs, pieces, prompt_text,"
            " stop_reason, weights_version, temperature, seconds, summary, id,"
            f" {self._db.model_logprobs()} FROM samples WHERE trial = ? ORDER BY id LIMIT ?",
            (trial, limit),
        ):
            with self._sound_sample(row[12]):
                if not all(map(isinstance, row, _SAMPLE)):
                    raise ValueError("another type than was written")
                models = None if row[13] is None else unpack_floats(row[13])
                prompt = tail[: row[1]] + unpack_ids(row[2])
                completion, logprobs = unpack_ids(row[3]), unpack_floats(row[4])
                pieces = unpack_texts(row[5])
                if models is None and row[9] != 1.0:
                    # What was recorded is what was sampled from, and nothing else.
                    models = [math.nan] * len(completion)
                lengths = {len(completion), len(logprobs), len(pieces)}
                if len(lengths | ({len(models)} if models is not None else set())) != 1:
                    raise ValueError("not as many texts or log-probabilities as tokens")
                tail = prompt + completion
                records.append(
                    SampleRecord(
                        trial=trial,
                        turn=row[0],
                        prompt_ids=prompt,
                        completion_ids=completion,
                        logprobs=np.asarray(logprobs, np.float32),
                        pieces=pieces,
                        prompt_text=unpack_texts(row[6])[0],
                        stop_reason=row[7],
                        weights_version=row[8],
                        temperature=row[9],
                        seconds=row[10],
                        summary=bool(row[11]),
                        model_logprobs=None if models is None else np.asarray(models, np.float32),
                    )
                )
        return records

    def first_prompt(self, trial: str) -> str:
        """Text of the trial's first prompt, which has its task's instruction; empty: none is
        recorded."""
        row = self._db.row(
            "SELECT id, prompt_text FROM samples WHERE trial = ? ORDER BY id LIMIT 1", (trial,)
        )
        if row is None:
            return ""
        with self._sound_sample(row[0]):
            return unpack_texts(row[1])[0]

    def trained_logprobs(self, trial: str, step: int) -> npt.NDArray[np.float32] | None:
        """What the trainer gave the trial's trained tokens, call by call; None: not trained on."""
        import numpy as np

        row = self._db.row(
            "SELECT logprobs FROM trained WHERE trial = ? AND step = ?", (trial, step)
        )
        if row is None:
            return None
        try:
            return np.asarray(unpack_floats(row[0]), np.float32)
        except ValueError as error:
            raise self._db.corrupt(step, f"trained, {trial}") from error

    def calls_until(self, sample: int) -> list[SampleRecord]:
        """The model calls of a sample's trial up to that one; empty when there is no such."""
        row = self._db.row(
            "SELECT trial, (SELECT count(*) FROM samples AS other"
            " WHERE other.trial = samples.trial AND other.id <= samples.id)"
            " FROM samples WHERE id = ?",
            (sample,),
        )
        return [] if row is None else self.samples(row[0], row[1])

    def sample_tokens(self, sample: int) -> list[tuple[str, float]]:
        """Text and log-probability of each token of one completion."""
        row = self._db.row("SELECT pieces, logprobs FROM samples WHERE id = ?", (sample,))
        if row is None:
            return []
        with self._sound_sample(sample):
            return list(zip(unpack_texts(row[0]), unpack_floats(row[1]), strict=True))

    def turn_of(self, sample: int) -> int | None:
        """The turn that a completion is of; None: there is no such sample."""
        row = self._db.row("SELECT turn FROM samples WHERE id = ?", (sample,))
        return None if row is None else int(row[0])

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _sound_sample(self, id: int) -> Iterator[None]:
        try:
            yield
        except (IndexError, TypeError, ValueError, zlib.error) as error:
            raise self._db.corrupt(id, "a model call's tokens") from error

    def _entries(self, rows: list[tuple[int, float, str, str]], after: int) -> list[Entry]:
        # Where a damaged file leads in circles, reading on would never end.
        for row in rows:
            if not isinstance(row[0], int) or row[0] <= after:
                raise JournalError(f"{self.run.database}: its rows are out of order")
            after = row[0]
        try:
            return [_entry(row) for row in rows]
        except ValueError:
            return [self._sound(row) for row in rows]

    def _sound(self, row: tuple[int, float, str, str]) -> Entry:
        """The event; in its place that it can't be read, or an error."""
        try:
            return _entry(row)
        except ValueError as error:
            seq, time, kind, _ = row
            time = time if is_time(time) else 0.0
            if not self._lenient:
                raise self._db.corrupt(seq, kind) from error
            self.left_out[seq] = kind
            text = f"row {seq} of the journal ({kind}) is corrupt: what it said is missing here"
            return Entry(seq, time, Noted(level="error", text=text))


def _entry(row: tuple[int, float, str, str]) -> Entry:
    """Raises `ValueError` when that is not what was written."""
    seq, time, kind, body = row
    if not is_time(time):
        raise ValueError(time)
    return Entry(seq, time, decode(kind, body))
