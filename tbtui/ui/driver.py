"""The terminal, read without delay."""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from typing import override

from textual import constants
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

_IDLE_SEC = 0.1
"""After so long it is looked whether the app has ended."""


class PromptDriver(LinuxDriver):
    """Textual's own looks every 100 ms whether an escape was a key or the beginning of something;
    this one as soon as the wait for the rest is over, `ESCDELAY`."""

    @override
    def run_input_thread(self) -> None:
        parser = XTermParser(constants.DEBUG)
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            wait = _IDLE_SEC
            while not self.exit_event.is_set():
                if selector.select(wait):
                    if not (data := os.read(self.fileno, 4096)):
                        return
                    if text := decode(data):  # to the parser, nothing means the end
                        for message in parser.feed(text):
                            self.process_message(message)
                    wait = constants.ESCAPE_DELAY
                else:
                    # Never while there is more to be read: the app may have held this thread up
                    # for longer than an escape is waited with, between the halves of a sequence.
                    for message in parser.tick():
                        self.process_message(message)
                    wait = _IDLE_SEC
