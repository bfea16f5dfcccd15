"""Runs a probe: rounds of trials, one of each task in each arm, and what they say of a run.

All arms are tried side by side, so that whenever the budget ends they have been tried alike. A
round begins only where the budget pays for one as expensive as the dearest so far; hours end a
round as well, and what they cut off is not scored: trials that take long would else count as
failed.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from tbtui.algorithm.evaluation import Rate, attempts, pass_rates, signal_share
from tbtui.config import BudgetUnit, RunConfig
from tbtui.config.values import as_typed
from tbtui.engines.grpo.batch import Batch, BatchPlan
from tbtui.engines.grpo.budget import Spent
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.failures import HaltError
from tbtui.engines.grpo.group import BatchRules
from tbtui.engines.grpo.rollouts import GroupPlan, Rollout, TrialPlan, trial_plan
from tbtui.engines.grpo.trials import TrialRunner
from tbtui.engines.prices import price_list
from tbtui.engines.probe_arms import arms_of, easier_agent
from tbtui.invocation import to_type
from tbtui.journal.events import (
    ArmMeasured,
    Entry,
    Estimate,
    EvalFinished,
    Outcome,
    ProbeArm,
    ProbeMeasured,
    ProbeStarted,
    ResourcesMeasured,
    RunPaused,
    TrialQueued,
    TurnAbandoned,
    TurnParsed,
    TurnSampled,
)
from tbtui.journal.reader import JournalReader
from tbtui.outcomes import UNSCORED
from tbtui.policies import sampling_of
from tbtui.rollout.agents import needs_endpoint
from tbtui.view.probe import amount_words

_STEP = 1
"""The step of all its trials: one batch on the screen."""
_OF_A_PROBE = ("probe", "probe_tasks", "eval_group_size", "eval_temperature", "budget", "run_name")
"""Settings that its run does not repeat."""


@dataclass(slots=True)
class _Arm:
    """What came of an arm so far."""

    arm: ProbeArm
    rewards: dict[str, list[float]] = field(default_factory=dict)
    """Task -> rewards of its scored trials."""
    trials: int = 0
    broken: int = 0
    answers: int = 0
    readable: int = 0
    cut: int = 0
    overflowed: int = 0
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def fits(self) -> bool:
        """Whether the first prompt of a trial has ever fitted into the context."""
        return not self.trials or self.overflowed < self.trials

    def add(self, rollout: Rollout, events: Sequence[Entry]) -> None:
        """Count a trial that has ended, with all that the journal has of it."""
        if rollout.outcome is Outcome.CANCELLED:
            return
        self.trials += 1
        self.broken += rollout.outcome in UNSCORED
        self.tokens += rollout.tokens.sampled
        self.seconds.append(rollout.seconds)
        answers = _answers(events)
        overflowed = rollout.outcome is Outcome.CONTEXT_OVERFLOW and not answers
        self.overflowed += overflowed
        if rollout.reward is None or overflowed:
            self.reasons[f"{rollout.outcome}: {rollout.reason}"] += 1
        # A trial that answers nothing says nothing of the model.
        if rollout.reward is not None and not overflowed:
            self.rewards.setdefault(rollout.plan.task.name, []).append(rollout.reward)
        read = {
            e.event.turn for e in events if isinstance(e.event, TurnParsed) and not e.event.error
        }
        self.answers += len(answers)
        self.readable += sum(answer.turn in read for answer in answers)
        self.cut += sum(answer.stop_reason == "length" for answer in answers)

    def measured(self, group_size: int, step_trials: int, speed: float | None) -> ArmMeasured:
        """
        Args:
            step_trials: trials of a training step.
            speed: tokens a second, of all trials together.
        """
        rates = pass_rates([attempts(rewards) for rewards in self.rewards.values()])
        most = max(map(len, self.rewards.values()), default=0)
        signal = signal_share(list(self.rewards.values()), group_size)
        tokens = step_trials * self.tokens / self.trials if self.trials else 0.0
        return ArmMeasured(
            agent=self.arm.agent,
            temperature=self.arm.temperature,
            trials=self.trials,
            scored=sum(map(len, self.rewards.values())),
            broken=self.broken,
            reason=next((reason for reason, _ in self.reasons.most_common(1)), ""),
            answers=self.answers,
            readable=None if needs_endpoint(self.arm.agent) else self.readable,
            cut=self.cut,
            overflowed=self.overflowed,
            tokens=self.tokens,
            pass_at={k: _estimate(rate) for k, rate in rates.items()},
            signal=None if signal is None else _estimate(signal),
            signal_size=min(group_size, most),
            trial_sec=fmean(self.seconds) if self.seconds else 0.0,
            step_sec=tokens / speed if speed and tokens else None,
        )


def _answers(events: Sequence[Entry]) -> list[TurnSampled]:
    """The answers that the agent has got."""
    left = {entry.event.turn for entry in events if isinstance(entry.event, TurnAbandoned)}
    return [
        entry.event
        for entry in events
        if isinstance(entry.event, TurnSampled)
        and entry.event.purpose == "turn"
        and entry.event.turn not in left
    ]


def _estimate(rate: Rate) -> Estimate:
    return Estimate(value=rate.value, low=rate.low, high=rate.high)


class Prober:
    """Plans the rounds of a probe, and measures them."""

    def __init__(self, run: EngineContext, runner: TrialRunner[Any]) -> None:
        """Raises `HaltError`: it has begun before, in another process or with another policy."""
        self._run = run
        self._runner = runner
        self._arms = [_Arm(arm) for arm in arms_of(run.config)]
        self._rounds = 0
        self._most: dict[BudgetUnit, float] = {}
        """What the dearest round has spent."""
        self._measured_tokens = 0
        self._measured_sec = 0.0
        self._memory_mb: float | None = None
        with closing(JournalReader(run.directory)) as reader:
            if reader.trials(TrialQueued.kind):
                raise HaltError("a probe does not go on after an interruption: start it again")
            self._seq = reader.last_seq()
        self._since = time.monotonic()
        self._begun = self._spent()
        config = run.config
        easier = easier_agent(config)
        self.untried = "" if any(each.arm.agent == easier for each in self._arms) else easier
        """An easier agent that no arm has; empty: there is none."""
        run.journal.append(
            ProbeStarted(
                arms=tuple(each.arm for each in self._arms),
                tasks=tuple(task.name for task in run.split.train),
                trials=config.eval_group_size,
                budget={str(unit): limit for unit, limit in config.limits.items()},
                typed=tuple(as_typed(config, *_OF_A_PROBE)),
                untried=self.untried,
            )
        )

    def next_round(self) -> Batch:
        """One trial of each task in each arm."""
        self._rounds += 1
        self._since = time.monotonic()
        self._begun = self._spent()
        hours = self._run.config.limits.get("hours")
        left = None if hours is None else max(1.0, 3600 * (hours - self._begun["hours"]))
        rules = BatchRules(1, deadline_sec=left, at_deadline="mask")
        return Batch(self._run, self._runner, BatchPlan(self._groups(), rules))

    def _groups(self) -> list[GroupPlan]:
        """One of each arm and task in all rounds: a round adds a trial to each."""
        config, groups = self._run.config, []
        for task in self._run.split.train:
            for number, arm in enumerate(self._arms):
                if task.name in self._runner.unusable or not arm.fits:
                    continue
                # No two trials of a task have the same number, whichever arm they are of.
                index = number * config.eval_group_size + self._rounds
                group = f"p{number + 1}-{task.name.replace('/', '--')}"
                draws = (config.seed, "probe", task.name)
                sampling = sampling_of(config, arm.arm.temperature)
                first = TrialPlan(
                    task, group, index, _STEP, "probe", sampling, 0, draws, agent=arm.arm.agent
                )
                groups.append(GroupPlan(group, task, (trial_plan(first, index),)))
        return groups

    async def add(self, batch: Batch, rollouts: Sequence[Rollout]) -> ProbeMeasured:
        """Journal what is known after a round."""
        seconds = time.monotonic() - self._since
        self._run.spending.add(batch.tokens())
        await asyncio.to_thread(self._count, rollouts, seconds)
        now = self._spent()
        for unit, amount in now.items():
            self._most[unit] = max(self._most.get(unit, 0.0), amount - self._begun[unit])
        measured = self._measured(now)
        self._run.journal.append(measured)
        return measured

    def _count(self, rollouts: Sequence[Rollout], seconds: float) -> None:
        with closing(JournalReader(self._run.directory)) as reader:
            for rollout in rollouts:
                arm = (rollout.plan.index - 1) // self._run.config.eval_group_size
                self._arms[arm].add(rollout, reader.read_trial(rollout.trial))
            self._look_at_machine(reader, sum(each.tokens.sampled for each in rollouts), seconds)

    def _look_at_machine(self, reader: JournalReader, tokens: int, seconds: float) -> None:
        paused = False
        kinds = (ResourcesMeasured.kind, RunPaused.kind)
        for entry in reader.each(kinds, self._seq):
            self._seq = entry.seq
            match entry.event:
                case ResourcesMeasured(processes=processes):
                    used = sum(process.rss_mb for process in processes)
                    self._memory_mb = max(self._memory_mb or 0.0, used)
                case _:
                    paused = True
        if not paused:  # else the time says nothing of the speed
            self._measured_tokens += tokens
            self._measured_sec += seconds

    def _measured(self, spent: dict[BudgetUnit, float]) -> ProbeMeasured:
        config = self._run.config
        speed = self._measured_tokens / self._measured_sec if self._measured_tokens else None
        trials = config.batch_size * config.group_size
        return ProbeMeasured(
            rounds=self._rounds,
            arms=tuple(arm.measured(config.group_size, trials, speed) for arm in self._arms),
            spent={str(unit): amount for unit, amount in spent.items()},
            tokens_per_sec=speed,
            memory_mb=self._memory_mb,
            stopped=self._stopped(spent),
        )

    def _stopped(self, spent: Spent) -> str:
        """Why no further round begins; empty: one does."""
        if self._rounds >= self._run.config.eval_group_size:
            return "all trials are over"
        if not self._groups():
            return "no trial of any arm can go on"
        for unit, limit in self._run.config.limits.items():
            if spent[unit] + self._most[unit] > limit:
                return (
                    f"{amount_words(unit, spent[unit])} spent of {amount_words(unit, limit)}, and"
                    f" a further round would take up to {amount_words(unit, self._most[unit])}"
                )
        return ""

    def _spent(self) -> dict[BudgetUnit, float]:
        trials = sum(arm.trials for arm in self._arms)
        spent = {**self._run.spending.by_unit(), "rollouts": float(trials)}
        if not price_list(self._run.config).prices:
            del spent["dollars"]
        return spent


def probe_offer(config: RunConfig, evaluated: EvalFinished) -> str:
    """What to try where the first evaluation of a run that trains has solved nothing; empty: it
    has, or could not be scored."""
    if not config.step_limit or not evaluated.scored or evaluated.pass_rate:
        return ""
    left_out = ("max_steps", "n_epochs", *_OF_A_PROBE)
    return (
        f"none of {evaluated.scored} held-out trials solved its task; which temperature, agent or"
        f" tasks would give a signal: {to_type('probe', *as_typed(config, *left_out))}"
    )
