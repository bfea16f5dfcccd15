"""How a trial's agent reaches the model endpoint: its address, its secret, and nothing else.

The endpoint is served by this process. Its socket is made where the agent looks for it:

- in the network of the trial's own box or container, on 127.0.0.1. What connects to it comes from
  there; no packet leaves that network, so it works, and nothing else does, where there is none;
- on this host's loopback, where the environment shares the host's network;
- on the address that containers have for this host, where the engine's containers can't be
  entered by this process and have a network anyway; where they run in a virtual machine, as on a
  Mac, on this host's loopback, to which the engine leads;
- on all addresses, for an environment elsewhere, which `endpoint_public_url` has to lead to.

Each socket but the last takes the secret of its own trial alone.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from dataclasses import dataclass, field
from typing import Literal

from harbor.environments.base import BaseEnvironment
from harbor.models.task.config import NetworkMode

from tbtui.endpoint.server import Listening, ModelEndpoint
from tbtui.rollout.environments.base import HasLoopback, SandboxStartError
from tbtui.rollout.environments.choose import (
    DOCKER_IMPORT_PATH,
    PODMAN_IMPORT_PATH,
    SANDBOX_IMPORT_PATH,
)
from tbtui.rollout.environments.docker_cli import run_cli
from tbtui.rollout.messages import EndpointSpec, EnvironmentSpec

_LOOPBACK = "127.0.0.1"
_PORTS = 64
_ENGINES = {DOCKER_IMPORT_PATH: "docker", PODMAN_IMPORT_PATH: "podman"}
# What containers in a virtual machine call the machine around it.
_NAMES_OF_HOST = {"docker": "host.docker.internal", "podman": "host.containers.internal"}
_ONLY_WITH_NETWORK = (
    "only root can reach the model endpoint in it: run as root, in a sandbox,"
    if sys.platform == "linux"
    else "its virtual machine can't be entered: run on Linux,"
)

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reach:
    """One trial's way to the endpoint; `close` ends it."""

    url: str
    """Without a path, as the agent is given it."""
    port: int
    host_socket: socket.socket
    """On this host, with that port; listens only where it is served."""
    way: Literal["inside", "gateway", "public"]
    """The address is the environment's own loopback, the one that containers have for this host, or
    one that leads here from elsewhere."""
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    _served: list[Listening] = field(default_factory=list)

    async def open(
        self, endpoint: ModelEndpoint, environment: BaseEnvironment, *, here: bool = False
    ) -> None:
        """Serve it to this environment, and with `here` to code of the agent's in this process.

        Raises:
            SandboxStartError: there is no way for the environment to reach it.
        """
        if self._served:
            return
        if self.way == "gateway" and environment.network_policy.network_mode != NetworkMode.PUBLIC:
            raise SandboxStartError(
                f"the container has no network, and {_ONLY_WITH_NETWORK} or on a task with"
                ' network_mode = "public"'
            )
        own = await self._listen_inside(environment) if self.way == "inside" else None
        if own is not None:
            self._served.append(await endpoint.listen(own, self.secret))
        if own is None or here:
            only = self.secret if self.way != "public" else None
            self._served.append(await endpoint.listen(self.host_socket, only))

    async def _listen_inside(self, environment: BaseEnvironment) -> socket.socket | None:
        if not isinstance(environment, HasLoopback):
            return None
        try:
            return await environment.listen(self.port)
        except (OSError, RuntimeError) as error:
            raise SandboxStartError(f"no model endpoint in the sandbox: {error}") from error

    async def close(self) -> None:
        """Stop serving it. Idempotent."""
        served, self._served = self._served, []
        for listening in served:
            await listening.close()
        self.host_socket.close()


async def reach_from(environment: EnvironmentSpec, endpoint: EndpointSpec) -> Reach:
    """Choose the address before the environment is there: agents are made with it.

    Raises:
        SandboxStartError: nothing leads from such an environment to this host.
    """
    if endpoint.public_url is not None:
        sock = _first_free("0.0.0.0", range(endpoint.port, endpoint.port + _PORTS))
        port = sock.getsockname()[1]
        return Reach(endpoint.public_url.format(port=port).rstrip("/"), port, sock, "public")
    engine = _ENGINES.get(environment.import_path or "")
    if engine is not None and (os.geteuid() != 0 or sys.platform != "linux"):
        gateway, here = await _gateway(engine)
        sock = _first_free(here, (0,))
        port = sock.getsockname()[1]
        return Reach(f"http://{gateway}:{port}", port, sock, "gateway")
    if engine is None and environment.import_path != SANDBOX_IMPORT_PATH:
        raise SandboxStartError("nothing leads from this environment to the model endpoint here")
    sock = _first_free(_LOOPBACK, (0,))
    port = sock.getsockname()[1]
    return Reach(f"http://{_LOOPBACK}:{port}", port, sock, "inside")


def _first_free(host: str, ports: range | tuple[int, ...]) -> socket.socket:
    problem: OSError | None = None
    for port in ports:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind((host, port))
        except OSError as error:
            sock.close()
            problem = error
        else:
            return sock
    raise SandboxStartError(f"no port for the model endpoint on {host}: {problem}")


async def _gateway(engine: str) -> tuple[str, str]:
    """The address that the engine's containers have for this host, and where that is here."""
    if sys.platform != "linux":
        return _NAMES_OF_HOST[engine], _LOOPBACK
    name, form = ("bridge", "{{(index .IPAM.Config 0).Gateway}}")
    if engine == "podman":
        name, form = ("podman", "{{(index .Subnets 0).Gateway}}")
    found = await run_cli([engine, "network", "inspect", "--format", form, name])
    address = found.stdout.strip()
    if found.exit_code != 0 or not address:
        raise SandboxStartError(f"{engine} has no address for this host: {found.complaint}")
    return address, address
