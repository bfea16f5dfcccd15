"""Who is let in: a browser that has opened the address with the token, a script that sends it."""

from __future__ import annotations

import hashlib
import hmac
import re
import socket

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

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
    """Its address without a query, so that no token stays there; behind a proxy's path, too."""
    return web.Response(status=303, headers={"Location": "./", "Cache-Control": "no-store"})


def _refusal(request: web.Request) -> web.Response:
    """One line; but a browser's first question is asked anew by a page of our own.

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
