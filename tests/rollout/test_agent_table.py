"""The table of agents, against the installed Harbor; and what is refused, in one line."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from harbor.agents.factory import AgentFactory

from tbtui.rollout.agents import (
    AGENTS,
    AgentUnavailable,
    Pointing,
    agent_class,
    check_agent,
    pointing_of,
)

INSTALLED = set(AgentFactory.registered_names()) - {"oracle", "nop", "terminus-2"}
POINTED = sorted(name for name in INSTALLED if isinstance(AGENTS.get(name), Pointing))
TRAINERS = {
    "AWS_BEARER_TOKEN_BEDROCK": "theirs",
    "CLAUDE_CODE_OAUTH_TOKEN": "theirs",
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "CLAUDE_FORCE_OAUTH": "1",
    "CODEX_AUTH_JSON_PATH": "/theirs/auth.json",
    "CODEX_FORCE_AUTH_JSON": "1",
    "OPENAI_API_KEY": "theirs",
    "OPENAI_BASE_URL": "https://theirs.example/v1",
}
"""How people who train sign in themselves."""


def test_every_agent_of_harbors_has_a_row() -> None:
    assert set(AGENTS) >= INSTALLED
    later = set(AGENTS) - INSTALLED  # in an older Harbor
    assert later <= {"fabric", "opencode-v2"}


@pytest.mark.parametrize("agent", POINTED)
def test_its_class_takes_what_the_row_gives(agent: str) -> None:
    check_agent(agent, {})


def test_grok_builds_own_file_has_the_address(tmp_path: Path) -> None:
    model, env, kwargs = pointing_of("grok-build").filled("http://127.0.0.1:9", "key", "qwen3")
    grok: Any = agent_class("grok-build")(tmp_path, model_name=model, extra_env=env, **kwargs)
    own = tomllib.loads(grok._build_config_toml())
    assert own["models"]["default"] == "qwen3"
    asked = own["model"]["qwen3"]
    assert (asked["base_url"], env[asked["env_key"]]) == ("http://127.0.0.1:9/v1", "key")
    assert (asked["model"], asked["api_backend"]) == ("qwen3", "responses")


@pytest.mark.slow
@pytest.mark.parametrize("agent", POINTED)
def test_harbor_points_it_at_the_endpoint(agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = agent_class(agent)
    if not hasattr(cls, "resolve_model_connection_for_execution") or cls.MODEL_CONNECTION is None:
        return  # before Harbor 0.25 the class alone knows; eve's program reads the variables itself
    for name, value in TRAINERS.items():
        monkeypatch.setenv(name, value)
    model, env, kwargs = pointing_of(agent).filled("http://127.0.0.1:9", "secret", "policy")

    def resolve(*names: str) -> tuple[str, str] | None:
        """As Harbor does for an agent that runs."""
        return next(
            ((n, source[n]) for source in (env, os.environ) for n in names if n in source), None
        )

    connection = cls.resolve_model_connection_for_execution(
        model, resolve, explicit_env=env, kwargs=kwargs, base_url=kwargs.get("base_url")
    )
    assert (connection.user_supplied_base_url or "").startswith("http://127.0.0.1:9")
    assert connection.api_key == "secret"
    assert not [value for value in connection.env.values() if "theirs" in value]


@pytest.mark.parametrize(
    ("agent", "kwargs", "says"),
    [
        ("mini-swe-agnet", {}, "did you mean mini-swe-agent? There are aider, "),
        ("nothing-of-the-kind", {}, "and your own as module:Class"),
        ("gemini-cli", {}, "Gemini API, which the endpoint does not"),
        ("mini-swe-agent", {"cost_limt": 1}, "did you mean cost_limit? It takes "),
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
