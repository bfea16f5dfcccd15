"""What a command asks of a trial's worker, and what the journal has of it: tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tbtui.engines.trials.admission import Admission, Slot
from tbtui.engines.trials.attempts import Attempt, Attempts, Place
from tbtui.engines.trials.steering import Steering
from tbtui.journal.commands import Command, Typed, to_arguments
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    HumanMessaged,
    HumanTyped,
    Noted,
    Outcome,
    TrialGivenBack,
    TrialPaused,
    TrialResumed,
    TrialTakenOver,
)
from tbtui.journal.hold import FROZEN, PAUSED, RUNNING, Hold, typed_in
from tbtui.rollout.messages import (
    AgentWritten,
    ControlRefused,
    ControlVerb,
    KeysTyped,
    TypeKeys,
    WriteToAgent,
)
from tbtui.vocabulary import CommandVerb, TrialPhase

LS = (Typed("text", "ls"), Typed("key", "Enter"))
Asked = tuple[Any, ...]


@dataclass
class Bench:
    """Steering of real attempts, with lists for the pool and the journal."""

    asked: list[Asked] = field(default_factory=list)
    events: list[AnyEvent] = field(default_factory=list)
    attempts: Attempts = field(default_factory=Attempts)
    admission: Admission = field(default_factory=lambda: Admission(8, 0))
    typed_in: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steering = Steering(self.attempts, self.admission, self, self)  # type: ignore[arg-type]

    def add(self, trial: str = "t", *, purpose: str = "train", **state: Any) -> Attempt:
        """A trial at work, but for what `state` says; `late` is its place's."""
        plan = SimpleNamespace(label=f"label of {trial}", purpose=purpose)
        model: Any = SimpleNamespace(typed_in=lambda: self.typed_in.append(trial))
        place: Place[Any] = Place(plan, late=state.pop("late", False))
        attempt = Attempt(trial, 1, model, slot=Slot(self.admission))
        attempt.phase = TrialPhase.MODEL
        for name, value in state.items():
            setattr(attempt, name, value)
        self.attempts.fill(place, attempt)
        return attempt

    # The pool

    def control(self, trial: str, verb: ControlVerb, reason: str = "") -> bool:
        self.asked.append((trial, verb, reason))
        return True

    def type_keys(self, keys: TypeKeys) -> bool:
        self.asked.append((keys,))
        return True

    def write(self, message: WriteToAgent) -> bool:
        self.asked.append((message,))
        return True

    # The journal

    def append(self, event: AnyEvent) -> None:
        self.events.append(event)

    def done(self) -> list[tuple[str, bool, str]]:
        """What commands were answered, by their ids."""
        return [(e.command, e.ok, e.result) for e in self.events if isinstance(e, CommandDone)]

    def say(self, verb: CommandVerb, reason: str = "", actor: str = "ada", **more: Any) -> None:
        self.steering.control(Command(verb, "t", actor, reason, more, id=verb))


WAITS = None
QUEUED = {"slot": None}
ADA, BOB = typed_in("ada"), typed_in("bob")
IN_PAUSE = {"hold": PAUSED, "phase": TrialPhase.PAUSED, "wanted": PAUSED}
IN_FREEZE = IN_PAUSE | {"hold": FROZEN, "wanted": FROZEN}
TAKEN = IN_PAUSE | {"hold": ADA, "wanted": ADA}
BOBS = IN_PAUSE | {"hold": BOB, "wanted": BOB}
WAITED_FOR = {"wanted": ADA}
LATE = IN_PAUSE | {"late": True}
BY_ADA = "asked by ada: why"
NEW = "given up for a fresh attempt by ada"
TO_TYPE = to_arguments(LS)
ARGUMENTS: dict[str, dict[str, Any]] = {"type": TO_TYPE, "message": {"text": " look "}}

