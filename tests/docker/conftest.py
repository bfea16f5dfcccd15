"""Everything here runs in a real Docker engine, or is skipped."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from tbtui.rollout.environments.docker import DockerEnvironment
from tbtui.rollout.environments.leftovers import project_prefix

Starter = Callable[..., Awaitable[DockerEnvironment]]
HERE = Path(__file__).parent


def engine_answers() -> bool:
    return (
        shutil.which("docker") is not None
        and subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(HERE)]
    for item in here:
        item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="session", autouse=True)
def _engine() -> None:
    if not engine_answers():
        pytest.skip("no Docker engine answers: .ci/docker-engine starts one on Debian")


def docker(*arguments: str) -> bytes:
    """What the engine's client prints."""
    return subprocess.run(["docker", *arguments], capture_output=True, check=True).stdout


def in_engine() -> set[str]:
    """The test's own containers, networks, volumes and images (not the tasks' cached ones)."""
    found: set[str] = set()
    for listing in (
        "ps -a --format {{.Names}}",
        "network ls --format {{.Name}}",
        "volume ls --format {{.Name}}",
        "image ls --format {{.Repository}}",
    ):
        found.update(docker(*listing.split()).decode().split())
    return {name for name in found if name.startswith(project_prefix())}


@pytest.fixture(autouse=True)
def _nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test has a record of projects of its own, and leaves nothing in it nor in the engine."""
    # In the session's directory: its projects are removed if pytest is killed.
    state = Path(tempfile.mkdtemp(dir=os.environ["XDG_STATE_HOME"]))
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    yield
    assert not in_engine()
    left = state.glob("tbtui/compose/*")
    assert [path.name for path in left if path.suffix != ".lock"] == []


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> Any:
    """Starts environments; each is stopped at the end."""
    started: list[DockerEnvironment] = []

    async def start(
        *,
        files: dict[str, str] | None = None,
        task: dict[str, Any] | None = None,
        force_build: bool = False,
        **kwargs: Any,
    ) -> DockerEnvironment:
        number = len(started)
        directory = tmp_path / f"task-{number}" / "environment"
        directory.mkdir(parents=True)
        given = {"Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n", **(files or {})}
        for name, text in given.items():
            (directory / name).write_text(text)
        paths = TrialPaths(tmp_path / f"trial-{number}")
        paths.mkdir()
        mounts = [
            {"type": "bind", "source": str(paths.trial_dir / name), "target": f"/logs/{name}"}
            for name in ("agent", "verifier", "artifacts")
        ]
        config = EnvironmentConfig(**(task or {}))
        environment = DockerEnvironment(
            environment_dir=directory,
            environment_name="test",
            session_id=f"test-{number}__env",
            trial_paths=paths,
            task_env_config=config,
            mounts=mounts,
            network_policy=NetworkPolicy(network_mode=config.network_mode or NetworkMode.PUBLIC),
            **kwargs,
        )
        started.append(environment)
        await environment.start(force_build=force_build)
        return environment

    yield start
    for environment in started:
        await asyncio.shield(environment.stop(delete=True))
