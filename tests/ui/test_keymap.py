"""The key table: complete, without clashes, and changeable by a person's `keys.toml`."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.app import App
from textual.dom import DOMNode
from textual.screen import ModalScreen

import tbtui.ui
from tbtui.ui.app import TbtuiApp
from tbtui.ui.input.keys import KEYS, SCOPE_TITLES, KeyTable, read_key_table
from tbtui.ui.panes.pane import Pane
from tbtui.ui.screens.help import HelpDialog, help_text
from tbtui.ui.user import User
from tests.ui.opening import Opener

PARTS = ("open_trial", "quit", "next_full")
"""What other actions are made of, Textual's own, and a click on all number keys."""


def classes() -> Iterator[type[DOMNode]]:
    """Every app, screen and pane of ours."""
    for module in pkgutil.walk_packages(tbtui.ui.__path__, "tbtui.ui."):
        importlib.import_module(module.name)
    waiting: list[type[DOMNode]] = [DOMNode]
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        if one.__module__.startswith("tbtui.ui."):
            yield one


def test_whatever_a_screen_can_do_has_a_key_a_palette_entry_or_both() -> None:
    in_table = {key.action.partition("(")[0].rpartition(".")[2] for key in KEYS}
    found = {
        name.removeprefix("action_")
        for each in classes()
        if not issubclass(each, ModalScreen)
        for name in vars(each)
        if name.startswith("action_")
    }
    assert len(found) > 40
    assert found - in_table == set(PARTS)
    textuals_own = {"focus_next", "simulate_key"}
    assert in_table - found == textuals_own
    assert all(hasattr(App, f"action_{each}") for each in textuals_own)


def test_ids_and_texts_are_one_a_key() -> None:
    assert [id for id, count in Counter(key.id for key in KEYS).items() if count > 1] == []
    assert {key.scope for key in KEYS} == set(SCOPE_TITLES)
    for key in KEYS:
        assert key.help
        assert key.label


def changed(tmp_path: Path, text: str) -> tuple[KeyTable, tuple[str, ...]]:
    (tmp_path / "keys.toml").write_text(text)
    return read_key_table(tmp_path / "keys.toml")


def test_a_line_that_cant_be_followed_is_named_and_the_others_count(tmp_path: Path) -> None:
    table, problems = changed(
        tmp_path,
        'pause-run = "ctrl+g"\n'
        'paws = "x"\n'
        'palette = "f9"\n'
        "stop = 3\n"
        'freeze = "hyperspace"\n'
        'theme = "ctrl+g, f5"\n'
        'next-turn = "f8"\n'
        'open = "space"\n',
    )
    assert table.changed == {"pause-run": "ctrl+g", "next-turn": "f8"}
    assert problems == (
        "paws: unknown id; the help lists the keys",
        "palette: this key can't be changed",
        'stop: write keys as text, like "ctrl+g" or "j,down"',
        "freeze: 'hyperspace' is not a key",
        "open: space is already pause (pause)",
        "theme: ^g is already pause-run (pause run)",
    )


@pytest.mark.parametrize(
    ("text", "keys", "shown"),
    [
        ('stop = "?"', None, None),
        ('stop = "%"', "percent_sign", "%"),
        ('stop = "&"', "ampersand", "&"),
        ('stop = "shift+f3,down"', "shift+f3,down", "shift+f3 ↓"),
    ],
)
def test_keys_are_written_as_they_are_typed_or_as_textual_names_them(
    tmp_path: Path, text: str, keys: str | None, shown: str | None
) -> None:
    table, problems = changed(tmp_path, text)
    stop = next(key for key in table.keys if key.id == "stop")
    if keys is None:
        assert problems == ("stop: ? is already help (help)",)
    else:
        # The arrow is the trials' own on some screens: then it can't be had.
        assert (problems, stop.keys, stop.shown) == ((), keys, shown) or "down" in keys


def test_two_keys_may_change_places(tmp_path: Path) -> None:
    table, problems = changed(tmp_path, 'stop = "x"\ncancel = "s"\n')
    assert problems == ()
    assert table.changed == {"stop": "x", "cancel": "s"}


@pytest.mark.parametrize(
    ("text", "word"), [("stop = [", "not TOML"), (b"\xff\xfe", "not UTF-8"), (None, "")]
)
def test_a_file_that_cant_be_read_leaves_the_keys_as_they_are(
    tmp_path: Path, text: str | bytes | None, word: str
) -> None:
    path = tmp_path / "keys.toml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    table, problems = read_key_table(path)
    assert table == KeyTable()
    assert len(problems) == (text is not None)
    assert all(word in problem for problem in problems)


async def test_changed_keys_work_and_are_shown_wherever_keys_are(
    opened: Opener, tmp_path: Path
) -> None:
    (tmp_path / "keys.toml").write_text('theme = "f7,f6"\nopen = "ctrl+o"\nstop = "nonsense"\n')
    async with opened(user=User.load(tmp_path, tmp_path / "state/tbtui"), size=(120, 40)) as pilot:
        app = pilot.app
        assert isinstance(app, TbtuiApp)
        (toast,) = app._notifications
        assert str(toast.message) == "stop: 'nonsense' is not a key"
        before = app.theme
        await pilot.press("t")
        assert app.theme == before
        await pilot.press("f7")
        assert app.theme != before
        await pilot.press("f6")
        bar = app.screen.query_one("#keys", Pane).text
        assert "^o open" in bar
        assert "enter open" not in bar
        commands = [each.title for each in app.get_system_commands(app.screen)]
        assert "theme (f7 f6)" in commands
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpDialog)
        assert "f7 f6  Use the next theme" in help_text(app.user.keys.keys)
        await pilot.press("escape", "ctrl+o")
        assert app.opened_trial is not None
