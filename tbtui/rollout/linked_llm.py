"""The engine's policy as the model that Terminus-2 talks to, and the reading of what it writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, override

from harbor.llms.base import (
    BaseLLM,
    ContextLengthExceededError,
    LLMResponse,
    OutputLengthExceededError,
)
from harbor.models.metric import UsageInfo

from tbtui.chat import Message, Role
from tbtui.rollout.link import AgentEnded, ContextOverflow, TrialLink, Unsupported
from tbtui.rollout.messages import TurnUnderstood

_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


class LinkedLLM(BaseLLM):
    """The engine's policy, reached through the trial's link."""

    def __init__(
        self,
        link: TrialLink,
        stop: tuple[str, ...] = (),
        is_whole: Callable[[str], bool] = lambda text: False,
    ) -> None:
        """
        Args:
            stop: texts before which an answer ends.
            is_whole: whether an answer that was cut off says all that counts before that.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._link = link
        self._stop = stop
        self._is_whole = is_whole
        self.purpose: str | None = None
        """What the next calls are for, while they are no turns of the main agent."""
        self.chars_per_token = 4.0
        self._overflowed = False
        """The main agent's last call did not fit into the context."""

    @override
    async def call(
        self, prompt: str, message_history: list[dict[str, Any]] | None = None, **kwargs: Any
    ) -> LLMResponse:
        """Ask for one completion.

        Raises:
            AgentEnded: stopped by a person, out of turns, the policy failed, or not even the
                summarised history fits into the context.
            ContextLengthExceededError, OutputLengthExceededError: as Terminus-2 expects them.
        """
        link, notes = self._link, self._link.notes
        # Terminus-2's short summary is the only call that has no history and no sub-agent.
        purpose = self.purpose or ("turn" if message_history is not None else "summarize-short")
        is_turn = purpose == "turn"
        await link.boundary()
        if is_turn:
            if notes.turns >= link.spec.max_turns:
                raise AgentEnded("max_turns")
            notes.turns += 1
        messages = (*history_of(message_history or ()), Message("user", prompt))
        try:
            completion = await link.sample(
                messages, turn=max(notes.turns, 1), purpose=purpose, stop=self._stop
            )
        except ContextOverflow as error:
            if is_turn:
                notes.turns -= 1  # the policy was never asked
                if self._overflowed:
                    # What follows a summary. Terminus-2 would go on with an answer of its own.
                    raise AgentEnded("context_overflow", str(error)) from error
                self._overflowed = True
            raise ContextLengthExceededError(str(error)) from error
        except Unsupported as error:
            # Terminus-2 says nothing but what every trial of it says.
            raise AgentEnded("refused", str(error)) from error
        if is_turn:
            self._overflowed = False
        text = scrub(completion.text)
        chars = len(text) + sum(len(message.content) for message in messages)
        tokens = completion.prompt_tokens + completion.completion_tokens
        self.chars_per_token = max(1.0, chars / max(1, tokens))
        if completion.truncated and not (is_turn and self._is_whole(text)):
            if is_turn:
                self._note_truncated()
            raise OutputLengthExceededError(
                f"the completion was cut at {link.spec.max_tokens} tokens", truncated_response=text
            )
        if is_turn:
            notes.last_truncated = False
        return LLMResponse(
            content=text,
            # For Harbor's trajectory. Terminus-2 puts it into no prompt unless it is configured to.
            reasoning_content=scrub(completion.thinking) or None,
            model_name=link.spec.model_name,
            usage=UsageInfo(
                prompt_tokens=completion.prompt_tokens,
                completion_tokens=completion.completion_tokens,
                cache_tokens=0,
                cost_usd=0.0,
            ),
        )

    def _note_truncated(self) -> None:
        link, notes = self._link, self._link.notes
        notes.last_truncated = True
        error = f"the completion was cut at {link.spec.max_tokens} tokens"
        notes.last_parse_error = error
        link.post(TurnUnderstood(link.spec.trial, notes.turns, "", "", (), False, error, None))

    @override
    def get_model_context_limit(self) -> int:
        return self._link.spec.context_limit

    @override
    def get_model_output_limit(self) -> int | None:
        return self._link.spec.max_tokens


def history_of(messages: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    """A conversation as Harbor's chat has it."""
    return tuple(Message(_ROLES[str(m["role"])], str(m["content"])) for m in messages)


class _Command(Protocol):
    keystrokes: str
    duration: float


class _Result(Protocol):
    @property
    def commands(self) -> Sequence[_Command]: ...
    @property
    def is_task_complete(self) -> object: ...
    @property
    def error(self) -> str: ...
    @property
    def warning(self) -> str: ...
    @property
    def analysis(self) -> object: ...
    @property
    def plan(self) -> object: ...


class Parser(Protocol):
    """Harbor's TerminusJSONPlainParser, or another agent's."""

    def parse_response(self, response: str) -> _Result: ...


@dataclass
class CleanCommand:
    keystrokes: str
    """Holds neither NULs nor lone surrogates, so a terminal can be sent it."""
    duration: float
    """Seconds; finite, not negative."""


@dataclass
class Understood:
    """A parser's result, with Harbor's field names, safe to type, to store and to send."""

    commands: list[CleanCommand]
    is_task_complete: bool
    error: str
    warning: str
    """Goes into the policy's next prompt."""
    analysis: str = ""
    plan: str = ""
    noted: str = ""
    """The warnings that are recorded, whether or not the policy reads them."""


class GuardedParser:
    """Reads a completion with Terminus-2's parser, whatever the completion is; keeps the last.

    A policy under training writes anything: JSON nested a hundred thousand deep, numbers of ten
    thousand digits, `NaN` seconds, NULs and lone surrogates in keystrokes. Harbor's parser raises
    on some of these and passes others on to where they break the trial. What a policy writes is
    never a fault of the machinery, so here it becomes a parse error or a warning that the policy
    reads.
    """

    def __init__(self, parser: Parser, *, tells: bool = True) -> None:
        """`tells`: warnings go into the policy's next prompt, not errors alone."""
        self._parser = parser
        self._tells = tells
        self.last = Understood([], False, "", "")

    def parse_response(self, response: str) -> Understood:
        try:
            result = self._parser.parse_response(response)
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            problem = f"Unreadable response: {type(error).__name__}: {error}"
            self.last = Understood([], False, scrub(problem), "")
            return self.last
        warnings = [scrub(result.warning)] if result.warning else []
        commands = []
        for number, command in enumerate(result.commands, start=1):
            keystrokes = scrub(command.keystrokes).replace("\0", "")
            if keystrokes != command.keystrokes:
                warnings.append(f"- Command {number}: NULs and broken characters were left out")
            commands.append(CleanCommand(keystrokes, _seconds(command.duration)))
        warning = "\n".join(warnings)
        self.last = Understood(
            commands=commands,
            is_task_complete=bool(result.is_task_complete),
            error=scrub(result.error),
            warning=warning if self._tells else "",
            analysis=scrub(str(result.analysis)),
            plan=scrub(str(result.plan)),
            noted=warning,
        )
        return self.last


def scrub(text: str) -> str:
    """`text` with lone surrogates replaced, so that it can be encoded."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _seconds(duration: float) -> float:
    return max(0.0, duration) if math.isfinite(duration) else 1.0
