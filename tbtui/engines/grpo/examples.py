"""The solved tasks in the first prompt of `agent=shell`: from a file, or performed before a run.

To perform one is to let a training task's own solution act in a real trial, in the agent's form:
what the model is shown then is what the agent and its terminal do, and earned the reward. The
trials are none of the run's: of them the journal has which tasks were chosen. The text is kept in
the run's directory, so that a run that goes on, its evaluations and its forks show the same.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path

from tbtui.algorithm.evaluation import PASS_REWARD
from tbtui.catalog.load import TaskInfo
from tbtui.chat import Message
from tbtui.config import ConfigError
from tbtui.engines.agent_checks import examples_asked, read_examples, read_kept_examples
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.rollouts import derive_seed
from tbtui.engines.trials.steering import Pool
from tbtui.journal.events import Noted
from tbtui.paths import read_plain, replace_file
from tbtui.policies.chat.tools import with_tools
from tbtui.rollout.messages import (
    Completion,
    FromWorker,
    Heartbeat,
    SampleWanted,
    TrialDone,
    TrialSpec,
    TurnSeen,
    WorkerReady,
)
from tbtui.rollout.shell_format import DONE, example_text, prompt_template

_MOST_LINES, _MOST_CHARS = 6, 400
"""Longest solution: an example is a few words, or it takes the room of the task."""
_NO_COMMAND = re.compile(r"\s*(?:#.*|set [-+].*|cd /app(?: \|\| exit(?: \d+)?)?)?")
_OR_EXIT = re.compile(r"\s*\|\|\s*exit(?: \d+)?\s*$")
_UNFIT = re.compile(r"/solution|\bexit\b|\$0|BASH_SOURCE")

Perform = Callable[[TaskInfo, Sequence[str]], Awaitable[str | None]]
"""Gives these answers in a trial of the task; what its first block has left on the screen, None
where that earned no reward."""


class ScriptedTrials:
    """Trials whose answers are given beforehand, on the workers of a run."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._answers: dict[str, list[str]] = {}
        self._screens: dict[str, str] = {}
        self._ended: dict[str, asyncio.Future[float | None]] = {}

    async def perform(self, spec: TrialSpec, answers: Sequence[str]) -> str | None:
        """As `Perform`."""
        trial = spec.trial
        self._answers[trial] = list(answers)
        ended = self._ended[trial] = asyncio.get_running_loop().create_future()
        try:
            self._pool.start_trial(spec)
            verdict = await ended
        finally:
            del self._ended[trial], self._answers[trial]
        screen = self._screens.pop(trial, "")
        return screen if verdict is not None and verdict >= PASS_REWARD else None

    def take(self, message: FromWorker) -> bool:
        """Whether a message is of one of these trials, and dealt with."""
        match message:
            case SampleWanted(request, trial) if trial in self._ended:
                answers = self._answers[trial]
                text = answers.pop(0) if answers else DONE
                self._pool.reply(Completion(request, trial, text, False, 0, 0))
            case TurnSeen(trial) if trial in self._ended:
                self._screens.setdefault(trial, message.observation)
            case TrialDone(trial, facts) if trial in self._ended:
                self._end(trial, facts.verdict)
            case WorkerReady() | Heartbeat():
                return False
            case _:
                return message.trial in self._ended
        return True

    def lost(self, trials: Iterable[str]) -> None:
        """A worker is gone with these."""
        for trial in self._ended.keys() & set(trials):
            self._end(trial, None)

    def _end(self, trial: str, verdict: float | None) -> None:
        if not self._ended[trial].done():
            self._ended[trial].set_result(verdict)


