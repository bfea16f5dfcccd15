"""How tokens are drawn; what a run's settings say of it, and what to change where sampling teaches
nothing."""

from __future__ import annotations

from dataclasses import dataclass

from tbtui.invocation import to_type

LOW_TEMPERATURE = 0.5
"""At and below which a small model is hardly more readable, and its trials hardly differ. Chosen:
one of 135 million parameters learned at .7."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the tokens of a completion are drawn from a model's distribution, and what ends it.

    The order is vLLM's: logits are divided by the temperature, then `min_p`, `top_k` and `top_p`
    leave tokens out, each of what those before it have left; what is left is drawn from in
    proportion.
    """

    temperature: float = 1.0
    """0: the likeliest token."""
    top_p: float = 1.0
    """The fewest of the likeliest tokens are left whose probabilities sum to this at least."""
    top_k: int = 0
    """So many of the likeliest tokens are left, with all that are as likely as the last of them; 0:
    all."""
    min_p: float = 0.0
    """Tokens less likely than this share of the likeliest one's probability are left out."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion, the last token of which ends the first of them."""

    @property
    def truncates(self) -> bool:
        """Whether tokens may be left out."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    @property
    def is_model(self) -> bool:
        """Whether what is drawn from is the model's own distribution."""
        return self.temperature == 1 and not self.truncates

    @property
    def text(self) -> str:
        """`temperature 0.7, top_p 0.9`."""
        parts = [f"temperature {self.temperature:g}"]
        parts += [f"top_p {self.top_p:g}"] * (self.top_p < 1)
        parts += [f"top_k {self.top_k}"] * (self.top_k > 0)
        parts += [f"min_p {self.min_p:g}"] * (self.min_p > 0)
        return ", ".join(parts)


MODEL_ITSELF = SamplingParams()


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
    truncates: bool = False
    """Unlikely tokens are left out (top_p, top_k, min_p)."""


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
    return f"{', '.join(ways[:-1])}, or {ways[-1]}; {to_type('probe')} tries what would help"


def for_alike(sampling: SamplingSettings) -> str:
    """What to do where the trials of each group end alike, some groups well and some not."""
    if sampling.temperature <= LOW_TEMPERATURE:
        return f"a temperature above {sampling.temperature:g}, or larger groups"
    return "larger groups"


def certainty(sampling: SamplingSettings) -> tuple[str, str]:
    """The metric that shows how certain the policy itself is, and its name on screens: -log p of
    tokens that are drawn from another distribution than the policy's is no estimate of it."""
    drawn_from_it = sampling.temperature == 1 and not sampling.truncates
    return ("optim/neg_logprob", "-log p") if drawn_from_it else ("optim/entropy", "entropy")


def for_full_context(sampling: SamplingSettings) -> str:
    """What to do where conversations fill the context."""
    ways = ["enable_summarize=true"] * (sampling.agent == "terminus-2")
    ways += ["thinking=strip"] * sampling.thinks
    return "raise context_limit" + (f", or give {' or '.join(ways)}" if ways else "")


def for_cut_answers(sampling: SamplingSettings) -> str:
    """What to do where answers are cut off at max_tokens."""
    return "raise it, or give thinking=off" if sampling.thinks else "raise it"
