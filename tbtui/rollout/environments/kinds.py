"""The kinds of environment the installed Harbor has, and what each needs installed.

Harbor is imported when one of these is called and not before: the default sandbox needs none of
it.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tbtui.imports import import_named
from tbtui.invocation import to_type
from tbtui.rollout.environments.base import EnvironmentUnavailable, ExtraMissing

if TYPE_CHECKING:
    from packaging.requirements import Requirement

OWN_KINDS = ("sandbox", "docker", "podman")
"""Those this package has a class of its own for."""


def harbor_kinds() -> tuple[str, ...]:
    """Every name that Harbor's `environment.type` takes."""
    from harbor.models.environment_type import EnvironmentType

    return tuple(kind.value for kind in EnvironmentType)


def require_known(name: str) -> None:
    """Raises `EnvironmentUnavailable` with the nearest name for one that is unknown."""
    known = sorted({*OWN_KINDS, *harbor_kinds()})
    if name in known:
        return
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = (
        f"did you mean {nearest[0]}? `{to_type('doctor')}` lists them all"
        if nearest
        else f"there are {', '.join(known)}, and your own as module:Class"
    )
    raise EnvironmentUnavailable(
        f"environment_type={name}: unknown to tbtui and Harbor {_harbor_version()}: {hint}"
    )


def harbor_class(name: str) -> type[Any]:
    """Harbor's class for a kind it knows.

    Raises:
        ExtraMissing: what it imports is not installed.
    """
    from harbor.environments.factory import _load_environment_class
    from harbor.models.environment_type import EnvironmentType

    extra = extra_of(name)
    if extra is not None:
        require_extra(name, extra)
    try:
        return _load_environment_class(EnvironmentType(name))
    except ImportError as problem:
        raise missing_import(name, problem) from problem


def extra_of(name: str) -> str | None:
    """Harbor's extra with the packages that a kind imports; None where it needs none."""
    from harbor.environments.factory import _ENVIRONMENT_REGISTRY
    from harbor.models.environment_type import EnvironmentType

    entry = _ENVIRONMENT_REGISTRY.get(EnvironmentType(name))
    return entry.pip_extra if entry is not None else None


def require_extra(name: str, extra: str) -> None:
    """Raises `ExtraMissing` unless the packages of Harbor's `extra` are installed."""
    wanted = list(_requirements(extra))
    here = [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": extra})]
    if wanted and not here:
        raise EnvironmentUnavailable(
            f"environment_type={name}: {wanted[0].name} does not exist for {sys.platform} on this"
            " processor: choose another environment_type"
        )
    missing = [str(_plain(one)) for one in here if not _installed(one)]
    if missing:
        raise ExtraMissing(
            f"environment_type={name}: not installed: {', '.join(missing)}: {_remedy(extra)}"
        )


def missing_import(name: str, problem: ImportError) -> EnvironmentUnavailable:
    """The message for a class that can't be imported."""
    extra = _extra_with((problem.name or "").partition(".")[0])
    line = f"environment_type={name}: {one_line(problem)}"
    if extra is None:
        return EnvironmentUnavailable(f"{line}: install the package that has it")
    return ExtraMissing(f"{line}: {_remedy(extra)}")


def own_class(import_path: str) -> type[Any]:
    """The class behind `module:Class`, of what is installed or in `PYTHONPATH`.

    The working directory is not searched, here or in a worker: what lies there may not be trusted.

    Raises:
        EnvironmentUnavailable: no such module or class, or it is no environment.
    """
    from harbor.environments.base import BaseEnvironment

    module_name, _, name = import_path.partition(":")
    given = f"environment_type={import_path}"
    try:
        module = import_named(module_name)
    except ModuleNotFoundError as problem:
        if problem.name and f"{module_name}.".startswith(f"{problem.name}."):
            raise EnvironmentUnavailable(
                f"{given}: no module {problem.name}: install it, or put the directory it is in into"
                " PYTHONPATH"
            ) from problem
        raise missing_import(import_path, problem) from problem
    except (ImportError, SyntaxError) as problem:
        raise EnvironmentUnavailable(
            f"{given}: importing {module_name} fails: {one_line(problem)}"
        ) from problem
    except Exception as problem:
        raise EnvironmentUnavailable(
            f"{given}: importing {module_name} fails: {type(problem).__name__}: {one_line(problem)}"
        ) from problem
    found = module.__dict__.get(name)
    classes = [key for key, value in module.__dict__.items() if _is_environment(value)]
    if found is None:
        nearest = difflib.get_close_matches(name, classes, n=1) or classes[:1]
        hint = f": did you mean {nearest[0]}?" if nearest else ": it has no environment at all"
        raise EnvironmentUnavailable(f"{given}: {module_name} has no {name}{hint}")
    if not isinstance(found, type) or not issubclass(found, BaseEnvironment):
        raise EnvironmentUnavailable(
            f"{given}: {name} is no environment: derive it from"
            " harbor.environments.base.BaseEnvironment"
        )
    if inspect.isabstract(found):
        lacking = ", ".join(sorted(found.__abstractmethods__))
        raise EnvironmentUnavailable(f"{given}: {name} is not complete: write its {lacking}")
    return found


def _is_environment(value: object) -> bool:
    from harbor.environments.base import BaseEnvironment

    return isinstance(value, type) and issubclass(value, BaseEnvironment)


def _requirements(extra: str) -> Iterator[Requirement]:
    from packaging.requirements import Requirement

    for line in importlib.metadata.requires("harbor") or ():
        requirement = Requirement(line)
        marker = str(requirement.marker or "")
        if f'extra == "{extra}"' in marker:
            yield requirement


def _extra_with(module: str) -> str | None:
    """An extra of Harbor's whose packages have a module of this name, as far as names show."""
    from packaging.requirements import Requirement

    for line in importlib.metadata.requires("harbor") or ():
        requirement = Requirement(line)
        marker = str(requirement.marker or "")
        if requirement.name.replace("-", "_") == module and "extra == " in marker:
            return marker.partition('extra == "')[2].partition('"')[0]
    return None


def _installed(requirement: Requirement) -> bool:
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def _plain(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"


def _remedy(extra: str) -> str:
    ours = importlib.metadata.metadata("tbtui").get_all("Provides-Extra") or []
    if extra in ours:
        return f"uv sync --extra {extra}, or pip install 'tbtui[{extra}]'"
    return f"pip install 'harbor[{extra}]=={_harbor_version()}'"


def _harbor_version() -> str:
    return importlib.metadata.version("harbor")


def one_line(problem: BaseException) -> str:
    """An exception's message, without line breaks or a full stop."""
    return " ".join(str(problem).split()).rstrip(".")
