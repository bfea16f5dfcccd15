"""Whether a kind of environment can work here with its arguments, asked before the first trial.

Harbor's classes have a check of their own, which most services' keys are found out by. Where it
looks at nothing, what Harbor would trip over in the first trial is looked at here. Quotas are not
among it: no service says beforehand what it will refuse.

Harbor's base class swallows every keyword it does not know, so that a misspelt one changes nothing
in silence. Here it is refused.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from tbtui.rollout.environments.base import EnvironmentUnavailable
from tbtui.rollout.environments.kinds import (
    harbor_class,
    missing_import,
    one_line,
    own_class,
    require_known,
)

Kwargs = Mapping[str, Any]

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


def preflight(name: str, import_path: str | None, kwargs: Kwargs) -> None:
    """Look whether trials can run in this environment with these arguments.

    Args:
        name: As it was asked for; one of Harbor's kinds where there is no `import_path`.
        import_path: `module:Class`.
        kwargs: What the class is to be given.

    Raises:
        EnvironmentUnavailable: in one line, with the remedy.
    """
    if import_path is not None:
        environment = own_class(import_path)
    else:
        require_known(name)
        environment = harbor_class(name)
    require_known_arguments(environment, kwargs)
    if environment.__module__.startswith(f"{__package__}."):
        require_usable_values(environment, kwargs)
        _require_paths(kwargs.get("visible", ()))
    require_valid_options(name, environment, kwargs)
    _harbor_agrees(name, environment, kwargs)
    more = _UNCHECKED_BY_HARBOR.get(name)
    problem = more(kwargs) if more else None
    if problem is not None:
        raise EnvironmentUnavailable(f"environment_type={name}: {problem}")


def _require_paths(visible: Iterable[str]) -> None:
    for path in visible:
        if not os.path.exists(path):  # noqa: PTH110  False where that can't be seen
            raise EnvironmentUnavailable(
                f"environment_kwargs.visible: {path} does not exist on this host"
            )


def require_valid_options(name: str, environment: type[Any], kwargs: Kwargs) -> None:
    """Raises `EnvironmentUnavailable` for what Harbor's typed options lack, or can't be.

    Harbor has them since 0.26; of other classes it knows nothing.
    """
    if not hasattr(environment, "parse_options"):
        return
    try:
        environment.parse_options(_of_options(environment, kwargs))
    except ValueError as problem:
        lines = [line.strip() for line in str(problem).splitlines()]
        found = [_option_problem(line) for line in lines[1:-1]] or lines
        raise EnvironmentUnavailable(f"environment_type={name}: {'; '.join(found)}") from None


def _option_problem(line: str) -> str:
    option, _, says = line.partition(": ")
    if says == "Field required":
        return f"it needs environment_kwargs.{option}: give it"
    return f"environment_kwargs{'.' if says else ': '}{line.rstrip('.')}"


def _of_options(environment: type[Any], kwargs: Kwargs) -> dict[str, Any]:
    """What is left for the options when the constructors have taken theirs."""
    named, _ = _of_constructors(environment)
    return {key: value for key, value in kwargs.items() if key not in named}


def _harbor_agrees(name: str, environment: type[Any], kwargs: Kwargs) -> None:
    try:
        if "kwargs" in inspect.signature(environment.preflight).parameters:  # Harbor 0.26
            environment.preflight(kwargs=_of_options(environment, kwargs))
        else:
            environment.preflight()
    except SystemExit as refusal:
        # Harbor speaks to the one at the terminal by ending its program.
        said = one_line(refusal).replace(". Please ", ": ").removesuffix(" and try again")
        raise EnvironmentUnavailable(f"environment_type={name}: {said}") from None
    except ImportError as problem:
        raise missing_import(name, problem) from problem
    except Exception as problem:
        raise EnvironmentUnavailable(
            f"environment_type={name}: {environment.__name__}.preflight() fails with"
            f" {type(problem).__name__}: {one_line(problem)}"
        ) from problem


def _ack(kwargs: Kwargs) -> str | None:
    asked = kwargs.get("kubeconfig") or os.environ.get("KUBECONFIG")
    known = str(asked or Path.home() / ".kube" / "config").split(os.pathsep)
    if "KUBERNETES_SERVICE_HOST" in os.environ or any(Path(one).exists() for one in known):
        return None
    return f"no Kubernetes configuration at {known[0]}: set KUBECONFIG to where it is"


def _cwsandbox(kwargs: Kwargs) -> str | None:
    if kwargs.get("auth") == "wandb":
        if "WANDB_API_KEY" in os.environ or (Path.home() / ".netrc").exists():
            return None
        return "no key of Weights & Biases: wandb login, or set WANDB_API_KEY"
    return _variable("CWSANDBOX_API_KEY")


def _ec2(kwargs: Kwargs) -> str | None:
    import boto3  # type: ignore[import-untyped]

    session = boto3.Session(profile_name=kwargs.get("aws_profile"))
    if session.get_credentials() is not None:
        return None
    return "no AWS credentials: aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


def _islo(_: Kwargs) -> str | None:
    return _variable("ISLO_API_KEY")


def _opensandbox(kwargs: Kwargs) -> str | None:
    if kwargs.get("domain"):
        return None
    problem = _variable("OPENSANDBOX_DOMAIN")
    return f"{problem}, or environment_kwargs.domain, to the server's" if problem else None


def _prime(kwargs: Kwargs) -> str | None:
    if kwargs.get("api_key") or (Path.home() / ".prime" / "config.json").exists():
        return None
    problem = _variable("PRIME_API_KEY")
    return f"{problem}, or run `prime login`" if problem else None


def _sbx(kwargs: Kwargs) -> str | None:
    if kwargs.get("target") == "local":
        command = kwargs.get("sbx_command", "sbx")
        return None if shutil.which(command) else f"no command {command}: install Docker Sandboxes"
    tokens = {kwargs.get("token_env", "SBX_TOKEN"), "SBX_TOKEN_FILE"}
    named = {"SBX_DOCKER_USERNAME", "SBX_DOCKER_PAT"} <= os.environ.keys()
    if kwargs.get("token_file") or named or tokens & os.environ.keys():
        return None
    return (
        "no token of Docker's cloud: set SBX_DOCKER_USERNAME and SBX_DOCKER_PAT, or give"
        " environment_kwargs.target=local"
    )


def _singularity(_: Kwargs) -> str | None:
    if shutil.which("singularity"):
        return None
    return "there is no command `singularity`: install SingularityCE or Apptainer"


def _variable(name: str) -> str | None:
    return None if os.environ.get(name) else f"{name} is not set: set it"


_UNCHECKED_BY_HARBOR: Mapping[str, Callable[[Kwargs], str | None]] = MappingProxyType(
    {
        "ack": _ack,
        "cwsandbox": _cwsandbox,
        "ec2": _ec2,
        "islo": _islo,
        "opensandbox": _opensandbox,
        "prime": _prime,
        "sbx": _sbx,
        "singularity": _singularity,
    }
)


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
    """The keywords that mean something to the class, or None if that can't be determined.

    Those are the parameters of its constructor and of those it hands the rest on to, the keys
    that they read from their `kwargs` by name, and its options.
    """
    named, read = _of_constructors(environment)
    if None in read:
        return None
    options = _options_of(environment)
    return frozenset({*named, *(key for key in read if key), *options} - _FROM_THE_TRIAL)


def _of_constructors(environment: type[Any]) -> tuple[set[str], set[str | None]]:
    """The parameters' names, and the keys that are read from what they leave; None for some that
    can't be determined."""
    named: set[str] = set()
    read: set[str | None] = set()
    for owner in environment.__mro__:
        constructor = owner.__dict__.get("__init__")
        if owner is object or constructor is None:
            continue
        parameters = inspect.signature(constructor).parameters.values()
        named |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        rest = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
        if not rest:
            break
        try:
            constructor_text = inspect.getsource(constructor)
            module_text = inspect.getsource(inspect.getmodule(owner) or owner)
        except OSError:
            return named, {None}
        # Some keep the rest, and strategies in the same file look things up in it.
        read |= {*_keys(constructor_text, rest[0]), *_keys(module_text, "_kwargs")}
    return named, read


def _options_of(environment: type[Any]) -> set[str]:
    """The names of Harbor's typed options; none before Harbor 0.26."""
    if not hasattr(environment, "options_model") or environment.options_model is None:
        return set()
    schema = environment.options_schema()
    # Where one option decides which others there are, there is a schema for each choice.
    choices = [
        schema["$defs"][choice["$ref"].rpartition("/")[2]] for choice in schema.get("oneOf", ())
    ]
    return {name for each in choices or [schema] for name in each["properties"]}


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
