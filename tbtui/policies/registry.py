"""The kinds of policy that the setting `policy` can name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import IO, TYPE_CHECKING

from tbtui.policies import Backend, local, openai, tinker, torch, vllm

if TYPE_CHECKING:
    from tbtui.config import RunConfig
    from tbtui.config.values import Problem
    from tbtui.policies.base import Policy

POLICIES: Mapping[str, Backend] = MappingProxyType(
    {
        "local": local.BACKEND,
        "torch": torch.BACKEND,
        "tinker": tinker.BACKEND,
        "vllm": vllm.BACKEND,
        "openai": openai.BACKEND,
    }
)

type PolicyFactory = Callable[[RunConfig, IO[bytes]], Policy]
"""Makes the policy that a config names, not started yet; what it writes goes to the file."""


def make_policy(config: RunConfig, log_file: IO[bytes]) -> Policy:
    """The policy that `config` names, not started yet; what it writes goes to `log_file`."""
    return POLICIES[config.policy].make(config, log_file)


def policy_preflight(config: RunConfig) -> tuple[str, ...]:
    """Lines on what the policy needs of this machine.

    Raises:
        PolicyRefusedError: it can't work here.
    """
    check = POLICIES[config.policy].preflight
    return () if check is None else check(config)


def policy_problems(config: RunConfig) -> Iterator[Problem]:
    """What the settings ask for and the policy they name can't do, as far as they show it."""
    from tbtui.config.values import error

    yield from POLICIES[config.policy].problems(config)
    for name, backend in POLICIES.items():
        if name != config.policy and backend.address is not None:
            setting, server = backend.address
            if setting in config.given and setting != POLICIES[config.policy].takes_address:
                yield error(
                    f"{setting}: policy={config.policy} asks no {server} server; leave it out, or"
                    f" give policy={name}"
                )
