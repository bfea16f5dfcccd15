"""A run whose output is more than a pipe holds: `python -m tests.console.unread DIRECTORY`.

On standard error it says what its event loop has come to.
"""

from __future__ import annotations

import asyncio
import select
import sys
from pathlib import Path

from tbtui.console import Printer, json_line
from tbtui.engines.host import run_headless
from tbtui.journal.events import Noted
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter


async def work(directory: RunDirectory) -> str:
    with JournalWriter(directory) as writer:
        while select.select([], [sys.stdout], [], 0)[1]:
            writer.append(Noted(level="info", text="x" * 1000))
            await asyncio.sleep(0.001)
        for _ in range(100):  # more than fits beside what the pipe has
            writer.append(Noted(level="info", text="x" * 1000))
        say("the pipe is full")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            writer.append(Noted(level="info", text="the end"))
    say("interrupted")
    return "interrupted"


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    directory = RunDirectory.create(Path(sys.argv[1]))
    printer = Printer(directory, lambda: lambda entry: iter([json_line(entry)]), 0, detaches=True)
    end = run_headless(work(directory), printer.follow, printer.hang_up)
    say(f"{end}, unread" if printer.unread else end)


if __name__ == "__main__":
    main()
