"""The settings of a run in the app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from tbtui.config import RunConfig
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.show_run import make_settings
from tbtui.ui.screens.settings import SettingDialog, SettingsScreen
from tbtui.ui.services import Services
from tests.cli.test_whatif import start, train
from tests.ui.opening import (
    Opener,
    app_of,
    host_of,
    pane,
    press,
    replaying,
    rest,
    screen_of,
    window,
)

SERVICES = Services(settings=make_settings)


@asynccontextmanager
async def settings(opened: Opener, name: str = "", **options: object) -> AsyncIterator[Pilot[int]]:
    async with opened(services=SERVICES, **options) as pilot:
        app_of(pilot).show_settings(name)
        await rest(pilot)
        yield pilot


async def change(pilot: Pilot[int], text: str) -> None:
    """Write a value into the dialog of the chosen setting."""
    await pilot.press("enter")
    await pilot.pause()
    dialog = screen_of(pilot, SettingDialog)
    dialog.query_one(Input).value = text
    await pilot.pause()
    await pilot.press("enter")
    await pilot.pause()


def said(pilot: Pilot[int], id: str) -> str:
    return str(pilot.app.screen.query_one(id, Static).render())


async def test_every_setting_has_a_row_and_says_what_it_means(opened: Opener) -> None:
    async with settings(opened, "n_parallel_envs") as pilot:
        entries = make_settings().entries
        rows = pane(pilot, "settings-list").text
        assert [each.name for each in entries if each.name not in rows] == []
        assert {each.heading for each in entries} <= {row.strip() for row in rows.splitlines()}
        about = " ".join(pane(pilot, "setting").text.split())
        assert "change now; trials that run already end first" in about


async def test_settings_are_found_by_words_and_by_what_can_be_done(opened: Opener) -> None:
    async with settings(opened) as pilot:
        app = app_of(pilot)
        live = {each.name for each in make_settings().entries if each.live}
        await press(pilot, "a")
        listed = pane(pilot, "settings-list").text
        assert all(name in listed for name in live)
        assert "learning_rate" not in listed
        await press(pilot, "a", "slash", *"rloo")
        listed = pane(pilot, "settings-list").text
        assert "advantage" in listed
        assert "max_steps" not in listed
        await press(pilot, "escape")
        assert "max_steps" in pane(pilot, "settings-list").text
        await pilot.press("escape")
        assert not isinstance(app.screen, SettingsScreen)


async def test_a_live_setting_is_changed_with_the_engines_own_command(opened: Opener) -> None:
    async with settings(opened, "eval_every") as pilot:
        await change(pilot, "7")
        (command,) = host_of(pilot).commands
        assert (command.verb, command.target) == ("set", "run")
        assert command.arguments == {"eval_every": 7}


async def test_a_value_that_cant_be_used_is_refused_where_it_is_written(opened: Opener) -> None:
    async with settings(opened, "eval_every") as pilot:
        await change(pilot, "often")
        assert isinstance(pilot.app.screen, SettingDialog)
        assert "eval_every=often: should be a whole number" in said(pilot, "#problem")
        assert host_of(pilot).commands == []


@pytest.mark.parametrize(
    ("name", "value", "command"),
    [("n_epochs", "3", "--resume"), ("learning_rate", "0.001", "config.toml learning_rate=")],
)
async def test_what_cant_change_now_gives_the_command_that_starts_with_it(
    opened: Opener, name: str, value: str, command: str
) -> None:
    async with settings(opened, name) as pilot:
        await change(pilot, value)
        assert command in pilot.app.clipboard
        assert f"{name}={value}" in pilot.app.clipboard


async def test_a_recorded_run_changes_nothing(run_directory: RunDirectory) -> None:
    app, _ = replaying(run_directory, services=SERVICES)
    async with window(app) as pilot:
        app.show_settings("eval_every")
        await rest(pilot)
        assert "change   now" not in pane(pilot, "setting").text
        await pilot.press("enter")
        assert "recorded run" in said(pilot, "#when")


async def test_what_another_value_leads_to_is_shown(tmp_path: Path) -> None:
    config = RunConfig(batch_size=1, group_size=4)
    directory = RunDirectory.create(tmp_path / "run")
    with JournalWriter(directory) as writer:
        start(writer, config)
        train(writer, 1, [[1, 0, 0, 1]], sampled_by=0, config=config)
    app, _ = replaying(directory, services=SERVICES)
    async with window(app) as pilot:
        app.show_settings("advantage")
        await rest(pilot)
        await pilot.press("enter")
        await pilot.pause()
        listed = app.screen.query_one(OptionList)
        listed.highlighted = 1
        for _ in range(300):
            await pilot.pause(0.02)
            if "trials with a gradient" in said(pilot, "#preview"):
                break
        assert "Step 1 with it" in said(pilot, "#preview")
        assert "advantage=std" in said(pilot, "#preview")
