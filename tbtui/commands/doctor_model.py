"""`tbtui doctor model NAME`: whether a model fits this machine, with the memory it takes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import typer
from rich.console import Console

from tbtui.command_line import EXIT, refuse
from tbtui.config import parse_settings
from tbtui.errors import UserError
from tbtui.policies.torch import settings_of
from tbtui.policies.torch.memory_fit import Fit, assess
from tbtui.policies.torch.memory_plan import gib
from tbtui.policies.torch.model_files import find_model, gigabytes


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
        "context_limit": fit.settings.context_limit,
        "trials_at_once": fit.trials_at_once,
        "micro_batch_tokens": fit.micro_batch_tokens,
        "fits": fit.fits,
        "verdict": fit.verdict,
    }
