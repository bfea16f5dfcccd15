"""What a person types in the place of an answer is reported, with the prompt that it answers."""

from __future__ import annotations

import pytest

from tbtui.rollout.messages import Demonstrated, SampleWanted, TakenOver, TrialSpec
from tests.rollout.scripted import DONE, ScriptedEngine, act
from tests.rollout.test_typing_in_trials import ENTER, Hands, key, text

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


@pytest.fixture
def hands(engine: ScriptedEngine, spec: TrialSpec) -> Hands:
    return Hands(engine, spec)


async def test_what_is_typed_in_place_of_an_answer(
    engine: ScriptedEngine, spec: TrialSpec, hands: Hands
) -> None:
    engine.start(spec, [act("cd /tmp\n"), DONE])
    await hands.take()
    await hands.type(text("ls"), ENTER)
    await hands.type(text("echo hi > /app/hello.txt"), ENTER)
    hands.give_back()
    await engine.facts(spec.trial)
    seen = engine.seen[spec.trial]
    (shown,) = seen.of(Demonstrated)
    assert [part.text for part in shown.typed] == [
        "ls",
        "Enter",
        "echo hi > /app/hello.txt",
        "Enter",
    ]
    asked = seen.of(SampleWanted)[0]
    assert shown.turn == 1
    (prompt,) = shown.messages
    # What the agent was asked then, less what it was told of the person.
    assert asked.messages[0].content.startswith(prompt.content)
    assert "a person has typed" in asked.messages[0].content
    assert "a person has typed" not in prompt.content


async def test_each_time_in_its_own_place(
    engine: ScriptedEngine, spec: TrialSpec, hands: Hands
) -> None:
    engine.start(spec, [act("cd /tmp\n"), act("pwd\n"), DONE, DONE])
    await hands.take()
    await hands.type(text("true"), ENTER)
    engine.pool.control(spec.trial, "resume")
    seen = engine.seen[spec.trial]
    await engine.until(lambda: seen.of(SampleWanted) or None)
    engine.pool.control(spec.trial, "take_over", "ada")
    await engine.until(lambda: seen.of(TakenOver)[1:] or None)
    await hands.type(text("echo hi > /app/hello.txt"), key("Enter"))
    hands.give_back()
    await engine.facts(spec.trial)
    first, second = seen.of(Demonstrated)
    assert first.turn < second.turn
    assert [m.role for m in second.messages][-3:] == ["user", "assistant", "user"]
    assert [part.text for part in second.typed] == ["echo hi > /app/hello.txt", "Enter"]


async def test_stopped_while_taken_over(
    engine: ScriptedEngine, spec: TrialSpec, hands: Hands
) -> None:
    """A person who solves a trial and has it verified has shown how, too."""
    engine.start(spec, [DONE])
    await hands.take()
    await hands.type(text("echo hi > /app/hello.txt"), ENTER)
    engine.pool.control(spec.trial, "stop")
    facts = await engine.facts(spec.trial)
    assert facts.verdict == 1.0
    (shown,) = engine.seen[spec.trial].of(Demonstrated)
    assert shown.turn == 1


async def test_nothing_typed_shows_nothing(
    engine: ScriptedEngine, spec: TrialSpec, hands: Hands
) -> None:
    engine.start(spec, [DONE])
    await hands.take()
    hands.give_back()
    await engine.facts(spec.trial)
    assert not engine.seen[spec.trial].of(Demonstrated)
