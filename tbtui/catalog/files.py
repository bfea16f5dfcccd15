"""Whether a task directory holds the files that Harbor needs to run and to judge it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tbtui.catalog.defects import TaskReader
from tbtui.catalog.schema import EnvironmentSection, TaskFile, VerifierSection

_ENVIRONMENT_FILES = ("Dockerfile", "docker-compose.yaml")


def check_environment(reader: TaskReader) -> None:
    """An environment is built from a Dockerfile or a compose file."""
    if any(reader.has(f"environment/{name}") for name in _ENVIRONMENT_FILES):
        return
    reader.report(
        "environment",
        "no Dockerfile or docker-compose.yaml"
        if (reader.path / "environment").is_dir()
        else "missing environment directory",
        "add environment/Dockerfile, or name an image with [environment] docker_image",
    )


def check_tests(reader: TaskReader, parsed: TaskFile | None) -> None:
    """Every verdict needs a test script, unless a verifier image brings its own."""
    steps = parsed.steps if parsed else None
    if parsed is None or not steps:
        places: list[tuple[tuple[str, ...], list[VerifierSection]]] = [
            (("tests",), [parsed.verifier] if parsed else [])
        ]
    else:
        places = [
            ((f"steps/{step.name}/tests", "tests"), [step.verifier, parsed.verifier])
            for step in steps
        ]
    for directories, verifiers in places:
        if _image_brings_tests(reader, directories, verifiers):
            continue
        script = "test.bat" if _verifier_os(parsed, verifiers) == "windows" else "test.sh"
        if not any(reader.has(f"{place}/{script}") for place in directories):
            file = f"{directories[0]}/{script}"
            reader.report(
                file, f"missing {file}", "add the script that writes /logs/verifier/reward.txt"
            )


def _separate_environments(verifiers: Sequence[VerifierSection]) -> list[EnvironmentSection] | None:
    """Environments of a verifier that runs apart (may be empty), or None when it shares ours."""
    for verifier in verifiers:
        if verifier.environment_mode == "shared":
            return None
        if verifier.runs_apart:
            return [each.environment for each in verifiers if each.environment is not None]
    return None


def _image_brings_tests(
    reader: TaskReader, directories: Sequence[str], verifiers: Sequence[VerifierSection]
) -> bool:
    environments = _separate_environments(verifiers)
    if environments is None:
        return False
    return any(environment.docker_image for environment in environments) or any(
        reader.has(f"{directory}/{file}")
        for directory in directories
        for file in _ENVIRONMENT_FILES
    )


def _verifier_os(parsed: TaskFile | None, verifiers: Sequence[VerifierSection]) -> str:
    if parsed is None:
        return "linux"
    for environment in _separate_environments(verifiers) or ():
        if "os" in environment.model_fields_set:
            return environment.os
    return parsed.environment.os


def check_links(reader: TaskReader, tree: Path) -> None:
    """Harbor refuses a task whose tests, solution or steps link out of the task's directory."""
    if not tree.is_dir():
        return
    root = reader.path.resolve()
    for directory, subdirectories, files in os.walk(tree):
        for name in (*subdirectories, *files):
            entry = Path(directory, name)
            if entry.is_symlink() and not entry.resolve().is_relative_to(root):
                reader.report(
                    str(entry.relative_to(reader.path)),
                    f"symbolic link out of the task, to {entry.readlink()}",
                    "copy the file into the task",
                )
