"""Where browsers find a served run, and who is let in: a browser that has opened the address with
the token, a script that sends it."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from yarl import URL


@dataclass(frozen=True)
class PublicUrl:
    """The page's address behind a proxy."""

    page: URL

    @classmethod
    def parse(cls, text: str) -> PublicUrl:
        """Raises `ValueError` for what isn't one."""
        url = URL(text)
        if url.scheme not in ("http", "https") or not url.host or url.explicit_port == 0:
            raise ValueError("not the address of a page")
        if url.user is not None or url.password is not None:
            raise ValueError("a name and a password have no place in it")
        return cls(url.origin().with_path(url.raw_path.rstrip("/") + "/", encoded=True))

    @property
    def origin(self) -> str:
        """Scheme and host as browsers write them: in lower case, without the default port."""
        return str(self.page.origin())

    @property
    def host(self) -> str:
        """The Host header of browsers."""
        return self.origin.partition("://")[2]

    @property
    def secure_host(self) -> str | None:
        return self.host if self.page.scheme == "https" else None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def pages(host: str, port: int, public: PublicUrl | None, token: str | None) -> list[str]:
    """The addresses to open, the one for most people first; with the token, if one is asked for."""
    urls = [] if public is None else [public.page]
    urls += [URL.build(scheme="http", host=name, port=port, path="/") for name in _names(host)]
    return [str(url if token is None else url.with_query(token=token)) for url in urls]


def _names(host: str) -> list[str]:
    """Host names that reach an address that is listened on."""
    match host:
        case "0.0.0.0":
            return [socket.gethostname(), "127.0.0.1"]
        case "::":
            return [socket.gethostname(), "::1"]
        case _:
            return [host]


_REFUSAL = "open the address that tbtui serve printed when it started: it holds a token"
_ASK_AGAIN = f"""<!DOCTYPE html>
<title>tbtui</title>
<meta http-equiv="refresh" content="0;url=./?again" />
<p>{_REFUSAL}</p>
"""


def ask_for(token: str, secure_host: str | None) -> Middleware:
    """Answers only who has the token; its place in an address is the page's query.

    Args:
        secure_host: the Host of requests that a proxy with TLS passes on.
    """

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/" and _is(token, request.query.get("token", "")):
            response = to_the_page()
            response.set_cookie(
                _cookie_name(request),
                _cookie(token, request),
                # No path: behind a proxy's path it is that one's, and its neighbours don't get it.
                path="",
                httponly=True,
                samesite="Strict",
                secure=request.host == secure_host,
            )
            return response
        if _has_cookie(request, token) or _is(token, _bearer(request)):
            return await handler(request)
        return _refusal(request)

    return answer


def to_the_page() -> web.Response:
    """Redirect to the page without a query, so that no token stays in the address; behind a proxy's
    path, too."""
    return web.Response(status=303, headers={"Location": "./", "Cache-Control": "no-store"})


def _refusal(request: web.Request) -> web.Response:
    """Answer with one line; a browser's first request is repeated by a page of our own.

    It keeps a strict cookie to itself while it follows another site's link (a chat's, say), through
    a redirect too.
    """
    headers = {"WWW-Authenticate": "Bearer", "Cache-Control": "no-store"}
    if request.path_qs == "/" and "text/html" in request.headers.get("Accept", ""):
        return web.Response(
            status=401,
            text=_ASK_AGAIN,
            content_type="text/html",
            headers=headers | {"Content-Security-Policy": "default-src 'none'"},
        )
    return web.Response(status=401, text=f"{_REFUSAL}\n", headers=headers)


def _has_cookie(request: web.Request, token: str) -> bool:
    return _is(_cookie(token, request), request.cookies.get(_cookie_name(request), ""))


def _bearer(request: web.Request) -> str:
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else ""


def _cookie_name(request: web.Request) -> str:
    """A name of this server's own.

    Cookies know no ports, and what several machines serve may be seen under one name (ssh -L).
    """
    _, port, *_ = request.get_extra_info("sockname", ("", 0))
    return f"tbtui-{re.sub('[^a-z0-9]', '-', socket.gethostname().lower())}-{port}"


def _cookie(token: str, request: web.Request) -> str:
    """Good for this server alone, and not the token: other ports' servers are sent it too."""
    name = _cookie_name(request).encode()
    return hmac.new(token.encode(), name, hashlib.sha256).hexdigest()


def _is(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode(errors="replace"))
