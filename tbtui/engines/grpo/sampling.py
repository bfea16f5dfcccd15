"""One trial's side of the conversation with the policy: exact tokens in, exact tokens kept."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from tbtui.algorithm.segments import Call
from tbtui.chat import Message, Tool, chars_of, most_chars
from tbtui.engines.grpo.call_tree import CallTree
from tbtui.engines.grpo.origins import Origin
from tbtui.engines.grpo.rollouts import derive_seed
from tbtui.journal.events import (
    SideCall,
    ToolUse,
    TurnAbandoned,
    TurnSampled,
    TurnStarted,
    TurnWriting,
)
from tbtui.journal.samples import SampleRecord
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import (
    Answer,
    ChatRenderer,
    ContextOverflowError,
    Policy,
    PolicyError,
    PolicyRefusedError,
    Renderer,
    Sample,
    SampleRequest,
    SamplingParams,
    UnrenderableError,
)
from tbtui.policies.chat.tools import ToolRenderer, with_tools
from tbtui.rollout.messages import Completion, SampleWanted

# A completion of fewer tokens than this can't hold any answer.
_LEAST_COMPLETION = 8
_PADDING = 2048
"""By how much a model's output layer may be larger than its vocabulary: what it draws there, it has
drawn."""
_LARGEST_ID = 1 << 31
_ROUNDING = 1e-3
"""By how much a log-probability may be above 0."""
_LONG_CHARS = 1 << 16
_THREADS = 64
"""Trials whose prompts are rendered at a time; each has one under way at most."""


_WRITING_SEC = 1.0
"""Between two events of what is drawn of an answer: a fast model has none, or one."""

Draw = Callable[[SampleRequest], Awaitable[Sample]]
"""Gives the completion that is asked for; raises `PolicyError`."""


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """The most tokens of a model's context and of one completion."""

    context: int
    completion: int


@dataclass(frozen=True, slots=True)
class _Answered:
    """A completion as the agent gets it."""

    answer: Answer
    sample: Sample
    """What counts of it: its tokens up to where it was cut."""
    pieces: tuple[str, ...]
    """The text of each of these tokens."""
    stop: str | None
    """The stop text that ended it."""
    cut_tokens: int


