"""A model call as all APIs have it: what an agent asks, the answer, a refusal, and who answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from tbtui.chat import Message, Tool, ToolCall, ToolChoice
from tbtui.terminal import both_ends, one_line, visible

Api = Literal["chat-completions", "responses", "messages"]
"""OpenAI's two, and Anthropic's Messages."""

StopReason = Literal["stop", "length", "stop_sequence", "tool_calls"]

RefusalKind = Literal[
    "unauthorized",  # no such secret, or not any more
    "not_found",  # no such path, or not with this method
    "invalid_request",
    "unsupported",  # a valid request for what a policy under training can't do
    "context_overflow",
    "rate_limit",  # the trial has made as many calls as it may
    "gone",  # the trial's agent has no more calls
    "overloaded",
    "provider",  # the policy failed
]


@dataclass(frozen=True, slots=True, eq=False)
class ModelCall:
    """One request of an agent; equal to itself alone."""

    api: Api
    model: str
    """The name that the agent asks for; the run's policy answers whatever it is."""
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    one_tool_call: bool = False
    """The answer is to have one tool call at most."""
    stop: tuple[str, ...] = ()
    """Texts before which the answer ends."""
    max_tokens: int | None = None
    stream: bool = False
    stream_usage: bool = False
    """The stream is to say how many tokens were used, where its API leaves that open."""
    ignored: tuple[str, ...] = ()
    """Parameters of the request that the run decides instead (temperature, top_p, ...)."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What the policy says."""

    text: str
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop: StopReason = "stop"
    stop_sequence: str | None = None
    """The one of `ModelCall.stop` that ended it."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens in the sampler's cache."""


_MESSAGE_CHARS = 400


class CallRefused(Exception):
    """A request is answered with an error, in the form of its API."""

    def __init__(
        self,
        kind: RefusalKind,
        message: str,
        *,
        parameter: str | None = None,
        prompt_tokens: int = 0,
        context_limit: int = 0,
    ) -> None:
        """
        Args:
            message: made one short line, whatever a request has brought into it; an overflow is
                worded by the API from the two numbers instead, where they are known.
            parameter: of the request, the one that is at fault.
        """
        self.message = visible(both_ends(one_line(message), _MESSAGE_CHARS))
        super().__init__(self.message)
        self.kind: RefusalKind = kind
        self.parameter = parameter
        self.prompt_tokens = prompt_tokens
        self.context_limit = context_limit


class CallHandler(Protocol):
    """Answers the calls of one trial. All of it is called on the endpoint's event loop."""

    @property
    def model(self) -> str:
        """The name under which `models` lists the policy."""
        ...

    @property
    def most_bytes(self) -> int:
        """The largest request that is read: its prompt may still be too long."""
        ...

    async def answer(self, call: ModelCall) -> ModelAnswer:
        """The answer, after as long as it takes: the client's connection is kept alive meanwhile.

        Never cancelled by a client that goes away, only when the endpoint closes.

        Raises:
            CallRefused: the client gets an error.
        """
        ...

    async def count_tokens(self, call: ModelCall) -> int:
        """How many tokens the call's prompt has. Raises `CallRefused`."""
        ...

    def abandoned(self, call: ModelCall) -> None:
        """The client went away before it had the whole answer, which may still be awaited."""
        ...

    def refused(self, api: Api, refusal: CallRefused) -> None:
        """A request was refused, by `answer` or because it can't be honoured."""
        ...
