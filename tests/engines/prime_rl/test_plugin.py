"""The plugin through verifiers' own loader, environment server and client.

A scripted model stands behind verifiers' interception; the trials, the sandboxes and the
verifiers of the tasks are real.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import multiprocessing
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

pytest.importorskip("verifiers", reason="verifiers is not installed: the extra `prime-rl` has it")

from verifiers.v1.serve.client import EnvClient
from verifiers.v1.serve.server import EnvServer
from verifiers.v1.utils.loaders import load_taskset

from tbtui.journal.events import decode_any
from tests.engines.prime_rl.environment_server import (
    EnvironmentServer,
    environment_config,
    serving_environment,
)
from tests.engines.prime_rl.scripted_model import (
    Answer,
    ScriptedModel,
    Status,
    Withheld,
    serving,
    silent,
)
from tests.rollout.scripted import DONE, HELLO, act
from tests.tasks import HELLO as HELLO_TEST
from tests.tasks import make_task

SCRIPTS: dict[str, list[Answer]] = {
    "solved": [HELLO, DONE, DONE],
    "failed": [act("echo no\n"), DONE, DONE],
    "partial": [HELLO, DONE, DONE],
    "broken": [HELLO, DONE, DONE],
    "refused": [HELLO, Status(400, "this model takes no such request")],
    "denied": [Status(401, "no such key")],
    "withheld": [HELLO, Withheld()],
    "flaky": [Status(503), HELLO, DONE, DONE],
    "overlong": [Status(400, "This model's maximum context length is 64 tokens")],
    "endless": [act("true\n")],
    "ended": [HELLO, DONE, DONE],
}
VERIFIERS = {
    "partial": "echo 0.25 > $R",
    "broken": "exit 3",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncIterator[ScriptedModel]:
    async with serving(SCRIPTS) as model:
        yield model


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EnvironmentServer]:
    tasks = tmp_path_factory.mktemp("tasks")
    for name in SCRIPTS:
        make_task(tasks / name, f"[{name}] Create /app/hello.txt.", VERIFIERS.get(name, HELLO_TEST))
    directory = tmp_path_factory.mktemp("trials")
    async with serving_environment(tasks, directory, model.url, max_turns=4) as server:
        yield server


pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.extras]


def events(server: EnvironmentServer, task: str) -> list[dict[str, Any]]:
    """The events of the task's newest trial."""
    logs = sorted((server.directory / "events").glob(f"{task}__*.jsonl"), key=_modified)
    if not logs:
        return []
    return [json.loads(line)["event"] for line in logs[-1].read_text().splitlines()]


def _modified(path: Path) -> int:
    return path.stat().st_mtime_ns


async def seen(server: EnvironmentServer, task: str, kind: str, **fields: Any) -> dict[str, Any]:
    """The first such event of the task's newest trial, as soon as it is in the file."""
    while True:
        for event in events(server, task):
            if event["kind"] == kind and fields.items() <= event.items():
                return event
        await asyncio.sleep(0.02)  # a file announces nothing


async def test_solved(server: EnvironmentServer) -> None:
    trace = await server.rollout("solved")
    assert (trace.has_error, trace.reward, trace.num_turns) == (False, 1.0, 3)
    assert trace.info["tbtui"]["outcome"] == "solved"
    assert len(trace.branches) == 1  # each prompt extends the one before: one training sample
    trial = trace.info["tbtui"]["trial"]
    assert "echo hi" in (server.directory / "trials" / trial / "recording.cast").read_text()


@pytest.mark.parametrize(
    ("task", "reward", "outcome"),
    [
        ("failed", 0.0, "failed"),
        ("partial", 0.25, "failed"),
        # What follows is the policy's doing.
        ("endless", 0.0, "agent_timeout"),
        ("overlong", 0.0, "context_overflow"),
    ],
)
async def test_what_is_scored(
    server: EnvironmentServer, task: str, reward: float, outcome: str
) -> None:
    trace = await server.rollout(task)
    assert (trace.has_error, trace.reward) == (False, reward)
    assert trace.info["tbtui"]["outcome"] == outcome
    assert trace.num_turns == 4 or task != "endless"


