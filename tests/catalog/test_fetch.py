"""Fetching a data set: Harbor's own client, a registry in a file, a git repository beside it."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tbtui.catalog import CatalogError, fetched_tasks, find_tasks
from tbtui.catalog.fetch import Fetched, FetchError, FetchProgress, Registry, source_of
from tbtui.catalog.tasks import discover
from tests.catalog.hub import DATA_SET, Hub
from tests.catalog.task_writer import write_task
from tests.engines.test_outages import fill, needs_root, tmpfs

TASKS = 23


def git(where: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
        cwd=where,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry with one data set of two versions; the tasks are in a git repository."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    # As GitHub does.
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    for number in range(TASKS):
        write_task(repository / "tasks", f"task-{number:02}")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "tasks")
    commit = git(repository, "rev-parse", "HEAD")

    def data_set(version: str, tasks: int) -> dict[str, object]:
        return {
            "name": "bench",
            "version": version,
            "description": "A bench",
            "tasks": [
                {
                    "name": f"task-{number:02}",
                    "git_url": repository.as_uri(),
                    "git_commit_id": commit,
                    "path": f"tasks/task-{number:02}",
                }
                for number in range(tasks)
            ],
        }

    path = tmp_path / "registry.json"
    path.write_text(json.dumps([data_set("1.0", 3), data_set("2.0", TASKS)]))
    return path


def rewrite(registry: Path, text: str) -> None:
    registry.write_text(text)


async def fetch(registry: Path, name: str, into: Path | None = None) -> list[FetchProgress]:
    source = Registry(str(registry))
    told: list[FetchProgress] = []
    await source.fetch(await source.find(name), into, told.append)
    return told


async def test_a_data_set_is_fetched_and_used_by_its_name(registry: Path) -> None:
    told = await fetch(registry, "bench@2.0")
    assert [each.done for each in told] == [0, 10, 20, 23]
    assert {each.total for each in told} == {TASKS}
    where = find_tasks(Path("bench"))
    assert where == fetched_tasks() / "bench@2.0"
    assert len(discover(where).tasks) == TASKS
    assert [path.name for path in fetched_tasks().iterdir()] == ["bench@2.0"]


async def test_the_newest_version_is_meant_and_what_is_there_is_left(registry: Path) -> None:
    source = Registry(str(registry))
    assert (await source.find("bench")).id == "bench@2.0"
    chosen = await source.find("bench@1.0")
    first = await source.fetch(chosen, None, lambda _: None)
    again = await source.fetch(chosen, None, lambda _: None)
    assert (first.already, again.already) == (False, True)
    assert (again.path, again.tasks) == (first.path, 3)


def list_twice(registry: Path) -> None:
    sets = json.loads(registry.read_text())
    sets[0]["tasks"] *= 2
    rewrite(registry, json.dumps(sets))


async def test_a_task_that_is_listed_twice_is_one(registry: Path) -> None:
    list_twice(registry)
    source = Registry(str(registry))
    chosen = await source.find("bench@1.0")
    first = await source.fetch(chosen, None, lambda _: None)
    again = await source.fetch(chosen, None, lambda _: None)
    assert (first.tasks, again.tasks, again.already) == (3, 3, True)
    with pytest.raises(CatalogError, match="no such user"):
        await source.fetch(chosen, Path("~nosuch/x"), lambda _: None)


async def test_an_interrupted_fetch_goes_on(registry: Path) -> None:
    class Cut(Exception):
        pass

    def cut(progress: FetchProgress) -> None:
        if progress.done:
            raise Cut

    source = Registry(str(registry))
    chosen = await source.find("bench@2.0")
    with pytest.raises(Cut):
        await source.fetch(chosen, None, cut)
    unfinished = fetched_tasks() / ".bench@2.0.partial"
    assert len(list(unfinished.iterdir())) == 10
    kept = (unfinished / "task-03" / "task.toml").stat().st_mtime_ns
    await fetch(registry, "bench@2.0")
    assert not unfinished.exists()
    whole = fetched_tasks() / "bench@2.0"
    assert len(discover(whole).tasks) == TASKS
    assert (whole / "task-03" / "task.toml").stat().st_mtime_ns == kept


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("benhc", "has no data set 'benhc'; did you mean 'bench'?"),
        ("bench@3", "no version '3' of bench; there are 1.0, 2.0"),
    ],
)
async def test_an_unknown_data_set_is_bad_input(registry: Path, name: str, reason: str) -> None:
    with pytest.raises(CatalogError, match=reason.replace("?", r"\?")):
        await Registry(str(registry)).find(name)


async def test_something_else_in_its_place_is_left_alone(registry: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_task(other, "mine")
    with pytest.raises(CatalogError, match="holds 1 tasks"):
        await fetch(registry, "bench@2.0", other)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x").touch()
    with pytest.raises(CatalogError, match="something else is there"):
        await fetch(registry, "bench@2.0", tmp_path / "notes")


async def test_what_can_not_be_had_is_one_line(registry: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "repository")
    with pytest.raises(FetchError, match="git clone: ") as told:
        await fetch(registry, "bench@2.0")
    assert "\n" not in str(told.value)
    with pytest.raises(FetchError, match="can't be read"):
        await Registry(str(tmp_path / "no-such.json")).data_sets()
    rewrite(registry, "no json")
    with pytest.raises(FetchError, match="can't be read"):
        await Registry(str(registry)).data_sets()
    # A port that nobody listens at.
    with pytest.raises(FetchError, match=r"127\.0\.0\.1:9/.* can't be reached: .*HTTP_PROXY"):
        await asyncio.wait_for(Registry("http://127.0.0.1:9/registry.json").data_sets(), 30)


@needs_root
async def test_a_disk_without_room_is_named_and_not_the_registry(
    registry: Path, tmp_path: Path
) -> None:
    source = Registry(str(registry))
    chosen = await source.find("bench@1.0")
    with tmpfs(tmp_path / "small", "64k") as small:
        fill(small)
        with pytest.raises(FetchError, match=rf"^{small}/.* can't be written: .*No space left"):
            await source.fetch(chosen, small / "tasks", lambda _: None)


async def test_offline_the_host_and_the_ways_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Harbor's own client is imported, which takes seconds."""
    import harbor.registry.client.harbor.config as config

    monkeypatch.setattr(config, "HARBOR_SUPABASE_URL", "https://registry.invalid")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "supabase"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        FetchError, match=r"registry\.invalid can't be reached: .*HTTPS_PROXY.*--registry FILE"
    ):
        await Registry().data_sets()
    assert "supabase" not in sys.modules


