"""Settings that change while a run goes on: through the real engine, to the end of the run."""

from __future__ import annotations

from pathlib import Path

from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CheckpointSaved, EvalFinished, PolicyLost, RunContinued
from tests.engines.test_policy_lost import Fate, night


async def test_a_run_ends_at_its_new_last_step_and_evaluates_as_often_as_asked(
    tmp_path: Path,
) -> None:
    run = night(tmp_path / "run", Fate(), max_steps=9, eval_every=0, save_every=0)
    changes = {"max_steps": 2, "eval_every": 1, "save_every": 1}
    run.run.submit(Command("set", RUN, arguments=changes))
    end = await run.run.run()
    assert end.reason.startswith("2 steps")
    assert [event.step for event in run.events(EvalFinished)] == [0, 1, 2]
    assert [event.step for event in run.events(CheckpointSaved)][-2:] == [1, 2]


async def test_they_outlast_the_loss_of_the_policy(tmp_path: Path) -> None:
    run = night(tmp_path / "run", Fate(frozenset({("apply", 2)})), max_steps=9, save_every=1)
    run.run.submit(Command("set", RUN, arguments={"max_steps": 3}))
    assert (await run.run.run()).reason.startswith("3 steps")
    assert len(run.events(PolicyLost)) == 1
    (continued,) = run.events(RunContinued)
    assert continued.settings["max_steps"] == 3
    assert "max_steps = 3" in run.whole.directory.config.read_text()