class LoopTurns:
    """Spreads work over the iterations of the event loop, one piece to each.

    Thirty-two trials that ask at once would else keep the loop from everything else for as long
    as it takes to record all of them. What a trial's own text makes long, the rendering of its
    prompts, has threads.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, "rendering")
        self._long = ThreadPoolExecutor(1, "rendering long prompts")
        """One for all trials: several that send such prompts take one core and not all of them."""

    async def wait(self) -> None:
        async with self._lock:
            await asyncio.sleep(0)

    async def beside[T](self, work: Callable[[], T], chars: int) -> T:
        """The result of `work` on a text of so many characters, done on another thread."""
        threads = self._long if chars > _LONG_CHARS else self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, work)


class _Writing:
    """Journals what is drawn of one answer before it is whole, at most once a second."""

    def __init__(
        self, trial: str, turn: int, renderer: ToolRenderer, journal: JournalWriter
    ) -> None:
        self._trial = trial
        self._turn = turn
        self._renderer = renderer
        self._journal = journal
        self._before = 0
        """Tokens that were journalled."""
        self._ids: list[int] = []
        """Those that were not."""
        self._journalled_at = -math.inf

    def drawn(self, before: int, ids: tuple[int, ...]) -> None:
        if not before:
            self._before, self._ids = 0, []
        self._ids += ids
        now = time.monotonic()
        if now - self._journalled_at < _WRITING_SEC:
            return
        self._journalled_at = now
        self._journal.append(
            TurnWriting(
                trial=self._trial,
                turn=self._turn,
                before=self._before,
                tokens=len(self._ids),
                text="".join(self._renderer.pieces(self._ids)),
            )
        )
        self._before += len(self._ids)
        self._ids = []


class Conversation:
    """Renders, samples and records the model calls of one trial.

    The policy's sampler is the recorder: what is journalled and trained on are the ids that went
    in and came out, never a re-tokenised text.
    """

    def __init__(
        self,
        trial: str,
        seed: int,
        sampling: SamplingParams,
        limits: SamplingLimits,
        policy: Policy,
        journal: JournalWriter,
        turns: LoopTurns,
        origin: Origin | None = None,
    ) -> None:
        """`origin`: of a fork, whose conversation goes on from its exact tokens."""
        self.calls: list[Call] = []
        self._trial = trial
        self._seed = seed
        self._sampling = sampling
        self._limits = limits
        self._policy = policy
        self._journal = journal
        self._turns = turns
        self._tree = CallTree(self.calls)
        self._rendering = asyncio.Lock()
        """In the order in which they come, which their seeds go by, and one at a time: a trial that
        sends many long prompts waits for itself."""
        if origin is not None and origin.history_ids:
            self._tree.begin(origin.point.messages, origin.history_ids)
        self._turn_of: dict[int, int] = {}
        """Turn -> which of the calls answered it last."""
        self._abandoned: set[int] = set()
        self._sides: set[int] = set()
        self._in_flight = 0
        self._handed_back = False

    async def answer(self, wanted: SampleWanted, draw: Draw) -> Completion:
        """`draw` the completion that the agent asks for, and record it.

        Raises:
            ContextOverflowError: the prompt leaves no room for an answer.
            UnrenderableError: there is no such prompt.
            PolicyError: the policy failed, or gave what can't be trained on.
        """
        await self._turns.wait()
        renderer = with_tools(self._policy.renderer)
        self._refuse_longest(wanted)
        if wanted.count_only:
            prompt = await self._rendered(renderer, wanted)
            return Completion(wanted.request, wanted.trial, "", False, len(prompt), 0)
        self._journal.append(
            TurnStarted(
                trial=self._trial,
                turn=wanted.turn,
                purpose=wanted.purpose,
                prompt=_news(wanted.messages),
            )
        )
        prompt = await self._rendered(renderer, wanted)
        room = self._limits.context - len(prompt)
        if room < _LEAST_COMPLETION:
            limit = self._limits.context
            raise ContextOverflowError(
                f"the prompt has {len(prompt)} tokens, the context limit is {limit}",
                len(prompt),
                limit,
            )
        started = time.monotonic()
        number = len(self.calls) + self._in_flight
        self._in_flight += 1
        try:
            sample = await draw(
                SampleRequest(
                    prompt_ids=prompt,
                    max_tokens=min(
                        self._limits.completion, room, wanted.max_tokens or self._limits.completion
                    ),
                    sampling=self._sampling_of(wanted),
                    seed=derive_seed(self._seed, number),
                    on_drawn=_Writing(self._trial, wanted.turn, renderer, self._journal).drawn,
                )
            )
            _require_sound(sample, self._policy.renderer)
            await self._turns.wait()
        finally:
            self._in_flight -= 1
        answered = self._read(renderer, wanted, sample, number)
        self._record(wanted, prompt, answered, started)
        sample, answer = answered.sample, answered.answer
        call = Call(
            prompt,
            sample.completion_ids,
            sample.logprobs if sample.model_logprobs is None else sample.model_logprobs,
            sample.weights_version,
            wanted.purpose != "turn",
            sample.cached_tokens,
            abandoned=wanted.turn in self._abandoned,
            handed_back=self._handed_back,
            side=wanted.turn in self._sides,
        )
        said = Message("assistant", answer.text, answer.thinking, answer.tool_calls)
        self._tree.add(wanted.tools, wanted.messages, said, len(self.calls))
        self._turn_of[wanted.turn] = len(self.calls)
        self.calls.append(call)
        return Completion(
            request=wanted.request,
            trial=wanted.trial,
            text=answer.text,
            thinking=answer.thinking,
            truncated=sample.stop_reason == "length",
            prompt_tokens=len(prompt),
            completion_tokens=len(sample.completion_ids),
            tool_calls=answer.tool_calls,
            malformed=answer.malformed,
            stop_sequence=answered.stop if answered.stop in wanted.stop else None,
            cached_tokens=sample.cached_tokens,
        )

    def typed_in(self) -> None:
        """Note that a person has typed: what was sampled so far came before that."""
        self._handed_back = True
        self.calls[:] = [replace(call, handed_back=False) for call in self.calls]

    def prompt_of(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The tokens that the policy would be asked with for these messages, without tools."""
        return self._render(with_tools(self._policy.renderer), messages)

    def abandoned(self, turn: int) -> None:
        """Note that the agent didn't take the answer of a turn, which may still be to come."""
        if turn in self._abandoned:
            return
        self._abandoned.add(turn)
        self._journal.append(TurnAbandoned(trial=self._trial, turn=turn))
        if (at := self._turn_of.get(turn)) is not None:
            self.calls[at] = replace(self.calls[at], abandoned=True)

    def side_call(self, turn: int) -> None:
        """Note that a turn is a call beside the agent's conversation; it may still be asked."""
        self._sides.add(turn)
        self._journal.append(SideCall(trial=self._trial, turn=turn))
        if (at := self._turn_of.get(turn)) is not None:
            self.calls[at] = replace(self.calls[at], side=True)

    def _sampling_of(self, wanted: SampleWanted) -> SamplingParams:
        """The run's, with the texts that the agent itself wants to end an answer."""
        stop = tuple(dict.fromkeys((*wanted.stop, *self._sampling.stop)))
        return replace(self._sampling, stop=stop)

    def _refuse_longest(self, wanted: SampleWanted) -> None:
        """Raise `ContextOverflowError` for a prompt that is too long to be worth its rendering."""
        limit, length = self._limits.context, chars_of(wanted.messages, wanted.tools)
        if length > most_chars(limit):
            raise ContextOverflowError(
                f"the prompt has {length} characters; the maximum context length is {limit} tokens"
            )

    async def _rendered(self, renderer: ToolRenderer, wanted: SampleWanted) -> tuple[int, ...]:
        render = functools.partial(self._render, renderer, wanted.messages, wanted.tools)
        async with self._rendering:
            try:
                length = chars_of(wanted.messages, wanted.tools)
                return await self._turns.beside(render, length)
            except PolicyRefusedError as error:
                raise UnrenderableError(str(error)) from error

    def _render(
        self, renderer: ToolRenderer, messages: Sequence[Message], tools: tuple[Tool, ...] = ()
    ) -> tuple[int, ...]:
        known = self._tree.find(tools, messages)
        if known is None:
            return renderer.render(messages, tools)
        return renderer.extend(known.tokens, messages, known.length, tools)

    def _read(
        self, renderer: ToolRenderer, wanted: SampleWanted, sample: Sample, number: int
    ) -> _Answered:
        """The completion as the agent gets it: up to a stop text, with the calls that it wants."""
        tools = wanted.tools if wanted.tool_choice == "auto" else ()
        whole, pieces = sample, renderer.pieces(sample.completion_ids)
        stop = None
        stops = self._sampling_of(wanted).stop
        if stops and (found := _first(stops, pieces)) is not None:
            stop, kept = found
            sample, pieces = _cut(sample, kept), pieces[:kept]
        answer = renderer.answer(sample.completion_ids, tools)
        if wanted.one_tool_call and len(answer.tool_calls) > 1:
            if renderer.call_end and (found := _first((renderer.call_end,), pieces)) is not None:
                sample, pieces = _cut(sample, found[1]), pieces[: found[1]]
                answer = renderer.answer(sample.completion_ids, tools)
            answer = replace(answer, tool_calls=answer.tool_calls[:1])
        if stop is not None:
            before, ended, _ = answer.text.partition(stop)
            thinking = answer.thinking if ended else answer.thinking.partition(stop)[0]
            answer = replace(answer, text=before, thinking=thinking)
        calls = tuple(
            # As long as the strictest chat format wants them, and the same in a repeated run.
            replace(call, id=f"{derive_seed(self._seed, 'tool', number, index):016x}"[:9])
            for index, call in enumerate(answer.tool_calls)
        )
        cut = len(whole.completion_ids) - len(sample.completion_ids)
        return _Answered(replace(answer, tool_calls=calls), sample, tuple(pieces), stop, cut)

    def _record(
        self,
        wanted: SampleWanted,
        prompt: tuple[int, ...],
        answered: _Answered,
        started: float,
    ) -> None:
        seconds = time.monotonic() - started
        answer, sample = answered.answer, answered.sample
        row = self._journal.add_sample(
            SampleRecord(
                trial=self._trial,
                turn=wanted.turn,
                prompt_ids=prompt,
                completion_ids=sample.completion_ids,
                logprobs=sample.logprobs,
                pieces=answered.pieces,
                prompt_text=_news(wanted.messages),
                stop_reason=sample.stop_reason,
                weights_version=sample.weights_version,
                temperature=self._sampling.temperature,
                seconds=seconds,
                summary=wanted.purpose != "turn",
                model_logprobs=sample.model_logprobs,
            )
        )
        drawn = sample.logprobs if sample.logprobs.size else np.zeros(1, np.float32)
        self._journal.append(
            TurnSampled(
                trial=self._trial,
                turn=wanted.turn,
                purpose=wanted.purpose,
                sample=row,
                text=answer.text,
                thinking=answer.thinking,
                tool_calls=tuple(
                    ToolUse(id=call.id, name=call.name, arguments=call.arguments)
                    for call in answer.tool_calls
                ),
                malformed=answer.malformed,
                cut_tokens=answered.cut_tokens,
                prompt_tokens=len(prompt),
                completion_tokens=len(sample.completion_ids),
                mean_logprob=float(drawn.mean()) if sample.has_logprobs else None,
                min_logprob=float(drawn.min()) if sample.has_logprobs else None,
                stop_reason=sample.stop_reason,
                weights_version=sample.weights_version,
                cached_tokens=sample.cached_tokens,
                seconds=seconds,
            )
        )


