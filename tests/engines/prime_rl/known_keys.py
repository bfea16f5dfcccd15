"""The keys that Prime-RL's configuration has, to name those that it hasn't.

From the fields of its configuration classes at commit 559b447 (August 2026). Tables that are not
here take what they are given (environment variables, vLLM's arguments, plugins' fields, the agents
of an environment) or are of no interest; Prime-RL's own validation looks into them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

_LOG = "level vf_level json_logging log_data interval"
_MONITORS = "wandb file prime"
_SOURCE = "env serve name ratio sampling group_size"
_CHECKPOINT = "interval keep_last keep_interval skip_progress"

_KEYS = {
    "": "trainer orchestrator inference env_vars run output_dir clean log ckpt resume monitors"
    " model tokenizer max_steps seq_len weight_broadcast rollout_transport deployment slurm"
    " dry_run",
    "run": "name dir",
    "log": "level json_logging",
    "ckpt": "output_dir interval keep_last keep_interval",
    "resume": "step dir",
    "monitors": _MONITORS,
    "monitors.wandb": "project entity name group tags offline",
    "model": "name vlm",
    "tokenizer": "name trust_remote_code chat_template",
    "weight_broadcast": "type host port timeout quantize_in_weight_transfer session_id",
    "deployment": "type gpus_per_node num_train_gpus num_infer_gpus num_train_nodes"
    " num_infer_nodes num_infer_replicas nodes_per_fsdp_group orchestrator_on_inference",
    "trainer": "model tokenizer data loss optim scheduler ckpt resume weight_broadcast"
    " rollout_transport log monitors output_dir matmul_precision max_steps enable_router_replay"
    " memory_profiler_path gc trace_path dist_timeout_seconds heartbeat metrics_server"
    " enable_token_export env_vars",
    "trainer.model": "name trust_remote_code vlm conversion_dir seq_len attn compile ac"
    " ac_offloading fsdp_cpu_offload optim_cpu_offload full_offload reshard_after_forward"
    " dp_replicate ep ep_comm_backend deepep_num_sms deepep_token_chunk_size cp cp_style impl"
    " optimization_dtype reduce_dtype moe_router_dtype moe_use_grouped_mm moe_fused_kernel"
    " quantization index_cache freeze_moe_router lora debug fused_lm_head_token_chunk_size",
    "trainer.model.lora": "rank alpha dropout target_modules modules_to_save",
    "trainer.data": "fake",
    "trainer.data.fake": "batch_size generate_samples",
    "trainer.loss": "type dppo_mask_low dppo_mask_high adv_tau kl_tau ipo_threshold import_path"
    " kwargs",
    "trainer.optim": "type lr weight_decay max_norm nesterov momentum betas1 betas2 mu",
    "trainer.scheduler": "type warmup_steps decay_steps min_lr",
    "trainer.ckpt": f"output_dir skip_scheduler skip_dataloader skip_optimizer {_CHECKPOINT}",
    "trainer.log": f"{_LOG} ranks_filter",
    "trainer.monitors": _MONITORS,
    "orchestrator": "algo model train tokenizer renderer eval log env_vars monitors"
    " collect_inference_metrics inference_metrics_roles ckpt resume weight_broadcast"
    " rollout_transport output_dir tasks_per_minute env_server_base_port batch_size"
    " token_batch_size concurrency group_size seq_len num_train_workers pad_to_multiple_of"
    " max_steps max_off_policy_steps heartbeat",
    "orchestrator.model": "name trust_remote_code vlm lora client",
    "orchestrator.model.lora": "name rank alpha",
    "orchestrator.model.client": "wait_for_ready_timeout base_url api_key_var headers"
    " headers_from_env extra_headers_from_state skip_model_check admin_base_url",
    "orchestrator.train": "source sampling filter_zero_advantages",
    "orchestrator.train.sampling": "temperature max_completion_tokens extra_body",
    "orchestrator.train.source[]": f"{_SOURCE} algo curriculum",
    "orchestrator.eval": "source sampling num_examples group_size interval skip_first_step"
    " retrigger_on_resume",
    "orchestrator.eval.sampling": "temperature top_p top_k min_p max_completion_tokens"
    " reasoning_effort extra_body",
    "orchestrator.eval.source[]": f"{_SOURCE} num_examples interval",
    "orchestrator.log": _LOG,
    "orchestrator.monitors": _MONITORS,
    "orchestrator.ckpt": f"wait_for_weights_timeout {_CHECKPOINT}",
    "orchestrator.concurrency": "initial_inflight min_inflight max_inflight",
    "inference": "server router backend_port vllm log env_vars use_deep_gemm weight_broadcast"
    " kv_cache_offload use_pd_kv_transfer enable_fp32_lm_head enable_fp32_router_logits deployment"
    " slurm output_dir dry_run",
    "inference.server": "host port liveness_timeout_seconds",
}
_SOURCES = ("orchestrator.train.source[]", "orchestrator.eval.source[]")
_KEYS |= {
    f"{source}.{table}": keys
    for source in _SOURCES
    for table, keys in {
        "serve": "pool address max_concurrent",
        "env.agent": "harness runtime model client sampling max_turns max_input_tokens"
        " max_output_tokens max_total_tokens timeout retries",
    }.items()
}
KNOWN_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {table: frozenset(keys.split()) for table, keys in _KEYS.items()}
)
"""The keys of each table, by its dotted name; `[]` marks a list of tables."""


def unknown_keys(document: Mapping[str, Any]) -> Iterator[str]:
    """The dotted names of keys that Prime-RL hasn't got."""
    yield from _unknown(document, "", "")


def _unknown(table: Mapping[str, Any], kind: str, where: str) -> Iterator[str]:
    known = KNOWN_KEYS.get(kind)
    for key, value in table.items():
        name, inner = f"{where}{key}", f"{kind}.{key}" if kind else key
        if known is not None and key not in known:
            yield name
        elif isinstance(value, Mapping):
            yield from _unknown(value, inner, f"{name}.")
        elif isinstance(value, list):
            for index, each in enumerate(value):
                if isinstance(each, Mapping):
                    yield from _unknown(each, f"{inner}[]", f"{name}[{index}].")
