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
from tbtui.ui.application import TbtuiApp
from tbtui.ui.runs import ReplayedRun
from tbtui.ui.screens.settings import SettingDialog, SettingsScreen
from tbtui.ui.services import RecordedRun, Services
from tests.cli.test_whatif import start, train
from tests.ui.opening import Opener, app_of, pane
from tests.ui.picture import PastHost, settle
from tests.ui.test_jump import idle

SERVICES = Services(settings=make_settings)


@asynccontextmanager
async def settings(opened: Opener, name: str = "", **options: object) -> AsyncIterator[Pilot[int]]:
    async with opened(services=SERVICES, **options) as pilot:
        app_of(pilot).show_settings(name)
        await idle(pilot)
        await settle(app_of(pilot))
        yield pilot


async def change(pilot: Pilot[int], text: str) -> None:
    """Write a value into the dialog of the chosen setting."""
    await pilot.press("enter")
    await pilot.pause()
    dialog = pilot.app.screen
    assert isinstance(dialog, SettingDialog)
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
        await pilot.press("a")
        await settle(app)
        listed = pane(pilot, "settings-list").text
        assert all(name in listed for name in live)
        assert "learning_rate" not in listed
        await pilot.press("a", "slash", *"advantage")
        await settle(app)
        listed = pane(pilot, "settings-list").text
        assert "normalize_advantages_by_std" in listed
        assert "max_steps" not in listed
        await pilot.press("escape")
        await settle(app)
        assert "max_steps" in pane(pilot, "settings-list").text
        await pilot.press("escape")
        assert not isinstance(app.screen, SettingsScreen)


async def test_a_live_setting_is_changed_with_the_engines_own_command(opened: Opener) -> None:
    async with settings(opened, "eval_every") as pilot:
        await change(pilot, "7")
        host = app_of(pilot).own.host
        assert isinstance(host, PastHost)
        (command,) = host.commands
        assert (command.verb, command.target, command.arguments) == (
            "set",
            "run",
            {"eval_every": 7},
        )


async def test_a_value_that_cant_be_used_is_refused_where_it_is_written(opened: Opener) -> None:
    async with settings(opened, "eval_every") as pilot:
        await change(pilot, "often")
        assert isinstance(pilot.app.screen, SettingDialog)
        assert "eval_every=often: should be a whole number" in said(pilot, "#problem")
        host = app_of(pilot).own.host
        assert isinstance(host, PastHost)
        assert host.commands == []


@pytest.mark.parametrize(
    ("name", "command"),
    [("n_concurrent_trials", "--resume"), ("learning_rate", "config.toml learning_rate=")],
)
async def test_what_cant_change_now_gives_the_command_that_starts_with_it(
    opened: Opener, name: str, command: str
) -> None:
    entries = {each.name: each for each in make_settings().entries}
    if name not in entries:
        name = next(e.name for e in entries.values() if not (e.live or e.fixed or e.choices))
    async with settings(opened, name) as pilot:
        value = "0.001" if name == "learning_rate" else "3"
        await change(pilot, value)
        assert command in pilot.app.clipboard
        assert f"{name}={value}" in pilot.app.clipboard


async def test_a_recorded_run_changes_nothing(run_directory: RunDirectory) -> None:
    app = TbtuiApp(
        RecordedRun(run_directory), SERVICES, recorded=ReplayedRun(run_directory), live=False
    )
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await settle(app)
        app.show_settings("eval_every")
        await idle(pilot)
        await settle(app)
        assert "change   now" not in pane(pilot, "setting").text
        await pilot.press("enter")
        assert "recorded run" in said(pilot, "#when")


async def test_what_another_value_leads_to_is_shown(tmp_path: Path) -> None:
    config = RunConfig(batch_size=1, group_size=4)
    directory = RunDirectory.create(tmp_path / "run")
    with JournalWriter(directory) as writer:
        start(writer, config)
        train(writer, 1, [[1, 0, 0, 1]], sampled_by=0, config=config)
    app = TbtuiApp(RecordedRun(directory), SERVICES, recorded=ReplayedRun(directory), live=False)
    async with app.run_test(size=(160, 45), notifications=True) as pilot:
        await settle(app)
        app.show_settings("advantage")
        await idle(pilot)
        await settle(app)
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
