"""Trials whose agents end the tmux client that stays."""

from __future__ import annotations

import pytest

from tbtui.journal.events import Outcome
from tbtui.rollout.messages import TrialSpec, TurnSeen
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import DONE, HELLO, ScriptedEngine, act

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    "end",
    [
        "pkill -9 -f '^tmux -C'; echo gone\n",
        "tmux detach-client -s terminus-2; echo gone\n",
        "chmod 000 $(command -v tmux); pkill -9 -f '^tmux -C'; tmux -V || echo gone\n",
    ],
)
async def test_a_client_that_is_ended_is_not_missed(
    engine: ScriptedEngine, spec: TrialSpec, end: str
) -> None:
    facts = await engine.run(spec, [act(end, duration=0.3), HELLO, DONE, DONE])
    screens = [seen.observation for seen in engine.seen[spec.trial].of(TurnSeen)]
    assert "gone" in screens[0]
    assert decide(facts).outcome is Outcome.SOLVED


async def test_a_server_that_is_ended_ends_the_terminal(
    engine: ScriptedEngine, spec: TrialSpec
) -> None:
    facts = await engine.run(spec, [act("tmux kill-server\n", duration=0.3), HELLO])
    assert facts.finish == "terminal_ended"
