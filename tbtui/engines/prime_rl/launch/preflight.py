"""What Prime-RL needs of this machine, asked before anything of it starts: each answer is a line.

What only looks at files and ports is `at_once`. What runs Prime-RL's own Python, or may wait for a
driver, takes seconds: `questions`.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from tbtui.config import ConfigError
from tbtui.engines.gpus import local_gpus
from tbtui.engines.prime_rl.launch.checkout import Checkout, commit_warnings
from tbtui.engines.prime_rl.launch.facts import Facts

Level = Literal["ok", "warning", "error"]

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GB = 1_000_000_000
_ENOUGH_FREE_GB = 50
"""A checkpoint of Prime-RL's has the trainer's whole state."""
_BUSY = 0.1
"""More of a GPU's memory in use than this is somebody's."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`warning` also where something could not be asked."""

    level: Level
    text: str
    """One line: what it is about, what was found and what to do."""


def require(findings: Sequence[Finding]) -> None:
    """Raises `ConfigError` with the first error, and how many more there are."""
    errors = [finding.text for finding in findings if finding.level == "error"]
    if errors:
        more = len(errors) - 1
        rest = f" (and {more} more: `tbtui prime-rl check` lists them)" if more else ""
        raise ConfigError(errors[0] + rest)


def at_once(checkout: Checkout, facts: Facts, place: Path) -> list[Finding]:
    """What can be seen without waiting.

    Args:
        place: where the run's directory is or will be.
    """
    return [
        Finding("ok", f"Prime-RL: {checkout}"),
        *(Finding("warning", text) for text in commit_warnings(checkout)),
        *_slurm(facts),
        *_ports(facts),
        _disk(place),
    ]


def gpus(facts: Facts) -> list[Finding]:
    """Whether there are as many as the file wants. May wait for the driver: not for a loop."""
    if facts.slurm:
        return [Finding("ok", "GPUs: SLURM finds them")]
    wanted = f"{facts.gpus} wanted ({facts.train_gpus} to train, {facts.infer_gpus} to sample)"
    remedy = "give num_train_gpus and num_infer_gpus, or [deployment] of the file"
    found = local_gpus()
    visible = os.environ.get(_VISIBLE)
    if visible is not None:
        # As Prime-RL counts them.
        count = len([part for part in visible.split(",") if part.strip()])
        where = f"in {_VISIBLE}={visible}"
    elif not found.gpus:
        return [Finding("error", f"GPUs: {facts.gpus} wanted, none found: {found.problem}")]
    else:
        count, where = len(found.gpus), "here"
    if count < facts.gpus:
        return [Finding("error", f"GPUs: {wanted}, {count} {where}; {remedy}")]
    findings = [Finding("ok", f"GPUs: {wanted}, {count} {where}")]
    if not found.gpus:
        findings.append(Finding("warning", f"GPUs: not looked at: {found.problem}"))
    for gpu in found.gpus:
        used, total = gpu.memory_used_mib, gpu.memory_total_mib
        if used is not None and total and used > _BUSY * total and visible is None:
            text = f"GPU {gpu.index}: {used} of {total} MiB are in use; Prime-RL may run out"
            findings.append(Finding("warning", text))
    return findings


def _slurm(facts: Facts) -> Iterator[Finding]:
    if not facts.slurm:
        return
    if shutil.which("sbatch") is None:
        yield Finding(
            "error", "slurm: sbatch is not found; start this on a login node, or leave [slurm] out"
        )
    else:
        yield Finding(
            "warning",
            "slurm: Prime-RL submits a job; tbtui only watches it, through files that the nodes"
            " share",
        )


def _ports(facts: Facts) -> Iterator[Finding]:
    server = dict(facts.ports).get("inference.server.port")
    if facts.client_port is not None and facts.client_port != server:
        yield Finding(
            "error",
            f"inference.server.port={server}: the orchestrator asks port {facts.client_port}; set"
            f' orchestrator.model.client.base_url = "http://localhost:{server}/v1"',
        )
    for key, port in facts.ports:
        if not _is_free(port):
            yield Finding(
                "error",
                f"port {port}: taken{_taken_by(port)}; end that, or set {key} in a file"
                " (`tbtui run --print-config` prints one)",
            )


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True


def _taken_by(port: int) -> str:
    try:
        owners = {
            each.pid
            for each in psutil.net_connections("inet")
            if each.laddr and each.laddr[1] == port and each.status == psutil.CONN_LISTEN
        }
        (pid,) = owners
        return "" if pid is None else f" by {psutil.Process(pid).name()} (process {pid})"
    except (psutil.Error, ValueError):
        return ""  # another user's


def _disk(place: Path) -> Finding:
    there = next(path for path in (place, *place.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free // _GB
    if free < _ENOUGH_FREE_GB:
        return Finding(
            "warning",
            f"disk: {free} GB free at {there}, and checkpoints of Prime-RL hold the trainer's whole"
            " state; free some, or give another logs_dir or a smaller keep_checkpoints",
        )
    return Finding("ok", f"disk: {free} GB free at {there}")
