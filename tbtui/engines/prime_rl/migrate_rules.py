"""Keys of earlier Prime-RL that have only another name today, or none."""

from __future__ import annotations

_NO_BENCH = "Prime-RL has no benchmark mode any more"
_NO_LOG_FILE = "all output goes to the run's logs directory"
ASYNC = "how stale a trained rollout may be is the one limit left"
VLLM = "vLLM's arguments stand together, under vLLM's names"
_MONITORS = "monitors stand together"
_LOSS = "the loss is DPPO today, with masks of its own ([trainer.loss])"
RESUME = "what to resume from stands alone; an empty [resume] is the latest checkpoint"
_WHOLE_WEIGHTS = "follows from LoRA today"
_TRAIN = "what is about training stands together"

MOVES: tuple[tuple[str, str, str], ...] = (
    ("clean_output_dir", "clean", "renamed"),
    ("trainer.model.experimental.lora", "trainer.model.lora", "LoRA is no experiment any more"),
    ("trainer.loss.ipo_mask_low", "trainer.loss.dppo_mask_low", "renamed"),
    ("trainer.loss.ipo_mask_high", "trainer.loss.dppo_mask_high", "renamed"),
    ("ckpt.keep", "ckpt.keep_last", "renamed"),
    ("trainer.ckpt.keep", "trainer.ckpt.keep_last", "renamed"),
    ("orchestrator.ckpt.keep", "orchestrator.ckpt.keep_last", "renamed"),
    ("orchestrator.rollouts_per_example", "orchestrator.group_size", "renamed"),
    ("orchestrator.eval.rollouts_per_example", "orchestrator.eval.group_size", "renamed"),
    (
        "orchestrator.lora_name",
        "orchestrator.model.lora.name",
        "LoRA's settings stand together",
    ),
    ("trainer.experimental.token_export", "trainer.enable_token_export", "renamed"),
    ("transport", "rollout_transport", "renamed"),
    ("trainer.transport", "trainer.rollout_transport", "renamed"),
    ("orchestrator.transport", "orchestrator.rollout_transport", "renamed"),
    ("inference.parallel.tp", "inference.vllm.tensor_parallel_size", VLLM),
    ("inference.parallel.dp", "inference.vllm.data_parallel_size", VLLM),
    ("inference.model.name", "inference.vllm.model", VLLM),
)
"""(old key, new key, reason), in the order in which they are moved."""
TABLES: tuple[tuple[str, str, str], ...] = (
    ("wandb", "monitors.wandb", _MONITORS),
    ("trainer.wandb", "trainer.monitors.wandb", _MONITORS),
    ("orchestrator.wandb", "orchestrator.monitors.wandb", _MONITORS),
    ("orchestrator.sampling", "orchestrator.train.sampling", _TRAIN),
    ("orchestrator.client", "orchestrator.model.client", "the model's client stands beside it"),
    ("inference.model", "inference.vllm", VLLM),
    ("inference.vllm_extra", "inference.vllm", VLLM),
)
"""Tables of which every key moves, after `MOVES`."""
VLLM_ARGUMENTS = (
    "gpu_memory_utilization", "enable_lora", "max_loras", "max_cpu_loras", "max_lora_rank",
    "lora_target_modules", "api_server_count", "seed", "enable_prefix_caching",
    "enable_expert_parallel", "all2all_backend", "enable_eplb", "enable_dbo",
    "data_parallel_size_local", "data_parallel_rpc_port", "enable_return_routed_experts",
)  # fmt: skip
"""Keys of [inference] that are vLLM's."""
_EACH_LOG = "log", "trainer.log", "orchestrator.log"
_EACH_WANDB = "monitors.wandb", "trainer.monitors.wandb", "orchestrator.monitors.wandb"
DROPS: tuple[tuple[str, str], ...] = (
    ("bench", _NO_BENCH),
    ("trainer.bench", _NO_BENCH),
    ("orchestrator.bench", _NO_BENCH),
    *((f"{log}.{key}", _NO_LOG_FILE) for log in _EACH_LOG for key in ("file", "env_worker_logs")),
    *(
        (f"{wandb}.{key}", "Prime-RL decides that itself today")
        for wandb in _EACH_WANDB
        for key in ("log_extras", "id", "shared")
    ),
    ("dump_config", "dry_run = true writes the resolved configuration"),
    ("teacher_gpu_ids", "a teacher is started by hand today"),
    ("teacher_inference", "a teacher is started by hand today"),
    ("trainer.model.tp", "the trainer has no tensor parallelism any more"),
    ("trainer.model.load_using_meta", "decided by the trainer today"),
    (
        "trainer.model.fused_lm_head_chunk_size",
        "replaced by fused_lm_head_token_chunk_size, which counts tokens",
    ),
    ("trainer.data.fake.seq_len", "seq_len is the model's"),
    *(
        (f"trainer.loss.{key}", _LOSS)
        for key in (
            "ratio_type",
            "mask_ratio_high",
            "mask_ratio_low",
            "sequence_mask_ratio_low",
            "sequence_mask_ratio_high",
            "sequence_mask_low",
            "sequence_mask_high",
            "sequence_clip_high",
            "token_mask_low",
            "token_mask_high",
            "geo_mask_low",
            "geo_mask_high",
            "kl_mask_type",
            "teacher_tau",
            "ref_tau",
        )
    ),
    *(
        (f"trainer.weight_broadcast.{key}", _WHOLE_WEIGHTS)
        for key in ("adapter_only", "save_sharded", "save_format")
    ),
    *(
        (f"{ckpt}.{key}", reason)
        for ckpt in ("ckpt", "trainer.ckpt", "orchestrator.ckpt")
        for key, reason in (
            ("weights", "checkpoints hold the weights; they are not written twice"),
            ("skip_buffer", "there is no buffer any more"),
            ("buffer_path", "there is no buffer any more"),
        )
    ),
    ("orchestrator.strict_async_level", ASYNC),
    ("orchestrator.seed", "Prime-RL has no seed for the order of tasks"),
    ("orchestrator.val", "validation is an evaluation ([orchestrator.eval])"),
    (
        "orchestrator.advantage",
        "the algorithm stands in [orchestrator.algo]; grpo, a reward less"
        " its group's mean, is the default",
    ),
    ("orchestrator.verification", "rewards are always computed"),
    ("orchestrator.filters", "replaced by [orchestrator.train.source.curriculum.gates]"),
    ("orchestrator.pre_batch_filters", "replaced by [orchestrator.train.source.curriculum.gates]"),
    ("orchestrator.post_batch_filters", "replaced by [orchestrator.train.source.curriculum.gates]"),
    ("orchestrator.mask_env_responses", "what the environment wrote is never trained by grpo"),
    (
        "orchestrator.trajectory_strategy",
        "turns that extend the last are one sample, others new ones",
    ),
    ("orchestrator.use_token_client", "renderers make the tokens"),
    ("orchestrator.use_renderer", "renderers make the tokens"),
    ("orchestrator.reload_weights_on_start", "it did nothing"),
    ("orchestrator.model.client.timeout", "verifiers has its own limits"),
    ("orchestrator.model.client.connect_timeout", "verifiers has its own limits"),
    ("orchestrator.eval.save", "results are in the run directory"),
    ("orchestrator.eval.skip_eval_on_resume", "an evaluation that is done isn't repeated"),
    ("orchestrator.eval.skip_eval_on_restart", "an evaluation that is done isn't repeated"),
    ("orchestrator.eval.cancel_inflight_rollouts_on_eval", "training rollouts end beside it"),
    ("orchestrator.train.num_workers", "each source has its own ([...source.serve.pool])"),
    ("orchestrator.eval.num_workers", "each source has its own ([...source.serve.pool])"),
)
"""(key, reason): what has no place any more, under the name that it has after the moves."""
