"""The environment of a server: what its rollouts share, begun and ended with it."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import verifiers.v1 as vf

from tbtui.engines.prime_rl.plugin.harness import SHARED, HarborHarnessConfig, Shared
from tbtui.engines.prime_rl.plugin.host import HostSettings, TrialHost
from tbtui.rollout.environments.choose import choose_environment
from tbtui.rollout.messages import EnvironmentSpec


class HarborEnvironment(vf.SingleAgentEnv):
    """Harbor tasks, attempted by Terminus-2 under tbtui's control.

    The seed's `HarborEnvironment(tasks_dir=..., max_turns=...)` is configuration today: naming
    the taskset brings this class and the harness along.

        [orchestrator.train.source.env.taskset]
        id = "tbtui-harbor"
        tasks_dir = "/tasks"

        [orchestrator.train.source.env.agent]
        runtime = { type = "subprocess" }

        [orchestrator.train.source.env.agent.harness]
        id = "tbtui-harbor"
        environment_type = "docker"
        max_turns = 30

    The seed's `tasks_dir` is the taskset's; its other arguments are the harness's, by the same
    names: `HarborTasksetConfig` and `HarborHarnessConfig` list them.
    """

    async def start(self) -> None:
        """Start the rollout workers.

        Raises:
            EnvironmentUnavailable: the sandboxes asked for can't be had here.
            WorkersFailedError: no worker starts.
            OSError: `trials_dir` can't be used.
        """
        self._shared: Shared | None = None
        config = self.config.agent.harness or HarborHarnessConfig()
        if not isinstance(config, HarborHarnessConfig):
            return  # another harness attempts the tasks, in its own way
        choice = await asyncio.to_thread(
            choose_environment, config.environment_type, config.environment_kwargs
        )
        directory = config.directory()
        repeats = any(
            retries.max_retries for retries in (self.config.agent.retries, self.config.retries)
        )
        host = TrialHost(HostSettings(directory, config.n_parallel_envs, config.n_workers, repeats))
        await host.start()
        self._shared = Shared(
            host,
            # As many connections as there are trials.
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)),
            EnvironmentSpec(
                choice.type, choice.import_path, dict(choice.kwargs), config.force_build
            ),
            directory,
        )

    async def stop(self) -> None:
        """End the trials and the workers, which take their sandboxes down."""
        if self._shared is not None:
            await self._shared.host.close()
            await self._shared.client.close()

    async def run(self, task: Any, agents: Any) -> None:
        if self._shared is None:
            await super().run(task, agents)
            return
        token = SHARED.set(self._shared)
        try:
            await super().run(task, agents)
        finally:
            SHARED.reset(token)
