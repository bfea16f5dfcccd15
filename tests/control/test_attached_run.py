"""The app's end of a control socket: joining a live run, steering it, handing over, leaving."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tbtui.commands.attach import RemoteRun, remote_place
from tbtui.engines.control.client import AttachedRun
from tbtui.errors import UserError
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CommandDone, CommandIssued
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.app import TbtuiApp
from tests.waiting import until

from .bench import LiveRun
from .conftest import Begin

pytestmark = pytest.mark.uid

Join = Callable[..., Awaitable[AttachedRun]]


@pytest.fixture
async def join() -> AsyncIterator[Join]:
    joined: list[AttachedRun] = []

    async def join(directory: RunDirectory, name: str, **how: bool) -> AttachedRun:
        host = AttachedRun(directory, name, **how)
        joined.append(host)
        host.start()
        await until(lambda: host.read_only != "joining the run")
        return host

    yield join
    for host in joined:
        host.interrupt()
        async with asyncio.timeout(20):
            await host.ended()


async def test_who_joins_first_steers_and_leaving_leaves_the_run(live: LiveRun, join: Join) -> None:
    ada = await join(live.directory, "ada")
    assert (ada.read_only, ada.outlives) == ("", True)
    command = Command("pause", RUN, actor="somebody", reason="lunch")
    ada.submit(command)
    await until(lambda: len(live.events(CommandDone)) == 2)
    issued = live.events(CommandIssued)[-1]
    # The app finds the answer by the number that it gave.
    assert (issued.command, issued.actor, issued.reason) == (command.id, "ada", "lunch")
    ada.interrupt()
    ada.interrupt()
    end = await ada.ended()
    assert (end.status, end.reason) == ("interrupted", "detached; the run goes on")
    await until(lambda: "ada" not in live.run.read_only)
    bob = await join(live.directory, "bob")
    assert bob.read_only == ""
    await live.stop()
    assert (await bob.ended()).reason == "everything is cleaned up"


async def test_a_second_one_looks_until_it_takes_the_controls(begin: Begin, join: Join) -> None:
    live = await begin(owner="me")
    ada = await join(live.directory, "ada")
    assert ada.read_only == "me has the controls"
    ada.submit(Command("pause", RUN))
    ada.take_controls()
    await until(lambda: ada.read_only == "")
    assert live.run.read_only == "ada has the controls"
    bob = await join(live.directory, "bob", take=False)
    assert bob.read_only == "ada has the controls"
    eve = await join(live.directory, "eve", exclusive=True)
    await until(lambda: ada.read_only == bob.read_only == "eve has the controls")
    await until(lambda: eve.read_only == "")
    assert [(e.verb, e.actor) for e in live.events(CommandIssued)] == [
        ("take", "ada"),
        ("take", "eve"),
    ]


async def test_with_nobody_at_the_controls_one_may_only_look(live: LiveRun, join: Join) -> None:
    bob = await join(live.directory, "bob", take=False)
    assert bob.read_only == "nobody has the controls"
    bob.take_controls()
    await until(lambda: bob.read_only == "")


@pytest.mark.slow
async def test_a_run_that_is_killed_is_told_so(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "r")
    program = (
        "import asyncio, os, sys\n"
        "from tbtui.engines.control.run import ControlledRun\n"
        "from tbtui.journal.rundir import RunDirectory, RunLock\n"
        "class Endless:\n"
        "    def submit(self, command): os.kill(os.getpid(), 9)\n"
        "    async def run(self):\n"
        "        with RunLock(directory):\n"
        "            print('live', flush=True)\n"
        "            await asyncio.sleep(100)\n"
        f"directory = RunDirectory({directory.path!r})\n".replace(
            "PosixPath", "__import__('pathlib').Path"
        )
        + "asyncio.run(ControlledRun(Endless(), directory).run())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    host = AttachedRun(directory, "ada", take=False)
    host.start()
    await until(lambda: host.read_only == "nobody has the controls")
    process.kill()
    await process.wait()
    end = await host.ended()
    assert end.status == "failed"
    assert end.reason == "the run's process is gone"  # it has recorded nothing to go on from
    # Nobody is there any more: the same at once, and not a hang.
    host = AttachedRun(directory, "ada")
    host.start()
    end = await host.ended()
    assert end.reason == f"r is not live; to look at it: tbtui replay {directory.path}"


@pytest.mark.slow
async def test_the_app_steers_a_run_of_another_process(begin: Begin, join: Join) -> None:
    live = await begin()
    app = TbtuiApp(AttachedRun(live.directory, "ada"))
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(lambda: app.own.host.read_only == "" and app.live_run.state.trials)
        await pilot.press("P")
        await until(lambda: app.live_run.state.paused)
        bob = await join(live.directory, "bob", take=False)
        bob.take_controls()
        await until(lambda: app.own.host.read_only == "bob has the controls")
        await until(lambda: any("C takes" in str(t.message) for t in app._notifications))
        await pilot.press("P")
        await until(lambda: any("Read-only" in str(t.message) for t in app._notifications))
        await pilot.press("C")
        await until(lambda: bob.read_only == "ada has the controls")
        await until(lambda: app.own.host.read_only == "")
        await pilot.press("P")
        await until(lambda: not app.live_run.state.paused)
        await pilot.press("q")
    assert app.return_value == 0
    verbs = [(e.verb, e.actor) for e in live.events(CommandIssued)]
    assert verbs == [
        ("take", "ada"),
        ("pause", "ada"),
        ("take", "bob"),
        ("take", "ada"),
        ("resume", "ada"),
    ]


# Behind ssh


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ssh://box/srv/runs/a", RemoteRun("box", None, "/srv/runs/a")),
        ("ssh://ann@box:2222/srv/a", RemoteRun("ann@box", 2222, "/srv/a")),
        ("ssh://box/~/runs/a", RemoteRun("box", None, "~/runs/a")),
        ("ssh://box", RemoteRun("box", None, "")),
        ("box:a", RemoteRun("box", None, "a")),
        ("ann@box:/srv/runs/a", RemoteRun("ann@box", None, "/srv/runs/a")),
        ("runs/a", None),
        ("/srv/odd:name", None),
        ("a", None),
    ],
)
def test_a_run_on_another_machine_is_told_from_one_here(text: str, place: RemoteRun | None) -> None:
    assert remote_place(text) == place


@pytest.mark.parametrize("text", ["ssh://h:99999/x", "ssh://h:x/r", "ssh://[/r"])
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(UserError, match="write it as ssh://HOST:PORT/RUN"):
        remote_place(text)


@pytest.mark.slow
def test_the_app_runs_beside_the_run_through_ssh(tmp_path: Path) -> None:
    """With a stand-in for ssh that only says what it was asked."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nfor each in "$@"; do echo "<$each>"; done\n')
    ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
    path = f"{ssh.parent}:{os.environ['PATH']}"

    def attach(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tbtui", "attach", *arguments],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )

    asked = attach(
        "ssh://ann@box:2222/~/my runs/a", "--look", "--name", "ada", "--command", "uvx tbtui"
    )
    assert asked.returncode == 0
    assert asked.stdout.splitlines() == [
        *("<-t>", "<-p>", "<2222>", "<-->", "<ann@box>"),
        "<uvx tbtui attach --look --name ada -- '~/my runs/a'>",
    ]
    refused = attach("ssh://-oProxyCommand=x/a")
    assert refused.returncode == 2
    assert refused.stderr == "tbtui: '-oProxyCommand=x' is no host\n"
