"""What token ids read as: Prime-RL records ids alone, the text is in the model's tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tbtui.journal.samples import ids_as_text

Pieces = Callable[[Sequence[int]], Sequence[str]]
"""Token ids to the text of each."""

_FILE = "tokenizer.json"


class NoTokenizerError(Exception):
    """It isn't on this machine; the message says what would help, in one line."""


class TokenText:
    """Read on a thread of its own: a large vocabulary takes seconds."""

    def __init__(self, config: dict[str, Any]) -> None:
        """`config`: Prime-RL's, resolved."""
        thread = ThreadPoolExecutor(1, "tokenizer")
        self._reading = thread.submit(_of_run, config)
        thread.shutdown(wait=False)
        self._told = False

    def pieces(self, ids: Sequence[int]) -> Sequence[str]:
        """The text of each token; waits for the vocabulary."""
        return ids_as_text(ids) if self._reading.exception() else self._reading.result()(ids)

    def problem(self) -> str:
        """Why tokens remain ids, once: empty as long as that isn't known, or is not so."""
        if self._told or not self._reading.done():
            return ""
        self._told = True
        return str(self._reading.exception() or "")


def _of_run(config: dict[str, Any]) -> Pieces:
    if name := tokenizer_name(config):
        return token_text(name)
    raise NoTokenizerError("the run's configuration names no model")


def tokenizer_name(config: dict[str, Any]) -> str:
    """A directory or a name on the Hugging Face hub, out of Prime-RL's resolved configuration;
    empty: it says none."""
    orchestrator = config.get("orchestrator")
    for table in (config, orchestrator if isinstance(orchestrator, dict) else {}):
        for part in ("tokenizer", "model"):
            named = table.get(part)
            if isinstance(named, dict) and isinstance(name := named.get("name"), str) and name:
                return name
    return ""


def token_text(name: str) -> Pieces:
    """The text of tokens by a tokenizer that is on this machine; nothing is fetched.

    Raises:
        NoTokenizerError: it isn't there, or can't be read.
    """
    from tokenizers import Tokenizer

    from tbtui.policies.chat.vocabulary import Vocabulary

    path = _find(name)
    try:
        vocabulary = Vocabulary(Tokenizer.from_file(str(path)))
    # The library raises nothing narrower for a file that it doesn't understand.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise NoTokenizerError(f"{path}: can't be read as a tokenizer ({reason})") from error

    def pieces(ids: Sequence[int]) -> Sequence[str]:
        known = all(0 <= id < vocabulary.size for id in ids)
        return vocabulary.pieces(ids) if known else ids_as_text(ids)

    return pieces


def _find(name: str) -> Path:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    directory = Path(name).expanduser()
    if directory.is_dir():
        if not (directory / _FILE).is_file():
            raise NoTokenizerError(f"{directory} has no {_FILE}; put the model's there")
        return directory / _FILE
    try:
        cached = try_to_load_from_cache(name, _FILE)
    except HFValidationError as error:
        raise NoTokenizerError(f"{name}: there is no such directory on this machine") from error
    if not isinstance(cached, str):
        raise NoTokenizerError(f"{name} is not in this machine's cache; hf download {name} {_FILE}")
    return Path(cached)
