"""`tbtui doctor`: what this machine can and can't do for a run, and what to do about it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer
from rich.console import Console
from rich.text import Text

from tbtui.command_line import EXIT, refuse
from tbtui.config import ConfigError, parse_settings
from tbtui.config.sources import load_secrets
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.policies.torch import settings_of
from tbtui.policies.torch.memory_fit import Fit, assess
from tbtui.policies.torch.memory_plan import gib
from tbtui.policies.torch.model_files import find_model, gigabytes
from tbtui.rollout.environments.base import EnvironmentUnavailable, ExtraMissing
from tbtui.rollout.environments.choose import HostProbe, choose_environment, probe_host

Verdict = Literal["ok", "missing", "optional"]

_GLYPHS: dict[Verdict, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "missing": ("✗", "red"),
    "optional": ("·", "dim"),
}
_KEYS = {
    "TINKER_API_KEY": "the Tinker API",
    "OPENAI_API_KEY": "a vLLM server that asks for one",
    "WANDB_API_KEY": "logging to wandb",
}


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One line of the report. `missing` stands in the way of `tbtui run`; `optional` does not."""

    verdict: Verdict
    what: str
    found: str
    remedy: str = ""


def print_report() -> int:
    """Print every finding; 0 when `tbtui run` will work here, 1 when it won't."""
    console = Console(soft_wrap=True, highlight=False)
    findings = [*_secrets(Path.cwd()), *examine(probe_host(everything=True))]
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        glyph, colour = _GLYPHS[finding.verdict]
        line = Text.assemble((glyph, colour), f" {finding.what:<{width}}  {finding.found}")
        if finding.remedy:
            line.append(f"\n  {'':<{width}}  → {finding.remedy}", style="dim")
        console.print(line)
    ready = all(finding.verdict != "missing" for finding in findings)
    console.print(
        f"\nReady: {to_type('run')}" if ready else "\nNot ready: see the lines marked ✗",
        style="bold",
    )
    return 0 if ready else 1


def examine(host: HostProbe) -> Iterator[DoctorFinding]:
    """Everything that a run may need, most basic first."""
    yield _python()
    yield DoctorFinding("ok", "Harbor", importlib.metadata.version("harbor"))
    if host.platform == "linux":
        yield from _sandbox(host)
    yield _trials()
    yield from _environments()
    yield _disk()
    yield _gpu()
    for name, use in _KEYS.items():
        yield _key(name, use)


def _secrets(directory: Path) -> Iterator[DoctorFinding]:
    """Takes what `.env` holds, as a run would; nothing to say unless it can't be used."""
    try:
        if left_out := load_secrets(directory):
            yield DoctorFinding("optional", ".env", left_out)
    except ConfigError as error:
        yield DoctorFinding("missing", ".env", str(error))


def _python() -> DoctorFinding:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info[:2] == (3, 12):
        return DoctorFinding("ok", "Python", found)
    return DoctorFinding("missing", "Python", found, "tbtui needs Python 3.12")


def _tmux(host: HostProbe) -> DoctorFinding:
    if host.tmux is None:
        return DoctorFinding(
            "missing",
            "tmux",
            "not installed; agents work in it",
            "sudo apt-get install tmux (or your system's way)",
        )
    return DoctorFinding("ok", "tmux", host.tmux)


def _sandbox(host: HostProbe) -> Iterator[DoctorFinding]:
    """What the sandbox needs, which is of no use elsewhere."""
    yield _tmux(host)
    found = f"{host.namespaces}: {host.namespaces_detail}".rstrip(": ")
    remedy = host.namespaces_remedy or ""
    usable = host.namespaces == "usable"
    yield DoctorFinding("ok" if usable else "optional", "namespaces", found, remedy)
    if not usable:
        works = host.bubblewrap == "works"
        yield DoctorFinding(
            "ok" if works else "optional",
            "bubblewrap",
            host.bubblewrap,
            "" if works else "sudo apt-get install bubblewrap",
        )
    yield _limits(host)


def _trials() -> DoctorFinding:
    try:
        choice = choose_environment(None)
    except EnvironmentUnavailable as error:
        problem, _, cure = str(error).rpartition(": ")
        return DoctorFinding("missing", "trials", problem, cure)
    return DoctorFinding("ok", "trials", f"run in {choice.name}: {choice.reason}")


def _environments() -> Iterator[DoctorFinding]:
    """Every kind of environment but the sandbox: engines one by one, services together."""
    from tbtui.rollout.environments.kinds import extra_of, harbor_kinds

    ready: list[str] = []
    unequipped: dict[str, list[str]] = {}
    for kind in harbor_kinds():
        extra = extra_of(kind)
        try:
            choose_environment(kind)
        except ExtraMissing as problem:
            unequipped.setdefault(str(problem).rpartition(": ")[2], []).append(kind)
        except EnvironmentUnavailable as problem:
            line = str(problem).removeprefix(f"environment_type={kind}: ")
            yield DoctorFinding("optional", kind, line)
        else:
            if extra is None:
                yield DoctorFinding("ok", kind, "works here: environment_type=" + kind)
            else:
                ready.append(kind)
    if ready:
        yield DoctorFinding("ok", "services", f"ready: {', '.join(ready)}")
    yield from _without_packages(unequipped)


