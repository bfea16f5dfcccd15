"""The control socket of a live run: who gets in, what is understood, and what no client can do."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tbtui.engines.control import server
from tbtui.engines.control.address import bind, connect
from tbtui.engines.control.client import ControlClient, ControlError
from tbtui.engines.control.protocol import (
    MAX_LINE,
    VERSION,
    ControlsChanged,
    Ended,
    Hello,
    Refused,
    encode,
    read_answer,
)
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import CommandDone, CommandIssued, RunFinished, TurnSampled
from tbtui.journal.rundir import RunDirectory, live_runs
from tbtui.paths import state_dir
from tests.waiting import until

from .bench import LiveRun, Viewer
from .conftest import Begin

pytestmark = pytest.mark.uid


async def raw(run: LiveRun) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = connect(run.directory.control_socket)
    return await asyncio.open_unix_connection(sock=connection)


async def last_answer(reader: asyncio.StreamReader) -> Refused:
    """What it says before it hangs up."""
    async with asyncio.timeout(20):
        lines = (await reader.read()).splitlines()
    answer = read_answer(lines[-1])
    assert isinstance(answer, Refused)
    return answer


async def is_well(run: LiveRun) -> None:
    """Its trials go on, and it answers."""
    turns = len(run.events(TurnSampled))
    client, _ = await ControlClient.open(run.directory)
    await client.ask(Command("resume", RUN))
    client.close()
    await until(lambda: len(run.events(TurnSampled)) > turns)


# Where it is


async def test_it_is_there_while_the_run_is_and_for_its_user_alone(live: LiveRun) -> None:
    path = live.directory.control_socket
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert live_runs() == [live.directory]
    _, welcome = await ControlClient.open(live.directory)
    assert (welcome.run, welcome.pid, welcome.holder) == ("r", os.getpid(), "")
    await live.stop()
    assert not path.exists()
    assert live_runs() == []
    with pytest.raises(
        ControlError, match=r"not live; to look at it: .*; to go on with it: tbtui run --resume"
    ):
        await ControlClient.open(live.directory)


async def test_a_long_path_is_no_obstacle(begin: Begin, tmp_path: Path) -> None:
    name = "/".join(["a" * 80, "b" * 80, "r"])
    (tmp_path / "runs" / name).parent.mkdir(parents=True)
    run = await begin(name)
    assert len(str(run.directory.control_socket)) > 200
    await is_well(run)


async def test_what_a_killed_run_has_left_is_replaced(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "runs" / "r")
    bind(run.directory.control_socket).close()
    link = state_dir() / "live" / f"{2**22 + 1}-r"  # no process has that number
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(run.directory.path)
    await run.begin()
    await is_well(run)
    assert live_runs() == [run.directory]
    await run.stop()
    assert live_runs() == []
    assert not link.is_symlink()


async def test_a_live_runs_socket_is_never_replaced(begin: Begin) -> None:
    live = await begin()
    path = live.directory.control_socket
    before = path.stat().st_ino
    end = await LiveRun(live.directory).run.run()
    assert end.status == "failed"
    assert "this run is live (process" in end.reason
    assert path.stat().st_ino == before
    await is_well(live)


async def test_a_directory_that_takes_no_socket_costs_the_run_only_that(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("tbtui.engines.control.run.bind", refuse)
    run = await begin()
    with pytest.raises(ControlError, match="can't be reached"):
        await ControlClient.open(run.directory)


# Who gets in


@pytest.mark.parametrize("name", ["rule:fine", "timeout"])
async def test_nobody_goes_by_the_name_of_what_is_no_person(live: LiveRun, name: str) -> None:
    """A resumed run tells people's decisions from those of its rules by their names."""
    reader, writer = await raw(live)
    writer.write(encode(Hello(VERSION, name)))
    assert f"{name} is no person's name" in (await last_answer(reader)).reason
    writer.close()


