"""How a batch of trials changes the weights."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from tbtui.config.settings.about import About, Fixed, mapped, refused
from tbtui.config.settings.tasks import Order

Advantage = Literal["centred", "std", "leave_one_out", "batch"]
Normalizer = Literal["token", "sequence", "trial", "sum"]

OWN_GROUPS = "Prime-RL fills its groups by rules of its own"
_OWN_LOSS = "Prime-RL has a loss of its own (masked by DPPO, with a KL term: [trainer.loss])"
_OWN_REWARD = "Prime-RL trains on the verifier's reward alone"


class Learning(Order, frozen=True, kw_only=True):
    """Optimiser, loss, advantages, and which groups are trained on."""

    heading: ClassVar[str] = "Learning"

    learning_rate: Annotated[
        float,
        About(
            "AdamW step size at its highest",
            "fast and stable on the model shipped (tests/benchmarks/learning_curve.py); of another"
            " model 4e-5, with Prime-RL 1e-5",
            gt=0,
        ),
        Fixed.LEARNING,
        mapped("trainer.optim.lr"),
    ] = 2e-4
    lr_schedule: Annotated[
        Literal["constant", "linear", "cosine"],
        About("How the learning rate falls until the last step", "less noise in the end"),
        Fixed.LEARNING,
        mapped("trainer.scheduler.type"),
    ] = "linear"
    warmup_steps: Annotated[
        int,
        About(
            "Steps in which the learning rate rises",
            "0: none is needed at this rate",
            "steps",
            ge=0,
        ),
        Fixed.LEARNING,
        mapped("trainer.scheduler.warmup_steps"),
    ] = 0
    loss_fn: Annotated[
        Literal["importance_sampling", "ppo", "cispo", "gspo", "dro"],
        About("Policy-gradient loss", "unbiased, and enough while training is on-policy"),
        Fixed.LEARNING,
        refused(_OWN_LOSS),
    ] = "importance_sampling"
    advantage: Annotated[
        Advantage,
        About(
            "What a trial's reward is measured against, and in which unit",
            "no bias by how hard a task is",
        ),
        Fixed.LEARNING,
        refused("Prime-RL measures a reward against its group's mean, undivided", "centred"),
    ] = "centred"
    normalize_advantages_by_std: Annotated[
        bool,
        About(
            "Divide advantages by their group's deviation: the same as advantage=std",
            "off: it overweights tasks that are nearly solved or nearly hopeless",
        ),
        Fixed.LEARNING,
        refused("Prime-RL doesn't divide advantages by their deviation", False),
    ] = False
    loss_normalizer: Annotated[
        Normalizer,
        About("What a batch's summed loss is divided by", "long and short trials alike by token"),
        Fixed.LEARNING,
        refused("Prime-RL divides by the tokens of the batch", "token"),
    ] = "token"
    remove_constant_reward_groups: Annotated[
        bool,
        About(
            "Leave groups whose rewards are all equal out of the normaliser too",
            "off: a batch with little to teach takes a small step",
        ),
        Fixed.LEARNING,
        mapped("orchestrator.train.filter_zero_advantages"),
    ] = False
    replace_constant_groups: Annotated[
        int,
        About(
            "Most further groups that a step starts in place of constant ones",
            "0: a step costs what was planned",
            "groups",
            ge=0,
        ),
        Fixed.BATCHES,
        refused(
            "Prime-RL can sample in place of constant groups only without a limit (a gate of"
            " [orchestrator.train.source.curriculum])",
            0,
        ),
    ] = 0
    kl_penalty_coef: Annotated[
        float,
        About(
            "Weight of the penalty for leaving the starting policy",
            "0: off, and no second model to score with",
            "reward per nat",
            ge=0,
            depends_on_policy=True,
        ),
        Fixed.LEARNING,
        refused(
            "Prime-RL keeps no starting policy to compare with (kl_tau of [trainer.loss] is about"
            " the sampler)",
            0.0,
        ),
    ] = 0.0
    importance_cap: Annotated[
        float,
        About(
            "Largest weight for a trainer that differs from the sampler",
            "0: no correction; they agree where both are ours",
            "ratio",
            ge=0,
            depends_on_policy=True,
        ),
        Fixed.LEARNING,
        refused(_OWN_LOSS, 0.0),
    ] = 0.0
    dro_beta: Annotated[
        float,
        About("DRO: weight of the quadratic term", "Tinker's default", gt=0),
        Fixed.LEARNING,
        refused(_OWN_LOSS),
    ] = 0.05
    overlong_penalty: Annotated[
        float,
        About(
            "Taken from the reward of a trial that fills its context",
            "0: the reward is the verifier's alone",
            "reward",
            ge=0,
        ),
        Fixed.LEARNING,
        refused(_OWN_REWARD, 0.0),
    ] = 0.0
    overlong_buffer: Annotated[
        int,
        About(
            "Length before the limit over which that penalty rises",
            "a quarter of the shipped model's context",
            "tokens",
            ge=1,
        ),
        Fixed.LEARNING,
        refused(_OWN_REWARD),
    ] = 256
    turn_penalty: Annotated[
        float,
        About(
            "Taken from the reward for each turn",
            "0: the reward is the verifier's alone",
            "reward",
            ge=0,
        ),
        Fixed.LEARNING,
        refused(_OWN_REWARD, 0.0),
    ] = 0.0
    train_summaries: Annotated[
        bool,
        About(
            "Train what the agent wrote to summarise its history, too",
            "on: the policy wrote it, and the reward depends on it",
        ),
        Fixed.LEARNING,
        refused("summaries are samples to Prime-RL like any other turn", True),
    ] = True
    clip_low: Annotated[
        float,
        About("Ratio clipped below 1 - this (ppo, cispo, gspo)", "PPO's", "ratio", ge=0, lt=1),
        Fixed.LEARNING,
        refused(_OWN_LOSS),
    ] = 0.2
    clip_high: Annotated[
        float,
        About("Ratio clipped above 1 + this (ppo, cispo, gspo)", "PPO's", "ratio", ge=0),
        Fixed.LEARNING,
        refused(_OWN_LOSS),
    ] = 0.2
    grad_clip: Annotated[
        float,
        About(
            "Largest gradient norm; 0 switches it off",
            "keeps one odd batch from undoing what was learned",
            "norm",
            ge=0,
            depends_on_policy=True,
        ),
        Fixed.LEARNING,
        mapped("trainer.optim.max_norm"),
    ] = 0.3
    min_group: Annotated[
        int,
        About(
            "Scored trials that a group needs to be trained on",
            "one alone has no baseline",
            "trials",
            ge=1,
        ),
        Fixed.BATCHES,
        refused(OWN_GROUPS),
    ] = 2
    short_groups: Annotated[
        Literal["refill", "drop"],
        About(
            "A group with fewer: run as many fresh trials once, or leave it out",
            "a fault of infrastructure shall not shape the batch",
        ),
        Fixed.BATCHES,
        refused(OWN_GROUPS),
    ] = "refill"
