"""One run's session with a Tinker server, from its first request to its end.

The SDK keeps the session alive by itself: it sends a heartbeat every ten seconds from a thread of
its own, whether requests are made or not. So a run that is paused keeps its training client.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tbtui.policies.base import Ended, PolicyError, PolicyRefusedError
from tbtui.policies.meter import RequestMeter
from tbtui.policies.tinker.errors import GATEWAY_STATUSES, sdk_errors, without_key
from tbtui.policies.tinker.hooks import follow_no_redirects, watch_connection
from tbtui.policies.work import in_daemon_thread

if TYPE_CHECKING:
    import tinker

log = logging.getLogger(__name__)

PATIENCE_SEC = 20.0
"""How long a server that can't be reached is waited for. The SDK would wait for minutes, and say
nothing."""
CLOSING_SEC = 5.0
"""How long the server has to take note of the session's end."""
_PROBE_SEC = 5.0
_BETWEEN_PROBES_SEC = 1.0


class TinkerSession:
    """An open session; made by `open_session`."""

    def __init__(self, service: tinker.ServiceClient, rest: tinker.RestClient, address: str):
        self.service = service
        self.rest = rest
        self.address = address
        """The server's, without credentials."""

    async def close(self, ended: Ended) -> None:
        """Report to the server how the run ended and close its connections. Takes `CLOSING_SEC` at
        most, and never fails: what goes wrong is logged."""
        closing = self.service.close(ended)
        try:
            async with asyncio.timeout(CLOSING_SEC):
                with sdk_errors("closing the session", training=False):
                    await closing
        except TimeoutError:
            log.warning("%s: the server hasn't taken note of the session's end", self.address)
        except PolicyError as error:
            log.warning("%s", error)


def server_address(base_url: str | None) -> str:
    """Where the server is, `base_url`, `TINKER_BASE_URL` or the hosted service, as a person may
    see it: credentials and parameters left out.

    Raises:
        PolicyRefusedError: it is no address of a server.
    """
    from tinker.lib.base_url import resolve_base_url

    url = urlsplit(address := resolve_base_url(base_url))
    host = url.netloc.rpartition("@")[2]
    if url.scheme not in ("http", "https") or not host:
        setting = "TINKER_BASE_URL" if base_url is None else "tinker_base_url"
        raise PolicyRefusedError(
            f"{setting}={without_key(base_url or address)}: should begin with http:// or https://"
            " and a host, such as http://localhost:8000"
        )
    return f"{url.scheme}://{host}{url.path}".rstrip("/")


def require_credentials() -> None:
    """Raises `PolicyRefusedError` where the SDK has no key: in the environment, by a command, or
    stored by `tinker auth login`."""
    from tinker.auth import tinker_has_credentials

    if tinker_has_credentials():
        return
    wrong = "TINKER_API_KEY does not begin with tml-" if os.environ.get("TINKER_API_KEY") else ""
    raise PolicyRefusedError(
        f"policy=tinker: {wrong or 'there is no API key'}; set TINKER_API_KEY=tml-... in the"
        " environment or in .env"
    )


async def open_session(
    base_url: str | None,
    run_name: str | None,
    meter: RequestMeter,
    *,
    patience_sec: float = PATIENCE_SEC,
) -> TinkerSession:
    """Begin a session.

    Args:
        base_url: None: `TINKER_BASE_URL`, else the hosted service.
        run_name: for the server's list of sessions.
        meter: gets the connection's state from now on.
        patience_sec: how long to wait for a server that can't be reached.

    Raises:
        PolicyError: there is no key, the server can't be reached or doesn't want us.
    """
    import tinker

    address = server_address(base_url)
    follow_no_redirects()
    service = tinker.ServiceClient(
        user_metadata={
            "client": "tbtui",
            "client_version": importlib.metadata.version("tbtui"),
        },
        display_name=run_name,
        base_url=base_url,
    )
    given_up = threading.Event()

    def begin() -> tinker.RestClient:
        holder = service.holder
        if given_up.is_set():
            # It is no longer awaited: it must not be kept alive.
            holder.close()
        return tinker.RestClient(base_url=base_url)

    beginning = asyncio.ensure_future(in_daemon_thread(begin, "tinker-session"))
    looking = asyncio.create_task(_reached(base_url, address, meter, patience_sec))
    try:
        await asyncio.wait((beginning, looking), return_when=asyncio.FIRST_COMPLETED)
        if not beginning.done():
            await looking
        with sdk_errors(f"starting a session at {address}", training=False):
            rest = await beginning
    except BaseException:
        given_up.set()
        beginning.cancel()
        raise
    finally:
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError, PolicyError):
            await looking
    watch_connection(meter, service)
    return TinkerSession(service, rest, address)


async def _reached(
    base_url: str | None, address: str, meter: RequestMeter, patience_sec: float
) -> None:
    """Returns as soon as anything but a proxy answers at the server's address.

    Raises:
        PolicyError: nothing has in `patience_sec`.
    """
    import httpx
    from tinker.lib.base_url import resolve_base_url

    until = time.monotonic() + patience_sec
    async with httpx.AsyncClient(timeout=_PROBE_SEC) as client:
        while True:
            try:
                # What it says beside its status is not read.
                asked = f"{resolve_base_url(base_url)}/api/v1/healthz"
                async with client.stream("GET", asked) as answer:
                    pass
            except (httpx.TransportError, httpx.InvalidURL) as error:
                why = without_key(str(error)) or type(error).__name__
                meter.state("unreachable", why, "connection")
                hopeless = isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL)
                if hopeless or time.monotonic() >= until:
                    raise PolicyError(
                        f"no Tinker server answers at {address} ({why}); start it, or correct"
                        " tinker_base_url (TINKER_BASE_URL)"
                    ) from error
            else:
                if answer.status_code not in GATEWAY_STATUSES:
                    meter.withdraw("connection")
                    return
                # A proxy is up before its server: as long as the SDK is patient, so are we.
                status = f"{answer.status_code} {answer.reason_phrase}".strip()
                meter.state("unreachable", status, "connection")
            await asyncio.sleep(_BETWEEN_PROBES_SEC)
