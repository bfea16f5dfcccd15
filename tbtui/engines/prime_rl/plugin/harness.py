"""tbtui's trials as a verifiers harness, and the environment that its rollouts share.

verifiers gives the harness an endpoint, an OpenAI-compatible server of its own that passes model
calls on and records them as training data. The agent's calls go there and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
import verifiers.v1 as vf
from pydantic import Field

from tbtui.engines.prime_rl.plugin.endpoint import ChatEndpoint
from tbtui.engines.prime_rl.plugin.files import hosted_name
from tbtui.engines.prime_rl.plugin.host import HostedTrial, HostSettings, TrialHost
from tbtui.engines.prime_rl.plugin.taskset import INFO, HarborTaskData
from tbtui.journal.events import Purpose
from tbtui.rollout.environments.choose import choose_environment
from tbtui.rollout.messages import EnvironmentSpec, RewardChoice, TrialSpec

DIRECTORY_VARIABLE = "TBTUI_TRIALS_DIR"
DEFAULT_DIRECTORY = "tbtui-trials"


class TrialUnscoredError(RuntimeError):
    """The trial has no reward: its infrastructure failed, or a person ended it."""


class NoEnvironmentError(RuntimeError):
    """The harness runs without `HarborEnvironment` around it."""


class HarborHarnessConfig(vf.HarnessConfig):
    environment_type: str | None = None
    """sandbox, docker, podman, a type that Harbor knows, or module:Class; none: the best here."""
    environment_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Passed through to the environment."""
    force_build: bool = False
    """Build a task's Dockerfile although the task names an image."""
    task_credentials: list[str] = Field(default_factory=list)
    """Credentials of this machine that tasks may take, by name."""
    max_turns: int = Field(default=30, ge=1)
    """Model calls of the agent, summaries not counted."""
    trial_timeout_sec: float | None = Field(default=None, gt=0)
    """Active seconds of the agent, pauses not counted; none: the task's own."""
    n_parallel_envs: int = Field(default=16, ge=1)
    """Trials that run at once in one environment server."""
    n_workers: int = Field(default=1, ge=1)
    """Processes that run them."""
    context_limit: int = Field(default=32_768, ge=1)
    """Tokens of prompt and completion together: what the model is served with."""
    max_tokens: int = Field(default=4_096, ge=1)
    """Tokens in one completion; Prime-RL's own sampling setting goes before it."""
    enable_summarize: bool = False
    proactive_summarization_threshold: int = Field(default=8_000, ge=0)
    """The agent summarises its history with fewer free tokens than this; 0: only when it must."""
    keep: Literal["all", "failed", "none"] = "all"
    """Which trials keep their recordings and Harbor's logs on disk."""
    reward_key: str | None = None
    """Which of a verifier's rewards counts; none: the only one, or the one called reward."""
    reward_weights: dict[str, float] = Field(default_factory=dict)
    """The reward is the sum of these, each times its weight."""
    trials_dir: Path | None = None
    """Trials, their events and the control file; none: $TBTUI_TRIALS_DIR, else `tbtui-trials`."""

    def directory(self) -> Path:
        """The absolute path that `trials_dir` or the environment variable gives."""
        given = self.trials_dir or os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY
        return Path(given).expanduser().absolute()


@dataclass(frozen=True, slots=True)
class ServerResources:
    """What all rollouts of an environment server have in common."""

    host: TrialHost
    client: aiohttp.ClientSession
    environment: EnvironmentSpec
    directory: Path


RESOURCES: ContextVar[ServerResources] = ContextVar("tbtui_shared")
"""verifiers makes a harness for each rollout; the environment hands it this."""


class HarborHarness(vf.Harness[HarborHarnessConfig]):
    """Runs each rollout as a tbtui trial."""

    # Harbor makes the sandbox; nothing ever runs in verifiers' own runtime.
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: HarborTaskData,
    ) -> vf.ProgramResult:
        """Run the trial; what became of it is in `trace.info["tbtui"]`.

        Raises:
            NoEnvironmentError: `HarborEnvironment` is not around it.
            TrialUnscoredError: there is no reward. verifiers makes it the trace's error, and the
                orchestrator drops the rollout.
        """
        resources = RESOURCES.get(None)
        if resources is None:
            raise NoEnvironmentError(
                "this harness needs its own environment beside it: name the plugin as the"
                " taskset too, and no other environment (env.id)"
            )
        config = self.config
        name = hosted_name(str(data.name), trace.id)
        info: dict[str, Any] = {"trial": name, "reward": None}
        trace.info[INFO] = info
        _notify(trace)
        spec = TrialSpec(
            trial=name,
            task_dir=Path(data.task_dir),
            trials_dir=resources.directory / "trials",
            environment=resources.environment,
            model_name=f"prime-rl/{ctx.model}",
            max_turns=config.max_turns,
            budget_sec=config.trial_timeout_sec or data.agent_timeout_sec,
            context_limit=config.context_limit,
            max_tokens=config.max_tokens,
            enable_summarize=config.enable_summarize,
            proactive_summarization_threshold=config.proactive_summarization_threshold,
            keep=config.keep,
            rewards=RewardChoice(config.reward_key, config.reward_weights),
            credentials=tuple(config.task_credentials),
        )
        purpose: Purpose = "eval" if data.split == "heldout" else "train"
        model = ChatEndpoint(resources.client, endpoint, secret, ctx.model, config.max_tokens)
        end = await resources.host.run(HostedTrial(spec, str(data.name), purpose, model))
        decision, facts = end.decision, end.facts
        info |= {
            "outcome": str(decision.outcome),
            "reason": decision.reason,
            "verdict": decision.verdict,
            "reward": decision.reward,
            "turns": facts.turns if facts is not None else 0,
            "seconds": facts.seconds.by_phase() if facts is not None else {},
        }
        _notify(trace)
        if decision.reward is None:
            raise TrialUnscoredError(f"{decision.outcome}: {decision.reason}")
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


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
            UserError: no worker starts.
            OSError: `trials_dir` can't be used.
        """
        self._resources: ServerResources | None = None
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
        self._resources = ServerResources(
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
        if self._resources is not None:
            await self._resources.host.close()
            await self._resources.client.close()

    async def run(self, task: Any, agents: Any) -> None:
        if self._resources is None:
            await super().run(task, agents)
            return
        token = RESOURCES.set(self._resources)
        try:
            await super().run(task, agents)
        finally:
            RESOURCES.reset(token)


def _notify(trace: vf.Trace) -> None:
    """Show watchers of the trace what was added to it."""
    # Before 0.4, and so where Prime-RL pins an earlier commit, a trace can't be watched.
    if hasattr(trace, "notify"):
        trace.notify()
