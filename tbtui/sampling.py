"""What a run's settings say of its sampling, and what to change where sampling teaches nothing."""

from __future__ import annotations

from dataclasses import dataclass

LOW_TEMPERATURE = 0.5
"""At and below which a small model is hardly more readable, and its trials hardly differ. Chosen:
one of 135 million parameters learned at .7."""


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """The settings of a run that decide what its sampling looks like.

    Alarms know them: what was asked for is none.
    """

    temperature: float = 1.0
    thinks: bool = True
    """The model may think before it answers."""
    agent: str = "terminus-2"
    examples: bool = False
    """The agent's prompt shows solved tasks."""
    embedded: bool = False
    """The model is the one that is shipped, which knows its own tasks and agent alone."""


DEFAULT_SAMPLING = SamplingSettings()


def for_failing(sampling: SamplingSettings) -> str:
    """What to do where every trial of every group fails."""
    if sampling.embedded:
        return "easier tasks, or demonstrations (demos=train)"
    ways = ["easier tasks"]
    # Only Terminus-2's answers can be shown by typing.
    if sampling.agent == "terminus-2":
        ways.append("demonstrations (demos=train)")
    if sampling.agent != "shell":
        ways.append("a shorter prompt with examples (agent=shell agent_examples=4)")
    elif not sampling.examples:
        ways.append("examples in the agent's prompt (agent_examples=4)")
    if sampling.temperature > LOW_TEMPERATURE:
        ways.append(f"a temperature below {sampling.temperature:g}")
    return f"{', '.join(ways[:-1])}, or {ways[-1]}"


def for_alike(sampling: SamplingSettings) -> str:
    """What to do where the trials of each group end alike, some groups well and some not."""
    if sampling.temperature <= LOW_TEMPERATURE:
        return f"a temperature above {sampling.temperature:g}, or larger groups"
    return "larger groups"


def certainty(temperature: float) -> tuple[str, str]:
    """The metric that shows how certain the policy itself is, and its name on screens: of what is
    sampled at another temperature than 1, -log p shows the temperature."""
    return ("optim/neg_logprob", "-log p") if temperature == 1 else ("optim/entropy", "entropy")


def for_full_context(sampling: SamplingSettings) -> str:
    """What to do where conversations fill the context."""
    ways = ["enable_summarize=true"] * (sampling.agent == "terminus-2")
    ways += ["thinking=strip"] * sampling.thinks
    return "raise context_limit" + (f", or give {' or '.join(ways)}" if ways else "")


def for_cut_answers(sampling: SamplingSettings) -> str:
    """What to do where answers are cut off at max_tokens."""
    return "raise it, or give thinking=off" if sampling.thinks else "raise it"
