"""A stand-in for the Hugging Face hub, on loopback: models from directories, by the hub's protocol.

It has revisions, files with ETags and ranges, and the errors that the hub gives by name; no
folders, no storage of another kind. `bytes_per_sec` slows weights down.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, override
from urllib.parse import unquote, urlsplit

REVISION = "0123456789abcdef0123456789abcdef01234567"
_CHUNK = 1 << 16


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    models: ClassVar[Mapping[str, Path]] = {}
    gated: ClassVar[frozenset[str]] = frozenset()
    bytes_per_sec: ClassVar[float | None] = None

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        parts = parts[2:] if api else parts
        name, rest = "/".join(parts[:2]), parts[2:]
        if name not in self.models and name not in self.gated:
            self._refuse(HTTPStatus.NOT_FOUND, "RepoNotFound", body)
        elif api and (not rest or rest[0] == "revision"):
            self._describe(name, body)
        elif api and rest[0] == "tree" and len(rest) == 2 and name in self.models:
            self._list(name, body)
        elif name in self.gated:
            self._refuse(HTTPStatus.FORBIDDEN, "GatedRepo", body)
        elif not api and rest[:1] == ["resolve"]:
            self._send(self.models[name] / "/".join(rest[2:]), body)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "EntryNotFound", body)

    def _describe(self, name: str, body: bool) -> None:
        files = sorted(self.models[name].iterdir()) if name in self.models else []
        siblings = [{"rfilename": each.name} for each in files] or [{"rfilename": "config.json"}]
        found = {"id": name, "modelId": name, "sha": REVISION, "siblings": siblings}
        self._json(found, body)

    def _list(self, name: str, body: bool) -> None:
        files = [
            {
                "type": "file",
                "path": each.name,
                "size": each.stat().st_size,
                "oid": hashlib.sha1(each.read_bytes(), usedforsecurity=False).hexdigest(),
            }
            for each in sorted(self.models[name].iterdir())
        ]
        self._json(files, body)

    def _json(self, found: object, body: bool) -> None:
        content = json.dumps(found).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _send(self, file: Path, body: bool) -> None:
        if not file.is_file():
            self._refuse(HTTPStatus.NOT_FOUND, "EntryNotFound", body)
            return
        content = file.read_bytes()
        first, last = 0, len(content) - 1
        asked = self.headers.get("Range", "")
        if asked:
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(last, int(end) if end else last)
        self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", REVISION)
        self.end_headers()
        slow = self.bytes_per_sec if file.suffix == ".safetensors" and not asked else None
        for start in range(first, last + 1 if body else first, _CHUNK):
            piece = content[start : min(start + _CHUNK, last + 1)]
            if slow:
                time.sleep(len(piece) / slow)
            self.wfile.write(piece)

    def _refuse(self, status: HTTPStatus, code: str, body: bool) -> None:
        content = json.dumps({"error": code}).encode()
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    @override
    def log_message(self, format: str, *args: object) -> None:
        return


@contextlib.contextmanager
def stand_in_hub(
    models: Mapping[str, Path], *, gated: frozenset[str] = frozenset(),
    bytes_per_sec: float | None = None,
) -> Iterator[str]:  # fmt: skip
    """Its address, for `HF_ENDPOINT`."""
    settings = {"models": models, "gated": gated, "bytes_per_sec": bytes_per_sec}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), settings))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
