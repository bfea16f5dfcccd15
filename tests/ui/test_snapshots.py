"""Pictures of the screens; `pytest tests/ui --snapshot-update` after a wanted change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from picture import settle
from synthetic import START
from textual.pilot import Pilot

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp


@pytest.mark.parametrize("theme", ["tbtui-dark", "tbtui-light"])
@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=["80x24", "200x60"])
@pytest.mark.parametrize("keys", [(), ("right", "right", "enter")], ids=["cockpit", "trial"])
def test_screens_look_as_they_did(
    snap_compare: Callable[..., bool],
    past_app: Callable[..., TbtuiApp],
    keys: tuple[str, ...],
    size: tuple[int, int],
    theme: str,
) -> None:
    app = past_app(theme=theme)

    async def prepare(pilot: Pilot[Any]) -> None:
        await settle(app)
        for key in keys:
            await pilot.press(key)
            await settle(app)
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=prepare)


@pytest.mark.parametrize("theme", ["tbtui-dark", "tbtui-light"])
@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=["80x24", "200x60"])
@pytest.mark.parametrize(
    "keys", [(), ("5",), ("right", "right", "enter")], ids=["cockpit", "queue", "trial"]
)
def test_a_policy_on_a_server_looks_as_it_did(
    snap_compare: Callable[..., bool],
    past_app: Callable[..., TbtuiApp],
    served_run: RunDirectory,
    keys: tuple[str, ...],
    size: tuple[int, int],
    theme: str,
) -> None:
    app = past_app(served_run, theme=theme, clock=lambda: START + 39.0)

    async def prepare(pilot: Pilot[Any]) -> None:
        await settle(app)
        for key in keys:
            await pilot.press(key)
            await settle(app)
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=prepare)