def _without_packages(unequipped: Mapping[str, list[str]]) -> Iterator[DoctorFinding]:
    """One line for all that this project has extras for, one for those that only Harbor has."""
    for ours in (True, False):
        some = {r: kinds for r, kinds in unequipped.items() if r.startswith("uv sync") is ours}
        if some:
            names = ", ".join(kind for kinds in some.values() for kind in kinds)
            remedy = next(iter(some)) if len(some) == 1 else f"for example {next(iter(some))}"
            yield DoctorFinding("optional", "services", f"packages not installed: {names}", remedy)


def _limits(host: HostProbe) -> DoctorFinding:
    if host.cgroups == "none":
        return DoctorFinding(
            "optional",
            "cgroups",
            "not writable: memory is limited per process of a trial, not per trial",
        )
    return DoctorFinding("ok", "cgroups", f"{host.cgroups}: memory and processes limited per trial")


def _disk() -> DoctorFinding:
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    if free < 1:
        return DoctorFinding(
            "missing", "disk", f"{free:.1f} GB free here", "free some, or set logs_dir"
        )
    return DoctorFinding("ok", "disk", f"{free:.0f} GB free here; {os.cpu_count()} cores")


def _gpu() -> DoctorFinding:
    from tbtui.engines.gpus import EXTRA, local_gpus

    found = local_gpus()
    if found.gpus:
        kinds = Counter(gpu.name or "one that can't be asked" for gpu in found.gpus)
        names = ", ".join(f"{count} x {name}" for name, count in kinds.items())
        return DoctorFinding("ok", "GPU", f"{names}; driver {found.driver}")
    if found.package_missing and shutil.which("nvidia-smi") is not None:
        return DoctorFinding("optional", "GPU", "NVIDIA driver found; its GPUs aren't shown", EXTRA)
    why = "" if found.package_missing else f" ({found.problem})"
    return DoctorFinding("optional", "GPU", f"none found{why}; the embedded model needs none")


def _key(name: str, use: str) -> DoctorFinding:
    if os.environ.get(name):
        return DoctorFinding("ok", name, "set")
    return DoctorFinding("optional", name, f"not set; only for {use}")


def print_model(name: str, settings: Sequence[str], *, as_json: bool) -> int:
    """Print the memory table; 0 where the model fits, 1 where it doesn't.

    `settings` are those of a run, as `NAME=VALUE`.
    """
    try:
        config = parse_settings([f"model_name={name}", *settings])
        model = find_model(name)
        fit = assess(settings_of(config), model)
    except UserError as error:
        refuse(error)
    if fit is None:
        refuse(
            f"model_name={name}: its files don't say how large it is (config.json, and weights as"
            " safetensors, are needed)"
        )
    if as_json:
        typer.echo(json.dumps(_record(fit), indent=2))
    else:
        _print_table(fit)
    return 0 if fit.fits else EXIT["failed"]


def _print_table(fit: Fit) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"[bold]{fit.model.name}[/bold]")
    shown = None
    for item in fit.items:
        part = item.part if item.part != shown else ""
        console.print(f"  {part:<9} {item.what:<12}{gib(item.size):>11}  [dim]{item.note}[/dim]")
        shown = item.part
    together = gib(sum(item.size for item in fit.items))
    console.print(f"  {'together':<22}{together:>11}")
    console.print(f"  {'free':<22}{gib(fit.memory.free):>11}  [dim]{fit.memory.label}[/dim]")
    settings = fit.settings
    if fit.server_bytes is not None:
        note = "for keys and values: VLLM_CPU_KVCACHE_SPACE"
        if fit.server_share is not None:
            note = f"{fit.server_share:.2f} of {fit.memory.label}: gpu_memory_utilization"
        given = gib(fit.server_bytes)
        console.print(f"  {'a vLLM server is given':<22}{given:>11}  [dim]{note}[/dim]")
    console.print(
        f"\ncontext_limit={settings.context_limit}  trials at once {fit.trials_at_once}"
        f"  micro_batch_tokens {fit.micro_batch_tokens}"
    )
    if fit.model.to_download:
        console.print(f"{gigabytes(fit.model.to_download)} to download")
    console.print(fit.verdict, style="bold")


def _record(fit: Fit) -> dict[str, object]:
    return {
        "model": fit.model.name,
        "device": fit.memory.label,
        "free_bytes": fit.memory.free,
        "total_bytes": fit.memory.total,
        "needed_bytes": fit.needed,
        "download_bytes": fit.model.to_download,
        "items": [
            {"part": item.part, "what": item.what, "bytes": item.size, "note": item.note}
            for item in fit.items
        ],
        "vllm_bytes": fit.server_bytes,
        "context_limit": fit.settings.context_limit,
        "trials_at_once": fit.trials_at_once,
        "micro_batch_tokens": fit.micro_batch_tokens,
        "fits": fit.fits,
        "verdict": fit.verdict,
    }
