"""Reads the values of settings, or says in one line what is wrong; and defaults that follow others.

Defaults in `settings` are of the embedded model in a sandbox of this machine: what such a model
needs is too little for any other, and what a sandbox bears is too much for a service.
`defaults_for` has those in their place where a run is of something else. What they follow is looked
up in the settings that were given, and in the config.json of a model that is a directory.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from tbtui.config.earlier import REMOVED
from tbtui.config.settings import RunConfig
from tbtui.config.table import Setting, settings
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.paths import PathError, expanded, expanded_user


class ConfigError(UserError):
    """A setting is unknown or its value can't be used; one line that says what to do."""


class Problem(msgspec.Struct, frozen=True):
    """A setting that is not, or not quite, honoured."""

    level: Literal["error", "warning"]
    text: str
    """One line: the setting, why, and what to do."""
    of_machine: bool = False
    """The settings are right: this machine lacks something that a run with them needs."""


def error(text: str, *, of_machine: bool = False) -> Problem:
    """A problem that keeps the run from starting; `of_machine`: on this machine."""
    return Problem("error", text, of_machine)


def warning(text: str) -> Problem:
    """A problem with which the run starts all the same."""
    return Problem("warning", text)


def require_no_errors(problems: Iterable[Problem]) -> list[str]:
    """The texts of the warnings.

    Raises:
        ConfigError: the first of the errors.
    """
    warnings = []
    for problem in problems:
        if problem.level == "error":
            raise ConfigError(problem.text)
        warnings.append(problem.text)
    return warnings


def errors_first(problems: Iterable[Problem]) -> list[Problem]:
    """The problems, errors before warnings."""
    return sorted(problems, key=lambda problem: problem.level != "error")


EMBEDDED_MODEL = "starter"
MAZE_MODEL = "maze"
EMBEDDED_MODELS = (EMBEDDED_MODEL, MAZE_MODEL)
"""Each has the name of the bundled data set that it is for."""

MAX_TOKENS = 8192
_CONTEXT_SHARE = 4
"""A completion's share of the context: there have to be several turns in it."""
_ON_THIS_MACHINE = frozenset(
    {None, "auto", "sandbox", "docker", "podman", "singularity", "apple-container", "kata"}
)
"""Environment types that no provider limits; classes of one's own (`module:Class`) neither."""


@dataclass(frozen=True, slots=True)
class Default:
    """A default in place of the one in the table of settings."""

    value: Any
    why: str
    """Its source, for a person."""


def is_embedded(values: Mapping[str, Any]) -> bool:
    """Whether the model is the embedded one, here or behind a server."""
    if values.get("engine", "grpo") == "prime-rl":
        return False
    return (
        policy_of(values) == "local"
        or values.get("renderer") == "embedded"
        or values.get("model_name", EMBEDDED_MODEL) in EMBEDDED_MODELS
    )


def policy_of(values: Mapping[str, Any]) -> str:
    """The policy in force: the one that is given, or else what the model's name means."""
    return str(values.get("policy") or _implied_policy(values))


def _implied_policy(values: Mapping[str, Any]) -> str:
    """A directory or a name on the hub (`org/name`) is a model to train here, unless the address of
    a server is given, where it is the name under which that serves it."""
    name = str(values.get("model_name", EMBEDDED_MODEL))
    addresses = ("tinker_base_url", "vllm_base_url", "openai_base_url")
    served = any(values.get(name) for name in addresses)
    if values.get("engine", "grpo") == "prime-rl" or served or name in EMBEDDED_MODELS:
        return "local"
    return "torch" if "/" in name or os.path.isdir(name) else "local"  # noqa: PTH112


