"""Defines a policy: a model that samples tokens, learns from them, and publishes its weights.

A policy knows nothing of trials, groups or the journal. Everything is in tokens: a prompt is a
sequence of token ids, a completion comes back with the log-probability of each token that was
drawn, and training data are sequences with a mask of the tokens that the policy itself produced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.losses import LossName as LossName
from tbtui.algorithm.losses import LossSettings as LossSettings
from tbtui.algorithm.step import Datum as Datum
from tbtui.chat import Message as Message
from tbtui.chat import Role as Role
from tbtui.chat import ToolCall
from tbtui.errors import UserError
from tbtui.sampling import MODEL_ITSELF as MODEL_ITSELF
from tbtui.sampling import SamplingParams as SamplingParams
from tbtui.server_status import ServerStatus

StopReason = Literal["stop", "length"]
Ended = Literal["success", "errored", "interrupted"]
"""How the work with a policy came to its end."""

Thinking = Literal["keep", "strip", "off"]
"""What becomes of the thinking of earlier turns; "off": the model is asked not to think."""


class PolicyError(UserError):
    """The policy can't do what was asked; the message is one line for a person."""


class PolicyRefusedError(PolicyError):
    """What is asked for can't be had, however often it is asked for: by the settings, a person has
    to change them, or a key; by one request, other ones may be answered."""


class UnrenderableError(PolicyError):
    """The model's chat format can't take these messages and tools: an error of the call that has
    them, not of the policy."""


class PolicyWithheldError(PolicyRefusedError):
    """The server answers, and gives no completion of this prompt: a filter has held it back."""


class PolicyBusyError(PolicyError):
    """The server is up and has no time now."""

    def __init__(self, message: str, retry_after_sec: float = 0.0) -> None:
        """`retry_after_sec`: how long it asks to be left alone; 0: it doesn't say."""
        super().__init__(message)
        self.retry_after_sec = retry_after_sec


class PolicySlowError(PolicyError):
    """The policy is at work, and has not been done with a completion in the time for it."""


class PolicyDeniedError(PolicyRefusedError):
    """The server accepts nothing from this key: no request can succeed until a person has set that
    right."""


class PolicyLostError(PolicyError):
    """What was being trained is gone, or in doubt: the server lost its state, or an optimiser
    step's answer never came. Nothing can be asked of the policy any more.

    A policy made afresh goes on from the last checkpoint.
    """


class ContextOverflowError(PolicyError):
    """A prompt leaves no room for a completion within the context limit."""

    def __init__(self, message: str, prompt_tokens: int = 0, context_limit: int = 0) -> None:
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.context_limit = context_limit


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """The policy's properties and abilities, known once it has started."""

    name: str
    model_name: str
    parameters: int | None
    context_limit: int
    """Tokens: prompt and completion together."""
    losses: tuple[LossName, ...]
    divides_gradient: bool = True
    """`OptimSettings.divide_by` is honoured."""
    keeps_published: bool = True
    """Sampling with published weights goes on while, and after, others are trained."""
    honours: frozenset[str] = frozenset()
    """Which of the settings that depend on the policy (`depends_on_policy`) it honours."""
    tokenizer: str | None = None
    """Digest of the tokenizer: with another one, token ids mean something else. None: unknown."""
    thinks: bool | None = None
    """Its answers may begin with thinking; None: nothing says so."""
    notes: tuple[str, ...] = ()
    """What a person should know of it before it is trained, one line each."""
    address: str | None = None
    """Its server's, without credentials; None: it has none."""
    sampler_tolerance: float | None = None
    """Nats a token by which its sampler and its trainer may differ with the same weights: two
    programs, compared after every publication. None: one program, or nothing to compare."""


OnDrawn = Callable[[int, tuple[int, ...]], None]
"""Called while a completion is drawn, with how many of its tokens came before and the new ones."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """Asks for one completion.

    `seed` names the random stream of this one completion, so that what is drawn does not depend
    on which other requests share its batch.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams
    seed: int
    on_drawn: OnDrawn | None = field(default=None, compare=False, repr=False)
    """For a policy that can show what it has drawn so far; one that is asked again begins at 0."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion.

    `completion_ids` and `logprobs` have the same length N; `logprobs` are natural logarithms
    under the distribution that was sampled from (temperature and truncation included). The stop
    token, when one was drawn, is the last id.
    """

    completion_ids: tuple[int, ...]
    logprobs: npt.NDArray[np.float32]
    stop_reason: StopReason
    weights_version: int
    """Version of the weights that drew it; 0 is the starting checkpoint."""
    cached_tokens: int | None = None
    """Prompt tokens that the sampler had in its cache; None where it doesn't report that."""
    has_logprobs: bool = True
    """False: the server gives none, and `logprobs` are zeros."""
    model_logprobs: npt.NDArray[np.float32] | None = None
    """[N] Those of the model itself, at temperature 1 and of all tokens, which is what is trained;
    NaN where the sampler doesn't give them. None: it is what was sampled from."""


