"""Fetches data sets of Harbor's registry, through Harbor's own client.

A data set is put together beside its place and moved there whole. What an interrupted fetch has
got stays, and the next one goes on from it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

from tbtui.catalog import CatalogError, fetched_tasks, nearest
from tbtui.paths import PathError, expanded
from tbtui.terminal import reason

if TYPE_CHECKING:
    from harbor.registry.client.base import BaseRegistryClient
    from harbor.tasks.client import TaskIdType

_BATCHES = 12
"""Harbor clones for all that it is asked for at once, and reports at its end: at most so often."""
_LEAST_AT_ONCE = 10
_REACHED_WITHIN_SEC = 5


class FetchError(Exception):
    """The registry, or a data set in it, can't be had now; one line that says why."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """One version of a data set, as the registry lists it."""

    name: str
    version: str
    tasks: int
    description: str

    @property
    def id(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    """Tasks that are here."""
    total: int


@dataclass(frozen=True, slots=True)
class Fetched:
    path: Path
    tasks: int
    already: bool
    """It was there; nothing was fetched."""


class Registry:
    """Harbor's registry, or another one by its file or its URL."""

    def __init__(self, place: str | None = None) -> None:
        self._place = place
        self._client: BaseRegistryClient | None = None

    async def data_sets(self) -> list[DataSet]:
        """All data sets, ordered by name and version.

        Raises:
            FetchError: the registry can't be reached or read.
        """
        client = await self._connected()
        listed = await _asking(self._name, client.list_datasets())
        sets = [
            DataSet(each.name, each.version or "head", each.task_count, each.description)
            for each in listed
        ]
        return sorted(sets, key=lambda each: (each.name, each.version))

    async def find(self, name: str) -> DataSet:
        """The data set that `NAME` or `NAME@VERSION` means.

        Raises:
            CatalogError: there is none; the message names the nearest.
            FetchError: the registry can't be reached or read.
        """
        from harbor.registry.client.base import resolve_version

        base, _, version = name.partition("@")
        sets = await self.data_sets()
        versions = {each.version: each for each in sets if each.name == base}
        if not versions:
            known = sorted({each.name for each in sets})
            raise CatalogError(
                f"{self._name} has no data set {base!r}{nearest(base, known)}"
                " (`tbtui tasks fetch --list` lists them)"
            )
        if version and version not in versions:
            raise CatalogError(
                f"{self._name} has no version {version!r} of {base}; there are"
                f" {', '.join(versions)}"
            )
        return versions[version or resolve_version(list(versions))]

    async def fetch(
        self, chosen: DataSet, into: Path | None, tell: Callable[[Progress], None]
    ) -> Fetched:
        """Put the data set into the directory `into` (default: its name, among the fetched ones).

        Raises:
            CatalogError: something else is there.
            FetchError: it can't be had, or written; what there is of it stays for the next time.
        """
        try:
            target = expanded(into or fetched_tasks() / chosen.id).absolute()
        except PathError as error:
            raise CatalogError(str(error)) from error
        client = await self._connected()
        metadata = await _asking(self._name, client.get_dataset_metadata(chosen.id))
        # Not `chosen.tasks`: the listing counts a task as often as it names it.
        ids = list(dict.fromkeys(metadata.task_ids))
        if there := {path.parent.name for path in target.glob("*/task.toml")}:
            if there != {PurePath(each.get_name()).name for each in ids}:
                raise CatalogError(
                    f"{target}: holds {len(there)} tasks that are not the {len(ids)} of"
                    f" {chosen.id}; remove it, or give another place with --into"
                )
            return Fetched(target, len(there), already=True)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise CatalogError(f"{target}: something else is there; give another with --into")
        unfinished = target.parent / f".{target.name}.partial"
        tell(Progress(0, len(ids)))
        try:
            unfinished.mkdir(parents=True, exist_ok=True)
            await self._download(ids, unfinished, tell)
            unfinished.replace(target)
        except OSError as error:
            raise FetchError(f"{target}: {error.strerror or error}") from error
        return Fetched(target, len(ids), already=False)

    async def _download(
        self, ids: Sequence[TaskIdType], directory: Path, tell: Callable[[Progress], None]
    ) -> None:
        from harbor.tasks.client import TaskClient

        at_once = max(_LEAST_AT_ONCE, -(-len(ids) // _BATCHES))
        for start in range(0, len(ids), at_once):
            batch = list(ids[start : start + at_once])
            asked = TaskClient().download_tasks(batch, output_dir=directory, export=True)
            for path in (await _asking(self._name, asked)).paths:
                if path.parent != directory:  # of a task on this machine Harbor says where it is
                    copy = directory / path.name
                    await asyncio.to_thread(shutil.copytree, path, copy, dirs_exist_ok=True)
            tell(Progress(start + len(batch), len(ids)))

    async def _connected(self) -> BaseRegistryClient:
        if self._client is None:
            await self._require_reachable()
            self._client = await _asking(self._name, asyncio.to_thread(self._connect))
        return self._client

    async def _require_reachable(self) -> None:
        """Harbor's client takes seconds to import, and names no host when it fails."""
        address = urlsplit(self._url)
        if not address.hostname or {address.scheme, "all"} & getproxies().keys():
            return
        port = address.port or {"http": 80}.get(address.scheme, 443)
        try:
            opening = asyncio.open_connection(address.hostname, port)
            _, writer = await asyncio.wait_for(opening, _REACHED_WITHIN_SEC)
        except (OSError, TimeoutError) as error:
            reason = error.strerror if isinstance(error, OSError) else None
            raise FetchError(
                f"{self._name} can't be reached:"
                f" {reason or f'no answer in {_REACHED_WITHIN_SEC} s'} (a proxy is taken from"
                f" {address.scheme.upper()}_PROXY; `--registry FILE` reads a registry.json, and"
                " tasks_dir=DIRECTORY takes tasks that are on this machine)"
            ) from error
        writer.close()

    @property
    def _url(self) -> str:
        """Empty: the registry is a file."""
        if self._place is not None:
            return self._place if "://" in self._place else ""
        from harbor.registry.client.harbor.config import HARBOR_SUPABASE_URL

        return HARBOR_SUPABASE_URL

    def _connect(self) -> BaseRegistryClient:
        # A prompt for a password would be waited for without end.
        os.environ.setdefault("GIT_TERMINAL_PROMPT", "0")
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        from harbor.registry.client import RegistryClientFactory

        if self._place is None:
            return RegistryClientFactory.create()
        if "://" in self._place:
            return RegistryClientFactory.create(registry_url=self._place)
        return RegistryClientFactory.create(registry_path=Path(self._place).expanduser())

    @property
    def _name(self) -> str:
        if self._place is not None:
            return f"the registry {self._place}"
        return f"Harbor's registry at {urlsplit(self._url).hostname}"


async def _asking[T](registry: str, answer: Awaitable[T]) -> T:
    """What Harbor's client answers; what it raises as one line."""
    import httpx
    from postgrest.exceptions import APIError

    try:
        return await answer
    except subprocess.CalledProcessError as error:
        raise FetchError(f"{registry}: {_git_words(error)}") from error
    except (OSError, httpx.HTTPError, APIError, ValueError) as error:
        raise FetchError(f"{registry} can't be read: {reason(error)[:300]}") from error


def _git_words(error: subprocess.CalledProcessError) -> str:
    """The line in which git says what is wrong: the last of its fatal ones."""
    said = (error.stderr or b"").decode("utf-8", "replace").splitlines()
    fatal = [line for line in said if line.startswith(("fatal:", "error:"))] or said
    words = fatal[-1].partition(": ")[2] or fatal[-1] if fatal else f"status {error.returncode}"
    return f"git {error.cmd[1]}: {words}"