def defaults_for(values: Mapping[str, Any]) -> dict[str, Default]:
    """The defaults that differ from the table's, by name.

    Args:
        values: the settings given; one that is missing has the table's default.
    """
    defaults: dict[str, Default] = {}
    prime_rl = values.get("engine", "grpo") == "prime-rl"
    policy = policy_of(values)
    if (implied := _implied_policy(values)) != "local":
        defaults["policy"] = Default(implied, "model_name is a directory or a hub's name")
    # A file of Prime-RL's own says all of it.
    if not is_embedded(values) and values.get("prime_rl_config") is None:
        defaults |= _of_a_thinking_model(values)
        if prime_rl:
            rate = Default(1e-5, "an adapter's, as in Prime-RL's examples")
            defaults["learning_rate"] = rate
        elif policy == "tinker" or (policy == "torch" and values.get("lora_rank") != 0):
            rate = Default(4e-5, "an adapter's, as in tinker-cookbook's rl_basic")
            defaults["learning_rate"] = rate
        elif policy == "torch":
            defaults["learning_rate"] = Default(1e-6, "that of all weights, as in TRL and verl")
    if not prime_rl and policy == "tinker":
        defaults["save_every"] = Default(
            1, "a save took 0.3 s where it was measured; a step takes far longer"
        )
    if not prime_rl and policy == "local" and values.get("model_name") == MAZE_MODEL:
        defaults["tasks_dir"] = Default(Path(MAZE_MODEL), "the tasks that this model is for")
        defaults["max_turns"] = Default(12, "a third more than a maze needs")
    environment = values.get("environment_type")
    if environment not in _ON_THIS_MACHINE and ":" not in str(environment):
        defaults["env_starts_per_sec"] = Default(
            1.0, "the lowest limit of a provider (E2B's smallest plan)"
        )
    return defaults


def _of_a_thinking_model(values: Mapping[str, Any]) -> dict[str, Default]:
    source = "room for reasoning and an answer, as tinker-cookbook's Harbor recipe gives"
    most, limit = MAX_TOKENS, values.get("context_limit")
    context = limit or own_context(values.get("model_name"))
    if context is not None and completion_within(context) < most:
        most = completion_within(context)
        source = "a quarter of " + ("context_limit" if limit else f"the model's {context} tokens")
    defaults = {
        "max_tokens": Default(most, source),
        "max_turns": Default(32, "as SkyRL's Harbor integration gives Terminus-2"),
    }
    if values.get("engine", "grpo") != "prime-rl":
        defaults["sample_timeout_sec"] = Default(
            900.0, "a long answer of a busy server, as in SkyRL's Harbor integration"
        )
    return defaults


