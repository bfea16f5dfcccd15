"""Renders a model's own chat template to exact tokens, and splits its completions into thinking
and answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any

from jinja2 import TemplateError

from tbtui.chat import Message, Tool, ToolCall
from tbtui.policies.base import Answer, PolicyError, PolicyRefusedError, Thinking
from tbtui.policies.chat.tool_formats import (
    CallReader,
    ToolFormat,
    call_object,
    find_reader,
    tool_object,
)
from tbtui.policies.chat.vocabulary import Vocabulary

_OTHERWISE = "name a tokenizer directory that has another template, or renderer=cookbook:NAME"
_SWITCHES = ("enable_thinking", "thinking")
"""What templates call the variable that switches thinking off: Qwen and most others; DeepSeek."""
_PRIVATE = range(0xE000, 0xF900)
"""Characters that stand for nothing (Unicode's private use area)."""

_PAIRS = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<thinking>", "</thinking>"),
)


@dataclass(frozen=True, slots=True)
class Marks:
    """What a model puts before and after its thinking."""

    opening: str
    closing: str

    def left_open(self, text: str) -> bool:
        """Whether thinking that begins in `text` doesn't end in it."""
        return text.rfind(self.opening) > text.rfind(self.closing)


def find_marks(template: str, added_tokens: Collection[str]) -> Marks | None:
    """The marks that the chat template writes, else those in the vocabulary; None: there are none.

    Whether a model thinks can't be seen from its vocabulary (Qwen's is the same for models that
    don't), only how it would.
    """
    for places in (template, added_tokens):
        for opening, closing in _PAIRS:
            if closing in places:
                return Marks(opening, closing)
    return None


class AnswerReader:
    """Splits completions at the marks."""

    def __init__(self, vocabulary: Vocabulary, marks: Marks | None, opened: bool) -> None:
        """`opened`: the prompt's last words are the opening mark, or come after it."""
        self._vocabulary = vocabulary
        self._marks = marks
        self._opened = opened
        ids = vocabulary.ids
        self._ids: tuple[int, int] | None = None
        if marks is not None and marks.opening in ids and marks.closing in ids:
            self._ids = ids[marks.opening], ids[marks.closing]

    def may_think(self, history: Sequence[int]) -> bool:
        """Whether there can be thinking in a conversation, of which `history` are the tokens."""
        if self._marks is None:
            return False
        return self._ids is None or any(id in history for id in self._ids)

    def unthinking(self, text: str) -> str:
        """The text as a completion that doesn't think."""
        return f"{self._marks.closing}\n\n{text}" if self._opened and self._marks else text

    def read(self, ids: Sequence[int], kept: Collection[int] = ()) -> Answer:
        """Text and thinking of a completion without its stop token. Thinking that was cut off
        before its end leaves no text.

        `kept`: special tokens that stay in the text.
        """
        text_of = partial(self._vocabulary.text, kept=kept)
        if self._marks is None:
            return Answer(text_of(ids))
        if self._ids is None:
            return read_text(text_of(ids), self._marks, self._opened)
        opening, closing = self._ids
        ids = list(ids)
        begin = 0
        if opening in ids and not text_of(ids[: ids.index(opening)]).strip():
            begin = ids.index(opening) + 1
        elif not self._opened:
            return Answer(text_of(ids))
        if closing not in ids[begin:]:
            return Answer("", text_of(ids[begin:]).strip())
        end = ids.index(closing, begin)
        return _answer(text_of(ids[begin:end]), text_of(ids[end + 1 :]))


def read_text(text: str, marks: Marks, opened: bool) -> Answer:
    """As `AnswerReader.read`, where marks are plain text."""
    begins = text.lstrip()
    if begins.startswith(marks.opening):
        text = begins.removeprefix(marks.opening)
    elif not opened:
        return Answer(text)
    thinking, closing, rest = text.partition(marks.closing)
    return _answer(thinking, rest) if closing else Answer("", text.strip())


