"""What the installed Textual must be like, and that one module alone relies on it."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.widgets import Static

import tbtui.ui
from tbtui.ui import textual_seam
from tbtui.ui.textual_seam import BufferedScreen, LeanApp

UI = Path(tbtui.ui.__path__[0])


def test_the_installed_textual_fits() -> None:
    assert textual_seam.drift() == []


def test_drift_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def _get_screen(self: object) -> None: ...

    class Changed:
        _background_screens = ()

        def __init__(self) -> None:
            self._exception = None

    monkeypatch.setitem(textual_seam._METHODS, "App._get_screen", (_get_screen, ("screen",)))
    monkeypatch.setitem(textual_seam._ATTRIBUTES, "App", (Changed, ("_driver", "_exception")))
    monkeypatch.setitem(
        textual_seam._PROPERTIES, "App._background_screens", (Changed, "_background_screens")
    )
    assert textual_seam.drift() == [
        "App._get_screen has no parameter `screen`",
        "App.__init__ sets no `_driver`",
        "App._background_screens is no property",
    ]


def test_no_name_of_ours_hides_one_of_textuals() -> None:
    ours = {name for name in vars(LeanApp) if not name.startswith("_")}
    assert ours & set(dir(App)) == {"get_driver_class", "on_event", "pop_screen"}


def private_names() -> set[str]:
    """Every private name of Textual's that the list has."""
    names = {name.rpartition(".")[2] for name in textual_seam._METHODS | textual_seam._PROPERTIES}
    names |= {name for _, attributes in textual_seam._ATTRIBUTES.values() for name in attributes}
    return {name for name in names if name.startswith("_")}


def test_nothing_private_of_textual_is_used_elsewhere() -> None:
    private = private_names()
    assert {"_get_screen", "_unnotify", "_driver"} <= private
    used = []
    for path in UI.rglob("*.py"):
        if path.name == "textual_seam.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(attr=name) if name in private:
                    used.append(f"{path.relative_to(UI)}:{node.lineno}: {name}")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if name in private:
                        used.append(f"{path.relative_to(UI)}:{node.lineno}: {name}")
                case ast.ImportFrom(module=str(module)):
                    if module.startswith("textual._"):
                        used.append(f"{path.relative_to(UI)}:{node.lineno}: {module}")
    assert used == []


class _Slow(Static):
    """Takes its time to go, and says when it goes."""

    def __init__(self, going: asyncio.Event) -> None:
        super().__init__(id="slow")
        self._going = going

    async def on_unmount(self) -> None:
        self._going.set()
        await asyncio.sleep(0.05)


class _Reader(BufferedScreen[None]):
    def __init__(self) -> None:
        super().__init__()
        self.going = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield _Slow(self.going)
        yield Static(id="shown")

    def on_mount(self) -> None:
        self.run_worker(self._read())

    async def _read(self) -> None:
        await self.going.wait()
        while True:
            self.query_one("#shown", Static).update("read")
            await asyncio.sleep(0)


@pytest.mark.parametrize("popped", [True, False], ids=["screen", "app"])
async def test_what_a_screen_reads_ends_before_its_widgets(popped: bool) -> None:
    app: App[None] = App()
    async with app.run_test() as pilot:
        await app.push_screen(screen := _Reader())
        await pilot.pause()
        if popped:
            await app.pop_screen()
    assert screen.going.is_set()
