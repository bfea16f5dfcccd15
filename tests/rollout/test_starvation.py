"""What a starved machine takes from a trial is not the trial's loss."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tbtui.journal.events import TrialPhase
from tbtui.rollout.budget import Budget, MachineStarvedError, Starvation
from tbtui.rollout.environments.base import SandboxLostError
from tbtui.rollout.environments.cgroups import CgroupHost, find_cgroups
from tbtui.rollout.messages import PhaseEntered, SampleWanted
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import ScriptedEngine, act, make_spec
from tests.tasks import make_task

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


@contextlib.contextmanager
def _crowd() -> Iterator[None]:
    """Twice as many busy loops as there are cores, each a session of its own."""
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(2 * (os.cpu_count() or 1)):
            loop = subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True)
            loops.append(loop)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _starve(trial: str, host: CgroupHost) -> None:
    """Leaves a trial's box little of a machine that others crowd.

    Not by a quota: to wait for one's own limit is not to wait for others, and kernels from 6.18 on
    don't count it.
    """
    (group,) = host.parents["cpu"].glob(f"tbtui-{trial}*")
    name, little = ("cpu.weight", "1") if host.kind == "v2" else ("cpu.shares", "2")
    (group / name).write_text(little)


def _is_teardown(entered: PhaseEntered) -> bool:
    return entered.phase is TrialPhase.TEARDOWN


@pytest.mark.starves
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif("cpu" not in find_cgroups().parents, reason="no control groups")
async def test_a_time_out_on_a_starved_machine_is_none(tmp_path: Path) -> None:
    engine = ScriptedEngine(tmp_path / "logs")
    await engine.pool.start()
    try:
        task = make_task(tmp_path / "task")
        spec = make_spec("starved", task, tmp_path, budget_sec=4.0, max_turns=10_000)
        engine.start(spec, [act("sleep 0.2\n", duration=0.2)])
        await engine.wait_for(spec.trial, SampleWanted, lambda wanted: wanted.turn > 1)
        await asyncio.to_thread(_starve, spec.trial, find_cgroups())
        with _crowd():  # until its agent's end: nothing bounds how long the rest takes beside it
            await engine.wait_for(spec.trial, PhaseEntered, _is_teardown)
        facts = await engine.facts(spec.trial)
        decision = decide(facts)
        assert (decision.outcome, decision.reward) == ("sandbox_lost", None), decision
        # Kept from the CPU for long enough, the box itself is late with its answers.
        assert re.search("the machine was starved|does not answer", decision.reason)
    finally:
        await engine.pool.stop()
