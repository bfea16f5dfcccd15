"""The key table: complete, without clashes, changeable by `keys.toml`, and in the help."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.dom import DOMNode
from textual.screen import ModalScreen
from textual.widgets import Input

import tbtui.ui
from tbtui.ui.input.keys import KEYS, SCOPE_TITLES, KeyTable, read_key_table
from tbtui.ui.panes.pane import Pane
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.help import HelpDialog, HelpText, help_sections, help_text
from tbtui.ui.screens.trial import TrialScreen
from tbtui.ui.user import User
from tests.ui.opening import Opener, app_of, burst, commands, rest, screen_of
from tests.ui.picture import settle

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


def test_every_key_has_texts_and_every_scope_a_title() -> None:
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
        ('stop = "%"', "percent_sign", "%"),
        ('stop = "&"', "ampersand", "&"),
        ('stop = "shift+f3,insert"', "shift+f3,insert", "shift+f3 insert"),
    ],
)
def test_keys_are_written_as_they_are_typed_or_as_textual_names_them(
    tmp_path: Path, text: str, keys: str, shown: str
) -> None:
    table, problems = changed(tmp_path, text)
    stop = next(key for key in table.keys if key.id == "stop")
    assert (problems, stop.keys, stop.shown) == ((), keys, shown)


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
        app = app_of(pilot)
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


async def test_wide_windows_have_more_columns_and_each_line_is_there_once(opened: Opener) -> None:
    async with opened((80, 45)) as pilot:
        await pilot.press("f1")
        assert isinstance(pilot.app.screen, HelpDialog)
        text, keys = pilot.app.screen.query_one(HelpText), pilot.app.screen._keys
        every = [line for part in help_sections(keys, 64, Cockpit.SCOPES) for line in part]
        for width, columns in ((80, 1), (160, 2), (240, 3)):
            await pilot.resize_terminal(width, 45)
            await pilot.pause()
            shown = text._columns_in(text.size.width)
            assert len(shown) == columns
            assert [line for column in shown for line in column] == every
            assert max(len(column) for column in shown) <= len(every) // columns + 8
            last = text.render_line(1).text
            assert all(column[1].text in last for column in shown)


async def test_help_is_searched(opened: Opener) -> None:
    async with opened((160, 45)) as pilot:
        await pilot.press("question_mark", "slash", *"freeze")
        await pilot.pause()
        text = pilot.app.screen.query_one(HelpText)
        lines = [text.render_line(y).text for y in range(text.size.height)]
        assert any(" z " in line and "Freeze the trial now" in line for line in lines)
        assert not any("Open the selected trial" in line for line in lines)
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, HelpDialog)
        assert not pilot.app.screen.query_one(Input).display
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, Cockpit)


def test_what_is_not_there_is_said() -> None:
    ((line,),) = help_sections(KEYS, 64, words="zzz")
    assert line.text == "nothing has 'zzz' in it"
    assert "Freeze" in help_text(KEYS)


OWN = [key for key in KEYS if key.bound]
LETTERS = (*range(0x430, 0x588), *range(0x250, 0x2AE))
NEW = [chr(code) for code in LETTERS if chr(code).islower()][: len(OWN)]
"""Letters that nothing else on a screen has."""
HINT = re.compile(
    r"(\S+) (?:follows|quits|takes|opens|shows all|all\b|shows the next|to the end|again"
    r"|calls it off|gives it back|steer a trial|pauses|plays|resumes|goes back|lists keys)"
)


def screen_text(app: App[Any]) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


@pytest.mark.slow
async def test_remapped_keys_are_the_ones_that_are_named(opened: Opener, tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(
        "".join(f'{key.id} = "{letter}"\n' for key, letter in zip(OWN, NEW, strict=True))
    )
    user = User.load(tmp_path, tmp_path / "state")
    assert user.problems == ()
    named = {key.id: key.shown for key in user.keys.keys}
    assert [named[key.id] for key in OWN] == NEW
    async with opened(size=(160, 45), user=user) as pilot:
        app = app_of(pilot)
        seen: list[str] = []

        async def look() -> None:
            await settle(app)
            await pilot.pause()
            seen.append(screen_text(app))

        cockpit = screen_of(pilot, Cockpit)
        await look()
        assert f"{named['quit']} quit" in seen[-1]
        app.selection.choose(next(iter(app.live_run.state.trials)))
        await cockpit.action_filter()
        await pilot.press(*"nothing like this")
        await look()
        assert f"{named['overview']} all" in seen[-1]
        assert f"{named['overview']} shows all" in seen[-1]
        cockpit.action_back()
        retried = next(t for t in app.live_run.state.trials.values() if t.attempt > 1)
        app.push_screen(TrialScreen(retried.trial))
        await look()
        trial = screen_of(pilot, TrialScreen)
        trial.action_command(-1)
        await look()
        assert f"{named['scrub-now']} to the end" in seen[-1]
        assert f"{named['attempt']} shows the next" in seen[-1]
        for action in ("open_group", "commands_given", "runs", "search", "help", "tour"):
            await app.run_action(f"app.{action}")
            await look()
        assert all(letter in "".join(seen) for letter in (named["tour"], named["help"]))
        for text in seen:
            for found in HINT.findall(text):
                assert not any(found.strip("(") in key.shown.split(" ") for key in OWN), found


@pytest.mark.parametrize(
    "before",
    ["", "R", "M", "\r\rp", "\x1bOR"],
    ids=["cockpit", "runs", "charts", "prompt", "settings"],
)
@pytest.mark.parametrize("box", ["/", ":"], ids=["words", "jump"])
async def test_what_is_typed_at_once_with_the_key_of_a_box_is_in_it(
    opened: Opener, before: str, box: str
) -> None:
    async with opened() as pilot:
        burst(pilot, f"{before}{box}rmsx")
        await rest(pilot)
        assert app_of(pilot).screen.query_one(Input).value == "rmsx"
        assert commands(pilot) == []