@pytest.mark.linux
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_another_user_is_turned_away(live: LiveRun) -> None:
    live.directory.path.chmod(0o755)
    live.directory.control_socket.chmod(0o666)
    program = (
        "import os, socket, sys\n"
        f"os.chdir({str(live.directory.path)!r})\n"
        "os.seteuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect('control.sock')\n"
        "s.sendall(b'{}\\n')\n"
        "print(s.recv(1000).decode())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert json.loads(out) == {"is": "refused", "id": "", "reason": "this run is of user 0"}


async def test_there_is_an_end_to_how_many_get_in(
    live: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CLIENTS", 3)
    viewers = [await Viewer.join(live.directory, f"v{n}") for n in range(3)]
    with pytest.raises(ControlError, match="3 others are connected already"):
        await ControlClient.open(live.directory)
    viewers[0].leave()
    await until(lambda: len(live.run._server._connections) == 2)
    await is_well(live)


async def test_another_version_is_told_so(live: LiveRun) -> None:
    reader, writer = await raw(live)
    writer.write(encode(Hello(VERSION + 1)))
    reason = (await last_answer(reader)).reason
    assert reason == f"this run speaks version 1 of the control protocol, not {VERSION + 1}"


# What no client can do


NOT_UNDERSTOOD = (
    b"\xff\xfe\x00garbage",
    b"{}",
    b"[" * 20_000,
    b'{"do":"ask","id":"1","verb":"explode","target":"run"}',
    b'{"do":"ask","id":"1","verb":"pause","target":"' + b"x" * 2000 + b'"}',
    b'{"do":"ask","id":"1","verb":"pause","target":"run","arguments":[1]}',
    b'{"do":"ask","id":"1","verb":"pause","target":"run","command":"\\u001b[2J"}',
)


async def test_what_is_not_understood_ends_the_connection_and_nothing_else(live: LiveRun) -> None:
    for line in NOT_UNDERSTOOD:
        reader, writer = await raw(live)
        writer.write(encode(Hello(VERSION)) + line + b"\n")
        assert (await last_answer(reader)).reason.startswith("not understood: "), line
    assert live.events(CommandIssued) == []
    await is_well(live)


async def test_a_line_without_end_is_cut_off(live: LiveRun) -> None:
    _, writer = await raw(live)
    writer.write(encode(Hello(VERSION)))
    sent = 0
    with pytest.raises(ConnectionError):
        while sent < 100_000_000:
            writer.write(b"x" * 1_000_000)
            sent += 1_000_000
            await writer.drain()
    assert sent < 10_000_000
    await is_well(live)


async def test_one_that_never_reads_is_cut_off(
    live: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PATIENCE_SEC", 0.2)
    monkeypatch.setattr(server, "_PACE_SEC", 0.0)
    connection = connect(live.directory.control_socket)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, encode(Hello(VERSION)))
    with pytest.raises(ConnectionError):
        for number in range(100_000):
            line = b'{"do":"take","id":"' + b"%060d" % number + b'"}\n'
            async with asyncio.timeout(20):
                await loop.sock_sendall(connection, line)
    connection.close()
    await is_well(live)


async def test_one_that_says_nothing_is_let_go(
    live: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PATIENCE_SEC", 0.1)
    reader, _ = await raw(live)
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    await is_well(live)


# What is asked


async def test_a_command_is_journalled_with_who_and_why(live: LiveRun) -> None:
    client, _ = await ControlClient.open(live.directory, "ada")
    # A byte of the command line that is no UTF-8 is one of these to Python.
    number = await client.ask(Command("pause", RUN, actor="mallory", reason="lunch\udcff"))
    (issued,) = live.events(CommandIssued)
    assert (issued.command, issued.actor, issued.reason) == (number, "ada", "lunch?")
    (done,) = live.events(CommandDone)
    assert (done.command, done.ok) == (number, True)


async def test_a_run_is_stopped_with_the_reason_for_its_end(live: LiveRun) -> None:
    viewer = await Viewer.join(live.directory, "bob")
    client, _ = await ControlClient.open(live.directory, "ada")
    await client.ask(Command("stop", RUN, reason="too dear"))
    end = await live.end()
    assert (end.status, end.reason) == ("interrupted", "stopped by ada: too dear")
    await viewer.hears(Ended("interrupted", "stopped by ada: too dear"))
    await until(lambda: viewer.gone)
    (finished,) = live.events(RunFinished)
    assert finished.reason == "stopped by ada: too dear"
    assert [done.ok for done in live.events(CommandDone)] == [True]


# One hand on the controls


async def test_the_first_viewer_has_the_controls_until_another_takes_them(live: LiveRun) -> None:
    ada, bob = [await Viewer.join(live.directory, name) for name in ("ada", "bob")]
    pause, resume = Command("pause", RUN), Command("resume", RUN)
    # Nobody has them: a viewer asks for them first.
    number = ada.client.send(pause)
    await ada.hears(Refused(number, "nobody has the controls"))
    ada.client.send_take(if_free=True)
    await ada.hears(ControlsChanged("ada", yours=True, exclusive=False))
    await bob.hears(ControlsChanged("ada", yours=False, exclusive=False))
    bob.client.send_take(if_free=True)
    number = bob.client.send(pause)
    await bob.hears(Refused(number, "ada has the controls"))
    bob.client.send_take(reason="my turn")
    await ada.hears(ControlsChanged("bob", yours=False, exclusive=False, reason="my turn"))
    number = ada.client.send(pause)
    await ada.hears(Refused(number, "bob has the controls"))
    # A script needs none.
    script, welcome = await ControlClient.open(live.directory, "cron")
    assert (welcome.holder, welcome.yours) == ("bob", False)
    await script.ask(pause)
    bob.client.send_take(exclusive=True)
    await ada.hears(ControlsChanged("bob", yours=False, exclusive=True))
    with pytest.raises(ControlError, match="bob has the controls for itself"):
        await script.ask(resume)
    # Who leaves lets go of them.
    bob.leave()
    await ada.hears(ControlsChanged("", yours=False, exclusive=False))
    await script.ask(resume)
    taken = [(e.actor, e.reason) for e in live.events(CommandIssued) if e.verb == "take"]
    assert taken == [("ada", ""), ("bob", "my turn"), ("bob", "")]
    results = [done.result for done in live.events(CommandDone) if "controls" in done.result]
    assert results[:2] == ["ada has the controls", "bob has the controls; ada had them"]
    script.close()
    ada.leave()


async def test_the_app_that_runs_the_run_has_them_first(begin: Begin) -> None:
    run = await begin(owner="root")
    bob = await Viewer.join(run.directory, "bob")
    assert (bob.welcome.holder, run.run.read_only) == ("root", "")
    bob.client.send_take()
    await until(lambda: run.run.read_only == "bob has the controls")
    run.run.submit(Command("pause", RUN))
    assert [e.verb for e in run.events(CommandIssued)] == ["take"]
    run.run.take_controls()
    await bob.hears(ControlsChanged("root", yours=False, exclusive=False))
    run.run.submit(Command("pause", RUN))
    assert [e.verb for e in run.events(CommandIssued)] == ["take", "take", "pause"]
    bob.leave()


def test_a_message_is_a_line_that_a_person_can_write() -> None:
    assert encode(Hello(1, "ada")) == b'{"do":"hello","version":1,"name":"ada","viewer":false}\n'
    assert MAX_LINE == 65536
    assert RunDirectory(Path("/r")).control_socket == Path("/r/control.sock")
