"""One worker for all tests that run real trials."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tbtui.rollout.messages import TrialSpec
from tests.rollout.scripted import FORMS, Form, ScriptedEngine, boxes, make_spec
from tests.tasks import make_task


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(tmp_path_factory.mktemp("logs"))
    with pytest.MonkeyPatch.context() as environment:
        # Where its workers find the agents of the tests.
        places = [Path(__file__).parents[2], tmp_path_factory.getbasetemp() / "agents"]
        places[-1].mkdir()
        environment.setenv("A_KEY_OF_THE_HOST", "sk-secret")
        environment.setenv("PYTHONPATH", os.pathsep.join(map(str, places)))
        await engine.pool.start()
        yield engine
        await engine.pool.stop()
    assert not boxes()


@pytest.fixture(scope="session")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_task(tmp_path_factory.mktemp("tasks") / "hello")


@pytest.fixture(params=FORMS, ids=lambda form: form.agent)
def form(request: pytest.FixtureRequest) -> Form:
    found: Form = request.param
    return found


@pytest.fixture
def spec(request: pytest.FixtureRequest, task: Path, tmp_path: Path) -> TrialSpec:
    return make_spec(request.node.name, task, tmp_path)