async def examples_of(run: EngineContext, perform: Perform) -> str:
    """The examples that a run shows; empty: none.

    Raises:
        ConfigError: there are none to be had, or the context has no room for them.
    """
    config, kept = run.config, run.directory.agent_examples
    asked = examples_asked(config)
    if kept.is_file():
        text = read_kept_examples(kept)
    elif isinstance(asked, Path):
        text = read_examples(asked)
        _note(run, f"agent_examples: those of {asked}")
        _keep(kept, text)
    elif asked:
        performed = await _performed(run, asked, perform)
        text = "\n".join(performed.values())
        few = f", {asked} were wanted" if len(performed) < asked else ""
        _note(run, f"agent_examples: {', '.join(performed)}, performed: each was solved{few}")
        _keep(kept, text)
    else:
        return ""
    _require_room(run, text)
    return text


def _note(run: EngineContext, text: str) -> None:
    run.journal.append(Noted(level="info", text=text))


def _keep(place: Path, text: str) -> None:
    try:
        replace_file(place, text.encode())
    except OSError as error:
        raise ConfigError(f"{place}: {error.strerror}") from error


async def _performed(run: EngineContext, count: int, perform: Perform) -> dict[str, str]:
    """Task -> the example that it makes, of so many, if there are."""
    waiting = candidates(run.split.train, run.config.seed)
    found: dict[str, str] = {}
    while waiting and len(found) < count:
        now, waiting = waiting[: count - len(found)], waiting[count - len(found) :]
        screens = await asyncio.gather(*(perform(task, _answers(block)) for task, block in now))
        for (task, block), screen in zip(now, screens, strict=True):
            if screen is not None:
                found[task.name] = example_text(task.instruction, block, screen)
    if not found:
        raise ConfigError(
            f"agent_examples={run.config.agent_examples}: none of the training tasks has a"
            " solution/solve.sh of a few commands that solves it in a terminal: give a file of"
            " examples, or 0"
        )
    return found


def _answers(block: str) -> tuple[str, ...]:
    return f"```bash\n{block}\n```", DONE


def candidates(tasks: Collection[TaskInfo], seed: int) -> list[tuple[TaskInfo, str]]:
    """Tasks with a short solution, and that, in the order in which they are tried: drawn by the
    seed, one of each kind before the second of any."""
    drawn = sorted(tasks, key=lambda task: task.name)
    random.Random(derive_seed(seed, "agent_examples")).shuffle(drawn)
    blocks = [(task, block) for task in drawn if (block := _solution(task))]
    rank: dict[str, int] = {}
    of_kind: dict[str | None, int] = {}
    for task, _ in blocks:
        rank[task.name] = of_kind[task.kind] = of_kind.get(task.kind, -1) + 1
    return sorted(blocks, key=lambda each: rank[each[0].name])


def _solution(task: TaskInfo) -> str:
    """The commands of a task's solution as one would type them; empty: there are none such."""
    try:
        script = read_plain(task.path / "solution" / "solve.sh").decode()
    except (OSError, UnicodeDecodeError):
        return ""
    # What a script does to end early is none of the solution. Where the terminal does not begin in
    # /app, the trial shows it.
    lines = [_OR_EXIT.sub("", each.rstrip()) for each in script.splitlines()]
    if "<<" not in script:
        lines = [each for each in lines if not _NO_COMMAND.fullmatch(each)]
    block = "\n".join(lines)
    fits = len(lines) <= _MOST_LINES and len(block) <= _MOST_CHARS
    return block if fits and not _UNFIT.search(block) else ""


def _require_room(run: EngineContext, examples: str) -> None:
    renderer = with_tools(run.policy.renderer)
    prompt = Message("user", prompt_template(examples))
    tokens = len(renderer.render([prompt], ()))
    context = run.policy.info.context_limit
    room = context - run.config.max_tokens
    if tokens > room:
        raise ConfigError(
            f"agent_examples={run.config.agent_examples}: the prompt with them has {tokens} tokens,"
            f" and the context of {context} leaves it {max(0, room)} beside an answer of"
            f" max_tokens={run.config.max_tokens}: give fewer, or shorter ones"
        )


def example_spec(spec: TrialSpec, directory: Path) -> TrialSpec:
    """`spec` for a trial in which a solution is performed, below this directory."""
    return dataclasses.replace(
        spec, agent="shell", trials_dir=directory, keep="none", check_zeros="never", snapshots=None
    )
