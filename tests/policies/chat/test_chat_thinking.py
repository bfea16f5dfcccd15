"""Thinking kept, left out, switched off and split from the answer; and a trial's calls with
it. The models are imitations: `chat_models.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tbtui.policies.base import Answer, Message, PolicyError
from tbtui.policies.chat.make import make_renderer
from tbtui.policies.chat.template import TemplateRenderer
from tests.policies.chat.chat_models import Make, write_model

_ASK = [Message("user", "list the files")]
_THOUGHT = "<think>\nThe user wants ls.\n</think>\n\n{json}"


def _ids(folder: Path, name: str, text: str) -> tuple[int, ...]:
    tokenizer = Tokenizer.from_file(str(folder / name / "tokenizer.json"))
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)


def _text(renderer: TemplateRenderer, ids: tuple[int, ...]) -> str:
    return "".join(renderer.pieces(ids))


@pytest.mark.parametrize(
    ("name", "said", "answer"),
    [
        ("hybrid", _THOUGHT, Answer("{json}", "The user wants ls.")),
        ("hybrid", "{json}", Answer("{json}")),
        ("hybrid", " {json}\n", Answer(" {json}\n")),
        ("hybrid", "<think>\n\n</think>\n\n{json}", Answer("{json}")),
        ("hybrid", "\n<think>hm</think>{json}", Answer("{json}", "hm")),
        ("hybrid", "<think>\nThe user wa", Answer("", "The user wa")),
        ("hybrid", "say <think>hm</think>", Answer("say <think>hm</think>")),
        ("hybrid", "<think>a</think>b</think>c", Answer("b</think>c", "a")),
        ("hybrid", "", Answer("")),
        (
            "opened",
            "The user wants ls.\n</think>\n\n{json}",
            Answer("{json}", "The user wants ls."),
        ),
        ("opened", "The user wa", Answer("", "The user wa")),
        ("opened", "<think>again</think>{json}", Answer("{json}", "again")),
        ("opened", "", Answer("")),
        ("spelt", "[THINK]hm[/THINK]{json}", Answer("{json}", "hm")),
        ("spelt", "[THINK]hm", Answer("", "hm")),
        ("spelt", "{json}[/THINK]", Answer("{json}[/THINK]")),
        ("headers", _THOUGHT, Answer(_THOUGHT)),
    ],
)
def test_tells_thinking_from_the_answer(
    make: Make, folder: Path, name: str, said: str, answer: Answer
) -> None:
    renderer = make(name)
    ids = _ids(folder, name, said)
    assert renderer.answer(ids) == answer
    for stop in renderer.stop_ids:
        assert renderer.answer((*ids, stop)) == answer


def test_marks_spelt_in_ordinary_tokens_are_text(make: Make) -> None:
    """A completion that quotes the mark of the end of thinking has not ended it."""
    hybrid = make("hybrid")
    opening, closing = (hybrid._vocabulary.ids[mark] for mark in ("<think>", "</think>"))
    quoted = hybrid._vocabulary.encode_parts(["", "it says </think> there"])
    said = [opening, *quoted, closing, *hybrid._vocabulary.encode("{json}")]
    assert hybrid.answer(said) == Answer("{json}", "it says </think> there")


def test_keeps_thinking_token_for_token(make: Make, folder: Path) -> None:
    hybrid = make("hybrid", "keep")
    history = hybrid.render(_ASK) + _ids(folder, "hybrid", _THOUGHT + "<|im_end|>")
    talk = [*_ASK, Message("assistant", "{json}"), Message("user", "a.txt")]
    longer = hybrid.extend(history, talk, 2)
    assert longer[: len(history)] == history
    assert _text(hybrid, longer[len(history) :]) == (
        "\n<|im_start|>user\na.txt<|im_end|>\n<|im_start|>assistant\n"
    )
    assert any("by itself would leave it out" in note for note in hybrid.notes)


def test_strips_thinking_by_rendering_anew(make: Make, folder: Path) -> None:
    hybrid = make("hybrid", "strip")
    history = hybrid.render(_ASK) + _ids(folder, "hybrid", _THOUGHT + "<|im_end|>")
    talk = [*_ASK, Message("assistant", "{json}"), Message("user", "a.txt")]
    assert hybrid.extend(history, talk, 2) == hybrid.render(talk)
    assert "wants ls" not in _text(hybrid, hybrid.render(talk))
    assert any("new training sequence" in note for note in hybrid.notes)


def test_strips_nothing_where_there_was_no_thinking(make: Make, folder: Path) -> None:
    hybrid = make("hybrid", "strip")
    history = hybrid.render(_ASK) + _ids(folder, "hybrid", "{json}<|im_end|>")
    talk = [*_ASK, Message("assistant", "{json}"), Message("user", "a <think> on the screen")]
    assert hybrid.extend(history, talk, 2)[: len(history)] == history


def test_switches_thinking_off(make: Make, folder: Path) -> None:
    hybrid = make("hybrid", "off")
    prompt = hybrid.render(_ASK)
    assert _text(hybrid, prompt).endswith("assistant\n<think>\n\n</think>\n\n")
    history = (*prompt, *_ids(folder, "hybrid", "{json}<|im_end|>"))
    talk = [*_ASK, Message("assistant", "{json}"), Message("user", "a.txt")]
    longer = hybrid.extend(history, talk, 2)
    assert longer[: len(history)] == history
    assert _text(hybrid, longer).endswith("assistant\n<think>\n\n</think>\n\n")
    assert hybrid.answer(_ids(folder, "hybrid", "{json}<|im_end|>")) == Answer("{json}")


def test_a_template_without_the_switch_refuses(tmp_path: Path) -> None:
    for name in ("headers", "opened"):
        with pytest.raises(PolicyError, match=r"thinking=off: .* no switch"):
            make_renderer("template", str(write_model(name, tmp_path)), "off")


def test_says_when_earlier_answers_would_be_rewritten(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
        "{{ m.content | upper if m.role == 'assistant' else m.content }}{{ '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    directory = write_model("headers", tmp_path, chat_template=template)
    (directory / "generation_config.json").unlink()
    assert any(
        "otherwise than it was sampled" in note
        for note in make_renderer("template", str(directory), "keep").notes
    )
