"""What the installed Textual must be like, and that one module alone relies on it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from textual.app import App

import tbtui.ui
from tbtui.ui import textual_seam
from tbtui.ui.textual_seam import LeanApp

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
    assert ours & set(dir(App)) == {"get_driver_class", "current_theme", "pop_screen"}


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
