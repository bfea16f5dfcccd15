"""Every figure that a journal holds and a chart can draw, each as a series over the run.

Steps, evaluations, groups, the policy's queue, processes and GPUs. SQLite takes the one figure
that is asked for out of its events: a run may have thousands of steps with a hundred metrics each.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from tbtui.journal.database import Database, JournalError, in_body, is_time
from tbtui.journal.events import FORMER_METRICS, current_metric
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.samples import unpack_floats

XAxis = Literal["step", "time", "rollouts", "tokens", "dollars"]
"""`time`: seconds since the run's start, as it had a process; `tokens`: sampled ones; `dollars`:
spent, of a run whose policy has prices."""
X_AXES: tuple[XAxis, ...] = get_args(XAxis)

_POLICY = ("in_flight", "running", "completed", "sampled_tokens", "p50_sec", "p95_sec")
_PROCESS = ("rss_mb", "cpu")
_GPU = ("utilisation", "memory_used_mib", "power_watt", "temperature_c")
_DISPOSITIONS = ("trained", "constant", "short")
_PER_STEP = "step_finished", "eval_finished"
_SAMPLED = "tokens/total/sampled"
SPENT = "cost/total_usd"
_MOST_CALLS = 4000
"""Model calls of a step that a profile is made of, at most."""
_NORMAL_95 = 1.96


_LARGEST = 1e300
"""A value beyond it is none: sums and squares of such values are infinite."""


class Point(NamedTuple):
    """A value with its confidence interval or range; without one, both ends are the value."""

    x: float
    y: float
    low: float
    high: float


Points = tuple[Point, ...]
"""By x."""


class _Row(NamedTuple):
    seq: int
    time: float
    value: float
    low: float
    high: float


def metric_names(run: RunDirectory) -> tuple[str, ...]:
    """Names of all metrics that the run has so far, what is of steps first.

    Raises:
        JournalError: the journal can't be read.
    """
    with contextlib.closing(Database(run)) as db:
        names = dict.fromkeys(map(current_metric, _keys(db, _PER_STEP, "$.metrics")))
        if _has(db, "eval_finished"):
            names |= dict.fromkeys(("eval/pass_rate", "eval/mean_reward", "eval/unscored"))
            for prefix, path in _EVAL_PARTS.items():
                keys = _keys(db, ("eval_finished",), f"$.{path}")
                names |= dict.fromkeys(prefix + key for key in keys if _is_plain(key))
        if _has(db, "group_scored"):
            names |= dict.fromkeys(f"groups/{each}" for each in _DISPOSITIONS)
        if _has(db, "trial_queued"):
            names["trials/queued"] = None
        if _has(db, "policy_measured"):
            names |= dict.fromkeys(f"policy/{each}" for each in _POLICY)
        if _has(db, "resources_measured"):
            names["resources/engine_lag_ms"] = None
            for (role,) in db.rows(
                f"SELECT DISTINCT {_ELEMENT.format('$.role')}"
                f" FROM events, {_each('$.processes')} WHERE kind = 'resources_measured'"
            ):
                names |= dict.fromkeys(f"resources/{role}/{each}" for each in _PROCESS)
        for host, index in db.rows(
            f"SELECT DISTINCT {in_body('$.host')}, {_ELEMENT.format('$.index')}"
            f" FROM events, {_each('$.gpus')} WHERE kind = 'gpus_measured'"
        ):
            names |= dict.fromkeys(f"gpu/{host}/{index}/{each}" for each in _GPU)
    return tuple(names)


_EVAL_PARTS = {
    "eval/pass@": "pass_at",
    "eval/kind/": "by_kind",
    "eval/dataset/": "by_dataset",
    "eval/task/": "by_task",
}
"""Prefix of a metric -> field of an evaluation that maps names to figures."""
_ELEMENT = "json_extract(element.value, '{}')"


def _each(path: str) -> str:
    """SQL for the elements of a list or an object in the body; none where that is corrupt."""
    return f"json_each(iif(json_valid(body), body, '{{}}'), '{path}') AS element"


def _keys(db: Database, kinds: Sequence[str], path: str) -> list[str]:
    marks = ", ".join("?" * len(kinds))
    rows = db.rows(
        f"SELECT element.key FROM events, {_each(path)} WHERE kind IN ({marks})"
        " GROUP BY element.key ORDER BY min(events.seq), min(element.id)",
        tuple(kinds),
    )
    return [str(key) for (key,) in rows]


def _has(db: Database, kind: str) -> bool:
    return bool(db.rows("SELECT 1 FROM events WHERE kind = ? LIMIT 1", (kind,)))


def read_series(run: RunDirectory, metric: str, axis: XAxis, until: int | None = None) -> Points:
    """A metric's points over the run so far; none where the run hasn't got it.

    A step that was trained again after the run was resumed has its latest value.

    Args:
        until: the last event, by its number, that counts; None: all do.

    Raises:
        JournalError: the journal can't be read.
    """
    with contextlib.closing(Database(run)) as db:
        last = math.inf if until is None else until
        rows = [
            row for row in _rows(db, current_metric(metric)) if row.seq <= last and _is_sound(row)
        ]
        if not rows:
            return ()
        clock = _clock(db, axis)
        placed = [Point(clock.at(row.seq, row.time), *row[2:]) for row in rows]
    if axis == "step" and not metric.startswith(("policy/", "resources/", "gpu/")):
        placed = list({point.x: point for point in placed}.values())
    return tuple(sorted(placed, key=lambda point: point.x))


def _is_sound(row: _Row) -> bool:
    return is_time(row.time) and all(
        isinstance(value, int | float) and abs(value) <= _LARGEST for value in row[2:]
    )


def _rows(db: Database, metric: str) -> list[_Row]:
    """The metric's events, in their order.

    Another trainer's step may have a metric of a name that is tbtui's for something else.
    """
    return _own(db, metric) or _of_steps(db, metric)


def _of_steps(db: Database, metric: str) -> list[_Row]:
    """A metric of steps and evaluations, under the name that it has and those that it had."""
    names = metric, *(old for old, new in FORMER_METRICS.items() if new == metric)
    return sorted(row for name in names for row in _named(db, name))


def _named(db: Database, metric: str) -> list[_Row]:
    """A metric of steps and evaluations, whatever its name."""
    if _is_plain(metric):
        return _extracted(db, _PER_STEP, f'$.metrics."{metric}"')
    # A path can't have these names; looking through each event's metrics is slower.
    marks = ", ".join("?" * len(_PER_STEP))
    rows = db.rows(
        f"SELECT seq, time, element.value FROM events, {_each('$.metrics')}"
        f" WHERE kind IN ({marks}) AND element.key = ? AND element.value IS NOT NULL ORDER BY seq",
        (*_PER_STEP, metric),
    )
    return [_Row(seq, time, value, value, value) for seq, time, value in rows]


def _is_plain(key: str) -> bool:
    """Whether a key stands in SQLite's paths as it is: none that JSON writes with an escape."""
    return key.isprintable() and not {'"', "\\"} & set(key)


