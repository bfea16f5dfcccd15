"""What Prime-RL makes of each setting: the keys of its file that carry it, or why there is none.

Keys and their meanings are those of Prime-RL at commit 559b447 (August 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from tbtui.vocabulary import TASK_HALF_LIFE


@dataclass(frozen=True, slots=True)
class SettingMapping:
    """A setting's keys in Prime-RL's TOML, or why it has none."""

    keys: tuple[str, ...] = ()
    """Dotted names of the keys that carry it; `[]` marks a list of tables. What is in a source of
    training is in the source of evaluation too."""
    why_not: str = ""
    """Why a setting without keys has none, and what to do; the end of a line."""
    level: Literal["error", "warning"] = "error"
    anyway: tuple[Any, ...] = ()
    """Values, as JSON has them, that Prime-RL fulfils by itself."""
    ours: bool = False
    """Only tbtui needs it, to launch and to watch."""


SOURCE = "orchestrator.train.source[]."
TASKSET = f"{SOURCE}env.taskset."
HARNESS = f"{SOURCE}env.agent.harness."
_OURS = SettingMapping(ours=True)


def _mapped(*keys: str) -> SettingMapping:
    """These keys of Prime-RL's carry it."""
    return SettingMapping(keys)


def _refused(why_not: str, *anyway: Any) -> SettingMapping:
    """An error under Prime-RL, which lacks the setting, unless the value is one of `anyway`."""
    return SettingMapping((), f"{why_not}; leave it out", "error", anyway)


def _remarked(why_not: str, *anyway: Any) -> SettingMapping:
    """Prime-RL isn't given it: a warning, unless the value is one of `anyway`."""
    return SettingMapping((), why_not, "warning", anyway)


_ALL_TOKENS = "Prime-RL compares its trainer with the sampler over all tokens"
_OWN_GROUPS = "Prime-RL fills its groups by rules of its own"
_OWN_LOSS = "Prime-RL has a loss of its own (masked by DPPO, with a KL term: [trainer.loss])"
_OWN_REWARD = "Prime-RL trains on the verifier's reward alone"
_FOR_TINKER = "it is for Tinker servers"
_FOR_TORCH = "it is for policy=torch; Prime-RL trains and serves the model itself"
_NO_REVIEW = "Prime-RL trains a batch as soon as it is complete: there is no review"
_OWN_SERVERS = "workers in Prime-RL's environment servers stay"

