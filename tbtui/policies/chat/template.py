"""Renders a model's own chat template to exact tokens, and splits its completions into thinking
and answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from jinja2 import TemplateError

from tbtui.policies.base import Answer, Message, PolicyError, PolicyRefusedError, Thinking
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

    def read(self, ids: Sequence[int]) -> Answer:
        """Text and thinking of a completion without its stop token. Thinking that was cut off
        before its end leaves no text."""
        text_of = self._vocabulary.text
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
    of {"role": ..., "content": ...}; raises `jinja2.TemplateError`."""


class TemplateRenderer:
    """Implements `tbtui.policies.base.ChatRenderer`.

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
        opened = marks is not None and marks.left_open(self._asks_for_answer())
        self._reader = AnswerReader(vocabulary, marks, opened)
        self.notes = tuple(self._notes(marks, opened))

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(self._encode(self._shaped(messages)))

    def extend(
        self, history: Sequence[int], messages: Sequence[Message], known: int
    ) -> tuple[int, ...]:
        if self._thinking == "strip" and self._reader.may_think(history):
            return self.render(messages)
        between = self._between(messages[known:])
        ended = bool(history) and history[-1] in self.stop_ids
        if ended and self._ending and between[: len(self._ending)] == self._ending:
            between = between[len(self._ending) :]
        return (*history, *between)

    def answer(self, completion_ids: Sequence[int]) -> Answer:
        ids = list(completion_ids)
        while ids and ids[-1] in self.stop_ids:
            ids.pop()
        return self._reader.read(ids)

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        return self._vocabulary.pieces(token_ids)

    def _between(self, messages: Sequence[Message], prompt: bool = True) -> list[int]:
        """What comes after an assistant's words: the end of its turn, the messages, and the next
        turn's beginning."""
        return self._encode([Message("user", "."), *self._shaped(messages)], prompt, cut=True)

    def _encode(
        self, messages: Sequence[Message], prompt: bool = True, cut: bool = False
    ) -> list[int]:
        """With `cut`, an assistant's turn is put after the first message, and what is returned
        is what follows its words."""
        hidden: list[str] = []
        edge = _unused("".join(message.content for message in messages))

        def hide(text: str) -> str:
            hidden.append(text)
            return f"{edge}{len(hidden) - 1}{edge}"

        conversation = [
            {"role": message.role, "content": self._vocabulary.replaced(message.content, hide)}
            for message in messages
        ]
        words = f"{edge}{edge}"
        if cut:
            conversation.insert(1, {"role": "assistant", "content": words})
        text = self._apply(conversation, prompt)
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

    def _apply(self, conversation: list[dict[str, str]], prompt: bool) -> str:
        try:
            return self._template.apply(
                conversation, add_generation_prompt=prompt, **self._variables
            )
        except (TemplateError, TypeError, KeyError) as error:
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
            if shaped and shaped[-1].role == role and (was_system or not self._takes_repeats):
                shaped[-1] = Message(role, f"{shaped[-1].content}\n\n{message.content}")
            else:
                shaped.append(Message(role, message.content))
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


def _unused(text: str) -> str:
    return next(character for code in _PRIVATE if (character := chr(code)) not in text)
