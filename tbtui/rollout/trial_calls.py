"""Answers the calls that a trial's agent makes at the model endpoint: its turns.

A call passes the same gate as a turn of Terminus-2 (pause, take-over, stop), counts against
`max_turns`, and is sampled through the trial's link. What the agent did since its last call is
what the new one's messages end with: it becomes that turn's observation.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
from collections.abc import Sequence
from typing import Protocol

from tbtui.chat import Message, ToolCall, most_chars
from tbtui.endpoint.calls import Api, CallRefused, ModelAnswer, ModelCall, StopReason
from tbtui.journal.events import AgentCommand, TrialPhase
from tbtui.rollout.environments.base import SandboxLostError
from tbtui.rollout.link import AgentEnded, ContextOverflow, TrialLink, Unsupported
from tbtui.rollout.messages import Completion, SideCallSeen, TurnSeen, TurnUnderstood

_SHOWN_CHARS = 100_000
MOST_REFUSED = 200
"""Refused calls after which the agent is ended: it does nothing but ask."""
COUNTS_PER_TURN = 8
"""How often tokens are counted for a trial, for each call that it may make."""
_BYTES_PER_CHAR = 2
"""Bytes of a request for each character: JSON escapes some, and has more around them. Where it
escapes most of them, as in scripts that are none of ASCII's, a token holds few."""
_REMEMBERED = 64
"""Calls whose client may still turn out to be gone."""
_SHELLS = ("command", "cmd", "script", "keystrokes")
"""Arguments that hold what a shell runs, in the tools of the agents that are known."""
_BLOCK = re.compile(
    r"^```(?:bash|sh|shell|mswea_bash_command)\n(.*?)^```", re.DOTALL | re.MULTILINE
)
"""What an agent without tools runs of an answer."""
_ENDED = "the trial has ended"

_log = logging.getLogger(__name__)


class CallWatcher(Protocol):
    """Shows what an agent does by its calls."""

    def acts(self, commands: Sequence[str]) -> None:
        """It was answered with these commands."""
        ...

    def sees(self, observation: str) -> None:
        """This came of them."""
        ...


