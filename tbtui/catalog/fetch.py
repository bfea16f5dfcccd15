"""Fetches data sets of Harbor's registry, and packages of its hub, through Harbor's own clients.

`NAME@VERSION` is a data set of the registry, whose tasks are in git repositories; `ORG/NAME@REF` is
a package, whose tasks are archives, each with the digest of its content.

A data set is put together beside its place and moved there whole. What an interrupted fetch has
got stays, and the next one goes on from it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, override
from urllib.parse import urlsplit
from urllib.request import getproxies

from tbtui.catalog import CatalogError, fetched_tasks, nearest
from tbtui.invocation import to_type
from tbtui.paths import PathError, expanded
from tbtui.terminal import both_ends, one_line, reason

if TYPE_CHECKING:
    from harbor.registry.client.base import BaseRegistryClient
    from harbor.tasks.client import TaskIdType

_BATCHES = 12
"""Harbor clones for all that it is asked for at once, and reports at its end: at most so often."""
_LEAST_AT_ONCE = 10
_REACHED_WITHIN_SEC = 5
_DIGEST = "sha256:"
_SHOWN_DIGITS = 12


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

    @property
    def folder(self) -> str:
        """What its directory is called: a package's with the beginning of its digest."""
        version = self.version
        if version.startswith(_DIGEST):
            version = version.removeprefix(_DIGEST)[:_SHOWN_DIGITS]
        return f"{self.name.replace('/', '__')}@{version}"