COMMANDS: list[tuple[CommandVerb, dict[str, Any], list[Asked], str | None, dict[str, Any]]] = [
    # verb, how the trial stands, what its worker is asked, the answer, what has changed
    ("pause", {}, [("t", "pause", BY_ADA)], WAITS, {"wanted": PAUSED}),
    ("pause", QUEUED, [], WAITS, {"wanted": PAUSED}),
    ("pause", IN_PAUSE | {"wanted": RUNNING}, [], "t is paused", {"wanted": PAUSED}),
    ("pause", IN_FREEZE, [], "t is frozen", {"wanted": FROZEN}),
    ("freeze", {}, [("t", "freeze", BY_ADA)], WAITS, {"wanted": FROZEN}),
    ("freeze", IN_PAUSE, [("t", "freeze", BY_ADA)], WAITS, {"wanted": FROZEN}),
    ("freeze", IN_FREEZE, [], "t is frozen", {"wanted": FROZEN}),
    ("resume", {"wanted": PAUSED}, [], "t is running", {"wanted": RUNNING}),
    ("resume", QUEUED | {"wanted": PAUSED}, [], "t is running", {"wanted": RUNNING}),
    ("resume", IN_PAUSE, [("t", "resume", BY_ADA)], WAITS, {"wanted": RUNNING}),
    (
        *("resume", LATE),
        [("t", "resume", BY_ADA), ("t", "expire", "the step's deadline passed")],
        *(WAITS, {"wanted": RUNNING}),
    ),
    ("resume", WAITED_FOR, [("t", "resume", BY_ADA)], "t is running", {"wanted": RUNNING}),
    ("take_over", {}, [("t", "take_over", "ada")], WAITS, WAITED_FOR | {"hold": RUNNING}),
    ("take_over", TAKEN, [], "t is yours already", {"wanted": ADA}),
    ("type", TAKEN, [(TypeKeys("t", "type", LS),)], WAITS, {"hold": ADA}),
    ("message", IN_PAUSE, [(WriteToAgent("t", "message", "look"),)], WAITS, {"wanted": PAUSED}),
    ("give_back", TAKEN, [("t", "resume", BY_ADA)], WAITS, {"wanted": RUNNING}),
    (
        *("cancel", {}, [("t", "cancel", "cancelled by ada: why")], WAITS),
        {"ended_because": "cancelled by ada: why", "final": True, "again": None},
    ),
    (
        *("cancel", QUEUED, [], WAITS),
        {"ended_because": "taken out of the queue by ada: why", "final": True, "gone": True},
    ),
    (
        *("stop", QUEUED, [], WAITS),
        {"ended_because": "taken out of the queue by ada: why", "final": True, "gone": True},
    ),
    (
        *("stop", {}, [("t", "stop", "why")], WAITS),
        {"ended_because": "stopped by ada: why", "final": True, "gone": False},
    ),
    (
        *("retry", {}, [("t", "cancel", NEW + ": why")], WAITS),
        {"ended_because": NEW + ": why", "final": False, "again": "asked by ada: why"},
    ),
]


@pytest.mark.parametrize(("verb", "stands", "asked", "answer", "after"), COMMANDS)
async def test_what_a_command_does(
    verb: CommandVerb,
    stands: dict[str, Any],
    asked: list[Asked],
    answer: str | None,
    after: dict[str, Any],
) -> None:
    bench = Bench()
    attempt = bench.add(**stands)
    place, _ = bench.attempts.find("t") or pytest.fail("it is gone")
    bench.say(verb, "why", **ARGUMENTS.get(verb, {}))
    assert bench.asked == asked
    assert bench.done() == ([] if answer is None else [(verb, True, answer)])
    more = {"final": place.final.is_set(), "again": place.again, "gone": attempt.withdrawn.done()}
    assert {name: more.get(name, getattr(attempt, name, None)) for name in after} == after
    # What waits is answered when the trial ends.
    bench.steering.over("t", Outcome.FAILED)
    ends = "t ended as failed" + ("" if verb in ("stop", "cancel", "retry") else " first")
    assert bench.done()[0][2] == (answer or ends)
    assert len(bench.done()) == 1


