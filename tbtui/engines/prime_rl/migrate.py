"""Configuration files of earlier Prime-RL, above all of its seed for Harbor, to today's.

Every key that changes is listed; keys that nobody knows stay where they are and are listed too.
Today's files come back as they are. Sources: Prime-RL's list of breaking changes up to commit
625b93c (July 2026), and its configuration classes of December 2025 and of commit 559b447.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbtui.config import ConfigError
from tbtui.engines.prime_rl.document import Change, Document
from tbtui.engines.prime_rl.known_keys import unknown_keys
from tbtui.engines.prime_rl.migrate_rules import (
    ASYNC,
    DROPS,
    MOVES,
    RESUME,
    TABLES,
    VLLM,
    VLLM_ARGUMENTS,
)
from tbtui.engines.prime_rl.migrate_sources import migrate_sampling, migrate_sources


def migrate(toml: Mapping[str, Any]) -> tuple[dict[str, Any], list[Change]]:
    """Today's file, and what became of every key that isn't what it was.

    Raises:
        ConfigError: a value that is to be changed has the wrong type.
    """
    document = Document(toml)
    for old, new, reason in MOVES:
        document.move(old, new, reason)
    for old, new, reason in TABLES:
        document.move_table(old, new, reason)
    for name in VLLM_ARGUMENTS:
        document.move(f"inference.{name}", f"inference.vllm.{name}", VLLM)
    for table in ("trainer.model.experimental", "trainer.experimental", "inference.parallel"):
        document.remove_empty(table)
    for name, reason in DROPS:
        document.drop(name, reason)
    _lengths(document)
    _devices(document)
    _staleness(document)
    _resume(document)
    _client(document)
    _wandb_offline(document)
    _attention(document)
    _evaluation(document)
    migrate_sampling(document, "orchestrator.train.sampling")
    migrate_sampling(document, "orchestrator.eval.sampling")
    _concurrency(document)
    migrate_sources(document)
    _buffer(document)
    for name in unknown_keys(document.root):
        document.record(name, name, "not a key of Prime-RL that is known here; see to it by hand")
    return document.root, document.changes


def _whole(document: Document, name: str) -> int | None:
    value = document.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ConfigError(f"{name}={value}: should be a whole number")


def _lengths(document: Document) -> None:
    old = "max_model_len"
    if document.has(old):
        if not document.has("inference.vllm.max_model_len"):
            document.set("inference.vllm.max_model_len", document.get(old))
        document.move(old, "seq_len", "of trainer and orchestrator; vLLM has its own")
    # The trainer once took its length from the orchestrator's; now it has 2048 unless told.
    length = _whole(document, "orchestrator.seq_len")
    untold = not (document.has("seq_len") or document.has("trainer.model.seq_len"))
    if length is not None and length > 2048 and untold:
        document.move("orchestrator.seq_len", "seq_len", "the trainer has to be told it too")


def _devices(document: Document) -> None:
    counts = []
    for old, new in (
        ("trainer_gpu_ids", "deployment.num_train_gpus"),
        ("inference_gpu_ids", "deployment.num_infer_gpus"),
    ):
        ids = document.get(old)
        if ids is None:
            continue
        if not isinstance(ids, list):
            raise ConfigError(f"{old}={ids}: should be a list of numbers")
        counts.append(old)
        document.move(
            old, new, "GPUs are counted; CUDA_VISIBLE_DEVICES says which they are", convert=len
        )
    if counts and not document.has("deployment.gpus_per_node"):
        # One of each is Prime-RL's default.
        total = sum(
            _whole(document, f"deployment.{name}") or 1
            for name in ("num_train_gpus", "num_infer_gpus")
        )
        document.set("deployment.gpus_per_node", total)
        document.record(" + ".join(counts), "deployment.gpus_per_node", "so many in all")


def _staleness(document: Document) -> None:
    new = "orchestrator.max_off_policy_steps"
    for old in ("orchestrator.max_async_level", "max_async_level", "trainer.max_async_level"):
        document.move(old, new, ASYNC)


def _resume(document: Document) -> None:
    for table in ("ckpt", "trainer.ckpt", "orchestrator.ckpt"):
        old = f"{table}.resume_step"
        step = _whole(document, old)
        if step is None:
            continue
        if step >= 1:
            document.move(old, "resume.step", RESUME)
        elif step == 0:
            document.drop(old, "a run starts at step 0 by itself")
        else:
            document.pop(old)
            if document.table("resume") is None:
                document.set("resume", {})
            document.record(old, "resume", RESUME)


def _client(document: Document) -> None:
    name = "orchestrator.model.client.base_url"
    addresses = document.get(name)
    if not isinstance(addresses, list):
        return
    if len(addresses) != 1:
        raise ConfigError(
            f"{name}: Prime-RL takes one address today; put a router before several servers"
        )
    document.set(name, addresses[0])
    document.record(name, name, "one address, not a list")


def _wandb_offline(document: Document) -> None:
    old = "monitors.wandb.offline"
    if document.get(old) is not True:
        return
    document.pop(old)
    trainer, orchestrator = f"trainer.{old}", f"orchestrator.{old}"
    document.set(trainer, True)
    document.set(orchestrator, True)
    document.record(
        old, f"{trainer} and {orchestrator}", "Prime-RL refuses it for a shared wandb run"
    )


def _attention(document: Document) -> None:
    name = "trainer.model.attn"
    if document.get(name) == "fa4":
        document.set(name, "flash_attention_4")
        document.record(name, name, "fa4 is flash_attention_4 today")
    elif document.get(name) in ("sdpa", "eager"):
        document.drop(name, "Prime-RL has flash attention alone; auto chooses the kernel")


def _evaluation(document: Document) -> None:
    old = "orchestrator.eval.eval_base_model"
    if isinstance(document.get(old), bool):
        document.move(
            old, "orchestrator.eval.skip_first_step", "the same, inverted", lambda value: not value
        )


def _buffer(document: Document) -> None:
    old = "orchestrator.buffer.online_difficulty_filtering"
    document.move(
        old,
        "orchestrator.train.filter_zero_advantages",
        "groups that teach nothing are left out of a batch (the default today)",
    )
    ratios = document.get("orchestrator.buffer.env_ratios")
    if ratios is None:
        mix = "orchestrator.env_mix.probabilities"
        ratios, name = document.get(mix), mix
    else:
        name = "orchestrator.buffer.env_ratios"
    sources = document.tables("orchestrator.train.source")
    if isinstance(ratios, list) and len(ratios) == len(sources):
        for source, ratio in zip(sources, ratios, strict=True):
            source.setdefault("ratio", ratio)
        document.pop(name)
        document.record(name, "orchestrator.train.source[].ratio", "each source has its own")
    for table, reason in (
        ("orchestrator.buffer", "there is no buffer any more; see [...source.curriculum.sampler]"),
        ("orchestrator.env_mix", "sources are mixed by their ratio"),
    ):
        for key in list(document.table(table) or {}):
            document.drop(f"{table}.{key}", reason)
        document.remove_empty(table)


def _concurrency(document: Document) -> None:
    new = "orchestrator.concurrency.max_inflight"
    reason = "bounds the rollouts in flight; how many there are adapts itself"
    for old in ("orchestrator.max_inflight_rollouts", "orchestrator.max_concurrent"):
        if document.get(old) == -1:
            document.drop(old, "no limit")
        document.move(old, new, reason)
    old = "orchestrator.oversampling_factor"
    factor, batch = document.get(old), _whole(document, "orchestrator.batch_size")
    if isinstance(factor, int | float) and batch:
        document.move(old, new, f"{reason}: batch_size times this", lambda f: int(batch * f))
    else:
        document.drop(old, "how many rollouts are in flight adapts itself")
