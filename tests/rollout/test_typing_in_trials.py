"""A person types in the terminal of a real trial: in the sandbox, with a scripted policy."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tbtui.journal.commands import Typed
from tbtui.journal.events import Outcome
from tbtui.rollout.messages import (
    Demonstrated,
    GivenBack,
    KeysTyped,
    PauseEntered,
    PauseLeft,
    SampleWanted,
    TakenOver,
    TrialFacts,
    TrialSpec,
    TypeKeys,
)
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import (
    DONE,
    Answer,
    Form,
    ScriptedEngine,
    Seen,
    Silence,
    act,
    changed,
)
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

ENTER = Typed("key", "Enter")


def text(words: str) -> Typed:
    return Typed("text", words)


def key(name: str) -> Typed:
    return Typed("key", name)


class Hands:
    """A person's, on one trial."""

    def __init__(self, engine: ScriptedEngine, spec: TrialSpec) -> None:
        self.engine, self.spec = engine, spec
        self._count = 0

    async def take(self, *script: Answer) -> Seen:
        """Take the trial over; with a script it is begun first. What is seen of it."""
        if script:
            self.engine.start(self.spec, script)
        self.engine.pool.control(self.spec.trial, "take_over", "ada")
        await self.engine.wait_for(self.spec.trial, TakenOver)
        return self.engine.seen[self.spec.trial]

    async def type(self, *parts: Typed) -> KeysTyped:
        self._count += 1
        command = f"c{self._count}"
        self.engine.pool.type_keys(TypeKeys(self.spec.trial, command, parts))
        return await self.engine.wait_for(
            self.spec.trial, KeysTyped, lambda typed: typed.command == command
        )

    async def shows(self, words: str, times: int = 1) -> str:
        """The recorded output, once it has that."""
        cast = self.spec.trials_dir / self.spec.trial / "recording.cast"

        await until(lambda: output(cast).count(words) >= times)
        return output(cast)

    async def give_back(self) -> TrialFacts:
        """Let it go on to its end."""
        self.engine.pool.control(self.spec.trial, "resume")
        return await self.engine.facts(self.spec.trial)


def lines(cast: Path) -> list[tuple[float, str, str]]:
    rows = [
        json.loads(line) for line in cast.read_text().splitlines(keepends=True) if line[-1] == "\n"
    ]
    return [tuple(row) for row in rows if isinstance(row, list)]


def output(cast: Path) -> str:
    return "".join(data for _, kind, data in lines(cast) if kind == "o")


@pytest.fixture
def hands(engine: ScriptedEngine, spec: TrialSpec) -> Hands:
    return Hands(engine, spec)


async def test_a_person_solves_it_and_the_agent_sees_that(hands: Hands, form: Form) -> None:
    hands.spec = changed(hands.spec, agent=form.agent)
    seen = await hands.take(form.act("cd /tmp"), form.done)
    assert len(seen.of(PauseEntered)) == 1
    assert not (await hands.type(text("echo hi > /app/hello.txt"), ENTER)).error
    facts = await hands.give_back()

    assert (facts.finish, facts.verdict, facts.human_touched) == ("completed", 1.0, True)
    decision = decide(facts)
    assert decision.outcome is Outcome.HUMAN_TOUCHED
    assert (decision.verdict, decision.reward) == (1.0, 1.0)
    assert decision.reason.startswith("a person typed in its terminal; done after")
    first, later = seen.of(SampleWanted)[0], seen.of(SampleWanted)[-1]
    told = first.messages[-1].content
    assert "Since then a person has typed in this terminal.\n\nNew Terminal Output:" in told
    assert "echo hi > /app/hello.txt" in told
    # Nothing that the policy was told is ever told differently afterwards.
    assert later.messages[0].content == told
    # What stood in the place of an answer, with what the agent was asked then.
    (shown,) = seen.of(Demonstrated)
    assert (shown.turn, [part.text for part in shown.typed]) == (
        1,
        ["echo hi > /app/hello.txt", "Enter"],
    )
    (prompt,) = shown.messages
    assert told.startswith(prompt.content)
    assert "a person has typed" not in prompt.content
    order = [
        type(m)
        for m in seen.messages
        if isinstance(m, TakenOver | KeysTyped | GivenBack | PauseLeft)
    ]
    assert order == [TakenOver, KeysTyped, GivenBack, PauseLeft]

    folder = hands.spec.trials_dir / hands.spec.trial
    beside = [(kind, data) for _, kind, data in lines(folder / "recording.cast") if kind != "o"]
    assert beside == [
        ("m", "taken over by ada"),
        ("i", "echo hi > /app/hello.txt"),
        ("i", "\r"),
        ("m", "given back to the agent"),
    ]
    steps = json.loads((folder / "agent" / "trajectory.json").read_text())["steps"]
    assert [step["source"] for step in steps][:3] == ["user", "user", "agent"]
    assert "a person has typed" in steps[1]["message"]


async def test_who_types_nothing_has_touched_nothing(hands: Hands) -> None:
    seen = await hands.take(act("echo hi > /app/hello.txt\n"), DONE)
    facts = await hands.give_back()
    assert (facts.human_touched, decide(facts).outcome) == (False, Outcome.SOLVED)
    assert "a person" not in seen.of(SampleWanted)[0].messages[-1].content
    assert not seen.of(Demonstrated)


