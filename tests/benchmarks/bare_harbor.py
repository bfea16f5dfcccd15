"""A trial by Harbor alone: stock Terminus-2, a scripted model that answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, override

from harbor.agents.terminus_2.terminus_2 import Terminus2
from harbor.llms.base import BaseLLM, LLMResponse
from harbor.models.metric import UsageInfo
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

CONTEXT = 200_000


class _Scripted(BaseLLM):
    def __init__(self, script: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._answers = iter(script)

    @override
    async def call(self, prompt: str, **kwargs: Any) -> LLMResponse:
        usage = UsageInfo(prompt_tokens=1, completion_tokens=1, cache_tokens=0, cost_usd=0.0)
        return LLMResponse(content=next(self._answers), usage=usage)

    @override
    def get_model_context_limit(self) -> int:
        return CONTEXT

    @override
    def get_model_output_limit(self) -> int | None:
        return 512


class ScriptedTerminus(Terminus2):
    def __init__(self, script: list[str], **kwargs: Any) -> None:
        self._script = script
        super().__init__(**kwargs)

    @override
    def _init_llm(self, *args: Any, **kwargs: Any) -> BaseLLM:
        return _Scripted(self._script)


async def run_bare(
    name: str, task: Path, trials_dir: Path, script: list[str], environment: EnvironmentConfig
) -> float | None:
    """The trial's reward."""
    config = TrialConfig(
        task=TaskConfig(path=task),
        trials_dir=trials_dir,
        trial_name=name,
        agent=AgentConfig(
            import_path=f"{__name__}:ScriptedTerminus",
            model_name="scripted/model",
            kwargs={
                "script": script,
                "max_turns": len(script) + 2,
                "record_terminal_session": False,
                "enable_summarize": False,
                "suppress_max_turns_warning": True,
            },
        ),
        environment=environment,
    )
    result = await (await Trial.create(config)).run()
    rewards = result.verifier_result.rewards if result.verifier_result else None
    return rewards["reward"] if rewards else None
