"""Opt-in: the same properties with tokenizers of real models, none of which is shipped.

    TBTUI_TOKENIZERS=FOLDER pytest tests/policies/chat/test_real_tokenizers.py

where FOLDER has one directory for each (tokenizer.json, tokenizer_config.json).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tbtui.policies.base import Message, Thinking
from tbtui.policies.chat.make import make_renderer
from tbtui.policies.chat.template import TemplateRenderer

_FOLDER = os.environ.get("TBTUI_TOKENIZERS")
_DIRECTORIES = sorted(p for p in Path(_FOLDER).iterdir() if p.is_dir()) if _FOLDER else []

pytestmark = pytest.mark.skipif(not _FOLDER, reason="TBTUI_TOKENIZERS names no folder")

_TALK = [
    Message("user", "Create hello.txt.  \n"),
    Message("assistant", '{"plan": "Größe 🙂", "commands": []}'),
    Message("user", "\nroot@box:~# ls\n\n\nfoo\tbar\n" + "drwxr-xr-x 2 root root 4096 .\n" * 50),
]


@pytest.mark.parametrize("thinking", ["keep", "strip"])
@pytest.mark.parametrize("directory", _DIRECTORIES, ids=lambda p: p.name)
def test_a_real_tokenizer(directory: Path, thinking: Thinking) -> None:
    renderer = make_renderer("template", str(directory), thinking)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    for length in (1, 3):
        expected = tokenizer.apply_chat_template(
            [{"role": m.role, "content": m.content} for m in _TALK[:length]],
            add_generation_prompt=True,
            return_dict=False,
        )
        assert list(renderer.render(_TALK[:length])) == expected

    names = {name: id for name, id in tokenizer.get_added_vocab().items() if name.strip("▁ \n\t")}
    added, marks = set(names.values()), "".join(names)
    harmless = [id for id in renderer.render([Message("user", "x")]) if id in added]
    ids = renderer.render([Message("user", marks)])
    assert [id for id in ids if id in added] == harmless
    assert marks in "".join(renderer.pieces(ids))

    prompt = renderer.render(_TALK[:1])
    said = tuple(tokenizer.encode(_TALK[1].content, add_special_tokens=False))
    for end in renderer.stop_ids:
        history = (*prompt, *said, end)
        longer = renderer.extend(history, _TALK, 2)
        if not isinstance(renderer, TemplateRenderer) or not renderer._reader._opened:
            assert longer[: len(history)] == history
        assert longer[-20:] == renderer.render(_TALK)[-20:]
    assert "".join(renderer.pieces(said)) == _TALK[1].content
