"""Checks of the agent that a run names: whether there is one, and whether it can be reached."""

from __future__ import annotations

from collections.abc import Iterator

from tbtui.config import ConfigError, RunConfig
from tbtui.config.values import Problem, error, warning
from tbtui.rollout.agents import AgentUnavailable, check_agent, needs_endpoint, pointing_of
from tbtui.rollout.environments.choose import EnvironmentChoice, is_local

_TERMINUS_ALONE = ("enable_summarize", "proactive_summarization_threshold")
_OTHERS_ALONE = (
    *("agent_kwargs", "agent_install", "agent_setup_network"),
    *("endpoint_public_url", "endpoint_port"),
)


def agent_problems(config: RunConfig) -> Iterator[Problem]:
    """What contradicts the agent, as far as that is known without importing Harbor."""
    try:
        other = needs_endpoint(config.agent)
        if other:
            pointing_of(config.agent)
    except AgentUnavailable as unavailable:
        yield error(str(unavailable))
        return
    for name in _TERMINUS_ALONE if other else ():
        if name in config.given:
            yield warning(f"{name}: of Terminus-2; agent={config.agent} has its own ways")
    for name in () if other else _OTHERS_ALONE:
        if name in config.given:
            yield warning(f"{name}: not used by agent={config.agent}")


def check_agent_of(config: RunConfig) -> None:
    """Check that the agent can be made with its arguments. Imports Harbor for it.

    Raises:
        AgentUnavailable: one line with the remedy.
    """
    if needs_endpoint(config.agent):
        check_agent(config.agent, config.agent_kwargs)


def require_reachable(config: RunConfig, environment: EnvironmentChoice) -> None:
    """Check that the agent, where it will run, can reach the model endpoint on this machine.

    Raises:
        ConfigError: nothing leads from there to here.
    """
    if not needs_endpoint(config.agent):
        return
    url = config.endpoint_public_url
    if url is None and not is_local(environment):
        raise ConfigError(
            f"agent={config.agent}: in environment_type={environment.name} it can't reach the model"
            " endpoint on this machine: give endpoint_public_url=https://HOST:{port}, an address"
            " that leads here, or choose environment_type=sandbox or docker"
        )
    if url is not None and "{port}" not in url:
        raise ConfigError(
            f"endpoint_public_url={url}: each worker has a port of its own, so {{port}} must be in"
            " it: https://HOST:{port}"
        )
