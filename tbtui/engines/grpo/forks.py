"""Forks that people ask for: trials that go on from a turn of another one, beside the batches.

They are tried as an evaluation's are, and never trained on. A run that was interrupted takes them
up where they were: what has ended stands, what was under way starts again from the same seed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.algorithm.evaluation import Rate, TaskAttempts, attempts, pass_rate
from tbtui.algorithm.turn_value import (
    Search,
    most_measured,
    next_place,
    search_of,
    turning_point,
)
from tbtui.catalog.tasks import TaskInfo
from tbtui.config import RunConfig
from tbtui.engines.grpo.batch import Batch, BatchPlan, OpenBatches
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.group import BatchRules
from tbtui.engines.grpo.origins import Course, ForkError, Origin, read_course, read_origin
from tbtui.engines.grpo.recorded import RecordedForks
from tbtui.engines.grpo.rollouts import GroupPlan, Rollout, TrialPlan, trial_plan
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.errors import UserError
from tbtui.journal.commands import Command
from tbtui.journal.database import JournalError
from tbtui.journal.events import CommandDone, ForksStarted, Noted, TurnsValued, TurnValue
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.policies import sampling_of
from tbtui.view.sentences import forks_asked_line, search_line
from tbtui.vocabulary import TERMINAL_AGENTS

MOST_FORKS = 256
"""In one group."""


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
    """Measure the values of turns: `bisect` or `all`."""
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
    origin: Origin | None, task: TaskInfo, started: ForksStarted, config: RunConfig
) -> GroupPlan:
    """The trials of a group of forks. `origin` None: only their places are wanted."""
    first = TrialPlan(
        task=task,
        group=started.group,
        index=1,
        step=started.step,
        purpose="fork",
        sampling=sampling_of(config, started.temperature),
        seed=0,
        group_draws=(config.seed, "fork", started.group),
        origin=origin,
    )
    plans = tuple(trial_plan(first, index) for index in range(1, started.trials + 1))
    return GroupPlan(started.group, task, plans)


class ForkGroups:
    """Begins groups of forks, and runs them to their end."""

    def __init__(
        self,
        run: EngineContext,
        runner: TrialRunner[Any],
        batches: OpenBatches,
    ) -> None:
        """`batches`: has those that a person asked for while they run."""
        split = run.split
        self._run = run
        self._journal = run.journal
        self._tasks = {task.name: task for task in (*split.train, *split.heldout, *split.unused)}
        self._runner = runner
        self._batches = batches.forks
        self._recorded = run.start.forks
        self._valued = {_asked_for(each): each for each in run.start.valued}
        self._begun = len(self._recorded)
        self._group: asyncio.TaskGroup | None = None

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

    async def measure(self, request: ForkRequest) -> Measurement:
        """Begin to measure the values of a trial's turns. Raises `ForkError`, `JournalError`."""
        search = search_of(request.search)
        assert search is not None
        return Measurement(self, request, search, await self._course(request))

    def valued(self, measurement: Measurement) -> TurnsValued:
        """Journal the values that were measured."""
        valued = measurement.values()
        self._journal.append(valued)
        return valued

    async def _course(self, request: ForkRequest) -> Course:
        """How the trial went whose turns are to be valued."""

        def read() -> Course:
            reader = JournalReader(request.run or self._run.directory)
            try:
                return read_course(reader, request.trial)
            finally:
                reader.close()

        return await asyncio.to_thread(read)

    async def _asked(self, command: Command) -> None:
        try:
            request = fork_request(command, self._run.config.temperature)
            if search_of(request.search) is not None:
                await self._search(await self.measure(request), command)
                return
            origin = await self._origin(request)
            started = self._started(request, origin)
        except (ForkError, JournalError) as error:
            self._answer(command, False, str(error))
            return
        self._journal.append(started)
        text = forks_asked_line(request.trial, request.turn, request.trials)
        self._answer(command, True, f"{text}: {started.group}")
        await self._to_its_end(self._batch(origin, started, None))

    async def _search_again(self, request: ForkRequest) -> None:
        try:
            await self._search(await self.measure(request))
        except (ForkError, JournalError) as error:
            self._not_measured_on(request, error)

    async def _search(self, measurement: Measurement, command: Command | None = None) -> None:
        """Measure the values of a trial's turns, and answer the command that asks for it once forks
        have begun: it is from these that an interrupted run goes on.

        Raises:
            ForkError, JournalError: nothing has begun, and the command has no answer yet.
        """
        unanswered = command
        try:
            while (batch := await measurement.next()) is not None:
                if unanswered is not None:
                    self._answer(unanswered, True, measurement.line)
                    unanswered = None
                measurement.add(await self._to_its_end(batch))
        except (ForkError, JournalError) as error:
            if unanswered is not None:
                raise
            self._not_measured_on(measurement.request, error)
            return
        self.valued(measurement)

    def _not_measured_on(self, request: ForkRequest, error: UserError) -> None:
        text = f"the values of {request.trial}'s turns are not measured on: {error}"
        self._journal.append(Noted(level="warning", text=text))

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
        self._batches.append(batch)
        try:
            (rollouts,) = await batch.run()
        finally:
            self._batches.remove(batch)
        self._run.spending.add(batch.tokens())
        return rollouts

    def _batch(
        self, origin: Origin, started: ForksStarted, recorded: RecordedForks | None
    ) -> Batch:
        group = fork_group(origin, self._tasks[started.task], started, self._run.config)
        before = recorded.batch if recorded is not None else None
        return Batch(
            self._run, self._runner, BatchPlan([group], BatchRules(started.trials), before)
        )

    async def _origin(self, request: ForkRequest) -> Origin:
        run = request.run or self._run.directory

        def read() -> Origin:
            reader = JournalReader(run)
            try:
                return read_origin(run, reader, request.trial, request.turn, go_on=request.go_on)
            finally:
                reader.close()

        origin = await asyncio.to_thread(read)
        if origin.task not in self._tasks:
            raise ForkError(f"{request.trial}: its task {origin.task} is none of this run's")
        if self._run.config.agent not in TERMINAL_AGENTS:
            raise ForkError(
                f"fork: only trials of {' and '.join(TERMINAL_AGENTS)} have turns, not"
                f" {self._run.config.agent}'s"
            )
        return origin

    def _started(self, request: ForkRequest, origin: Origin) -> ForksStarted:
        self._begun += 1
        group = f"f{self._begun:04d}-{origin.task.replace('/', '--')}"
        return ForksStarted(
            group=group,
            task=origin.task,
            step=self._run.step,
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


class Measurement:
    """Measures the values of a trial's turns, group after group of forks, which its caller runs."""

    def __init__(
        self, groups: ForkGroups, request: ForkRequest, search: Search, course: Course
    ) -> None:
        self.request = request
        self._groups = groups
        self._search = search
        self._course = course
        self._turn = 0
        self._tried: dict[int, TaskAttempts] = {}

    @property
    def line(self) -> str:
        """What it takes, in one line for a person."""
        turns, request = self._course.turns, self.request
        measured = most_measured(self._search, turns + 1) - 1
        return search_line(self._search, request.trial, turns, request.trials, measured)

    async def next(self) -> Batch | None:
        """The next group to be run; None: all is measured.

        Raises:
            ForkError, JournalError: a turn can't be forked.
        """
        turn = next_place(self._search, self._course.turns + 1, _values(self._tried, self._course))
        if turn is None or turn in self._tried:  # nothing could be scored there
            return None
        self._turn = turn
        batch, _ = await self._groups.begin(dataclasses.replace(self.request, turn=turn))
        return batch

    def add(self, rollouts: tuple[Rollout, ...]) -> None:
        """Take what came of the group that `next` gave."""
        self._tried[self._turn] = attempts(rollout.reward for rollout in rollouts)

    def values(self) -> TurnsValued:
        """What was measured."""
        request, course, tried = self.request, self._course, self._tried
        point = turning_point(_values(tried, course))
        return TurnsValued(
            parent=request.trial,
            parent_run=str(request.run.path) if request.run is not None else "",
            search=request.search,
            trials=request.trials,
            temperature=request.temperature,
            go_on=request.go_on,
            turns=course.turns,
            solved=course.solved,
            values=tuple(turn_value(turn, each) for turn, each in sorted(tried.items())),
            turning_point=point.place if point is not None else 0,
        )


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


def turn_value(turn: int, tried: TaskAttempts) -> TurnValue:
    """What the forks from a turn say of its value."""
    rate = pass_rate([tried], 1) or Rate(0.0, 0.0, 1.0)
    return TurnValue(
        turn=turn, passed=tried.passed, scored=tried.scored, low=rate.low, high=rate.high
    )