def _own(db: Database, metric: str) -> list[_Row]:
    """The events of what is not a metric of steps; none where the name is no such one."""
    prefix, _, rest = metric.partition("/")
    head, _, field = rest.rpartition("/")
    match prefix:
        case "eval" if (found := _of_evaluation(metric)) is not None:
            return found(db)
        case "groups" if rest in _DISPOSITIONS:
            return _group_counts(db, rest)
        case "trials" if rest == "queued":
            return _trial_counts(db)
        case "policy" if rest in _POLICY:
            return _extracted(db, ("policy_measured",), f"$.{rest}")
        case "resources" if rest == "engine_lag_ms":
            return _extracted(db, ("resources_measured",), "$.engine_lag_ms")
        case "resources" if field in _PROCESS:
            return _of_elements(
                db, "resources_measured", "$.processes", field, {"$.role": head}, host=""
            )
        case "gpu" if field in _GPU:
            host, _, index = head.rpartition("/")
            where = {"$.index": int(index) if index.isdecimal() else -1}
            return _of_elements(db, "gpus_measured", "$.gpus", field, where, host=host)
        case _:
            return []


def _of_evaluation(metric: str) -> _Read | None:
    """What reads a metric that is not among an evaluation's `metrics`."""
    name = metric.removeprefix("eval/")
    if name in ("mean_reward", "unscored"):
        return _Read(f"$.{name}")
    if name == "pass_rate":
        return _Read("$.pass_rate", '$.pass_at."1"')
    for prefix, field in _EVAL_PARTS.items():
        if metric.startswith(prefix):
            path = f'$.{field}."{metric.removeprefix(prefix)}"'
            return _Read(f"{path}.value", path) if field == "pass_at" else _Read(path)
    return None


@dataclass(frozen=True, slots=True)
class _Read:
    path: str
    interval: str = ""
    """Path of what has `low` and `high`."""

    def __call__(self, db: Database) -> list[_Row]:
        return _extracted(db, ("eval_finished",), self.path, self.interval)


