"""A run in a tab: a real server, real viewers, and the socket that its page opens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import aiohttp
import psutil
import pytest

from tbtui.journal.rundir import RunDirectory
from tbtui.serve.server import SESSIONS
from tests.ui.synthetic import START, Simulation

from .serving import Serving, Tab, environment_of, gone, wait_for

Serve = Callable[..., Serving]


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
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
    for key in (" ", "P", "x", "i", "C", "R", "T"):
        await tab.press(key)
    await tab.until(lambda text: "You only look: " in text)
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

    async def status(path: str = "", **headers: str) -> int:
        async with client.get(server.url + path, headers=headers) as answer:
            return answer.status

    assert await status() == 200
    assert await status(Host=f"localhost:{port}") == 200
    assert await status(Host="runs.example.org") == 200
    # A name of somebody else's that points here.
    assert await status(Host=f"evil.example:{port}") == 403
    assert await status("static/js/textual.js", Host="evil.example") == 403
    assert await status(Host="[nonsense") in (400, 403)
    assert await status("download/x") == 404
    assert await status("page/%2e%2e/session.py") in (403, 404)
    assert await status("static/") == 403
    # Another page in the browser of somebody who can reach it.
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{int(port) + 1}"):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(server.socket_url, headers={"Origin": origin})
        assert refused.value.status == 403
    assert not server.viewers()
    async with client.get(server.url) as answer:
        text, policy = await answer.text(), answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "//" not in text, "it has an address of another server"


@pytest.mark.slow
async def test_ctrl_c_ends_every_viewer_and_tells_the_tabs(
    client: aiohttp.ClientSession, serving: Serve, past_run: RunDirectory
) -> None:
    server = serving(past_run)
    tabs = [await Tab.open(client, server) for _ in range(SESSIONS)]
    one_more = await Tab.open(client, server)
    assert "8 tabs show this run already" in await one_more.closed()
    await tabs[0].until(lambda text: "replay past" in text)
    await tabs[1].socket.send_str("[" * 5000)
    await tabs[1].socket.send_json(["resize", {"width": 10**9, "height": -1}])
    await tabs[1].socket.send_json(["deliver", {}])
    await tabs[1].until(lambda text: "replay past" in text)
    viewers = server.viewers()
    assert len(viewers) == SESSIONS
    # One has left: there is room again.
    await tabs.pop().socket.close()
    wait_for(lambda: len(server.viewers()) == SESSIONS - 1)
    tabs.append(await Tab.open(client, server))
    await tabs[-1].until(lambda text: "replay past" in text)
    ended = asyncio.create_task(asyncio.to_thread(server.end))
    assert await tabs[0].closed() == "tbtui serve has ended."
    assert await ended == 0
    assert await asyncio.to_thread(gone, viewers)


@pytest.mark.slow
async def test_q_leaves_and_a_server_that_is_killed_leaves_no_viewer(
    client: aiohttp.ClientSession, serving: Serve, past_run: RunDirectory
) -> None:
    server = serving(past_run)
    left, stays = await Tab.open(client, server), await Tab.open(client, server)
    await left.until(lambda text: "replay past" in text)
    await stays.until(lambda text: "replay past" in text)
    await left.press("q")
    assert await left.closed() == "You have left."
    wait_for(lambda: len(server.viewers()) == 1)
    viewers = server.viewers()
    server.process.kill()
    assert await asyncio.to_thread(gone, viewers)


@pytest.mark.slow
async def test_a_tab_that_reads_nothing_more_is_still_ended(
    client: aiohttp.ClientSession, serving: Serve, live_run: Simulation
) -> None:
    server = serving(live_run.run)
    tab = await Tab.open(client, server)
    await tab.until(lambda text: "step 1 of" in text)
    (viewer,) = server.viewers()
    psutil.Process(viewer.pid).suspend()  # it can't be asked to end either
    await tab.socket.close()
    assert await asyncio.to_thread(gone, [viewer])
