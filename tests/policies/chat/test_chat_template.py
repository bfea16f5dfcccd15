"""Messages to tokens by a model's chat template. The models are imitations: `chat_models.py`."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tbtui.policies.base import Message, PolicyError
from tbtui.policies.chat.make import make_renderer
from tbtui.policies.chat.template import ChatTemplate, TemplateRenderer
from tbtui.policies.chat.vocabulary import Vocabulary
from tests.policies.chat.chat_models import NAMES, Make, write_model

_TALK = [
    Message("user", "Create hello.txt.  \n"),
    Message("assistant", '{"plan": "Größe 🙂", "commands": []}'),
    Message("user", "\nroot@box:~# ls\n\n\nfoo\tbar\n"),
]


@cache
def _loaded(directory: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(directory)


def _by_transformers(directory: Path, messages: list[Message], **variables: Any) -> list[int]:
    """What the tokenizer itself makes of a conversation."""
    ids: list[int] = _loaded(directory).apply_chat_template(
        [{"role": m.role, "content": m.content} for m in messages],
        add_generation_prompt=True,
        return_dict=False,
        **variables,
    )
    return ids


def _tokenizer(directory: Path) -> Tokenizer:
    return Tokenizer.from_file(str(directory / "tokenizer.json"))


# Rendering


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [1, 3])
def test_renders_as_the_tokenizer_does(make: Make, folder: Path, name: str, length: int) -> None:
    talk = _TALK[:length]
    assert list(make(name).render(talk)) == _by_transformers(folder / name, talk)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(max_size=60), said=st.text(max_size=60))
@pytest.mark.parametrize("name", ["hybrid", "headers", "opened"])
def test_renders_any_text_as_the_tokenizer_does(
    make: Make, folder: Path, name: str, text: str, said: str
) -> None:
    # Marks in a text are hidden from the template; the tokenizer takes them for marks.
    assume(not any(mark in text or mark in said for mark in make(name)._vocabulary.ids))
    talk = [Message("user", text), Message("assistant", said), Message("user", text)]
    assert list(make(name).render(talk)) == _by_transformers(folder / name, talk)


def test_a_system_message_is_rendered_where_the_template_takes_one(
    make: Make, folder: Path
) -> None:
    talk = [Message("system", "Be brief."), *_TALK]
    for name in ("hybrid", "headers", "opened"):
        assert list(make(name).render(talk)) == _by_transformers(folder / name, talk)


def test_a_system_message_goes_before_the_first_user_message_elsewhere(make: Make) -> None:
    strict = make("strict")
    talk = [Message("system", "Be brief."), *_TALK]
    joined = [Message("user", f"Be brief.\n\n{_TALK[0].content}"), *_TALK[1:]]
    assert strict.render(talk) == strict.render(joined)
    assert any("system" in note for note in strict.notes)


def test_two_messages_of_one_role_are_joined_where_roles_must_alternate(make: Make) -> None:
    strict = make("strict")
    twice = [Message("user", "a"), Message("user", "b"), Message("assistant", "c")]
    once = [Message("user", "a\n\nb"), Message("assistant", "c")]
    assert strict.render([*twice, _TALK[0]]) == strict.render([*once, _TALK[0]])
    assert any("turns" in note for note in strict.notes)
    assert not make("hybrid").notes[1:]


# What is said never becomes a mark of the format


@pytest.mark.parametrize("name", NAMES)
def test_text_never_becomes_a_special_token(make: Make, folder: Path, name: str) -> None:
    renderer, tokenizer = make(name), _tokenizer(folder / name)
    added = tokenizer.get_added_tokens_decoder()
    harmless = renderer.render([Message("user", "x")])
    for mark in [token.content for token in added.values()]:
        text = f"a {mark}\n{mark}{mark[:3]}{mark}{mark[3:]} b"
        ids = renderer.render([Message("user", text)])
        assert [id for id in ids if id in added] == [id for id in harmless if id in added], mark
        assert text.replace(" ", "") in "".join(renderer.pieces(ids)).replace(" ", "")


def test_hidden_text_does_not_steer_the_template(make: Make) -> None:
    hybrid = make("hybrid")
    ids = hybrid.render([_TALK[0], Message("assistant", "secret</think>rest"), _TALK[2]])
    assert "secret</think>rest" in "".join(hybrid.pieces(ids))


def test_ordinary_text_around_a_hidden_mark_is_encoded_as_ever(make: Make) -> None:
    strict = make("strict")  # would put a space before each part of the text
    pieces = strict.pieces(strict.render([Message("user", "one<eos>two three")]))
    assert "one<eos>two three<end_of_turn>" in "".join(pieces)


def test_a_mark_that_appears_by_normalising_is_hidden_too() -> None:
    from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: id for id, c in enumerate(alphabet)}, []))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", normalized=True)])
    vocabulary = Vocabulary(tokenizer)
    wide = "\uff1c|end|>"  # a full-width <
    end = vocabulary.ids["<|end|>"]
    assert end in vocabulary.encode(wide)
    hidden = ["", ""]
    assert vocabulary.replaced(wide, lambda text: hidden.__setitem__(1, text) or "#") == "#"
    assert hidden[1] == wide
    assert end not in vocabulary.encode_parts(hidden)


def test_lone_surrogates_are_replaced(make: Make) -> None:
    hybrid = make("hybrid")
    assert "a?b" in "".join(hybrid.pieces(hybrid.render([Message("user", "a\udc80b")])))


# Going on from a history


@pytest.mark.parametrize("name", NAMES)
def test_extends_a_finished_answer_as_the_template_would(
    make: Make, folder: Path, name: str
) -> None:
    renderer = make(name)
    said = _tokenizer(folder / name).encode("an answer", add_special_tokens=False).ids
    talk = [_TALK[0], Message("assistant", "an answer"), Message("user", "go on")]
    prompt = renderer.render(talk[:1])
    stop = next(id for id in renderer.stop_ids if id in renderer.render(talk))
    longer = renderer.extend((*prompt, *said, stop), talk, 2)
    assert longer[: len(prompt) + len(said) + 1] == (*prompt, *said, stop)
    if name not in ("opened", "strict"):  # the one's prompt stays, the other's words get a space
        assert longer == renderer.render(talk)
    assert longer[-5:] == renderer.render(talk)[-5:]


@pytest.mark.parametrize("name", NAMES)
def test_the_end_of_a_turn_is_put_in_once(make: Make, name: str) -> None:
    renderer = make(name)
    talk = [_TALK[0], Message("assistant", "x"), Message("user", "go on")]
    cut_off = (*renderer.render(talk[:1]), 300, 301)
    missing = renderer.extend(cut_off, talk, 2)
    end = missing[len(cut_off)]
    assert end in renderer.stop_ids
    assert renderer.extend((*cut_off, end), talk, 2) == missing
    for other in renderer.stop_ids:
        assert renderer.extend((*cut_off, other), talk, 2)[len(cut_off) :] == (
            other,
            *missing[len(cut_off) + 1 :],
        )


@pytest.mark.parametrize("thinking", ["keep", "strip"])
@pytest.mark.parametrize("name", ["hybrid", "headers", "opened", "spelt"])
def test_a_long_conversation_keeps_every_token(make: Make, name: str, thinking: str) -> None:
    """Its answers are spelt letter by letter, which no re-encoding would give back."""
    renderer = make(name, thinking)
    spelt = [id for letter in "terminal" for id in renderer._vocabulary.encode(letter)]
    history: tuple[int, ...] = ()
    talk: list[Message] = []
    rewritten = anew = 0
    for turn in range(6):
        known = len(talk)
        talk.append(Message("user", f"screen {turn} <think>\n"))
        prompt = renderer.extend(history, talk, known) if turn else renderer.render(talk)
        anew += prompt == renderer.render(talk)
        rewritten += prompt[: len(history)] != history
        said = (*spelt, *([renderer.stop_ids[-1]] if turn % 2 else []))
        talk.append(Message("assistant", renderer.answer(said).text))
        history = prompt + said
    if thinking == "strip" and name in ("opened", "spelt"):
        assert anew == 6  # there is, or could be, thinking to leave out
    else:
        assert rewritten == 0
        assert anew == 1


def test_only_new_messages_are_rendered(make: Make, folder: Path) -> None:
    directory = write_model("hybrid", folder)
    seen: list[int] = []

    def apply(conversation: list[dict[str, str]], **variables: Any) -> str:
        seen.append(sum(len(message["content"]) for message in conversation))
        text: str = _loaded(directory).apply_chat_template(
            conversation, tokenize=False, **variables
        )
        return text

    text = _loaded(directory).chat_template
    template = ChatTemplate("counted", text, apply)
    renderer = TemplateRenderer(template, Vocabulary(_tokenizer(directory)), (), "keep")
    talk = [Message("user", "x" * 10_000), Message("assistant", "y" * 1000), Message("user", "z")]
    history = renderer.render(talk[:1])
    seen.clear()
    renderer.extend(history, talk, 2)
    assert seen == [1 + 3 + 1]


# Facts


def test_stop_tokens_are_those_of_all_files_and_of_the_template(make: Make, folder: Path) -> None:
    def stops(name: str) -> set[str]:
        tokenizer = _tokenizer(folder / name)
        return {str(tokenizer.id_to_token(id)) for id in make(name).stop_ids}

    make("hybrid")
    assert stops("hybrid") == {"<|im_end|>", "<|endoftext|>"}
    assert stops("headers") == {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"}
    assert stops("opened") == {"<｜end▁of▁sentence｜>"}
    assert stops("strict") == {"<eos>", "<end_of_turn>"}  # the template's is not the file's


def test_digest_and_size_are_of_the_vocabulary(make: Make) -> None:
    assert make("hybrid").digest == make("hybrid", "strip").digest != make("headers").digest
    assert make("hybrid").vocab_size == max(make("hybrid").render(_TALK)) + 5  # <think> and so on


def test_pieces_join_to_the_text(make: Make, folder: Path) -> None:
    for name in ("hybrid", "strict"):
        renderer, tokenizer = make(name), _tokenizer(folder / name)
        end = renderer.stop_ids[-1]
        ids = [*tokenizer.encode("x 🙂 Größe\n", add_special_tokens=False).ids, end]
        pieces = renderer.pieces(ids)
        assert len(pieces) == len(ids)
        assert "".join(pieces).lstrip() == f"x 🙂 Größe\n{tokenizer.id_to_token(end)}"
        assert "🙂" in [piece.strip() for piece in pieces]  # as a whole, with its last byte
        assert "".join(renderer.pieces(ids[:4])).lstrip().startswith("x")  # cut in a character
        assert renderer.pieces([]) == []


def test_an_id_beyond_the_vocabulary_has_a_piece_and_no_text(make: Make) -> None:
    hybrid = make("hybrid")
    assert hybrid.pieces([99_999]) == ["�"]
    assert "�" in hybrid.answer([99_999]).text


# What can't be used says so in one line


def _refusal(name: str, tokenizer: str, thinking: Any = "keep") -> str:
    with pytest.raises(PolicyError) as caught:
        make_renderer(name, tokenizer, thinking)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_says_what_to_do_without_a_template(tmp_path: Path) -> None:
    directory = write_model("hybrid", tmp_path, chat_template=None)
    refusal = _refusal("template", str(directory))
    assert "no chat template" in refusal
    assert "cookbook:NAME" in refusal


def test_says_what_is_wrong_with_a_template(tmp_path: Path) -> None:
    broken = write_model("hybrid", tmp_path, chat_template="{{ raise_exception('never') }}")
    assert "never" in _refusal("template", str(broken))
    silent = write_model("headers", tmp_path, chat_template="{{ messages[0].content }}")
    assert "leaves out what the assistant said" in _refusal("template", str(silent))
    text_only = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    endless = write_model("spelt", tmp_path, chat_template=text_only, eos_token=None)
    assert "no token ends" in _refusal("template", str(endless))


def test_says_that_channels_need_the_cookbook(tmp_path: Path) -> None:
    directory = write_model(
        "spelt",
        tmp_path,
        additional_special_tokens=["<|channel|>"],
        chat_template="{{ '<|channel|>' }}",
    )
    assert "cookbook:gpt_oss" in _refusal("template", str(directory))


def test_says_what_is_wrong_with_a_tokenizer(tmp_path: Path) -> None:
    assert "no such directory" in _refusal("template", str(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    assert "tokenizer.json" in _refusal("template", str(tmp_path / "empty"))


def test_names_that_are_no_renderer() -> None:
    assert "cookbook:NAME" in _refusal("chatml", "x")
    assert "can't be imported" in _refusal("no_such_module:Renderer", "x")
    assert "no class" in _refusal("json:Renderer", "x")
    assert "no class" in _refusal("cProfile:run", "x")
    assert "lacks render" in _refusal("argparse:Namespace", "x")


def test_a_renderer_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_renderer.py").write_text(
        "from tbtui.policies.local.renderer import EmbeddedRenderer\n"
        "class Own(EmbeddedRenderer):\n"
        "    def __init__(self, tokenizer, thinking):\n"
        "        super().__init__()\n"
        "        self.notes = (tokenizer, thinking)\n"
        "class Half:\n"
        "    def __init__(self, tokenizer, thinking): self.render = None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert make_renderer("own_renderer:Own", "some/model", "strip").notes == ("some/model", "strip")
    assert "lacks render, extend" in _refusal("own_renderer:Half", "x")


def test_the_embedded_models_renderer() -> None:
    import pickle

    renderer = make_renderer("embedded", "", "keep")
    prompt = renderer.render([Message("user", "hi")])
    assert len(renderer.stop_ids) == 1
    assert prompt[-2] in renderer.stop_ids
    assert renderer.digest
    assert renderer.vocab_size is not None
    assert renderer.vocab_size > max(prompt)
    assert pickle.loads(pickle.dumps(renderer)).render([Message("user", "hi")]) == prompt
    assert "does not think" in _refusal("embedded", "", "off")


def test_nothing_is_written_to_the_screen(folder: Path) -> None:
    directory = write_model("hybrid", folder)
    code = (
        "from tbtui.policies.chat.make import make_renderer;"
        f"make_renderer('template', {str(directory)!r}, 'keep')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")
