"""Bombs in trials beside honest trials: a real pool of workers, real trials, real boxes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tbtui.rollout.messages import SampleWanted, TrialDone
from tbtui.rollout.outcome import Decision, decide
from tests.attacks.hostile import RUN, Attack, PatientAgents, write_task
from tests.rollout.scripted import make_spec

UNGROUPED = "tests.attacks.ungrouped_worker"

HONEST = Attack(
    "python3 -c 'print(sum(range(10**6)))' > /app/sum; sort /etc/passwd > /app/sorted; sleep 0.3;"
    " echo hi > /app/hello.txt",
    test='[ "$(cat /app/hello.txt)" = hi ] && echo 1 > "$R" || echo 0 > "$R"',
)
_FORK = """
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""
BOMBS = {
    "fork": Attack("python3 /app/bomb.py", files={"bomb.py": _FORK}),
    "memory": Attack(
        "while :; do python3 -c 'x = [bytearray(1 << 20) for i in range(10**5)]' &"
        " python3 -c 'import time; x = bytearray(200 << 20); time.sleep(1)'; done"
    ),
    "inode": Attack(
        "mkdir -p /logs/artifacts/many; while :; do python3 -c 'import os\n"
        'for i in range(10**6): open(f"/logs/artifacts/many/{os.getpid()}-{i}", "w")\'; done'
    ),
    "disk": Attack("while :; do head -c 1G /dev/zero > /app/$RANDOM; rm -f /app/[0-9]*[05]; done"),
    "cpu": Attack("for i in $(seq 60); do setsid bash -c 'while :; do :; done' & done; wait"),
    "log": Attack("while :; do head -c 50M /dev/urandom | tee -a /logs/agent/log | base64; done"),
}


@dataclass(frozen=True)
class Ended:
    """How a trial went, in how many seconds, and what the host has of it."""

    decision: Decision
    seconds: float
    files: int
    log: str
    """Harbor's, of this trial."""


class _Agents(PatientAgents):
    look_sec = 0.2


class Neighbourhood:
    """Workers that run trials; every call of `run` is a group of honest ones beside bombs."""

    def __init__(self, folder: Path, *, grouped: bool = True, n_workers: int = 2) -> None:
        self._folder = folder
        options = {} if grouped else {"worker_module": UNGROUPED}
        self._engine = _Agents(folder / "logs", n_workers, **options)
        self._n_workers = n_workers
        self._number = 0

    async def __aenter__(self) -> Neighbourhood:
        await self._engine.pool.start()
        await self._engine.until_ready(self._n_workers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine.pool.stop()
        assert not self._engine.lost, self._engine.lost

    async def run(
        self,
        honest: int,
        bombs: Sequence[str],
        *,
        bomb_sec: float = 10,
        honest_sec: float = 60,
        waves: int = 1,
    ) -> tuple[list[Ended], list[Ended]]:
        """Starts the bombs, and once they go off the honest trials, some waves one after the other;
        how both ended."""
        set_off = [self._start(f"bomb-{name}", BOMBS[name], bomb_sec) for name in bombs]
        for trial in set_off:
            await self._engine.until(functools.partial(self._went_off, trial))
        ended: list[Ended] = []
        for _ in range(waves):
            trials = [self._start("honest", HONEST, honest_sec) for _ in range(honest)]
            ended += [await self._ended(trial) for trial in trials]
        return ended, [await self._ended(trial) for trial in set_off]

    def _went_off(self, trial: str) -> bool | None:
        seen = self._engine.seen[trial]
        # Its script has run since the second look at the terminal; some end before the third.
        looked = any(wanted.turn > 2 for wanted in seen.of(SampleWanted))
        return looked or bool(seen.of(TrialDone)) or None

    def _start(self, name: str, attack: Attack, seconds: float) -> str:
        self._number += 1
        trial = f"{name}-{self._number}"
        task = write_task(self._folder / "tasks" / trial, attack)
        spec = make_spec(trial, task, self._folder, max_turns=10_000, budget_sec=seconds)
        self._engine.start(spec, [RUN])
        return trial

    async def _ended(self, trial: str) -> Ended:
        facts = await self._engine.facts(trial)
        folder = self._folder / "trials" / trial
        # Not those of other sandboxes, which its verdict was compared with.
        paths = (path for path in folder.rglob("*") if "controls" not in path.parts)
        files = sum(path.is_file() for path in paths)
        log = (folder / "trial.log").read_text(errors="replace")
        return Ended(decide(facts), facts.seconds.total, files, log)
