"""The algorithm of a run: which of the parts in `tbtui.algorithm` are put together, and how."""

from __future__ import annotations

from dataclasses import dataclass

from tbtui.algorithm.advantages import Method
from tbtui.algorithm.batch import BatchSettings
from tbtui.algorithm.losses import LossSettings
from tbtui.algorithm.rewards import RewardSettings
from tbtui.config import RunConfig
from tbtui.policies.base import PolicyInfo


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what a batch of rollouts does to the policy, but for the rate."""

    advantage: Method
    min_group: int
    rewards: RewardSettings
    context_limit: int
    """Tokens; what the overlong penalty is measured against."""
    train_summaries: bool
    normalisation: BatchSettings
    loss: LossSettings
    kl_penalty_coef: float
    importance_cap: float
    substeps: int
    stream: bool
    grad_clip: float

    @classmethod
    def of(cls, config: RunConfig, info: PolicyInfo) -> Recipe:
        return cls(
            advantage=config.advantage_method,
            min_group=config.min_group,
            rewards=RewardSettings(
                config.overlong_penalty, config.overlong_buffer, config.turn_penalty
            ),
            context_limit=config.context_limit or info.context_limit,
            train_summaries=config.train_summaries,
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