REFUSED: list[tuple[CommandVerb, dict[str, Any], dict[str, Any], str]] = [
    # verb, how the trial stands, arguments, words
    ("exclude", {}, {}, "t belongs to no batch that is trained on"),
    ("exclude", {"purpose": "eval"}, {}, "t is held out: it is never trained on"),
    ("exclude", {"purpose": "fork"}, {}, "t is a fork: it is never trained on"),
    ("freeze", {"wanted": BOB}, {}, "bob types in t"),
    ("freeze", QUEUED, {}, "t is still queued: nothing to freeze"),
    ("type", {}, TO_TYPE, "t is not yours to type in: take it over first"),
    ("type", WAITED_FOR, TO_TYPE, "t is not yours to type in: it waits for the end of its turn"),
    ("type", TAKEN, {}, 't: nothing to type; say what: {"input": [{"text": "ls"}, {"key": …}]}'),
    ("type", BOBS, TO_TYPE, "bob types in t: one at a time"),
    ("message", IN_PAUSE, {"text": " "}, "t: nothing to say; write a message"),
    ("pause", {"phase": TrialPhase.VERIFYING}, {}, "t is being verified: nothing to pause"),
    ("resume", BOBS, {}, "bob types in t; give_back takes it from them"),
]


@pytest.mark.parametrize(("verb", "stands", "arguments", "words"), REFUSED)
async def test_what_is_refused_changes_nothing(
    verb: CommandVerb, stands: dict[str, Any], arguments: dict[str, Any], words: str
) -> None:
    bench = Bench()
    attempt = bench.add(**stands)
    wanted = attempt.wanted
    bench.say(verb, **arguments)
    assert (bench.asked, bench.done()) == ([], [(verb, False, words)])
    assert (attempt.wanted, attempt.ended_because) == (wanted, None)


async def test_a_trial_that_is_gone_and_a_frozen_one_that_is_to_be_taken() -> None:
    bench = Bench()
    bench.say("pause")
    assert bench.done() == [("pause", False, "t is not running: nothing to pause")]
    bench.add(**IN_FREEZE)
    bench.say("take_over")
    assert "frozen in the middle of a turn" in bench.done()[-1][2]
    bench.say("take_over", thaw=True)
    assert bench.asked == [("t", "take_over", "ada")]


async def test_a_paused_run_keeps_what_is_given_back_or_resumed() -> None:
    bench = Bench()
    attempt = bench.add(**TAKEN)
    bench.steering.hold()
    bench.say("give_back")
    assert (bench.asked, bench.done(), attempt.wanted) == ([("t", "give_back", "ada")], [], ADA)
    # One that acts to the end of its turn has been told to stand, though it does not yet.
    bench = Bench()
    bench.add()
    bench.steering.hold()
    bench.say("resume")
    assert bench.asked[1:] == [("t", "resume", "asked by ada")]
    assert not bench.steering.open


async def test_one_who_waits_for_a_trial_is_called_off() -> None:
    bench = Bench()
    attempt = bench.add()
    bench.say("take_over")
    bench.say("give_back", stay=True)
    assert bench.done() == [
        ("give_back", True, "t is left to the agent, which stays paused"),
        ("take_over", False, "t: called off by ada"),
    ]
    assert bench.asked == [("t", "take_over", "ada"), ("t", "give_back", "ada")]
    assert attempt.wanted == PAUSED
    bench.steering.taking_over.taken("t")  # at the same moment
    assert not attempt.hold.typist


async def test_who_leaves_gives_back_what_they_have_and_nothing_else() -> None:
    bench = Bench()
    bench.add("a", **TAKEN)
    bench.add("b", **WAITED_FOR)
    bench.add("c", **BOBS)
    assert bench.steering.leave("ada") == "given back: a, b"
    assert bench.asked == [("a", "give_back", "ada"), ("b", "give_back", "ada")]
    assert bench.steering.leave("eve") == "eve has no trial"


