"""Checks what Prime-RL needs of this machine before anything of it starts: each answer is a line.

`quick_checks` looks at files and ports. `slow_checks` runs Prime-RL's own Python and may wait for a
driver: it takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import psutil

from tbtui.config import ConfigError, RunConfig
from tbtui.config.toml import toml_text
from tbtui.config.values import as_typed
from tbtui.engines.gpus import local_gpus
from tbtui.engines.prime_rl.launch.checkout import Checkout, commit_warnings, validate
from tbtui.engines.prime_rl.launch.configuration import Facts
from tbtui.invocation import to_type
from tbtui.policies.work import in_daemon_thread

Level = Literal["ok", "warning", "error"]

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GB = 1_000_000_000
_ENOUGH_FREE_GB = 50
"""A checkpoint of Prime-RL's has the trainer's whole state."""
_BUSY = 0.1
"""A GPU with a larger share of its memory in use is used by another program."""


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """What a check found; `warning` also where something could not be asked."""

    level: Level
    text: str
    """One line: what it is about, what was found and what to do."""


def require(findings: Sequence[PreflightFinding], config: RunConfig) -> None:
    """Raises `ConfigError` with the first error of a run with these settings, and how many more
    there are."""
    errors = [finding.text for finding in findings if finding.level == "error"]
    if errors:
        more = len(errors) - 1
        check = to_type("prime-rl", "check", *as_typed(config))
        rest = f" (and {more} more: `{check}` lists them)" if more else ""
        raise ConfigError(errors[0] + rest)


def quick_checks(
    checkout: Checkout, facts: Facts, place: Path, config: RunConfig
) -> list[PreflightFinding]:
    """Check what takes no waiting.

    Args:
        place: where the run's directory is or will be.
    """
    return [
        PreflightFinding("ok", f"Prime-RL: {checkout}"),
        *(PreflightFinding("warning", text) for text in commit_warnings(checkout)),
        *_slurm(facts),
        *_ports(facts, config),
        _disk(place),
    ]


def gpus(facts: Facts) -> list[PreflightFinding]:
    """Whether there are as many GPUs as the file wants. Waits for the driver: not for a loop."""
    if facts.slurm:
        return [PreflightFinding("ok", "GPUs: SLURM allocates them")]
    wanted = f"{facts.gpus} wanted ({facts.train_gpus} to train, {facts.infer_gpus} to sample)"
    remedy = "give num_train_gpus and num_infer_gpus, or [deployment] of the file"
    found = local_gpus()
    visible = os.environ.get(_VISIBLE)
    if visible is not None:
        # As Prime-RL counts them.
        count = len([part for part in visible.split(",") if part.strip()])
        where = f"in {_VISIBLE}={visible}"
    elif not found.gpus:
        return [
            PreflightFinding("error", f"GPUs: {facts.gpus} wanted, none found: {found.problem}")
        ]
    else:
        count, where = len(found.gpus), "here"
    if count < facts.gpus:
        return [PreflightFinding("error", f"GPUs: {wanted}, {count} {where}; {remedy}")]
    findings = [PreflightFinding("ok", f"GPUs: {wanted}, {count} {where}")]
    if not found.gpus:
        findings.append(PreflightFinding("warning", f"GPUs: not looked at: {found.problem}"))
    for gpu in found.gpus:
        used, total = gpu.memory_used_mib, gpu.memory_total_mib
        if used is not None and total and used > _BUSY * total and visible is None:
            text = f"GPU {gpu.index}: {used} of {total} MiB are in use; Prime-RL may run out"
            findings.append(PreflightFinding("warning", text))
    return findings


def _slurm(facts: Facts) -> Iterator[PreflightFinding]:
    if not facts.slurm:
        return
    if shutil.which("sbatch") is None:
        yield PreflightFinding(
            "error", "slurm: sbatch is not found; start this on a login node, or leave [slurm] out"
        )
    else:
        yield PreflightFinding(
            "warning",
            "slurm: Prime-RL submits a job; tbtui only watches it, through files that the nodes"
            " share",
        )


def _ports(facts: Facts, config: RunConfig) -> Iterator[PreflightFinding]:
    server = dict(facts.ports).get("inference.server.port")
    if facts.client_port is not None and facts.client_port != server:
        yield PreflightFinding(
            "error",
            f"inference.server.port={server}: the orchestrator asks port {facts.client_port}; set"
            f' orchestrator.model.client.base_url = "http://localhost:{server}/v1"',
        )
    for key, port in facts.ports:
        if not _is_free(port):
            yield PreflightFinding(
                "error",
                f"port {port}: taken{_taken_by(port)}; end that, or set {key} in a file"
                f" (`{to_type('run', *as_typed(config), '--print-config')}` prints one)",
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


def _disk(place: Path) -> PreflightFinding:
    there = next(path for path in (place, *place.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free // _GB
    if free < _ENOUGH_FREE_GB:
        return PreflightFinding(
            "warning",
            f"disk: {free} GB free at {there}, and checkpoints of Prime-RL hold the trainer's whole"
            " state; free some, or give another logs_dir or a smaller keep_checkpoints",
        )
    return PreflightFinding("ok", f"disk: {free} GB free at {there}")


LIMIT_SEC = 180.0
_AUTO_RENDERER = "orchestrator.renderer.name='auto'"

_IMPORT_PLUGIN = """
import contextlib, json, sys
from importlib.metadata import PackageNotFoundError, version
def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
with contextlib.redirect_stdout(sys.stderr):
    import tbtui_harbor
