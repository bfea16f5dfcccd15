"""The file that `rl` is given: from our settings, or one of Prime-RL's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.config import ConfigError, RunConfig, default_of, settings, to_json
from tbtui.config.problems import Problem, require_no_errors
from tbtui.config.toml import read_toml
from tbtui.engines.prime_rl.config_checks import prime_rl_problems
from tbtui.engines.prime_rl.document import Document
from tbtui.engines.prime_rl.launch.facts import run_directory, sources, uses_plugin
from tbtui.engines.prime_rl.migrate import migrate
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN, prime_rl_config

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
    """The same, writing into `place`, a run directory of ours; what was otherwise is listed.

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
            f' ".../checkpoints/step_{step}", or `tbtui run --resume RUN` to go on with one of'
            " tbtui's"
        )
    return document


def _put(document: Document, key: str, value: str, reason: str) -> None:
    before = document.get(key)
    document.set(key, value)
    if before not in (None, value):
        document.record(f"{key} = {before}", f"{key} = {value}", reason)


def _beside_a_file(config: RunConfig) -> Iterator[Problem]:
    values = to_json(config)
    for name, setting in settings().items():
        # A run's own config.toml spells out every default, so that being given says nothing.
        if setting.prime_rl.ours or name in _BESIDE_A_FILE:
            continue
        if getattr(config, name) == default_of(name, values):
            continue
        keys = [key.replace("[]", "") for key in setting.prime_rl.keys]
        where = f"set {keys[0]} there" if keys else "leave it out"
        yield Problem(
            "error", f"{name}={values[name]}: {config.prime_rl_config} is taken as it is; {where}"
        )
