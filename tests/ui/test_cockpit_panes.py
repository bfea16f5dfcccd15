"""What the cockpit's panes say of what is rare, and as the run goes on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot

from tbtui.journal.events import (
    AnyEvent,
    RunPhase,
    RunPhaseChanged,
    SettingsChanged,
    StepFinished,
    StepStarted,
    TrialPhase,
    TrialPhaseChanged,
    TrialScore,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.application import TbtuiApp
from tbtui.ui.notifications import title
from tbtui.ui.panes.grid import TrialGrid
from tbtui.ui.screens.help import HelpDialog
from tbtui.ui.theme.glyphs import LEGEND, SUSPECT_MARK, trial_glyph
from tbtui.ui.user import User, read_preferences
from tests.events import (
    eval_finished,
    group_scored,
    run_started,
    sample_record,
    trial_finished,
    trial_queued,
    turn_sampled,
)
from tests.ui.opening import Opener, SimulatedHost, Steered, app_of, pane, press, window, write_on
from tests.ui.picture import settle
from tests.ui.synthetic import START, Simulation

SECONDS = 40.0
"""What the run that all tests of screens share is long."""


@pytest.fixture
def run(run_directory: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A run that may be written on."""
    return RunDirectory(shutil.copytree(run_directory.path, tmp_path / "run"))


@pytest.fixture
def odd_run(run: RunDirectory) -> RunDirectory:
    """A run without a last step; of its second step two groups taught nothing, and trials start."""
    with closing(JournalReader(run)) as reader:
        trials = sorted(reader.live_trials(reader.last_seq()))
    states = [TrialPhase.SETUP] * 3 + [TrialPhase.VERIFYING]
    scored = [
        group_scored(
            f"g{number}",
            {"t": TrialScore(reward=reward, advantage=advantage, tokens=9)},
            step=2,
            disposition=disposition,
            baseline=0.5,
        )
        for number, (disposition, reward, advantage) in enumerate(
            [("constant", 1.0, 0.0), ("trained", 1.0, 0.5), ("short", None, None)]
        )
    ]
    metrics = {"optim/kl_sample_train_v2": 4e-14, "optim/neg_logprob": 0.3}
    write_on(
        run,
        SECONDS,
        SettingsChanged(before={"max_steps": 6}, settings={"max_steps": None}),
        *(
            TrialPhaseChanged(trial=trial, phase=phase)
            for trial, phase in zip(trials, states, strict=False)
        ),
        *scored,
        StepFinished(step=2, weights_version=2, metrics=metrics),
    )
    return run


async def test_what_is_rare_is_told_truly(opened: Opener, odd_run: RunDirectory) -> None:
    clock = START + SECONDS + 9
    async with opened((140, 45), directory=odd_run, clock=lambda: clock) as pilot:
        state = app_of(pilot).live_run.state
        assert "step 2 · sampling" in pane(pilot, "status").text
        assert title(state, "").startswith(f"tbtui {state.run}: step 2, ")
        (sandboxes,) = [row for row in pane(pilot, "queue").text.splitlines() if "sandb" in row]
        assert sandboxes.split() == ["sandboxes", "3◌", "·", "13"]
        timeline = pane(pilot, "timeline").text
        assert " =2 " in timeline
        # Of both steps in sight: four groups of step 1, three of step 2.
        assert "= groups without signal 2/7" in timeline
        (kl,) = [row for row in pane(pilot, "curve").text.splitlines() if row.startswith(" KL")]
        assert kl.split()[:2] == ["KL", ".00"]
        assert "◌" in pane(pilot, "trials").text
        palette = app_of(pilot).palette
        verified = [t for t in state.live_trials() if t.phase is TrialPhase.VERIFYING]
        assert [trial_glyph(each, palette).char for each in verified] == ["▞"]
        await pilot.resize_terminal(80, 24)
        await settle(app_of(pilot))
        assert "of 0" not in pane(pilot, "summary").text
        assert "/0" not in pane(pilot, "summary").text


def test_every_mark_means_one_thing() -> None:
    marks = [mark for mark, _ in LEGEND]
    assert len(set(marks)) == len(marks)
    assert SUSPECT_MARK not in marks


async def test_an_evaluation_alone_changes_the_held_out_column(
    opened: Opener, run: RunDirectory
) -> None:
    async with opened(directory=run) as pilot:
        assert "◇.31" not in pane(pilot, "tasks").text
        write_on(run, SECONDS, eval_finished(1, 0.31, by_kind={"copy": 0.31}))
        app_of(pilot).tick()
        await settle(app_of(pilot))
        (copy,) = [row for row in pane(pilot, "tasks").text.splitlines() if "copy" in row]
        assert ".31" in copy


