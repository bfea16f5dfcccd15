"""Connections that say nothing: to a run's control socket, and to `tbtui serve`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from tbtui.cli import app
from tbtui.engines.control.address import connect
from tbtui.engines.control.client import ControlClient
from tbtui.engines.control.server import MOST_CLIENTS
from tbtui.journal.commands import RUN, Command
from tbtui.journal.rundir import RunDirectory
from tests.control.bench import LiveRun
from tests.serve.conftest import past_run as past_run
from tests.serve.serving import Serving

PATIENCE_SEC = 60


@pytest.mark.slow
async def test_a_thousand_silent_connections_take_few_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = LiveRun(tmp_path / "r")
    await run.begin()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  names are enough
    silent: list[socket.socket] = []
    most = 0
    try:
        for _ in range(1000):
            # On a thread: it waits where many wait already.
            silent.append(await asyncio.to_thread(connect, run.directory.control_socket))
            theirs = len(os.listdir("/proc/self/fd")) - before - len(silent)  # noqa: PTH208
            most = max(most, theirs)
        # Whoever has something to say is heard all the same.
        async with asyncio.timeout(PATIENCE_SEC):
            client, _ = await ControlClient.open(run.directory)
            await client.ask(Command("resume", RUN))
        client.close()
        assert most <= 2 * MOST_CLIENTS
    finally:
        for each in silent:
            each.close()
        await run.stop()


@pytest.mark.slow
def test_half_a_request_is_not_waited_for(past_run: RunDirectory) -> None:
    server = Serving.start(past_run)
    port = int(server.url.rpartition(":")[2].strip("/"))
    halves: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        stack.callback(server.end)
        for _ in range(600):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            half.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            halves.append(half)
        process = psutil.Process(server.process.pid)
        deadline = time.monotonic() + PATIENCE_SEC
        while (left := len(process.net_connections("tcp"))) > 80:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
        # All of them, in the end.
        while (left := len(process.net_connections("tcp"))) > 1:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
        with socket.create_connection(("127.0.0.1", port)) as whole:
            whole.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert whole.recv(100).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    "place",
    ["host:-x", "ssh://host/~-x", "-oProxyCommand=x:run", "me@-oProxyCommand=x:run",
     "ssh://-oProxyCommand=x/run"],
)  # fmt: skip
def test_no_option_is_passed_on_through_ssh(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def become(_: str, words: list[str]) -> None:
        raise Replaced(words)

    monkeypatch.setattr(os, "execvp", become)
    result = CliRunner().invoke(app, ["attach", "--", place])
    if isinstance(result.exception, Replaced):
        words = result.exception.args[0]
        assert words[words.index("--") + 1] == "host"
        assert words[-1].split() == ["tbtui", "attach", "--", "'~-x'"]
    else:
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1


class Replaced(Exception):
    """The process would have become another program."""
