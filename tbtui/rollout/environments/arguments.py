"""What an environment class takes as `environment_kwargs`, and whether the values will do.

Harbor's base class swallows every keyword it does not know, so that a misspelt one changes
nothing and nobody is told. Here it is refused before the first trial.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from tbtui.rollout.environments.unavailable import EnvironmentUnavailable

_FROM_THE_TRIAL = frozenset(
    {
        "self",
        "environment_dir",
        "environment_name",
        "session_id",
        "trial_paths",
        "task_env_config",
        "logger",
        "mounts",
        "auto_mounts",
        "network_policy",
        "phase_network_policies",
        "stream",
        "enable_environment_dir_upload",
    }
)
"""Harbor's Trial gives these itself."""
_IN_WORDS = {bool: "true or false"}


def require_known_arguments(environment: type[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises `EnvironmentUnavailable` for the first keyword that the class does nothing with."""
    taken = arguments(environment) if kwargs else None
    if taken is None:
        return
    for given in kwargs:
        if given in _FROM_THE_TRIAL:
            raise EnvironmentUnavailable(
                f"environment_kwargs.{given}: each trial gives this itself: leave it out"
            )
        if given not in taken:
            nearest = difflib.get_close_matches(given, taken, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"it takes {_listed(taken)}"
            raise EnvironmentUnavailable(
                f"environment_kwargs.{given}: {environment.__name__} takes no such argument: {hint}"
            )


def require_usable_values(environment: type[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises `EnvironmentUnavailable` for the first value that is not of its parameter's type.

    For classes of this package: others' annotations promise nothing.
    """
    hints = get_type_hints(environment.__init__, include_extras=True)
    for name, value in kwargs.items():
        if name in hints:
            try:
                msgspec.convert(value, hints[name])
            except msgspec.ValidationError:
                raise EnvironmentUnavailable(
                    f"environment_kwargs.{name}={value}: should be {_expected(hints[name])}"
                ) from None


def _expected(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(get_args(hint))
    hints = [hint, *get_args(hint)]  # of a union: its parts
    metas = (meta for each in hints for meta in get_args(each) if isinstance(meta, msgspec.Meta))
    return next((meta.description for meta in metas if meta.description), None) or _IN_WORDS[hint]


def arguments(environment: type[Any]) -> frozenset[str] | None:
    """The keywords that mean something to the class, or None if that can't be told.

    Those are the parameters of its constructor and of those it hands the rest on to, and the
    keys that they read from their `kwargs` by name.
    """
    taken: set[str] = set()
    for owner in environment.__mro__:
        constructor = owner.__dict__.get("__init__")
        if owner is object or constructor is None:
            continue
        parameters = inspect.signature(constructor).parameters.values()
        taken |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        rest = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
        if not rest:
            break
        try:
            constructor_text = inspect.getsource(constructor)
            module_text = inspect.getsource(inspect.getmodule(owner) or owner)
        except OSError:
            return None
        # Some keep the rest, and strategies in the same file look things up in it.
        read = {*_keys(constructor_text, rest[0]), *_keys(module_text, "_kwargs")}
        if None in read:
            return None
        taken |= {key for key in read if key}
    return frozenset(taken - _FROM_THE_TRIAL)


def _listed(taken: frozenset[str]) -> str:
    from harbor.environments.base import BaseEnvironment

    common = arguments(BaseEnvironment) or frozenset()
    return ", ".join(sorted(taken - common) or sorted(taken))


def _keys(source: str, name: str) -> Iterator[str | None]:
    """Keys that a text reads from a mapping of that name; None for one that is not spelt out."""
    holder = rf"(?<![\w*]){name}"
    for found in re.finditer(rf"{holder}(?:\.(?:get|pop)\(|\[)\s*(?:[\"'](\w+)[\"'])?", source):
        yield found[1]
    for found in re.finditer(rf"[\"'](\w+)[\"']\s+(?:not\s+)?in\s+(?:self\.)?{name}\b", source):
        yield found[1]
