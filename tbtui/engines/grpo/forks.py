"""Forks that people ask for: trials that go on from a turn of another one, beside the batches.

They are tried as an evaluation's are, and never trained on, but for those that a training step asks
for. A run that was interrupted takes them
up where they were: what has ended stands, what was under way starts again from the same seed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.algorithm.costs import Tokens
from tbtui.algorithm.evaluation import Rate, TaskAttempts, attempts, pass_rate
from tbtui.algorithm.step import Recipe
from tbtui.algorithm.turn_value import (
    Search,
    most_measured,
    next_place,
    search_of,
    turning_point,
)
from tbtui.catalog.tasks import TaskInfo
from tbtui.config import RunConfig
from tbtui.engines.grpo.batch import Batch
from tbtui.engines.grpo.group import BatchRules
from tbtui.engines.grpo.origins import Course, ForkError, Origin, read_course, read_origin
from tbtui.engines.grpo.recorded import RecordedForks, StartingPoint
from tbtui.engines.grpo.rollouts import GroupPlan, Rollout, TrialPlan, trial_plan
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.journal.commands import Command
from tbtui.journal.database import JournalError
from tbtui.journal.events import CommandDone, ForksStarted, Noted, TurnsValued, TurnValue
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter

MOST_FORKS = 256
"""In one group."""
CREDIT = "credit"
"""The search of forks that measure turns for a training step (`turn_credit.py`)."""
TRAINED = "trained"
"""The search of forks that are a group of a training step (`fork_groups.py`)."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """Which forks are wanted."""

    trial: str
    turn: int
    """0: of a search."""
    trials: int
    """From each turn that is forked."""
    temperature: float
    go_on: bool = False
    """Where a screen differs from the recorded one."""
    search: str = ""
    """Measure the values of turns: `bisect`, `all`; or `CREDIT` or `TRAINED`, for training."""
    run: RunDirectory | None = None
    """The run that the trial is of; None: this one."""


def fork_request(command: Command, temperature: float) -> ForkRequest:
    """What a command asks for; `temperature` where it names none. Raises `ForkError`."""
    given = command.arguments
    turn, trials = given.get("turn"), given.get("trials", 8)
    drawn_at, go_on = given.get("temperature", temperature), given.get("go_on", False)
    search = search_of(turn)
    if search is None and (not isinstance(turn, int) or isinstance(turn, bool)):
        raise ForkError("fork: say from which turn, or bisect, or all")
    if not isinstance(trials, int) or not 1 <= trials <= MOST_FORKS:
        raise ForkError(f"fork: between 1 and {MOST_FORKS} trials, not {str(trials)[:20]}")
    if not isinstance(drawn_at, int | float) or not 0 < drawn_at < float("inf"):
        raise ForkError(f"fork: temperature {str(drawn_at)[:20]} is not more than 0")
    number = turn if isinstance(turn, int) else 0
    return ForkRequest(command.target, number, trials, float(drawn_at), bool(go_on), search or "")


def fork_origin(config: RunConfig) -> ForkRequest:
    """What a run that only forks is to try. Raises `ForkError`."""
    where, at, turn = (config.fork_from or "").rpartition("@")
    run, slash, trial = where.rpartition("/")
    search = search_of(turn)
    if not (at and slash and (search or turn.isdecimal()) and trial):
        raise ForkError(
            f"fork_from={config.fork_from}: write RUN/TRIAL@TURN, @bisect or @all for the turn"
        )
    return ForkRequest(
        trial,
        0 if search else int(turn),
        config.eval_group_size,
        config.eval_temperature,
        config.fork_go_on,
        search or "",
        RunDirectory(Path(run).resolve()),
    )


def fork_group(
    origin: Origin | None, task: TaskInfo, started: ForksStarted, seed: int
) -> GroupPlan:
    """The trials of a group of forks. `origin` None: only their places are wanted."""
    first = TrialPlan(
        task=task,
        group=started.group,
        index=1,
        step=started.step,
        purpose="fork",
        temperature=started.temperature,
        seed=0,
        group_draws=(seed, "fork", started.group),
        origin=origin,
    )
    plans = tuple(trial_plan(first, index) for index in range(1, started.trials + 1))
    return GroupPlan(started.group, task, plans)


class Forks:
    """Begins groups of forks, and runs them to their end."""

    def __init__(
        self,
        run: RunDirectory,
        config: Callable[[], RunConfig],
        tasks: Mapping[str, TaskInfo],
        runner: TrialRunner[Any],
        recipe: Recipe,
        journal: JournalWriter,
        start: StartingPoint,
        step: Callable[[], int],
        spend: Callable[[Tokens], object],
    ) -> None:
        """
        Args:
            config: the settings in force now.
            tasks: all of the run's, by name.
            step: how many batches are trained on.
            spend: counts what a group has cost.
        """
        self._run = run
        self._config = config
        self._tasks = tasks
        self._runner = runner
        self._recipe = recipe
        self._journal = journal
        self._recorded = start.forks
        self._valued = {_asked_for(each): each for each in start.valued}
        self._step = step
        self._spend = spend
        self._begun = len(start.forks)
        self._group: asyncio.TaskGroup | None = None
        self.batches: list[Batch] = []
        """Those whose trials run."""

    def serve(self, group: asyncio.TaskGroup) -> None:
        """Run forks as tasks of `group` from now on, those first that were interrupted."""
        self._group = group
        own = [each for each in self._recorded.values() if not each.started.parent_run]
        for recorded in own:
            if not recorded.over and not recorded.started.search:
                group.create_task(self._again(recorded))
        searches = {_asked_for(each.started) for each in own if search_of(each.started.search)}
        for request in searches - self._valued.keys():
            group.create_task(self._search_again(request))

    def ask(self, command: Command) -> None:
        """Begin the forks that a command asks for, and answer it."""
        if self._group is None:
            self._answer(command, False, "the run has not begun yet")
            return
        work = self._asked(command)
        try:
            self._group.create_task(work)
        except RuntimeError:  # its last task has ended
            work.close()
            self._answer(command, False, "the run is ending")

    async def begin(self, request: ForkRequest) -> tuple[Batch, ForksStarted]:
        """A group of forks to be run by the caller, which goes on where it was interrupted.

        Raises:
            ForkError, JournalError: they can't be forked.
        """
        recorded = None
        if request.run is not None or dataclasses.replace(request, turn=0) not in self._valued:
            recorded = next((r for r in self._recorded.values() if _same(r.started, request)), None)
        origin = await self._origin(request)
        if recorded is None:
            started = self._started(request, origin)
            self._journal.append(started)
        else:
            started = recorded.started
        return self._batch(origin, started, recorded), started

    async def search(
        self,
        request: ForkRequest,
        course: Course,
        run: Callable[[Batch], Awaitable[tuple[Rollout, ...]]],
    ) -> TurnsValued:
        """Measure the values of a trial's turns, group after group, and journal them.

        Args:
            run: runs a group of forks to its end.

        Raises:
            ForkError, JournalError: a turn can't be forked.
        """
        search = search_of(request.search)
        assert search is not None
        tried: dict[int, TaskAttempts] = {}
        while True:
            turn = next_place(search, course.turns + 1, _values(tried, course))
            if turn is None or turn in tried:  # nothing could be scored there
                break
            batch, _ = await self.begin(dataclasses.replace(request, turn=turn))
            tried[turn] = attempts(rollout.reward for rollout in await run(batch))
        return self._value(request, course, tried)

    async def group(self, request: ForkRequest) -> tuple[Rollout, ...]:
        """Forks of a turn, tried to their end; what the journal has of them is not tried again.

        Raises:
            ForkError, JournalError: the turn can't be forked.
        """
        batch, _ = await self.begin(request)
        return await self._to_its_end(batch)

    async def credit(self, request: ForkRequest, course: Course) -> dict[int, float]:
        """V(k) of a trial's turns from the second on, for training; of those that could be scored.

        What the journal has of an interrupted step is not tried again.

        Raises:
            ForkError, JournalError: a turn can't be forked.
        """
        if (known := self._valued.get(request)) is not None:
            tried = {v.turn: TaskAttempts(v.passed, v.scored) for v in known.values}
        else:
            batches = {
                turn: (await self.begin(dataclasses.replace(request, turn=turn)))[0]
                for turn in range(2, course.turns + 1)
            }
            async with asyncio.TaskGroup() as group:
                tasks = {
                    turn: group.create_task(self._to_its_end(batch))
                    for turn, batch in batches.items()
                }
            tried = {
                turn: attempts(rollout.reward for rollout in task.result())
                for turn, task in tasks.items()
            }
            self._value(request, course, tried)
        return {turn: each.passed / each.scored for turn, each in tried.items() if each.scored}

    def _value(
        self, request: ForkRequest, course: Course, tried: Mapping[int, TaskAttempts]
    ) -> TurnsValued:
        """Journal the values that were measured."""
        point = turning_point(_values(tried, course))
        valued = TurnsValued(
            parent=request.trial,
            parent_run=str(request.run.path) if request.run is not None else "",
            search=request.search,
            trials=request.trials,
            temperature=request.temperature,
            go_on=request.go_on,
            turns=course.turns,
            solved=course.solved,
            values=tuple(_turn_value(turn, each) for turn, each in sorted(tried.items())),
            turning_point=point.place if point is not None else 0,
        )
        self._journal.append(valued)
        return valued

    async def course(self, request: ForkRequest) -> Course:
        """How the trial went whose turns are to be valued. Raises `ForkError`, `JournalError`."""

        def read() -> Course:
            reader = JournalReader(request.run or self._run)
            try:
                return read_course(reader, request.trial)
            finally:
                reader.close()

        return await asyncio.to_thread(read)

    async def _asked(self, command: Command) -> None:
        try:
            request = fork_request(command, self._config().temperature)
            if (search := search_of(request.search)) is not None:
                course = await self.course(request)
                # What can't be forked at all is refused now.
                await self._origin(dataclasses.replace(request, turn=1))
                found = search_line(search, request.trials, request.trial, course)
                self._answer(command, True, found)
                await self._search(request, course)
                return
            origin = await self._origin(request)
            started = self._started(request, origin)
        except (ForkError, JournalError) as error:
            self._answer(command, False, str(error))
            return
        self._journal.append(started)
        one = "fork" if request.trials == 1 else "forks"
        text = f"{request.trials} {one} of {request.trial} from turn {request.turn}"
        self._answer(command, True, f"{text}: {started.group}")
        await self._to_its_end(self._batch(origin, started, None))

    async def _search_again(self, request: ForkRequest) -> None:
        try:
            await self._search(request, await self.course(request))
        except (ForkError, JournalError) as error:
            text = f"the values of {request.trial}'s turns are not measured on: {error}"
            self._journal.append(Noted(level="warning", text=text))

    async def _search(self, request: ForkRequest, course: Course) -> None:
        valued = await self.search(request, course, self._to_its_end)
        self._journal.append(Noted(level="info", text=values_line(valued)))

    async def _again(self, recorded: RecordedForks) -> None:
        begun = recorded.started
        request = ForkRequest(
            begun.parent, begun.turn, begun.trials, begun.temperature, begun.go_on
        )
        try:
            origin = await self._origin(request)
        except (ForkError, JournalError) as error:
            text = f"{begun.group} does not go on: {error}"
            self._journal.append(Noted(level="warning", text=text))
            return
        await self._to_its_end(self._batch(origin, begun, recorded))

    async def _to_its_end(self, batch: Batch) -> tuple[Rollout, ...]:
        self.batches.append(batch)
        try:
            (rollouts,) = await batch.run()
        finally:
            self.batches.remove(batch)
        self._spend(batch.tokens())
        return rollouts

    def _batch(
        self, origin: Origin, started: ForksStarted, recorded: RecordedForks | None
    ) -> Batch:
        group = fork_group(origin, self._tasks[started.task], started, self._config().seed)
        return Batch(
            [group],
            BatchRules(started.trials),
            self._recipe,
            self._runner,
            self._journal,
            recorded=recorded.batch if recorded is not None else None,
        )

    async def _origin(self, request: ForkRequest) -> Origin:
        run = request.run or self._run

        def read() -> Origin:
            reader = JournalReader(run)
            try:
                return read_origin(run, reader, request.trial, request.turn, go_on=request.go_on)
            finally:
                reader.close()

        origin = await asyncio.to_thread(read)
        if origin.task not in self._tasks:
            raise ForkError(f"{request.trial}: its task {origin.task} is none of this run's")
        if self._config().agent != "terminus-2":
            raise ForkError(
                f"fork: only Terminus-2's trials have turns, not {self._config().agent}'s"
            )
        return origin

    def _started(self, request: ForkRequest, origin: Origin) -> ForksStarted:
        self._begun += 1
        group = f"f{self._begun:04d}-{origin.task.replace('/', '--')}"
        if request.search in (CREDIT, TRAINED):
            # Its draws derive from its name, and a step that is interrupted takes the same ones.
            kind = "t" if request.search == CREDIT else "g"
            group = f"{request.trial}-{kind}{request.turn}"
        return ForksStarted(
            group=group,
            task=origin.task,
            step=self._step(),
            parent=request.trial,
            parent_run=str(request.run.path) if request.run is not None else "",
            turn=request.turn,
            trials=request.trials,
            temperature=request.temperature,
            go_on=request.go_on,
            search=request.search,
        )

    def _answer(self, command: Command, ok: bool, result: str) -> None:
        self._journal.append(CommandDone(command=command.id, ok=ok, result=result))


def _asked_for(begun: ForksStarted | TurnsValued) -> ForkRequest:
    """What forks were asked for with, but for the turn and the run."""
    return ForkRequest(begun.parent, 0, begun.trials, begun.temperature, begun.go_on, begun.search)


def _same(started: ForksStarted, request: ForkRequest) -> bool:
    """Whether these forks were begun for this request."""
    asked = dataclasses.replace(request, turn=0, run=None)
    return started.turn == request.turn and _asked_for(started) == asked


def _values(tried: Mapping[int, TaskAttempts], course: Course) -> dict[int, float]:
    """V(k) of the turns that could be scored, and of the end."""
    values = {turn: each.passed / each.scored for turn, each in tried.items() if each.scored}
    return values | {course.turns + 1: float(course.solved)}


def _turn_value(turn: int, tried: TaskAttempts) -> TurnValue:
    rate = pass_rate([tried], 1) or Rate(0.0, 0.0, 1.0)
    return TurnValue(
        turn=turn, passed=tried.passed, scored=tried.scored, low=rate.low, high=rate.high
    )


def search_line(search: Search, trials: int, trial: str, course: Course) -> str:
    """What measuring the values of a trial's turns takes, in one line for a person."""
    turns = most_measured(search, course.turns + 1) - 1
    what = "bisection over" if search == "bisect" else "values of all"
    return (
        f"{what} {course.turns} turns of {trial}: at most {turns * trials} forks,"
        f" {trials} from each of {turns}"
    )


