"""Configuration files of earlier Prime-RL, above all of its seed for Harbor, to today's.

Renames and what is gone stand in `migrate_rules`; every key that changes is listed. An
unknown key stays: Prime-RL's own classes name it (`validate`). Today's files come back unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tbtui.config import ConfigError
from tbtui.engines.prime_rl.document import Change, Document, Table
from tbtui.engines.prime_rl.migrate_rules import RULES, SEED_RULES, SOURCE_RULES, Rule
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN

_SEED_IDS = ("harbor_env", "harbor-env", "harbor")
_ENVIRONMENTS = (
    ("orchestrator.env", "orchestrator.train.source"),
    ("orchestrator.train.env", "orchestrator.train.source"),
    ("orchestrator.eval.env", "orchestrator.eval.source"),
)
_TRAINER_LENGTH = 2048
"""The trainer's where the file says none. Once it took the orchestrator's."""


def migrate(toml: Mapping[str, Any]) -> tuple[dict[str, Any], list[Change]]:
    """Today's file, and what became of every key that isn't what it was.

    Raises:
        ConfigError: a value that is to be changed has the wrong type.
    """
    document = Document(toml)
    devices = [name for name in ("trainer_gpu_ids", "inference_gpu_ids") if document.has(name)]
    _follow(document, RULES)
    for table in ("trainer.model.experimental", "trainer.experimental", "inference.parallel"):
        document.remove_empty(table)
    if devices and not document.has("deployment.gpus_per_node"):
        new = "deployment.gpus_per_node"
        counts = (document.get(f"deployment.num_{each}_gpus") for each in ("train", "infer"))
        document.set(new, sum(count or 1 for count in counts))  # one of each is the default
        document.record(" + ".join(devices), new, "so many in all")
    length = document.get("orchestrator.seq_len")
    given = document.has("seq_len") or document.has("trainer.model.seq_len")
    if isinstance(length, int) and length > _TRAINER_LENGTH and not given:
        document.move("orchestrator.seq_len", "seq_len", "the trainer needs it too")
    for old, new in _ENVIRONMENTS:
        if document.has(old):
            sources = [*document.tables(new), *_sources(document, old, new)]
            document.pop(old)
            document.set(new, sources)
    return document.root, document.changes


def _follow(document: Document, rules: Iterable[Rule]) -> None:
    for rule in rules:
        if rule.old.endswith(".*"):
            new = rule.new and rule.new.removesuffix(".*")
            document.move_table(rule.old.removesuffix(".*"), new, rule.reason)
        elif document.has(rule.old):
            _follow_one(document, rule)


def _follow_one(document: Document, rule: Rule) -> None:
    before = document.get(rule.old)
    try:
        after = before if rule.convert is None else rule.convert(before)
    except ConfigError as error:
        raise ConfigError(f"{rule.old}={before}: {error}") from error
    if rule.new is None or after is None:
        document.drop(rule.old, rule.reason)
    elif rule.new != rule.old:
        document.move(rule.old, rule.new, rule.reason, lambda _: after)
    elif after != before:
        document.set(rule.new, after)
        document.record(rule.old, rule.new, rule.reason)


def _sources(document: Document, old: str, new: str) -> list[Table]:
    """Environments at `old` as the sources at `new` that they are today."""
    entries = document.tables(old)
    document.record(old, new, "environments are sources")
    sources = []
    for entry in entries:
        source = Document(entry)
        arguments = source.table("args") or {}
        if str(source.get("id")).rpartition(".")[2] in _SEED_IDS or "tasks_dir" in arguments:
            _seed(source, document.get("orchestrator.train.sampling.max_completion_tokens"))
        _follow(source, SOURCE_RULES)
        for change in source.changes:
            place = change.new and f"{new}[].{change.new}"
            document.record(f"{old}[].{change.old}", place, change.reason)
        sources.append(source.root)
    return sources


def _seed(source: Document, max_tokens: int | None) -> None:
    """An environment of the seed: tbtui's plugin runs its tasks."""
    if not source.has("id"):
        source.set("env.taskset.id", PLUGIN)
    source.set("env.agent.runtime", {"type": "subprocess"})
    source.set("env.agent.harness", {"id": PLUGIN})
    if max_tokens is not None and not source.has("args.max_tokens"):
        source.set("env.agent.harness.max_tokens", max_tokens)
    _follow(source, SEED_RULES)
