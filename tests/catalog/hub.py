"""A stand-in for Harbor's hub: what `PackageDatasetClient` and `TaskClient` ask of it, as their
source has it (Harbor 0.26: `harbor/db/client.py`, `harbor/storage/supabase.py`)."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer
from harbor.publisher.packager import Packager

DATA_SET = "d" * 64


class Hub:
    """One data set, `org/bench`: tagged `latest` and `v1`, its first revision."""

    def __init__(self, tasks: list[Path]) -> None:
        self._tasks = {task.name: task for task in tasks}
        self.digests = {task.name: Packager.compute_content_hash(task)[0] for task in tasks}
        self.downloads: list[str] = []
        self.swapped: str | None = None
        """A task in whose place another one's archive comes."""
        self.cut = ""
        """A task of whose archive half is sent."""
        self.withdrawn = False
        """One of its tasks may not be seen by everybody."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its address, as long as it serves."""
        app = web.Application()
        app.router.add_get("/rest/v1/dataset_version_tag", self._tag)
        app.router.add_get("/rest/v1/dataset_version", self._version)
        app.router.add_get("/rest/v1/dataset_version_task", self._task_rows)
        app.router.add_get("/rest/v1/dataset_version_file", self._nothing)
        app.router.add_post("/rest/v1/rpc/resolve_task_version", self._resolve)
        app.router.add_post("/rest/v1/task_version_download", self._nothing)
        app.router.add_get("/storage/v1/object/packages/{task}", self._archive)
        async with TestServer(app) as server:
            yield str(server.make_url("")).rstrip("/")

    def _row(self) -> dict[str, object]:
        return {"id": "1", "content_hash": DATA_SET, "description": "A bench", "yanked_at": None}

    def _named(self, request: web.Request) -> bool:
        asked = request.query
        return asked["package.name"] == "eq.bench" and asked["package.org.name"] == "eq.org"

    async def _tag(self, request: web.Request) -> web.Response:
        found = self._named(request) and request.query["tag"] in ("eq.latest", "eq.v1")
        row = {"package": {"name": "bench"}, "dataset_version": self._row()}
        return web.json_response([row] if found else [])

    async def _version(self, request: web.Request) -> web.Response:
        asked = {"revision": "eq.1", "content_hash": f"eq.{DATA_SET}"}
        found = self._named(request) and bool(request.query.items() & asked.items())
        return web.json_response([{**self._row(), "package": {}}] if found else [])

    async def _task_rows(self, _: web.Request) -> web.Response:
        rows: list[dict[str, object]] = [
            {
                "task_version_id": name,
                "task_version": {
                    "content_hash": digest,
                    "package": {"name": name, "org": {"name": "org"}},
                },
            }
            for name, digest in sorted(self.digests.items())
        ]
        if self.withdrawn:
            rows[0]["task_version"] = None
        return web.json_response(rows)

    async def _nothing(self, _: web.Request) -> web.Response:
        return web.json_response([])

    async def _resolve(self, request: web.Request) -> web.Response:
        asked = await request.json()
        name = asked["p_name"]
        assert asked["p_ref"] == f"sha256:{self.digests[name]}"
        return web.json_response(
            {"id": name, "archive_path": name, "content_hash": self.digests[name]}
        )

    async def _archive(self, request: web.Request) -> web.Response:
        name = request.match_info["task"]
        self.downloads.append(name)
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            other = next(each for each in self._tasks if each != name)
            tar.add(self._tasks[other if name == self.swapped else name], arcname=".")
        content = archive.getvalue()
        return web.Response(body=content[: len(content) // 2] if name == self.cut else content)
