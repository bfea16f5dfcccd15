"""Small tokenizers with chat templates of the structures that real models have.

All of them are imitations: the templates are written for these tests, with the special tokens of
the models that they stand for, and the vocabularies are learnt from a few lines. They say which
models have that structure:

hybrid      ChatML with thinking that can be switched off, left out of earlier turns (Qwen3)
headers     a header before each message, trimmed contents, a begin-of-text token (Llama 3)
opened      the prompt itself opens the thinking (DeepSeek-R1, Qwen3-Thinking-2507)
strict      roles must take turns, no system message, words with a leading space (Gemma, Mistral)
spelt       ChatML whose marks of thinking are no tokens of their own
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from tbtui.policies.chat.template import TemplateRenderer

Make = Callable[..., TemplateRenderer]
"""`make(name, thinking)`"""

_LINES = (
    "The terminal shows the files of the folder: main.py, test.sh and notes.txt.",
    '{"analysis": "an answer", "plan": "a plan", "commands": [{"keystrokes": "ls -la\\n"}]}',
    "I should look at the error first, then think about what the user wants. Größe 🙂 naïve",
) * 3

_CHATML = """
{%- set last = namespace(user=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set last.user = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
{%- set said = m.content %}
{%- if m.role == 'assistant' and '</think>' in said and loop.index0 < last.user %}
{%- set said = said.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>' + m.role + '\\n' + said + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}"""

_HEADERS = """
{%- for m in messages %}
{%- if loop.first %}{{ bos_token }}{% endif %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""

_OPENED = """
{{- bos_token }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content }}
{%- elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}
{%- else %}{{ '<｜Assistant｜>' + m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜><think>\\n' }}{% endif %}"""

_STRICT = """
{{- bos_token }}
{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('roles must alternate') }}
{%- endif %}
{%- set name = 'model' if m.role == 'assistant' else m.role %}
{{- '<start_of_turn>' + name + '\\n' + m.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""

_SPELT = """
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' + m.content.split('[/THINK]')[-1] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

_MODELS: dict[str, dict[str, Any]] = {
    "hybrid": {
        "template": _CHATML,
        "special": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        "others": ("<think>", "</think>", "<tool_call>", "</tool_call>"),
        "eos": "<|im_end|>",
        "ends": ("<|im_end|>", "<|endoftext|>"),
    },
    "headers": {
        "template": _HEADERS,
        "special": (
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eom_id|>",
            "<|eot_id|>",
        ),
        "eos": "<|eot_id|>",
        "bos": "<|begin_of_text|>",
        "ends": ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"),
    },
    "opened": {
        "template": _OPENED,
        "special": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        "others": ("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>"),
        "eos": "<｜end▁of▁sentence｜>",
        "bos": "<｜begin▁of▁sentence｜>",
    },
    "strict": {
        "template": _STRICT,
        "special": ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "eos": "<eos>",
        "bos": "<bos>",
        "words": True,
    },
    "spelt": {
        "template": _SPELT,
        "special": ("<|im_start|>", "<|im_end|>"),
        "eos": "<|im_end|>",
    },
}
NAMES = tuple(_MODELS)


def write_model(name: str, folder: Path, **config: Any) -> Path:
    """Write the tokenizer directory of an imitation; `config` overrides its settings."""
    model = _MODELS[name]
    directory = folder / name
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = _words() if model.get("words") else _bytes()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in model["special"]])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in model.get("others", ())])
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": model["eos"],
        "chat_template": model["template"],
        **({"bos_token": model["bos"]} if "bos" in model else {}),
        **config,
    }
    kept = {key: value for key, value in settings.items() if value is not None}
    (directory / "tokenizer_config.json").write_text(json.dumps(kept))
    if ends := model.get("ends"):
        ids = [tokenizer.token_to_id(token) for token in ends]
        (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    return directory


def _bytes() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _learn(tokenizer, pre_tokenizers.ByteLevel.alphabet())


def _words() -> Tokenizer:
    """As SentencePiece does it: spaces are part of words, other characters are spelt in bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return _learn(tokenizer, (), [f"<0x{byte:02X}>" for byte in range(256)])


def _learn(tokenizer: Tokenizer, alphabet: Iterable[str], first: Iterable[str] = ()) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<unk>", *first],
        initial_alphabet=list(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_LINES, trainer)
    # What the trainer calls special are ordinary entries of a SentencePiece vocabulary.
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = []
    learnt: Tokenizer = Tokenizer.from_str(json.dumps(content))
    return learnt