def _first(texts: Sequence[str], pieces: Sequence[str]) -> tuple[str, int] | None:
    """The text that comes first in a completion, and how many of its tokens lead to its end."""
    whole = "".join(pieces)
    found = [(at, text) for text in texts if (at := whole.find(text)) >= 0]
    if not found:
        return None
    at, text = min(found)
    read = 0
    for count, piece in enumerate(pieces, 1):
        read += len(piece)
        if read >= at + len(text):
            return text, count
    raise AssertionError("a text is no longer than its pieces")


def _cut(sample: Sample, kept: int) -> Sample:
    """The sample as if its sampler had stopped after `kept` tokens."""
    return replace(
        sample,
        completion_ids=sample.completion_ids[:kept],
        logprobs=sample.logprobs[:kept],
        model_logprobs=None if sample.model_logprobs is None else sample.model_logprobs[:kept],
        stop_reason="stop",
    )


def _news(messages: Sequence[Message]) -> str:
    """What the messages say that came after the assistant's last; of a first prompt, its last."""
    news: list[str] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        if news and message.role != "tool":
            break
        news.append(message.content)
    return "\n\n".join(reversed(news))


def _require_sound(sample: Sample, renderer: Renderer) -> None:
    """Raise `PolicyError` for what can't be trained on, whichever policy or server it is from."""
    size = renderer.vocab_size if isinstance(renderer, ChatRenderer) else None
    most = _LARGEST_ID if size is None else size + _PADDING
    if any(not 0 <= id < most for id in sample.completion_ids):
        raise PolicyError("a token id is none of the vocabulary's")
    if not np.isfinite(sample.logprobs).all():
        raise PolicyError("a log-probability is not a finite number")
    given = [sample.logprobs]
    given += [] if sample.model_logprobs is None else [sample.model_logprobs]
    for logprobs in given:
        if logprobs.shape != (len(sample.completion_ids),):
            raise PolicyError(
                f"{len(sample.completion_ids)} tokens came with {logprobs.size} log-probabilities"
            )
        if np.isinf(logprobs).any():
            raise PolicyError("a log-probability is not a finite number")
        if (logprobs > _ROUNDING).any():
            raise PolicyError("a log-probability is positive")
