"""The table of agents, against the installed Harbor; and what is refused, in one line."""

from __future__ import annotations

import pytest
from harbor.agents.factory import AgentFactory

from tbtui.rollout.agents import AGENTS, AgentUnavailable, Pointing, check_agent, pointing_of

POINTED = sorted(name for name, row in AGENTS.items() if isinstance(row, Pointing))


def test_every_agent_of_harbors_has_a_row() -> None:
    assert set(AGENTS) == set(AgentFactory.registered_names()) - {"oracle", "nop", "terminus-2"}


@pytest.mark.parametrize("agent", POINTED)
def test_its_class_takes_what_the_row_gives(agent: str) -> None:
    check_agent(agent, {})


@pytest.mark.parametrize(
    ("agent", "kwargs", "says"),
    [
        ("mini-swe-agnet", {}, "did you mean mini-swe-agent? There are aider, "),
        ("nothing-of-the-kind", {}, "and your own as module:Class"),
        ("gemini-cli", {}, "Gemini API, which the endpoint does not"),
        ("mini-swe-agent", {"cost_limt": 1}, "did you mean cost_limit? It takes config, "),
        ("aider", {"thinking_tokens": "x"}, "thinking_tokens: Input should be a valid integer"),
        ("no.such:Agent", {}, "no module no: install it"),
        ("tests.agents.ours:Programm", {}, "did you mean Program?"),
        ("tests.agents.ours:LOOP", {}, "LOOP is no agent"),
        ("tests.agents.ours:Program", {"frist": "ls"}, "did you mean first?"),
    ],
)
def test_what_is_refused(
    agent: str, kwargs: dict[str, object], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ".")
    with pytest.raises(AgentUnavailable) as refused:
        pointing_of(agent)
        check_agent(agent, kwargs)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
