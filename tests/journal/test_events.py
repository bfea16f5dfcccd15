"""Events as JSON: journals of every tbtui so far are read, and what is written reads the same."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tbtui.journal import events
from tbtui.journal.events import (
    EVENT_TYPES,
    EventError,
    PhaseSeconds,
    RunResumed,
    RunStarted,
    SettingsChanged,
    StepFinished,
    TrialFinished,
    TrialQueued,
    TrialRelabelled,
    TurnStarted,
    decode,
    decode_any,
    encode,
    fields_of,
)

WRITTEN = [
    json.loads(line)
    for line in (Path(__file__).parent / "events_of_old.jsonl").read_text().splitlines()
]
"""At least two events of each kind, as they were written when it was new: once with all
that can be left out left out, once with texts and numbers that are hard to write."""


def test_there_is_an_old_event_of_each_kind() -> None:
    assert {each["kind"] for each in WRITTEN} == set(EVENT_TYPES)


@pytest.mark.parametrize("kind", EVENT_TYPES)
def test_what_was_written_is_read_and_written_again(kind: str) -> None:
    for each in WRITTEN:
        if each["kind"] != kind:
            continue
        event = decode(kind, each["body"])
        assert event.kind == kind
        written = json.loads(each["body"])
        again = json.loads(encode(event))
        assert {name: again[name] for name in written} == _read(kind, written)
        # Fields of a later version have their defaults.
        later = {
            field.name: json.loads(json.dumps(_default(field)))
            for field in msgspec.structs.fields(type(event))
            if field.name not in written
        }
        assert {name: again[name] for name in later} == later
        assert decode(kind, encode(event)) == event
        told = json.dumps(fields_of(event))
        assert decode_any(told.encode()) == event
        assert json.loads(told) == {"kind": kind, **again}


def _default(field: msgspec.structs.FieldInfo) -> Any:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def _read(kind: str, written: dict[str, Any]) -> dict[str, Any]:
    """A reward that can't be trained on is none; fields that came later have their defaults."""
    if kind in ("trial_finished", "trial_relabelled"):
        for name in ("reward", "before"):
            if abs(written.get(name) or 0.0) > 1e6:
                written = {**written, name: None}
    if seconds := written.get("seconds") if kind == "trial_finished" else None:
        written = {**written, "seconds": {"delayed": 0.0, **seconds}}
    if kind == "gpus_measured":
        written = {**written, "gpus": [{**gpu, "shares": []} for gpu in written["gpus"]]}
    return written


ODD: dict[str, tuple[Any, int, str]] = {
    "infinite": (math.inf, 2**63, "\0"),
    "infinitely small": (-math.inf, -(2**64), "\ud800"),
    "none": (math.nan, 10**400, "a\udcff\n"),
    "NumPy's": (np.float32("nan"), 10**4200, "\x1b[2J\x7f\u2028\ufffe"),
    "negative zero": (-0.0, 0, ""),
    "smallest": (5e-324, -1, "\U0010ffff"),
    "largest": (1.7976931348623157e308, -(10**400), "x" * 100_000),
    "beyond": (10**400, -(10**5000), '"\\' * 1000),
}
"""A number, a whole number and a text, such as a task, a setting, a server or a model brings."""


def filled(shape: msgspec.inspect.Type, odd: tuple[Any, int, str]) -> Any:
    """A value of a field of this type, nothing in it but odd ones."""
    number, whole, text = odd
    match shape:
        case msgspec.inspect.StrType():
            return text
        case msgspec.inspect.FloatType():
            return number
        case msgspec.inspect.IntType():
            return whole
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.AnyType():
            return {text: [number, whole, text, None, {}, {text: number}, [number]]}
        case msgspec.inspect.LiteralType():
            return shape.values[-1]
        case msgspec.inspect.EnumType():
            return next(iter(shape.cls))
        case msgspec.inspect.UnionType():
            (some,) = (t for t in shape.types if not isinstance(t, msgspec.inspect.NoneType))
            return filled(some, odd)
        case msgspec.inspect.VarTupleType():
            return (filled(shape.item_type, odd),) * 2
        case msgspec.inspect.DictType():
            own = isinstance(shape.key_type, msgspec.inspect.IntType)  # of pass@k
            return {8 if own else text: filled(shape.value_type, odd)}
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType():
            return shape.cls(**{each.name: filled(each.type, odd) for each in shape.fields})
    raise NotImplementedError(shape)