def _extracted(db: Database, kinds: Sequence[str], path: str, interval: str = "") -> list[_Row]:
    marks = ", ".join("?" * len(kinds))
    low, high = (f"{interval}.{end}" if interval else path for end in ("low", "high"))
    value = "iif(json_valid(body), json_extract(body, ?), NULL)"
    rows = db.rows(
        f"SELECT seq, time, {value} AS value, {value}, {value} FROM events"
        f" WHERE kind IN ({marks}) AND value IS NOT NULL ORDER BY seq",
        (path, low, high, *kinds),
    )
    return [
        _Row(seq, time, value, value if low is None else low, value if high is None else high)
        for seq, time, value, low, high in rows
    ]


def _of_elements(
    db: Database, kind: str, path: str, field: str, where: Mapping[str, str | int], *, host: str
) -> list[_Row]:
    """The sum of a field over the elements of each event's list that are as `where` says."""
    ((key, wanted),) = where.items()
    on_host = f" AND {in_body('$.host')} = ?" if host else ""
    rows = db.rows(
        f"SELECT seq, time, sum({_ELEMENT.format(f'$.{field}')}) AS value"
        f" FROM events, {_each(path)} WHERE kind = ? AND {_ELEMENT.format(key)} = ?{on_host}"
        " GROUP BY seq HAVING value IS NOT NULL ORDER BY seq",
        (kind, wanted, *([host] if host else [])),
    )
    return [_Row(seq, time, value, value, value) for seq, time, value in rows]


def _group_counts(db: Database, disposition: str) -> list[_Row]:
    """At the end of each step: its groups of this disposition."""
    rows = db.rows(
        f"SELECT max(seq), max(time), sum({in_body('$.disposition')} = ?) FROM events"
        f" WHERE kind = 'group_scored' GROUP BY {in_body('$.step')}",
        (disposition,),
    )
    return [_at_step_end(db, seq, float(count or 0)) for seq, _, count in rows]


def _trial_counts(db: Database) -> list[_Row]:
    """At the end of each step: the attempts that were queued for it."""
    rows = db.rows(
        f"SELECT {in_body('$.step')} AS step, count(*) FROM events"
        f" WHERE kind = 'trial_queued' AND {in_body('$.purpose')} = 'train' GROUP BY step"
    )
    counts = dict(rows)
    return [
        _Row(seq, time, counts[step], counts[step], counts[step])
        for seq, time, step in db.rows(
            f"SELECT seq, time, {in_body('$.step')} FROM events"
            " WHERE kind = 'step_finished' ORDER BY seq"
        )
        if step in counts
    ]


def _at_step_end(db: Database, seq: int, value: float) -> _Row:
    row = db.row(
        "SELECT seq, time FROM events WHERE kind = 'step_finished' AND seq > ?"
        " ORDER BY seq LIMIT 1",
        (seq,),
    ) or db.row("SELECT seq, time FROM events WHERE seq = ?", (seq,))
    return _Row(row[0], row[1], value, value, value)


@dataclass(frozen=True, slots=True)
class _Clock:
    """Where on the x axis an event is."""

    seqs: Sequence[int]
    """Numbers of events at which x changes,"""
    values: Sequence[float]
    """and what it is from there on."""
    start: float | None = None
    """Time of the run's start, where the axis is time: then the others are what to take off."""

    def at(self, seq: int, time: float) -> float:
        place = bisect_right(self.seqs, seq) - 1
        value = self.values[place] if place >= 0 else 0.0
        return value if self.start is None else max(0.0, time - self.start - value)


def _clock(db: Database, axis: XAxis) -> _Clock:
    match axis:
        case "step":
            rows = db.rows(
                f"SELECT seq, {in_body('$.step')} FROM events"
                " WHERE kind IN ('step_finished', 'run_continued') ORDER BY seq"
            )
            known = [(seq, float(step)) for seq, step in rows if isinstance(step, int)]
            return _Clock([seq for seq, _ in known], [step for _, step in known])
        case "tokens":
            sampled = _extracted(db, _PER_STEP, f'$.metrics."{_SAMPLED}"')
            return _Clock([row.seq for row in sampled], [row.value for row in sampled])
        case "dollars":
            spent = _extracted(db, _PER_STEP, f'$.metrics."{SPENT}"')
            return _Clock([row.seq for row in spent], [row.value for row in spent])
        case "rollouts":
            finished = db.rows(
                "SELECT ended.seq FROM events AS ended JOIN events AS queued"
                " ON queued.trial = ended.trial AND queued.kind = 'trial_queued'"
                f" WHERE ended.kind = 'trial_finished' AND {in_body('$.purpose', 'queued')}"
                f" = 'train' AND {in_body('$.outcome', 'ended')} IS NOT 'cancelled'"
                " ORDER BY ended.seq"
            )
            return _Clock([seq for (seq,) in finished], range(1, len(finished) + 1))
        case "time":
            row = db.row("SELECT time FROM events WHERE kind = 'run_started' ORDER BY seq LIMIT 1")
            gaps = list(dead_times(db))
            lost = [sum(seconds for _, seconds in gaps[: n + 1]) for n in range(len(gaps))]
            start = row[0] if row and is_time(row[0]) else 0.0
            return _Clock([seq for seq, _ in gaps], lost, start)


