"""What a rollout through the verifiers plugin costs over bare Harbor's `Trial`.

`uv run --isolated --extra prime-rl python tests/benchmarks/plugin_overhead.py`

The same three-turn starter trial in the same sandbox, taken in turns: through
`harbor.trial.trial.Trial` with stock Terminus-2 and an instant model in this process, and through
verifiers' environment client and server, the plugin, its worker, verifiers' interception and an
instant scripted model behind HTTP.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from harbor.models.trial.config import EnvironmentConfig

from tbtui.resources import tasks_dir
from tests.benchmarks.bare_harbor import run_bare
from tests.engines.prime_rl.environment_server import serving_environment
from tests.engines.prime_rl.scripted_model import serving
from tests.rollout.scripted import DONE, SANDBOX, act

TASK = tasks_dir() / "starter" / "copy-01"
SCRIPT = [act("cp /app/readme.md /app/alpha.txt\n", duration=0.0), DONE, DONE]
TRIALS = 31
AT_ONCE = 32


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
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        async with (
            serving({"": SCRIPT}) as model,
            serving_environment(TASK, root / "plugin", model.url, max_turns=8) as server,
        ):

            async def through_plugin(_: str) -> float | None:
                return (await server.rollout(TASK.name)).reward

            async def through_harbor(name: str) -> float | None:
                environment = EnvironmentConfig(import_path=SANDBOX.import_path)
                return await run_bare(name, TASK, root / "bare", SCRIPT, environment)

            seconds: dict[str, list[float]] = {"bare": [], "plugin": []}
            for number in range(TRIALS):  # in turns, so that both see the same machine
                seconds["bare"].append(await timed(through_harbor, f"bare-{number}"))
                seconds["plugin"].append(await timed(through_plugin, f"plugin-{number}"))
            medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
            waited = statistics.median(waits(root / "plugin")[1:])
            rates = {
                "bare": await rate(through_harbor, "bare-at-once", AT_ONCE),
                "plugin": await rate(through_plugin, "plugin-at-once", AT_ONCE),
            }
    print(f"{'':14}{'one trial, median':>20}{'trials/s, 8 at once':>22}")
    for name in ("bare", "plugin"):
        print(f"{name:14}{medians[name]:>18.3f} s{rates[name]:>22.2f}")
    print(f"{'overhead':14}{medians['plugin'] / medians['bare'] - 1:>19.1%}")
    own = medians["plugin"] - waited
    print(
        f"Of the plugin's, waiting for answers through verifiers and HTTP: {waited:.3f} s a trial;"
    )
    print(f"overhead without that: {own / medians['bare'] - 1:.1%}")


def waits(directory: Path) -> list[float]:
    """Seconds that each trial so far has waited for its model."""
    return [
        sum(
            event["event"]["seconds"]
            for event in map(json.loads, log.read_text().splitlines())
            if event["event"]["kind"] == "turn_sampled"
        )
        for log in sorted(directory.rglob("events/*.jsonl"), key=lambda path: path.stat().st_mtime)
    ]


if __name__ == "__main__":
    asyncio.run(main())
