"""The engine's policy as the model that Terminus-2 talks to."""

from __future__ import annotations

from typing import Any, override

from harbor.agents.terminus_2.terminus_xml_plain_parser import TerminusXMLPlainParser
from harbor.llms.base import (
    BaseLLM,
    ContextLengthExceededError,
    LLMResponse,
    OutputLengthExceededError,
)
from harbor.models.metric import UsageInfo

from tbtui.rollout.link import AgentEnded, ContextOverflow, TrialLink
from tbtui.rollout.messages import TurnUnderstood
from tbtui.rollout.parsing import scrub


class LinkedLLM(BaseLLM):
    """The engine's policy, reached through the trial's link."""

    def __init__(self, link: TrialLink) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._link = link
        # Terminus-2 tries to salvage a truncated XML answer too, but then fails on what it gets.
        self._salvager: TerminusXMLPlainParser | None = None
        if link.spec.parser_name == "xml":
            self._salvager = TerminusXMLPlainParser()  # type: ignore[no-untyped-call]
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
        messages = [(str(m["role"]), str(m["content"])) for m in message_history or ()]
        messages.append(("user", prompt))
        try:
            completion = await link.sample(messages, turn=max(notes.turns, 1), purpose=purpose)
        except ContextOverflow as error:
            if is_turn:
                notes.turns -= 1  # the policy was never asked
                if self._overflowed:
                    # What follows a summary. Terminus-2 would go on with an answer of its own.
                    raise AgentEnded("context_overflow", str(error)) from error
                self._overflowed = True
            raise ContextLengthExceededError(str(error)) from error
        if is_turn:
            self._overflowed = False
        text = scrub(completion.text)
        chars = len(text) + sum(len(content) for _, content in messages)
        tokens = completion.prompt_tokens + completion.completion_tokens
        self.chars_per_token = max(1.0, chars / max(1, tokens))
        if completion.truncated and is_turn and (salvaged := self._salvaged(text)) is not None:
            text = salvaged
        elif completion.truncated:
            if is_turn:
                self._note_truncated()
            raise OutputLengthExceededError(
                f"the completion was cut at {link.spec.max_tokens} tokens", truncated_response=text
            )
        if is_turn:
            notes.last_truncated = False
        return LLMResponse(
            content=text,
            # For Harbor's trajectory. Terminus-2 puts it into no prompt unless it is told to.
            reasoning_content=scrub(completion.thinking) or None,
            model_name=link.spec.model_name,
            usage=UsageInfo(
                prompt_tokens=completion.prompt_tokens,
                completion_tokens=completion.completion_tokens,
                cache_tokens=0,
                cost_usd=0.0,
            ),
        )

    def _salvaged(self, text: str) -> str | None:
        if self._salvager is None:
            return None
        salvaged, _ = self._salvager.salvage_truncated_response(text)
        return salvaged

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
