"""Prime-RL's TOML from the settings of a run.

Which key carries a setting is in `settings_table`; fields of our harness follow from that, the
others are written here. What Prime-RL can't do is in `config_checks`.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

from tbtui.catalog import CatalogError, find_tasks
from tbtui.catalog.sets import choose, is_name
from tbtui.catalog.tasks import discover
from tbtui.config import ConfigError, RunConfig, to_json
from tbtui.config.values import require_no_errors
from tbtui.engines.prime_rl.config_checks import (
    chat_template_renders,
    context_of,
    evaluates,
    is_directory,
    prime_rl_problems,
)
from tbtui.engines.prime_rl.settings_table import HARNESS, SETTINGS

PLUGIN = "tbtui-harbor"
"""The id by which verifiers finds our taskset and harness: it imports the module `tbtui_harbor`."""
ALPHA_PER_RANK = 2
"""LoRA's alpha is this times its rank: the ratio of Prime-RL's own defaults (32 and 16)."""

_HARNESS_ORDER = (
    "environment_type", "max_turns", "max_tokens", "context_limit",
    "enable_summarize", "proactive_summarization_threshold",
    "trial_timeout_sec", "n_parallel_envs", "n_workers", "keep",
)  # fmt: skip
"""As files have had them; further ones follow."""

_RETENTION = MappingProxyType({"keep": "all", "strip": None})


def prime_rl_config(config: RunConfig) -> dict[str, Any]:
    """The tables of the file that `uv run rl @ FILE` takes.

    Raises:
        ConfigError: the first error of `prime_rl_problems`.
    """
    require_no_errors(prime_rl_problems(config))
    context = context_of(config)
    toml: dict[str, Any] = {
        "max_steps": config.max_steps,
        "seq_len": context,
        "output_dir": str(config.logs_dir.absolute()),
        "model": {"name": _model(config)},
        "ckpt": _checkpoints(config),
        "trainer": _trainer(config),
        "orchestrator": _orchestrator(config, context),
        "inference": {"vllm": {"max_model_len": context, "seed": config.seed}},
        "deployment": _deployment(config),
    }
    if config.run_name is not None:
        toml["run"] = {"name": config.run_name}
    if config.checkpoint is not None:
        toml["resume"] = {"dir": str(Path(config.checkpoint).absolute())}
    if config.tokenizer is not None:
        toml["tokenizer"] = {"name": config.tokenizer}
    if config.wandb_project is not None:
        toml["monitors"] = {"wandb": _present(project=config.wandb_project, name=config.wandb_name)}
    return toml


def _model(config: RunConfig) -> str:
    if not is_directory(config):
        return config.model_name
    # Prime-RL's processes run elsewhere.
    return str(Path(config.model_name).expanduser().absolute())


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _deployment(config: RunConfig) -> dict[str, Any]:
    train, infer = config.num_train_gpus, config.num_infer_gpus
    return {"num_train_gpus": train, "num_infer_gpus": infer, "gpus_per_node": train + infer}


def _checkpoints(config: RunConfig) -> dict[str, Any]:
    # Without an interval there is one at the end; without keep_last all of them stay.
    return _present(interval=config.save_every or None, keep_last=config.keep_checkpoints or None)


def _trainer(config: RunConfig) -> dict[str, Any]:
    rank = config.lora_rank
    return {
        "model": {"lora": {"rank": rank, "alpha": ALPHA_PER_RANK * rank}},
        # TOML has no null; Prime-RL reads the text "None" as one.
        "optim": {"lr": config.learning_rate, "max_norm": config.grad_clip or "None"},
        "scheduler": _scheduler(config),
    }


def _scheduler(config: RunConfig) -> dict[str, Any]:
    warmup = config.warmup_steps
    match config.lr_schedule:
        case "constant" if not warmup:
            return {"type": "constant"}
        case "constant":
            # Prime-RL's constant schedule doesn't warm up; a linear one that never falls does.
            return {"type": "linear", "warmup_steps": warmup, "decay_steps": 0}
        case "linear":
            falling = config.max_steps - warmup
            return {"type": "linear", "warmup_steps": warmup, "decay_steps": falling}
        case "cosine":
            return {"type": "cosine", "warmup_steps": warmup}


def _orchestrator(config: RunConfig, context: int) -> dict[str, Any]:
    toml: dict[str, Any] = {
        # Ours counts groups, Prime-RL's trials.
        "batch_size": config.batch_size * config.group_size,
        "group_size": config.group_size,
        "max_off_policy_steps": config.max_steps_off_policy,
    }
    if config.env_starts_per_sec:
        # It counts rollouts, whatever its name says. Never more than was asked for.
        toml["tasks_per_minute"] = int(60 * config.env_starts_per_sec + 1e-9)
    toml["concurrency"] = {"max_inflight": config.n_parallel_envs}
    toml["renderer"] = _renderer(config)
    toml["train"] = {
        "filter_zero_advantages": config.remove_constant_reward_groups,
        "sampling": {
            "temperature": config.temperature,
            "max_completion_tokens": config.max_tokens,
        },
        "source": [{"name": "tbtui", **_source(config, context, heldout=False)}],
    }
    if evaluates(config):
        toml["eval"] = {
            # Before the first step in any case.
            "interval": config.eval_every or config.max_steps,
            "group_size": config.eval_group_size,
            "sampling": {
                "temperature": config.eval_temperature,
                "max_completion_tokens": config.max_tokens,
            },
            "source": [{"name": "tbtui-heldout", **_source(config, context, heldout=True)}],
        }
    return toml


def _renderer(config: RunConfig) -> dict[str, Any]:
    if chat_template_renders(config):
        return {"name": "default"}
    name = config.renderer if "renderer" in config.given else "auto"
    # Without a word on it, the renderer does with earlier turns' thinking what the template does.
    return {"name": name, **_present(thinking_retention=_RETENTION[config.thinking])}


def _source(config: RunConfig, context: int, *, heldout: bool) -> dict[str, Any]:
    return {
        # One environment server, so that n_parallel_envs are all there are.
        "serve": {"pool": {"type": "static", "num_workers": 1}},
        "env": {
            "taskset": {"id": PLUGIN, **_tasks(config, heldout=heldout)},
            "agent": {
                # Harbor makes the trials' environments; verifiers needs none of its own.
                "runtime": {"type": "subprocess"},
                "retries": {"max_retries": config.max_retries},
                "harness": {"id": PLUGIN, **_harness(config, context)},
            },
        },
    }


def _harness(config: RunConfig, context: int) -> dict[str, Any]:
    """The settings that are fields of our harness too, as they are."""
    values = to_json(config) | {"context_limit": context}
    fields = {
        key.removeprefix(HARNESS): values[name]
        for name, mapping in SETTINGS.items()
        for key in mapping.keys
        if key.startswith(HARNESS)
    }
    order = {name: index for index, name in enumerate(_HARNESS_ORDER)}
    return _present(
        **{name: fields[name] for name in sorted(fields, key=lambda n: order.get(n, len(order)))}
    )


def _tasks(config: RunConfig, *, heldout: bool) -> dict[str, Any]:
    assert config.tasks_dir is not None  # else it was refused
    tasks: dict[str, Any] = {"tasks_dir": str(_directory(config.tasks_dir).absolute())}
    names = _named(config.eval_tasks, "eval_tasks", config.tasks_dir)
    if names and heldout:
        return tasks | {"split": "all", "tasks": names}
    if config.tasks and not heldout:
        tasks["tasks"] = _named(config.tasks, "tasks", config.tasks_dir)
    if not names:
        split = "heldout" if heldout else "train"
        return tasks | {"split": split, "eval_split": config.eval_split, "seed": config.seed}
    # Tasks that declare that they are held out are not trained on either.
    return tasks | {"split": "train", "eval_split": 0.0, "exclude": names}


def _directory(given: Path) -> Path:
    """The tasks' directory; one that doesn't exist here may be on the machine that trains."""
    try:
        return find_tasks(given)
    except CatalogError:
        return given.expanduser()


def _named(patterns: tuple[str, ...], setting: str, tasks_dir: Path) -> list[str]:
    """Our taskset takes names alone; for anything else the tasks must be here."""
    if all(is_name(pattern) for pattern in patterns):
        return list(patterns)
    try:
        tasks = discover(find_tasks(tasks_dir)).tasks
        names = {task.name: task.full_name for task in tasks}
        chosen = choose(names, patterns, setting)
    except CatalogError as error:
        raise ConfigError(str(error)) from error
    return [name for name in names if name in chosen]
