"""Pictures of the cockpit's panes in full, filtered and in order, from small to large windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from tbtui.ui.application import TbtuiApp
from tests.ui.picture import settle

pytestmark = pytest.mark.slow

SIZES = [
    pytest.param((80, 24), id="80x24"),
    pytest.param((120, 40), id="120x40", marks=pytest.mark.slow),
    pytest.param((200, 55), id="200x55", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "keys",
    [("4",), ("slash", *"failed"), ("6", "down", "0", "o")],
    ids=["curves", "filter", "bar-by-state"],
)
def test_the_cockpit_looks_as_it_did(
    snap_compare: Callable[..., bool],
    past_app: Callable[..., TbtuiApp],
    keys: tuple[str, ...],
    size: tuple[int, int],
) -> None:
    app = past_app()

    async def prepare(pilot: Pilot[Any]) -> None:
        await settle(app)
        for key in keys:
            await pilot.press(key)
        await settle(app)
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=prepare)


@pytest.mark.parametrize("keys", [("1", "right"), ("6",)], ids=["tasks", "step"])
def test_a_small_window_looks_as_it_did(
    snap_compare: Callable[..., bool],
    past_app: Callable[..., TbtuiApp],
    keys: tuple[str, ...],
) -> None:
    app = past_app()

    async def prepare(pilot: Pilot[Any]) -> None:
        await settle(app)
        for key in keys:
            await pilot.press(key)
        await settle(app)
        await pilot.pause()

    assert snap_compare(app, terminal_size=(80, 24), run_before=prepare)
