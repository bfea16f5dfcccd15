"""What the app remembers from one time to the next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.user import Preferences, User, read_preferences, write_preferences
from tests.ui.opening import Opener, app_of, pane, screen_of
from tests.ui.picture import settle

pytestmark = pytest.mark.slow


async def test_the_order_the_open_pane_and_the_folds_are_as_they_were_left(
    opened: Opener, tmp_path: Path
) -> None:
    async with opened(user=User.load(tmp_path, tmp_path)) as pilot:
        await pilot.press("o", "1", "j", "space")
        order = app_of(pilot).listing.order
        assert order != "attention"
    assert json.loads((tmp_path / "app.json").read_text())["unfolded"] == ["append"]
    async with opened(user=User.load(tmp_path, tmp_path)) as pilot:
        app = app_of(pilot)
        assert app.listing.order == order
        assert screen_of(pilot, Cockpit).full == 1
        await settle(app)
        assert "▾ append" in pane(pilot, "tasks").text
        await pilot.press("0")
    assert read_preferences(tmp_path / "app.json").full == 0


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", Preferences()),
        ("{", Preferences()),
        ("[1]", Preferences()),
        ('{"full": "x", "theme": "tbtui-light"}', Preferences(theme="tbtui-light")),
        # As of an earlier version.
        ('{"order": "place", "full": 3, "new": 1}', Preferences(full=3)),
    ],
)
def test_what_cant_be_read_is_forgotten_and_the_rest_kept(
    tmp_path: Path, text: str, kept: Preferences
) -> None:
    path = tmp_path / "app.json"
    path.write_text(text)
    assert read_preferences(path) == kept


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "app.json"
    wanted = Preferences(
        "tbtui-light", "reward", 4, ["move"], folded=["starter"], tree_order="worst", toured=True
    )
    write_preferences(path, wanted)
    assert read_preferences(path) == wanted
    assert [each.name for each in path.parent.iterdir()] == ["app.json"]


async def test_a_directory_that_cant_be_written_stops_nothing(
    opened: Opener, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file, no directory")
    async with opened(user=User.load(tmp_path, tmp_path / "taken")) as pilot:
        before = pilot.app.theme
        await pilot.press("t", "o")
        assert pilot.app.theme != before


async def test_nothing_is_remembered_of_nobody(opened: Opener, tmp_path: Path) -> None:
    async with opened() as pilot:
        await pilot.press("t", "o", "1")
    assert read_preferences(tmp_path / "state/tbtui/app.json") == Preferences(toured=True)
