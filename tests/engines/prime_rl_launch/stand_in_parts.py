"""Stand-ins for the parts that Prime-RL's own launcher starts: `inference`, `env-server`,
`orchestrator` and `torchrun`, by their command lines and files. They train nothing.

`STAND_IN_RL` says what becomes of them: whole, crash (of the trainer) or hold, as `stand_in_rl`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NoReturn, override

from tests.engines.prime_rl_launch.stand_in_rl import LaunchedRun, say


class Part(LaunchedRun):
    """Prints its own log, which the launcher writes into a file, and writes all other files."""

    def __init__(self, name: str, run: Path) -> None:
        super().__init__(run)
        self._name = name

    @override
    def raw(self, part: str, text: str) -> None:
        if part == self._name:
            say(text.rstrip("\n"))


def main() -> int:
    program, *arguments = sys.argv[1:]
    with Path(os.environ["STAND_IN_PIDS"]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    config = Path(arguments[arguments.index("@") + 1])
    if program in ("inference", "env-server"):
        say(f"{program} waits")
        wait()
    toml: dict[str, Any] = json.loads(config.read_text())
    mode = os.environ["STAND_IN_RL"]
    resumed = (toml.get("resume") or {}).get("step")
    part = Part("orchestrator" if program == "orchestrator" else "trainer", config.parents[1])
    part.ready(resumed)
    for step in range((resumed or 0) + 1, toml["max_steps"] + 1):
        if program == "orchestrator":
            part.step(step)
        else:
            while not (part.path / "broadcasts" / f"step_{step}").exists():
                time.sleep(0.05)
            part.log("trainer", "SUCCESS", f"Step {step} |  1m 0s | Loss -0.1")
            if mode == "crash":
                raise MemoryError("CUDA out of memory")
        if mode != "whole":
            wait()
    part.finished()
    return 0


def wait() -> NoReturn:
    while True:
        time.sleep(60)


if __name__ == "__main__":
    sys.exit(main())