@pytest.mark.parametrize("odd", ODD)
def test_what_is_written_is_read_whatever_it_says(odd: str) -> None:
    for kind, known in EVENT_TYPES.items():
        event = filled(msgspec.inspect.type_info(known), ODD[odd])
        body = encode(event)
        read = decode(kind, body)
        assert encode(read) == body
        # Lines for scripts and between processes say the same, in JSON that every parser takes.
        line = json.dumps(fields_of(event), allow_nan=False)
        assert decode_any(line.encode()) == read
        if odd in ("negative zero", "smallest", "largest"):
            assert read == event


def test_every_event_has_a_kind() -> None:
    """The union of all events has left out none."""
    classes = [each for each in vars(events).values() if isinstance(each, type)]
    known = {each for each in classes if issubclass(each, events.Event)}
    assert known - {events.Event, events.TrialEvent} == set(EVENT_TYPES.values())
    assert EVENT_TYPES["run_started"] is RunStarted
    assert (RunStarted.kind, TrialQueued.kind) == ("run_started", "trial_queued")


def test_an_event_does_not_change_and_is_like_one_that_says_the_same() -> None:
    event = TurnStarted(trial="a", turn=1)
    with pytest.raises(AttributeError):
        event.turn = 2  # type: ignore[misc]
    assert event == TurnStarted(trial="a", turn=1)
    assert event != TurnStarted(trial="a", turn=2)
    assert RunResumed() != events.RunPaused()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("no_such", "{}"),
        ("run_resumed", '{"x": 1}'),
        ("run_resumed", "[]"),
        ("run_resumed", ""),
        ("turn_started", '{"trial": "a"}'),
        ("turn_started", '{"trial": "a", "turn": "many"}'),
        ("turn_started", '{"trial": "a", "turn": 1.5}'),
        ("turn_started", '{"trial": "a", "turn": null}'),
        ("noted", '{"level": "loud", "text": ""}'),
        ("noted", '{"level": "info", "text": "\\ud800"}'),
        ("noted", b'{"level": "info", "text": "\xff"}'),
        ("noted", None),
        ("noted", 3.5),
        ("trial_finished", '{"trial": "a", "outcome": "won"}'),
        ("settings_changed", '{"settings": {}, "before": ' + '{"a":' * 100_000),
    ],
)
def test_what_is_no_event_is_an_error(kind: str, body: Any) -> None:
    with pytest.raises(EventError):
        decode(kind, body)


def test_what_an_older_journal_has_of_a_group_and_this_one_does_not_know_is_passed_over() -> None:
    task = {"name": "a", "split": "train", "colour": "red"}
    body = json.loads(next(e["body"] for e in WRITTEN if e["kind"] == "run_started"))
    event = decode("run_started", json.dumps({**body, "tasks": [task]}))
    assert isinstance(event, RunStarted)
    assert event.tasks[0].name == "a"


@pytest.mark.parametrize("reward", [1e308, -1e308, 1e7, math.inf, math.nan])
def test_a_reward_that_nobody_can_train_on_is_none(reward: float) -> None:
    finished = TrialFinished(
        trial="a",
        outcome=events.Outcome.SOLVED,
        reason="",
        verdict=reward,
        reward=reward,
        turns=1,
        seconds=PhaseSeconds(),
    )
    assert finished.reward is None
    changed = TrialRelabelled(trial="a", reward=reward, before=reward, reason="")
    assert (changed.reward, changed.before) == (None, None)
    kept = TrialRelabelled(trial="a", reward=1e6, before=-1e6, reason="")
    assert (kept.reward, kept.before) == (1e6, -1e6)


def test_numbers_that_json_does_not_know() -> None:
    event = StepFinished(
        step=np.int64(1),  # type: ignore[arg-type]
        weights_version=1,
        metrics={"f32": np.float32(0.5), "f64": np.float64(0.25), "nan": math.nan},  # type: ignore[dict-item]
    )
    written = json.loads(encode(event))
    assert written["step"] == 1
    assert written["metrics"] == {"f32": 0.5, "f64": 0.25}
    assert decode("step_finished", encode(event))
    huge = SettingsChanged(settings={"seed": 2**80, "where": Path("/x")}, before={})
    assert json.loads(encode(huge))["settings"] == {"seed": 2**80, "where": "/x"}


def test_seconds_add_up() -> None:
    one, other = PhaseSeconds(build=1, queue=2), PhaseSeconds(build=0.5, teardown=4)
    assert one + other == PhaseSeconds(build=1.5, queue=2, teardown=4)
    assert (one.total, one.active) == (3, 1)
    assert one.by_phase() == msgspec.structs.asdict(one)
