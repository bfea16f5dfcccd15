"""Environments of earlier Prime-RL files, to today's sources.

Three shapes are known: `[[orchestrator.env]]` and `[[orchestrator.train.env]]` with an `id` and its
`args` (verifiers 0.1), and `[[orchestrator.train.env]]` with a `taskset` and a `harness`.
"""

from __future__ import annotations

from typing import Any

from tbtui.config import ConfigError
from tbtui.engines.prime_rl.document import Document, Table
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN

MAX_INFLIGHT = "orchestrator.concurrency.max_inflight"
TRAIN_SAMPLING = "orchestrator.train.sampling"

_COMPOSED = "a source is made of an environment ([...env]) and how it is served ([...serve])"
_SEED_IDS = ("harbor_env", "harbor-env", "harbor")
_TASKSET_FIELDS = frozenset({"tasks_dir"})
_HARNESS_FIELDS = frozenset(
    {
        "environment_type",
        "environment_kwargs",
        "max_turns",
        "enable_summarize",
        "proactive_summarization_threshold",
        "trial_timeout_sec",
        "n_parallel_envs",
        "trials_dir",
        "context_limit",
        "max_tokens",
    }
)
_SENT_WITH_REQUESTS = frozenset({"vllm_base_url", "model_name"})
_NO_LIMIT = frozenset({"none", "null", "unlimited"})
_OF_A_SOURCE = frozenset(
    {"name", "ratio", "sampling", "group_size", "num_examples", "interval", "algo", "curriculum"}
)
_GONE_FROM_SOURCES = {
    "skip_first": "choose tasks by the taskset's own fields",
    "max_total_completion_tokens": "the agent's max_output_tokens limits a rollout",
    "log": "[orchestrator.log] is for all of them",
    "extra_env_kwargs": "verifiers has no such arguments any more",
}
_GONE_FROM_SAMPLING = {
    "min_tokens": "it suppressed the natural end of an answer",
    "repetition_penalty": "it distorts what is sampled",
    "seed": "Prime-RL samples without one",
    "temp_scheduler": "the temperature is constant",
}


def migrate_sampling(document: Document, table: str) -> None:
    """One table of sampling settings."""
    document.move(f"{table}.max_tokens", f"{table}.max_completion_tokens", "renamed")
    for key, reason in _GONE_FROM_SAMPLING.items():
        document.drop(f"{table}.{key}", reason)


def migrate_sources(document: Document) -> None:
    """All environments, for training and for evaluation."""
    for old, new in (
        ("orchestrator.env", "orchestrator.train.source"),
        ("orchestrator.train.env", "orchestrator.train.source"),
        ("orchestrator.eval.env", "orchestrator.eval.source"),
    ):
        if not document.has(old):
            continue
        entries = document.tables(old)
        document.pop(old)
        document.record(old, new, "environments are sources")
        sources = document.tables(new)
        for entry in entries:
            sources.append(_Source(document, old, new).migrate(entry))
        document.set(new, sources)


