"""What is typed, from the bytes of a terminal to keys."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from queue import Queue
from threading import Thread

import pytest
from textual import events
from textual.app import App
from textual.message import Message

from tbtui.ui.textual_seam import PromptDriver


class HeardDriver(PromptDriver):
    """Reads a pipe, and says what it made of it."""

    def __init__(self, source: int) -> None:
        super().__init__(App())
        self.fileno = source
        self.heard: Queue[Message] = Queue()

    def process_message(self, message: Message) -> None:
        self.heard.put(message)

    def key(self) -> str:
        message = self.heard.get(timeout=20)
        assert isinstance(message, events.Key)
        return message.key


@contextmanager
def heard() -> Iterator[tuple[HeardDriver, int]]:
    """The driver, and where its bytes are written to."""
    source, sink = os.pipe()
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTSTP, signal.SIGCONT)}
    driver = HeardDriver(source)
    thread = Thread(target=driver.run_input_thread)
    thread.start()
    with closing(os.fdopen(source)):
        try:
            yield driver, sink
        finally:
            os.close(sink)
            thread.join()
            for each, handler in handlers.items():
                signal.signal(each, handler)


async def test_an_escape_alone_is_a_key_and_before_more_it_is_not() -> None:
    with heard() as (driver, sink):
        os.write(sink, b"\x1b")
        assert driver.key() == "escape"
        os.write(sink, b"\x1b[A")
        assert driver.key() == "up"
        os.write(sink, b"a\x1b[Bb")
        assert [driver.key() for _ in range(3)] == ["a", "down", "b"]
        os.write(sink, b"\x1b")
        assert driver.key() == "escape"


async def test_what_has_come_belongs_together_however_long_the_app_has_held_up_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each look at the clock is a minute later.
    monkeypatch.setattr("textual._parser.get_time", itertools.count(step=60).__next__)
    with heard() as (driver, sink):
        # More than is read at once, which ends in the middle of an arrow,
        os.write(sink, b"x" * 4095 + b"\x1b[A")
        assert [driver.key() for _ in range(4096)][-1] == "up"
        # and in the middle of a paste's end.
        os.write(sink, b"\x1b[200~" + b"y" * (4096 - 6 - 3) + b"\x1b[201~" + b"z")
        assert isinstance(driver.heard.get(timeout=20), events.Paste)
        assert driver.key() == "z"


async def test_a_character_may_come_in_two_pieces_and_a_broken_one_harms_nothing() -> None:
    with heard() as (driver, sink):
        first, rest = "é".encode()[:1], "é".encode()[1:]
        os.write(sink, first)
        await asyncio.sleep(0.05)  # for it to be read alone
        os.write(sink, rest)
        assert driver.key() == "é"
        os.write(sink, b"\xff" + b"x")
        assert [driver.key() for _ in range(2)][-1] == "x"


async def test_a_terminal_that_is_closed_ends_the_reading() -> None:
    with heard() as (driver, sink):
        os.write(sink, b"q")
        assert driver.key() == "q"
    assert driver.heard.empty()
