"""Checks of the agent that a run names: whether there is one, and whether it can be reached."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tbtui.config import ConfigError, RunConfig
from tbtui.config.values import Problem, error, warning
from tbtui.paths import PathError, expanded_user, read_plain
from tbtui.rollout.agents import AgentUnavailable, check_agent, needs_endpoint, pointing_of
from tbtui.rollout.environments.choose import EnvironmentChoice, is_local
from tbtui.rollout.shell_format import DONE, holds_examples

MOST_EXAMPLES = 8
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
    for name in _TERMINUS_ALONE if config.agent != "terminus-2" else ():
        if name in config.given:
            yield warning(f"{name}: of Terminus-2; agent={config.agent} has its own ways")
    if config.agent != "shell":
        tried = any(arm.startswith("shell@") for arm in config.probe)
        if "agent_examples" in config.given and not tried:
            yield warning(f"agent_examples: not used by agent={config.agent}; agent=shell has them")
    elif isinstance(asked := examples_asked(config), int) and asked > MOST_EXAMPLES:
        yield error(f"agent_examples={asked}: 0 to {MOST_EXAMPLES}, or a file of examples")
    for name in () if other else _OTHERS_ALONE:
        if name in config.given:
            yield warning(f"{name}: not used by agent={config.agent}")


def examples_asked(config: RunConfig) -> int | Path:
    """How many examples are wanted in the prompt, or the file that holds them."""
    asked = config.agent_examples
    return int(asked) if asked.isdecimal() else Path(asked)


def read_examples(path: Path) -> str:
    """The text of a file of examples that somebody names. Raises `ConfigError`: it is none."""
    try:
        return _examples_in(expanded_user(path).resolve(), path)
    except PathError as problem:
        raise ConfigError(f"agent_examples={problem}") from problem


def read_kept_examples(path: Path) -> str:
    """The text of a run's examples, where no link is followed: the run may be a stranger's.

    Raises:
        ConfigError: it is no file of examples.
    """
    return _examples_in(path, path)


def _examples_in(path: Path, named: Path) -> str:
    given = f"agent_examples={named}"
    try:
        text = read_plain(path).decode()
    except OSError as problem:
        raise ConfigError(
            f"{given}: {problem.strerror or problem}: give 0 to {MOST_EXAMPLES}, or a file"
        ) from problem
    except UnicodeDecodeError:
        raise ConfigError(f"{given}: it is no text in UTF-8") from None
    if not holds_examples(text):
        raise ConfigError(
            f"{given}: there is no example in it: a line `Task: ...`, a ```bash block, what the"
            f" terminal prints, and {DONE}"
        )
    return text


def check_agent_of(config: RunConfig) -> None:
    """Check that the agent can be made with its arguments, or has its file of examples. Imports
    Harbor for an agent of Harbor's.

    Raises:
        AgentUnavailable, ConfigError: one line with the remedy.
    """
    if config.agent == "shell" and isinstance(asked := examples_asked(config), Path):
        read_examples(asked)
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