def unknown_unless_model(sampling: SamplingParams, tokens: int) -> npt.NDArray[np.float32] | None:
    """`Sample.model_logprobs` of a server that gives one log-probability a token."""
    return None if sampling.is_model else np.full(tokens, np.nan, np.float32)


@dataclass(frozen=True, slots=True)
class Answer:
    """A parsed completion: its text and its thinking."""

    text: str
    """For the agent."""
    thinking: str = ""
    """What came before it between marks of its own; not for the agent to read as its answer."""
    tool_calls: tuple[ToolCall, ...] = ()
    malformed: str = ""
    """What looked like tool calls and can't be read; `text` has it too."""


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
    """Mean over the trained tokens, nats; None where the policy doesn't report it."""
    logprobs: tuple[npt.NDArray[np.float32], ...]
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What `apply` did."""

    grad_norm: float | None
    """Before clipping; None where the policy doesn't report it."""
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)


Activity = Literal["idle", "sampling", "training", "loading", "saving"]
"""What a policy does at one moment."""


@dataclass(frozen=True, slots=True)
class PolicyStatus:
    """The policy's activity at a moment, for the queue pane; unknown figures are None."""

    in_flight: int
    """Sampling requests handed in and not answered."""
    running: int
    """How many of those are being computed now."""
    completed: int
    """Requests answered since the start."""
    sampled_tokens: int
    """Completion tokens drawn since the start."""
    progress: int | None = field(default=None, kw_only=True)
    """Grows as long as completions are worked on, those under way included; None where that can't
    be seen."""
    latencies: tuple[float, ...]
    """Seconds from request to answer of the last requests (at most 256)."""
    activity: Activity
    pid: int | None = None
    """The process that computes, when it is ours."""
    sampler_pid: int | None = None
    """That of the sampler, where it is another process of ours than the trainer's; with `server`,
    a vLLM server's, which computes in children of it."""
    server: ServerStatus | None = None
    """Where the policy is somebody else's server."""
    stored_bytes: int | None = None
    """Size of the checkpoints that the server holds for us, saved or loaded in this session; None
    where it doesn't tell."""
    starting: str = ""
    """What it waits for while it starts, one line with its progress: a download, an installation.
    Empty: nothing that takes long."""


class Renderer(Protocol):
    """Turns chat messages into tokens and back, exactly."""

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a whole conversation, ending where the assistant begins to speak."""
        ...

    def extend(
        self, history: Sequence[int], messages: Sequence[Message], known: int
    ) -> tuple[int, ...]:
        """Token ids of a whole conversation of which the first `known` messages, the last of them
        the assistant's, have been before the policy as `history`, token for token.

        The result starts with `history`, but for a renderer that leaves something of it
        out (an earlier turn's thinking).
        """
        ...

    def answer(self, completion_ids: Sequence[int]) -> Answer:
        """What a completion says, without its stop token."""
        ...

    def spell(self, text: str) -> tuple[int, ...]:
        """A completion that says this text and ends: what `answer` reads as that text."""
        ...

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        """The text of each token, special tokens included by name; a character split over
        several tokens belongs to the last of them. Joined, they read as the text."""
        ...


class Policy(Protocol):
    """A model that can be sampled from and trained.

    Every method raises `PolicyError` when the policy itself fails (its process died, its server
    refused), `PolicyLostError` where a new one could go on from the last checkpoint. `sample` may
    be called any number of times at once and batches by itself. The others are carried out in the
    order in which they are called: a caller may hand in the next one without awaiting the one
    before. Sampling goes on meanwhile, with the published weights.
    """

    @property
    def info(self) -> PolicyInfo: ...

    @property
    def renderer(self) -> Renderer: ...

    async def start(self, resume: Path | None = None) -> None:
        """`resume`: the checkpoint that `load` is called with next; a policy for which that is
        cheaper begins with it."""
        ...

    async def sample(self, request: SampleRequest) -> Sample: ...

    async def accumulate(self, data: Sequence[Datum], loss: LossSettings) -> GradientResult:
        """Add the gradient of the summed loss over `data` to what has been accumulated (Tinker's
        `forward_backward`)."""
        ...

    async def apply(self, settings: OptimSettings) -> StepResult:
        """One optimiser step (`optim_step`) on the accumulated gradient, zero afterwards."""
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

    async def forget(self, directory: Path) -> None:
        """Remove what a checkpoint keeps outside `directory`, which is about to be removed."""
        ...

    def status(self) -> PolicyStatus: ...

    async def close(self, ended: Ended = "success") -> None:
        """Let go of everything, within seconds and without an error, started or not; what is
        still in flight fails with `PolicyError`. A server learns how it `ended`."""
        ...


@runtime_checkable
class ChatRenderer(Renderer, Protocol):
    """A renderer of a real model's chat."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end the assistant's turn; single tokens, never pieces of text."""
        ...

    @property
    def digest(self) -> str | None:
        """Digest of the vocabulary: with another one, token ids mean something else. None:
        unknown."""
        ...

    @property
    def vocab_size(self) -> int | None:
        """One more than the largest token id. None: unknown."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the model's chat format, one line each."""
        ...