class TrialCalls:
    """The calls of one trial. Open while its agent runs."""

    def __init__(self, link: TrialLink, model: str) -> None:
        self.model = model
        """The name under which the policy is listed."""
        self.over: asyncio.Future[AgentEnded]
        """Why the agent has to be ended: no more turns, or the policy failed."""
        self.overflowed = False
        """The last call did not fit into the context."""
        self.answered = False
        """A call was: what the agent's program does from then on may be the policy's doing."""
        self.refusal: str | None = None
        """Why the last call was refused that was none of the policy's, or none that it can do."""
        self.watcher: CallWatcher | None = None
        """Shown what the agent does, and what comes of it."""
        self._link = link
        self._open = False
        self._gate = asyncio.Lock()
        """One call stands at the gate at a time, as one turn of Terminus-2 does."""
        self._asking = 0
        self._refusals = 0
        self._bare: list[int] = []
        """Turns without tools, of a conversation that has shown none so far."""
        self._has_tools = False
        self._sides = 0
        """Calls beside the conversation that has the tools."""
        self._counts = 0
        self._turns: dict[ModelCall, int] = {}
        self._unseen: tuple[int, float] | None = None
        """The last turn answered, and when by the trial's active clock; until its result is seen.
        """

    @property
    def most_bytes(self) -> int:
        return _BYTES_PER_CHAR * most_chars(self._link.spec.context_limit)

    def begin(self) -> None:
        """Take calls: the agent runs from now on."""
        self.over = asyncio.get_running_loop().create_future()
        self._open = True

    def end(self) -> None:
        """Refuse calls: it runs no more."""
        self._open = False

    async def answer(self, call: ModelCall) -> ModelAnswer:
        link = self._link
        turn = await self._admit()
        self._turns[call] = turn
        if len(self._turns) > _REMEMBERED:
            del self._turns[next(iter(self._turns))]
        self._tell_apart(turn, call)
        self._see(call)
        self._asking += 1
        try:
            completion = await link.sample(
                call.messages,
                turn=turn,
                purpose="turn",
                tools=call.tools,
                tool_choice=call.tool_choice,
                one_tool_call=call.one_tool_call,
                stop=call.stop,
                max_tokens=call.max_tokens,
            )
        except ContextOverflow as error:
            self._take_back(turn)
            self.overflowed = True
            raise CallRefused(
                "context_overflow",
                str(error),
                prompt_tokens=error.prompt_tokens,
                context_limit=error.context_limit,
            ) from error
        except Unsupported as error:
            self._take_back(turn)
            raise CallRefused("unsupported", str(error)) from error
        except AgentEnded as ended:
            self._end(ended)
            raise CallRefused("provider", ended.reason) from None
        except SandboxLostError as error:
            raise CallRefused("gone", str(error)) from error
        finally:
            self._asking -= 1
            if not self._asking and self._open:
                # Calls may overlap: the last one's end is what the clock goes by.
                link.watch.enter("commands")
                link.enter(TrialPhase.ACTING)
        self.overflowed = False
        self.answered = True
        self._understand(turn, completion)
        return _answer(completion)

    async def count_tokens(self, call: ModelCall) -> int:
        if not self._open:
            raise CallRefused("gone", _ENDED)
        most = COUNTS_PER_TURN * self._link.spec.max_turns
        if self._counts >= most:
            raise CallRefused("rate_limit", f"the trial has had tokens counted {most} times")
        self._counts += 1
        try:
            counted = await self._link.sample(
                call.messages,
                turn=max(self._link.notes.turns, 1),
                purpose="turn",
                tools=call.tools,
                tool_choice=call.tool_choice,
                count_only=True,
            )
        except (AgentEnded, Unsupported) as error:
            raise CallRefused("provider", str(error)) from None
        except ContextOverflow as error:
            raise CallRefused("invalid_request", str(error)) from None
        return counted.prompt_tokens

    def abandoned(self, call: ModelCall) -> None:
        if (turn := self._turns.get(call)) is not None:
            self._link.abandon(turn)

    def refused(self, api: Api, refusal: CallRefused) -> None:
        if refusal.kind in ("unsupported", "invalid_request", "unauthorized", "not_found"):
            self.refusal = refusal.message
        elif refusal.kind == "context_overflow" and not self.overflowed:
            self.overflowed = True  # before it became a call
            self._link.notes.overflow = refusal.message
        self._refusals += 1
        if self._refusals > MOST_REFUSED:
            return
        if self._refusals == MOST_REFUSED and self._open:
            self._end(AgentEnded("max_turns", f"{self._refusals} of its calls were refused"))
        _log.info("%s: a call refused (%s): %s", self._link.spec.trial, api, refusal.message)

    async def _admit(self) -> int:
        """The number of a new turn, once the trial may go on."""
        link, notes = self._link, self._link.notes
        async with self._gate:
            if not self._open:
                raise CallRefused("gone", _ENDED)
            try:
                await link.boundary()
            except (AgentEnded, SandboxLostError) as ended:
                raise CallRefused("gone", str(ended)) from None
            if not self._open:  # meanwhile
                raise CallRefused("gone", _ENDED)
            if notes.turns - self._uncounted >= link.spec.max_turns:
                self._end(AgentEnded("max_turns"))
                most = link.spec.max_turns
                raise CallRefused("rate_limit", f"the trial has made its {most} calls (max_turns)")
            notes.turns += 1
            return notes.turns

    @property
    def _uncounted(self) -> int:
        """Turns that `max_turns` leaves out: no more than it allows itself, so that an end is."""
        spec = self._link.spec
        return 0 if spec.train_side_calls else min(self._sides, spec.max_turns)

    def _tell_apart(self, turn: int, call: ModelCall) -> None:
        """Say which turns are beside the agent's conversation, as soon as that is known: titles are
        often asked for first."""
        self._has_tools |= bool(call.tools)
        if not call.tools:
            self._bare.append(turn)
        if self._has_tools:
            for each in self._bare:
                self._link.post(SideCallSeen(self._link.spec.trial, each))
            self._sides += len(self._bare)
            self._bare.clear()

    def _take_back(self, turn: int) -> None:
        # The policy was never asked.
        if self._link.notes.turns == turn:
            self._link.notes.turns -= 1

    def _end(self, ended: AgentEnded) -> None:
        if not self.over.done():
            self.over.set_result(ended)

    def _see(self, call: ModelCall) -> None:
        """The call ends with what came of the last answer: results of tools, or what the agent
        says of them."""
        if self._unseen is None:
            return
        turn, since = self._unseen
        self._unseen = None
        news: list[str] = []
        for message in reversed(call.messages):
            if message.role == "assistant":
                break
            if message.content:
                news.append(_shown(message))
        else:
            return  # another conversation: a sub-agent's, or a summary
        observation = "\n".join(reversed(news))[-_SHOWN_CHARS:]
        if self.watcher is not None and observation:
            self.watcher.sees(observation)
        seconds = max(0.0, self._link.budget.active() - since)
        self._link.post(TurnSeen(self._link.spec.trial, turn, observation, seconds))

    def _understand(self, turn: int, completion: Completion) -> None:
        link, notes = self._link, self._link.notes
        notes.last_truncated = completion.truncated
        error = completion.malformed or None
        cut = ""
        if completion.truncated and not completion.tool_calls:
            cut = f"the completion was cut at {completion.completion_tokens} tokens"
        # An agent that then fails has given up on the answer. Whether it could read it is for the
        # agent to know: being cut off is no parse error.
        notes.last_parse_error = cut or error
        self._unseen = turn, link.budget.active()
        lines = [_line(call) for call in completion.tool_calls] or _BLOCK.findall(completion.text)
        calls = tuple(AgentCommand(keystrokes=line, duration_sec=0) for line in lines)
        if self.watcher is not None and lines:
            self.watcher.acts(lines)
        said = completion.text if calls else ""
        link.post(TurnUnderstood(link.spec.trial, turn, said, "", calls, False, error, cut or None))


def _answer(completion: Completion) -> ModelAnswer:
    stop: StopReason = "stop"
    if completion.truncated:
        stop = "length"
    elif completion.tool_calls:
        stop = "tool_calls"
    elif completion.stop_sequence is not None:
        stop = "stop_sequence"
    return ModelAnswer(
        text=completion.text,
        thinking=completion.thinking,
        tool_calls=completion.tool_calls,
        stop=stop,
        stop_sequence=completion.stop_sequence,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        cached_tokens=completion.cached_tokens or 0,
    )


def _line(call: ToolCall) -> str:
    """A tool call as a command: what a shell is given as it is, any other with its name."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        for name in _SHELLS:
            given = arguments.get(name)
            if isinstance(given, list) and all(isinstance(word, str) for word in given):
                given = shlex.join(given)
            if isinstance(given, str):
                return f"{given}\n"
    return f"{call.name} {call.arguments}\n"


def _shown(message: Message) -> str:
    return f"{message.name}: {message.content}" if message.name else message.content
