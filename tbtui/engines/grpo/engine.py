"""Group-relative policy optimisation on terminal tasks: the loop, read from top to bottom.

Batch k is sampled from the tasks that the seed puts in its place and trained as step k, strictly
in order. With `max_steps_off_policy` = K it may be sampled as soon as step k - 1 - K is trained:
its tokens are then at most K steps old when they are trained on, nothing is thrown away for being
stale, and no short trial is favoured over a long one. K = 0 is the synchronous loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from tbtui.algorithm.step import ScoredGroup
from tbtui.catalog.split import Split
from tbtui.config import ConfigError, RunConfig
from tbtui.config.trust import remember
from tbtui.engines.awaiting import comes_before, running
from tbtui.engines.grpo.batch import Batch
from tbtui.engines.grpo.budget import Budget
from tbtui.engines.grpo.checkpoint_state import CheckpointError, TrainingProgress
from tbtui.engines.grpo.checkpoints import CheckpointKeeper
from tbtui.engines.grpo.commands import RunCommands
from tbtui.engines.grpo.config_checks import changed_config, differences, in_words
from tbtui.engines.grpo.curriculum import Curriculum
from tbtui.engines.grpo.demonstrations import DemonstrationKeeper
from tbtui.engines.grpo.failures import HaltError, one_cause, require_evidence
from tbtui.engines.grpo.fork_groups import ForkGroups, fork_metrics
from tbtui.engines.grpo.forks import ForkRequest, Forks, fork_origin, forks_line, values_line
from tbtui.engines.grpo.group import BatchRules
from tbtui.engines.grpo.learning import LearningStep, group_scored, recipe_of
from tbtui.engines.grpo.metrics import (
    Spending,
    pace_line,
    sampling_speed,
    step_metrics,
    step_times,
    summarize,
    summary_line,
    useful_groups,
)
from tbtui.engines.grpo.pausing import Pause
from tbtui.engines.grpo.plan import BatchPlanner
from tbtui.engines.grpo.publications import Publications
from tbtui.engines.grpo.recorded import (
    POLICY_LOST_FIRST,
    RUN_ENDED_FIRST,
    RecordedBatch,
    StartingPoint,
)
from tbtui.engines.grpo.review import ReviewGate
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.engines.grpo.turn_credit import TurnCredit
from tbtui.journal.commands import Command
from tbtui.journal.events import (
    AlarmRaised,
    DemonstrationsTrained,
    EvalFinished,
    EvalStarted,
    Noted,
    RunPhase,
    RunPhaseChanged,
    SettingsChanged,
    StepFinished,
    StepStarted,
)
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import Policy, PolicyError, PolicyLostError

_WAITING = (RunPhase.SAMPLING, RunPhase.REVIEWING)
"""Phases in which the next step waits to be trained."""

AlarmCheck = Callable[[StepFinished | EvalFinished], Sequence[AlarmRaised]]
"""Gives the alarms that a measurement raises."""


class GrpoEngine:
    """Trains `policy` on `split.train`, evaluates it on `split.heldout`, journals all of it."""

    def __init__(
        self,
        config: RunConfig,
        split: Split,
        policy: Policy,
        runner: TrialRunner[Any],
        journal: JournalWriter,
        keeper: CheckpointKeeper,
        check_alarms: AlarmCheck,
        start: StartingPoint | None = None,
    ) -> None:
        """`policy` has loaded the checkpoint of `start`."""
        self.config = config
        """The settings in force now."""
        self._policy = policy
        self._runner = runner
        self._journal = journal
        self._keeper = keeper
        self._check_alarms = check_alarms
        self._start = start or StartingPoint()
        self._recipe = recipe_of(config, policy.info)
        self._split = split
        self._unusable = runner.unusable
        self._curriculum = Curriculum(config, split.train, self._start, journal)
        self._planner = BatchPlanner(config, split, self._start, runner.unusable, self._curriculum)
        self.step = self._start.step
        """Batches trained on."""
        self._sampling: dict[int, Batch] = {}
        """Batches whose trials run or wait to be trained on, by step."""
        self._evaluating: Batch | None = None
        self._gate = ReviewGate(
            lambda: self.config,
            self._recipe,
            keeper.directory.review_rules,
            journal,
            # A decision made in time counts, even if it came before there was an engine.
            lambda: runner.steering.open and self.commands.up_to_date,
            self._review_waits,
        )
        self._begun = self.step
        self._spending = Spending(
            config, self._start.spent, policy, lambda: self._planner.to_come(self.step)
        )
        self._budget = Budget(config, self._spending.by_unit(), journal)
        self._publications = Publications(policy, journal, self._start, config.on_alarm)
        self._learning: LearningStep | None = None
        """The step that is sampled and trained."""
        self._phase, self._phase_since = RunPhase.STARTING, time.monotonic()
        self._evaluation_sec = 0.0
        """How long the latest evaluation took."""
        self._pace_said = False
        self._reviewing_sec = 0.0
        """How long the step under way has waited for nothing but its review."""
        self._pause = Pause(self._start.paused)
        self._forks = Forks(
            keeper.directory,
            lambda: self.config,
            {task.name: task for task in (*split.train, *split.heldout, *split.unused)},
            runner,
            self._recipe,
            journal,
            self._start,
            lambda: self.step,
            self._spending.add,
        )
        self._demonstrations = DemonstrationKeeper(
            keeper.directory,
            lambda: self.config,
            policy,
            journal,
            {task.name for task in split.heldout},
            self._spending.add,
        )
        runner.keep_demonstration = self._demonstrations.keep
        self._credit = TurnCredit(self._forks, lambda: self.config, journal)
        self._fork_groups = ForkGroups(self._forks, lambda: self.config, journal)
        self.commands = RunCommands(
            journal,
            runner.steering,
            self._pause,
            self._batches,
            self._change,
            self._curriculum.weigh,
            self._forks.ask,
            runner.outages,
        )
        runner.outages.steer(self.commands)
        runner.raise_alarm = self._raise
        if self._pause.on:
            runner.steering.hold()

    async def run(self) -> str:
        """Train to the end; returns one line that sums it up.

        Raises:
            HaltError: it can't go on.
            PolicyLostError: it can, with a new policy and a new engine.
            PolicyError, CheckpointError, JournalError
        """
        ending = RUN_ENDED_FIRST
        try:
            with one_cause():
                async with asyncio.TaskGroup() as sampling:
                    try:
                        return await self._train(sampling)
                    except PolicyLostError:
                        self._runner.policy_lost()
                        raise
        except PolicyLostError:
            ending = POLICY_LOST_FIRST
            raise
        finally:
            await self._demonstrations.close()
            self.commands.end(ending)

    async def _train(self, sampling: asyncio.TaskGroup) -> str:
        self._raise(*(await self._publications.look(self.step)).alarms)
        self._forks.serve(sampling)
        if self.config.fork_from is not None:
            return await self._fork(fork_origin(self.config))
        before = after = await self._evaluate(0)
        if self.step:
            # A checkpoint that was saved in a pause may have come before its evaluation.
            after = await self._evaluate_if_due(sampling, after)
        while self.step < self._planner.last_step:
            await self._begin_batches(sampling)
            if self._begun == self.step:
                return await self._stop_spending(before, after)
            await self._train_step(self.step + 1)
            after = await self._evaluate_if_due(sampling, after)
            if self._due(self.config.save_every):
                await self._save()
        return summary_line(self.step, before, after)

    async def _fork(self, request: ForkRequest) -> str:
        """Try forks of another run's trial; returns what came of them, in one line."""
        self._enter(RunPhase.EVALUATING)
        if request.search:
            course = await self._forks.course(request)
            return values_line(await self._forks.search(request, course, self._run_forks))
        batch, started = await self._forks.begin(request)
        return forks_line(await self._run_forks(batch), started)

    async def _run_forks(self, batch: Batch) -> tuple[Rollout, ...]:
        self._evaluating = batch
        try:
            (rollouts,) = await self._resting(batch.run(), batch)
        finally:
            self._evaluating = None
        self._spending.add(batch.tokens())
        return rollouts

    async def _stop_spending(self, before: EvalFinished | None, after: EvalFinished | None) -> str:
        """Save, and evaluate if that is paid for; returns how the run ended."""
        if self.step and not self._keeper.has(self._progress()):
            await self._save()
        if (after is None or after.step < self.step) and self._pays_evaluation():
            after = await self._evaluate(self.step) or after
        done = summary_line(self.step, before, after)
        return f"{done}; {self._budget.why_ended(self.config)}"

    def _pays_evaluation(self) -> bool:
        """Whether the budget pays for an evaluation; says so where it doesn't."""
        if not (paid := self._budget.pays_evaluation()) and self._split.heldout:
            text = f"step {self.step} is not evaluated: the budget doesn't pay for that any more"
            self._journal.append(Noted(level="warning", text=text))
        return paid

    async def _evaluate_if_due(
        self, sampling: asyncio.TaskGroup, last: EvalFinished | None
    ) -> EvalFinished | None:
        """The latest evaluation, `last` unless there is one of this step."""
        if self.config.max_steps_off_policy:
            # The next ones go on while this one is evaluated and saved.
            await self._begin_batches(sampling)
        if not self._due(self.config.eval_every) or not self._pays_evaluation():
            return last
        return await self._evaluate(self.step)

    def _due(self, every: int) -> bool:
        return self.step == self._planner.last_step or bool(every and self.step % every == 0)

    async def _begin_batches(self, sampling: asyncio.TaskGroup) -> None:
        """Sample every batch that may be: see the bound on staleness above."""
        allowed = self.step + 1 + self.config.max_steps_off_policy
        while self._begun < min(allowed, self._planner.last_step):
            if self._begun + 1 not in self._start.batches and not self._budget.begins(
                self._begun - self.step
            ):
                return
            # One that was begun before an interruption may be looked at and steered in a pause too.
            if self._begun + 1 not in self._start.batches:
                await self._until_resumed()
            self._begun += 1
            sampling.create_task(self._begin_batch(self._begun).run())

    def _begin_batch(self, step: int) -> Batch:
        recorded = self._start.batches.get(step)
        groups = self._planner.batch(step, recorded)
        if recorded is None:
            names = {group.group: group.task.name for group in groups}
            self._journal.append(StepStarted(step=step, groups=names))
        batch = Batch(
            groups,
            self._planner.rules(),
            self._recipe,
            self._runner,
            self._journal,
            recorded=recorded,
            spare=self._planner.spare(step, groups),
            review=self._gate.review(step, recorded),
        )
        self._sampling[step] = batch
        return batch

    async def _train_step(self, step: int) -> None:
        """Train on the batch of this step as soon as, or while, its trials are done."""
        started, config = time.monotonic(), self.config
        self._reviewing_sec = 0.0
        self._enter(self._waiting_phase())
        batch, recorded = self._sampling[step], self._start.batches.get(step, RecordedBatch())

        def scored(group: ScoredGroup[Rollout]) -> None:
            event = group_scored(step, group)
            if event.group not in recorded.scored:
                self._journal.append(event)

        rate = recorded.learning_rate or self._planner.learning_rate(step)
        learning = LearningStep(self._recipe, self._policy, rate, config.batch_size, scored)
        self._learning = learning
        self._credit.begin(config.batch_size)
        groups = []
        while (rollouts := await self._resting(batch.next_group(), batch)) is not None:
            groups.append(rollouts)
            await learning.add(await self._credit.valued(rollouts))
        for group in await self._fork_groups.sampled(step, groups):
            await learning.add(group)
        require_evidence(learning.rollouts, self._unusable)
        sampled = time.monotonic()
        self._enter(RunPhase.TRAINING)
        shown = await self._demonstrations.of_step(step, recorded)
        await learning.finish(shown.data)
        nats = learning.demonstrated_nats()
        if nats is not None and recorded.demonstrations is None:
            self._journal.append(
                DemonstrationsTrained(
                    step=step, demonstrations=shown.ids, loss=nats, weight=shown.weight
                )
            )
        metrics = learning.metrics(lambda version: self._publications.age(version, step))
        published = await self._publications.publish(step)
        del self._sampling[step]
        self.step, self._learning = step, None
        own, forked = _by_purpose(learning.scored)
        expected = self._curriculum.finish(step, [group_scored(step, group) for group in own])
        if recorded.finished:
            # All of it is in the journal, but that it was trained once more.
            self._spending.add(learning.tokens())
            self._raise(*published.alarms)
            return
        now = time.monotonic()
        metrics |= {**step_metrics(own, config.max_tokens), **published.metrics}
        tokens = batch.tokens() + learning.tokens()
        useful = useful_groups(own)
        metrics |= self._spending.step(tokens, useful, batch.rollouts) | expected
        metrics |= step_times(sampled - started, now - sampled, self._reviewing_sec)
        if not recorded.attempts:
            metrics |= sampling_speed(tokens, metrics, ahead=config.max_steps_off_policy > 0)
        metrics["progress/batch"] = float(step)
        metrics |= self._credit.metrics() | fork_metrics(forked)
        if asked_again := self._runner.completions.take_retried():
            metrics["sampling/asked_again"] = float(asked_again)
        for trial, logprobs in learning.trained_logprobs().items():
            self._journal.add_trained(trial, step, logprobs)
        self._tell(StepFinished(step=step, weights_version=published.version, metrics=metrics))
        self._budget.after_step(self._spending.by_unit())
        self._raise(*published.alarms)
        pace = None
        if not self._pace_said:
            steps, evaluations = self._planner.to_come(step)
            pace = pace_line(metrics, steps, evaluations * self._evaluation_sec)
            self._pace_said = pace is not None
        for line in filter(None, (pace, self._spending.forecast_line())):
            self._journal.append(Noted(level="info", text=line))

    async def _evaluate(self, step: int) -> EvalFinished | None:
        """Attempt the held-out tasks with the published weights; None if there are none.

        It draws from streams of its own and gives the policy nothing to train on: a run's
        training is the same with and without.
        """
        if step in self._start.evaluated:
            evaluated = self._start.evaluated[step]
            if step == self.step:  # else its weights are gone
                await self._kept(self._keeper.evaluated, self._progress(), evaluated.pass_rate)
            return evaluated
        groups = self._planner.evaluation(step)
        if not groups or step < self._start.step:
            return None
        await self._until_resumed()
        self._enter(RunPhase.EVALUATING)
        config, recorded = self.config, self._start.evaluations.get(step)
        if recorded is None:
            tasks, trials = len(groups), len(groups) * config.eval_group_size
            temperature = config.eval_temperature
            self._journal.append(
                EvalStarted(step=step, tasks=tasks, trials=trials, temperature=temperature)
            )
        rules = BatchRules(config.eval_group_size)
        self._evaluating = batch = Batch(
            groups, rules, self._recipe, self._runner, self._journal, recorded=recorded
        )
        started = time.monotonic()
        try:
            finished = await self._resting(batch.run(), batch)
        finally:
            self._evaluating = None
        self._evaluation_sec = time.monotonic() - started
        rollouts = [rollout for group in finished for rollout in group]
        require_evidence(rollouts, self._unusable)
        version, not_tried = self._publications.version, len(self._split.heldout) - len(groups)
        summary = summarize(rollouts, step, version, config.eval_temperature, not_tried=not_tried)
        consumed = self._spending.evaluation(batch.tokens())
        self._tell(msgspec.structs.replace(summary, metrics=consumed))
        self._budget.after_evaluation(self._spending.by_unit())
        await self._kept(self._keeper.evaluated, self._progress(), summary.pass_rate)
        return summary

    async def _save(self) -> None:
        self._enter(RunPhase.SAVING)
        await self._kept(self._keeper.save, self._progress())

    async def _kept[**P](
        self, save: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Save, after an outage if there is one."""
        while True:
            if self._journal.blocked and await self._runner.in_outage():
                # A checkpoint must not know of more than the journal does.
                await self._runner.outages.over()
                continue
            try:
                await save(*args, **kwargs)
                return
            except PolicyLostError:
                raise
            except (CheckpointError, PolicyError):
                if not await self._runner.in_outage():
                    raise
                await self._runner.outages.over()

    # Pauses

    async def _until_resumed(self) -> None:
        if self._pause.on:
            # What comes next: nothing is trained or saved for as long.
            self._enter(RunPhase.SAMPLING)
            await self._resting(self._pause.over(), None)

    async def _resting[T](self, work: Coroutine[Any, Any, T], batch: Batch | None) -> T:
        """The result of `work`; in a pause meanwhile, once all is at rest, a checkpoint is saved.

        While `work` is under way nothing else trains: it waits for trials of `batch`, for their
        review, or for the end of the pause.
        """
        async with running(work) as task:
            for each in self._batches():
                await comes_before(each.begun.wait(), task)
            if batch is not None:
                self.commands.trials_are_there()
            while await comes_before(self._at_rest(batch), task):
                await self._save_in_pause()
                await comes_before(self._pause.over(), task)
            return await task

    async def _at_rest(self, batch: Batch | None) -> None:
        """Wait for a pause in which no trial is at work and `batch` is not about to be trained."""
        while True:
            await self._pause.begun()
            await self._runner.steering.at_rest()
            if self._pause.on and (batch is None or batch.waits):
                return
            await asyncio.sleep(0)  # it is being handed over, or starts further trials

    async def _save_in_pause(self) -> None:
        """Save, so that the machine or the policy's server may be switched off."""
        if self._keeper.has(self._progress()) or self.step == self._start.step:
            return  # nothing was trained since
        if self._learning and self._learning.begun:
            text = f"step {self.step + 1} is half trained: nothing can be saved until it is done"
            self._journal.append(Noted(level="info", text=f"paused; {text}"))
            return
        phase = self._phase
        await self._save()
        self._journal.append(Noted(level="info", text=f"paused and saved at step {self.step}"))
        self._enter(self._waiting_phase() if phase in _WAITING else phase)

    def _progress(self) -> TrainingProgress:
        return TrainingProgress(step=self.step, weights_version=self._publications.version)

    def _tell(self, event: StepFinished | EvalFinished) -> None:
        """Journal what was measured, and what looks wrong about it."""
        self._journal.append(event)
        self._raise(*self._check_alarms(event))

    def _raise(self, *alarms: AlarmRaised) -> None:
        for alarm in alarms:
            self._journal.append(alarm)
            if alarm.action == "pause":
                self.commands.pause("pause", alarm.text)
            elif alarm.action == "halt":
                raise HaltError(f"{alarm.text} (on_alarm.{alarm.alarm}=halt)")

    def _review_waits(self, step: int) -> None:
        """Enter the phase that fits when the review of a step begins or ends to wait.

        A phase is about the next step to be trained, and about no later one.
        """
        if step == self.step + 1 and self._phase in _WAITING:
            self._enter(self._waiting_phase())

    def _waiting_phase(self) -> RunPhase:
        """What keeps the next step from being trained."""
        batch = self._sampling.get(self.step + 1)
        reviewing = batch is not None and batch.reviewing
        return RunPhase.REVIEWING if reviewing else RunPhase.SAMPLING

    def _enter(self, phase: RunPhase) -> None:
        now = time.monotonic()
        if self._phase is RunPhase.REVIEWING:
            self._reviewing_sec += now - self._phase_since
        self._phase, self._phase_since = phase, now
        self._journal.append(RunPhaseChanged(phase=phase, step=self.step))

    def _change(self, values: Mapping[str, Any]) -> str:
        """Give settings other values from now on; says which. Raises `ConfigError`."""
        old, new = self.config, changed_config(self.config, values)
        self._planner.change(new)
        if self._planner.last_step < self._begun:
            self._planner.change(old)
            raise ConfigError(f"max_steps={new.max_steps}: step {self._begun} has begun already")
        self.config = new
        self._budget.change(new)
        self._runner.change(new)
        self._keeper.keep_last = new.keep_checkpoints
        now, before = differences(old, new), differences(new, old)
        if not now:
            return "it is so already"
        self._journal.append(SettingsChanged(settings=now, before=before))
        remember(new, self._keeper.directory.path)
        return in_words(before, now)

    def submit(self, command: Command) -> None:
        """Journal a command and carry it out. Called on the engine's loop."""
        self.commands.submit(command)

    def _batches(self) -> list[Batch]:
        """The batches whose trials can still be steered."""
        evaluating = [self._evaluating] if self._evaluating else []
        return [*evaluating, *self._sampling.values(), *self._forks.batches]


def _by_purpose(
    groups: Sequence[ScoredGroup[Rollout]],
) -> tuple[list[ScoredGroup[Rollout]], list[ScoredGroup[Rollout]]]:
    """A step's groups of whole trials, and those of forks."""
    of_forks = [group.rollouts[0].plan.purpose == "fork" for group in groups]
    pairs = list(zip(groups, of_forks, strict=True))
    return [group for group, fork in pairs if not fork], [group for group, fork in pairs if fork]
