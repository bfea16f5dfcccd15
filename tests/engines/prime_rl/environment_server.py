"""verifiers' environment server and client in this process, around the plugin."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from verifiers.v1.serve.client import EnvClient
from verifiers.v1.serve.server import EnvServer
from verifiers.v1.utils.loaders import load_taskset

ENVIRONMENT = "tbtui.rollout.environments.sandbox:SandboxEnvironment"


@dataclass(frozen=True)
class EnvironmentServer:
    """Runs rollouts as an orchestrator does."""

    client: EnvClient
    tasks: Mapping[str, Any]
    model_url: str
    directory: Path

    async def rollout(self, task: str) -> Any:
        """The trace of one rollout."""
        (trace,) = (await self.episode(task)).traces
        return trace

    async def episode(self, task: str) -> Any:
        return await self.client.run(
            vf.EvalClientConfig(base_url=self.model_url, api_key_var="NO_KEY"),
            "scripted",
            vf.SamplingConfig(temperature=1.0),
            self.tasks[task].data.model_dump(mode="json"),
        )


def environment_config(
    tasks_dir: Path, directory: Path, limits: Mapping[str, Any], **harness: Any
) -> vf.SingleAgentEnvConfig:
    return vf.SingleAgentEnvConfig.model_validate(
        {
            "taskset": {"id": "tbtui-harbor", "tasks_dir": str(tasks_dir)},
            "agent": {
                "runtime": {"type": "subprocess"},
                **limits,
                "harness": {
                    "id": "tbtui-harbor",
                    "environment_type": ENVIRONMENT,
                    "trials_dir": str(directory),
                    **harness,
                },
            },
        }
    )


@asynccontextmanager
async def serving_environment(
    tasks_dir: Path,
    directory: Path,
    model_url: str,
    limits: Mapping[str, Any] | None = None,
    **harness: Any,
) -> AsyncIterator[EnvironmentServer]:
    """The server, up and healthy. `limits`: verifiers' own; `harness`: settings of the harness."""
    config = environment_config(tasks_dir, directory, limits or {}, **harness)
    server = EnvServer(config, address="tcp://127.0.0.1:0")
    running = asyncio.create_task(server.run())
    client = EnvClient(server.address)
    tasks = {str(task.data.name): task for task in load_taskset(config.taskset)}
    try:
        await client.wait_for_server_startup(interval=0.2)
        yield EnvironmentServer(client, tasks, model_url, directory)
    finally:
        await client.close()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
