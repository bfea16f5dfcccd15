"""A run in a tab: a real server, real viewers, and the socket that its page opens."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import psutil
import pytest

from tbtui.journal.rundir import RunDirectory
from tbtui.serve.server import SESSIONS
from tests.ui.synthetic import START, Simulation, write_run
from tests.waiting import wait_until

from .serving import PATIENCE_SEC, Serving, Tab, environment_of, gone

Serve = Callable[..., Serving]

_BREAKS_ON_Z = """
import sys
if "tbtui.serve.viewer" in sys.orig_argv:
    from textual.app import App

    class Breaking:
        handled = App.on_event

        async def on_event(self, event):
            if getattr(event, "key", "") == "z":
                raise ValueError("\\x1b[2J")
            await Breaking.handled(self, event)

    App.on_event = Breaking.on_event
"""
"""Python runs it before the viewer."""


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    # It keeps cookies of bare addresses too, as browsers do.
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


@pytest.mark.slow
async def test_a_live_run_is_followed_and_nothing_steers_it(
    client: aiohttp.ClientSession, serving: Serve, live_run: Simulation
) -> None:
    server = serving(live_run.run, OPENAI_API_KEY="sk-not-for-viewers")
    tab = await Tab.open(client, server)
    await tab.until(lambda text: "step 1 of" in text and "trials · " in text)
    (viewer,) = server.viewers()
    assert "sk-not-for-viewers" not in environment_of(viewer)
    database = live_run.run.database
    before = database.read_bytes(), database.with_name("run.db-wal").read_bytes()
    for key in (" ", "P", "x", "i", "C"):
        await tab.press(key)
    await tab.until(lambda text: "Read-only: " in text)
    for key in ("R", "T"):
        await tab.press(key)
    await tab.until(lambda text: "Not available here: " in text)
    assert "runs" not in tab.text.splitlines()[-1]
    await tab.press("?")
    await tab.until(lambda text: "everywhere" in text)
    await tab.press("\x1b")
    assert (database.read_bytes(), database.with_name("run.db-wal").read_bytes()) == before
    live_run.advance(START + 40.0)
    await tab.until(lambda text: "step 2 of" in text)
    await tab.socket.close()
    assert await asyncio.to_thread(gone, [viewer])


async def test_only_the_page_itself_is_answered(
    client: aiohttp.ClientSession, serving: Serve, past_run: RunDirectory
) -> None:
    server = serving(past_run, "--public-url", "https://runs.example.org/tbtui")
    port = server.url.rstrip("/").rpartition(":")[2]

    token = {"Authorization": f"Bearer {server.token}"}

    async def status(path: str = "", **headers: str) -> int:
        async with client.get(server.url + path, headers=token | headers) as answer:
            return answer.status

    assert await status() == 200
    assert await status(Host=f"localhost:{port}") == 200
    assert await status(Host="runs.example.org") == 200
    assert await status("download/x") == 404
    assert await status("static/") == 403
    assert not server.viewers()
    async with client.get(server.url, headers=token) as answer:
        text, policy = await answer.text(), answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "//" not in text, "it has an address of another server"


@pytest.mark.slow
async def test_ctrl_c_ends_every_viewer_and_tells_the_tabs(
    client: aiohttp.ClientSession, server: Serving
) -> None:
    tabs = [await Tab.open(client, server) for _ in range(SESSIONS)]
    one_more = await Tab.open(client, server)
    assert "8 tabs show this run already" in await one_more.closed()
    await tabs[0].until(lambda text: "replay past" in text)
    await tabs[1].until(lambda text: "replay past" in text)
    await tabs[1].socket.send_str("[" * 5000)
    await tabs[1].socket.send_json(["resize", {"width": 10**9, "height": -1}])
    await tabs[1].socket.send_json(["deliver", {}])
    await tabs[1].socket.send_json(["resize", {"width": 120, "height": 40}])
    await tabs[1].press("?")
    await tabs[1].until(lambda text: "the guide" in text)
    viewers = server.viewers()
    assert len(viewers) == SESSIONS
    # One has left: there is room again.
    await tabs.pop().socket.close()
    wait_until(lambda: len(server.viewers()) == SESSIONS - 1)
    tabs.append(await Tab.open(client, server))
    await tabs[-1].until(lambda text: "replay past" in text)
    ended = asyncio.create_task(asyncio.to_thread(server.end))
    assert await tabs[0].closed() == "tbtui serve has ended."
    assert await ended == 0
    assert await asyncio.to_thread(gone, viewers)


@pytest.mark.slow
async def test_q_leaves_and_a_server_that_is_killed_leaves_no_viewer(
    client: aiohttp.ClientSession, server: Serving
) -> None:
    left, stays = await Tab.open(client, server), await Tab.open(client, server)
    await left.until(lambda text: "replay past" in text)
    await stays.until(lambda text: "replay past" in text)
    await left.press("q")
    assert await left.closed() == "You have left."
    wait_until(lambda: len(server.viewers()) == 1)
    viewers = server.viewers()
    server.process.kill()
    assert await asyncio.to_thread(gone, viewers)


@pytest.mark.slow
async def test_a_viewer_that_reads_nothing_more_is_still_ended(
    client: aiohttp.ClientSession, serving: Serve, live_run: Simulation
) -> None:
    server = serving(live_run.run)
    tab = await Tab.open(client, server)
    await tab.until(lambda text: "step 1 of" in text)
    (viewer,) = server.viewers()
    psutil.Process(viewer.pid).suspend()  # it can't be asked to end either
    for _ in range(50):
        await tab.press("x" * 30_000)  # more than fits in its pipe
    await tab.socket.close()
    assert await asyncio.to_thread(gone, [viewer])


@pytest.mark.slow
async def test_tabs_that_take_nothing_do_not_keep_the_server(
    client: aiohttp.ClientSession, server: Serving
) -> None:
    tab = await Tab.open(client, server)
    await tab.until(lambda text: "replay past" in text)
    # Nothing is received from here on: what is drawn backs up into the server.
    for wider in range(400):
        size = {"width": 200 + wider % 100, "height": 60 + wider % 40}
        await tab.socket.send_json(["resize", size])
    with socket.create_connection(("127.0.0.1", urlsplit(server.url).port)) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        question = (
            "GET /static/js/textual.js HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {server.token}\r\n\r\n"
        )
        stalled.sendall(question.encode() * 12)
        stalled.recv(1)
        assert await asyncio.to_thread(server.end) == 0
    assert not server.viewers()


@pytest.mark.slow
async def test_a_tab_that_comes_while_the_server_ends(
    client: aiohttp.ClientSession, server: Serving
) -> None:
    tab = await Tab.open(client, server)
    await tab.until(lambda text: "replay past" in text)
    for viewer in server.viewers():
        viewer.suspend()  # it takes its time
    server.process.send_signal(signal.SIGINT)
    assert await tab.closed() == "tbtui serve has ended."
    with suppress(aiohttp.ClientConnectionError):  # it may have ended by now
        late = await Tab.open(client, server)
        assert await late.closed() == "tbtui serve has ended."
    assert await asyncio.to_thread(server.process.wait, PATIENCE_SEC) == 0


@pytest.mark.slow
async def test_a_viewer_that_breaks_is_told_of_on_both_sides(
    client: aiohttp.ClientSession, serving: Serve, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_BREAKS_ON_Z)
    run = write_run(tmp_path / "run", 10.0).run
    path = os.pathsep.join([str(tmp_path), *sys.path])
    server = serving(run, PYTHONPATH=path)
    killed, breaks = await Tab.open(client, server), await Tab.open(client, server)
    await killed.until(lambda text: "replay run" in text)
    await breaks.until(lambda text: "replay run" in text)
    await breaks.press("z")
    assert await breaks.closed() == "The viewer broke; tbtui serve says why."
    wait_until(lambda: len(server.viewers()) == 1)
    server.viewers()[0].kill()
    assert await killed.closed() == "The viewer broke; tbtui serve says why."
    run.database.unlink()
    never = await Tab.open(client, server)
    assert await never.closed() == "The viewer broke; tbtui serve says why."
    process = psutil.Process(server.process.pid)
    process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds() + 2,) * 2)
    not_started = await Tab.open(client, server)
    assert await not_started.closed() == "A viewer can't be started; tbtui serve says why."
    assert server.end() == 0
    crash, signalled, unreadable, no_files = server.complaints()
    assert crash == "tbtui: a viewer broke (ValueError: ␛[2J)"
    assert signalled == "tbtui: a viewer broke (by SIGKILL)"
    assert "can't be shown" in unreadable
    assert no_files == "tbtui: a viewer can't be started (Too many open files)"
