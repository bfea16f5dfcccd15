"""The file that `rl` is given, from our settings or one of Prime-RL's own; and what it says of
machines, ports and tasks, its defaults filled in.

Keys and defaults are those of Prime-RL at commit 559b447 (August 2026).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tbtui.config import ConfigError, RunConfig, default_of, to_json
from tbtui.config.toml import read_toml
from tbtui.config.values import Problem, require_no_errors
from tbtui.engines.prime_rl.config_checks import prime_rl_problems
from tbtui.engines.prime_rl.migrate import Document, migrate
from tbtui.engines.prime_rl.settings_table import SETTINGS
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN, prime_rl_config
from tbtui.invocation import to_type

_BESIDE_A_FILE = frozenset({"logs_dir", "run_name", "on_alarm", "prices"})
"""Settings that are ours, too, where Prime-RL's are in a file of its own."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Prime-RL's tables, and what a person should know of them."""

    toml: dict[str, Any]
    changes: tuple[str, ...] = ()
    """What became of which key of an older file, a line each."""
    warnings: tuple[str, ...] = ()


def launch_problems(config: RunConfig) -> list[Problem]:
    """What of the settings can't be done, or is done otherwise. The errors come first."""
    if config.prime_rl_config is None:
        return prime_rl_problems(config)
    return list(_beside_a_file(config))


def configuration_of(config: RunConfig, file: Path | None = None) -> Configuration:
    """What the settings mean to Prime-RL.

    Args:
        file: stands in for `prime_rl_config`.

    Raises:
        ConfigError: the first error of `launch_problems`, or a file that can't be used.
    """
    warnings = tuple(require_no_errors(launch_problems(config)))
    if config.prime_rl_config is None:
        return Configuration(prime_rl_config(config), (), warnings)
    toml, changes = migrate(read_toml(file or config.prime_rl_config))
    return Configuration(toml, tuple(map(str, changes)), warnings)


def placed(toml: Mapping[str, Any], place: Path, resume: Mapping[str, Any] | None) -> Document:
    """`toml`, writing into `place`, a run directory of ours; what was otherwise is listed.

    Args:
        resume: how it goes on, as Prime-RL's `[resume]` has it; None: it begins.

    Raises:
        ConfigError: it is to go on from a checkpoint that a new run can't have.
    """
    document = Document(toml)
    _put(document, "output_dir", str(place), "everything of a run is in its directory")
    _put(document, "run.dir", run_directory(place).name, "everything of a run is in its directory")
    if not document.has("run.name"):
        document.set("run.name", place.name)
    for source in sources(document.root):
        if uses_plugin(source):
            harness = source.setdefault("env", {}).setdefault("agent", {}).setdefault("harness", {})
            harness.setdefault("id", PLUGIN)
            before = harness.get("trials_dir")
            if before not in (None, str(place)):
                document.record("trials_dir", None, f"trials are seen and steered in {place}")
            harness["trials_dir"] = str(place)
    if resume is not None:
        document.set("resume", dict(resume))
    elif document.has("resume") and not document.get("resume.dir"):
        step = document.get("resume.step") or "N"
        raise ConfigError(
            "resume: a new run has no checkpoints of its own; give resume.dir ="
            f' ".../checkpoints/step_{step}", or `{to_type("run", "--resume", "RUN")}` to go on'
            " with one of tbtui's"
        )
    return document


def _put(document: Document, key: str, value: str, reason: str) -> None:
    before = document.get(key)
    document.set(key, value)
    if before not in (None, value):
        document.record(f"{key} = {before}", f"{key} = {value}", reason)


def _beside_a_file(config: RunConfig) -> Iterator[Problem]:
    values = to_json(config)
    for name, mapping in SETTINGS.items():
        # A run's own config.toml spells out every default, so that being given says nothing.
        if mapping.ours or name in _BESIDE_A_FILE:
            continue
        if getattr(config, name) == default_of(name, values):
            continue
        keys = [key.replace("[]", "") for key in mapping.keys]
        where = f"set {keys[0]} there" if keys else "leave it out"
        yield Problem(
            "error", f"{name}={values[name]}: {config.prime_rl_config} is taken as it is; {where}"
        )


