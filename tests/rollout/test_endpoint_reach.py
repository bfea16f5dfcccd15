"""Whose secret a trial's socket takes, by the way in which its agent reaches it."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace
from typing import Any, Literal

import httpx
import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy

from tbtui.endpoint.server import ModelEndpoint
from tbtui.rollout.environments.base import SandboxStartError
from tbtui.rollout.environments.choose import DOCKER_IMPORT_PATH
from tbtui.rollout.messages import EndpointSpec, EnvironmentSpec
from tbtui.rollout.reach import Reach, reach_from
from tests.endpoint.served import Scripted

pytestmark = pytest.mark.uid


def on_loopback(way: Literal["gateway", "public"]) -> Reach:
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    return Reach(f"http://127.0.0.1:{port}", port, sock, way)


def container(mode: NetworkMode) -> Any:
    """An environment that can't be entered."""
    return SimpleNamespace(network_policy=NetworkPolicy(network_mode=mode))


@pytest.mark.parametrize(("way", "others"), [("gateway", 401), ("public", 200)])
async def test_whose_secret_is_taken(way: Literal["gateway", "public"], others: int) -> None:
    """One address may have to serve all trials where it is public, and nowhere else."""
    endpoint, reach, other = ModelEndpoint(), on_loopback(way), "o" * 43
    endpoint.admit(reach.secret, Scripted())
    endpoint.admit(other, Scripted())
    await reach.open(endpoint, container(NetworkMode.PUBLIC))
    try:
        async with httpx.AsyncClient() as client:
            for secret, status in ((reach.secret, 200), (other, others), ("x" * 43, 401)):
                headers = {"Authorization": f"Bearer {secret}"}
                answer = await client.get(f"{reach.url}/v1/models", headers=headers)
                assert answer.status_code == status
    finally:
        await reach.close()
        await endpoint.close()


async def test_containers_in_a_virtual_machine_are_led_to_this_hosts_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    reach = await reach_from(EnvironmentSpec("docker", DOCKER_IMPORT_PATH), EndpointSpec())
    host, port = reach.host_socket.getsockname()
    assert (reach.url, host) == (f"http://host.docker.internal:{port}", "127.0.0.1")
    assert reach.way == "gateway"
    await reach.close()


async def test_no_way_leads_out_of_a_container_without_a_network() -> None:
    endpoint, reach = ModelEndpoint(), on_loopback("gateway")
    with pytest.raises(SandboxStartError, match="the container has no network, and"):
        await reach.open(endpoint, container(NetworkMode.NO_NETWORK))
    await reach.close()
    await endpoint.close()
