"""Finds a model's tokenizer: its vocabulary, its chat template, and what ends its answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tbtui.policies.base import PolicyRefusedError
from tbtui.policies.chat.template import ChatTemplate
from tbtui.policies.chat.vocabulary import Vocabulary

_OTHERWISE = "renderer=cookbook:NAME, or tokenizer=DIRECTORY of one that has"


class TokenizerFiles:
    """What is needed of a tokenizer's files."""

    def __init__(self, name: str) -> None:
        """`name`: a directory, or a name on the Hugging Face hub.

        Raises:
            PolicyError: there is no tokenizer of this name, or it is of another kind.
        """
        self._name = name
        self._tokenizer = _load(name)
        vocabulary = vocabulary_of(self._tokenizer)
        if vocabulary is None:
            raise PolicyRefusedError(f"tokenizer {name} has no tokenizer.json: {_OTHERWISE} it")
        self.vocabulary = vocabulary

    def template(self) -> ChatTemplate:
        """Raises `PolicyError` when the tokenizer has no chat template."""
        tokenizer = self._tokenizer
        if not tokenizer.chat_template:
            raise PolicyRefusedError(
                f"tokenizer {self._name} has no chat template: {_OTHERWISE} one"
            )
        try:
            text: str = tokenizer.get_chat_template()
        except ValueError as error:  # several templates, none of them the default
            raise PolicyRefusedError(f"tokenizer {self._name}: {_first_line(error)}") from error

        def apply(conversation: list[dict[str, Any]], **variables: Any) -> str:
            rendered: str = tokenizer.apply_chat_template(conversation, tokenize=False, **variables)
            return rendered

        responses = getattr(tokenizer, "response_template", None)
        return ChatTemplate(self._name, text, apply, responses)

    def end_ids(self) -> list[int]:
        """The tokens that the tokenizer and the model's generation settings name as the end."""
        from transformers import GenerationConfig

        named = [self._tokenizer.eos_token_id]
        try:
            ends = GenerationConfig.from_pretrained(self._name).eos_token_id
        except OSError:  # most tokenizer directories have none
            ends = None
        named += ends if isinstance(ends, list) else [ends]
        return [id for id in named if isinstance(id, int)]


def vocabulary_of(tokenizer: Any) -> Vocabulary | None:
    """Vocabulary of a transformers tokenizer; None when it is none of the `tokenizers` library."""
    from tokenizers import Tokenizer

    backend = getattr(tokenizer, "backend_tokenizer", None)
    return Vocabulary(backend) if isinstance(backend, Tokenizer) else None


@contextmanager
def quiet_import() -> Iterator[None]:
    """While transformers is imported: it says that there is no PyTorch, which none is needed."""
    name = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _without_torch() -> Iterator[None]:
    """While transformers is imported for a tokenizer, which needs no PyTorch: where there is one it
    would be imported too, for seconds and 900 MB. A process that has either keeps it."""
    if "torch" in sys.modules or "transformers" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


def _load(name: str) -> Any:
    with quiet_import(), _without_torch():
        from huggingface_hub.utils.tqdm import disable_progress_bars
        from transformers import AutoTokenizer
        from transformers.utils.logging import disable_default_handler

    disable_progress_bars()
    disable_default_handler()  # it would write on the screen
    if name.startswith((".", "/", "~")):
        directory = Path(name).expanduser()
        if not directory.is_dir():
            raise PolicyRefusedError(f"tokenizer={name}: there is no such directory")
        name = str(directory)
    try:
        # Never code that comes with one; left open, transformers asks at the terminal.
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise PolicyRefusedError(
            f"tokenizer {name} can't be loaded: {_first_line(error)} (name a directory that has"
            " tokenizer.json and tokenizer_config.json; a gated model's needs HF_TOKEN)"
        ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".: ")