_SERVER_PORT = 8000
_BEHIND_ROUTER = 100
"""The engines' port lies so far above that of the router in front of them."""
_ENVIRONMENTS_PORT = 5000
_NCCL_PORT = 29501
_NONE = ("None", "none", "null")
"""Texts that Prime-RL reads as null, which TOML lacks."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What one file says of the machine that it needs."""

    slurm: bool
    """It is submitted, and runs elsewhere."""
    train_gpus: int
    infer_gpus: int
    ports: tuple[tuple[str, int], ...]
    """(key that says it, port) of each that has to be free here."""
    server_urls: tuple[str, ...]
    """Addresses of the inference engines, as far as they are known before the start."""
    client_port: int | None
    """Where the orchestrator looks for the inference server that is started with it; None: none
    is."""
    uses_plugin: bool
    tasks_dirs: tuple[str, ...]
    """Task directories of the sources that use the plugin."""
    max_steps: int | None

    @property
    def gpus(self) -> int:
        """How many it needs of this machine, in all."""
        return 0 if self.slurm else self.train_gpus + self.infer_gpus

    @classmethod
    def of(cls, toml: Mapping[str, Any]) -> Facts:
        deployment = _table(toml, "deployment")
        slurm = "slurm" in toml
        inference = "inference" in toml
        own = [each for each in sources(toml) if uses_plugin(each)]
        tasks = [_table(each, "env", "taskset").get("tasks_dir") for each in own]
        return cls(
            slurm=slurm,
            train_gpus=_whole(deployment.get("num_train_gpus"), 1),
            infer_gpus=_whole(deployment.get("num_infer_gpus"), 1) if inference else 0,
            ports=() if slurm else tuple(_ports(toml)),
            server_urls=tuple(_server_urls(toml, slurm)),
            client_port=_client_port(toml) if inference and not slurm else None,
            uses_plugin=bool(own),
            tasks_dirs=tuple(dict.fromkeys(str(each) for each in tasks if each)),
            max_steps=toml["max_steps"] if isinstance(toml.get("max_steps"), int) else None,
        )


def sources(toml: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The sources of training, then those of evaluation: each has an environment server."""
    for split in ("train", "eval"):
        listed = _table(toml, "orchestrator", split).get("source")
        yield from (each for each in listed or () if isinstance(each, dict))


def uses_plugin(source: Mapping[str, Any]) -> bool:
    """Whether a source's trials run in tbtui's plugin."""
    return PLUGIN in (
        _table(source, "env", "taskset").get("id"),
        _table(source, "env", "agent", "harness").get("id"),
    )


def run_directory(place: Path) -> Path:
    """Where Prime-RL writes, in a run directory of ours."""
    return place / "prime_rl"


def _ports(toml: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    if "inference" in toml:
        server, engine = _server_port(toml), _engine_port(toml)
        yield "inference.server.port", server
        if engine != server:
            yield "inference.backend_port", engine
    base = _whole(_table(toml, "orchestrator").get("env_server_base_port"), _ENVIRONMENTS_PORT)
    for index, source in enumerate(sources(toml)):
        if _table(source, "serve").get("address") is None:
            yield "orchestrator.env_server_base_port", base + index
    # LoRA's weights go through files, and so do all where nothing is served here.
    lora = "lora" in _table(toml, "trainer", "model")
    broadcast = _table(toml, "weight_broadcast")
    kind = broadcast.get("type", "nccl" if "inference" in toml and not lora else "filesystem")
    if kind == "nccl":
        yield "weight_broadcast.port", _whole(broadcast.get("port"), _NCCL_PORT)


def _server_urls(toml: Mapping[str, Any], slurm: bool) -> Iterator[str]:
    client = _table(toml, "orchestrator", "model", "client")
    given = client.get("admin_base_url") or (
        None if "inference" in toml else client.get("base_url", f"http://localhost:{_SERVER_PORT}")
    )
    if given is not None:
        for url in [given] if isinstance(given, str) else given:
            parts = urlsplit(url if "://" in str(url) else f"http://{url}")
            yield f"{parts.scheme}://{parts.netloc}"
    elif "inference" in toml and not slurm:
        host = _table(toml, "inference", "server").get("host")
        here = host in (None, "0.0.0.0", "::", *_NONE)
        yield f"http://{'localhost' if here else host}:{_engine_port(toml)}"


def _client_port(toml: Mapping[str, Any]) -> int | None:
    url = _table(toml, "orchestrator", "model", "client").get("base_url")
    try:
        return urlsplit(str(url)).port if url is not None else _SERVER_PORT
    except ValueError:
        return None  # which Prime-RL's classes are to tell


def _server_port(toml: Mapping[str, Any]) -> int:
    return _whole(_table(toml, "inference", "server").get("port"), _SERVER_PORT)


def _engine_port(toml: Mapping[str, Any]) -> int:
    inference = _table(toml, "inference")
    if inference.get("router") in _NONE:
        return _server_port(toml)
    return _whole(inference.get("backend_port"), _server_port(toml) + _BEHIND_ROUTER)


def _table(table: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    value: Any = table
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return dict(value) if isinstance(value, Mapping) else {}


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
