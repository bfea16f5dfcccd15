"""What tbtui's trials cost over bare Harbor's: `python tests/benchmarks/trial_overhead.py`.

The same three-turn starter trial, the same sandbox and an instant scripted model: through
`harbor.trial.trial.Trial` in this process with stock Terminus-2, and through tbtui's pool, worker
process, gate and recording.
"""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import asyncio
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, override

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "rollout"))

from harbor.agents.terminus_2.terminus_2 import Terminus2
from harbor.llms.base import BaseLLM, LLMResponse
from harbor.models.metric import UsageInfo
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial
from scripted import DONE, SANDBOX, ScriptedEngine, act

from tbtui.resources import tasks_dir
from tbtui.rollout.messages import TrialSpec

TASK = tasks_dir() / "starter" / "copy-01"
SCRIPT = [act("cp /app/readme.md /app/alpha.txt\n", duration=0.0), DONE, DONE]


class _Scripted(BaseLLM):
    def __init__(self) -> None:
        super().__init__()
        self._answers = iter(SCRIPT)

    @override
    async def call(self, prompt: str, **kwargs: Any) -> LLMResponse:
        usage = UsageInfo(prompt_tokens=1, completion_tokens=1, cache_tokens=0, cost_usd=0.0)
        return LLMResponse(content=next(self._answers), usage=usage)

    @override
    def get_model_context_limit(self) -> int:
        return 32_768

    @override
    def get_model_output_limit(self) -> int | None:
        return 512


class ScriptedTerminus(Terminus2):
    @override
    def _init_llm(self, *args: Any, **kwargs: Any) -> BaseLLM:
        return _Scripted()


async def bare(name: str, trials_dir: Path) -> float | None:
    config = TrialConfig(
        task=TaskConfig(path=TASK),
        trials_dir=trials_dir,
        trial_name=name,
        agent=AgentConfig(
            import_path=f"{__name__}:ScriptedTerminus",
            model_name="scripted/model",
            kwargs={
                "max_turns": 8,
                "record_terminal_session": False,
                "enable_summarize": False,
                "suppress_max_turns_warning": True,
            },
        ),
        environment=EnvironmentConfig(import_path=SANDBOX.import_path),
    )
    result = await (await Trial.create(config)).run()
    return result.verifier_result.rewards["reward"] if result.verifier_result else None


async def timed(run: Callable[[str], Awaitable[float | None]], name: str) -> float:
    began = time.perf_counter()
    reward = await run(name)
    if reward != 1.0:
        raise SystemExit(f"{name}: reward {reward}, expected 1")
    return time.perf_counter() - began


async def rate(run: Callable[[str], Awaitable[float | None]], name: str, trials: int) -> float:
    """Trials per second with eight at once."""
    slots = asyncio.Semaphore(8)

    async def one(number: int) -> None:
        async with slots:
            await timed(run, f"{name}-{number}")

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(trials)))
    return trials / (time.perf_counter() - began)


async def main() -> None:
    logging.getLogger("harbor").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        print(f"{'':28}{'one trial, median':>20}{'trials/s, 8 at once':>22}")

        async def bare_trial(name: str) -> float | None:
            return await bare(name, root / "bare")

        engines = {n: ScriptedEngine(root / "logs", n_workers=n) for n in (1, 2)}

        def ours(n: int) -> Callable[[str], Awaitable[float | None]]:
            async def run(name: str) -> float | None:
                spec = TrialSpec(
                    trial=name,
                    task_dir=TASK,
                    trials_dir=root / "ours",
                    environment=SANDBOX,
                    model_name="scripted/model",
                    max_turns=8,
                    budget_sec=60,
                    context_limit=32_768,
                    max_tokens=512,
                )
                return (await engines[n].run(spec, SCRIPT)).verdict

            return run

        await engines[1].pool.start()
        singles: dict[str, list[float]] = {"bare": [], "ours": []}
        for number in range(13):  # taken in turns, so that both see the same machine
            singles["bare"].append(await timed(bare_trial, f"bare-{number}"))
            singles["ours"].append(await timed(ours(1), f"ours-{number}"))
        medians = {name: statistics.median(times[1:]) for name, times in singles.items()}
        rates = {"bare": await rate(bare_trial, "bare8", 48), "ours": await rate(ours(1), "o8", 48)}
        await engines[1].pool.stop()
        await engines[2].pool.start()
        await engines[2].until_ready(2)
        two = await rate(ours(2), "o82", 48)
        await engines[2].pool.stop()
        print(f"{'bare Harbor, one process':28}{medians['bare']:>18.3f} s{rates['bare']:>22.1f}")
        print(f"{'tbtui, one worker':28}{medians['ours']:>18.3f} s{rates['ours']:>22.1f}")
        print(f"{'tbtui, two workers':28}{'':>20}{two:>22.1f}")
        print(f"{'tbtui over bare':28}{medians['ours'] / medians['bare']:>18.2f} x")


if __name__ == "__main__":
    asyncio.run(main())