def completion_within(context: int) -> int:
    """The most tokens of a completion, by default, in a context of so many tokens."""
    return min(MAX_TOKENS, max(1, context // _CONTEXT_SHARE))


def own_context(model_name: Any) -> int | None:
    """The context of a model that is a directory, in tokens; None: it is none, or doesn't say."""
    place = Path(str(model_name)).expanduser() / "config.json"
    try:
        config = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # the look-up of the model says what is wrong with it
    if not isinstance(config, dict):
        return None
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) and inner else config
    named = text.get("max_position_embeddings") or text.get("n_positions")
    return named if isinstance(named, int) and named > 0 else None


_TOO_LARGE = 2**63
_CREDENTIALS = re.compile(r"(?<=//)([^/:@]*:)?[^/]*@")
_LEFT_OUT = "***@"
_SECRET = "***"
_MOST_SHOWN = 200
"""Characters of a value that can't be used."""
_OR_A_NAME = ("tasks_dir", "checkpoint", "tokenizer")
"""A path where there is such a directory; else the name of something."""
_OR_A_NUMBER = ("agent_examples",)
"""A path, unless it is a number."""

_SET_ELSEWHERE = MappingProxyType(
    {
        **dict.fromkeys(("api_key", "key", "token"), "keys of services come from .env"),
        "theme": "the key t in the app chooses the theme",
        "fps": "give --fps, or set it in app.toml",
        "notify": "set it in app.toml",
        "keys": "other keys are set in keys.toml",
    }
)
"""What is easily taken for a setting of a run, and where it is set."""


OTHER_NAMES = MappingProxyType(
    {
        **dict.fromkeys(("beta", "kl", "kl_coef", "kl_loss_coef"), "kl_penalty_coef"),
        **dict.fromkeys(("lr", "actor_lr"), "learning_rate"),
        **dict.fromkeys(("n", "rollouts_per_example", "num_generations"), "group_size"),
        **dict.fromkeys(("n_samples", "samples_per_prompt"), "group_size"),
        **dict.fromkeys(("bs", "groups_per_batch", "train_batch_size"), "batch_size"),
        **dict.fromkeys(("max_response_length", "max_new_tokens"), "max_tokens"),
        **dict.fromkeys(("max_completion_length", "max_completion_tokens"), "max_tokens"),
        **dict.fromkeys(("max_model_len", "max_length", "max_seq_len"), "context_limit"),
        **dict.fromkeys(("seq_len", "max_prompt_length", "context_length"), "context_limit"),
        **dict.fromkeys(("ckpt", "resume_from_checkpoint"), "checkpoint"),
        **dict.fromkeys(("data", "dataset", "data_dir", "dataset_path"), "tasks_dir"),
        **dict.fromkeys(("path", "tasks_path"), "tasks_dir"),
        **dict.fromkeys(("steps", "total_training_steps"), "max_steps"),
        **dict.fromkeys(("epsilon", "clip", "clip_ratio"), "clip_low"),
        "epsilon_high": "clip_high",
        "max_grad_norm": "grad_clip",
        "total_epochs": "n_epochs",
        **dict.fromkeys(("test_freq", "eval_steps"), "eval_every"),
        **dict.fromkeys(("save_freq", "save_steps"), "save_every"),
        **dict.fromkeys(("output_dir", "jobs_dir", "log_path"), "logs_dir"),
        **dict.fromkeys(("concurrency", "n_concurrent", "n_concurrent_trials"), "n_parallel_envs"),
        **dict.fromkeys(("env", "environment"), "environment_type"),
        **dict.fromkeys(("timeout", "timeout_sec"), "trial_timeout_sec"),
        "temp": "temperature",
        "max_iterations": "max_turns",
        "loss_type": "loss_fn",
        "scale_rewards": "advantage",
        "num_iterations": "num_substeps",
        "gpus": "num_train_gpus",
        **dict.fromkeys(("url", "base_url", "api_base"), "openai_base_url"),
    }
)
"""Names that TRL, verl, tinker-cookbook, Prime-RL, Harbor and others have for settings, and ours,
where the nearest of ours is another, or none."""


def require_setting(name: str, where: str = "") -> Setting:
    """Raises `ConfigError` with the nearest name."""
    if setting := settings().get(name):
        return setting
    import difflib  # a quarter of what reading the settings takes, and only needed here

    if name in REMOVED:
        raise ConfigError(f"{where}{name}: {REMOVED[name]}")
    if name in _SET_ELSEWHERE:
        raise ConfigError(f"{where}{name!r} is no setting of a run; {_SET_ELSEWHERE[name]}")
    near = difflib.get_close_matches(name, settings(), n=1, cutoff=0.6)
    meant = OTHER_NAMES.get(name) or next(iter(near), None)
    hint = f"did you mean {meant!r}?" if meant else f"`{to_type('settings')}` has all of them"
    raise ConfigError(f"{where}unknown setting {name!r}; {hint}")


def read_value(setting: Setting, value: Any, where: str = "", *, text: bool = False) -> Any:
    """A JSON-like value, or with `text` one written on a command line.

    Raises:
        ConfigError: it has another type, or is out of range.
    """
    if setting.is_table:
        return _table(setting, value, where)
    parsed = _parsed(setting, value) if text else value
    if parsed is None and setting.optional:
        return None
    try:
        read = msgspec.convert(parsed, setting.base, strict=not text, dec_hook=_path)
        if isinstance(read, int | float) and not setting.allows(read):
            raise ValueError(read)
    except PathError as error:
        raise ConfigError(f"{where}{setting.name}={error}") from error
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(
            f"{where}{setting.name}={_shown(value)}: should be {setting.expected}"
        ) from error
    _require_storable(read, f"{where}{setting.name}")
    return read


def read_setting(name: str, value: Any, where: str = "") -> Any:
    """The JSON-like value of the setting of this name; raises `ConfigError`."""
    return read_value(require_setting(name, where), value, where)


def read_entry(setting: Setting, entry: str, value: Any, where: str = "") -> Any:
    """The value of one entry of a setting that is a table."""
    try:
        read = msgspec.convert(value, setting.base)
        if isinstance(read, float) and not math.isfinite(read):
            raise ValueError(read)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(
            f"{where}{setting.name}.{entry}={_shown(value)}: should be {setting.expected}"
        ) from error
    _require_storable({entry: read}, f"{where}{setting.name}.{entry}")
    return read


def read_config(values: Mapping[str, Any], where: str = "") -> RunConfig:
    """JSON-like values by name, as `to_json` gives them, to a config.

    Without `max_steps` (none) `n_epochs` alone decides.

    Raises:
        ConfigError: an unknown name, or a value that can't be used; `where` begins the line.
    """
    read = {
        name: read_value(require_setting(name, where), value, where)
        for name, value in values.items()
        if (name, value) != ("max_steps", None)
    }
    return RunConfig(**read, given=asked_for(read))


def asked_for(values: Mapping[str, Any]) -> frozenset[str]:
    """Names of the settings in a file that ask for something other than the default.

    A run's `config.toml` spells out every default: read back, these ask for nothing. `max_steps`
    always does: beside `n_epochs` its default is a limit too (`to_toml` leaves it out else).
    """
    return frozenset(
        name
        for name, value in values.items()
        if name == "max_steps" or value != default_of(name, values)
    )


def default_of(name: str, values: Mapping[str, Any]) -> Any:
    """The default of the setting of this name where the others are `values`."""
    default = defaults_for(values).get(name)
    return settings()[name].default if default is None else default.value


def to_json(config: RunConfig) -> dict[str, Any]:
    """Every setting in force as JSON has it: texts for paths, lists for tuples.

    `max_steps` is `step_limit`: the default is not in force beside `n_epochs` (`step_limit`).
    A password in an address is left out: this is what is written down and shown.
    """
    values = msgspec.json.decode(msgspec.json.encode(config, enc_hook=str))
    values["max_steps"] = config.step_limit
    return {name: _public(setting, values[name]) for name, setting in settings().items()}


def as_typed(config: RunConfig, *left_out: str) -> list[str]:
    """The settings that were given, as a command line has them."""
    values = to_json(config)
    words = []
    for name in (name for name in settings() if name in config.given and name not in left_out):
        value = values[name]
        if settings()[name].is_table:
            words += [f"{name}.{entry}={_typed(each)}" for entry, each in value.items()]
        else:
            words.append(f"{name}={_typed(value)}")
    return words


def _typed(value: Any) -> str:
    match value:
        case None:
            return "none"
        case str():
            return value
        case list():
            return ",".join(map(str, value))
        case _:
            return json.dumps(value)


def _public(setting: Setting, value: Any) -> Any:
    match setting.about.trust:
        case "host":
            return without_password(value)
        case "alert":
            return [public_receiver(each) for each in value]
        case _:
            return value


def public_receiver(receiver: str) -> str:
    """A receiver of alerts as it may be written down.

    Of a webhook's address the path is the secret: `https://hooks.slack.com/***`. One that takes its
    secret from the environment, `https://hooks.slack.com/$HOOK`, stays as it is.
    """
    scheme, slashes, rest = receiver.partition("://")
    if scheme not in ("http", "https") or not slashes or "$" in rest:
        return str(without_password(receiver))
    host, slash, path = rest.partition("/")
    return str(without_password(f"{scheme}://{host}{slash}{_SECRET if path else ''}"))


def absolute(config: RunConfig) -> RunConfig:
    """The config with absolute paths.

    Raises:
        ConfigError: a path can't be one, or this user mayn't look there.
    """
    paths = [name for name, setting in settings().items() if setting.kind == "path"]
    changes: dict[str, str | Path] = {}
    for name in {*paths, *_OR_A_NAME, *_OR_A_NUMBER}:
        given = getattr(config, name)
        if given is None or (name in _OR_A_NUMBER and given.isdecimal()):
            continue
        try:
            path = expanded(given)
        except PathError as error:
            raise ConfigError(f"{name}={error}") from error
        if name not in _OR_A_NAME or path.is_dir():
            changes[name] = type(given)(path.absolute())
    return config.replace(**changes)


def without_password(address: Any) -> Any:
    """An address as it may be written down: `http://me:***@host/v1`."""
    if not isinstance(address, str):
        return address
    return _CREDENTIALS.sub(lambda found: (found[1] or "") + _LEFT_OUT, address)


def lacks_password(address: str | None) -> bool:
    """Whether an address was written down without its password."""
    return address is not None and _LEFT_OUT in address


def _table(setting: Setting, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(
            f"{where}{setting.name}={_shown(value)}: should be a table of names and values"
        )
    return {entry: read_entry(setting, entry, each, where) for entry, each in value.items()}


def _require_storable(value: Any, what: str) -> None:
    """What config.toml, the journal and the file system can't hold is refused here."""
    try:
        if isinstance(value, int) and abs(value) >= _TOO_LARGE:
            raise ConfigError(f"{what}: can't be used: it has more than 63 bits")
        if "\\u0000" in msgspec.json.encode(value, enc_hook=str).decode():
            raise ConfigError(f"{what}: can't be used: it has a NUL character in it")
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what}: can't be used: it is not UTF-8 text") from error


def _parsed(setting: Setting, text: str) -> Any:
    if setting.optional and text.lower() in {"", "none"}:
        return None
    if setting.kind == "list":
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str | Path):
        return expanded_user(value)
    raise ValueError(value)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."