class _Source:
    """One environment on its way from `[[old]]` to `[[new]]`."""

    def __init__(self, document: Document, old: str, new: str) -> None:
        self._document = document
        self._old = old
        self._new = new
        self._made = Document({})

    def migrate(self, entry: Table) -> Table:
        rest = dict(entry)
        for key in [key for key in rest if key in _OF_A_SOURCE]:
            self._put(key, rest.pop(key), key, None)
        self._served(rest)
        if "rollouts_per_example" in rest:
            self._put(
                "group_size", rest.pop("rollouts_per_example"), "rollouts_per_example", "renamed"
            )
        for key, reason in _GONE_FROM_SOURCES.items():
            if rest.pop(key, None) is not None:
                self._gone(key, reason)
        self._sampling()
        if "taskset" in rest or "harness" in rest:
            self._composed(rest)
        else:
            self._by_id(rest)
        for key, value in rest.items():  # named with the other unknown keys
            self._made.set(key, value)
        return self._made.root

    def _put(self, new: str, value: Any, old: str, reason: str | None) -> None:
        self._made.set(new, value)
        if reason is not None:
            self._document.record(f"{self._old}[].{old}", f"{self._new}[].{new}", reason)

    def _gone(self, old: str, reason: str) -> None:
        self._document.record(f"{self._old}[].{old}", None, reason)

    def _served(self, rest: Table) -> None:
        if "address" in rest:
            self._put("serve.address", rest.pop("address"), "address", _COMPOSED)
        if "pool" in rest:
            self._put("serve.pool", rest.pop("pool"), "pool", _COMPOSED)
        workers = rest.pop("num_workers", None)
        if isinstance(workers, int):
            pool = {"type": "static", "num_workers": workers}
            self._put("serve.pool", pool, "num_workers", _COMPOSED)
        elif workers is not None:
            self._gone("num_workers", "as many as are needed is the default")

    def _sampling(self) -> None:
        sampling = self._made.table("sampling")
        if sampling is None:
            return
        if "max_tokens" in sampling:
            value = sampling.pop("max_tokens")
            self._put("sampling.max_completion_tokens", value, "sampling.max_tokens", "renamed")
        for key, reason in _GONE_FROM_SAMPLING.items():
            if sampling.pop(key, None) is not None:
                self._gone(f"sampling.{key}", reason)

    def _composed(self, rest: Table) -> None:
        """A taskset and a harness that already were verifiers' of today."""
        if "taskset" in rest:
            self._put("env.taskset", rest.pop("taskset"), "taskset", _COMPOSED)
        harness = rest.pop("harness", None)
        if isinstance(harness, dict):
            harness = dict(harness)
            if "runtime" in harness:
                self._put("env.agent.runtime", harness.pop("runtime"), "harness.runtime", _COMPOSED)
            self._put("env.agent.harness", harness, "harness", _COMPOSED)
        elif harness is not None:
            raise ConfigError(f"{self._old}[].harness: should be a table")

    def _by_id(self, rest: Table) -> None:
        name, args = rest.pop("id", None), rest.pop("args", {})
        if not isinstance(args, dict):
            raise ConfigError(f"{self._old}[].args: should be a table")
        module = str(name).rpartition(".")[2]
        if module in _SEED_IDS or "tasks_dir" in args:
            self._put("env.taskset.id", PLUGIN, "id", "tbtui's plugin for Harbor tasks")
            self._seed(dict(args))
            return
        if name is not None:
            self._put(
                "env.taskset.id",
                name,
                "id",
                "an environment is a taskset and a harness; see that this one has both",
            )
        for key, value in args.items():
            self._put(
                f"env.taskset.{key}",
                value,
                f"args.{key}",
                "arguments are fields of the taskset or the harness; see which",
            )

    def _seed(self, args: Table) -> None:
        """The arguments of the seed's `HarborEnv`."""
        self._made.set("env.agent.runtime", {"type": "subprocess"})
        self._made.set("env.agent.harness", {"id": PLUGIN})
        self._lengths(args.pop("model_info", None))
        turns = args.get("max_turns")
        if turns is None or str(turns).lower() in _NO_LIMIT:
            if "max_turns" in args:
                self._gone("args.max_turns", "the plugin has a limit, 30 unless you give another")
            args.pop("max_turns", None)
        temperature = args.pop("temperature", None)
        if temperature is not None:
            self._temperature(temperature)
        for key, value in args.items():
            if key in _SENT_WITH_REQUESTS:
                self._gone(f"args.{key}", "verifiers tells the agent with every rollout")
            elif key in _TASKSET_FIELDS:
                self._put(f"env.taskset.{key}", value, f"args.{key}", "a field of the taskset")
            else:
                known = key in _HARNESS_FIELDS
                reason = "a field of the harness" if known else "no field that is known here"
                self._put(f"env.agent.harness.{key}", value, f"args.{key}", reason)
        self._inflight(args.get("n_parallel_envs"))

    def _lengths(self, model_info: Any) -> None:
        if not isinstance(model_info, dict):
            return
        harness = "env.agent.harness"
        context = model_info.get("max_input_tokens", model_info.get("max_tokens"))
        if context is not None:
            self._put(
                f"{harness}.context_limit",
                context,
                "args.model_info",
                "what the model is served with",
            )
        answer = self._document.get(f"{TRAIN_SAMPLING}.max_completion_tokens")
        if answer is None:
            answer = model_info.get("max_output_tokens")
            if answer is None or answer == context:  # as good as no limit
                return
        self._put(
            f"{harness}.max_tokens",
            answer,
            "args.model_info",
            "most in one answer, as sampling has it",
        )

    def _temperature(self, value: Any) -> None:
        name = f"{TRAIN_SAMPLING}.temperature"
        if self._document.has(name):
            self._gone("args.temperature", f"{name} says it")
            return
        self._document.set(name, value)
        self._document.record(f"{self._old}[].args.temperature", name, "sampling is Prime-RL's")

    def _inflight(self, trials: Any) -> None:
        if not isinstance(trials, int) or self._document.has(MAX_INFLIGHT):
            return
        group_size = self._document.get("orchestrator.group_size")
        most = max(trials, group_size if isinstance(group_size, int) else 1)
        self._document.set(MAX_INFLIGHT, most)
        self._document.record(
            f"{self._old}[].args.n_parallel_envs", MAX_INFLIGHT, "no more are asked for at once"
        )
