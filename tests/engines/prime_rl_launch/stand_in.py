"""A checkout of Prime-RL in which nothing is real but the places of things, and its launcher's
stand-in."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from tbtui.config.toml import toml_text
from tbtui.engines.prime_rl.launch.checkout import CLASSES
from tbtui.engines.prime_rl.settings_to_toml import PLUGIN

from . import stand_in_rl

REPOSITORY = Path(__file__).parents[3]

CONFIG_CLASSES = """
from pydantic import BaseModel

class RLConfig(BaseModel, extra="allow"):
    max_steps: int
"""
_GIT = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]


ANSWERS = """#!/bin/sh
case "$2" in
*tbtui_harbor*) echo '{"tbtui": "%s", "verifiers": "0.4.0"}' ;;
*RLConfig*) cat > /dev/null; echo '[]' ;;
esac
"""


def make_checkout(directory: Path, *, python_answers: bool = False) -> Path:
    """A repository with an environment. Its Python is this one, with stand-ins for Prime-RL's
    classes and for the plugin; or, quicker, no Python at all, and never has a complaint."""
    package = directory / CLASSES / "prime_rl" / "configs"
    package.mkdir(parents=True)
    (package / "rl.py").write_text(CONFIG_CLASSES)
    modules = directory / "modules"
    modules.mkdir()
    (modules / "tbtui_harbor.py").write_text("")
    programs = directory / ".venv" / "bin"
    programs.mkdir(parents=True)
    path = os.pathsep.join(map(str, (directory / CLASSES, modules, REPOSITORY)))
    python = f"#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {shlex.quote(sys.executable)}"
    own = ANSWERS % version("tbtui") if python_answers else f'{python} "$@"\n'
    program(programs / "python", own)
    program(programs / "rl", f'{python} {shlex.quote(stand_in_rl.__file__)} "$@"\n')
    git(directory, "init", "--quiet")
    git(directory, "commit", "--quiet", "--allow-empty", "-m", "nothing")
    return directory


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def git(directory: Path, *words: str) -> str:
    command = ["git", "-C", str(directory), *_GIT, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        port: int = listener.getsockname()[1]
        return port


def a_file(tasks: Path, max_steps: int = 2) -> dict[str, Any]:
    """What Prime-RL's file may look like, on ports of its own."""
    port = free_port()
    return {
        "max_steps": max_steps,
        "model": {"name": "Qwen/Qwen3-4B"},
        "ckpt": {"interval": 1},
        "trainer": {"model": {"lora": {"rank": 8, "alpha": 16}}},
        "orchestrator": {
            "batch_size": 2,
            "group_size": 2,
            "model": {"client": {"base_url": f"http://localhost:{port}/v1"}},
            "env_server_base_port": free_port(),
            "train": {
                "source": [
                    {
                        "name": "tb",
                        "env": {
                            "taskset": {"id": PLUGIN, "tasks_dir": str(tasks)},
                            "agent": {"harness": {"id": PLUGIN}},
                        },
                    }
                ]
            },
        },
        "inference": {"server": {"port": port}, "backend_port": free_port()},
        "deployment": {"num_train_gpus": 1, "num_infer_gpus": 1, "gpus_per_node": 2},
    }


def write_file(path: Path, toml: dict[str, Any]) -> Path:
    path.write_text(toml_text(toml))
    return path


def living(pids: Path) -> list[int]:
    """The processes that still run, among those that the stand-in wrote down."""
    if not pids.exists():
        return []
    found = []
    for pid in map(int, pids.read_text().split()):
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found
