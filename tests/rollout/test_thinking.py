"""A policy that thinks before it answers, in real Harbor trials."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tbtui.chat import Message
from tbtui.rollout.messages import SampleWanted, TrialSpec, TurnUnderstood
from tests.rollout.scripted import DONE, HELLO, ScriptedEngine, Thought, changed

pytestmark = pytest.mark.asyncio(loop_scope="session")


def _steps(spec: TrialSpec) -> list[dict[str, Any]]:
    file = spec.trials_dir / spec.trial / "agent" / "trajectory.json"
    steps: list[dict[str, Any]] = json.loads(file.read_text())["steps"]
    return [step for step in steps if step["source"] == "agent"]


async def test_thinking_is_in_harbors_files_and_in_no_prompt(
    engine: ScriptedEngine, spec: TrialSpec
) -> None:
    script = [Thought("I'll write the file. \udc80", HELLO), Thought("It is there.", DONE), DONE]
    facts = await engine.run(spec, script)
    assert (facts.finish, facts.verdict) == ("completed", 1.0)
    assert [step.get("reasoning_content") for step in _steps(spec)] == [
        "I'll write the file. ?",
        "It is there.",
        None,
    ]
    wanted = engine.seen[spec.trial].of(SampleWanted)
    assert [m.content for m in wanted[2].messages if m.role == "assistant"] == [HELLO, DONE]
    assert "I'll write" not in str([request.messages for request in wanted])


async def test_cut_off_while_thinking(engine: ScriptedEngine, spec: TrialSpec) -> None:
    """There is no answer then: the agent reads that it was too long, and asks again."""
    script = [Thought("Let me see, there are many ways", None), HELLO, DONE, DONE]
    facts = await engine.run(spec, script)
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 4)
    first, second, *_ = engine.seen[spec.trial].of(SampleWanted)
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[-2] == Message("assistant", "")
    assert "NONE of the actions" in second.messages[-1].content
    assert engine.seen[spec.trial].of(TurnUnderstood)[0].error is not None


async def test_nothing_but_thinking(engine: ScriptedEngine, spec: TrialSpec) -> None:
    spec = changed(spec, max_turns=2)
    facts = await engine.run(spec, [Thought("Hm.", ""), Thought("Hm, hm.", None)])
    assert facts.last_truncated
    assert facts.turns == 2
    assert engine.seen[spec.trial].of(TurnUnderstood)[0].error is not None
