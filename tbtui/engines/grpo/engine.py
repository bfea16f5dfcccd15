"""Group-relative policy optimisation on terminal tasks: the loop, read from top to bottom.

Batch k is sampled from the tasks that the seed puts in its place and trained as step k, strictly
in order. With `max_steps_off_policy` = K it may be sampled as soon as step k - 1 - K is trained:
its tokens are then at most K steps old when they are trained on, nothing is thrown away for being
stale, and no short trial is favoured over a long one. K = 0 is the synchronous loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from tbtui.algorithm.evaluation import attempts
from tbtui.config import RunConfig, to_json
from tbtui.engines.awaiting import comes_before, running
from tbtui.engines.command_queue import CommandQueue
from tbtui.engines.grpo.batch import Batch, BatchPlan, OpenBatches
from tbtui.engines.grpo.budget import RunBudget
from tbtui.engines.grpo.checkpoint_state import CheckpointError, TrainingProgress
from tbtui.engines.grpo.checkpoints import CheckpointKeeper
from tbtui.engines.grpo.commands import RunCommands
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.curriculum import Curriculum
from tbtui.engines.grpo.failures import one_cause, require_evidence
from tbtui.engines.grpo.forks import ForkGroups, ForkRequest, fork_origin, turn_value
from tbtui.engines.grpo.group import BatchRules
from tbtui.engines.grpo.learning import LearningStep, ScoreJournal, group_scored
from tbtui.engines.grpo.live_settings import LiveSettings
from tbtui.engines.grpo.metrics import (
    sampling_speed,
    step_metrics,
    step_times,
    summarize,
    useful_groups,
)
from tbtui.engines.grpo.phases import RunPhases
from tbtui.engines.grpo.plan import BatchPlanner, SpareGroups
from tbtui.engines.grpo.probe import Prober, probe_offer
from tbtui.engines.grpo.publications import Publications
from tbtui.engines.grpo.recorded import (
    POLICY_LOST_FIRST,
    RUN_ENDED_FIRST,
    RecordedBatch,
)
from tbtui.engines.grpo.review import ReviewGate
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.journal.events import (
    AlarmRaised,
    DemonstrationsTrained,
    EvalFinished,
    EvalStarted,
    Noted,
    RunPhase,
    RunPhaseChanged,
    StepFinished,
    StepStarted,
)
from tbtui.policies.base import PolicyError, PolicyLostError
from tbtui.view.probe import judge
from tbtui.view.sentences import forks_line, summary_line, values_line

AlarmCheck = Callable[[StepFinished | EvalFinished], Sequence[AlarmRaised]]
"""Gives the alarms that a measurement raises."""


class GrpoEngine:
    """Trains `policy` on `split.train`, evaluates it on `split.heldout`, journals all of it."""

    def __init__(
        self,
        run: EngineContext,
        runner: TrialRunner[Any],
        keeper: CheckpointKeeper,
        check_alarms: AlarmCheck,
        queue: CommandQueue,
    ) -> None:
        """`queue`: commands that are carried out from now on."""
        self._run = run
        self.queue = queue
        self._policy = run.policy
        self._runner = runner
        self._journal = run.journal
        self._keeper = keeper
        self._check_alarms = check_alarms
        self._start = run.start
        self._split = run.split
        self._pause = runner.pause
        self._curriculum = Curriculum(run)
        self._planner = BatchPlanner(run, runner.unusable, self._curriculum)
        self._spending = run.spending
        self._spending.begin()
        self._phases = RunPhases(run)
        self._gate = ReviewGate(run, self._phases, runner.steering, queue)
        self._budget = RunBudget(run)
        self._publications = Publications(run.policy, run.journal, run.start, run.config.on_alarm)
        self._learning: LearningStep | None = None
        """The step that is sampled and trained."""
        self._batches = OpenBatches()
        self._forks = ForkGroups(run, runner, self._batches)
        settings = LiveSettings(run, runner, self._planner, keeper)
        self._commands = RunCommands(queue, runner, self._batches, settings, self._forks)

    @property
    def config(self) -> RunConfig:
        """The settings in force now."""
        return self._run.config

    @property
    def step(self) -> int:
        """Batches trained on."""
        return self._run.step

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
            await self._runner.demonstrations.close()
            self._commands.end(ending)

    async def _train(self, sampling: asyncio.TaskGroup) -> str:
        if self._policy.info.sampler_tolerance is not None:
            detail = "comparing what samples with what trains"
            event = RunPhaseChanged(phase=RunPhase.STARTING, step=self.step, detail=detail)
            self._journal.append(event)
        self._pause.raise_alarms(*(await self._publications.look(self.step)).alarms)
        self._forks.serve(sampling)
        if self.config.fork_from is not None:
            return await self._fork(fork_origin(self.config))
        if self.config.probe:
            return await self._probe()
        before = after = await self._evaluate(0)
        if before is not None and (advice := probe_offer(self.config, before)):
            self._journal.append(Noted(level="info", text=advice))
        if self.step:
            # A checkpoint that was saved in a pause may have come before its evaluation.
            after = await self._evaluate_if_due(sampling, after)
        while self.step < self._planner.last_step:
            await self._begin_batches(sampling)
            if self._run.begun == self.step:
                return await self._stop_spending(before, after)
            await self._train_step(self.step + 1)
            after = await self._evaluate_if_due(sampling, after)
            if self._due(self.config.save_every):
                await self._save()
        return summary_line(self.step, before, after)

    async def _fork(self, request: ForkRequest) -> str:
        """Try forks of another run's trial; returns what came of them, in one line."""
        self._phases.enter(RunPhase.EVALUATING)
        if request.search:
            measurement = await self._forks.measure(request)
            while (group := await measurement.next()) is not None:
                measurement.add(await self._run_forks(group))
            return values_line(self._forks.valued(measurement))
        batch, started = await self._forks.begin(request)
        rollouts = await self._run_forks(batch)
        tried = attempts(rollout.reward for rollout in rollouts)
        solved = turn_value(started.turn, tried)
        return forks_line(started, solved, len(rollouts) - tried.scored)

    async def _probe(self) -> str:
        """Try the training tasks in each of the arms; returns the verdict, in one line."""
        prober = Prober(self._run, self._runner)
        self._phases.enter(RunPhase.EVALUATING)
        while True:
            await self._until_resumed()
            batch = prober.next_round()
            self._batches.evaluating = batch
            try:
                finished = await self._resting(batch.run(), batch)
            finally:
                self._batches.evaluating = None
            measured = await prober.add(batch, [each for group in finished for each in group])
            if measured.stopped:
                return judge(measured.arms, to_json(self.config), prober.untried).why

    async def _run_forks(self, batch: Batch) -> tuple[Rollout, ...]:
        self._batches.evaluating = batch
        try:
            (rollouts,) = await self._resting(batch.run(), batch)
        finally:
            self._batches.evaluating = None
        self._spending.add(batch.tokens())
        return rollouts

    async def _stop_spending(self, before: EvalFinished | None, after: EvalFinished | None) -> str:
        """Save, and evaluate if that is paid for; returns how the run ended."""
        if self.step and not self._keeper.has(self._progress()):
            await self._save()
        if (after is None or after.step < self.step) and self._pays_evaluation():
            after = await self._evaluate(self.step) or after
        done = summary_line(self.step, before, after)
        return f"{done}; {self._budget.why_ended()}"

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
        while self._run.begun < min(allowed, self._planner.last_step):
            if self._run.begun + 1 not in self._start.batches and not self._budget.begins(
                self._run.begun - self.step
            ):
                return
            # One that was begun before an interruption may be looked at and steered in a pause too.
            if self._run.begun + 1 not in self._start.batches:
                await self._until_resumed()
            self._run.begun += 1
            sampling.create_task(self._begin_batch(self._run.begun).run())

    def _begin_batch(self, step: int) -> Batch:
        recorded = self._start.batches.get(step)
        groups = self._planner.batch(step, recorded)
        if recorded is None:
            names = {group.group: group.task.name for group in groups}
            self._journal.append(StepStarted(step=step, groups=names))
        spare = SpareGroups(self._planner, step, groups)
        review = self._gate.review(step, recorded)
        plan = BatchPlan(groups, self._planner.rules(), recorded, spare, review)
        batch = Batch(self._run, self._runner, plan)
        self._batches.sampling[step] = batch
        return batch

    async def _train_step(self, step: int) -> None:
        """Train on the batch of this step as soon as, or while, its trials are done."""
        started, config = time.monotonic(), self.config
        self._phases.begin_step()
        batch = self._batches.sampling[step]
        recorded = self._start.batches.get(step, RecordedBatch())

        rate = recorded.learning_rate or self._planner.learning_rate(step)
        scores = ScoreJournal(self._journal, step, recorded.scored)
        learning = LearningStep(self._run.recipe, self._policy, rate, config.batch_size, scores)
        self._learning = learning
        while (rollouts := await self._resting(batch.next_group(), batch)) is not None:
            await learning.add(rollouts)
        require_evidence(learning.rollouts, self._runner.unusable, answered=self._runner.has_worked)
        sampled = time.monotonic()
        self._phases.enter(RunPhase.TRAINING)
        shown = await self._runner.demonstrations.of_step(step, recorded)
        await learning.finish(shown.data)
        nats = learning.demonstrated_nats()
        if nats is not None and recorded.demonstrations is None:
            self._journal.append(
                DemonstrationsTrained(
                    step=step, demonstrations=shown.ids, loss=nats, weight=shown.weight
                )
            )
        metrics = learning.metrics(self._publications, step)
        published = await self._publications.publish(step)
        del self._batches.sampling[step]
        self._run.step, self._learning = step, None
        groups = learning.scored
        expected = self._curriculum.finish(step, [group_scored(step, group) for group in groups])
        if recorded.finished:
            # All of it is in the journal, but that it was trained once more.
            self._spending.add(learning.tokens())
            self._pause.raise_alarms(*published.alarms)
            return
        now = time.monotonic()
        metrics |= {**step_metrics(groups, config.max_tokens), **published.metrics}
        tokens = batch.tokens() + learning.tokens()
        useful = useful_groups(groups)
        metrics |= self._spending.step(tokens, useful, batch.rollouts) | expected
        metrics |= step_times(sampled - started, now - sampled, self._phases.reviewing_sec)
        if not recorded.attempts:
            metrics |= sampling_speed(tokens, metrics, ahead=config.max_steps_off_policy > 0)
        metrics["progress/batch"] = float(step)
        if asked_again := self._runner.completions.take_retried():
            metrics["sampling/asked_again"] = float(asked_again)
        for trial, logprobs in learning.trained_logprobs().items():
            self._journal.add_trained(trial, step, logprobs)
        self._tell(StepFinished(step=step, weights_version=published.version, metrics=metrics))
        self._budget.after_step(self._spending.by_unit())
        self._pause.raise_alarms(*published.alarms)

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
        self._phases.enter(RunPhase.EVALUATING)
        config, recorded = self.config, self._start.evaluations.get(step)
        if recorded is None:
            tasks, trials = len(groups), len(groups) * config.eval_group_size
            temperature = config.eval_temperature
            self._journal.append(
                EvalStarted(step=step, tasks=tasks, trials=trials, temperature=temperature)
            )
        rules = BatchRules(config.eval_group_size)
        plan = BatchPlan(groups, rules, recorded)
        self._batches.evaluating = batch = Batch(self._run, self._runner, plan)
        try:
            finished = await self._resting(batch.run(), batch)
        finally:
            self._batches.evaluating = None
        rollouts = [rollout for group in finished for rollout in group]
        # Training may go on without; a run that does nothing else has failed.
        goes_on = self._runner.has_worked or config.step_limit != 0
        require_evidence(rollouts, self._runner.unusable, answered=goes_on)
        version, not_tried = self._publications.version, len(self._split.heldout) - len(groups)
        summary = summarize(rollouts, step, version, config.eval_temperature, not_tried=not_tried)
        consumed = self._spending.evaluation(batch.tokens())
        self._tell(msgspec.structs.replace(summary, metrics=consumed))
        self._budget.after_evaluation(self._spending.by_unit())
        await self._kept(self._keeper.evaluated, self._progress(), summary.pass_rate)
        return summary

    async def _save(self) -> None:
        self._phases.enter(RunPhase.SAVING)
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
            self._phases.enter(RunPhase.SAMPLING)
            await self._resting(self._pause.over(), None)

    async def _resting[T](self, work: Coroutine[Any, Any, T], batch: Batch | None) -> T:
        """The result of `work`; in a pause meanwhile, once all is at rest, a checkpoint is saved.

        While `work` is under way nothing else trains: it waits for trials of `batch`, for their
        review, or for the end of the pause.
        """
        async with running(work) as task:
            for each in list(self._batches):
                await comes_before(each.begun.wait(), task)
            if batch is not None:
                self._commands.trials_are_there()
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
        phase = self._phases.now
        await self._save()
        self._journal.append(Noted(level="info", text=f"paused and saved at step {self.step}"))
        self._phases.go_on(phase)

    def _progress(self) -> TrainingProgress:
        return TrainingProgress(step=self.step, weights_version=self._publications.version)

    def _tell(self, event: StepFinished | EvalFinished) -> None:
        """Journal what was measured, and what looks wrong about it."""
        self._journal.append(event)
        self._pause.raise_alarms(*self._check_alarms(event))