@dataclass(frozen=True, slots=True)
class FetchProgress:
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

    @property
    def _option(self) -> tuple[str, ...]:
        """What names this registry on a command line."""
        return () if self._place is None else ("--registry", self._place)

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
                f" (`{to_type('tasks', 'fetch', '--list', *self._option)}` lists them; the hub's"
                " packages are called ORG/NAME)"
            )
        if version and version not in versions:
            raise CatalogError(
                f"{self._name} has no version {version!r} of {base}; there are"
                f" {', '.join(versions)}"
            )
        return versions[version or resolve_version(list(versions))]

    async def fetch(
        self, chosen: DataSet, into: Path | None, tell: Callable[[FetchProgress], None]
    ) -> Fetched:
        """Put the data set into the directory `into` (default: its name, among the fetched ones).

        Raises:
            CatalogError: something else is there.
            FetchError: it can't be had, or written; what there is of it stays for the next time.
        """
        try:
            target = expanded(into or fetched_tasks() / chosen.folder).absolute()
        except PathError as error:
            raise CatalogError(str(error)) from error
        client = await self._connected()
        metadata = await _asking(self._name, client.get_dataset_metadata(chosen.id))
        # Not `chosen.tasks`: the listing counts a task as often as it names it.
        ids = list(dict.fromkeys(metadata.task_ids))
        names = {PurePath(each.get_name()).name for each in ids}
        if there := {path.parent.name for path in target.glob("*/task.toml")}:
            if there != names:
                raise CatalogError(
                    f"{target}: holds {len(there)} tasks that are not the {len(ids)} of"
                    f" {chosen.id}; remove it, or give another place with --into"
                )
            return Fetched(target, len(there), already=True)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise CatalogError(f"{target}: something else is there; give another with --into")
        unfinished = target.parent / f".{target.name}.partial"
        tell(FetchProgress(0, len(ids)))
        try:
            unfinished.mkdir(parents=True, exist_ok=True)
            await self._download(ids, unfinished, tell)
            unfinished.replace(target)
        except OSError as error:
            raise FetchError(f"{target}: {error.strerror or error}") from error
        return Fetched(target, len(ids), already=False)

    async def _download(
        self, ids: Sequence[TaskIdType], directory: Path, tell: Callable[[FetchProgress], None]
    ) -> None:
        from harbor.tasks.client import TaskClient

        at_once = max(_LEAST_AT_ONCE, -(-len(ids) // _BATCHES))
        for start in range(0, len(ids), at_once):
            batch = list(ids[start : start + at_once])
            await asyncio.to_thread(_remove_unfinished, batch, directory)
            asked = TaskClient().download_tasks(batch, output_dir=directory, export=True)
            paths = (await _asking(self._name, asked)).paths
            if spoilt := await asyncio.to_thread(_remove_unfinished, batch, directory):
                raise FetchError(f"{self._name}: not what their digests say: {', '.join(spoilt)}")
            for path in paths:
                if path.parent != directory:  # of a task on this machine Harbor says where it is
                    copy = directory / path.name
                    await asyncio.to_thread(shutil.copytree, path, copy, dirs_exist_ok=True)
            tell(FetchProgress(start + len(batch), len(ids)))

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


class Packages(Registry):
    """Harbor's hub, whose data sets are packages of an organisation."""

    @override
    async def find(self, name: str) -> DataSet:
        """The version that `ORG/NAME` or `ORG/NAME@REF` means: a tag, a revision or a digest.

        Raises:
            CatalogError: there is none.
            FetchError: the hub can't be reached or read.
        """
        client = await self._connected()
        try:
            metadata = await client.get_dataset_metadata(name)
        except ValueError as error:  # no such name, tag, revision or digest
            raise CatalogError(f"{self._name}: {both_ends(reason(error), 300)}") from error
        except _expected() as error:
            raise _failure(self._name, error) from error
        return DataSet(
            metadata.name, metadata.version or "", len(metadata.task_ids), metadata.description
        )

    @property
    @override
    def _url(self) -> str:
        from harbor.auth.constants import SUPABASE_URL

        return SUPABASE_URL

    @override
    def _connect(self) -> BaseRegistryClient:
        from harbor.registry.client.package import PackageDatasetClient

        return PackageDatasetClient()  # type: ignore[no-untyped-call]  # Harbor's

    @property
    @override
    def _name(self) -> str:
        return f"Harbor's hub at {urlsplit(self._url).hostname}"


def source_of(name: str, registry: str | None) -> Registry:
    """Where a data set of that name is: the hub, where an organisation is named."""
    return Packages() if registry is None and "/" in name else Registry(registry)


def _remove_unfinished(ids: Sequence[TaskIdType], directory: Path) -> list[str]:
    """Remove those tasks that aren't what their digests say: an interrupted fetch left a part, or
    something else came. Harbor's client takes whatever is there for the whole."""
    from harbor.models.task.id import PackageTaskId
    from harbor.publisher.packager import Packager

    removed: list[str] = []
    for each in ids:
        if not isinstance(each, PackageTaskId) or not (each.ref or "").startswith(_DIGEST):
            continue
        task = directory / each.name
        if task.is_dir() and f"{_DIGEST}{Packager.compute_content_hash(task)[0]}" != each.ref:
            shutil.rmtree(task)
            removed.append(each.name)
    return removed


async def _asking[T](registry: str, answer: Awaitable[T]) -> T:
    """What Harbor's client answers; what it raises as one line."""
    try:
        return await answer
    except _expected() as error:
        raise _failure(registry, error) from error


def _expected() -> tuple[type[Exception], ...]:
    """What Harbor's clients raise where something can't be had."""
    import httpx
    from harbor.auth.errors import AuthenticationError
    from harbor.registry.client.base import UnavailableDatasetTasksError
    from postgrest.exceptions import APIError
    from storage3.exceptions import StorageApiError

    return (
        *(ExceptionGroup, subprocess.CalledProcessError, OSError, ValueError),
        *(tarfile.TarError, zlib.error, EOFError),
        *(httpx.HTTPError, APIError, StorageApiError),
        *(AuthenticationError, UnavailableDatasetTasksError),
    )


def _failure(registry: str, error: Exception) -> Exception:
    """The line for it. Of downloads that fail together, the first one's."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, subprocess.CalledProcessError):
        return FetchError(f"{registry}: {_git_words(error)}")
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        # What was cloned is copied to its place: no doing of the registry's.
        _, target, why = error.args[0][0]
        return FetchError(f"{target} can't be written: {both_ends(one_line(why), 300)}")
    if isinstance(error, _expected()):
        return FetchError(f"{registry} can't be read: {both_ends(reason(error), 300)}")
    return error


def _git_words(error: subprocess.CalledProcessError) -> str:
    """The line in which git says what is wrong: the last of its fatal ones."""
    said = (error.stderr or b"").decode("utf-8", "replace").splitlines()
    fatal = [line for line in said if line.startswith(("fatal:", "error:"))] or said
    words = fatal[-1].partition(": ")[2] or fatal[-1] if fatal else f"status {error.returncode}"
    return f"git {error.cmd[1]}: {words}"
