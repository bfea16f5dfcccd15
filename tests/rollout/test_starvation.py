"""What a starved machine takes from a trial is not the trial's loss."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tbtui.rollout.budget import Budget
from tbtui.rollout.environments.cgroups import CgroupHost, find_cgroups
from tbtui.rollout.environments.errors import SandboxLostError
from tbtui.rollout.messages import SampleWanted
from tbtui.rollout.outcome import decide
from tbtui.rollout.starvation import MachineStarvedError, Starvation
from tests.rollout.scripted import ScriptedEngine, act, make_spec, make_task

STAT = "cpu  {user} 0 0 {idle} 0 0 0 {stolen} 0 0\n"


async def test_stolen_time_is_given_back(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(STAT.format(user=100, idle=100, stolen=0))
    budget = Budget(100.0)
    starvation = Starvation(budget, _not_running, stat)
    async with budget.spending():
        stat.write_text(STAT.format(user=190, idle=100, stolen=10))
        await starvation.look(0.0, 10.0)
        assert budget.given_back == 0  # a tenth: a busy host, no starved one
        stat.write_text(STAT.format(user=240, idle=100, stolen=60))
        await starvation.look(0.0, 10.0)
        assert budget.given_back == pytest.approx(5.0)
        await starvation.check()
        stat.write_text(STAT.format(user=240, idle=100, stolen=160))
        await starvation.look(0.0, 30.0)
        with pytest.raises(MachineStarvedError, match="35 s of a budget of 100 s"):
            await starvation.check()


async def _not_running() -> float:
    raise SandboxLostError("the sandbox is not running")


def _throttle(trial: str, host: CgroupHost) -> None:
    """Leaves a trial's box a thousandth of a core."""
    (group,) = host.parents["cpu"].glob(f"tbtui-{trial}*")
    if host.kind == "v2":
        (group / "cpu.max").write_text("1000 1000000")
    else:
        (group / "cpu.cfs_period_us").write_text("1000000")
        (group / "cpu.cfs_quota_us").write_text("1000")


@pytest.mark.slow
@pytest.mark.skipif("cpu" not in find_cgroups().parents, reason="no control groups")
async def test_a_time_out_on_a_starved_machine_is_none(tmp_path: Path) -> None:
    engine = ScriptedEngine(tmp_path / "logs")
    await engine.pool.start()
    try:
        task = make_task(tmp_path / "task")
        spec = make_spec("starved", task, tmp_path, budget_sec=4.0, max_turns=10_000)
        engine.start(spec, [act("sleep 0.2\n", duration=0.2)])
        await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn > 1)
        await asyncio.to_thread(_throttle, spec.trial, find_cgroups())
        decision = decide(await engine.facts(spec.trial))
        assert (decision.outcome, decision.reward) == ("sandbox_lost", None), decision
        # Kept from the CPU for long enough, the box itself is late with its answers.
        assert re.search("machine was starved.* given back|does not answer", decision.reason)
    finally:
        await engine.pool.stop()
