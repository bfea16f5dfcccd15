"""Agents that are programs in a container: they reach the run's endpoint and no more."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tbtui.journal.events import Outcome
from tbtui.rollout.environments.docker_cli import run_cli
from tbtui.rollout.environments.leftovers import AGENT_IMAGES
from tbtui.rollout.messages import SampleWanted, TrialSpec
from tbtui.rollout.outcome import decide
from tests.docker.test_trials import make_spec
from tests.rollout.scripted import ScriptedEngine, changed
from tests.rollout.test_agents import DONE, WRITES, python, screen
from tests.tasks import make_task

DOCKERFILE = """\
FROM debian:bookworm-slim
RUN apt-get update -q && apt-get install -qy --no-install-recommends python3
WORKDIR /app
"""
PROBE = """\
import socket
print('own:', get(BASE + '/models', KEY))
print('none:', get(BASE + '/models', ''))
print('other:', get(BASE + '/models', 'x' * 43))
print('interfaces:', sorted(name for _, name in socket.if_nameindex()))
"""


@pytest_asyncio.fixture
async def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedEngine]:
    # Where its workers find the agents of the tests.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    engine = ScriptedEngine(tmp_path / "logs")
    await engine.pool.start()
    yield engine
    await engine.pool.stop()


def agent_spec(folder: Path, network: str) -> TrialSpec:
    task = make_task(folder / "hello")
    (task / "environment" / "Dockerfile").write_text(DOCKERFILE)
    with (task / "task.toml").open("a") as toml:
        toml.write(f'network_mode = "{network}"\n')
    return changed(make_spec("agent", task, folder), agent="tests.agents.ours:Program")


ROOT = os.geteuid() == 0
"""Root enters a container's own network; any other user is reached by the bridge."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("network", ["no-network", "public"] if ROOT else ["public"])
async def test_its_calls_are_turns(engine: ScriptedEngine, tmp_path: Path, network: str) -> None:
    spec = agent_spec(tmp_path, network)
    program = f'{python(PROBE)}\nloop "$TASK"'
    facts = await engine.run(changed(spec, agent_kwargs={"then": program}), [WRITES, DONE])
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 2)
    assert decide(facts).outcome is Outcome.SOLVED
    first, second = engine.seen["agent"].of(SampleWanted)
    assert first.messages[-1].content.startswith("Create the file")
    assert second.messages[-1].content == "written\n"
    shown = screen(spec)
    assert "own: 200" in shown
    assert "none: 401" in shown
    assert "other: 401" in shown
    if network == "no-network":
        assert "interfaces: ['lo']" in shown


@pytest.mark.timeout(600)
async def test_its_own_gateway_leads_to_none_of_it(engine: ScriptedEngine, tmp_path: Path) -> None:
    """Root's endpoint is on its loopback, and another user's on the bridge's address alone."""
    code = (
        "import urllib.parse, socket\n"
        "port = urllib.parse.urlsplit(BASE).port\n"
        "route = next(r.split() for r in open('/proc/net/route') if r.split()[1] == '00000000')\n"
        "gateway = socket.inet_ntoa(bytes.fromhex(route[2])[::-1])\n"
        "print('by its gateway:', get(f'http://{gateway}:{port}/v1/models', KEY))\n"
    )
    spec = agent_spec(tmp_path, "public")
    program = f'{python(code)}\nloop "$TASK"'
    facts = await engine.run(changed(spec, agent_kwargs={"then": program}), [WRITES, DONE])
    assert decide(facts).outcome is Outcome.SOLVED
    assert "by its gateway: URLError" in screen(spec)


@pytest.mark.timeout(600)
@pytest.mark.skipif(ROOT, reason="root enters a container that has no network")
async def test_without_a_network_it_is_refused(engine: ScriptedEngine, tmp_path: Path) -> None:
    facts = await engine.run(agent_spec(tmp_path, "no-network"), [WRITES, DONE])
    decision = decide(facts)
    assert (decision.outcome, decision.reward) == (Outcome.SETUP_ERROR, None)
    assert "only root can reach the model endpoint in it" in decision.reason


@pytest.mark.timeout(900)
async def test_it_is_installed_once_for_a_tasks_image(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    network = "no-network" if ROOT else "public"
    first = changed(agent_spec(tmp_path, network), agent="tests.agents.ours:Installed")
    mark = secrets.token_hex(8)  # an image of this test's alone
    first = changed(first, agent_kwargs={"install": f": {mark}"})
    other = changed(first, trial="other", agent_kwargs={"install": f": {mark} other"})
    stamps = []
    try:
        specs = (first, changed(first, trial="again"), other)
        for spec in specs:
            facts = await engine.run(spec, [WRITES, DONE])
            assert decide(facts).outcome is Outcome.SOLVED, facts
            stamps.append(re.findall(r"stamp: (\S+)", screen(spec)))
        assert stamps[0] == stamps[1] != stamps[2]
        listed = await images()
        assert len(listed) == 2
        await run_cli(["docker", "image", "rm", *listed])
        facts = await engine.run(changed(first, trial="anew"), [WRITES, DONE])
        assert decide(facts).outcome is Outcome.SOLVED, facts
        assert await images()
    finally:
        await run_cli(["docker", "image", "rm", *await images()])


@pytest.mark.timeout(600)
async def test_one_that_cannot_be_installed_earns_nothing(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    spec = changed(
        agent_spec(tmp_path, "no-network" if ROOT else "public"),
        agent="tests.agents.ours:Installed",
        agent_kwargs={"install": "echo no such package >&2; false"},
    )
    for trial in ("first", "second"):
        facts = await engine.run(changed(spec, trial=trial), [])
        decision = decide(facts)
        assert (decision.outcome, decision.reward) == (Outcome.SETUP_ERROR, None)
        assert "can't be installed" in decision.reason
        assert "no such package" in decision.reason
    assert not await images()


async def images() -> list[str]:
    form = "{{.Repository}}:{{.Tag}}"
    listed = await run_cli(["docker", "image", "ls", "--format", form, AGENT_IMAGES])
    return listed.stdout.split()