async def test_each_time_in_its_own_place(
    engine: ScriptedEngine, spec: TrialSpec, hands: Hands
) -> None:
    seen = await hands.take(act("cd /tmp\n"), act("pwd\n"), DONE, DONE)
    await hands.type(text("true"), ENTER)
    engine.pool.control(spec.trial, "resume")
    await engine.until(lambda: seen.of(SampleWanted) or None)
    engine.pool.control(spec.trial, "take_over", "ada")
    await engine.until(lambda: seen.of(TakenOver)[1:] or None)
    await hands.type(text("echo hi > /app/hello.txt"), key("Enter"))
    await hands.give_back()
    first, second = seen.of(Demonstrated)
    assert first.turn < second.turn
    assert [m.role for m in second.messages][-3:] == ["user", "assistant", "user"]
    assert [part.text for part in second.typed] == ["echo hi > /app/hello.txt", "Enter"]


async def test_every_kind_of_key_arrives_in_order(hands: Hands) -> None:
    await hands.take(DONE)
    await hands.type(text("cat > /tmp/typed"), ENTER)
    numbers = [f"{number:03d};" for number in range(200)]
    for number in numbers[:-1]:
        hands.engine.pool.type_keys(TypeKeys(hands.spec.trial, "", (text(number),)))
    await hands.type(text(numbers[-1]), ENTER, key("C-d"))
    await hands.type(text("tr -d '\\n' < /tmp/typed | md5sum; echo =$((6*7))"), ENTER)
    digest = hashlib.md5("".join(numbers).encode()).hexdigest()
    await hands.shows(digest)
    # ctrl-c, arrows, unicode, words that tmux would take for keys or options
    await hands.type(text("echo =$((6*8)); sleep 1000"), ENTER)
    await hands.shows("=48")
    await hands.type(key("C-c"))
    # The shell edits lines again: keys before that would be the terminal's own to read.
    await hands.type(text("echo =$((6*9))"), ENTER)
    await hands.shows("=54")
    await hands.type(text("echo  né→日本 -l Enter 'C-c';"), key("Left"), key("BSpace"), text("c'"))
    await hands.type(key("Home"), key("DC"), text("e"), key("End"), ENTER)
    await hands.shows("né→日本 -l Enter C-c")
    facts = await hands.give_back()
    assert facts.human_touched


async def test_a_large_paste_arrives_whole_and_bracketed(hands: Hands) -> None:
    await hands.take(DONE)
    pasted = "".join(f"line {number} of what is pasted;\n" for number in range(400))
    assert len(pasted) > 10_000
    await hands.type(text("cat > /tmp/pasted"), ENTER)
    await hands.shows("\x1b[?2004l")  # bash has put the terminal into the state that cat finds
    await hands.type(Typed("paste", pasted), key("C-d"))
    await hands.type(text("md5sum < /tmp/pasted"), ENTER)
    await hands.shows(hashlib.md5(pasted.encode()).hexdigest())
    # A program that asked for it can tell a paste from typing: bash runs no line of it.
    await hands.type(Typed("paste", "echo =$((40+1))\necho two\n"))
    await hands.type(key("C-c"))
    await hands.shows("^C")
    await hands.type(text("echo =$((40+2))"), ENTER)
    assert "=41" not in await hands.shows("=42")
    await hands.give_back()


async def test_it_waits_for_the_end_of_the_turn_and_thaws(
    engine: ScriptedEngine, spec: TrialSpec, hands: Hands
) -> None:
    engine.start(spec, [act("sleep 0.3\n", duration=0.3), Silence()])
    await engine.wait_for(spec.trial, SampleWanted)
    typed = await hands.type(text("too early"))
    assert (typed.error, typed.parts) == ("it is not taken over", ())
    engine.pool.control(spec.trial, "freeze")
    await engine.wait_for(spec.trial, PauseEntered, lambda paused: paused.frozen)
    await hands.take()
    seen = engine.seen[spec.trial]
    assert [paused.frozen for paused in seen.of(PauseEntered)] == [True, False]
    engine.pool.control(spec.trial, "give_back")
    await engine.wait_for(spec.trial, GivenBack)
    assert len(seen.of(PauseLeft)) == 1  # only out of the freeze: it stays paused
    engine.pool.control(spec.trial, "stop")
    facts = await engine.facts(spec.trial)
    assert (facts.finish, facts.human_touched) == ("stopped", False)


async def test_a_person_who_ends_the_terminal_ends_the_agents_run(hands: Hands) -> None:
    await hands.take(DONE)
    await hands.type(text("exit"), ENTER)
    await hands.shows("logout")
    typed = await hands.type(text("anybody there?"))
    assert (bool(typed.error), typed.parts) == (True, ())
    facts = await hands.give_back()
    assert (facts.finish, facts.verdict) == ("terminal_ended", 0.0)
    assert decide(facts).outcome is Outcome.HUMAN_TOUCHED


async def test_ending_a_trial_takes_it_away_from_the_person(
    engine: ScriptedEngine, spec: TrialSpec, hands: Hands
) -> None:
    seen = await hands.take(DONE)
    await hands.type(text("echo hi > /app/hello.txt"), ENTER)
    engine.pool.control(spec.trial, "stop")
    facts = await engine.facts(spec.trial)
    assert seen.of(GivenBack)
    # Who solves a trial and has it verified has shown how, too.
    (shown,) = seen.of(Demonstrated)
    assert shown.turn == 1
    assert (facts.finish, facts.verdict) == ("stopped", 1.0)
    assert decide(facts).outcome is Outcome.CANCELLED