def dead_times(db: Database) -> Iterator[tuple[int, float]]:
    """For each time that the run was resumed: the first event of the new process, and the seconds
    before it without any.

    About what `Downtime` says: a process's first event is the phase before it goes on.
    """
    (pid,) = db.row(f"SELECT {in_body('$.pid')} FROM events WHERE kind = 'run_started'") or (None,)
    for seq, own in db.rows(
        f"SELECT seq, {in_body('$.pid')} FROM events WHERE kind = 'run_continued' ORDER BY seq"
    ):
        first = db.row(
            "SELECT seq, time FROM events WHERE kind = 'run_phase_changed' AND seq < ?"
            " ORDER BY seq DESC LIMIT 1",
            (seq,),
        )
        last = first and db.row(
            "SELECT time FROM events WHERE seq < ? ORDER BY seq DESC LIMIT 1", (first[0],)
        )
        # One that has lost its policy goes on in the same process.
        if first and last and own != pid:
            yield first[0], max(0.0, first[1] - last[0])
        pid = own


@dataclass(frozen=True, slots=True)
class Profile:
    """Negative log-probability by position in the answer, over a step's model calls."""

    step: int
    points: Points
    """x: position of the token, from 1; y: mean over the answers that are so long, in nats, with
    the 95% confidence interval of the mean."""
    answers: int
    cut: bool = False
    """The step has more answers than are read."""
    temperatures: tuple[float, ...] = ()
    """At which these were sampled."""
    truncated: bool = False
    """Unlikely tokens were left out."""

    @property
    def is_entropy(self) -> bool:
        """Whether the points estimate the policy's entropy."""
        return self.temperatures == (1.0,) and not self.truncated


def profile_steps(run: RunDirectory, until: int | None = None) -> tuple[int, ...]:
    """The steps that have finished, for `read_profile`; with `until`, up to the event of that
    number. Raises `JournalError`."""
    with contextlib.closing(Database(run)) as db:
        rows = db.rows(
            f"SELECT DISTINCT {in_body('$.step')} FROM events WHERE kind = 'step_finished'"
            " AND (? IS NULL OR seq <= ?)",
            (until, until),
        )
    return tuple(sorted(step for (step,) in rows if isinstance(step, int)))


def read_profile(run: RunDirectory, step: int) -> Profile:
    """The profile of a step's training trials.

    Given the tokens before it, the mean of -log p of a token drawn from p is the entropy of p: of
    tokens sampled at temperature 1 the points are unbiased estimates of the policy's mean entropy
    at that position, over the answers that get there.

    Raises:
        JournalError: the journal can't be read.
    """
    with contextlib.closing(Database(run)) as db:
        calls = db.rows(
            "SELECT samples.id, samples.logprobs, samples.temperature,"
            f" {db.model_logprobs()} IS NOT NULL FROM events AS queued"
            " JOIN samples ON samples.trial = queued.trial"
            f" WHERE queued.kind = 'trial_queued' AND {in_body('$.step', 'queued')} = ?"
            f" AND {in_body('$.purpose', 'queued')} = 'train' AND NOT samples.summary"
            " ORDER BY samples.id LIMIT ?",
            (step, _MOST_CALLS + 1),
        )
    counts: list[int] = []
    sums: list[float] = []
    squares: list[float] = []
    for id, blob, *_ in calls[:_MOST_CALLS]:
        try:
            logprobs = unpack_floats(blob)
        except ValueError as error:
            raise JournalError(f"{run.database}: row {id} of its samples is corrupt") from error
        for place, logprob in enumerate(logprobs):
            if place == len(counts):
                counts.append(0)
                sums.append(0.0)
                squares.append(0.0)
            counts[place] += 1
            sums[place] -= logprob
            squares[place] += logprob * logprob
    points = []
    for place, (count, total, square) in enumerate(zip(counts, sums, squares, strict=True)):
        mean = total / count
        variance = max(0.0, square - count * mean * mean) / max(1, count - 1)
        half = _NORMAL_95 * math.sqrt(variance / count)
        points.append(Point(place + 1.0, mean, max(0.0, mean - half), mean + half))
    temperatures = tuple(sorted({temperature for _, _, temperature, _ in calls[:_MOST_CALLS]}))
    truncated = any(temperature == 1 and other for _, _, temperature, other in calls[:_MOST_CALLS])
    count, cut = min(len(calls), _MOST_CALLS), len(calls) > _MOST_CALLS
    return Profile(step, tuple(points), count, cut, temperatures, truncated)
