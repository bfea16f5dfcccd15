"""Makes the renderer that the setting `renderer` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tbtui.imports import import_named
from tbtui.policies.base import ChatRenderer, PolicyRefusedError, Thinking
from tbtui.policies.chat.tool_formats import ToolFormat
from tbtui.policies.work import in_daemon_thread

_METHODS = ("render", "extend", "answer", "pieces")
_FACTS = ("stop_ids", "digest", "vocab_size", "notes")
"""Attributes of a `ChatRenderer`, which its `__init__` may set."""


def make_renderer(
    name: str, tokenizer: str, thinking: Thinking, tool_format: ToolFormat = "auto"
) -> ChatRenderer:
    """Build the renderer that the setting names. Reads files and imports much: call in a thread.

    `name`: "template" (the tokenizer's chat template), "embedded" (the embedded model's own
    format), "cookbook:NAME" (one of tinker-cookbook's), or "module:Class", which is called with
    `tokenizer` and `thinking`. `tokenizer`: a directory, or a name on the Hugging Face hub.

    Raises:
        PolicyError: one line that says what to do.
    """
    kind, colon, rest = name.partition(":")
    if name == "template":
        return _template(tokenizer, thinking, tool_format)
    if tool_format not in ("auto", "json"):
        raise PolicyRefusedError(
            f"tool_format={tool_format}: renderer={name} has no tools of its own; leave it out"
        )
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


async def load_renderer(
    name: str,
    tokenizer: str,
    thinking: Thinking,
    tool_format: ToolFormat,
    tell: Callable[[str], None],
) -> ChatRenderer:
    """As `make_renderer`, in a thread that the end of the process doesn't wait for.

    `tell` gets what is waited for: a hub out of reach is asked again for a minute.
    """
    tell(_loading(name, tokenizer))
    return await in_daemon_thread(
        lambda: make_renderer(name, tokenizer, thinking, tool_format), "renderer"
    )


def _loading(name: str, tokenizer: str) -> str:
    if name == "embedded" or Path(tokenizer).expanduser().is_dir():
        return "loading the tokenizer"
    return f"loading the tokenizer of {tokenizer} from the Hugging Face hub"


def may_think(renderer: ChatRenderer) -> bool | None:
    """Whether the model may think before it answers, as far as its renderer knows; else None."""
    from tbtui.policies.chat.template import TemplateRenderer

    return renderer.thinks if isinstance(renderer, TemplateRenderer) else None


def _template(tokenizer: str, thinking: Thinking, tool_format: ToolFormat) -> ChatRenderer:
    from tbtui.policies.chat.template import TemplateRenderer
    from tbtui.policies.chat.tokenizer_files import TokenizerFiles

    files = TokenizerFiles(tokenizer)
    return TemplateRenderer(
        files.template(), files.vocabulary, files.end_ids(), thinking, tool_format
    )


def _embedded(thinking: Thinking) -> ChatRenderer:
    from tbtui.policies.local.renderer import EmbeddedRenderer

    if thinking == "off":
        raise PolicyRefusedError("thinking=off: the embedded model does not think; leave it out")
    return EmbeddedRenderer()


def _imported(module: str, name: str, tokenizer: str, thinking: Thinking) -> ChatRenderer:
    setting = f"renderer={module}:{name}"
    try:
        found = import_named(module).__dict__.get(name)
    except ImportError as error:
        raise PolicyRefusedError(
            f"{setting}: {module} can't be imported: {error}; install it, or put the directory it"
            " is in into PYTHONPATH"
        ) from error
    if not isinstance(found, type):
        raise PolicyRefusedError(f"{setting}: {module} has no class of this name")
    # Nothing is called that was not written to be a renderer.
    _require([each for each in _METHODS if not callable(getattr(found, each, None))], setting)
    try:
        renderer: ChatRenderer = found(tokenizer, thinking)
    except TypeError as error:
        raise PolicyRefusedError(f"{setting}(tokenizer, thinking): {error}") from error
    _require([each for each in _FACTS if not hasattr(renderer, each)], setting)
    return renderer


def _require(lacking: Sequence[str], setting: str) -> None:
    if lacking:
        raise PolicyRefusedError(f"{setting}: it lacks {', '.join(lacking)}")
