"""A group's siblings side by side: where they part, and what each adds to the gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.journal.commands import Command
from tbtui.journal.events import StepStarted, TrialScore
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.ui.panes.siblings import SiblingsPane
from tbtui.ui.panes.turns import TurnPane
from tbtui.ui.screens.cockpit import Cockpit
from tbtui.ui.screens.group import GroupScreen
from tbtui.ui.screens.trial import TrialScreen
from tests.events import group_scored, run_started, trial_finished, trial_queued
from tests.ui.group_run import START, write_group_run
from tests.ui.opening import Opener, Steered, app_of, pane, press, screen_of
from tests.ui.picture import settle

pytestmark = pytest.mark.slow

LATER = {"clock": lambda: START + 60.0}


@pytest.fixture(scope="module")
def parting(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return write_group_run(tmp_path_factory.mktemp("runs") / "parting")


def write_screened_run(path: Path) -> RunDirectory:
    """Its group of eight has ended with the three trials that it began with."""
    run = RunDirectory.create(path)
    trials = [f"g-{index}" for index in (1, 2, 3)]
    with JournalWriter(run, clock=lambda: START) as writer:
        writer.append(run_started(settings={"group_size": 8, "screen_trials": 3}))
        writer.append(StepStarted(step=1, groups={"g": "copy-03"}))
        for trial in trials:
            writer.append(trial_queued(trial, task="copy-03", group="g"))
            writer.append(trial_finished(trial, 0.0))
        scores = {trial: TrialScore(reward=0.0, advantage=0.0, tokens=5) for trial in trials}
        figures = {"task": "copy-03", "disposition": "constant", "baseline": 0.0}
        writer.append(group_scored("g", scores, **figures))
    return run


@pytest.mark.parametrize(
    ("size", "words"),
    [((80, 24), "5 not begun"), ((160, 45), "rewards equal: the other 5 were not begun")],
)
async def test_a_group_that_ended_at_its_screen_says_what_was_not_begun(
    opened: Opener, tmp_path: Path, size: tuple[int, int], words: str
) -> None:
    run = write_screened_run(tmp_path / "run")
    async with opened(size, directory=run, **LATER) as pilot:
        await press(pilot, "g")
        assert f"· {words} " in pane(pilot, "head").text


async def test_g_opens_the_group_and_two_siblings_fit_a_small_window(
    opened: Opener, parting: RunDirectory
) -> None:
    async with opened((80, 24), directory=parting, **LATER) as pilot:
        await press(pilot, "right", "g")
        assert isinstance(pilot.app.screen, GroupScreen)
        assert pilot.app.screen.trial == "copy-03-2"
        heads = pane(pilot, "heads").text
        assert "copy-03/1" in heads
        assert "copy-03/2" in heads
        assert "copy-03/3" not in heads
        siblings = pane(pilot, "siblings")
        assert "siblings 1–2 of 7 · they diverge at turn 1" in str(siblings.border_title)
        await press(pilot, "right", "right")
        assert "copy-03/4" in pane(pilot, "heads").text
        assert "copy-03/2" not in pane(pilot, "heads").text


async def test_where_they_part_is_marked_down_to_the_token(
    opened: Opener, parting: RunDirectory
) -> None:
    async with opened((80, 40), directory=parting, **LATER) as pilot:
        await press(pilot, "g", "n")
        spread = pilot.app.screen.query_one(SiblingsPane).spread
        # The sixth does at once what the others do after a look.
        assert (spread.turn, spread.chosen) == (0, 5)
        await press(pilot, "n")
        # The third moves what most of the others copy: the plans differ in their first word.
        assert (spread.turn, spread.chosen) == (1, 2)
        assert '≠ token 8 …{"plan": "Move p .61' in pane(pilot, "siblings").text
        await press(pilot, "n", "n")
        # The fourth does the same as the first two, and the terminal answers something else.
        assert (spread.turn, spread.chosen) == (2, 3)
        assert "≠ different answer" in pane(pilot, "siblings").text


async def test_an_answer_without_a_plan_is_said_once(opened: Opener, tmp_path: Path) -> None:
    run = write_group_run(tmp_path / "run", plans=False)
    async with opened((160, 40), directory=run, **LATER) as pilot:
        await press(pilot, "g")
        first, rest = pane(pilot, "siblings").text.split("\n", 1)
        assert first.count("A prompt and two names.") == 4
        assert "A prompt and two names." not in rest.split("ls", 1)[0]


async def test_the_foot_goes_from_reward_to_the_share_of_the_steps_gradient(
    opened: Opener, parting: RunDirectory
) -> None:
    async with opened((300, 40), directory=parting, **LATER) as pilot:
        await press(pilot, "g")
        foot = pane(pilot, "foot").text
        assert "reward 1.0 - baseline .56" in foot
        assert "advantage +0.44 × 300 tok" in foot
        assert "advantage -0.56 × 200 tok" in foot
        # 300 x .4375 of all that pulls: (300 + 100) .4375 + 200 .5625 + 400 .3125 + 200 .5.
        assert "25.6% of gradient" in foot
        assert "80% of the step's gradient" in pane(pilot, "head").text
        # Those left out are struck through, with the reason.
        assert "! not in the group: infrastructure" in foot
        assert "worker 1 was killed (signal 9)" in foot
        assert "⊘ not in the group: masked" in foot
        assert "⊘ not in the group: excluded" in foot
        assert "it read the solution" in foot
        struck = {
            segment.text
            for line in range(1)
            for segment in pane(pilot, "heads").render_line(line)
            if segment.style is not None and segment.style.strike
        }
        assert struck == {"copy-03/4", "copy-03/5", "copy-03/6"}


async def test_before_the_group_is_scored_it_says_so(opened: Opener, tmp_path: Path) -> None:
    run = write_group_run(tmp_path / "unscored", scored=False)
    async with opened((80, 24), directory=run, **LATER) as pilot:
        await press(pilot, "g")
        assert "more once the group is scored" in pane(pilot, "foot").text
        assert "gradient" not in pane(pilot, "head").text


async def test_enter_opens_the_trial_at_that_turn_and_esc_goes_back(
    opened: Opener, parting: RunDirectory
) -> None:
    async with opened((120, 40), directory=parting, **LATER) as pilot:
        await press(pilot, "g", "right", "right", "down", "enter")
        screen = screen_of(pilot, TrialScreen)
        assert screen.trial == "copy-03-3"
        turns = screen.query_one(TurnPane)
        assert turns.transcript.turns[turns.chosen].turn == 2
        assert not turns.follow
        # Back to the same group, however often.
        await press(pilot, "g", "enter", "g")
        assert isinstance(pilot.app.screen, GroupScreen)
        assert pilot.app.screen.trial == "copy-03-3"
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, Cockpit)


async def test_steering_keys_are_meant_for_the_chosen_sibling(steered: Steered) -> None:
    async with steered((80, 24)) as (pilot, simulated):
        await press(pilot, "g", "right")
        screen = screen_of(pilot, GroupScreen)
        await press(pilot, "e", "enter")
        command = simulated.commands[-1]
        assert (command.verb, command.target) == ("exclude", screen.trial)
        assert "excluded" in pane(pilot, "foot").text


async def test_a_retried_sibling_keeps_its_place_and_stays_chosen(steered: Steered) -> None:
    async with steered((80, 24)) as (pilot, simulated):
        await press(pilot, "g", "right")
        screen = screen_of(pilot, GroupScreen)
        names = list(screen.query_one(SiblingsPane).spread.names)
        simulated.submit(Command("retry", screen.trial))
        await settle(app_of(pilot))
        simulated.advance(5.0)
        await settle(app_of(pilot))
        spread = screen.query_one(SiblingsPane).spread
        assert spread.names == [names[0], f"{names[1]}-a2", *names[2:]]
        assert screen.trial == spread.names[spread.chosen] == f"{names[1]}-a2"
