"""One training step: groups of finished trials in, trained weights and numbers out."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tbtui.algorithm.costs import Tokens
from tbtui.algorithm.losses import LossSettings
from tbtui.algorithm.step import (
    BatchSettings,
    Datum,
    Recipe,
    RewardSettings,
    ScoredGroup,
    ScoredTrial,
    divided,
    divisor,
    handed_back,
    has_unknown,
    reference_kl,
    score_groups,
    trial_data,
    truncated_importance,
    with_reference_kl,
    with_unknown,
)
from tbtui.config import RunConfig
from tbtui.engines.grpo.metrics import clip_metrics, sampler_trainer_metrics, staleness_metrics
from tbtui.engines.grpo.publications import Publications
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.journal.events import GroupScored, Outcome, TrialScore
from tbtui.journal.figures import TRAINING_SPEED
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import GradientResult, OptimSettings, Policy, PolicyInfo, StepResult

Logprobs = tuple[npt.NDArray[np.float32], ...]


def recipe_of(config: RunConfig, info: PolicyInfo) -> Recipe:
    """The algorithm that the settings ask for, with a policy of this context limit."""
    return Recipe(
        advantage=config.advantage,
        min_group=config.min_group,
        rewards=RewardSettings(
            config.overlong_penalty, config.overlong_buffer, config.turn_penalty
        ),
        context_limit=config.context_limit or info.context_limit,
        train_summaries=config.train_summaries,
        train_abandoned=config.train_abandoned_calls,
        train_side_calls=config.train_side_calls,
        train_handed_back=config.train_after_handback,
        normalisation=BatchSettings(
            config.loss_normalizer,
            config.remove_constant_reward_groups,
            reference_kl=config.kl_penalty_coef > 0,
        ),
        loss=LossSettings(config.loss_fn, config.clip_low, config.clip_high, config.dro_beta),
        kl_penalty_coef=config.kl_penalty_coef,
        importance_cap=config.importance_cap,
        substeps=config.num_substeps,
        stream=config.stream,
        grad_clip=config.grad_clip,
    )


def group_scored(step: int, group: ScoredGroup[Rollout]) -> GroupScored:
    """A scored group as the journal has it."""
    plan = group.rollouts[0].plan
    return GroupScored(
        step=step,
        group=plan.group,
        task=plan.task.name,
        disposition=group.result.disposition,
        baseline=group.result.baseline,
        trials=trial_scores(group),
    )


def trial_scores(group: ScoredGroup[Rollout]) -> dict[str, TrialScore]:
    """Trial -> its reward, advantage and number of trained tokens."""
    return {
        rollout.trial: TrialScore(
            reward=rollout.reward,
            advantage=advantage,
            tokens=sum(segment.action_tokens for segment in segments),
            segments=sum(segment.action_tokens > 0 for segment in segments),
        )
        for rollout, segments, advantage in zip(
            group.rollouts, group.segments, group.result.advantages, strict=True
        )
    }


@dataclass(slots=True)
class _Substep:
    """The groups that one optimiser step learns from, and what it did."""

    trials: list[ScoredTrial] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    """The trial of each datum."""
    sampled: list[Datum] = field(default_factory=list)
    """The data as the sampler drew them: before any correction."""
    trained: list[Datum] = field(default_factory=list)
    loss_divisor: float = 1.0
    gradients: list[GradientResult] = field(default_factory=list)
    reference_kl: list[float] = field(default_factory=list)
    scored_tokens: int = 0
    """Tokens read by forward passes beside those of the gradient."""
    result: StepResult | None = None

    @property
    def loss(self) -> float:
        return sum(gradient.loss for gradient in self.gradients) / self.loss_divisor

    @property
    def logprobs(self) -> Logprobs:
        return tuple(itertools.chain.from_iterable(g.logprobs for g in self.gradients))


class ScoreJournal:
    """Journals the groups of a step as they are scored."""

    def __init__(self, journal: JournalWriter, step: int, known: Collection[str] = ()) -> None:
        """`known`: groups that were journalled before the run was interrupted."""
        self._journal = journal
        self._step = step
        self._known = known

    def add(self, group: ScoredGroup[Rollout]) -> None:
        event = group_scored(self._step, group)
        if event.group not in self._known:
            self._journal.append(event)


class LearningStep:
    """Takes the groups of one batch as they come and takes `recipe.substeps` optimiser steps.

    With `recipe.stream` a group's gradient is computed as soon as the group is there; the
    normaliser, which needs all of a substep's groups, divides the gradient before its optimiser
    step. Without, everything happens in `finish`. Both take the same step, up to rounding, but for
    what is defined over the data at hand: the mean that the reference penalty is centred on.
    """

    def __init__(
        self,
        recipe: Recipe,
        policy: Policy,
        learning_rate: float,
        groups: int,
        scores: ScoreJournal,
    ) -> None:
        """`groups`: how many are expected."""
        self._demonstrations: Sequence[Datum] = ()
        self._demonstrated: GradientResult | None = None
        self._recipe = recipe
        self._policy = policy
        self._learning_rate = learning_rate
        self._ends = _ends(groups, recipe.substeps)
        self._scores = scores
        self.rollouts: list[Rollout] = []
        """The rollouts of all groups added so far."""
        self._waiting: list[Sequence[Rollout]] = []
        self._substeps = [_Substep()]
        self.scored: list[ScoredGroup[Rollout]] = []
        """All groups scored so far."""

    async def add(self, rollouts: Sequence[Rollout]) -> None:
        self.rollouts += rollouts
        if not self._recipe.stream:
            self._waiting.append(rollouts)
            return
        (group,) = self._score([rollouts])
        substep = self._substeps[-1]
        await self._accumulate(substep, group)
        # The last substep is open for groups beyond those expected.
        if len(self.scored) in self._ends[:-1]:
            await self._apply(substep)
            self._substeps.append(_Substep())

    async def finish(self, demonstrations: Sequence[Datum] = ()) -> None:
        """Train on what has not been trained on yet, and with the last substep on
        `demonstrations`, by cross-entropy.

        A substep without any learning signal (every group constant or short, nothing shown) is
        not taken.
        """
        self._demonstrations = demonstrations
        if self._recipe.stream:
            await self._demonstrate(self._substeps[-1])
            await self._apply(self._substeps[-1])
            return
        groups = self._score(self._waiting)
        ends = _ends(len(groups), self._recipe.substeps)
        self._substeps = [_Substep() for _ in ends]
        for substep, (start, end) in zip(
            self._substeps, itertools.pairwise([0, *ends]), strict=True
        ):
            data = self._data(substep, groups[start:end])
            if substep is self._substeps[-1]:
                await self._demonstrate(substep, 1.0)
            await self._take(substep, divided(data, self._divisor(substep)))

    @property
    def begun(self) -> bool:
        """Whether a gradient has been computed: the policy is between two steps' weights."""
        return self._demonstrated is not None or any(s.gradients for s in self._substeps)

    def _score(self, groups: Sequence[Sequence[Rollout]]) -> list[ScoredGroup[Rollout]]:
        scored = score_groups(groups, self._recipe)
        self.scored += scored
        for group in scored:
            self._scores.add(group)
        return scored

    def _data(self, substep: _Substep, groups: Sequence[ScoredGroup[Rollout]]) -> list[Datum]:
        """The data of the groups' trials, not divided by the substep's normaliser."""
        data: list[Datum] = []
        scored = [each for group in groups for each in group.trials()]
        if self._recipe.train_handed_back:
            scored += [each for group in groups for each in _handed_back(group, self._recipe)]
        for name, trial in scored:
            substep.trials.append(trial)
            data += trial_data(trial, self._recipe.normalisation)
            substep.owners += [name] * (len(data) + len(substep.sampled) - len(substep.owners))
        return data

    def _divisor(self, substep: _Substep) -> float:
        return divisor(substep.trials, self._recipe.normalisation)

    async def _demonstrate(self, substep: _Substep, divide_by: float | None = None) -> None:
        """Add the gradient of the demonstrations to a substep's.

        `divide_by`: what its whole gradient is going to be divided by; None: the normaliser.
        """
        if not self._demonstrations:
            return
        scale = 1 / (self._divisor(substep) if divide_by is None else divide_by)
        data = divided(self._demonstrations, scale)
        self._demonstrated = await self._policy.accumulate(data, LossSettings("cross_entropy"))

    async def _take(self, substep: _Substep, data: list[Datum]) -> None:
        """Take a whole substep at once: its gradient (`forward_backward`) and `optim_step`."""
        if data := await self._corrected(substep, data):
            # In order, by the policy's contract; it need not stop in between.
            gradient, substep.result = await asyncio.gather(
                self._policy.accumulate(data, self._recipe.loss), self._policy.apply(self._optim())
            )
            substep.gradients.append(gradient)
        elif self._demonstrated is not None:
            substep.result = await self._policy.apply(self._optim())

    async def _accumulate(self, substep: _Substep, group: ScoredGroup[Rollout]) -> None:
        """Add the gradient of one group of a substep, undivided."""
        if data := await self._corrected(substep, self._data(substep, [group])):
            substep.gradients.append(await self._policy.accumulate(data, self._recipe.loss))

    async def _apply(self, substep: _Substep) -> None:
        if substep.gradients or (substep is self._substeps[-1] and self._demonstrated):
            substep.loss_divisor = self._divisor(substep)
            substep.result = await self._policy.apply(self._optim(substep.loss_divisor))

    async def _corrected(self, substep: _Substep, data: list[Datum]) -> list[Datum]:
        """The data with the penalty of the reference and truncated importance sampling applied."""
        recipe = self._recipe
        substep.sampled += data
        trainer: Logprobs | None = None
        if has_unknown(data):
            trainer = await self._scored(substep, data)
            data = with_unknown(data, trainer)
        if data and recipe.kl_penalty_coef:
            reference = await self._policy.score(data, "reference")
            substep.scored_tokens += _length(data)
            substep.reference_kl.append(reference_kl(data, reference))
            data = with_reference_kl(data, reference, recipe.kl_penalty_coef)
        if data and recipe.importance_cap:
            trainer = trainer or await self._scored(substep, data)
            data = truncated_importance(data, trainer, recipe.importance_cap)
        substep.trained += data
        return data

    async def _scored(self, substep: _Substep, data: list[Datum]) -> Logprobs:
        """The trainer's log-probabilities before the optimiser step."""
        substep.scored_tokens += _length(data)
        return await self._policy.score(data, "trained")

    def _optim(self, divide_by: float = 1.0) -> OptimSettings:
        return OptimSettings(
            self._learning_rate, grad_clip=self._recipe.grad_clip, divide_by=divide_by
        )

    def tokens(self) -> Tokens:
        """What the trainer read, further forward passes included."""
        shown = _length(self._demonstrations) if self._demonstrated is not None else 0
        return Tokens(
            trained=sum(_length(s.trained) for s in self._substeps if s.result is not None) + shown,
            scored=sum(substep.scored_tokens for substep in self._substeps),
        )

    def trained_logprobs(self) -> dict[str, npt.NDArray[np.float32]]:
        """Trial -> log-probabilities of its trained tokens, at the weights of its gradient."""
        parts: dict[str, list[npt.NDArray[np.float32]]] = {}
        for substep in self._substeps:
            for owner, logprobs in zip(substep.owners, substep.logprobs, strict=True):
                parts.setdefault(owner, []).append(logprobs)
        return {trial: np.concatenate(arrays) for trial, arrays in parts.items()}

    def demonstrated_nats(self) -> float | None:
        """The demonstrations' mean cross-entropy, nats a token, at the weights of their gradient;
        None: there were none."""
        if self._demonstrated is None:
            return None
        return -float(np.mean(np.concatenate(self._demonstrated.logprobs)))

    def metrics(self, publications: Publications, step: int) -> dict[str, float]:
        """What was trained as step `step`, and how old the weights were that sampled it."""
        taken = [substep for substep in self._substeps if substep.result is not None]
        data = [datum for substep in taken for datum in substep.trained]
        calls = [c for group in self.scored for r in group.rollouts for c in r.calls]
        metrics = {
            "optim/lr": self._learning_rate,
            "optim/substeps": float(len(taken)),
            "tokens/trained": float(sum(int(datum.mask.sum()) for datum in data)),
            **staleness_metrics(
                (publications.age(call.weights_version, step), len(call.completion_ids))
                for call in calls
            ),
        }
        if (nats := self.demonstrated_nats()) is not None:
            metrics["demos/loss"] = nats
            metrics["demos/count"] = float(len(self._demonstrations))
        if not taken:
            return metrics
        # Later substeps compare with weights that have moved on since.
        metrics |= sampler_trainer_metrics(taken[0].sampled, taken[0].logprobs)
        logprobs = [each for substep in taken for each in substep.logprobs]
        metrics |= clip_metrics(data, logprobs, self._recipe.loss)
        gradients = [gradient for substep in taken for gradient in substep.gradients]
        results = [substep.result for substep in taken if substep.result is not None]
        metrics["optim/loss"] = _mean([substep.loss for substep in taken])
        if norms := [result.grad_norm for result in results if result.grad_norm is not None]:
            metrics["optim/grad_norm"] = _mean(norms)
        if entropies := [g.entropy for g in gradients if g.entropy is not None]:
            metrics["optim/entropy"] = _mean(entropies)
        if kls := [kl for substep in taken for kl in substep.reference_kl]:
            metrics["optim/kl_policy_base"] = _mean(kls)
        if (seconds := sum(g.seconds for g in gradients) + sum(r.seconds for r in results)) > 0:
            metrics[TRAINING_SPEED] = self.tokens().trained / seconds
        for more in (*(g.metrics for g in gradients), *(r.metrics for r in results)):
            metrics |= {f"optim/{name}": value for name, value in more.items()}
        return metrics


def _handed_back(group: ScoredGroup[Rollout], recipe: Recipe) -> list[tuple[str, ScoredTrial]]:
    """Those of the group's trials that a person has given back and that have no part in it."""
    own = [
        (rollout, rollout.earned)
        for rollout in group.rollouts
        if rollout.reward is None
        and rollout.verdict is not None
        and rollout.earned is not None
        and not rollout.excluded
        and rollout.outcome is Outcome.HUMAN_TOUCHED
        and any(call.handed_back for call in rollout.calls)
    ]
    trials = handed_back([(earned, rollout.calls) for rollout, earned in own], recipe)
    return [(rollout.trial, trial) for (rollout, _), trial in zip(own, trials, strict=True)]


def _ends(groups: int, parts: int) -> list[int]:
    """How many groups are trained on by the end of each part: as even as can be, none empty."""
    parts = max(1, min(parts, groups))
    return [groups * part // parts for part in range(1, parts + 1)]


def _length(data: Sequence[Datum]) -> int:
    """Number of tokens, trained or not."""
    return sum(len(datum.tokens) for datum in data)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
