"""Who may read a served run: anyone who has the token of the address that it printed."""

from __future__ import annotations

import socket
from collections.abc import Callable
from http.cookies import Morsel
from urllib.parse import urlsplit

import aiohttp
import pytest

from tbtui.journal.rundir import RunDirectory

from .serving import Serving, Tab, environment_of

Serve = Callable[..., Serving]
FIXED = "correct-horse+battery/staple"


async def status(url: str, **headers: str) -> int:
    """What somebody new gets."""
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client,
        client.get(url, headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status


async def cookie(server: Serving, **headers: str) -> Morsel[str]:
    """What a browser is given that opens the address."""
    async with (
        aiohttp.ClientSession() as client,
        client.get(server.address, headers=headers, allow_redirects=False) as answer,
    ):
        assert (answer.status, answer.headers["Location"]) == (303, "./")
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        (only,) = answer.cookies.values()
        return only


async def test_nobody_is_answered_without_the_token(server: Serving) -> None:
    name = (await cookie(server)).key
    for path in ("", "ws", "page/page.js", "static/js/textual.js", "nowhere"):
        assert await status(server.url + path) == 401
        assert await status(server.url + path, Authorization="Bearer guess") == 401
        assert await status(server.url + path, Cookie=f"{name}=guess") == 401
    for guess in ("", "guess", "%ff", "é", server.token[:-1], server.token + "x"):
        assert await status(f"{server.url}?token={guess}") == 401
    # The cookie isn't the token, lest it let others in when another port's server is sent it.
    assert await status(server.url, Cookie=f"{name}={server.token}") == 401
    assert await status(f"{server.url}ws?token={server.token}") == 401
    async with aiohttp.ClientSession() as client:
        for given in ({}, {"Authorization": "Bearer guess"}, {"Cookie": f"{name}=guess"}):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(server.socket_url, headers=given)
            assert refused.value.status == 401
        async with client.get(server.url) as answer:
            (line,) = (await answer.text()).splitlines()
            assert line.startswith("open the address that tbtui serve printed")
    assert not server.viewers()


@pytest.mark.slow
async def test_a_browser_keeps_a_cookie_of_this_start(
    serving: Serve, past_run: RunDirectory
) -> None:
    server = serving(past_run)
    port = urlsplit(server.url).port
    given = await cookie(server)
    assert given.key.endswith(f"-{port}")
    assert given["httponly"] and given["samesite"] == "Strict" and not given["secure"]
    assert not given["expires"] and not given["max-age"]
    assert server.token not in given.value
    sent = {"Cookie": f"{given.key}={given.value}"}
    for path in ("", "page/page.js", "static/js/textual.js"):
        assert await status(server.url + path, **sent) == 200
    # An old token in a bookmark doesn't stay in the address.
    assert await status(f"{server.url}?token=old", **sent) == 303
    assert server.end() == 0
    again = serving(past_run, "--port", str(port))
    assert again.url == server.url and again.token != server.token
    assert await status(again.url, **sent) == 401
    assert await status(server.address) == 401


async def test_a_script_sends_the_token(server: Serving) -> None:
    headers = {"Authorization": f"bearer {server.token}"}
    assert await status(server.url, **headers) == 200
    async with aiohttp.ClientSession() as client:
        websocket = await client.ws_connect(server.socket_url, headers=headers)
        assert (await websocket.receive()).type is aiohttp.WSMsgType.BINARY
        await websocket.close()


@pytest.mark.slow
async def test_a_token_of_ones_own_outlives_a_start(serving: Serve, past_run: RunDirectory) -> None:
    server = serving(past_run, TBTUI_SERVE_TOKEN=FIXED)
    given = await cookie(server)
    headers = {"Cookie": f"{given.key}={given.value}"}
    assert await status(server.url, Authorization=f"Bearer {FIXED}") == 200
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
        tab = await Tab.open(client, server)
        await tab.until(lambda text: bool(text.strip()))
        (viewer,) = server.viewers()
        assert FIXED not in environment_of(viewer) + " ".join(viewer.cmdline())
    assert server.end() == 0
    again = serving(past_run, "--port", str(urlsplit(server.url).port), TBTUI_SERVE_TOKEN=FIXED)
    assert await status(again.url, **headers) == 200
    # Another server's cookie, though its token is the same.
    other = await cookie(serving(past_run, TBTUI_SERVE_TOKEN=FIXED))
    assert await status(again.url, Cookie=f"{given.key}={other.value}") == 401


async def test_anyone_is_asked_for_no_token(serving: Serve, past_run: RunDirectory) -> None:
    server = serving(past_run, "--anyone")
    assert "token" not in server.said
    assert await status(server.url) == 200
    assert await status(server.url + "?token=old") == 303
    server.end()
    (line,) = server.complaints()
    assert line == "tbtui: no token is asked for: every user of this machine can read this run"


@pytest.mark.slow
async def test_other_machines_are_told_to_come_another_way(
    serving: Serve, past_run: RunDirectory
) -> None:
    server = serving(past_run, "--host", "0.0.0.0")
    port = urlsplit(server.url).port
    assert f"http://{socket.gethostname()}:{port}/?token={server.token} " in server.said
    assert f" or http://127.0.0.1:{port}/?token={server.token} " in server.said
    assert await status(f"http://127.0.0.1:{port}/") == 401
    server.end()
    (line,) = server.complaints()
    assert "plain HTTP" in line and "ssh -L" in line

    server = serving(past_run, "--host", "0.0.0.0", "--anyone")
    server.end()
    (line,) = server.complaints()
    assert "no token is asked for: anyone who reaches 0.0.0.0 can read" in line


@pytest.mark.slow
async def test_behind_a_proxy_with_tls(serving: Serve, past_run: RunDirectory) -> None:
    public = "https://Runs.Example.org:443/tbtui"
    server = serving(past_run, "--host", "0.0.0.0", "--public-url", public)
    assert f" https://runs.example.org/tbtui/?token={server.token} or http://" in server.said
    given = await cookie(server, Host="runs.example.org")
    assert given["secure"]
    assert not given["path"], "neighbours at the proxy would be sent it"
    headers = {"Host": "runs.example.org", "Cookie": f"{given.key}={given.value}"}
    async with aiohttp.ClientSession() as client:
        for origin in ("http://runs.example.org", "https://runs.example.org:8443"):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(server.socket_url, headers=headers | {"Origin": origin})
            assert refused.value.status == 403
        headers["Origin"] = "https://runs.example.org"
        await (await client.ws_connect(server.socket_url, headers=headers)).close()
    assert server.end() == 0
    assert not server.complaints()
