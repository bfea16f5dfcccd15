"""Trials of public tasks by their own solutions, for `tests.by_hand.public_tasks`.

Each is a real trial in a rollout worker, with the outcome that a run would give it.
"""

from __future__ import annotations

import asyncio
import fnmatch
import importlib.metadata
import json
import re
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.catalog import CatalogError
from tbtui.catalog.load import TaskInfo
from tbtui.catalog.tasks import discover
from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.rollout.environments.choose import choose_environment
from tbtui.rollout.messages import EnvironmentSpec, FromWorker, TrialDone, TrialFacts, TrialSpec
from tbtui.rollout.outcome import Decision, decide, lost_with_worker
from tbtui.rollout.pool import WorkerId, WorkerLostInfo, WorkerPool

OUTPUT_CHARS = 2_000
LISTED_LINES = 8
REASON_CHARS = 110
KIND_CHARS = 44
"""Where reasons that begin alike are taken for one kind."""
SCORED_0, PARTIAL, SET_UP, TIMEOUT = "scored 0", "partial", "set-up error", "timeout"
COLUMNS = ("solved", PARTIAL, SCORED_0, "verifier_error", SET_UP, TIMEOUT, "other")

Say = Callable[..., None]
Result = Mapping[str, Any]
"""A line of the results file: what `record` makes."""


@dataclass(frozen=True, slots=True)
class PublicTask:
    """A task directory; `name` is its path from the repository on, the repository's included."""

    repository: str
    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class OracleOptions:
    environment: str
    results: Path
    glob: str | None
    sample: frozenset[str] | None
    limit: int | None
    jobs: int
    timeout_factor: float
    """Multiplies the agent's time limit."""
    nobody: bool = False
    """No solution runs: a run's view of a model that does nothing, its 0 checked."""
    kill_before_verifying: bool = False
    """What the solution has left running is killed before it is verified."""


@dataclass(frozen=True, slots=True)
class OracleEnd:
    decision: Decision
    facts: TrialFacts | None
    """None when the worker died under the trial."""
    folder: Path


class Oracles:
    """Runs solutions in rollout workers, as many at once as there are workers."""

    def __init__(self, folder: Path, environment: EnvironmentSpec, jobs: int) -> None:
        self._folder = folder
        self._environment = environment
        self._gate = asyncio.Semaphore(jobs)
        self._ends: dict[str, asyncio.Future[tuple[Decision, TrialFacts | None]]] = {}
        self.pool = WorkerPool(jobs, folder / "workers", self._on_message, self._on_lost)

    async def run(self, task: TaskInfo, trial: str, options: OracleOptions) -> OracleEnd:
        async with self._gate:
            end = self._ends[trial] = asyncio.get_running_loop().create_future()
            trials = self._folder / "trials"
            self.pool.start_trial(
                TrialSpec(
                    trial=trial,
                    task_dir=task.path,
                    trials_dir=trials,
                    environment=self._environment,
                    model_name="none",
                    max_turns=1,
                    budget_sec=task.agent_timeout_sec * options.timeout_factor,
                    context_limit=1,
                    max_tokens=1,
                    agent="untouched" if options.nobody else "oracle",
                    check_zeros="first" if options.nobody else "faults",
                    kill_before_verifying=options.kill_before_verifying,
                )
            )
            decision, facts = await end
            return OracleEnd(decision, facts, trials / trial)

    def _on_message(self, _: WorkerId, message: FromWorker) -> None:
        if isinstance(message, TrialDone):
            self._ends.pop(message.trial).set_result((decide(message.facts), message.facts))

    def _on_lost(self, info: WorkerLostInfo) -> None:
        for trial in info.trials:
            self._ends.pop(trial).set_result((lost_with_worker(info.reason), None))


async def run(tasks: Sequence[PublicTask], options: OracleOptions, say: Say) -> int:
    """Run what is not in the results file yet, then print the tables of all that is chosen."""
    chosen = [task for task in tasks if _is_chosen(task, options)]
    if options.limit is not None:
        chosen = chosen[: options.limit]
    known = read_results(options.results) if options.results.exists() else {}
    waiting = [task for task in chosen if task.name not in known]
    try:
        choice = choose_environment(options.environment)
    except EnvironmentUnavailable as error:
        say(str(error))
        return 1
    environment = EnvironmentSpec(choice.type, choice.import_path, dict(choice.kwargs))
    header = f"tbtui {commit()}, Harbor {importlib.metadata.version('harbor')}, {choice.name}"
    say(f"{header}: {len(chosen)} tasks, {len(chosen) - len(waiting)} of them known already")
    if waiting:
        with tempfile.TemporaryDirectory(prefix="tbtui-oracles-") as folder:
            oracles = Oracles(Path(folder), environment, options.jobs)
            await oracles.pool.start()
            work = asyncio.ensure_future(_run_all(oracles, waiting, options, header, say))
            try:
                await asyncio.wait((work, oracles.pool.failed), return_when=asyncio.FIRST_COMPLETED)
                if oracles.pool.failed.done():
                    oracles.pool.failed.result()
                work.result()
            finally:
                work.cancel()
                await oracles.pool.stop()
    results = read_results(options.results)
    say("", *summary([results[task.name] for task in chosen]))
    return 0


def _is_chosen(task: PublicTask, options: OracleOptions) -> bool:
    if options.sample is not None and task.name not in options.sample:
        return False
    return options.glob is None or fnmatch.fnmatchcase(task.name, options.glob)


