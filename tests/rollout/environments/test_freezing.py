"""Processes stopped and let go by signals, in a real sandbox as in any other environment."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.models.task.config import EnvironmentConfig, TaskOS
from harbor.models.trial.paths import TrialPaths

from tbtui.rollout import held_sandbox
from tbtui.rollout.environments.sandbox import SandboxEnvironment

pytestmark = pytest.mark.uid

Way = Callable[[BaseEnvironment], Awaitable[None]]
STATES = """
for process in /proc/[0-9]*; do
    name=$(cat $process/comm 2>/dev/null) || continue
    case $name in sleep|bash|tmux*) echo $(sed -n 's/^State:.//p' $process/status) "$name" ;; esac
done
"""


@asynccontextmanager
async def environment(folder: Path, **config: Any) -> AsyncIterator[BaseEnvironment]:
    definition = folder / "environment"
    definition.mkdir()
    (definition / "Dockerfile").write_text("FROM debian:12\n")
    sandbox = SandboxEnvironment(
        environment_dir=definition,
        environment_name="freezing",
        session_id="freezing__env",
        trial_paths=TrialPaths(folder / "trial"),
        task_env_config=EnvironmentConfig(**config),
    )
    await sandbox.start(force_build=False)
    try:
        yield sandbox
    finally:
        await sandbox.stop(delete=True)


async def said(sandbox: BaseEnvironment, command: str) -> str:
    result = await sandbox.exec(command)
    assert result.return_code == 0, result
    return result.stdout or ""


async def states(sandbox: BaseEnvironment, name: str) -> list[str]:
    lines = [line.split() for line in (await said(sandbox, STATES)).splitlines()]
    # One that ended meanwhile has a name and no state.
    return [line[0] for line in lines if len(line) > 2 and line[2].startswith(name)]


async def shown(sandbox: BaseEnvironment, text: str) -> str:
    while text not in (pane := await said(sandbox, "tmux capture-pane -p")):
        pass
    return pane


# The sandbox's own way, and the one for environments that have none.
both_ways = pytest.mark.parametrize(
    ("freeze", "thaw"),
    [
        pytest.param(held_sandbox.freeze, held_sandbox.thaw, id="own"),
        pytest.param(held_sandbox.freeze_by_signals, held_sandbox.thaw_by_signals, id="signals"),
    ],
)


@both_ways
async def test_everything_stops_and_goes_on(tmp_path: Path, freeze: Way, thaw: Way) -> None:
    async with environment(tmp_path) as sandbox:
        await said(sandbox, "tmux new-session -d -x 80 -y 24 'exec bash --norc -i'")
        await said(sandbox, 'tmux send-keys \'echo be""gun; sleep 1000; echo inter""rupted\' Enter')
        await shown(sandbox, "begun")
        # The shell has said so before it starts the next command.
        while set(await states(sandbox, "sleep")) != {"S"}:
            pass
        await freeze(sandbox)
        await freeze(sandbox)
        # One on another core takes a moment to notice.
        while {*await states(sandbox, "sleep"), *await states(sandbox, "tmux")} != {"T"}:
            pass
        await thaw(sandbox)
        await thaw(sandbox)
        assert set(await states(sandbox, "sleep")) == {"S"}
        assert "T" not in await states(sandbox, "tmux")
        # The shell waits on, as if nothing had been: no prompt, no `Stopped`.
        await said(sandbox, "tmux send-keys C-c")
        pane = await shown(sandbox, "^C")
        assert "Stopped" not in pane and "interrupted" not in pane


@both_ways
async def test_what_was_stopped_before_stays_stopped(
    tmp_path: Path, freeze: Way, thaw: Way
) -> None:
    async with environment(tmp_path) as sandbox:
        await said(
            sandbox,
            "nohup sleep 1000 >/dev/null 2>&1 & "
            "until [ $(cat /proc/$!/comm) = sleep ]; do :; done; kill -STOP $!",
        )
        while await states(sandbox, "sleep") != ["T"]:
            pass
        await said(sandbox, "nohup bash -c 'while :; do :; done' >/dev/null 2>&1 &")
        for _ in range(2):
            await freeze(sandbox)
            await freeze(sandbox)
            await thaw(sandbox)
            assert await states(sandbox, "sleep") == ["T"]
            assert "T" not in await states(sandbox, "bash")
        await thaw(sandbox)
        assert await states(sandbox, "sleep") == ["T"]


@pytest.mark.slow
@pytest.mark.starves
async def test_all_of_a_family_that_keeps_forking(tmp_path: Path) -> None:
    async with environment(tmp_path) as sandbox:
        grow = "for i in 1 2 3 4 5 6 7 8; do (while :; do sleep 0.001; done) & done; wait"
        await said(sandbox, f"nohup setsid bash -c '{grow}' >/dev/null 2>&1 &")
        while len(await states(sandbox, "bash")) < 9:
            pass
        await held_sandbox.freeze_by_signals(sandbox)
        frozen = await said(sandbox, "cat /proc/[0-9]*/stat | cut -d' ' -f1,3 | grep ' T'")
        assert frozen == await said(sandbox, "cat /proc/[0-9]*/stat | cut -d' ' -f1,3 | grep ' T'")
        assert frozen.count("\n") >= 9
        await held_sandbox.thaw_by_signals(sandbox)
        assert "T" not in await states(sandbox, "sleep")


@pytest.mark.skipif(os.geteuid() != 0, reason="one user only in an ordinary user's box")
async def test_where_it_is_impossible_the_reason_is_one_line(tmp_path: Path) -> None:
    async with environment(tmp_path) as sandbox:
        await said(sandbox, "nohup sleep 1000 >/dev/null 2>&1 &")
        while not await states(sandbox, "sleep"):
            pass
        ordinary = as_if_without_root(sandbox)
        with pytest.raises(held_sandbox.FreezeUnsupported, match="run as root") as caught:
            await held_sandbox.freeze_by_signals(ordinary)
        assert "\n" not in str(caught.value)
        assert "T" not in await states(sandbox, "sleep")
    windows: Any = SimpleNamespace(task_env_config=EnvironmentConfig(os=TaskOS.WINDOWS))
    with pytest.raises(held_sandbox.FreezeUnsupported, match="Windows"):
        await held_sandbox.freeze_by_signals(windows)


def as_if_without_root(sandbox: BaseEnvironment) -> Any:
    """What a service does that runs every command as its one ordinary user."""

    async def run(command: str, user: str | None = None, **options: Any) -> ExecResult:
        return await sandbox.exec(command, user="nobody", **options)

    return SimpleNamespace(exec=run, task_env_config=sandbox.task_env_config)


async def test_an_environment_with_a_way_of_its_own_is_asked() -> None:
    class OwnWay:
        def __init__(self) -> None:
            self.asked: list[str] = []

        async def freeze(self) -> None:
            self.asked.append("freeze")

        async def thaw(self) -> None:
            self.asked.append("thaw")

    own: Any = OwnWay()
    await held_sandbox.freeze(own)
    await held_sandbox.thaw(own)
    assert own.asked == ["freeze", "thaw"]