def answer(verb: str, words: str, ok: bool = True) -> CommandDone:
    return CommandDone(command=verb, ok=ok, result=f"t{words}")


NO = "it can't"
NOTED = Noted(level="warning", text=f"label of t: {NO}")
TYPED = HumanTyped(trial="t", actor="ada", parts=LS)
WRITTEN = HumanMessaged(trial="t", actor="ada", text="look")
PAUSE, FREEZE = TrialPaused(trial="t", frozen=False), TrialPaused(trial="t", frozen=True)
TAKES, GIVES = (kind(trial="t", actor="ada") for kind in (TrialTakenOver, TrialGivenBack))
SAID: list[tuple[object, dict[str, Any], str, list[AnyEvent], dict[str, Any]]] = [
    # what a worker says, how the trial stands, commands that wait, the journal, what has changed
    (PAUSED, {}, "pause freeze", [PAUSE, answer("pause", " paused")], {"hold": PAUSED}),
    (FROZEN, {}, "freeze", [FREEZE, answer("freeze", " frozen")], {"hold": FROZEN}),
    (FROZEN, {}, "pause", [FREEZE, answer("pause", " frozen")], {"hold": FROZEN}),
    (
        *(RUNNING, IN_PAUSE, "resume message"),
        *([TrialResumed(trial="t"), answer("resume", " goes on")], {"hold": RUNNING}),
    ),
    ("taken", WAITED_FOR, "", [TAKES], {"hold": ADA}),
    (
        *("taken", {}, "take_over"),
        *([TAKES, answer("take_over", ": ada is typing in it")], {"hold": ADA}),
    ),
    ("taken", {}, "", [], {"hold": RUNNING}),
    ("given back", TAKEN, "", [GIVES], {"hold": PAUSED, "wanted": PAUSED}),
    ("given back", WAITED_FOR, "", [], {"wanted": ADA}),
    (
        *(KeysTyped("t", "type", LS), TAKEN, "type"),
        *([TYPED, answer("type", ": typed")], {"typed_by": "ada"}),
    ),
    (
        *(KeysTyped("t", "type", LS, "gone"), TAKEN, "type"),
        *([TYPED, answer("type", ": gone", ok=False)], {"typed_by": "ada"}),
    ),
    (
        *(KeysTyped("t", "type", (), "gone"), TAKEN, "type"),
        *([answer("type", ": gone", ok=False)], {"typed_by": ""}),
    ),
    (KeysTyped("t", "other", LS), TAKEN, "type", [TYPED], {"typed_by": "ada"}),
    (
        *(AgentWritten("t", "message", "look"), IN_PAUSE, "message"),
        *([WRITTEN, answer("message", ": its next prompt has the message")], {}),
    ),
    (
        *(AgentWritten("t", "message", "look", "over"), IN_PAUSE, "message"),
        *([answer("message", ": over", ok=False)], {}),
    ),
    (AgentWritten("t", "other", "look"), IN_PAUSE, "message", [], {}),
    (
        *(ControlRefused("t", "pause", NO), {}, "pause"),
        *([answer("pause", ": it can't", ok=False)], {"wanted": RUNNING}),
    ),
    (ControlRefused("t", "freeze", NO), {"wanted": PAUSED}, "", [NOTED], {"wanted": RUNNING}),
    (ControlRefused("t", "take_over", NO), WAITED_FOR, "", [NOTED], {"wanted": RUNNING}),
    (ControlRefused("t", "pause", NO, past_holding=True), WAITED_FOR, "", [], {"wanted": ADA}),
    (ControlRefused("t", "give_back", NO), TAKEN, "", [NOTED], {"wanted": ADA}),
]


