"""Runs hostile agents in real trials: a real worker, a real Harbor Trial, a real box."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, override

import psutil

from tbtui.rollout.messages import Completion, SampleWanted
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import DONE, SANDBOX, ScriptedEngine, act, make_spec
from tests.tasks import make_task

RUN = act("bash /app/attack.sh; echo over-$((6*7))\n", duration=0.05)
OVER = "over-42"
SOLVED = 'echo 1 > "$R"'
UNSOLVED = 'echo 0 > "$R"'


@dataclass(frozen=True)
class Attack:
    """What a hostile agent does, and the task it does it to: 256 MiB of memory, 64 of storage.

    `script` is run by the agent in its terminal, with bash; the files in `files` are in the box's
    /app from the start. `test` is the body of the task's test.sh, in which `$R` is the reward file.
    """

    script: str
    test: str = UNSOLVED
    files: Mapping[str, str] = field(default_factory=dict)
    toml: Mapping[str, str] = field(default_factory=dict)
    """Replacements in task.toml."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 30
    """For the script, at most."""
    alone: bool = False
    """What the agent has left running is killed before the verifier runs."""
    fixed: bool = False
    """A verdict does not count where programs were changed."""


@dataclass(frozen=True)
class Result:
    """How the trial went; `downloaded` are the paths of what the host has of it."""

    outcome: str
    verdict: float | None
    reward: float | None
    reason: str
    exception: str
    verifier_output: str
    downloaded: tuple[str, ...]
    megabytes: float
    """Size of the trial's directory."""
    artifacts: Mapping[str, str]
    links: tuple[str, ...]
    worker_megabytes: float
    seconds: float
    left: tuple[str, ...]
    """Processes that outlived all trials."""


class PatientAgents(ScriptedEngine):
    """Each starts its script, then looks at the terminal until the script is over."""

    look_sec = 0.1

    @override
    def _answer(self, wanted: SampleWanted) -> None:
        content = wanted.messages[-1].content
        if wanted.turn == 1:
            text = RUN
        elif OVER in content or "Are you sure" in content:
            text = DONE
        else:
            text = act("", duration=self.look_sec)
        self.pool.reply(Completion(wanted.request, wanted.trial, text, False, 1, 1))


def write_task(folder: Path, attack: Attack) -> Path:
    """The Harbor task whose agent finds the attack's script in its box."""
    task = make_task(folder, test=attack.test)
    files = {**attack.files, "attack.sh": f"{attack.script}\ntouch /tmp/finished\n"}
    for name, text in files.items():
        (task / "environment" / name).write_text(text)
    with (task / "environment" / "Dockerfile").open("a") as file:
        file.write("COPY . /app/\n")
    toml = (task / "task.toml").read_text() + "memory_mb = 256\nstorage_mb = 64\n"
    for old, new in attack.toml.items():
        toml = toml.replace(old, new)
    (task / "task.toml").write_text(toml)
    return task


async def run_attacks(folder: Path, attacks: Mapping[str, Attack]) -> dict[str, Result]:
    """All of them, on one worker, a few at a time."""
    engine = PatientAgents(folder / "logs")
    await engine.pool.start()
    worker = psutil.Process(next(iter(engine.pool.pids.values())))
    slots = asyncio.Semaphore(3)

    async def one(name: str, attack: Attack) -> Result:
        async with slots:
            return await _run(engine, folder, name, attack, worker)

    try:
        results = await asyncio.gather(*(one(*item) for item in attacks.items()))
        # Boxes hang below the worker; what got away would be the child of someone else, but is
        # found by what it runs.
        left = [" ".join(p.cmdline()) for p in worker.children(recursive=True)]
        left += [" ".join(p.cmdline()) for p in psutil.process_iter() if _is_ours(p)]
        assert not engine.lost, engine.lost
    finally:
        await engine.pool.stop()
    return {
        name: replace(result, left=tuple(left))
        for name, result in zip(attacks, results, strict=True)
    }


def _is_ours(process: psutil.Process) -> bool:
    try:
        return "sleep 47110815" in " ".join(process.cmdline())
    except psutil.Error:
        return False


async def _run(
    engine: ScriptedEngine, folder: Path, name: str, attack: Attack, worker: psutil.Process
) -> Result:
    spec = make_spec(
        name,
        write_task(folder / "tasks" / name, attack),
        folder,
        environment=replace(SANDBOX, kwargs=dict(attack.kwargs)),
        max_turns=10_000,
        budget_sec=attack.seconds,
        kill_before_verifying=attack.alone,
        fixed_programs=attack.fixed,
    )
    facts = await engine.run(spec, [RUN])
    trial = spec.trials_dir / name
    files = [path for path in trial.rglob("*") if path.is_file() and not path.is_symlink()]
    inside = trial / "artifacts" / "logs" / "artifacts"
    texts = {p.name: p.read_text(errors="replace") for p in files if p.parent == inside}
    decision = decide(facts)
    return Result(
        outcome=str(decision.outcome),
        verdict=facts.verdict,
        reward=decision.reward,
        reason=decision.reason,
        exception=f"{facts.exception_type}: {facts.exception_message}",
        verifier_output=facts.verifier_output,
        downloaded=tuple(sorted(str(path.relative_to(trial)) for path in files)),
        megabytes=sum(path.stat().st_size for path in files) / (1 << 20),
        artifacts=texts,
        links=tuple(str(path) for path in trial.rglob("*") if path.is_symlink()),
        worker_megabytes=worker.memory_info().rss / (1 << 20),
        seconds=facts.seconds.total,
        left=(),
    )
