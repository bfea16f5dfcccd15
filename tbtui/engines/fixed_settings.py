"""What a run that goes on must keep of its settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_OTHER_WEIGHTS = "its weights and optimiser are this run's"
_OTHER_TASKS = "its batches and evaluations are made of these tasks"
_OTHER_BATCHES = "steps after the checkpoint are trained again on their recorded batches"
_OTHER_LEARNING = "steps after the checkpoint must lead to the same weights again"
_OTHER_TRIALS = "a half-finished group would mix trials under two rules"
_OTHER_EVALUATION = "evaluations before and after could not be compared"

FIXED: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        (
            "engine",
            "policy",
            "model_name",
            "checkpoint",
            "tinker_base_url",
            "vllm_base_url",
            "lora_rank",
            "context_limit",
            "tokenizer",
            "renderer",
            "thinking",
        ),
        _OTHER_WEIGHTS,
    )
    | dict.fromkeys(("tasks_dir", "tasks", "eval_split", "eval_tasks"), _OTHER_TASKS)
    | dict.fromkeys(
        (
            "seed",
            "batch_size",
            "group_size",
            "num_substeps",
            "stream",
            "max_steps_off_policy",
            "replace_constant_groups",
            "oversample",
            "oversample_keep",
            "min_group",
            "short_groups",
        ),
        _OTHER_BATCHES,
    )
    | dict.fromkeys(
        (
            "learning_rate",
            "lr_schedule",
            "warmup_steps",
            "loss_fn",
            "advantage",
            "normalize_advantages_by_std",
            "loss_normalizer",
            "remove_constant_reward_groups",
            "kl_penalty_coef",
            "importance_cap",
            "dro_beta",
            "overlong_penalty",
            "overlong_buffer",
            "turn_penalty",
            "train_summaries",
            "clip_low",
            "clip_high",
            "grad_clip",
        ),
        _OTHER_LEARNING,
    )
    | dict.fromkeys(
        (
            "agent",
            "max_turns",
            "max_tokens",
            "temperature",
            "enable_summarize",
            "proactive_summarization_threshold",
            "trial_timeout_sec",
        ),
        _OTHER_TRIALS,
    )
    | dict.fromkeys(("eval_group_size", "eval_temperature"), _OTHER_EVALUATION)
    | {"run_name": "a run keeps its name"}
)
"""Settings that a resumed run must keep, and why. All others may change: how long it goes on, on
what and how many at once, what infrastructure's failures lead to, what is evaluated, saved, and
told to whom."""
