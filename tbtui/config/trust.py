"""Who may name code, hosts and paths: which settings need it (`About.trust`), and what a run
directory or a checkpoint may say of them.

A person names them on the command line, or in a file that is named there. What a run directory
says is data: it may come from anywhere. It is believed where it says, to the letter, what this
user has started a run with before on this machine: a digest of that is kept in the user's own
state directory, which no run directory can reach. Anything else has to be repeated once. The
guide has the whole table (`tbtui/guide/trust.md`, "What a file may say").
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tbtui.config.settings import RunConfig, Trust
from tbtui.config.table import settings
from tbtui.config.values import ConfigError, to_json
from tbtui.paths import state_dir

_WORDS: Mapping[Trust, str] = {
    "code": "code, or rights, that trials or the run would have",
    "class": "code that would be imported",
    "host": "a host that would be talked to, with your keys",
    "path": "a path that would be read",
    "alert": "a command that would be run, or a host that would be sent the run's alerts",
}


def claims(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that need trust and have a value, `table.entry` for each entry of a table.

    A default never does: it is ours.
    """
    found: dict[str, Any] = {}
    for name, setting in settings().items():
        value = values.get(name)
        if setting.about.trust is None or value in (None, [], {}) or value == setting.default:
            continue
        if name == "agent_examples" and str(value).isdecimal():
            continue  # how many, and no path
        if setting.is_table:
            found |= {f"{name}.{entry}": each for entry, each in value.items()}
        elif setting.about.trust != "class" or _is_class(value):
            found[name] = value
    return found


def require_trusted(
    said: Mapping[str, Any], where: Path, repeated: Collection[str], command: str
) -> None:
    """Refuse what only a run's own file names: code, hosts or paths that its user has not allowed.

    Args:
        said: JSON-like settings by name, as the file has them.
        where: the file.
        repeated: the settings (`table.entry` of a table) that the command line names itself.
        command: what was typed, as far as a person has to type it again.

    Raises:
        ConfigError: one line with what is named, and what to type to allow it.
    """
    named = claims(said)
    if not named or _note(named, where.parent).is_file():
        return
    missing = {name: value for name, value in named.items() if name not in repeated}
    if missing:
        first = next(iter(missing))
        trust = settings()[first.partition(".")[0]].about.trust
        assert trust is not None
        others = len(missing) - 1
        more = f" (and {others} more such setting{'s' * (others > 1)})" if others else ""
        again = " ".join(shlex.quote(f"{name}={_text(each)}") for name, each in missing.items())
        raise ConfigError(
            f"{first!r} in {where} names {_WORDS[trust]}{more}, and that is not from a run you"
            f" started on this machine; repeat it to allow it: {command} {again}"
        )
    _remember(named, where.parent)


def remember(config: RunConfig, directory: Path) -> None:
    """A person has said all of this for the run in `directory`: what says the same is believed from
    now on. Where it can't be written down, resuming asks again."""
    if named := claims(to_json(config)):
        _remember(named, directory)


def _remember(named: Mapping[str, Any], directory: Path) -> None:
    note = _note(named, directory)
    with contextlib.suppress(OSError):
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.touch(mode=0o600)


def _note(named: Mapping[str, Any], directory: Path) -> Path:
    """An empty file for all of it together: two harmless ones may be harmful beside each other."""
    import hashlib  # few runs name anything

    # A run of Prime-RL's keeps a copy of the file, which is used in its place.
    place = str(directory) if "prime_rl_config" in named else ""
    text = json.dumps([place, named], sort_keys=True)
    return state_dir() / "trusted" / hashlib.sha256(text.encode()).hexdigest()


def _is_class(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_class, value))
    return isinstance(value, str) and ":" in value and not value.startswith("cookbook:")


def _text(value: Any) -> str:
    """As it is written on the command line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    return json.dumps(value)