SETTINGS: Mapping[str, SettingMapping] = MappingProxyType(
    {
        # What is trained
        "engine": _OURS,
        "prime_rl_dir": _OURS,
        "prime_rl_config": _OURS,
        "num_train_gpus": _mapped("deployment.num_train_gpus", "deployment.gpus_per_node"),
        "num_infer_gpus": _mapped("deployment.num_infer_gpus", "deployment.gpus_per_node"),
        "policy": _refused("Prime-RL serves the model with its own vLLM"),
        "model_name": _mapped("model.name"),
        "checkpoint": _mapped("resume.dir"),
        "tinker_base_url": _refused(_FOR_TINKER, None),
        "vllm_base_url": _refused("Prime-RL starts a vLLM server itself", None),
        "openai_base_url": _refused(
            "Prime-RL trains, with a vLLM server that it starts itself", None
        ),
        "lora_rank": _mapped("trainer.model.lora.rank", "trainer.model.lora.alpha"),
        "context_limit": _mapped(
            "seq_len", "inference.vllm.max_model_len", HARNESS + "context_limit"
        ),
        "tokenizer": _mapped("tokenizer.name"),
        "renderer": _mapped("orchestrator.renderer.name"),
        "thinking": _mapped("orchestrator.renderer.thinking_retention"),
        "tool_format": _refused("Prime-RL's renderer reads tool calls itself", "auto"),
        "checkpoint_ttl_hours": _refused(_FOR_TINKER, None),
        "policy_restarts": _refused("Prime-RL ends when its inference server does", 0),
        # A model on your own GPU (policy=torch)
        "lora_alpha": _refused(_FOR_TORCH, 32.0),
        "lora_targets": _refused(_FOR_TORCH, []),
        "dtype": _refused(_FOR_TORCH, "auto"),
        "train_device": _refused(_FOR_TORCH, "auto"),
        "micro_batch_tokens": _refused(_FOR_TORCH, 0),
        "gradient_checkpointing": _refused(_FOR_TORCH, True),
        "sampler": _refused(_FOR_TORCH, "auto"),
        "vllm_devices": _refused(_FOR_TORCH, []),
        # Tasks
        "tasks_dir": _mapped(TASKSET + "tasks_dir"),
        "tasks": _mapped(TASKSET + "tasks"),
        "eval_split": _mapped(TASKSET + "eval_split"),
        "eval_tasks": _mapped(TASKSET + "exclude"),
        # Length and batch size
        "max_steps": _mapped("max_steps"),
        "n_epochs": _refused(
            "Prime-RL counts steps, not passes over the tasks: give max_steps", None
        ),
        "batch_size": _mapped("orchestrator.batch_size"),
        "group_size": _mapped("orchestrator.group_size"),
        "seed": _mapped("inference.vllm.seed", TASKSET + "seed"),
        # Choice of tasks
        "task_sampling": _refused("Prime-RL chooses its tasks itself", "uniform"),
        "task_floor": _refused("Prime-RL chooses its tasks itself", 0.1),
        "task_half_life": _refused("Prime-RL chooses its tasks itself", TASK_HALF_LIFE),
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
        "demos": _remarked("its trials can't be taken over", "collect"),
        "demo_weight": _remarked("it trains on no demonstrations", 1.0),
        "train_after_handback": _remarked("its trials can't be taken over", False),
        "demos_per_step": _remarked("it trains on no demonstrations", 16),
        "loss_normalizer": _refused("Prime-RL divides by the tokens of the batch", "token"),
        "remove_constant_reward_groups": _mapped("orchestrator.train.filter_zero_advantages"),
        "screen_trials": _refused("Prime-RL begins all trials of a group at once", 0),
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
        "train_abandoned_calls": _refused(
            "Prime-RL trains on every sample of its own server", False
        ),
        "train_side_calls": _refused("Prime-RL trains on every sample of its own server", False),
        "clip_low": _refused(_OWN_LOSS),
        "clip_high": _refused(_OWN_LOSS),
        "grad_clip": _mapped("trainer.optim.max_norm"),
        "min_group": _refused(_OWN_GROUPS),
        "short_groups": _refused(_OWN_GROUPS),
        # What an outcome leads to
        "on_outcome": _refused(
            "Prime-RL leaves out trials that failed by infrastructure and trains on all others", {}
        ),
        "max_retries": _mapped(SOURCE + "env.agent.retries.max_retries"),
        "retry_wait_sec": _refused("verifiers repeats a failed rollout at once", 0.0),
        "halt_after": _refused(
            "Prime-RL ends after ten batches without a sample, and by nothing else"
        ),
        "unfit_tasks": _refused("Prime-RL is given all tasks that are chosen", "skip"),
        "honeypots": _refused("Prime-RL's groups are of its own tasks", 0.0),
        "quarantine": _refused("Prime-RL keeps its tasks: leave some out with tasks="),
        "max_unusable": _refused("Prime-RL keeps its tasks, and ends by its own rules"),
        "reward_key": _mapped(HARNESS + "reward_key"),
        "reward_weights": _mapped(HARNESS + "reward_weights"),
        "check_zeros": _refused("in Prime-RL doubtful verdicts are checked always (faults)"),
        "kill_before_verifying": _refused(
            "in Prime-RL what an agent has left running is there when it is verified", "never"
        ),
        "fixed_programs": _refused("in Prime-RL a trial's programs are not watched", "never"),
        # Review before a step is trained
        "review": _refused(_NO_REVIEW, "off"),
        "review_rules": _refused(_NO_REVIEW, None),
        "review_timeout_sec": _refused(_NO_REVIEW, None),
        "at_review_timeout": _refused(_NO_REVIEW),
        # Evaluation
        "eval_every": _mapped("orchestrator.eval.interval"),
        "eval_group_size": _mapped("orchestrator.eval.group_size"),
        "eval_temperature": _mapped("orchestrator.eval.sampling.temperature"),
        # Trials
        "agent": _refused("in Prime-RL the policy acts through Terminus-2", "terminus-2"),
        "oracle_tasks": _refused("in Prime-RL the policy acts, through Terminus-2", ()),
        "agent_kwargs": _refused("Terminus-2 has settings of its own", {}),
        "agent_examples": _refused("in Prime-RL the policy acts through Terminus-2", "0"),
        "agent_install": _refused("in Prime-RL the policy acts through Terminus-2", None),
        "agent_setup_network": _refused("in Prime-RL the policy acts through Terminus-2", False),
        "endpoint_public_url": _refused("in Prime-RL the policy acts through Terminus-2", None),
        "endpoint_port": _refused("in Prime-RL the policy acts through Terminus-2", 8600),
        "max_turns": _mapped(HARNESS + "max_turns"),
        "max_tokens": _mapped(
            "orchestrator.train.sampling.max_completion_tokens", HARNESS + "max_tokens"
        ),
        "temperature": _mapped("orchestrator.train.sampling.temperature"),
        "top_p": _refused(_ALL_TOKENS, 1.0),
        "top_k": _refused(_ALL_TOKENS, None),
        "min_p": _refused(_ALL_TOKENS, 0.0),
        "stop": _refused("in Prime-RL the end of the model's turn ends an answer", ()),
        "enable_summarize": _mapped(HARNESS + "enable_summarize"),
        "proactive_summarization_threshold": _mapped(HARNESS + "proactive_summarization_threshold"),
        "sample_timeout_sec": _refused("verifiers has its own limits for a request to vLLM"),
        "trial_timeout_sec": _mapped(HARNESS + "trial_timeout_sec"),
        "environment_type": _mapped(HARNESS + "environment_type"),
        "environment_kwargs": _mapped(HARNESS + "environment_kwargs"),
        "task_credentials": _mapped(HARNESS + "task_credentials"),
        "force_build": _mapped(HARNESS + "force_build"),
        "n_parallel_envs": _mapped(
            "orchestrator.concurrency.max_inflight", HARNESS + "n_parallel_envs"
        ),
        "env_starts_per_sec": _mapped("orchestrator.tasks_per_minute"),
        "pace_sec": _remarked("Prime-RL's trials run at full speed", None, 0.0),
        "n_workers": _mapped(HARNESS + "n_workers"),
        "worker_max_mb": _refused(_OWN_SERVERS, 0),
        "worker_max_trials": _refused(_OWN_SERVERS, 0),
        # Stragglers
        "step_deadline_sec": _refused(
            "Prime-RL's steps have no deadline (it samples on past slow trials)", None
        ),
        "at_deadline": _refused("Prime-RL's steps have no deadline"),
        "oversample": _refused(_OWN_GROUPS, 0),
        "oversample_keep": _refused(_OWN_GROUPS),
        # Snapshots and forks
        "snapshots": _remarked("trials in its environment servers keep no snapshots", "off"),
        "snapshot_mb": _remarked("trials in its environment servers keep no snapshots", 256),
        "keep_snapshots": _remarked("trials in its environment servers keep no snapshots", False),
        "fork_from": _remarked("its trials can't begin at a turn of another"),
        "fork_go_on": _remarked("its trials can't begin at a turn of another", False),
        # Probe
        "probe": _remarked("tbtui probes with its own engine", ()),
        "probe_tasks": _remarked("tbtui probes with its own engine", 6),
        # Alarms, costs and GPUs
        "on_alarm": _remarked("tbtui raises its alarms itself; Prime-RL doesn't get it", {}),
        "prices": _remarked("tbtui counts costs itself; Prime-RL doesn't get it", {}),
        "max_cost": _remarked("what Prime-RL costs isn't known here, so nothing ends it", None),
        "budget": _refused(
            "nothing here counts what Prime-RL spends, so that nothing would end it", {}
        ),
        "alerts": _OURS,
        "gpu_hosts": _OURS,
        # Output
        "logs_dir": _mapped("output_dir"),
        "run_name": _mapped("run.name"),
        "on_hangup": _OURS,
        "keep": _mapped(HARNESS + "keep"),
        "save_every": _mapped("ckpt.interval"),
        "keep_checkpoints": _mapped("ckpt.keep_last"),
        "tensorboard": _refused("Prime-RL logs to files and to wandb", False),
        "trackio_project": _refused("Prime-RL logs to files and to wandb", None),
        "wandb_project": _mapped("monitors.wandb.project"),
        "wandb_name": _mapped("monitors.wandb.name"),
    }
)
"""Every setting, in the order in which a person reads them."""
