"""Defaults that follow the model, its server and the environment.

Those in `settings` are of the embedded model in a sandbox of this machine: what such a model needs
is too little for any other, and what a sandbox bears is too much for a service. These take their
place where a run is of something else. What they follow is looked up in the settings that were
given, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EMBEDDED_MODEL = "starter"

MAX_TOKENS = 8192
_CONTEXT_SHARE = 4
"""A completion's share of the context: there have to be several turns in it."""
_ON_THIS_MACHINE = frozenset(
    {None, "auto", "sandbox", "docker", "podman", "singularity", "apple-container", "kata"}
)
"""Environment types that no provider limits; classes of one's own (`module:Class`) neither."""


@dataclass(frozen=True, slots=True)
class Default:
    """A default in place of the one in the table of settings."""

    value: Any
    why: str
    """Its source, for a person."""


def is_embedded(values: Mapping[str, Any]) -> bool:
    """Whether the model is the embedded one, here or behind a server."""
    if values.get("engine", "grpo") == "prime-rl":
        return False
    return (
        values.get("policy", "local") == "local"
        or values.get("renderer") == "embedded"
        or values.get("model_name", EMBEDDED_MODEL) == EMBEDDED_MODEL
    )


def defaults_for(values: Mapping[str, Any]) -> dict[str, Default]:
    """The defaults that differ from the table's, by name.

    Args:
        values: the settings given; one that is missing has the table's default.
    """
    defaults: dict[str, Default] = {}
    prime_rl = values.get("engine", "grpo") == "prime-rl"
    policy = values.get("policy", "local")
    # A file of Prime-RL's own says all of it.
    if not is_embedded(values) and values.get("prime_rl_config") is None:
        defaults |= _of_a_thinking_model(values)
        if prime_rl:
            rate = Default(1e-5, "an adapter's, as in Prime-RL's examples")
            defaults["learning_rate"] = rate
        elif policy == "tinker":
            rate = Default(4e-5, "an adapter's, as in tinker-cookbook's rl_basic")
            defaults["learning_rate"] = rate
    if not prime_rl and policy == "tinker":
        defaults["save_every"] = Default(
            1, "a save took 0.3 s where it was measured; a step takes far longer"
        )
    environment = values.get("environment_type")
    if environment not in _ON_THIS_MACHINE and ":" not in str(environment):
        defaults["env_starts_per_sec"] = Default(
            1.0, "the lowest limit of a provider (E2B's smallest plan)"
        )
    return defaults


def _of_a_thinking_model(values: Mapping[str, Any]) -> dict[str, Default]:
    source = "room for reasoning and an answer, as tinker-cookbook's Harbor recipe gives"
    most = MAX_TOKENS
    context = values.get("context_limit")
    if context is not None and context // _CONTEXT_SHARE < most:
        most, source = max(1, context // _CONTEXT_SHARE), "a quarter of context_limit"
    defaults = {
        "max_tokens": Default(most, source),
        "max_turns": Default(32, "as SkyRL's Harbor integration gives Terminus-2"),
    }
    if values.get("engine", "grpo") != "prime-rl":
        defaults["sample_timeout_sec"] = Default(
            900.0, "a long answer of a busy server, as in SkyRL's Harbor integration"
        )
    return defaults
