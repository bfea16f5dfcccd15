"""A review of real trials: what is looked for in them is what their agents and verifiers did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.export.record import read_trial
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import GroupScored, ReviewChanged, ReviewOpened
from tbtui.whatif.recorded import read_step

from .conftest import until
from .real_run import RealRun


@pytest.mark.slow
async def test_real_trials_are_reviewed(tmp_path: Path) -> None:
    run = RealRun(tmp_path / "run", review="always")
    await run.begin()
    try:
        run.policy.go.set()
        await until(lambda: run.events(ReviewOpened))
        (group,) = run.events(ReviewOpened)[0].groups
        assert group.disposition == "constant"  # nobody has solved it
        first, second = list(group.trials)[:2]
        reward = {"reward": 1.0}
        assert (await run.asked(Command("relabel", first, "ada", "nearly", reward))).ok
        assert (await run.asked(Command("exclude", second, "ada"))).ok
        assert (await run.asked(Command("accept", RUN, "ada"))).ok
        assert (await run.end()).status == "finished"
    finally:
        await run.stop()
    (scored,) = run.events(GroupScored)
    assert scored.trials == run.events(ReviewChanged)[-1].groups[0].trials
    assert [score.advantage for score in scored.trials.values()] == [0.5, None, -0.5]
    record = read_trial(run.directory, first)
    assert (record.reward, record.advantage) == (1.0, 0.5)
    (recomputed,) = read_step(run.directory, 1).groups
    assert [trial.reward for trial in recomputed.trials] == [1.0, None, 0.0]
