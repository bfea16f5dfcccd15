"""Snapshots of containers: what a fork gets back, how they are bounded, and their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tbtui.journal.events import SnapshotKept, TrialForked
from tbtui.rollout.environments.choose import EnvironmentChoice
from tbtui.rollout.environments.ledger import state_directory
from tbtui.rollout.environments.leftovers import reap_leftovers
from tbtui.rollout.environments.snapshots import (
    STATE_IMAGES,
    Snapshot,
    SnapshotStore,
    StateImage,
    remove_images,
)
from tests.docker.conftest import docker
from tests.docker.test_trials import IMPORT_PATH
from tests.engines.test_forks import Forked, expect_the_second_turn_back

pytestmark = pytest.mark.timeout(600)
DOCKER = EnvironmentChoice("docker", "asked for", import_path=IMPORT_PATH)


def state_images() -> set[str]:
    return set(docker("image", "ls", "-q", STATE_IMAGES).decode().split())


@pytest_asyncio.fixture
async def run(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Forked]:
    before = state_images()
    settings = {"snapshots": "turns", **getattr(request, "param", {})}
    forked = Forked(tmp_path / "run", environment=DOCKER, group_size=2, **settings)
    try:
        yield forked
    finally:
        await forked.stop()
    assert state_images() == before


async def test_a_commit_brings_files_shell_and_screen_back(run: Forked) -> None:
    await expect_the_second_turn_back(run)


async def test_without_its_image_the_keys_are_typed_again(run: Forked) -> None:
    await run.reach(3)
    for file in (run.directory.path / "snapshots").glob("*/*.image"):
        await remove_images(file.parent)
    await run.fork(3, trials=1)
    await run.end()
    (reached,) = run.events(TrialForked)
    assert (reached.way, reached.replayed, reached.parted) == ("replay", 2, ())


@pytest.mark.parametrize("run", [{"snapshot_mb": 1}], indirect=True)
async def test_the_oldest_go_and_what_is_too_large_is_none(run: Forked) -> None:
    fill = "head -c 700k /dev/urandom > /root/{}; pwd\n"
    run.keys = (fill.format("one"), fill.format("two"), "touch /app/solved\n")
    await run.reach(3)
    await run.end()
    kept = [event for event in run.events(SnapshotKept) if event.trial == run.first]
    by_turn = {event.turn: event for event in kept}
    assert by_turn[2].error == ""
    assert 700_000 < by_turn[2].written < 1 << 20
    assert by_turn[3].error == "more than snapshot_mb was written"


def test_images_of_a_killed_run_go_at_the_next_start(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "snapshots" / "trial", 1 << 30)
    store.add(Snapshot(turn=1, container_image=f"{STATE_IMAGES}:of-a-killed-run"))
    image = StateImage(engine="docker", name=f"{STATE_IMAGES}:of-a-killed-run")
    never_made = StateImage(engine="docker", name=f"{STATE_IMAGES}:never-made")
    store.note_image(1, image)
    store.note_image(2, never_made)
    docker("tag", "debian:bookworm-slim", image.name)
    hold = (
        "import asyncio, os, signal, sys; from pathlib import Path\n"
        "from tbtui.rollout.environments.snapshots import held_snapshots\n"
        "async def hold():\n"
        "    async with held_snapshots(Path(sys.argv[1]), keep=False):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(hold())\n"
    )
    subprocess.run([sys.executable, "-c", hold, str(tmp_path / "snapshots")], check=False)
    assert docker("image", "ls", "-q", image.name)
    reap_leftovers(state_directory())
    assert not docker("image", "ls", "-q", image.name)
    assert not (tmp_path / "snapshots").exists()
