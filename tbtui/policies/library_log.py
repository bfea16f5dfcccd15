"""Sends what a policy's libraries log or warn to the run's log file, never to the screen."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections.abc import Iterator
from typing import IO

# Every library under a policy's client and the tokenizers that logs, or warns, by itself.
_LOGGERS: tuple[tuple[str, int], ...] = (
    ("tinker", logging.INFO),
    ("httpx", logging.WARNING),
    ("httpcore", logging.WARNING),
    ("huggingface_hub", logging.WARNING),
    ("transformers", logging.WARNING),
    ("py.warnings", logging.WARNING),
)
CREDENTIAL = re.compile(r"\b(?:tml-[\w.-]+|eyJ[\w.-]{8,})")
"""What looks like a Tinker key or a token of a login."""


class _OneHandler(list[logging.Handler]):
    """A logger's handlers, to which none can be added.

    Hugging Face's libraries add one that writes to the screen as soon as they are imported, which
    is while a tokenizer is fetched.
    """

    def append(self, handler: logging.Handler) -> None:
        pass


class _WithoutKeys(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return CREDENTIAL.sub("[key]", super().format(record))


@contextlib.contextmanager
def library_log_to(file: IO[bytes]) -> Iterator[None]:
    """Send what the libraries log to `file`, and nowhere else, meanwhile.

    `file` stays open afterwards. Credentials are left out.
    """
    text = io.TextIOWrapper(file, "utf-8", errors="backslashreplace", write_through=True)
    handler = logging.StreamHandler(text)
    handler.setFormatter(_WithoutKeys("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    with contextlib.ExitStack() as stack:
        # Last of all: until then a library's thread may still be writing.
        stack.callback(text.detach)
        stack.callback(handler.close)
        for name, level in _LOGGERS:
            stack.enter_context(_only_to(handler, logging.getLogger(name), level))
        logging.captureWarnings(True)
        stack.callback(logging.captureWarnings, False)
        yield


@contextlib.contextmanager
def _only_to(handler: logging.Handler, logger: logging.Logger, level: int) -> Iterator[None]:
    handlers, before, propagate = logger.handlers, logger.level, logger.propagate
    logger.handlers, logger.propagate = _OneHandler([handler]), False
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(before)