async def test_staleness_is_shown_where_there_is_any(
    steered: Steered, simulated: SimulatedHost
) -> None:
    simulated.simulation._write(
        StepFinished(step=1, weights_version=1, metrics={"async/staleness_max": 2.0})
    )
    async with steered((200, 60)) as (pilot, _):
        assert "stale 2" in pane(pilot, "curve").text
        await pilot.resize_terminal(80, 24)
        await settle(app_of(pilot))
        assert "stale 2" in pane(pilot, "summary").text


async def test_two_steps_under_way_are_told_apart(opened: Opener, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "ahead")
    write_on(run, 0.0, *_sampled_ahead())
    async with opened((200, 60), directory=run) as pilot:
        assert "step 1 of 2 · sampling 1/2 · ahead 1/2" in pane(pilot, "status").text
        title = str(pane(pilot, "trials").border_title)
        assert title == "trials · 2 running · step 1 1/2 · step 2 1/2"
        assert "what step 1 waits for" in str(pane(pilot, "times").border_title)


def _sampled_ahead() -> Iterator[AnyEvent]:
    """Two steps of one group of two each; the first trial of each has ended."""
    yield run_started(run="ahead", tasks_dir="/tasks/starter", settings={"max_steps": 2})
    for step in (1, 2):
        yield StepStarted(step=step, groups={f"g{step}": "copy-01"})
    yield RunPhaseChanged(phase=RunPhase.SAMPLING, step=0)
    for step in (1, 2):
        for number in (1, 2):
            trial = f"g{step}-{number}"
            yield trial_queued(trial, label=f"copy-01/{number}", group=f"g{step}", step=step)
            yield TrialPhaseChanged(trial=trial, phase=TrialPhase.ACTING)
    for step in (2, 1):
        yield trial_finished(f"g{step}-1", 1.0)


@pytest.mark.slow
async def test_terminals_go_on_under_a_dialog(steered: Steered) -> None:
    async with steered((200, 60)) as (pilot, simulated):
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


@pytest.mark.slow
async def test_tokens_are_of_the_turn_that_they_were_sampled_in(steered: Steered) -> None:
    async with steered((200, 60)) as (pilot, simulated):
        app = app_of(pilot)
        trials = [app.live_run.state.trials[each] for each in simulated.simulation.acting()]
        trial = next(each for each in trials if each.samples)
        app.selection.choose(trial.trial)
        # The agent asks for a summary of its history within its turn.
        sample = simulated.simulation._writer.add_sample(
            sample_record(trial.trial, ("so far",), turn=trial.turn, summary=True)
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


_NAME = re.compile(r".(\s*[▾▸◇ ]*[\w-]+)")
"""Behind the mark of what is chosen."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SimulatedHost]:
    """A run whose every kind has its first tasks in one data set, the others in another."""
    simulation = Simulation(RunDirectory.create(tmp_path / "two"))
    simulation.tasks = [
        msgspec.structs.replace(task, dataset="starter" if task.name[-1] < "5" else "workshop")
        for task in simulation.tasks
    ]
    simulation.advance(START + 39.0)
    yield SimulatedHost(simulation)
    simulation.close()


def rows(pilot: Pilot[int]) -> list[str]:
    """The names of the tree's rows, with how far in each stands."""
    found = [_NAME.match(line) for line in pane(pilot, "tasks").text.splitlines()]
    return [each[1] for each in found if each is not None]


async def test_data_sets_fold_filter_and_sort(host: SimulatedHost, tmp_path: Path) -> None:
    remembered = tmp_path / "app.json"
    user = User(remembered_in=remembered)
    user.preferences.toured = True
    app = TbtuiApp(host, live=False, clock=lambda: host.simulation.now, user=user)
    async with window(app) as pilot:
        app.screen.query_one("#tasks").focus()
        await pilot.pause()
        shown = rows(pilot)
        assert shown[:3] == ["▾ starter", "  ▸ append", "  ▸ copy"]
        assert shown.count("  ▸ copy") == 2
        assert "▾ workshop" in shown
        # A kind of one data set is opened and chosen, and not its namesake.
        await press(pilot, "down", "down", "right", "enter")
        assert (app.listing.filter.kind, app.listing.filter.dataset) == ("copy", "starter")
        shown = rows(pilot)
        assert "      copy-01" in shown
        assert not [name for name in shown if name.endswith("copy-05")]
        await press(pilot, "up", "up", "space", "enter")
        assert rows(pilot)[:2] == ["▸ starter", "▾ workshop"]
        assert (app.listing.filter.kind, app.listing.filter.dataset) == ("", "starter")
        assert {app.live_run.state.tasks[each.task].dataset for each in listed(pilot)} == {
            "starter"
        }
        await press(pilot, "S")
        assert "lowest pass rate first" in str(pane(pilot, "tasks").border_title)
    kept = read_preferences(remembered)
    assert (kept.folded, kept.unfolded, kept.tree_order) == (["starter"], ["starter/copy"], "worst")


def listed(pilot: Pilot[int]) -> list[object]:
    return list(app_of(pilot).frames.frame().listed)
