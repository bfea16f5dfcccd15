"""What a policy is: something that samples tokens, learns from them, and publishes its weights.

A policy knows nothing of trials, groups or the journal. Everything is in tokens: a prompt is a
sequence of token ids, a completion comes back with the log-probability of each token that was
drawn, and training data are sequences with a mask of the tokens that the policy itself produced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.datum import Datum as Datum
from tbtui.algorithm.losses import LossName as LossName
from tbtui.algorithm.losses import LossSettings as LossSettings

Role = Literal["system", "user", "assistant"]
StopReason = Literal["stop", "length"]


class PolicyError(Exception):
    """The policy can't do what was asked; the message is one line for a person."""


class ContextOverflowError(PolicyError):
    """A prompt leaves no room for a completion within the context limit."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """What the policy is and what it can do, known once it has started."""

    name: str
    model_name: str
    parameters: int | None
    context_limit: int
    """Tokens: prompt and completion together."""
    losses: tuple[LossName, ...]
    divides_gradient: bool = True
    """`OptimSettings.divide_by` is honoured."""
    honours: frozenset[str] = frozenset()
    """Which of the settings that depend on the policy (`config.POLICY_SETTINGS`) it honours."""
    tokenizer: str | None = None
    """Digest of the tokenizer: with another one, token ids mean something else. None: unknown."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Draw one completion.

    `seed` names the random stream of this one completion, so that what is drawn does not depend
    on which other requests share its batch.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion.

    `completion_ids` and `logprobs` have the same length N; `logprobs` are natural logarithms
    under the distribution that was sampled from (temperature included). The stop token, when one
    was drawn, is the last id.
    """

    completion_ids: tuple[int, ...]
    logprobs: npt.NDArray[np.float32]
    stop_reason: StopReason
    weights_version: int
    """Version of the weights that drew it; 0 is the starting checkpoint."""


@dataclass(frozen=True, slots=True)
class OptimSettings:
    """One AdamW step on the gradient accumulated so far."""

    learning_rate: float
    grad_clip: float = 0.0
    """Largest gradient norm; 0 switches clipping off."""
    weight_decay: float = 0.0
    divide_by: float = 1.0
    """The gradient is divided by this first: a normaliser that is known only once all data have
    been seen. A policy whose `info.divides_gradient` is False refuses anything but 1."""


@dataclass(frozen=True, slots=True)
class GradientResult:
    """What `accumulate` did. `logprobs[i]` has datum i's log-probabilities under the trained
    weights on its mask, in order of position (length = number of True in the mask)."""

    loss: float
    """Summed over the data."""
    entropy: float | None
    """Mean over the trained tokens, nats; None where the policy doesn't tell."""
    logprobs: tuple[npt.NDArray[np.float32], ...]
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What `apply` did."""

    grad_norm: float | None
    """Before clipping; None where the policy doesn't tell."""
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    """A moment of the policy's life, for the queue pane. Only what is truly known."""

    in_flight: int
    """Sampling requests handed in and not answered."""
    running: int
    """Of those, how many are being computed now."""
    completed: int
    """Requests answered since the start."""
    sampled_tokens: int
    """Completion tokens drawn since the start."""
    latencies: tuple[float, ...]
    """Seconds from request to answer of the last requests (at most 256)."""
    activity: Literal["idle", "sampling", "training", "loading", "saving"]
    pid: int | None = None
    """The process that computes, when it is ours."""


class Renderer(Protocol):
    """Turns chat messages into tokens and back, exactly.

    `render` is given the conversation so far. Where `history` (the exact token ids of everything
    up to and including the last assistant message, as they were sampled) covers all messages but
    the new ones, the result starts with `history` token for token.
    """

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a whole conversation, ending where the assistant begins to speak."""
        ...

    def extend(self, history: Sequence[int], messages: Sequence[Message]) -> tuple[int, ...]:
        """`history` followed by the tokens of the new messages and the assistant's start."""
        ...

    def decode(self, completion_ids: Sequence[int]) -> str:
        """The text of a completion, without its stop token."""
        ...

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token, special tokens included by name; a character split over
        several tokens belongs to the last of them. Joined, they read as the text."""
        ...


class Policy(Protocol):
    """A model that can be sampled from and trained.

    Every method raises `PolicyError` when the policy itself fails (its process died, its server
    refused). `sample` may be called any number of times at once and batches by itself. The others
    are carried out in the order in which they are called: a caller may hand in the next one
    without awaiting the one before. Sampling goes on meanwhile, with the published weights.
    """

    @property
    def info(self) -> PolicyInfo: ...

    @property
    def renderer(self) -> Renderer: ...

    async def start(self) -> None: ...

    async def sample(self, request: SampleRequest) -> Sample: ...

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        """Add the gradient of the summed loss over `data` to what has been accumulated."""
        ...

    async def apply(self, settings: OptimSettings) -> StepResult:
        """One optimiser step on the accumulated gradient, which is zero afterwards."""
        ...

    async def score(
        self, data: Sequence[Datum], weights: Literal["trained", "reference"]
    ) -> tuple[npt.NDArray[np.float32], ...]:
        """Each datum's log-probabilities on its mask, without a gradient.

        `reference` are the weights that training started from, whatever was loaded since.
        """
        ...

    async def publish(self) -> int:
        """Make the trained weights the ones that are sampled from; returns their version."""
        ...

    async def save(self, directory: Path) -> None:
        """Weights, optimiser and version into `directory` (created; replaced atomically)."""
        ...

    async def load(self, directory: Path) -> None: ...

    def status(self) -> PolicyStatus: ...

    async def close(self) -> None: ...