async def _run_all(
    oracles: Oracles, tasks: Sequence[PublicTask], options: OracleOptions, header: str, say: Say
) -> None:
    with options.results.open("a") as file:

        async def one(number: int, task: PublicTask) -> None:
            result = {**await _attempt(oracles, number, task, options), "by": header}
            file.write(json.dumps(result) + "\n")
            file.flush()
            say(f"{category(result):15} {task.name}: {result['reason'][:REASON_CHARS]}")

        async with asyncio.TaskGroup() as group:
            for number, task in enumerate(tasks, start=1):
                group.create_task(one(number, task))


async def _attempt(
    oracles: Oracles, number: int, task: PublicTask, options: OracleOptions
) -> dict[str, Any]:
    known = {"task": task.name, "repository": task.repository}
    try:
        info = discover(task.path).require_tasks()[0]
    except CatalogError as error:
        return {**known, "outcome": "not loaded", "verdict": None, "reason": str(error)}
    if not any(task.path.glob("solution/solve.*")) and not any(
        task.path.glob("steps/*/solution/solve.*")
    ):
        return {**known, "outcome": "no solution", "verdict": None, "reason": "no solution/solve.*"}
    slug = re.sub(r"[^a-z0-9]+", "-", task.path.name.lower())[:40].strip("-")
    end = await oracles.run(info, f"oracle-{number}-{slug}", options)
    return {**known, **record(end)}


def record(end: OracleEnd) -> dict[str, Any]:
    """What the results file keeps of a trial."""
    decision, facts = end.decision, end.facts
    agent = end.folder / "agent"
    kept: dict[str, Any] = {
        "outcome": str(decision.outcome),
        "verdict": decision.verdict,
        "reward": decision.reward,
        "reason": decision.reason,
        "solution_exit": _end_of(agent / "exit-code.txt") or "0",
        "solution_output": _end_of(agent / "oracle.txt"),
    }
    if facts is not None:
        kept |= {
            "exception_type": facts.exception_type,
            "exception_message": facts.exception_message,
            "failed_phase": facts.failed_phase,
            "verifier_output": facts.verifier_output,
            "seconds": facts.seconds.by_phase(),
        }
    return kept


def _end_of(path: Path) -> str:
    """The end of a file that came out of a sandbox; nothing behind a link."""
    if path.is_symlink() or not path.is_file():
        return ""
    return path.read_bytes()[-OUTPUT_CHARS:].decode("utf-8", "replace").strip()


def read_results(path: Path) -> dict[str, Result]:
    """The results by task; a later line stands for an earlier one."""
    lines = path.read_text().splitlines()
    return {result["task"]: result for result in map(json.loads, lines)}


def category(result: Result) -> str:
    match result["outcome"]:
        case "setup_error":
            return SET_UP
        case "agent_timeout":
            return TIMEOUT
        case "failed":
            return PARTIAL if (result["verdict"] or 0) > 0 else SCORED_0
        case outcome:
            return str(outcome)


def summary(results: Sequence[Result]) -> list[str]:
    """What became of the solutions: by repository, by reason, and each that was scored 0."""
    by_repository: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        kind = category(result)
        by_repository[result["repository"]][kind if kind in COLUMNS else "other"] += 1
    total = sum(by_repository.values(), Counter[str]())
    rows = [
        (name, counts.total(), *(counts[column] for column in COLUMNS))
        for name, counts in [*by_repository.items(), ("total", total)]
    ]
    lines = table(("repository", "tasks", *COLUMNS), rows)
    for kind in sorted({*map(category, results)} - {"solved", SCORED_0}):
        reasons = [_reason(each) for each in results if category(each) == kind]
        lines += ["", f"{kind}, by how the reason begins:", *_kinds(reasons)]
    zeros = [each for each in results if category(each) == SCORED_0]
    clean = sum(each["solution_exit"] == "0" for each in zeros)
    lines += ["", f"False zeros, correct solutions that are scored 0: {len(zeros)}"]
    if zeros:
        lines[-1] += f" ({clean} of them exited with 0). By the verifier's last line:"
        lines += _kinds([_verifier_lines(each)[-1] for each in zeros])
    for result in zeros:
        lines += ["", f"{result['task']} (the solution's exit status {result['solution_exit']})"]
        lines += [f"    {line[:REASON_CHARS]}" for line in _verifier_lines(result)]
    return lines


def _verifier_lines(result: Result) -> list[str]:
    said: str = result["verifier_output"]
    return said.strip().splitlines()[-LISTED_LINES:] or ["(the verifier said nothing)"]


def _reason(result: Result) -> str:
    """The first line of why a trial has no score."""
    message: str = result.get("exception_message") or result["reason"]
    return message.strip().partition("\n")[0]


def _kinds(texts: Sequence[str]) -> list[str]:
    """How many texts begin alike, each with the first of them."""
    first: dict[str, str] = {}
    kinds = [without_particulars(text)[:KIND_CHARS] for text in texts]
    for kind, text in zip(kinds, texts, strict=True):
        first.setdefault(kind, without_directories(text))
    return table(
        ("tasks", "first of them"),
        [(count, shortened(first[kind])) for kind, count in Counter(kinds).most_common()],
    )


def without_particulars(text: str) -> str:
    """A text without the directories, the numbers and the quoted names that are its task's own."""
    text = re.sub(r"(['\"`]).*\1", "...", text)
    return re.sub(r"\d+(\.\d+)*", "N", without_directories(text))


def without_directories(text: str) -> str:
    return re.sub(r"(?<![\w.:/])/?([\w.+-]+/)+(?=\w)", "", text)


def shortened(text: str) -> str:
    return text if len(text) <= REASON_CHARS else text[: REASON_CHARS - 1] + "…"


def table(header: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of aligned columns: numbers to the right, words to the left."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [
        bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(header))
    ]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    ]


def commit() -> str:
    """Which tbtui this is, with a `+` for changes that are not committed."""
    root = Path(__file__).parents[2]
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or importlib.metadata.version("tbtui")
