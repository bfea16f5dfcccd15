"""Renderers of tinker-cookbook. It needs PyTorch and is no dependency, so it has a
stand-in here: two modules of its names with a renderer that has its interface."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tbtui.policies.base import Answer, Message, PolicyError
from tbtui.policies.chat.make import make_renderer
from tests.policies.chat.chat_models import write_model

_ASK = [Message("user", "list the files")]
_TALK = [*_ASK, Message("assistant", "{json}"), Message("user", "a.txt")]


class _StandIn:
    """A renderer with the interface of `tinker_cookbook.renderers.Renderer`: ChatML, thinking
    stripped from earlier turns, a completion that was cut off not taken apart."""

    has_extension_property = False

    def __init__(self, tokenizer: Any, stops: list[int] | list[str] | None = None) -> None:
        self._tokenizer = tokenizer
        self._stops = stops or [tokenizer.convert_tokens_to_ids("<|im_end|>")]

    def build_generation_prompt(self, messages: list[dict[str, str]]) -> SimpleNamespace:
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
        ids = self._tokenizer.encode(text + "<|im_start|>assistant\n", add_special_tokens=False)
        return SimpleNamespace(to_ints=lambda: ids)

    def get_stop_sequences(self) -> list[int] | list[str]:
        return self._stops

    def parse_response(self, response: list[int]) -> tuple[dict[str, Any], str]:
        text = self._tokenizer.decode([id for id in response if id not in self._stops])
        if self._stops[0] not in response:
            return {"role": "assistant", "content": text}, "malformed"
        before, closing, after = text.partition("</think>")
        if not closing:
            return {"role": "assistant", "content": text}, "stop_sequence"
        thinking = {"type": "thinking", "thinking": before.removeprefix("<think>")}
        parts = [thinking, {"type": "text", "text": after}]
        return {"role": "assistant", "content": parts}, "stop_sequence"


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    return str(write_model("hybrid", tmp_path))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Callable[[Any], Any]]]:
    """The stand-in's renderers by name."""
    from transformers import AutoTokenizer

    made: dict[str, Callable[[Any], Any]] = {"qwen3": _StandIn, "qwen3_disable_thinking": _StandIn}

    def get_renderer(name: str, tokenizer: Any) -> Any:
        if name not in made:
            raise ValueError(f"Unknown renderer: {name}.\nsecond line")
        return made[name](tokenizer)

    package, renderers = ModuleType("tinker_cookbook"), ModuleType("tinker_cookbook.renderers")
    utils = ModuleType("tinker_cookbook.tokenizer_utils")
    renderers.get_renderer = get_renderer  # type: ignore[attr-defined]
    utils.get_tokenizer = AutoTokenizer.from_pretrained  # type: ignore[attr-defined]
    for module in (package, renderers, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    yield made


def _ids(tokenizer: str, text: str) -> tuple[int, ...]:
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json"))
    return tuple(loaded.encode(text, add_special_tokens=False).ids)


def _refusal(name: str, tokenizer: str, thinking: Any = "keep") -> str:
    with pytest.raises(PolicyError) as caught:
        make_renderer(f"cookbook:{name}", tokenizer, thinking)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_keeps_the_history(stand_in: dict[str, Any], tokenizer: str) -> None:
    renderer = make_renderer("cookbook:qwen3", tokenizer, "keep")
    assert any("would rewrite" in note for note in renderer.notes)
    prompt = renderer.render(_ASK)
    thought = _ids(tokenizer, "<think>\nhm\n</think>\n\n{json}")
    end = renderer.stop_ids[0]
    longer = renderer.extend((*prompt, *thought, end), _TALK, 2)
    assert longer[: len(prompt) + len(thought) + 1] == (*prompt, *thought, end)
    assert renderer.extend((*prompt, *thought), _TALK, 2) == longer  # cut off
    assert "".join(renderer.pieces(longer)).endswith(
        "{json}<|im_end|>\n<|im_start|>user\na.txt<|im_end|>\n<|im_start|>assistant\n"
    )
    assert renderer.answer((*thought, end)) == Answer("{json}", "hm")
    assert renderer.answer(thought) == Answer("{json}", "hm")
    assert renderer.answer(_ids(tokenizer, "<think>\nhm")) == Answer("", "hm")
    assert renderer.answer((*_ids(tokenizer, "{json}"), end)) == Answer("{json}")
    assert renderer.vocab_size is not None
    assert renderer.digest


def test_strips_thinking(stand_in: dict[str, Any], tokenizer: str) -> None:
    renderer = make_renderer("cookbook:qwen3", tokenizer, "strip")
    prompt = renderer.render(_ASK)
    thought = _ids(tokenizer, "<think>\nhm\n</think>\n\n{json}<|im_end|>")
    assert renderer.extend(prompt + thought, _TALK, 2) == renderer.render(_TALK)
    plain = _ids(tokenizer, "{json}<|im_end|>")
    assert renderer.extend(prompt + plain, _TALK, 2)[: len(prompt + plain)] == prompt + plain


def test_a_renderer_whose_end_is_not_what_the_model_says(
    stand_in: dict[str, Any], tokenizer: str
) -> None:
    """As gpt-oss has it: the model ends with another token than an earlier turn does."""
    stand_in["other"] = lambda loaded: _StandIn(
        loaded, [loaded.convert_tokens_to_ids("<|endoftext|>")]
    )
    renderer = make_renderer("cookbook:other", tokenizer, "keep")
    assert renderer.extend((1, 2, 3), _TALK, 2) == renderer.render(_TALK)
    assert any("rendered anew" in note for note in renderer.notes)


def test_pieces_without_a_fast_tokenizer(stand_in: dict[str, Any], tokenizer: str) -> None:
    class Slow:
        """A tokenizer that is not built on the `tokenizers` library, as Kimi's."""

        def __init__(self, loaded: Any) -> None:
            self.encode, self.decode = loaded.encode, loaded.decode
            self.convert_tokens_to_ids = loaded.convert_tokens_to_ids

    utils = sys.modules["tinker_cookbook.tokenizer_utils"]
    load = utils.get_tokenizer
    utils.get_tokenizer = lambda name: Slow(load(name))  # type: ignore[attr-defined]
    renderer = make_renderer("cookbook:qwen3", tokenizer, "keep")
    ids = _ids(tokenizer, "x 🙂 y<|im_end|>")
    pieces = renderer.pieces(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == "x 🙂 y<|im_end|>"
    assert (renderer.digest, renderer.vocab_size) == (None, None)


def test_what_it_refuses(stand_in: dict[str, Any], tokenizer: str) -> None:
    stand_in["role_colon"] = lambda loaded: _StandIn(loaded, ["\n\nUser:"])
    assert "stops at text" in _refusal("role_colon", tokenizer)
    assert "Unknown renderer: none" in _refusal("none", tokenizer)
    assert "_disable_thinking" in _refusal("qwen3", tokenizer, "off")
    assert make_renderer("cookbook:qwen3_disable_thinking", tokenizer, "off").notes == ()


def test_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tokenizer: str) -> None:
    monkeypatch.setitem(sys.modules, "tinker_cookbook", None)
    monkeypatch.delitem(sys.modules, "tinker_cookbook.renderers", raising=False)
    assert "needs tinker-cookbook: uv pip install tinker-cookbook" in _refusal("qwen3", tokenizer)
