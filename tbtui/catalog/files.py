"""Whether a task directory holds the files that Harbor needs to run and to judge it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tbtui.catalog.defects import TaskReader
from tbtui.catalog.harbor import harbor_version, refusal

if TYPE_CHECKING:
    from harbor.models.task.config import StepConfig, TaskConfig

_ENVIRONMENT_FILES = ("Dockerfile", "docker-compose.yaml")
_INPUTS = ("tests", "solution")
_IGNORE_FILE = ".harborignore"


def check_environment(reader: TaskReader, image: str | None) -> None:
    """An environment is an image, or built from a Dockerfile or a compose file."""
    files = [f"environment/{name}" for name in _ENVIRONMENT_FILES]
    inside = [reader.is_inside(file) for file in files]
    if image is not None or not all(inside) or any(map(reader.has, files)):
        return
    reader.report(
        "environment",
        "no Dockerfile or docker-compose.yaml"
        if (reader.path / "environment").is_dir()
        else "missing environment directory",
        "add environment/Dockerfile, or name an image with [environment] docker_image",
    )


def check_inputs(reader: TaskReader, config: TaskConfig | None) -> None:
    """What Harbor copies into the environment: tests and solution, of each step too.

    Where more than a look at names is needed, Harbor decides; the finding then names each file
    where that is known, else it has Harbor's words. Without a `config` (task.toml is broken) only
    what every task must have is checked.
    """
    if config is None:
        _require_script(reader, "tests/test.sh")
        return
    if _is_plain(reader, config):
        return
    if (reason := refusal(reader.path)) is None:
        return
    _report_scripts(reader, config)
    for tree in (*_INPUTS, *(f"steps/{step.name}" for step in config.steps or ())):
        _report_links(reader, reader.path / tree)
    if not reader.defects:
        reader.report("", f"{harbor_version()} refuses it: {reason}", "correct it as Harbor asks")


def _is_plain(reader: TaskReader, config: TaskConfig) -> bool:
    """The usual task, without anything that Harbor's versions could see differently."""
    from harbor.models.task.config import TaskOS, VerifierEnvironmentMode
    from harbor.models.task.verifier_mode import resolve_task_verifier_mode

    return (
        not config.steps
        and config.environment.os == TaskOS.LINUX
        and resolve_task_verifier_mode(config) == VerifierEnvironmentMode.SHARED
        and reader.has("instruction.md")
        and reader.has("tests/test.sh")
        and not any(_has_links_or_rules(reader.path / tree) for tree in _INPUTS)
    )


def _has_links_or_rules(tree: Path) -> bool:
    """Whether some file below is a link, or says which of the others Harbor leaves out."""
    if tree.is_symlink():
        return True
    waiting = [str(tree)]
    for directory in waiting:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_symlink() or entry.name == _IGNORE_FILE:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return True  # Harbor says what it makes of it
    return False


def _report_scripts(reader: TaskReader, config: TaskConfig) -> None:
    steps: list[StepConfig | None] = [*config.steps] if config.steps else [None]
    for step in steps:
        script = _expected_script(config, step)
        if script is not None:
            here = f"steps/{step.name}/{script}" if step is not None else script
            _require_script(reader, here, script)


def _expected_script(config: TaskConfig, step: StepConfig | None) -> str | None:
    """Name of the test script that the task must bring: one whose verifier shares the agent's
    environment does; a separate verifier may have its image's own (None)."""
    from harbor.models.task.config import TaskOS
    from harbor.models.task.verifier_mode import resolve_effective_verifier_env_config

    if resolve_effective_verifier_env_config(config, step) is not None:
        return None
    return "tests/test.bat" if config.environment.os == TaskOS.WINDOWS else "tests/test.sh"


def _require_script(reader: TaskReader, script: str, *others: str) -> None:
    if not any(reader.has(file) for file in (script, *others)):
        reader.report(
            script, f"missing {script}", "add the script that writes /logs/verifier/reward.txt"
        )


def _report_links(reader: TaskReader, tree: Path) -> None:
    """Each link out of the task, once; what lies behind it is not looked at."""
    if not reader.is_inside(str(tree.relative_to(reader.path))):
        return
    for directory, subdirectories, files in os.walk(tree):
        for name in (*subdirectories, *files):
            if (path := Path(directory, name)).is_symlink():
                reader.is_inside(str(path.relative_to(reader.path)))
