"""Small tokenizers with chat templates of the structures that real models have.

All of them are imitations: the templates are written for these tests, with the special tokens of
the models that they stand for, and the vocabularies are learnt from a few lines. They say which
models have that structure:

hybrid      ChatML with thinking that can be switched off, left out of earlier turns (Qwen3)
headers     a header before each message, trimmed contents, a begin-of-text token (Llama 3)
opened      the prompt itself opens the thinking (DeepSeek-R1, Qwen3-Thinking-2507)
strict      roles must take turns, no system message, words with a leading space (Gemma, Mistral)
spelt       ChatML whose marks of thinking are no tokens of their own
hermes      ChatML with tools: calls are JSON between tags (Qwen2.5, Qwen3, Hermes)
coder       the same with calls that are spelt out, an element an argument (Qwen3-Coder)
pairs       the same with two elements an argument (GLM-4.5 to 5, Ling)
python_tag  headers with tools in the first user's message; a call is the whole answer (Llama 3.1)
tool_marks  calls between special tokens, results within one turn of the assistant (DeepSeek-V3.1)
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

_HERMES = """
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\n<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}
{{- '<|im_start|>assistant' }}
{%- if m.reasoning_content %}{{- '\\n<think>\\n' + m.reasoning_content + '\\n</think>\\n' }}
{%- endif %}
{{- '\\n' + m.content }}
{%- for call in m.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}
{%- endif %}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

_CODER = _HERMES.replace(
    """{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}""",
    """<function=' + call.function.name + '>\\n' }}
{%- for key, value in call.function.arguments.items() %}
{{- '<parameter=' + key + '>\\n' + value | string + '\\n</parameter>\\n' }}
{%- endfor %}{{- '</function>\\n</tool_call>' }}""",
)

_PAIRS = _HERMES.replace(
    """\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson) + '}\\n</tool_call>' }}""",
    """' + call.function.name + '\\n' }}
{%- for key, value in call.function.arguments.items() %}
{{- '<arg_key>' + key + '</arg_key>\\n<arg_value>' + value | string + '</arg_value>\\n' }}
{%- endfor %}{{- '</tool_call>' }}""",
)

_PYTHON_TAG = """
{{- bos_token }}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + m.content | tojson + '<|eot_id|>' }}
{%- elif m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{- raise_exception('one call at a time') }}{%- endif %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{{- '{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}
{{- m.tool_calls[0].function.arguments | tojson + '}<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}
{%- if loop.first and tools %}{%- for tool in tools %}{{- tool | tojson + '\\n\\n' }}{%- endfor %}
{%- endif %}
{{- m.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""

_TOOL_MARKS = """
{%- set ns = namespace(tool=false) %}
{{- bos_token }}
{%- if tools %}{{ '## Tools\\n' }}
{%- for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}
{%- endif %}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content }}
{%- elif m.role == 'user' %}{%- set ns.tool = false %}{{ '<｜User｜>' + m.content }}
{%- elif m.role == 'tool' %}{%- set ns.tool = true %}
{{- '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}
{%- else %}
{%- if not ns.tool %}{{ '<｜Assistant｜>' }}{% endif %}{{ m.content }}
{%- if m.tool_calls %}{{ '<｜tool▁calls▁begin｜>' }}
{%- for call in m.tool_calls %}
{{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' }}
{{- call.function.arguments | tojson + '<｜tool▁call▁end｜>' }}
{%- endfor %}{{ '<｜tool▁calls▁end｜>' }}{% endif %}
{{- '<｜end▁of▁sentence｜>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt and not ns.tool %}{{ '<｜Assistant｜>' }}{% endif %}"""

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
_MODELS |= {
    "hermes": {**_MODELS["hybrid"], "template": _HERMES},
    "coder": {**_MODELS["hybrid"], "template": _CODER},
    "pairs": {
        **_MODELS["hybrid"],
        "template": _PAIRS,
        "others": (
            *_MODELS["hybrid"]["others"],
            *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ),
    },
    "python_tag": {
        **_MODELS["headers"],
        "template": _PYTHON_TAG,
        "special": (*_MODELS["headers"]["special"], "<|python_tag|>"),
    },
    "tool_marks": {
        **_MODELS["opened"],
        "template": _TOOL_MARKS,
        "special": (
            *_MODELS["opened"]["special"],
            *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
            *("<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
            *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        ),
    },
}
TOOL_NAMES = ("hermes", "coder", "pairs", "python_tag", "tool_marks")


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
