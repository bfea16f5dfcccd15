"""A picture of the screen for a run directory: `python tests/ui/picture.py RUN_DIR OUT.png`.

Also writes the SVG when OUT ends in .svg. With --at the run is shown as it stood that many
seconds after its start.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from textual._wait import wait_for_idle

from tbtui.journal.commands import Command
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.app import TbtuiApp
from tbtui.ui.services import RunEnd


class PastHost:
    """A run that nobody is running now."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self.commands: list[Command] = []

    @property
    def directory(self) -> RunDirectory:
        return self._directory

    def start(self) -> None:
        pass

    def submit(self, command: Command) -> None:
        self.commands.append(command)

    def take_controls(self) -> None:
        pass

    def interrupt(self) -> None:
        pass

    def hang_up(self) -> bool:
        return False

    outlives = False
    read_only = ""
    steerable = True

    async def ended(self) -> RunEnd:
        return await asyncio.get_running_loop().create_future()


async def settle(app: TbtuiApp) -> None:
    """Tick until everything that lies in the run directory is on the screen."""
    app.tick()
    while app.live_run.behind:
        app.tick()
    while (replay := app.live_run.replay) and replay.marks is None:  # noqa: ASYNC110 - on a thread
        await asyncio.sleep(0.01)
    # Which terminals are read depends on what the frame before has shown.
    app.redraw_all()
    app.tick()
    while app.live_run.terminals_behind:
        app.tick()
        await asyncio.sleep(0)
    app.redraw_all()
    await wait_for_idle()


async def screenshot(
    run: Path,
    *,
    size: tuple[int, int],
    at: float | None = None,
    theme: str = "tbtui-dark",
    press: str = "",
) -> str:
    """The screen as SVG."""
    directory = RunDirectory.open(run)
    app = TbtuiApp(PastHost(directory), live=False, theme=theme, still_at=at)
    async with app.run_test(size=size) as pilot:
        await settle(app)
        for key in filter(None, press.split(",")):
            await pilot.press(key)
            await settle(app)
        await pilot.pause()
        return app.export_screenshot(title=f"tbtui · {directory.name}")


def to_png(svg: str) -> bytes:
    import resvg_py

    return bytes(
        resvg_py.svg_to_bytes(
            svg_string=svg.replace("Fira Code", "DejaVu Sans Mono"),
            font_dirs=["/usr/share/fonts"],
            monospace_family="DejaVu Sans Mono",
            zoom=1,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="200x60")
    parser.add_argument("--at", type=float, help="seconds after the run's start; default: its end")
    parser.add_argument("--theme", default="tbtui-dark")
    parser.add_argument("--press", default="", help="keys to press first, separated by commas")
    given = parser.parse_args()
    width, _, height = given.size.partition("x")
    svg = asyncio.run(
        screenshot(
            given.run,
            size=(int(width), int(height)),
            at=given.at,
            theme=given.theme,
            press=given.press,
        )
    )
    if given.out.suffix == ".svg":
        given.out.write_text(svg)
    else:
        given.out.write_bytes(to_png(svg))


if __name__ == "__main__":
    main()
