"""What became of the keys of earlier Prime-RL: one table for files, one for their environments.

Sources: Prime-RL's list of breaking changes up to commit 625b93c (July 2026), and its configuration
classes of December 2025 and of commit 559b447.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tbtui.config import ConfigError
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN


@dataclass(frozen=True, slots=True)
class Move:
    """What is done with a key, where a file has it."""

    old: str
    """Its dotted name; `table.*`: every key of a table."""
    new: str | None
    """Its name today, with `.*` too; none: it has no place any more."""
    reason: str
    """Why, or what to do instead."""
    convert: Callable[[Any], Any] | None = None
    """Today's value from the old one; None: the key has no place after all."""


def _gone(reason: str, *names: str) -> Iterator[Move]:
    """Keys without a place; the last parts of the names after the first share its table."""
    table = names[0].rpartition(".")[0]
    for name in names[0:1] + tuple(f"{table}.{name}" if table else name for name in names[1:]):
        yield Move(name, None, reason)


def _whole(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConfigError("should be a whole number")


def _resume(step: Any) -> dict[str, int] | None:
    if _whole(step) == 0:  # a run starts there by itself
        return None
    return {"step": step} if step > 0 else {}


def _count(ids: Any) -> int:
    if not isinstance(ids, list):
        raise ConfigError("should be a list of numbers")
    return len(ids)


def _one_address(addresses: Any) -> Any:
    if not isinstance(addresses, list):
        return addresses
    if len(addresses) != 1:
        raise ConfigError("Prime-RL takes one address today; put a router before several servers")
    return addresses[0]


def _attention(value: Any) -> Any:
    return {"fa4": "flash_attention_4", "sdpa": None, "eager": None}.get(value, value)


def _limit(value: Any) -> Any:
    return None if value == -1 or str(value).lower() in ("none", "null", "unlimited") else value


def _pool(workers: Any) -> dict[str, Any] | None:
    return {"type": "static", "num_workers": workers} if isinstance(workers, int) else None


def _context(model_info: Any) -> Any:
    if not isinstance(model_info, dict):
        raise ConfigError("should be a table")
    return model_info.get("max_input_tokens", model_info.get("max_tokens"))


_VLLM = "vLLM's arguments stand together, under vLLM's names"
_MONITORS = "monitors stand together"
_LORA = "LoRA's settings stand together"
_STALE = "how stale a trained rollout may be is the one limit left"
_RESUME = "what to resume from stands alone; an empty [resume] is the latest checkpoint"
_TRAIN = "what is about training stands together"
_GPUS = "GPUs are counted; CUDA_VISIBLE_DEVICES says which they are"
_INFLIGHT = "bounds the rollouts in flight; how many there are adapts itself"
_GATES = "replaced by [orchestrator.train.source.curriculum.gates]"
_NO_BUFFER = "there is no buffer any more; see [orchestrator.train.source.curriculum.sampler]"
_RATIO = "each source has its own ratio; give it there"
_EVALUATED = "an evaluation that is done isn't repeated"
_TABLES = ("", "trainer.", "orchestrator.")

RULES: tuple[Move, ...] = (
    Move("clean_output_dir", "clean", "renamed"),
    Move("trainer.model.experimental.lora", "trainer.model.lora", "LoRA is no experiment any more"),
    Move("trainer.loss.ipo_mask_low", "trainer.loss.dppo_mask_low", "renamed"),
    Move("trainer.loss.ipo_mask_high", "trainer.loss.dppo_mask_high", "renamed"),
    Move("orchestrator.rollouts_per_example", "orchestrator.group_size", "renamed"),
    Move("orchestrator.eval.rollouts_per_example", "orchestrator.eval.group_size", "renamed"),
    Move("orchestrator.lora_name", "orchestrator.model.lora.name", _LORA),
    Move("trainer.experimental.token_export", "trainer.enable_token_export", "renamed"),
    Move("max_model_len", "seq_len", "vLLM's own is inference.vllm.max_model_len; give it too"),
    Move("inference.parallel.tp", "inference.vllm.tensor_parallel_size", _VLLM),
    Move("inference.parallel.dp", "inference.vllm.data_parallel_size", _VLLM),
    Move("inference.model.name", "inference.vllm.model", _VLLM),
    Move("inference.model.*", "inference.vllm.*", _VLLM),
    Move("inference.vllm_extra.*", "inference.vllm.*", _VLLM),
    *(
        Move(f"inference.{name}", f"inference.vllm.{name}", _VLLM)
        for name in (
            "gpu_memory_utilization", "enable_lora", "max_loras", "max_cpu_loras", "max_lora_rank",
            "lora_target_modules", "api_server_count", "seed", "enable_prefix_caching",
            "enable_expert_parallel", "all2all_backend", "enable_eplb", "enable_dbo",
            "data_parallel_size_local", "data_parallel_rpc_port", "enable_return_routed_experts",
        )
    ),
    *(
        rule
        for table in _TABLES
        for rule in (
            Move(f"{table}transport", f"{table}rollout_transport", "renamed"),
            Move(f"{table}wandb.*", f"{table}monitors.wandb.*", _MONITORS),
            Move(f"{table}ckpt.keep", f"{table}ckpt.keep_last", "renamed"),
            Move(f"{table}ckpt.resume_step", "resume", _RESUME, _resume),
            Move(f"{table}max_async_level", "orchestrator.max_off_policy_steps", _STALE),
            *_gone("Prime-RL has no benchmark mode any more", f"{table}bench"),
            *_gone("all output goes to the run's logs", f"{table}log.file", "env_worker_logs"),
            *_gone("Prime-RL decides it", f"{table}monitors.wandb.log_extras", "id", "shared"),
            *_gone("checkpoints hold the weights, and not twice", f"{table}ckpt.weights"),
            *_gone(_NO_BUFFER, f"{table}ckpt.skip_buffer", "buffer_path"),
        )
    ),
    Move("trainer_gpu_ids", "deployment.num_train_gpus", _GPUS, _count),
    Move("inference_gpu_ids", "deployment.num_infer_gpus", _GPUS, _count),
    Move("orchestrator.client.*", "orchestrator.model.client.*", "it stands beside its model"),
    Move(
        "orchestrator.model.client.base_url", "orchestrator.model.client.base_url",
        "one address, not a list", _one_address,
    ),
    *_gone("verifiers has its own", "orchestrator.model.client.timeout", "connect_timeout"),
    Move(
        "trainer.model.attn", "trainer.model.attn",
        "flash attention alone is left; auto chooses its kernel", _attention,
    ),
    Move("orchestrator.sampling.*", "orchestrator.train.sampling.*", _TRAIN),
    *(
        rule
        for table in ("orchestrator.train.sampling", "orchestrator.eval.sampling")
        for rule in (
            Move(f"{table}.max_tokens", f"{table}.max_completion_tokens", "renamed"),
            *_gone("it distorts what is sampled", f"{table}.min_tokens", "repetition_penalty"),
            *_gone("Prime-RL samples without one", f"{table}.seed", "temp_scheduler"),
        )
    ),
    Move(
        "orchestrator.eval.eval_base_model", "orchestrator.eval.skip_first_step",
        "the same, inverted", lambda value: not value,
    ),
    *(
        Move(f"orchestrator.{old}", "orchestrator.concurrency.max_inflight", _INFLIGHT, _limit)
        for old in ("max_inflight_rollouts", "max_concurrent")
    ),
    *_gone(
        "give orchestrator.concurrency.max_inflight, batch_size times this, if it has to be bound",
        "orchestrator.oversampling_factor",
    ),
    Move(
        "orchestrator.buffer.online_difficulty_filtering",
        "orchestrator.train.filter_zero_advantages", "of whole groups; the default today",
    ),
    *_gone(_RATIO, "orchestrator.buffer.env_ratios"),
    Move("orchestrator.buffer.*", None, _NO_BUFFER),
    Move("orchestrator.env_mix.*", None, _RATIO),
    *_gone("dry_run = true writes the resolved configuration", "dump_config"),
    *_gone("a teacher is started by hand today", "teacher_gpu_ids", "teacher_inference"),
    *_gone("the trainer decides it", "trainer.model.load_using_meta", "tp"),
    *_gone("fused_lm_head_token_chunk_size is it", "trainer.model.fused_lm_head_chunk_size"),
    *_gone("seq_len is the model's", "trainer.data.fake.seq_len"),
    *_gone(
        "the loss is DPPO today, with masks of its own ([trainer.loss])",
        "trainer.loss.ratio_type", "mask_ratio_high", "mask_ratio_low", "sequence_mask_ratio_low",
        "sequence_mask_ratio_high", "sequence_mask_low", "sequence_mask_high", "sequence_clip_high",
        "token_mask_low", "token_mask_high", "geo_mask_low", "geo_mask_high", "kl_mask_type",
        "teacher_tau", "ref_tau",
    ),
    *_gone(
        "follows from LoRA today",
        "trainer.weight_broadcast.adapter_only", "save_sharded", "save_format",
    ),
    *_gone(_STALE, "orchestrator.strict_async_level"),
    *_gone("Prime-RL has no seed for the order of tasks", "orchestrator.seed"),
    *_gone("validation is an evaluation ([orchestrator.eval])", "orchestrator.val"),
    *_gone("[orchestrator.algo] has it; grpo is the default", "orchestrator.advantage"),
    *_gone(_GATES, "orchestrator.filters", "pre_batch_filters", "post_batch_filters"),
    *_gone(
        "it always is so today",
        "orchestrator.verification", "mask_env_responses", "trajectory_strategy",
        "use_token_client", "use_renderer", "reload_weights_on_start",
    ),
    *_gone("results are in the run directory", "orchestrator.eval.save"),
    *_gone(_EVALUATED, "orchestrator.eval.skip_eval_on_resume", "skip_eval_on_restart"),
    *_gone("rollouts end beside it", "orchestrator.eval.cancel_inflight_rollouts_on_eval"),
    *_gone("each source has its own ([...source.serve.pool])", "orchestrator.train.num_workers"),
    *_gone("each source has its own ([...source.serve.pool])", "orchestrator.eval.num_workers"),
)  # fmt: skip
"""In the order in which they are followed: a key may be moved twice."""

_COMPOSED = "a source is made of an environment ([...env]) and how it is served ([...serve])"
_FIELD = "arguments are fields of the taskset or the harness; see which"

SOURCE_RULES: tuple[Move, ...] = (
    Move("rollouts_per_example", "group_size", "renamed"),
    Move("sampling.max_tokens", "sampling.max_completion_tokens", "renamed"),
    *_gone("it distorts what is sampled", "sampling.min_tokens", "repetition_penalty"),
    *_gone("Prime-RL samples without one", "sampling.seed", "temp_scheduler"),
    Move("address", "serve.address", _COMPOSED),
    Move("pool", "serve.pool", _COMPOSED),
    Move("num_workers", "serve.pool", _COMPOSED, _pool),
    *_gone("choose tasks by the taskset's own fields", "skip_first"),
    *_gone("the agent's max_output_tokens limits a rollout", "max_total_completion_tokens"),
    *_gone("[orchestrator.log] is for all of them", "log"),
    *_gone("verifiers has no such arguments any more", "extra_env_kwargs"),
    Move("taskset", "env.taskset", _COMPOSED),
    Move("harness.runtime", "env.agent.runtime", _COMPOSED),
    Move("harness", "env.agent.harness", _COMPOSED),
    Move("id", "env.taskset.id", "an environment is a taskset and a harness; see that it has both"),
    Move("args.*", "env.taskset.*", _FIELD),
)
"""For one environment: a source's names are relative to it."""

_HARNESS = "env.agent.harness"
SEED_RULES: tuple[Move, ...] = (
    Move("id", "env.taskset.id", "tbtui's plugin for Harbor tasks", lambda _: PLUGIN),
    Move("args.tasks_dir", "env.taskset.tasks_dir", "a field of the taskset"),
    *_gone("verifiers passes it with every rollout", "args.vllm_base_url", "model_name"),
    *_gone("give orchestrator.train.sampling.temperature", "args.temperature"),
    Move("args.max_turns", f"{_HARNESS}.max_turns", "the plugin has a limit; 30 is usual", _limit),
    Move("args.model_info", f"{_HARNESS}.context_limit", "what the model is served with", _context),
    Move("args.*", f"{_HARNESS}.*", "a field of the harness"),
)
"""Before `SOURCE_RULES`, for an environment of the seed that tbtui's plugin stands in for."""
