"""`tbtui tasks try TASK --watch`: all there is to try of a task, anew each time it is saved.

Its solution, doing nothing, every cheat and some attempts of the policy are trials of one run,
which the app shows at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from tbtui import launch
from tbtui.algorithm.evaluation import Rate, TaskAttempts, pass_rate
from tbtui.catalog.cheats import battery
from tbtui.catalog.tasks import TaskInfo
from tbtui.catalog.variants import with_solution
from tbtui.command_line import EXIT, EXIT_FAILED, EXIT_INTERRUPTED, say
from tbtui.commands.task_audit import TaskAudit, make_variants
from tbtui.commands.task_try import find_task
from tbtui.commands.variant_trials import VariantTrial, run_variants, variants
from tbtui.terminal import visible

POLICY = "policy"
_LOOK_SEC = 0.5


def try_all(
    task: TaskInfo, tasks_dir: Path, settings: Sequence[str], attempts: int, view: launch.View
) -> int:
    """Run solution, cheats and `attempts` of the policy once; prints what they came to.

    Returns the exit status: 0 the task holds, 1 it does not, or `launch`'s.

    Raises:
        UserError: bad input.
    """
    inner: launch.View = "progress" if view == "json" else view
    with variants() as made:
        make_variants(made, task, battery())
        for number in range(1, attempts + 1):
            made.add(f"{POLICY}-{number}", task, partial(with_solution, script=None))
        scripted = [f"oracle_tasks={_scripted(made.names())}"]
        status, run, trials = run_variants(
            made, tasks_dir, [*settings, *scripted], "watch", inner, policy=attempts > 0
        )
    if run is None:
        return status
    own = [each for each in trials if not each.variant.startswith(POLICY)]
    audit = TaskAudit(task.name, tuple(own))
    rate = difficulty([each for each in trials if each.variant.startswith(POLICY)])
    if view == "json":
        typer.echo(json.dumps(_document(audit, rate, str(run.path))))
    else:
        _print(audit, rate)
    return 0 if audit.holds else EXIT_FAILED


def try_everything(
    task: str, arguments: Sequence[str], *, attempts: int, watching: bool, view: launch.View
) -> int:
    """Try all there is of a task, once or each time it is saved; the exit status.

    Args:
        arguments: settings as of a run; `checkpoint=` says whose attempts the policy's are.

    Raises:
        UserError: bad input.
    """
    found = find_task(task, arguments)
    if not watching:
        return try_all(found, found.path.parent, arguments, attempts, view)
    options = {"app": [], "lines": ["--no-ui"], "json": ["--json"], "progress": []}[view]
    more = ["--all", "--attempts", str(attempts), *options]
    return watch(
        found.path, ["tasks", "try", str(found.path), *more, "--", *arguments], in_app=view == "app"
    )


def _scripted(names: Mapping[str, tuple[str, str]]) -> str:
    """The variants in which no policy acts, as the setting has them."""
    return ",".join(sorted(n for n, (_, v) in names.items() if not v.startswith(POLICY)))


def difficulty(trials: Sequence[VariantTrial]) -> Rate | None:
    """The policy's pass rate with its 95% interval; None: nothing was scored."""
    scored = [each for each in trials if each.verdict is not None]
    return pass_rate([TaskAttempts(sum(each.passed for each in scored), len(scored))], 1)


def in_words(rate: Rate | None) -> str:
    """`passes .38 (.14-.69): medium`; an interval over several words has them both."""
    if rate is None:
        return "no attempt of the policy was scored"
    names = list(dict.fromkeys((_word(rate.high), _word(rate.value), _word(rate.low))))
    span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    return f"the policy passes {rate.value:.2f} ({rate.low:.2f}-{rate.high:.2f}): {span}"


def _word(rate: float) -> str:
    return "easy" if rate >= 0.7 else "medium" if rate >= 0.3 else "hard"


def _document(audit: TaskAudit, rate: Rate | None, run: str) -> dict[str, Any]:
    return {
        "task": audit.task,
        "run": run,
        "solution": audit.solved,
        "passed_by": [proof.variant for proof in audit.proofs],
        "cheats": audit.tried,
        "policy": None
        if rate is None
        else {"pass_rate": rate.value, "low": rate.low, "high": rate.high},
    }


def _print(audit: TaskAudit, rate: Rate | None) -> None:
    own = {None: "gives no verdict", True: "passes", False: "fails"}[audit.solved]
    passed = ", ".join(proof.variant for proof in audit.proofs)
    typer.echo(visible(f"{audit.task}: its solution {own}"))
    typer.echo(f"  {passed or 'none'} of {audit.tried} cheats pass")
    typer.echo(f"  {in_words(rate)}")


def watch(directory: Path, command: Sequence[str], *, in_app: bool) -> int:
    """Run `command` now and each time a file below `directory` is saved, until it is left.

    In the app, a person leaves it with the app; without, with ctrl-c.
    """
    try:
        while True:
            stands = _stands(directory)
            child = subprocess.Popen([sys.executable, "-m", "tbtui", *command])
            changed = _wait(child, directory, stands)
            if not changed and (in_app or child.returncode == EXIT["refused"]):
                return child.returncode
            if changed:
                continue
            say("waits for a file to be saved; ctrl-c ends")
            while _stands(directory) == stands:
                time.sleep(_LOOK_SEC)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


Stands = tuple[tuple[str, int, int], ...]
"""Path, time and size of every file."""


def _wait(child: subprocess.Popen[bytes], directory: Path, stands: Stands) -> bool:
    """Wait for the end of a round; True: it was ended because a file has changed."""
    while child.poll() is None:
        if _stands(directory) != stands:
            os.kill(child.pid, signal.SIGTERM)
            child.wait()
            return True
        time.sleep(_LOOK_SEC)
    return False


def _stands(directory: Path) -> Stands:
    """Every file's time and size; an editor's own files, hidden ones, don't count."""
    found = []
    for file in sorted(directory.rglob("*")):
        if any(part.startswith(".") or part.endswith("~") for part in file.parts[-2:]):
            continue
        try:
            status = file.stat()
        except OSError:
            continue
        if file.is_file():
            found.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(found)