json.dump({"tbtui": installed("tbtui"), "verifiers": installed("verifiers")}, sys.stdout)
"""


async def slow_checks(
    checkout: Checkout, facts: Facts, toml: Mapping[str, Any]
) -> list[PreflightFinding]:
    """Ask Prime-RL's own environment: its plugin, its classes, its dry run. Takes seconds.

    Args:
        toml: as it would be launched.
    """
    here, plugin, valid = await asyncio.gather(
        in_daemon_thread(lambda: gpus(facts), "nvml"),
        _plugin(checkout, facts),
        in_daemon_thread(lambda: _validated(checkout, facts, toml), "prime-rl-configs"),
    )
    findings = [*here, *plugin, *valid]
    if all(finding.level != "error" for finding in findings):
        findings += await _dry_run(checkout, toml)
    return findings


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int | None
    """None: none came in time."""
    output: str
    errors: str

    @property
    def last(self) -> str:
        lines = (self.errors.strip() or self.output.strip()).splitlines()
        return lines[-1].strip() if lines else "no message"


async def _plugin(checkout: Checkout, facts: Facts) -> list[PreflightFinding]:
    if not facts.uses_plugin:
        text = (
            "plugin: no source uses tbtui-harbor: trials are shown only when they are over, can't"
            " be steered and have no terminals"
        )
        return [PreflightFinding("warning", text)]
    answer = await _output_of(checkout, [str(checkout.python), "-c", _IMPORT_PLUGIN])
    install = _install(checkout)
    if answer.status is None:
        return [
            PreflightFinding(
                "warning", f"plugin: not checked: importing it takes over {LIMIT_SEC:.0f} s"
            )
        ]
    if answer.status != 0:
        return [
            PreflightFinding("error", f"plugin: {checkout.python}: {answer.last}; run `{install}`")
        ]
    found = json.loads(answer.output)
    own = version("tbtui")
    findings = [
        PreflightFinding("ok", f"plugin: tbtui {found['tbtui']}, verifiers {found['verifiers']}")
    ]
    if found["tbtui"] != own:
        text = f"plugin: tbtui {found['tbtui']} is installed there, this is {own}; run `{install}`"
        findings.append(PreflightFinding("warning", text))
    return findings


def _install(checkout: Checkout) -> str:
    repository = Path(__file__).resolve().parents[4]
    here = (repository / "pyproject.toml").is_file()  # else this tbtui is installed, too
    what = (
        f"tbtui[prime-rl] @ file://{repository}" if here else f"tbtui[prime-rl]=={version('tbtui')}"
    )
    return f"uv pip install --python {checkout.python} '{what}'"


def _validated(checkout: Checkout, facts: Facts, toml: Mapping[str, Any]) -> list[PreflightFinding]:
    verdict = validate(toml, checkout.directory)
    if verdict.by is None:
        return [PreflightFinding("warning", f"configuration: not validated: {verdict.unchecked}")]
    if not verdict.errors:
        return [PreflightFinding("ok", f"configuration: valid, by {verdict.by}")]
    return [PreflightFinding("error", _refusal(error, toml)) for error in verdict.errors]


def _refusal(error: str, toml: Mapping[str, Any]) -> str:
    if _AUTO_RENDERER in error:
        model = toml.get("model", {}).get("name", "this model")
        return (
            f"renderer: Prime-RL chooses none for {model} by itself; give renderer=template for its"
            " chat template, or the name of one of Prime-RL's renderers ([orchestrator.renderer]"
            " name of a file)"
        )
    return f"configuration: Prime-RL refuses it: {error}"


async def _dry_run(checkout: Checkout, toml: Mapping[str, Any]) -> list[PreflightFinding]:
    """Run Prime-RL's dry run in a scratch directory.

    With `[resume]`, even a dry run deletes what is newer than the checkpoint.
    """
    with tempfile.TemporaryDirectory(prefix="tbtui-prime-rl-") as scratch:
        file = Path(scratch) / "rl.toml"
        file.write_text(toml_text({**toml, "output_dir": scratch}))
        answer = await _output_of(checkout, [str(checkout.rl), "@", str(file), "--dry-run"])
    if answer.status is None:
        return [PreflightFinding("warning", f"dry run: not over after {LIMIT_SEC:.0f} s; skipped")]
    if answer.status != 0:
        return [
            PreflightFinding(
                "error", f"dry run: Prime-RL's launcher refuses the file: {answer.last}"
            )
        ]
    return [PreflightFinding("ok", "dry run: passed")]


async def _output_of(checkout: Checkout, program: Sequence[str]) -> _Answer:
    process = await asyncio.create_subprocess_exec(
        *program,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        cwd=checkout.directory,
        env=checkout.environment(),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(LIMIT_SEC):
            output, errors = await process.communicate()
    except TimeoutError:
        return _Answer(None, "", "")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _Answer(
        process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
    )