@pytest.mark.parametrize(
    ("task", "says", "outcome"),
    [
        ("broken", "verifier_error", "verifier_error"),
        ("refused", "this model takes no such request", "refused"),
        ("withheld", "the server withholds the completion (content_filter)", "refused"),
        ("denied", "no such key", "provider_error"),
    ],
)
async def test_what_is_dropped(
    server: EnvironmentServer, model: ScriptedModel, task: str, says: str, outcome: str
) -> None:
    trace = await server.rollout(task)
    assert trace.has_error
    assert not [reward for reward in trace.rewards.values() if reward is not None]
    assert says in str(trace.errors[-1].message)
    assert trace.info["tbtui"]["outcome"] == outcome
    assert model.asked[task] == 2 or task != "refused"  # it is asked once


async def test_passing_failure_is_tried_again(
    server: EnvironmentServer, model: ScriptedModel
) -> None:
    trace = await server.rollout("flaky")
    assert (trace.has_error, trace.reward, trace.num_turns) == (False, 1.0, 3)
    assert model.asked["flaky"] == 4


async def test_events_are_the_journals(server: EnvironmentServer) -> None:
    await server.rollout("solved")
    found = events(server, "solved")
    kinds = [event["kind"] for event in found]
    assert kinds[0] == "trial_queued"
    assert kinds[-1] == "trial_finished"
    assert kinds.count("turn_sampled") == kinds.count("turn_parsed") == 3
    for event in found:
        decode_any(json.dumps(event).encode())


@pytest.fixture
def asking(model: ScriptedModel) -> Iterator[asyncio.Event]:
    with silent(model) as arrived:
        yield arrived


async def test_rollout_given_up_by_the_orchestrator_ends_its_trial(
    server: EnvironmentServer, asking: asyncio.Event
) -> None:
    rollout = asyncio.create_task(server.rollout("ended"))
    await asking.wait()
    rollout.cancel()
    finished = await seen(server, "ended", "trial_finished")
    assert (finished["outcome"], finished["reward"]) == ("cancelled", None)


async def test_verifiers_own_turn_limit_ends_the_agent_and_the_trial_is_judged(
    server: EnvironmentServer, model: ScriptedModel, tmp_path: Path
) -> None:
    tasks = make_task(tmp_path / "tasks" / "solved", "[solved] Create /app/hello.txt.")
    async with serving_environment(tasks, tmp_path / "t", model.url, {"max_turns": 2}) as limited:
        trace = await limited.rollout("solved")
    # The policy never said that it was done, so that the right file is no success.
    assert (trace.has_error, trace.reward, trace.num_turns) == (False, 0.0, 2)
    assert trace.info["tbtui"]["verdict"] == 1.0
    assert trace.info["tbtui"]["reason"] == "rollout stopped: max_turns"


async def test_killed_server_takes_its_workers_and_sandboxes_along(
    server: EnvironmentServer, model: ScriptedModel, asking: asyncio.Event, tmp_path: Path
) -> None:
    tasks = make_task(tmp_path / "tasks" / "solved", "[solved] Create /app/hello.txt.")
    config = environment_config(tasks, tmp_path / "trials", {})
    spawn = multiprocessing.get_context("spawn")
    addresses = spawn.Queue()
    arguments = {"config": config, "address": "tcp://127.0.0.1:0", "address_queue": addresses}
    process = spawn.Process(target=EnvServer.run_server, kwargs=arguments)
    process.start()
    client = EnvClient(await asyncio.to_thread(addresses.get))
    other = dataclasses.replace(
        server, client=client, tasks={"solved": next(iter(load_taskset(config.taskset)))}
    )
    rollout = asyncio.create_task(other.rollout("solved"))
    await asking.wait()
    family = psutil.Process(process.pid).children(recursive=True)
    assert any("tbtui.rollout.worker" in " ".join(member.cmdline()) for member in family)
    process.kill()
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, 60)
    assert not [member for member in alive if member.status() != psutil.STATUS_ZOMBIE]
    rollout.cancel()
    await client.close()
