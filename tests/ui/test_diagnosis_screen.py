"""The diagnosis on the screen: findings, the trials behind them, the setting that is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.pilot import Pilot

from tbtui.config import RunConfig
from tbtui.journal.commands import RUN
from tbtui.journal.events import StepFinished, StepStarted
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.show_run import live_effect, make_settings
from tbtui.ui.application import TbtuiApp
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.diagnosis import ESTIMATED, DiagnosisScreen
from tbtui.ui.screens.dialogs import ConfirmDialog
from tbtui.ui.services import Services
from tests.cli.test_whatif import start, train
from tests.ui.opening import SimulatedHost, app_of, pane, press, replaying, screen_of
from tests.ui.picture import PastHost, settle
from tests.ui.styled_text import StyledTextExtension, styled_text
from tests.ui.synthetic import START


async def diagnosed(pilot: Pilot[int]) -> None:
    await settle(app_of(pilot))
    await press(pilot, "D")
    assert isinstance(app_of(pilot).screen, DiagnosisScreen)


def app_on(host: PastHost, now: float = START + 40.0, **more: Any) -> TbtuiApp:
    services = Services(live_effect=live_effect, **more)
    return TbtuiApp(host, services, live=False, clock=lambda: now)


@pytest.mark.parametrize("size", [(160, 45), (60, 16)])
async def test_findings_with_number_limit_and_setting(
    run_directory: RunDirectory, size: tuple[int, int]
) -> None:
    async with app_on(PastHost(run_directory)).run_test(size=size) as pilot:
        await diagnosed(pilot)
        assert "stragglers" in pane(pilot, "findings").text
        detail = " ".join(pane(pilot, "finding").text.split())
        for words in (
            "measured",
            "threshold 30% of step time",
            "cause",
            "setting step_deadline_sec=",
        ):
            assert words in detail
        first = pane(pilot, "finding").text
        await press(pilot, "j")
        assert pane(pilot, "finding").text != first
        await pilot.press("k", "escape")
        assert isinstance(app_of(pilot).screen, Cockpit)


async def test_enter_shows_the_trials_behind_a_finding_alone(run_directory: RunDirectory) -> None:
    async with app_on(PastHost(run_directory)).run_test(size=(160, 45)) as pilot:
        app = app_of(pilot)
        await diagnosed(pilot)
        await press(pilot, "enter")
        assert isinstance(app.screen, Cockpit)
        wanted = app.listing.filter.only
        assert wanted is not None
        assert wanted.label == "stragglers"
        listed = app.frames.frame().listed
        assert {each.trial for each in listed} == wanted.trials
        await press(pilot, "escape")
        assert not app.listing.filter


async def test_a_live_setting_is_changed_after_a_question(simulated: SimulatedHost) -> None:
    app = app_on(simulated, simulated.simulation.now)
    async with app.run_test(size=(160, 45)) as pilot:
        await diagnosed(pilot)
        screen = screen_of(pilot, DiagnosisScreen)
        remedy = next(e.remedy for e in screen._cursor.findings if e.rule == "stragglers")
        assert remedy is not None
        assert f"sets it now; {live_effect(remedy.setting)}" in " ".join(
            pane(pilot, "finding").text.split()
        )
        await pilot.press("a")
        assert isinstance(app.screen, ConfirmDialog)
        await pilot.press("n")
        assert simulated.commands == []
        await pilot.press("a", "y")
        (command,) = simulated.commands
        assert (command.verb, command.target) == ("set", RUN)
        assert dict(command.arguments) == {remedy.setting: remedy.value}


async def test_of_a_recorded_run_a_setting_is_copied_and_the_clock_goes_on(
    run_directory: RunDirectory,
) -> None:
    app, recorded = replaying(run_directory, services=Services(live_effect=live_effect))
    recorded.playback.go_to(START + 39.0)
    async with app.run_test(size=(80, 24)) as pilot:
        await diagnosed(pilot)
        assert "stragglers" in pane(pilot, "findings").text
        assert "for the next run; a copies it" in pane(pilot, "finding").text
        await pilot.press("a")
        assert app.clipboard.startswith("step_deadline_sec=")
        assert any("next run: step_deadline_sec=" in n.message for n in app._notifications)
        await press(pilot, "circumflex_accent")
        assert "after the first trials" in pane(pilot, "findings").text


async def test_a_proposed_setting_is_tried_on_the_last_recorded_step(tmp_path: Path) -> None:
    config = RunConfig(batch_size=1, group_size=4, loss_fn="ppo")
    directory = RunDirectory.create(tmp_path / "run")
    with JournalWriter(directory) as writer:
        start(writer, config)
        for step in (1, 2, 3):
            writer.append(StepStarted(step=step, groups={}))
            train(writer, step, [[1, 0, 0, 1]], sampled_by=step - 1, config=config)
            metrics = {"optim/neg_logprob": 0.001, "optim/clip_fraction": 0.1}
            writer.append(StepFinished(step=step, weights_version=step, metrics=metrics))
    app = app_on(PastHost(directory), settings=make_settings)
    async with app.run_test(size=(160, 45)) as pilot:
        await diagnosed(pilot)
        screen = screen_of(pilot, DiagnosisScreen)
        for each in screen._cursor.findings:
            if each.rule == "entropy_collapse":
                break
            await pilot.press("j")
        assert "clip_high=0.28" in await previewed(pilot)
        assert "what-if Step 3 with it, as recorded:" in await previewed(pilot)


async def test_a_setting_that_changes_rollouts_says_that_it_is_estimated(
    run_directory: RunDirectory,
) -> None:
    app = app_on(PastHost(run_directory), settings=make_settings)
    async with app.run_test(size=(160, 45)) as pilot:
        await diagnosed(pilot)
        detail = await previewed(pilot)
        assert "setting step_deadline_sec=" in detail
        assert ESTIMATED in detail


async def previewed(pilot: Pilot[int]) -> str:
    """The chosen finding in full, with what its setting leads to."""
    app = app_of(pilot)
    await settle(app)
    if trying := [each for each in app.workers if each.name == "what-if"]:
        await app.workers.wait_for_complete(trying)
    await settle(app)
    return " ".join(pane(pilot, "finding").text.split())


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=["80x24", "160x45"])
async def test_picture(
    run_directory: RunDirectory, size: tuple[int, int], snapshot: SnapshotAssertion
) -> None:
    async with app_on(PastHost(run_directory)).run_test(size=size) as pilot:
        await diagnosed(pilot)
        assert styled_text(app_of(pilot)) == snapshot(extension_class=StyledTextExtension)
