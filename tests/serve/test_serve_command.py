"""What `tbtui serve` refuses, each time in one line."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tbtui.cli import app
from tbtui.journal.rundir import RunDirectory


def serve(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["serve", *arguments])


def refused(result: Result, reason: str) -> None:
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert reason in line


@pytest.mark.parametrize("token", ["", "fifteen-signs-x", "sixteen signs-xx", "é" * 16])
def test_a_token_that_is_none(
    past_run: RunDirectory, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("TBTUI_SERVE_TOKEN", token)
    refused(serve(str(past_run.path)), "TBTUI_SERVE_TOKEN: write at least 16 letters")


BAD_URLS = (
    *("runs.example.org", "http://[", "https://a:99999", "http://a:x", "ftp://a", "https://u:p@a"),
)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--host", ""), "--host: write the address to listen on"),
        *((("--public-url", url), f"{url}: write it as https://") for url in BAD_URLS),
        (("--anyone",), "leave one out"),  # there is a token
    ],
)
def test_options_that_are_refused(
    past_run: RunDirectory, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], reason: str
) -> None:
    monkeypatch.setenv("TBTUI_SERVE_TOKEN", "x" * 16)
    refused(serve(str(past_run.path), *options), reason)


def test_a_port_in_use(past_run: RunDirectory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused(
            serve(str(past_run.path), "--port", str(port)), f"127.0.0.1:{port} is in use; choose"
        )


def test_a_missing_extra(past_run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("textual_serve", "tbtui.serve."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    refused(serve(str(past_run.path)), "serve needs textual-serve: uv sync --extra serve")


def test_a_viewer_knows_nothing_of_engines_and_servers() -> None:
    """Each tab pays for what it imports; and what isn't there can't steer."""
    program = "import sys, tbtui.serve.viewer; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "tbtui.ui.application" in modules
    assert not [name for name in modules if name.startswith(("tbtui.engines", "tbtui.config"))]
    assert not set(modules) & {"aiohttp", "textual_serve", "pydantic", "numpy", "harbor"}


def test_no_run_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(serve("nowhere"), "no such run")
    refused(serve(), "no run in runs; name one: tbtui serve RUN")
