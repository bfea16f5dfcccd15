"""How a batch of trials changes the weights."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from tbtui.config.settings.about import About, Fixed, Live
from tbtui.config.settings.tasks import Order
from tbtui.vocabulary import Advantage, LossName, Normalizer, Schedule


class Learning(Order, frozen=True, kw_only=True):
    """Optimiser, loss, advantages, and which groups are trained on."""

    heading: ClassVar[str] = "Learning"

    learning_rate: Annotated[
        float,
        About(
            "Peak learning rate of AdamW",
            "fast and stable on the shipped model (tests/benchmarks/learning_curve.py); 4e-5 for"
            " another model, 1e-5 with Prime-RL",
            gt=0,
        ),
        Fixed.LEARNING,
    ] = 2e-4
    lr_schedule: Annotated[
        Schedule,
        About("Decay of the learning rate to the last step", "linear: less noise in the end"),
        Fixed.LEARNING,
    ] = "linear"
    warmup_steps: Annotated[
        int,
        About(
            "Steps over which the learning rate rises to its peak",
            "0: none is needed at this rate",
            "steps",
            ge=0,
        ),
        Fixed.LEARNING,
    ] = 0
    loss_fn: Annotated[
        LossName,
        About("Policy-gradient loss", "unbiased, and enough while training is on-policy"),
        Fixed.LEARNING,
    ] = "importance_sampling"
    advantage: Annotated[
        Advantage,
        About(
            "Advantage of a trial: its reward less its group's mean (centred), that in units of"
            " the group's deviation (std) or of the batch's (batch), or less the mean of the"
            " other trials (leave_one_out: RLOO)",
            "centred: no bias towards tasks that are nearly solved or nearly hopeless",
        ),
        Fixed.LEARNING,
    ] = "centred"
    demos: Annotated[
        Literal["off", "collect", "train"],
        About(
            "What people type in trials that they have taken over: kept as demonstrations, which"
            " tbtui demos and the app show for review (collect), and those that were accepted"
            " trained on with each step, by cross-entropy (train)",
            "collect: only what a person has accepted is trained on",
        ),
        Live("holds for the next step that is trained"),
    ] = "collect"
    demo_weight: Annotated[
        float,
        About(
            "Weight of the demonstrations' mean cross-entropy beside the policy-gradient loss",
            "as much as the rollouts have",
            gt=0,
        ),
        Live("holds for the next step that is trained"),
    ] = 1.0
    train_after_handback: Annotated[
        bool,
        About(
            "Train on what the policy samples after a person has given a trial back, its verdict"
            " measured against the group's other such trials (0.5 where there is none)",
            "off: a person's part in the verdict is unknown",
        ),
        Fixed.LEARNING,
    ] = False
    demos_per_step: Annotated[
        int,
        About(
            "Most demonstrations of a step; of more, others are drawn for each step",
            "few beside the trials of a step",
            ge=1,
        ),
        Live("holds for the next step that is trained"),
    ] = 16
    loss_normalizer: Annotated[
        Normalizer,
        About(
            "Divisor of a batch's summed loss: its action tokens, sequences or trials; sum"
            " divides by nothing",
            "token: every token weighs the same",
        ),
        Fixed.LEARNING,
    ] = "token"
    remove_constant_reward_groups: Annotated[
        bool,
        About(
            "Leave constant groups (all rewards equal) out of the normaliser too",
            "off: a batch with little signal takes a small step",
        ),
        Fixed.LEARNING,
    ] = False
    screen_trials: Annotated[
        int,
        About(
            "Trials that a training group begins with; the others follow only if rewards of these"
            " differ. At least 2, less than group_size; 0: all begin at once",
            "0: a group has its size, and none waits for its first trials",
            "trials",
            ge=0,
        ),
        Fixed.BATCHES,
    ] = 0
    replace_constant_groups: Annotated[
        int,
        About(
            "Most extra groups that a step samples in place of constant ones (dynamic sampling)",
            "0: a step costs what was planned",
            "groups",
            ge=0,
        ),
        Fixed.BATCHES,
    ] = 0
    kl_penalty_coef: Annotated[
        float,
        About(
            "Weight of the KL penalty towards the starting policy",
            "0: off, and no second model to score with",
            "reward per nat",
            ge=0,
            depends_on_policy=True,
        ),
        Fixed.LEARNING,
    ] = 0.0
    importance_cap: Annotated[
        float,
        About(
            "Cap of truncated importance sampling, which corrects for trainer and sampler whose"
            " log-probabilities differ",
            "0: no correction; they agree where both are ours",
            "ratio",
            ge=0,
            depends_on_policy=True,
        ),
        Fixed.LEARNING,
    ] = 0.0
    dro_beta: Annotated[
        float,
        About("DRO: weight of the quadratic term", "Tinker's default", gt=0),
        Fixed.LEARNING,
    ] = 0.05
    overlong_penalty: Annotated[
        float,
        About(
            "Largest penalty for a trial whose context is almost full",
            "0: the reward is the verifier's alone",
            "reward",
            ge=0,
        ),
        Fixed.LEARNING,
    ] = 0.0
    overlong_buffer: Annotated[
        int,
        About(
            "Tokens before the context limit over which overlong_penalty rises",
            "a quarter of the shipped model's context",
            "tokens",
            ge=1,
        ),
        Fixed.LEARNING,
    ] = 256
    turn_penalty: Annotated[
        float,
        About(
            "Penalty for each turn",
            "0: the reward is the verifier's alone",
            "reward",
            ge=0,
        ),
        Fixed.LEARNING,
    ] = 0.0
    train_summaries: Annotated[
        bool,
        About(
            "Train on the agent's summaries of its own history, too",
            "on: the policy wrote them, and the reward depends on them",
        ),
        Fixed.LEARNING,
    ] = True
    train_abandoned_calls: Annotated[
        bool,
        About(
            "Train on calls whose answer the agent didn't take: it gave up waiting, or asked again",
            "off: nothing that they say has changed the reward",
        ),
        Fixed.LEARNING,
    ] = False
    train_side_calls: Annotated[
        bool,
        About(
            "Train on an agent's calls without tools beside a conversation that has them, and"
            " count them in max_turns",
            "off: titles, summaries and checks are no part of how the task is solved",
        ),
        Fixed.LEARNING,
    ] = False
    clip_low: Annotated[
        float,
        About("Ratios below 1 - this are clipped (ppo, cispo, gspo)", "PPO's", "ratio", ge=0, lt=1),
        Fixed.LEARNING,
    ] = 0.2
    clip_high: Annotated[
        float,
        About("Ratios above 1 + this are clipped (ppo, cispo, gspo)", "PPO's", "ratio", ge=0),
        Fixed.LEARNING,
    ] = 0.2
    grad_clip: Annotated[
        float,
        About(
            "Largest norm of the gradient; 0: no clipping",
            "one odd batch doesn't undo what was learned",
            "norm",
            ge=0,
            depends_on_policy=True,
        ),
        Fixed.LEARNING,
    ] = 0.3
    min_group: Annotated[
        int,
        About(
            "Scored trials that a group needs to be trained on",
            "2: one trial alone has no baseline",
            "trials",
            ge=1,
        ),
        Fixed.BATCHES,
    ] = 2
    short_groups: Annotated[
        Literal["refill", "drop"],
        About(
            "Groups with fewer than min_group scored trials: run as many fresh trials, once"
            " (refill), or leave the group out (drop)",
            "refill: failures of infrastructure should not shape the batch",
        ),
        Fixed.BATCHES,
    ] = "refill"
