"""Renderers of tinker-cookbook, which has them for models whose chat template doesn't suffice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tbtui.policies.base import Answer, Message, PolicyRefusedError, Thinking
from tbtui.policies.chat.template import Marks, find_marks, read_text
from tbtui.policies.chat.tokenizer_files import quiet_import, vocabulary_of
from tbtui.policies.chat.vocabulary import Vocabulary

_WORDS = "sentinel"
"""What an assistant says in a conversation of which only the rest is wanted."""
_LONGEST_CHARACTER = 4
"""Bytes, so tokens at most."""


def cookbook_renderer(name: str, tokenizer: str, thinking: Thinking) -> CookbookRenderer:
    """The renderer that tinker-cookbook calls `name`.

    Raises:
        PolicyError: tinker-cookbook is not installed, has no such renderer, or the tokenizer
            can't be loaded.
    """
    setting = f"renderer=cookbook:{name}"
    try:
        with quiet_import():
            from tinker_cookbook.renderers import (  # type: ignore[import-not-found,unused-ignore]
                get_renderer,
            )
            from tinker_cookbook.tokenizer_utils import (  # type: ignore[import-not-found,unused-ignore]
                get_tokenizer,
            )
    except ImportError as error:
        raise PolicyRefusedError(
            f"{setting} needs tinker-cookbook: uv pip install tinker-cookbook ({error})"
        ) from error
    if thinking == "off" and not name.endswith(("disable_thinking", "instruct")):
        raise PolicyRefusedError(
            f"thinking=off: {setting} decides by itself; name one that ends in _disable_thinking"
        )
    try:
        loaded = get_tokenizer(tokenizer)
        return CookbookRenderer(
            name, get_renderer(name, loaded), loaded, vocabulary_of(loaded), thinking
        )
    except (OSError, ValueError, KeyError, ImportError, AssertionError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise PolicyRefusedError(f"{setting} with tokenizer {tokenizer}: {reason}") from error


class CookbookRenderer:
    """Implements `tbtui.policies.base.ChatRenderer` with a `tinker_cookbook.renderers.Renderer`."""

    def __init__(
        self,
        name: str,
        renderer: Any,
        tokenizer: Any,
        vocabulary: Vocabulary | None,
        thinking: Thinking,
    ) -> None:
        """Raises `PolicyError` when the renderer can't be used."""
        self._renderer = renderer
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._thinking = thinking
        stops = renderer.get_stop_sequences()
        if not stops or not all(isinstance(stop, int) for stop in stops):
            raise PolicyRefusedError(
                f"renderer=cookbook:{name} stops at text, not at a token: {stops!r};"
                " name another one"
            )
        self.stop_ids: tuple[int, ...] = tuple(stops)
        self.digest: str | None = vocabulary.digest if vocabulary else None
        self.vocab_size: int | None = vocabulary.size if vocabulary else None
        self._words: list[int] = tokenizer.encode(_WORDS, add_special_tokens=False)
        self._extends = self._between([Message("user", ".")])[:1] in [[id] for id in stops]
        self._marks = find_marks("", vocabulary.ids if vocabulary else ()) or Marks(
            "<think>", "</think>"
        )
        self.notes = tuple(self._notes(name))

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        conversation = [{"role": m.role, "content": m.content} for m in messages]
        return tuple(self._renderer.build_generation_prompt(conversation).to_ints())

    def extend(
        self, history: Sequence[int], messages: Sequence[Message], known: int
    ) -> tuple[int, ...]:
        if not self._extends or (self._thinking == "strip" and self._may_think(history)):
            return self.render(messages)
        between = self._between(messages[known:])
        if history and history[-1] in self.stop_ids:
            between = between[1:]
        return (*history, *between)

    def answer(self, completion_ids: Sequence[int]) -> Answer:
        ids = list(completion_ids)
        while ids and ids[-1] in self.stop_ids:
            ids.pop()
        # A completion that was cut off is not taken apart by every renderer; so none looks cut off.
        message, _ = self._renderer.parse_response([*ids, self.stop_ids[0]])
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        thinking = "".join(part["thinking"] for part in parts if part["type"] == "thinking")
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        if thinking:
            return Answer(text.lstrip("\n"), thinking.strip())
        return read_text(text, self._marks, opened=False)  # thinking that doesn't end

    def spell(self, text: str) -> tuple[int, ...]:
        words: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return (*words, self.stop_ids[0])

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        if self._vocabulary is not None:
            return self._vocabulary.pieces(token_ids)
        pieces: list[str] = []
        pending: list[int] = []
        for number, id in enumerate(token_ids, 1):
            pending.append(id)
            text: str = self._tokenizer.decode(pending)
            whole = not text.endswith("\ufffd") or len(pending) >= _LONGEST_CHARACTER
            if whole or number == len(token_ids):
                pieces.append(text)
                pending.clear()
            else:
                pieces.append("")
        return pieces

    def _between(self, messages: Sequence[Message]) -> list[int]:
        """What comes after an assistant's words."""
        ids = self.render([Message("user", "."), Message("assistant", _WORDS), *messages])
        length = len(self._words)
        for start in range(len(ids) - length, -1, -1):
            if list(ids[start : start + length]) == self._words:
                return list(ids[start + length :])
        raise PolicyRefusedError(
            "the renderer leaves out what the assistant said; name another one"
        )

    def _may_think(self, history: Sequence[int]) -> bool:
        if self._vocabulary is None:
            return True
        ids = self._vocabulary.ids
        marks = [ids.get(self._marks.opening), ids.get(self._marks.closing)]
        return None in marks or any(id in history for id in marks)

    def _notes(self, name: str) -> list[str]:
        if not self._extends:
            return [
                f"cookbook:{name} ends an earlier answer otherwise than the model does, so every"
                " turn is rendered anew and is a training sequence of its own"
            ]
        if self._renderer.has_extension_property or self._thinking == "off":
            return []
        if self._thinking == "strip":
            return [
                "thinking=strip: earlier turns' thinking is left out of the prompt, so a turn with"
                " thinking starts a new training sequence"
            ]
        return [
            "thinking=keep: earlier turns stay in the prompt as they were sampled;"
            f" cookbook:{name} by itself would rewrite them"
        ]
