"""The cockpit while the run goes on: what it draws under a dialog, and of whose tokens it tells."""

from __future__ import annotations

import numpy as np
import pytest

from tbtui.journal.samples import SampleRecord
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.screens.help import HelpDialog
from tests.events import turn_sampled
from tests.ui.opening import Opener, SimulatedHost, app_of, pane
from tests.ui.picture import settle

pytestmark = pytest.mark.slow


async def test_terminals_go_on_under_a_dialog(steered: Opener, simulated: SimulatedHost) -> None:
    async with steered((200, 60)) as pilot:
        app = app_of(pilot)
        grid = pilot.app.screen.query_one(TrialGrid)
        trials = simulated.simulation.acting()
        app.selection.choose(trials[0])
        await settle(app)
        # A sibling, whose tile is shown beside the selected one.
        trial = next(each for each in grid.visible_trials() if each in trials[1:])
        await pilot.press("question_mark")
        assert isinstance(pilot.app.screen, HelpDialog)
        simulated.simulation.print_in(trial, "\r\nunder the dialog\r\n")
        await settle(app)
        assert "under the dialog" in grid.text


async def test_tokens_are_of_the_turn_that_they_were_sampled_in(
    steered: Opener, simulated: SimulatedHost
) -> None:
    async with steered((200, 60)) as pilot:
        app = app_of(pilot)
        trials = [app.live_run.state.trials[each] for each in simulated.simulation.acting()]
        trial = next(each for each in trials if each.samples)
        app.selection.choose(trial.trial)
        # The agent asks for a summary of its history within its turn.
        sample = simulated.simulation._writer.add_sample(
            SampleRecord(
                trial=trial.trial,
                turn=trial.turn,
                prompt_ids=(1,),
                completion_ids=(7,),
                logprobs=np.full(1, -0.5, np.float32),
                pieces=("so far",),
                prompt_text="",
                stop_reason="stop",
                weights_version=0,
                temperature=1.0,
                seconds=0.1,
                summary=True,
            )
        )
        simulated.simulation._write(
            turn_sampled(
                trial.trial,
                turn=trial.turn,
                purpose="summarize",
                sample=sample,
                text="so far",
                completion_tokens=1,
            )
        )
        await settle(app)
        assert pane(pilot, "tokens").text.endswith("so far")
        assert f"1 token · turn {trial.turn}" in str(pane(pilot, "tokens").border_title)
