"""Where settings come from, and which source wins.

1. `name=value` on the command line.
2. TOML files named on the command line; of several the later one wins.
3. The defaults, of which some follow the model, its server or the environment (`defaults_for`).

A table's entries are taken one by one from each. No environment variable is a setting: a run is
what its files and its command line say. What a run directory says is believed only so far
(`trust.py`).

`.env` in the current directory is for keys of services alone, which go into the process's
environment: the directory may be a cloned repository, whose `.env` could otherwise make Python
import something else (`PYTHONPATH`), the linker load something else (`LD_PRELOAD`), or keys go
somewhere else (`OPENAI_BASE_URL`, `HTTPS_PROXY`).
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from tbtui.config.earlier import as_now
from tbtui.config.settings import RunConfig
from tbtui.config.table import settings
from tbtui.config.toml import TOO_DEEP, read_toml
from tbtui.config.trust import require_trusted
from tbtui.config.values import (
    ConfigError,
    asked_for,
    defaults_for,
    read_entry,
    read_value,
    require_setting,
    to_json,
)
from tbtui.paths import read_plain
from tbtui.terminal import visible

DEFAULT = "default"
"""On the command line: takes back what a file says. A text or path can't be reset like that."""

PRIME_RL_TABLES = ("orchestrator", "trainer", "inference")
"""A file with one of these is no file of ours, but one of Prime-RL's, which is taken as it is."""


def parse_settings(arguments: Sequence[str], *, files: Sequence[Path] = ()) -> RunConfig:
    """`name=value` arguments, and TOML files among them, to a config.

    `files` are a run's own, and come before those among the arguments: what they ask for that is
    gone is left out (`earlier.py`).

    Raises:
        ConfigError: a malformed argument or file, an unknown name (the nearest known one is
            suggested), a repeated name, or a value of the wrong type or out of range.
    """
    named = [argument for argument in arguments if is_file(argument)]
    values: dict[str, Any] = {}
    for file in files:
        _merge(values, _read_file(file, of_a_run=True))
    for file in map(Path, named):
        _merge(values, _read_file(file))
    in_files, given = set(values), set[str]()
    for name, entry, text in _split(a for a in arguments if a not in named):
        setting = require_setting(name)
        given.add(name)
        if setting.is_table:
            _merge(values, {name: {entry: read_entry(setting, entry, _literal(text))}})
        elif text == DEFAULT and setting.kind not in ("text", "path", "list"):
            values.pop(name, None)
            given.discard(name)
        else:
            values[name] = read_value(setting, text, text=True)
    given |= asked_for(values) & in_files
    defaults = {name: default.value for name, default in defaults_for(values).items()}
    return RunConfig(**(defaults | values), given=frozenset(given))


def parse_run_settings(
    file: Path,
    changed: Sequence[str],
    arguments: Sequence[str],
    *,
    command: str,
    replaced: Collection[str] = (),
) -> RunConfig:
    """The settings that a run's `config.toml` has, and `arguments` over them.

    Args:
        changed: `name=value` of what was changed after the file was written, as its journal says.
        arguments: what a person has typed.
        command: what that person types again, with the settings that the run may not decide.
        replaced: settings that the caller replaces, whatever the run says.

    Raises:
        ConfigError: as `parse_settings`; or the run names code, hosts or paths that no trusted
            source has named (`trust.require_trusted`).
    """
    own = to_json(parse_settings(changed, files=[file]))
    require_trusted(own, file, {*names_typed(arguments), *replaced}, command)
    names = names_of(arguments)
    still = [each for each in changed if each.partition("=")[0].partition(".")[0] not in names]
    return parse_settings([*still, *arguments], files=[file])


def names_typed(arguments: Iterable[str]) -> set[str]:
    """The settings that arguments and the files among them name; `table.entry` of a table."""
    typed = set()
    for argument in arguments:
        if not is_file(argument):
            typed.add(argument.partition("=")[0])
            continue
        for name, value in _read_file(Path(argument)).items():
            is_table = settings()[name].is_table
            typed |= {f"{name}.{entry}" for entry in value} if is_table else {name}
    return typed


def is_file(argument: str) -> bool:
    """Whether an argument names a TOML file; with a `=` in its name it has to exist."""
    # os.path: of a text that no path can have, too.
    return argument.endswith(".toml") and ("=" not in argument or os.path.isfile(argument))  # noqa: PTH113


def names_of(arguments: Iterable[str]) -> set[str]:
    """The settings that are given as `name=value`; of `table.entry=value` the table."""
    texts = (argument for argument in arguments if not is_file(argument))
    return {text.partition("=")[0].partition(".")[0] for text in texts}


