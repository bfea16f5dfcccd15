"""From the setting `renderer` to a renderer."""

from __future__ import annotations

import importlib

from tbtui.policies.base import PolicyRefusedError
from tbtui.policies.chat.base import ChatRenderer, Thinking


def make_renderer(name: str, tokenizer: str, thinking: Thinking) -> ChatRenderer:
    """Build the renderer that the setting names. Reads files and imports much: call in a thread.

    `name`: "template" (the tokenizer's chat template), "embedded" (the embedded model's own
    format), "cookbook:NAME" (one of tinker-cookbook's), or "module:Class", which is called with
    `tokenizer` and `thinking`. `tokenizer`: a directory, or a name on the Hugging Face hub.

    Raises:
        PolicyError: one line that says what to do.
    """
    kind, colon, rest = name.partition(":")
    if name == "template":
        return _template(tokenizer, thinking)
    if name == "embedded":
        return _embedded(thinking)
    if kind == "cookbook" and rest:
        from tbtui.policies.chat.cookbook import cookbook_renderer

        return cookbook_renderer(rest, tokenizer, thinking)
    if kind and colon and rest:
        return _imported(kind, rest, tokenizer, thinking)
    raise PolicyRefusedError(
        f"renderer={name}: write template, embedded, cookbook:NAME, or module:Class of your own"
    )


def _template(tokenizer: str, thinking: Thinking) -> ChatRenderer:
    from tbtui.policies.chat.template import TemplateRenderer
    from tbtui.policies.chat.tokenizer_files import TokenizerFiles

    files = TokenizerFiles(tokenizer)
    return TemplateRenderer(files.template(), files.vocabulary, files.end_ids(), thinking)


def _embedded(thinking: Thinking) -> ChatRenderer:
    from tbtui.policies.chat.embedded import EmbeddedRenderer

    if thinking == "off":
        raise PolicyRefusedError("thinking=off: the embedded model does not think; leave it out")
    return EmbeddedRenderer()


def _imported(module: str, name: str, tokenizer: str, thinking: Thinking) -> ChatRenderer:
    setting = f"renderer={module}:{name}"
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError as error:
        raise PolicyRefusedError(f"{setting}: {module} can't be imported: {error}") from error
    if not callable(found):
        raise PolicyRefusedError(f"{setting}: {module} has no class of this name")
    try:
        renderer: ChatRenderer = found(tokenizer, thinking)
    except TypeError as error:
        raise PolicyRefusedError(f"{setting}(tokenizer, thinking): {error}") from error
    lacking = [
        member
        for member in (
            "render", "extend", "answer", "pieces", "stop_ids", "digest", "vocab_size", "notes",
        )
        if not hasattr(renderer, member)
    ]  # fmt: skip
    if lacking:
        raise PolicyRefusedError(f"{setting}: it lacks {', '.join(lacking)}")
    return renderer