def says(steering: Steering, what: object) -> None:
    match what:
        case KeysTyped():
            steering.taking_over.typed(what)
        case AgentWritten():
            steering.written(what)
        case ControlRefused():
            steering.refused(what)
        case "taken":
            steering.taking_over.taken("t")
        case "given back":
            steering.taking_over.given_back("t")
        case Hold():
            steering.paused("t", what)


@pytest.mark.parametrize(("what", "stands", "waiting", "journal", "after"), SAID)
async def test_what_a_worker_says(
    what: object,
    stands: dict[str, Any],
    waiting: str,
    journal: list[AnyEvent],
    after: dict[str, Any],
) -> None:
    bench = Bench()
    attempt = bench.add(**stands)
    for verb in waiting.split():
        bench.say(verb, **ARGUMENTS.get(verb, {}))  # type: ignore[arg-type]
    says(bench.steering, what)
    assert bench.events == journal
    assert {name: getattr(attempt, name) for name in after} == after
    assert bench.typed_in == ["t"] * (TYPED in journal)
    gone = Bench()  # of a trial that is over nothing is journalled
    says(gone.steering, what)
    assert all(isinstance(event, Noted) for event in gone.events)


async def test_a_trial_that_ends_answers_each_command_as_it_was_meant() -> None:
    bench = Bench()
    bench.add(**TAKEN)
    for verb in ("type", "stop", "cancel", "retry"):
        bench.say(verb, **ARGUMENTS.get(verb, {}))  # type: ignore[arg-type]
    bench.steering.over("t", Outcome.CANCELLED, "a fresh one starts")
    ended = "t ended as cancelled"
    assert bench.done() == [
        ("type", False, f"{ended} first"),
        ("stop", True, ended),
        ("cancel", True, f"{ended}; a fresh one starts"),
        ("retry", True, f"{ended}; a fresh one starts"),
    ]


async def test_the_whole_run_is_held_without_those_that_people_hold() -> None:
    bench = Bench()
    bench.add("acts")
    bench.add("queued", slot=None)
    bench.add("held", wanted=PAUSED)
    bench.add("typed in", **TAKEN)
    bench.steering.hold("freeze")
    why = "the whole run"
    assert bench.asked == [("acts", "freeze", why), ("held", "freeze", why)]
    assert not bench.steering.open
    bench.asked.clear()
    bench.steering.release()
    assert bench.asked == [("acts", "resume", why)]
    assert bench.steering.open
    assert [trial for trial in ("acts", "held", "nobody") if bench.steering.is_held(trial)] == [
        "held"
    ]


async def test_a_batch_ends_what_it_needs_no_more() -> None:
    for stands, withdrawn, expired in (
        ({}, [("t", "cancel", "full")], [("t", "expire", "full")]),
        (QUEUED, [], []),
        (IN_PAUSE, [("t", "cancel", "full")], []),
    ):
        for end, asked in ((Steering.withdraw, withdrawn), (Steering.expire, expired)):
            bench = Bench()
            attempt = bench.add(**stands)
            place, _ = bench.attempts.find("t") or pytest.fail("it is gone")
            for _ in range(2):  # the second time tells nothing more
                end(bench.steering, place, "full")
            assert bench.asked == asked * 2
            assert place.final.is_set()
            assert place.late == (end is Steering.expire and stands is IN_PAUSE)
            assert attempt.withdrawn.done() == (stands is QUEUED)
            ended = end is Steering.withdraw or stands is QUEUED
            assert attempt.ended_because == ("full" if ended else None)
    empty: Place[Any] = Place(SimpleNamespace(label="", purpose="train"))
    bench.steering.withdraw(empty, "full")
    bench.steering.expire(empty, "full")
    assert bench.asked == asked * 2


async def test_a_pause_that_was_asked_for_in_the_queue_is_passed_on() -> None:
    bench = Bench()
    attempt = bench.add(**QUEUED)
    bench.steering.started(attempt)
    bench.say("pause")
    bench.steering.started(attempt)
    assert bench.asked == [("t", "pause", "asked while it was queued")]
