"""A policy on somebody else's server: what is known of its queue, and what it thinks."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from textual.app import App

from tbtui.journal.rundir import RunDirectory
from tbtui.ui.panes.bars import StatusLine, Summary
from tbtui.ui.panes.pane import Pane
from tbtui.ui.panes.queue import QueuePane
from tbtui.ui.panes.turns import TurnPane
from tests.ui.opening import app_of
from tests.ui.picture import settle
from tests.ui.synthetic import START, write_run

if TYPE_CHECKING:
    from tests.ui.opening import Opener


class Watch:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return START + self.now


async def test_a_pause_has_a_glyph_a_word_a_reason_and_a_growing_age(
    opened: Opener, served_run: RunDirectory
) -> None:
    watch = Watch(39.0)
    async with opened(directory=served_run, clock=watch) as pilot:
        text = pilot.app.screen.query_one(QueuePane).text
        first, *rest = text.splitlines()
        assert first.split() == ["‖", "paused:", "no", "capacity", "0:11"]
        assert rest[0].split() == ["Qwen/Qwen3-8B:", "all", "sampler"]
        assert "prompts cached" in text
        assert "waiting for the server, paused: no capacity (11s)" in _line(pilot.app, StatusLine)
        watch.now = 49.0
        await settle(app_of(pilot))
        assert "0:21" in pilot.app.screen.query_one(QueuePane).text.splitlines()[0]
        assert "(21s)" in _line(pilot.app, StatusLine)


async def test_no_tokens_come_from_a_server_that_stands_still(
    opened: Opener, served_run: RunDirectory
) -> None:
    async with opened(directory=served_run, clock=Watch(80.0)) as pilot:
        row = next(
            line
            for line in pilot.app.screen.query_one(QueuePane).text.splitlines()
            if line.startswith(" sampling")
        )
        assert row.split() == ["sampling", "0", "tokens/s"]


async def test_what_has_been_spent_is_told(opened: Opener, served_run: RunDirectory) -> None:
    async with opened(directory=served_run, clock=Watch(80.0)) as pilot:
        rows = [line.split() for line in pilot.app.screen.query_one(QueuePane).text.splitlines()]
        assert ["prompt", "tokens", "412k"] in rows
        assert ["sampled", "tokens", "18k"] in rows
        assert next(row for row in rows if row[:1] == ["spent"])[1] == "$0.063"


async def test_a_cost_that_nobody_can_tell_is_said_to_be_unknown(
    opened: Opener, tmp_path: Path
) -> None:
    run = write_run(tmp_path / "unpriced", 80.0, policy="tinker").run
    with sqlite3.connect(run.database) as db:
        for seq, body in db.execute("SELECT seq, body FROM events").fetchall():
            event = json.loads(body)
            if metrics := event.get("metrics"):
                event["metrics"] = {n: v for n, v in metrics.items() if not n.startswith("cost/")}
                db.execute("UPDATE events SET body = ? WHERE seq = ?", (json.dumps(event), seq))
    db.close()
    async with opened(directory=run, clock=Watch(80.0)) as pilot:
        rows = [line.split() for line in pilot.app.screen.query_one(QueuePane).text.splitlines()]
        assert ["cost", "unknown:", "no", "prices"] in rows
        assert not any(row[:1] == ["spent"] for row in rows)


async def test_an_active_server_is_told_in_a_small_window(opened: Opener, tmp_path: Path) -> None:
    run = write_run(tmp_path / "active", 24.0, policy="tinker").run
    async with opened((80, 24), directory=run, clock=Watch(24.0)) as pilot:
        assert "● active" in _line(pilot.app, Summary)
        assert "in flight" in _line(pilot.app, Summary)
        await pilot.press("5")
        await settle(app_of(pilot))
        text = pilot.app.screen.query_one(QueuePane).text
        assert "forward_backward" in text
        assert "position" not in text
        assert "ETA" not in text


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_a_lost_policy_is_seen(opened: Opener, tmp_path: Path, size: tuple[int, int]) -> None:
    run = write_run(tmp_path / "lost", 38.0, policy="tinker", policy_lost_at=33.0).run
    async with opened(size, directory=run, clock=Watch(38.0)) as pilot:
        status = _line(pilot.app, StatusLine)
        assert "the lost policy; a new one in 25s" in status
        if size[0] == 80:
            assert "! policy lost" in _line(pilot.app, Summary)
        else:
            text = pilot.app.screen.query_one(QueuePane).text
            assert "! policy lost" in text
            assert "… a new one in 25s" in text


async def test_thinking_is_folded_and_can_be_opened(
    opened: Opener, served_run: RunDirectory
) -> None:
    async with opened(directory=served_run, clock=Watch(39.0)) as pilot:
        await pilot.press("right", "right", "enter")
        await settle(app_of(pilot))
        turns = pilot.app.screen.query_one(TurnPane)
        assert "┊ … 4 more rows of thinking  o opens" in turns.text
        assert "Good." not in turns.text
        assert turns.text.index("let me look") < turns.text.index("declares the task complete")
        await pilot.press("o")
        await settle(app_of(pilot))
        assert "┊ Good." in turns.text
        assert "more rows of thinking" not in turns.text
        assert "67% cached" in turns.text


def _line(app: App[Any], pane: type[Pane]) -> str:
    return app.screen.query_one(pane).text
