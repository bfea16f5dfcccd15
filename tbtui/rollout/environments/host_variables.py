"""Which variables of this host a task takes, and which of them it is not given unasked.

Task.toml may name any variable as `${NAME}`, and gets its value: a credential, too. So those that
look like one are given only where `task_credentials` names them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.findings import Unusable
from tbtui.rollout.environments.suitability import task_table
from tbtui.terminal import visible

_LONGEST_NAME, _MOST_NAMED = 80, 40
_PASSWORD = re.compile(r"//[^/@\s]*:[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class HostVariable:
    """A variable of the host that a task takes."""

    name: str
    section: str
    """The table of task.toml that names it, such as `verifier.env`."""
    required: bool = True
    """There is no default for it."""

    @property
    def of_solution(self) -> bool:
        """Whether only the task's own solution takes it."""
        return self.section == "solution.env"


def host_variables(task: Path) -> tuple[HostVariable, ...]:
    """The variables that task.toml takes from the host (`${NAME}`, `${NAME:-default}`).

    In every table `env` at any depth (the environment's, the verifier's, a step's, the
    solution's), and in the headers of MCP servers.
    """
    found = dict.fromkeys(_in_table(task_table(task), ""))
    return tuple(found)


def _in_table(table: Mapping[str, Any], above: str) -> Iterator[HostVariable]:
    # Settings are checked and refused before anything of Harbor's is imported.
    from harbor.utils.env import get_required_host_vars

    for key, value in table.items():
        place = f"{above}{key}"
        if place == "metadata":
            continue
        if key == "env" and isinstance(value, dict):
            texts = {name: text for name, text in value.items() if isinstance(text, str)}
            for variable, default in get_required_host_vars(texts):
                yield HostVariable(variable, place, default is None)
        elif key == "headers" and isinstance(value, dict):
            for text in value.values():
                for variable, default in _in_header(str(text)):
                    yield HostVariable(variable, place, default is None)
        elif isinstance(value, dict):
            yield from _in_table(value, f"{place}.")
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, dict):
                    yield from _in_table(each, f"{place}.")


def _in_header(text: str) -> Sequence[tuple[str, str | None]]:
    """Names of variables in a header, each with its default."""
    try:
        from harbor.utils.env import embedded_env_var_templates
    except ImportError:
        return ()  # this Harbor sends headers as they stand
    return embedded_env_var_templates(text)


def is_credential(name: str, value: str) -> bool:
    """Whether a variable of the host looks like a secret, by its name or as an address with a
    password in it."""
    from harbor.utils.env import is_sensitive_env_key

    if not value:
        return False
    return is_sensitive_env_key(name) or _PASSWORD.search(value) is not None


def unusable_for_variables(
    variables: Iterable[HostVariable],
    host: Mapping[str, str],
    *,
    solution: bool,
    allowed: Collection[str] = (),
) -> tuple[Unusable, ...]:
    """Variables that `host` lacks, or that a task is not given.

    Args:
        solution: Whether the task's own solution runs, too.
        allowed: The names of credentials that tasks may take.
    """
    used = [each for each in variables if solution or not each.of_solution]
    return tuple(found for each in used if (found := _unusable(each, host, allowed)) is not None)


def _unusable(
    variable: HostVariable, host: Mapping[str, str], allowed: Collection[str]
) -> Unusable | None:
    name, value = variable.name, host.get(variable.name)
    said = f"task.toml: [{shown(variable.section)}]"
    if value is None:
        text = f"{said} needs {shown(name)}, which is not set: export {shown(name)}"
        return Unusable("variables", text) if variable.required else None
    if name in allowed or not is_credential(name, value):
        return None
    return Unusable(
        "credentials",
        f"{said} takes {shown(name)}, a credential of yours:"
        f" task_credentials={shown(name)} gives it to tasks",
    )


def listed(variables: Iterable[HostVariable]) -> str:
    """The names of variables, each once; never what is in them. Empty where there are none."""
    names = sorted({each.name for each in variables})
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(shown(name) for name in names[:_MOST_NAMED]) + more


def shown(name: str) -> str:
    """A name out of a task's file, fit for a line."""
    return visible(name[:_LONGEST_NAME])