def values_line(valued: TurnsValued) -> str:
    """The values of a trial's turns and where it turned, in one line for a person."""
    tried = {each.turn: TaskAttempts(each.passed, each.scored) for each in valued.values}
    values = _values(tried, Course(valued.turns, valued.solved))
    shown = ", ".join(
        f"turn {each.turn} {values[each.turn]:.0%} ({each.low:.0%} to {each.high:.0%})"
        if each.scored
        else f"turn {each.turn} unscored"
        for each in valued.values
    )
    ended = "solved" if valued.solved else "not solved"
    point = turning_point(values)
    if point is None:
        found = "no turning point"
    else:
        what = "lost" if point.lost else "won"
        found = (
            f"{what} at turn {point.place}: {point.before:.0%} before it, {point.after:.0%} after"
        )
    return f"{valued.parent}: {found}; chance to be solved from {shown}; it was {ended}"


def forks_line(rollouts: tuple[Rollout, ...], started: ForksStarted) -> str:
    """How many forks solved their task, in one line for a person."""
    of = f"forks of {started.parent} from turn {started.turn}"
    tried = attempts(rollout.reward for rollout in rollouts)
    rate = pass_rate([tried], 1)
    if rate is None:
        return f"none of {len(rollouts)} {of} could be scored"
    unscored = len(rollouts) - tried.scored
    rest = f"; {unscored} could not be scored" if unscored else ""
    interval = f"{rate.value:.0%}, 95% interval {rate.low:.0%} to {rate.high:.0%}"
    return f"{tried.passed} of {tried.scored} {of} solved it ({interval}){rest}"
