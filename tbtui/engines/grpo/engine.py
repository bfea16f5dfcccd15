"""Group-relative policy optimisation on terminal tasks: the loop, read from top to bottom."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tbtui.algorithm.schedule import learning_rate
from tbtui.catalog.split import Split
from tbtui.catalog.tasks import TaskInfo
from tbtui.config import RunConfig
from tbtui.engines.grpo.failures import HaltError
from tbtui.engines.grpo.groups import Batch, BatchRules
from tbtui.engines.grpo.plan import GroupPlan, plan_groups, task_order
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.engines.grpo.step import score_group, train, waited_for
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    CheckpointSaved,
    CommandDone,
    CommandIssued,
    EvalFinished,
    EvalStarted,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    RunResumed,
    StepFinished,
    StepStarted,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import Policy, TrainSettings
from tbtui.rollout.outcome import is_infrastructure


class GrpoEngine:
    """Trains `policy` on `split.train`, evaluates it on `split.heldout`, journals all of it."""

    def __init__(
        self,
        config: RunConfig,
        split: Split,
        directory: RunDirectory,
        policy: Policy,
        runner: TrialRunner[Any],
        journal: JournalWriter,
    ) -> None:
        self._config = config
        self._split = split
        self._directory = directory
        self._policy = policy
        self._runner = runner
        self._journal = journal
        self.step = 0
        """Optimiser steps done."""
        self._weights_version = 0
        self._batch: Batch | None = None
        """The one whose trials run now."""
        self._resumed = asyncio.Event()
        self._resumed.set()

    async def run(self) -> str:
        """The whole of training; returns one line that sums it up."""
        config = self._config
        tasks = task_order(self._split.train, config.seed)
        before = await self._evaluate()
        after, evaluated = before, 0
        for _ in range(config.max_steps):
            await self._train_step(tasks)
            if config.eval_every and self.step % config.eval_every == 0:
                after, evaluated = await self._evaluate(), self.step
            if config.save_every and self.step % config.save_every == 0:
                await self._save()
        if self.step:
            if evaluated != self.step:
                after = await self._evaluate()
            if not config.save_every or self.step % config.save_every:
                await self._save()
        return self._summary(before, after)

    async def _train_step(self, tasks: Iterator[TaskInfo]) -> None:
        config = self._config
        started = time.monotonic()
        await self._resumed.wait()
        step = self.step + 1
        groups = plan_groups(
            list(itertools.islice(tasks, config.batch_size)),
            step=step,
            size=config.group_size + config.oversample,
            purpose="train",
            temperature=config.temperature,
            seed=config.seed,
        )
        self._enter(RunPhase.SAMPLING)
        self._journal.append(
            StepStarted(step=step, groups={group.group: group.task.name for group in groups})
        )
        rules = BatchRules(
            group_size=config.group_size,
            min_group=config.min_group,
            refill=config.short_groups == "refill",
            keep=config.oversample_keep,
            deadline_sec=config.step_deadline_sec,
            at_deadline=config.at_deadline,
        )
        finished = await self._run_groups(groups, rules)
        sampled = time.monotonic()

        self._enter(RunPhase.TRAINING)
        scored = [score_group(rollouts, config.min_group) for rollouts in finished]
        for group in scored:
            self._journal.append(group.event(step))
        metrics = await train(scored, self._policy, self._train_settings(step))
        self._weights_version = await self._policy.publish()
        self.step = step
        now = time.monotonic()
        metrics |= {
            "time/sampling": sampled - started,
            "time/training": now - sampled,
            "time/total": now - started,
            **waited_for(finished),
            "progress/batch": float(step),
        }
        self._journal.append(
            StepFinished(step=step, weights_version=self._weights_version, metrics=metrics)
        )

    async def _evaluate(self) -> float | None:
        """Pass rate on the held-out tasks with the published weights; None if none was scored."""
        config = self._config
        if not self._split.heldout:
            return None
        await self._resumed.wait()
        self._enter(RunPhase.EVALUATING)
        groups = plan_groups(
            self._split.heldout,
            step=self.step,
            size=config.eval_group_size,
            purpose="eval",
            temperature=config.eval_temperature,
            seed=config.seed,
        )
        self._journal.append(
            EvalStarted(
                step=self.step,
                tasks=len(groups),
                trials=len(groups) * config.eval_group_size,
                temperature=config.eval_temperature,
            )
        )
        finished = await self._run_groups(groups, BatchRules(config.eval_group_size))
        rollouts = [rollout for group in finished for rollout in group]
        rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
        rate = sum(rewards) / len(rewards) if rewards else None
        self._journal.append(
            EvalFinished(
                step=self.step,
                weights_version=self._weights_version,
                temperature=config.eval_temperature,
                pass_rate=rate,
                scored=len(rewards),
                unscored=len(rollouts) - len(rewards),
                by_kind=_by_kind(rollouts),
            )
        )
        return rate

    async def _run_groups(
        self, groups: Sequence[GroupPlan], rules: BatchRules
    ) -> list[tuple[Rollout, ...]]:
        batch = Batch(groups, rules, self._runner, self._journal)
        self._batch = batch
        try:
            finished = await batch.run()
        finally:
            self._batch = None
        _require_evidence([rollout for group in finished for rollout in group])
        return finished

    async def _save(self) -> None:
        self._enter(RunPhase.SAVING)
        path = self._directory.checkpoints / f"step-{self.step:06d}"
        await self._policy.save(path)
        self._journal.append(
            CheckpointSaved(
                step=self.step,
                weights_version=self._weights_version,
                path=str(path.relative_to(self._directory.path)),
            )
        )

    def _train_settings(self, step: int) -> TrainSettings:
        config = self._config
        return TrainSettings(
            learning_rate=learning_rate(
                config.learning_rate, config.lr_schedule, step, config.max_steps
            ),
            loss=config.loss_fn,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            grad_clip=config.grad_clip,
        )

    def _enter(self, phase: RunPhase) -> None:
        self._journal.append(RunPhaseChanged(phase=phase, step=self.step))

    def _summary(self, before: float | None, after: float | None) -> str:
        steps = f"{self.step} step{'' if self.step == 1 else 's'}"
        if before is None or after is None:
            return f"{steps}; nothing was evaluated"
        if not self.step:
            return f"held-out pass rate {before:.2f}"
        return f"{steps}, held-out pass rate {before:.2f} -> {after:.2f}"

    # What people ask

    def submit(self, command: Command) -> None:
        """Journal a command and carry it out. Called on the engine's loop."""
        self._journal.append(
            CommandIssued(
                command=command.id,
                verb=command.verb,
                target=command.target,
                actor=command.actor,
                reason=command.reason,
            )
        )
        if command.target == RUN:
            self._control_run(command)
        elif command.verb not in ("retry", "exclude", "include"):
            self._runner.steering.control(command)
        elif self._batch is None or not self._batch.control(command):
            text = f"{command.target} is no part of the step that is being sampled"
            self._done(command, False, f"{text}: nothing to {command.verb}")

    def _control_run(self, command: Command) -> None:
        match command.verb:
            case "pause" | "freeze":
                self._resumed.clear()
                self._runner.steering.hold(command.verb)
                self._journal.append(RunPaused())
                self._done(command, True, "the run is paused")
            case "resume":
                self._resumed.set()
                self._runner.steering.release()
                self._journal.append(RunResumed())
                self._done(command, True, "the run goes on")
            case verb:
                self._done(command, False, f"{verb} needs a trial; to end the run, quit")

    def _done(self, command: Command, ok: bool, result: str) -> None:
        self._journal.append(CommandDone(command=command.id, ok=ok, result=result))


def _require_evidence(rollouts: Sequence[Rollout]) -> None:
    """Refuse to go on when infrastructure has failed every single trial of a batch."""
    if rollouts and all(is_infrastructure(rollout.outcome) for rollout in rollouts):
        last = rollouts[-1]
        raise HaltError(
            f"none of {len(rollouts)} trials could be run; the last one: {last.outcome}:"
            f" {last.reason}"
        )


def _by_kind(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """Mean reward of the scored trials of each kind of task."""
    rewards: dict[str, list[float]] = {}
    for rollout in rollouts:
        if rollout.reward is not None:
            kind = rollout.plan.task.kind or rollout.plan.task.name
            rewards.setdefault(kind, []).append(rollout.reward)
    return {kind: sum(values) / len(values) for kind, values in sorted(rewards.items())}
