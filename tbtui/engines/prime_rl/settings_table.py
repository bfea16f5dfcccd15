"""What becomes of each of our settings under Prime-RL: this is the one place that says so.

Keys and their meanings are those of Prime-RL at commit 559b447 (August 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

TRAIN_SOURCE = "orchestrator.train.source[]"
EVAL_SOURCE = "orchestrator.eval.source[]"
TASKSET = "env.taskset"
HARNESS = "env.agent.harness"


@dataclass(frozen=True, slots=True)
class Fate:
    """Where a setting goes in Prime-RL's TOML, or why it can't go anywhere."""

    keys: tuple[str, ...] = ()
    """Keys that carry it; `[]` marks a list of tables. What stands in a source of training stands
    in that of evaluation too."""
    why_not: str = ""
    """Of a setting without keys: why, and what to do; the end of a line."""
    level: Literal["error", "warning"] = "error"
    anyway: tuple[Any, ...] = ()
    """Values, as JSON has them, that Prime-RL fulfils without being told."""
    ours: bool = False
    """It is for tbtui, which launches and watches: Prime-RL needn't know."""


def _mapped(*keys: str) -> Fate:
    return Fate(keys)


def _source(*keys: str) -> Fate:
    return Fate(tuple(f"{TRAIN_SOURCE}.{key}" for key in keys))


def _refused(why_not: str, *anyway: Any) -> Fate:
    return Fate((), f"{why_not}; leave it out", "error", anyway)


def _told(why_not: str, *anyway: Any) -> Fate:
    return Fate((), why_not, "warning", anyway)


def _ours() -> Fate:
    return Fate(ours=True)


_TINKER = "it is for Tinker servers"
_OWN_LOSS = "Prime-RL has a loss of its own (masked by DPPO, with a KL term: [trainer.loss])"
_OWN_REWARD = "Prime-RL trains on the verifier's reward alone"
_OWN_GROUPS = "Prime-RL fills its groups by rules of its own"
_NO_REVIEW = "Prime-RL trains a batch as soon as it is complete, and waits for nobody"
_OWN_SERVERS = "workers in Prime-RL's environment servers stay"