def _answer(thinking: str, rest: str) -> Answer:
    return Answer(rest.lstrip("\n"), thinking.strip())


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A chat template as its tokenizer applies it."""

    source: str
    """Where it is from, for messages to a person."""
    text: str
    apply: Callable[..., str]
    """`apply(conversation, add_generation_prompt=..., **variables)`, where a conversation is a list
    of {"role": ..., "content": ...}, and `tools` may be a variable; raises `jinja2.TemplateError`.
    """
    responses: Mapping[str, Any] | None = None
    """The tokenizer's own description of what the model answers (transformers' response template).
    """


class TemplateRenderer:
    """Implements `tbtui.policies.base.ChatRenderer`, and `tbtui.policies.chat.tools.ToolRenderer`
    where the chat template has tools.

    What a message says never becomes one of the marks of the chat format: where it reads like one
    (a terminal that prints `<|im_end|>`), it is hidden from the template and encoded as ordinary
    text.
    """

    def __init__(
        self,
        template: ChatTemplate,
        vocabulary: Vocabulary,
        end_ids: Iterable[int],
        thinking: Thinking,
        tool_format: ToolFormat = "auto",
    ) -> None:
        """`end_ids`: tokens that the model's files name as the end of what it says.

        Raises:
            PolicyError: the template can't be used, or not with this setting of `thinking`.
        """
        self._template = template
        self._vocabulary = vocabulary
        self._thinking = thinking
        self._variables: dict[str, bool] = {}
        self._takes_system = self._takes_repeats = True
        self.digest: str | None = vocabulary.digest
        self.vocab_size: int | None = vocabulary.size
        if "<|channel|>" in vocabulary.ids and "<|channel|>" in template.text:
            raise PolicyRefusedError(
                f"{template.source}: its answers come in channels, which a chat template can't"
                " take apart; use renderer=cookbook:gpt_oss_medium_reasoning"
            )
        self._plain_template_works()
        self._takes_system = self._works([Message("system", "s"), Message("user", "u")])
        self._takes_repeats = self._works([Message("user", "u"), Message("user", "v")])
        if thinking == "off":
            self._variables = {self._switch(): False}
        ending = self._between([], prompt=False)
        known = {id for id in end_ids if id in vocabulary.names}
        ends = [number for number, id in enumerate(ending) if id in vocabulary.names]
        self._ending = ending[: ends[0] + 1] if ends else []
        self.stop_ids: tuple[int, ...] = tuple(sorted(known | set(self._ending[-1:])))
        if not self.stop_ids:
            raise PolicyRefusedError(
                f"{template.source}: no token ends the assistant's turn; {_OTHERWISE}"
            )
        marks = find_marks(template.text, vocabulary.ids)
        self.thinks = thinking != "off" and find_marks(template.text, ()) is not None
        """The chat template has thinking. A vocabulary may have its marks all the same."""
        opened = marks is not None and marks.left_open(self._asks_for_answer())
        self._reader = AnswerReader(vocabulary, marks, opened)
        self._calls = self._call_reader(tool_format)
        self.has_tools = self._calls is not None
        self.call_end = self._calls.end if self._calls else ""
        self._kept = self._kept_of(self._calls) if self._calls else frozenset()
        self.notes = tuple(self._notes(marks, opened))

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> tuple[int, ...]:
        return tuple(self._encode(self._shaped(messages), tools=tools))

    def extend(
        self,
        history: Sequence[int],
        messages: Sequence[Message],
        known: int,
        tools: Sequence[Tool] = (),
    ) -> tuple[int, ...]:
        if self._thinking == "strip" and self._reader.may_think(history):
            return self.render(messages, tools)
        between = self._between(messages[known:], tools=tools)
        ended = bool(history) and history[-1] in self.stop_ids
        if ended and self._ending and between[: len(self._ending)] == self._ending:
            between = between[len(self._ending) :]
        return (*history, *between)

    def answer(self, completion_ids: Sequence[int], tools: Sequence[Tool] = ()) -> Answer:
        ids = list(completion_ids)
        while ids and ids[-1] in self.stop_ids:
            ids.pop()
        if not tools or self._calls is None:
            return self._reader.read(ids)
        answer = self._reader.read(ids, self._kept)
        said = self._calls.read(answer.text, tools)
        if not said.calls and self._kept:
            # As it is without tools, special tokens and all.
            return replace(self._reader.read(ids), malformed=said.malformed)
        return replace(answer, text=said.text, tool_calls=said.calls, malformed=said.malformed)

    def spell(self, text: str) -> tuple[int, ...]:
        ending = self._ending or self.stop_ids[:1]
        return (*self._vocabulary.encode(self._reader.unthinking(text)), *ending)

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        return self._vocabulary.pieces(token_ids)

    def _between(
        self, messages: Sequence[Message], prompt: bool = True, tools: Sequence[Tool] = ()
    ) -> list[int]:
        """What comes after an assistant's words: the end of its turn, the messages, and the next
        turn's beginning."""
        shaped = [Message("user", "."), *self._shaped(messages)]
        return self._encode(shaped, prompt, cut=True, tools=tools)

    def _encode(
        self,
        messages: Sequence[Message],
        prompt: bool = True,
        cut: bool = False,
        tools: Sequence[Tool] = (),
    ) -> list[int]:
        """With `cut`, an assistant's turn is put after the first message, and what is returned
        is what follows its words."""
        hidden: list[str] = []
        given = [self._as_given(message) for message in messages]
        offered = [tool_object(tool) for tool in tools]
        edge = _unused("".join(_strings([given, offered])))

        def hide(text: str) -> str:
            hidden.append(text)
            return f"{edge}{len(hidden) - 1}{edge}"

        def hidden_in(text: str) -> str:
            return self._vocabulary.replaced(text, hide)

        conversation = _mapped(given, hidden_in)
        words = f"{edge}.{edge}"  # between two hidden texts there is no dot
        if cut:
            conversation.insert(1, {"role": "assistant", "content": words})
        text = self._apply(conversation, prompt, _mapped(offered, hidden_in))
        if cut:
            _, found, text = text.rpartition(words)
            if not found:
                raise PolicyRefusedError(
                    f"{self._template.source}: the chat template leaves out what the assistant"
                    f" said; {_OTHERWISE}"
                )
        if not hidden:
            return self._vocabulary.encode(text)
        parts = re.split(f"{edge}([0-9]+){edge}", text)
        return self._vocabulary.encode_parts(
            [hidden[int(part)] if number % 2 else part for number, part in enumerate(parts)]
        )

    def _as_given(self, message: Message) -> dict[str, Any]:
        """A message as chat templates take it."""
        given: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            given["tool_calls"] = [call_object(call) for call in message.tool_calls]
        if message.thinking and self._thinking == "keep":
            given["reasoning_content"] = message.thinking
        if message.tool_call_id:
            given["tool_call_id"] = message.tool_call_id
        if message.name:
            given["name"] = message.name
        return given

    def _call_reader(self, tool_format: ToolFormat) -> CallReader | None:
        """The reader of the model's own tool calls; None: its template can't be used for tools."""
        template = self._template
        try:
            reader = find_reader(tool_format, template.text, template.responses)
        except ValueError as error:
            raise PolicyRefusedError(
                f"{template.source}: its response template can't be used: {error}; name a"
                " tool_format"
            ) from error
        if reader is None and tool_format in ("auto", "json"):
            return None
        call = ToolCall("call00000", "f", '{"a": "b"}')
        turn = [
            Message("user", "u"),
            Message("assistant", "", tool_calls=(call,)),
            Message("tool", "t", tool_call_id=call.id),
        ]
        schema = '{"type": "object", "properties": {"a": {"type": "string"}}}'
        tools = [Tool("f", "d", schema)]
        try:
            self.render(turn, tools)
            self._between(turn[2:], tools=tools)
        except PolicyError as error:
            if tool_format == "auto":
                return None
            raise PolicyRefusedError(f"tool_format={tool_format}: {error}") from error
        if reader is None:
            raise PolicyRefusedError(
                f"tool_format={tool_format}: the chat template of {template.source} has no tools;"
                " leave it out"
            )
        if tool_format != "auto":
            return reader
        # What only looks like a format that is known is passed over.
        known = [reader, find_reader(tool_format, template.text)]
        said = (replace(call, id=""),)
        return next(
            (
                each
                for each in known
                if each and each.read(self._written(turn[:2], tools, each), tools).calls == said
            ),
            None,
        )

    def _written(self, turn: Sequence[Message], tools: Sequence[Tool], reader: CallReader) -> str:
        """The last message as the template writes it, from where the model would begin."""
        asked = self._encode(turn[:-1], tools=tools)
        whole = self._encode(turn, prompt=False, tools=tools)
        pairs = enumerate(zip(asked, whole, strict=False))
        start = next((at for at, (one, other) in pairs if one != other), len(asked))
        said = takewhile(lambda id: id not in self.stop_ids, whole[start:])
        return self._vocabulary.text(list(said), self._kept_of(reader))

    def _kept_of(self, reader: CallReader) -> frozenset[int]:
        """Tokens that are part of a completion's text, because its calls are made of them."""
        ids = self._vocabulary.ids
        return frozenset(ids[mark] for mark in reader.marks if mark in ids)

    def _apply(
        self,
        conversation: list[dict[str, Any]],
        prompt: bool,
        tools: list[dict[str, Any]] | None = None,
    ) -> str:
        variables: dict[str, Any] = {**self._variables, **({"tools": tools} if tools else {})}
        try:
            return self._template.apply(conversation, add_generation_prompt=prompt, **variables)
        except (
            # Whatever a template does with what an agent has put into the description of a tool.
            *(TemplateError, TypeError, ValueError, LookupError),
            *(AttributeError, ArithmeticError, RecursionError),
        ) as error:
            raise PolicyRefusedError(
                f"{self._template.source}: the chat template fails: {error}; {_OTHERWISE}"
            ) from error

    def _shaped(self, messages: Sequence[Message]) -> list[Message]:
        """As the template can take them: without a system message or one role twice in a row."""
        shaped: list[Message] = []
        was_system = False
        for message in messages:
            is_system = message.role == "system" and not self._takes_system
            role = "user" if is_system else message.role
            joins = was_system or not self._takes_repeats
            if shaped and role in ("user", "system") and shaped[-1].role == role and joins:
                shaped[-1] = Message(role, f"{shaped[-1].content}\n\n{message.content}")
            else:
                shaped.append(replace(message, role=role))
            was_system = is_system
        return shaped

    def _asks_for_answer(self) -> str:
        """The text with which the template lets the assistant begin."""
        edge = chr(_PRIVATE[0])
        return self._apply([{"role": "user", "content": edge}], True).rpartition(edge)[2]

    def _works(self, messages: Sequence[Message]) -> bool:
        try:
            self.render(messages)
        except PolicyError:
            return False
        return True

    def _plain_template_works(self) -> None:
        self.render([Message("user", "u"), Message("assistant", "a"), Message("user", "v")])

    def _switch(self) -> str:
        for name in _SWITCHES:
            self._variables = {name: True}
            on = self._asks_for_answer()
            self._variables = {name: False}
            if on != self._asks_for_answer():
                return name
        raise PolicyRefusedError(
            f"thinking=off: the chat template of {self._template.source} has no switch for"
            " thinking (enable_thinking); leave the setting out"
        )

    def _notes(self, marks: Marks | None, opened: bool) -> Iterable[str]:
        if not self._takes_system:
            yield "the chat template takes no system message: it is put before the user's first"
        if not self._takes_repeats:
            yield "the chat template wants roles to take turns: messages of one role are joined"
        if marks is not None:
            if self._thinking == "strip":
                yield (
                    "thinking=strip: earlier turns' thinking is left out of the prompt, so a turn"
                    " with thinking starts a new training sequence"
                )
            elif self._thinking == "keep" and self._leaves_out(marks):
                yield (
                    "thinking=keep: earlier turns' thinking stays in the prompt as it was sampled;"
                    " the model's chat template by itself would leave it out"
                )
        if not opened and not self._variables and not self._repeats_answers():
            yield (
                "the chat template renders an earlier answer otherwise than it was sampled; its"
                " tokens are kept as they were"
            )

    def _repeats_answers(self) -> bool:
        """Whether a conversation rendered anew starts with what it was when it was shorter."""
        turn = [Message("user", "u"), Message("assistant", "a"), Message("user", "v")]
        said = (*self._vocabulary.encode("a"), *self._ending)
        return self.extend(self.render(turn[:1]) + said, turn, 2) == self.render(turn)

    def _leaves_out(self, marks: Marks) -> bool:
        """Whether the template by itself drops an earlier turn's thinking."""
        said = f"{marks.opening}\nmuse\n{marks.closing}\n\na"
        conversation = [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": said},
            {"role": "user", "content": "v"},
        ]
        return "muse" not in self._apply(conversation, True)


def _strings(value: object) -> Iterator[str]:
    """Every text within JSON values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value  # keys too: a schema's are names of arguments
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The same JSON value with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            change(key): each if key == "role" else _mapped(each, change)
            for key, each in value.items()
        }
    return [_mapped(each, change) for each in value] if isinstance(value, list) else value


def _unused(text: str) -> str:
    return next(character for code in _PRIVATE if (character := chr(code)) not in text)
