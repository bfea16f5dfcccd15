"""`tbtui serve`: serves a run until ctrl-c, or says in one line why it can't."""

from __future__ import annotations

import os
import re
import secrets
from errno import EADDRINUSE

import typer

from tbtui.command_line import say
from tbtui.config import parse_settings
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.journal.database import require_format
from tbtui.journal.rundir import RunDirectory, find_run
from tbtui.view.runs import RunList

TOKEN_VARIABLE = "TBTUI_SERVE_TOKEN"
"""Not an option: it would show in a list of processes."""
_FIXED_TOKEN = re.compile(r"[!-~]{16,}")
_PLAIN_HTTP = (
    "tbtui: this is plain HTTP: on its way to another machine others can read the token and the"
    " run; ssh -L, or a proxy with TLS and --public-url, keep them private"
)


def serve(
    run: str | None, host: str, port: int, *, anyone: bool = False, public_url: str | None = None
) -> int:
    """Serve the run until ctrl-c; returns the exit status.

    Args:
        run: a run by path or name; None: the newest.
        host: the address to listen on.
        port: 0: any that is free.
        anyone: no token is asked for.
        public_url: where browsers find it, when that is not `host` and `port`.

    Raises:
        UserError: bad input.
    """
    directory = _find(run)
    require_format(directory)
    if not host:
        raise UserError("--host: write the address to listen on, as 127.0.0.1")
    return _serve(directory, host, port, _token(anyone), public_url)


def _find(run: str | None) -> RunDirectory:
    logs_dir = parse_settings([]).logs_dir
    if run is not None:
        return find_run(run, logs_dir)
    newest = RunList((logs_dir,)).read()
    if not newest:
        raise UserError(f"no run in {logs_dir}; name one: {to_type('serve', 'RUN')}")
    return newest[0].directory


def _token(anyone: bool) -> str | None:
    """The token that a browser has to show; None: none."""
    fixed = os.environ.get(TOKEN_VARIABLE)
    if fixed is None:
        return None if anyone else secrets.token_urlsafe()
    if anyone:
        raise UserError(f"--anyone asks for no token, but {TOKEN_VARIABLE} is one; leave one out")
    if not _FIXED_TOKEN.fullmatch(fixed):
        raise UserError(
            f"{TOKEN_VARIABLE}: write at least 16 letters, digits or signs (ASCII), no spaces;"
            " without it every start makes a new one"
        )
    return fixed


def _serve(
    directory: RunDirectory, host: str, port: int, token: str | None, public_url: str | None
) -> int:
    import asyncio

    try:
        from tbtui.serve.access import PublicUrl, is_loopback, pages
        from tbtui.serve.server import RunServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("aiohttp", "textual_serve", "yarl"):
            raise
        raise UserError(
            "serve needs textual-serve: uv sync --extra serve, or pip install 'tbtui[serve]'"
        ) from error

    try:
        public = None if public_url is None else PublicUrl.parse(public_url)
    except ValueError as error:
        raise UserError(f"--public-url {public_url}: write it as https://a.example") from error

    def ready(port: int) -> None:
        addresses = " or ".join(pages(host, port, public, token))
        typer.echo(f"{directory.name}, to look at only: {addresses} (ctrl-c ends it)")
        if token is None:
            readers = (
                "every user of this machine" if is_loopback(host) else f"anyone who reaches {host}"
            )
            if public is not None:
                readers = f"anyone who reaches {public.page}"
            say(f"no token is asked for: {readers} can read this run")
        elif not is_loopback(host) and (public is None or public.secure_host is None):
            typer.echo(_PLAIN_HTTP, err=True)

    try:
        asyncio.run(RunServer(directory, token, public).serve(host, port, ready))
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise UserError(
                f"{host}:{port} is in use; choose another --port (0: any that is free)"
            ) from error
        raise UserError(f"{host}:{port}: can't be listened on ({_reason(error)})") from error
    return 0


def _reason(error: OSError) -> str:
    """The reason without the address, which asyncio adds and we print ourselves."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else str(error.strerror)