FATES: Mapping[str, Fate] = MappingProxyType(
    {
        # What is trained
        "engine": _ours(),
        "prime_rl_dir": _ours(),
        "prime_rl_config": _ours(),
        "num_train_gpus": _mapped("deployment.num_train_gpus", "deployment.gpus_per_node"),
        "num_infer_gpus": _mapped("deployment.num_infer_gpus", "deployment.gpus_per_node"),
        "policy": _refused("Prime-RL serves the model with its own vLLM"),
        "model_name": _mapped("model.name"),
        "checkpoint": _mapped("resume.dir"),
        "tinker_base_url": _refused(_TINKER, None),
        "vllm_base_url": _refused("Prime-RL starts a vLLM server itself", None),
        "lora_rank": _mapped("trainer.model.lora.rank", "trainer.model.lora.alpha"),
        "context_limit": Fate(
            ("seq_len", "inference.vllm.max_model_len", f"{TRAIN_SOURCE}.{HARNESS}.context_limit")
        ),
        "tokenizer": _mapped("tokenizer.name"),
        "renderer": _mapped("orchestrator.renderer.name"),
        "thinking": _mapped("orchestrator.renderer.thinking_retention"),
        "checkpoint_ttl_hours": _refused(_TINKER, None),
        "policy_restarts": _refused("Prime-RL ends when its inference server does", 0),
        # On which tasks
        "tasks_dir": _source(f"{TASKSET}.tasks_dir"),
        "tasks": Fate((f"{TRAIN_SOURCE}.{TASKSET}.tasks",)),
        "eval_split": _source(f"{TASKSET}.eval_split"),
        "eval_tasks": _source(f"{TASKSET}.exclude"),  # and `tasks` of the source of evaluation
        # How long and how much
        "max_steps": _mapped("max_steps"),
        "n_epochs": _refused(
            "Prime-RL counts steps, not passes over the tasks: give max_steps", None
        ),
        "batch_size": _mapped("orchestrator.batch_size"),
        "group_size": _mapped("orchestrator.group_size"),
        "seed": Fate(("inference.vllm.seed", f"{TRAIN_SOURCE}.{TASKSET}.seed")),
        # Order of sampling and training
        "num_substeps": _refused("Prime-RL makes one optimiser step of a batch", 1),
        "stream": _refused("Prime-RL computes gradients of whole batches", False),
        "max_steps_off_policy": _mapped("orchestrator.max_off_policy_steps"),
        # Learning
        "learning_rate": _mapped("trainer.optim.lr"),
        "lr_schedule": _mapped("trainer.scheduler.type"),
        "warmup_steps": _mapped("trainer.scheduler.warmup_steps"),
        "loss_fn": _refused(_OWN_LOSS),
        "advantage": _refused(
            "Prime-RL measures a reward against its group's mean, undivided", "centred"
        ),
        "normalize_advantages_by_std": _refused(
            "Prime-RL doesn't divide advantages by their deviation", False
        ),
        "loss_normalizer": _refused("Prime-RL divides by the tokens of the batch", "token"),
        "remove_constant_reward_groups": _mapped("orchestrator.train.filter_zero_advantages"),
        "replace_constant_groups": _refused(
            "Prime-RL can sample in place of constant groups only without a limit (a gate of"
            " [orchestrator.train.source.curriculum])",
            0,
        ),
        "kl_penalty_coef": _refused(
            "Prime-RL keeps no starting policy to compare with (kl_tau of [trainer.loss] is about"
            " the sampler)",
            0.0,
        ),
        "importance_cap": _refused(_OWN_LOSS, 0.0),
        "dro_beta": _refused(_OWN_LOSS),
        "overlong_penalty": _refused(_OWN_REWARD, 0.0),
        "overlong_buffer": _refused(_OWN_REWARD),
        "turn_penalty": _refused(_OWN_REWARD, 0.0),
        "train_summaries": _refused("summaries are samples to Prime-RL like any other turn", True),
        "clip_low": _refused(_OWN_LOSS),
        "clip_high": _refused(_OWN_LOSS),
        "grad_clip": _mapped("trainer.optim.max_norm"),
        "min_group": _refused(_OWN_GROUPS),
        "short_groups": _refused(_OWN_GROUPS),
        # What an outcome leads to
        "on_outcome": _refused(
            "Prime-RL leaves out trials that failed by infrastructure and trains on all others", {}
        ),
        "max_retries": _source("env.agent.retries.max_retries"),
        "retry_wait_sec": _refused("verifiers repeats a failed rollout at once", 0.0),
        "halt_after": _refused(
            "Prime-RL ends after ten batches without a sample, and by nothing else"
        ),
        "unfit_tasks": _refused("Prime-RL is given all tasks that are chosen", "skip"),
        "max_unusable": _refused("Prime-RL keeps its tasks, and ends by its own rules"),
        "check_zeros": _refused("in Prime-RL doubtful verdicts are checked always (faults)"),
        "kill_before_verifying": _refused(
            "in Prime-RL what an agent has left running is there when it is verified", "never"
        ),
        # A look before a step is trained
        "review": _refused(_NO_REVIEW, "off"),
        "review_rules": _refused(_NO_REVIEW, None),
        "review_timeout_sec": _refused(_NO_REVIEW, None),
        "at_review_timeout": _refused(_NO_REVIEW),
        # Evaluation
        "eval_every": _mapped("orchestrator.eval.interval"),
        "eval_group_size": _mapped("orchestrator.eval.group_size"),
        "eval_temperature": _mapped("orchestrator.eval.sampling.temperature"),
        # Trials
        "agent": _refused("in Prime-RL the policy acts, through Terminus-2", "terminus-2"),
        "max_turns": _source(f"{HARNESS}.max_turns"),
        "max_tokens": Fate(
            (
                "orchestrator.train.sampling.max_completion_tokens",
                f"{TRAIN_SOURCE}.{HARNESS}.max_tokens",
            )
        ),
        "temperature": _mapped("orchestrator.train.sampling.temperature"),
        "enable_summarize": _source(f"{HARNESS}.enable_summarize"),
        "proactive_summarization_threshold": _source(
            f"{HARNESS}.proactive_summarization_threshold"
        ),
        "sample_timeout_sec": _refused("verifiers has its own limits for a request to vLLM"),
        "trial_timeout_sec": _source(f"{HARNESS}.trial_timeout_sec"),
        "environment_type": _source(f"{HARNESS}.environment_type"),
        "environment_kwargs": _source(f"{HARNESS}.environment_kwargs"),
        "force_build": _source(f"{HARNESS}.force_build"),
        "n_parallel_envs": Fate(
            (
                "orchestrator.concurrency.max_inflight",
                f"{TRAIN_SOURCE}.{HARNESS}.n_parallel_envs",
            )
        ),
        "env_starts_per_sec": _mapped("orchestrator.tasks_per_minute"),
        "n_workers": _source(f"{HARNESS}.n_workers"),
        "worker_max_mb": _refused(_OWN_SERVERS, 0),
        "worker_max_trials": _refused(_OWN_SERVERS, 0),
        # Stragglers
        "step_deadline_sec": _refused(
            "Prime-RL's steps have no deadline (it samples on past slow trials)", None
        ),
        "at_deadline": _refused("Prime-RL's steps have no deadline"),
        "oversample": _refused(_OWN_GROUPS, 0),
        "oversample_keep": _refused(_OWN_GROUPS),
        # Alarms, costs and GPUs
        "on_alarm": _told("tbtui raises its alarms itself; Prime-RL isn't told of it", {}),
        "prices": _told("tbtui counts costs itself; Prime-RL isn't told of it", {}),
        "max_cost": _told("what Prime-RL costs isn't known here, so nothing ends it", None),
        "gpu_hosts": _ours(),
        # Where it goes
        "logs_dir": _mapped("output_dir"),
        "run_name": _mapped("run.name"),
        "on_hangup": _ours(),
        "keep": _source(f"{HARNESS}.keep"),
        "save_every": _mapped("ckpt.interval"),
        "keep_checkpoints": _mapped("ckpt.keep_last"),
        "tensorboard": _refused("Prime-RL logs to files and to wandb", False),
        "trackio_project": _refused("Prime-RL logs to files and to wandb", None),
        "wandb_project": _mapped("monitors.wandb.project"),
        "wandb_name": _mapped("monitors.wandb.name"),
    }
)
"""Every setting of a run."""
