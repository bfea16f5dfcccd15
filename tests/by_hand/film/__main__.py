"""README's film, the first minute of a new user: `python -m tests.by_hand.film [OUT.gif]`.

    uv run --with pillow python -m tests.by_hand.film .github/first-minute.gif

Runs `tbtui run` in a terminal of its own and presses the keys that the guided tour asks for, each
when its request is on the screen. Beside the GIF it keeps the recording (`OUT.cast`), which
asciinema plays too; `--from OUT.cast` draws that one again. Needs the DejaVu fonts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tbtui.ui.theme.palette import Palette
from tbtui.ui.theme.themes import ThemeFile
from tests.by_hand.film.gif import write
from tests.by_hand.film.screencast import Cast, Terminal, in_terminal

COLUMNS, ROWS = 120, 34
BEGINS = "Choose one"
SHELL = ["bash", "--norc", "--noprofile"]


def first_minute(terminal: Terminal) -> None:
    """The keys of the film."""
    terminal.wait_for("$")
    terminal.hold(0.6)
    terminal.type("tbtui run\r")
    terminal.wait_for("tour 1 of 6", BEGINS)
    terminal.hold(3.5)
    terminal.press("\x1b[B")
    terminal.wait_for("tour 2 of 6")
    terminal.hold(2.5)
    terminal.press(" ")
    terminal.wait_for("tour 3 of 6")
    terminal.hold(3.0)
    terminal.press("\r")
    terminal.wait_for("tour 4 of 6")
    terminal.hold(4.0)
    terminal.press("i")
    terminal.wait_for("tour 5 of 6")
    terminal.hold(1.5)
    terminal.type("ls -a\r", key_sec=0.15)
    terminal.hold(2.5)
    terminal.press("\x1c")
    terminal.wait_for("tour 6 of 6")
    terminal.hold(2.5)
    terminal.press("g")
    terminal.wait_for("turns side by side")
    terminal.hold(4.0)
    terminal.press("\x1b")
    terminal.wait_until(lambda screen: "tour 6 of 6" not in screen, "the tour's end")
    terminal.press("\x1b")
    terminal.hold(1.0)
    terminal.press("+")
    terminal.wait_for("step 3 of")
    terminal.hold(4.0)
    terminal.wait_for("step 12 of")
    terminal.press("M")
    terminal.hold(5.0)
    terminal.press("\x1b")
    terminal.wait_for("step 16 of")
    terminal.hold(2.0)


def record() -> Cast:
    """Run the film's program, in an empty directory, as a user who has never run it."""
    with tempfile.TemporaryDirectory(prefix="tbtui-film-") as home:
        environment = {
            "HOME": home,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PS1": "$ ",
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
        }
        with in_terminal(SHELL, COLUMNS, ROWS, environment, Path(home)) as terminal:
            first_minute(terminal)
            cast = terminal.cast
            terminal.press("\x03")
            terminal.hold(1.0)
            terminal.press("\x03")
            terminal.wait_for("everything is cleaned up")
            return cast


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=Path(".github/first-minute.gif"))
    parser.add_argument("--from", dest="recording", type=Path, help="draw this recording")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    cast = Cast.read(given.recording) if given.recording else record()
    if not given.recording:
        cast.write(given.out.with_suffix(".cast"))
    write(cast, Palette(ThemeFile()), given.out, BEGINS)
    sys.stdout.write(f"{given.out}: {given.out.stat().st_size / 1e6:.2f} MB\n")


if __name__ == "__main__":
    main()