async def test_tasks_of_this_machine_are_copied(registry: Path, tmp_path: Path) -> None:
    write_task(tmp_path / "local", "mine")
    task = {"name": "mine", "path": str(tmp_path / "local" / "mine")}
    sets = [{"name": "own", "version": "1", "description": "", "tasks": [task]}]
    rewrite(registry, json.dumps(sets))
    await fetch(registry, "own@1")
    assert [each.name for each in discover(find_tasks(Path("own"))).tasks] == ["mine"]
    assert (tmp_path / "local" / "mine" / "task.toml").is_file()


# Packages of the hub


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hub]:
    """A stand-in at a socket of this machine, where Harbor's clients look for the hub."""
    import harbor.auth.client as client
    import harbor.auth.constants as constants

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    tasks = [write_task(tmp_path / "hub", f"task-{number:02}") for number in range(13)]
    # No two are alike: where all were, one would do for the other.
    for task in tasks:
        (task / "instruction.md").write_text(f"{task.name}\n")
    stand_in = Hub(tasks)
    async with stand_in.serving() as address:
        for module in (client, constants):
            monkeypatch.setattr(module, "SUPABASE_URL", address)
        monkeypatch.setattr(client, "resolve_api_key", lambda: None)
        client.reset_client()
        yield stand_in
    client.reset_client()


async def fetch_package(name: str) -> tuple[Fetched, list[FetchProgress]]:
    source = source_of(name, None)
    told: list[FetchProgress] = []
    return await source.fetch(await source.find(name), None, told.append), told


async def test_a_package_is_fetched_whole_and_once(hub: Hub) -> None:
    fetched, told = await fetch_package("org/bench@v1")
    assert [each.done for each in told] == [0, 10, 13]
    assert fetched.path == fetched_tasks() / f"org__bench@{DATA_SET[:12]}"
    assert find_tasks(Path("org__bench")) == fetched.path
    assert len(discover(fetched.path).tasks) == 13
    for ref in ("org/bench", "org/bench@1", f"org/bench@sha256:{DATA_SET}"):
        assert (await fetch_package(ref))[0].already
    assert sorted(hub.downloads) == sorted(hub.digests)


async def test_what_came_in_part_or_is_another_is_fetched_again(hub: Hub) -> None:
    hub.swapped, hub.cut = "task-03", "task-11"
    with pytest.raises(FetchError, match=r"not what their digests say: task-03$"):
        await fetch_package("org/bench")
    hub.swapped = None
    with pytest.raises(FetchError, match=r"hub at 127.0.0.1 can't be read: \S+") as told:
        await fetch_package("org/bench")
    assert "\n" not in str(told.value)
    hub.cut = ""
    fetched, _ = await fetch_package("org/bench")
    assert len(discover(fetched.path).tasks) == 13
    assert hub.downloads.count("task-03") == hub.downloads.count("task-11") == 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("org/bench@v9", "Tag 'v9' not found for dataset 'org/bench'"),
        ("org/bench@7", "Revision 7 not found"),
        ("org/bensh", "Tag 'latest' not found for dataset 'org/bensh'"),
        ("org/../bench", "must be in 'org/name' format"),
    ],
)
async def test_an_unknown_package_is_bad_input(hub: Hub, name: str, reason: str) -> None:
    with pytest.raises(CatalogError, match=reason) as told:
        await fetch_package(name)
    assert "\n" not in str(told.value)


async def test_a_package_that_may_not_be_seen_whole(hub: Hub) -> None:
    hub.withdrawn = True
    with pytest.raises(FetchError, match="1 task that is unavailable"):
        await fetch_package("org/bench")


async def test_without_the_hub_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import harbor.auth.constants as constants

    monkeypatch.setattr(constants, "SUPABASE_URL", "http://127.0.0.1:9")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(FetchError, match=r"Harbor's hub at 127\.0\.0\.1 can't be reached: "):
        await fetch_package("org/bench")
