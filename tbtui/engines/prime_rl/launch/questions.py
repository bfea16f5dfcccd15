"""What only Prime-RL's own environment can answer: its plugin, its classes, its dry run."""

from __future__ import annotations

import asyncio
import json
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tbtui.config.toml import toml_text
from tbtui.engines.prime_rl.launch.checkout import Checkout
from tbtui.engines.prime_rl.launch.facts import Facts
from tbtui.engines.prime_rl.launch.preflight import Finding, gpus
from tbtui.engines.prime_rl.validate import validate
from tbtui.policies.threads import in_daemon_thread

LIMIT_SEC = 180.0
_AUTO_RENDERER = "orchestrator.renderer.name='auto'"

_IMPORT_PLUGIN = """
import contextlib, json, sys
from importlib.metadata import PackageNotFoundError, version
def told(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None
with contextlib.redirect_stdout(sys.stderr):
    import tbtui_harbor
json.dump({"tbtui": told("tbtui"), "verifiers": told("verifiers")}, sys.stdout)
"""


async def questions(checkout: Checkout, facts: Facts, toml: Mapping[str, Any]) -> list[Finding]:
    """Ask all; takes seconds, in threads and processes of their own.

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
        return lines[-1].strip() if lines else "no word"


async def _plugin(checkout: Checkout, facts: Facts) -> list[Finding]:
    if not facts.uses_plugin:
        text = (
            "plugin: no source uses tbtui-harbor, so trials can be watched when they are over, but"
            " not steered, and have no terminals"
        )
        return [Finding("warning", text)]
    answer = await _ask(checkout, [str(checkout.python), "-c", _IMPORT_PLUGIN])
    install = _install(checkout)
    if answer.status is None:
        return [Finding("warning", f"plugin: not known: importing it takes over {LIMIT_SEC:.0f} s")]
    if answer.status != 0:
        return [Finding("error", f"plugin: {checkout.python}: {answer.last}; run `{install}`")]
    found = json.loads(answer.output)
    own = version("tbtui")
    findings = [Finding("ok", f"plugin: tbtui {found['tbtui']}, verifiers {found['verifiers']}")]
    if found["tbtui"] != own:
        text = f"plugin: tbtui {found['tbtui']} is installed there, this is {own}; run `{install}`"
        findings.append(Finding("warning", text))
    return findings


def _install(checkout: Checkout) -> str:
    repository = Path(__file__).resolve().parents[4]
    here = (repository / "pyproject.toml").is_file()  # else ours is installed, too
    what = (
        f"tbtui[prime-rl] @ file://{repository}" if here else f"tbtui[prime-rl]=={version('tbtui')}"
    )
    return f"uv pip install --python {checkout.python} '{what}'"


def _validated(checkout: Checkout, facts: Facts, toml: Mapping[str, Any]) -> list[Finding]:
    verdict = validate(toml, checkout.directory)
    if verdict.by is None:
        return [Finding("warning", f"configuration: not validated: {verdict.unchecked}")]
    if not verdict.errors:
        return [Finding("ok", f"configuration: valid, by {verdict.by}")]
    return [Finding("error", _refusal(error, toml)) for error in verdict.errors]


def _refusal(error: str, toml: Mapping[str, Any]) -> str:
    if _AUTO_RENDERER in error:
        model = toml.get("model", {}).get("name", "this model")
        return (
            f"renderer: Prime-RL chooses none for {model} by itself; give renderer=template for its"
            " chat template, or the name of one of Prime-RL's renderers ([orchestrator.renderer]"
            " name of a file)"
        )
    return f"configuration: Prime-RL refuses it: {error}"


async def _dry_run(checkout: Checkout, toml: Mapping[str, Any]) -> list[Finding]:
    """Somewhere else: with `[resume]`, even a dry run deletes what is newer than the checkpoint."""
    with tempfile.TemporaryDirectory(prefix="tbtui-prime-rl-") as scratch:
        file = Path(scratch) / "rl.toml"
        file.write_text(toml_text({**toml, "output_dir": scratch}))
        answer = await _ask(checkout, [str(checkout.rl), "@", str(file), "--dry-run"])
    if answer.status is None:
        return [Finding("warning", f"dry run: not over after {LIMIT_SEC:.0f} s; left out")]
    if answer.status != 0:
        return [Finding("error", f"dry run: Prime-RL's launcher refuses the file: {answer.last}")]
    return [Finding("ok", "dry run: passed")]


async def _ask(checkout: Checkout, program: Sequence[str]) -> _Answer:
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