def _split(arguments: Iterable[str]) -> Iterable[tuple[str, str, str]]:
    """(setting, entry of a table or empty, text) of each argument."""
    seen: set[str] = set()
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals or not name:
            raise ConfigError(
                f"{argument!r} is not a setting; write name=value, or the name of a TOML file"
            )
        if name in seen:
            raise ConfigError(f"setting {name!r} is given twice")
        seen.add(name)
        table, dot, entry = name.partition(".")
        is_table = require_setting(table).is_table
        if is_table != bool(dot and entry):
            raise ConfigError(
                f"{table} is a table; write {table}.NAME=VALUE"
                if is_table
                else f"{table} is not a table; write {table}=VALUE"
            )
        yield table, entry, text


def _merge(values: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        is_table = settings()[name].is_table
        values[name] = {**values.get(name, {}), **value} if is_table else value


def _read_file(path: Path, *, of_a_run: bool = False) -> dict[str, Any]:
    values, gone = as_now(read_toml(path))
    if any(isinstance(values.get(name), dict) for name in PRIME_RL_TABLES):
        return {"engine": "prime-rl", "prime_rl_config": path.absolute()}
    where = f"{path}: "
    if gone and not of_a_run:
        raise ConfigError(where + gone)
    return {
        name: read_value(require_setting(name, where), value, where)
        for name, value in values.items()
    }


def _literal(text: str) -> Any:
    """What a table's entry holds: JSON where it is that (numbers, true, lists), else the text."""
    try:
        return json.loads(text)
    except ValueError:  # of a number with too many digits, too
        return text
    except RecursionError as error:
        raise ConfigError(f"{text[:20]}...: {TOO_DEEP}") from error


# Keys of services

KEYS = frozenset(
    {
        # Models, and where they come from
        "TINKER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "PRIME_API_KEY",
        "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN",
        # Where metrics go, and who may look
        "WANDB_API_KEY", "TBTUI_SERVE_TOKEN",
        # Where trials run: Harbor's environments
        "BEAM_TOKEN", "BL_API_KEY", "CUA_CLIENT_ID", "CUA_CLIENT_SECRET", "CWSANDBOX_API_KEY",
        "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN", "E2B_API_KEY", "HYPERBROWSER_API_KEY",
        "ISLO_API_KEY", "LANGCHAIN_API_KEY", "LANGSMITH_API_KEY", "MODAL_TOKEN_ID",
        "MODAL_TOKEN_SECRET", "MOSAIC_API_TOKEN",
        "MOSAIC_REGISTRY_PASSWORD", "MOSAIC_REGISTRY_USERNAME", "NOVITA_API_KEY",
        "OPENSANDBOX_API_KEY", "RUNLOOP_API_KEY", "RUNTA_TOKEN", "TENSORLAKE_API_KEY",
        "USE_COMPUTER_API_KEY", "VERCEL_OIDC_TOKEN", "VERCEL_TOKEN",
        # With whose account: an identifier goes with its key
        "DAYTONA_ORGANIZATION_ID", "VERCEL_PROJECT_ID", "VERCEL_TEAM_ID",
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    }
)  # fmt: skip
"""What `.env` may set."""
_OF_OTHERS = frozenset({"OPENAI_BASE_URL"})
"""Variables of other programs that are called as a setting is."""
_MOST_NAMED = 8


def load_secrets(directory: Path) -> str:
    """Load the keys of `directory`'s `.env`, if there is one; what is set already stays.

    No value is written or printed anywhere. Returns a line that names what was left out, empty if
    nothing was.

    Raises:
        ConfigError: it can't be read, or holds a setting of the run.
    """
    path = directory / ".env"
    if not path.exists():
        return ""
    from dotenv import dotenv_values  # takes 50 ms, and most runs have no such file

    try:
        text = read_plain(path.resolve()).decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error
    # Values are taken as they stand: nothing of the environment is put into them.
    secrets = dotenv_values(stream=io.StringIO(text), interpolate=False)
    if any("\0" in f"{name}{value}" for name, value in secrets.items()):
        raise ConfigError(f"{path}: it has a NUL character in it, which no secret can have")
    for name in secrets:
        if name.lower() in settings() and name not in _OF_OTHERS:
            raise ConfigError(
                f"{path}: {name.lower()} is a setting, and .env is for secrets; give it on the"
                " command line or in a TOML file"
            )
    for name in KEYS & secrets.keys():
        if (value := secrets[name]) is not None:
            os.environ.setdefault(name, value)
    others = [visible(name) for name in secrets if name not in KEYS]
    if not others:
        return ""
    named = ", ".join(others[:_MOST_NAMED]) + ", ..." * (len(others) > _MOST_NAMED)
    return f"{path}: {named} left out: .env is for keys only; set it in the environment"
