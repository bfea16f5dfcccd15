"""Trials of variants of tasks, without a policy: a run of its own that only evaluates.

Each variant is a copy of a task whose solution is what acts. So every trial is a real one, with its
recording, and `tbtui replay` shows all of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tbtui import launch
from tbtui.catalog.cheats import SKIPPED
from tbtui.catalog.load import TaskInfo
from tbtui.catalog.tasks import discover
from tbtui.commands.evaluate import EvaluationRun
from tbtui.config import ConfigError, RunConfig, names_of, parse_settings
from tbtui.journal.events import TrialFinished, TrialQueued
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.paths import cache_dir, open_plain
from tbtui.resources import tasks_dir as bundled_tasks

_FIXED = {
    "agent": "oracle",
    "eval_tasks": "*",
    "max_retries": "0",
    "halt_after": "0",
    "max_unusable": "1",
    "check_zeros": "never",
    "max_steps": "0",
    "eval_every": "0",
    "save_every": "0",
}


@dataclass(frozen=True, slots=True)
class VariantTrial:
    """How a trial of a variant ended."""

    task: str
    variant: str
    trial: str
    outcome: str
    verdict: float | None
    reason: str
    skipped: bool
    """Its script had nothing to work on."""
    recording: Path | None

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict >= 1


@dataclass(slots=True)
class Variants:
    """Variants of tasks, each a directory `<place>/<task>/<variant>` of its own."""

    place: Path
    tasks: dict[str, str] = field(default_factory=dict)
    """Name of a task's directory here -> the task's name."""

    def add(self, variant: str, task: TaskInfo, make: Callable[[TaskInfo, Path], object]) -> None:
        """Make a variant, by `make(task, into)`."""
        slug = task.name.replace("/", "--")
        self.tasks[slug] = task.name
        (self.place / slug).mkdir(exist_ok=True)
        make(task, self.place / slug / variant)

    def names(self) -> Mapping[str, tuple[str, str]]:
        """Name of a variant in its run -> (task, variant)."""
        return {
            found.name: (self.tasks[found.path.parent.name], found.path.name)
            for found in discover(self.place).tasks
        }


@contextmanager
def variants() -> Iterator[Variants]:
    """A place for variants, gone afterwards."""
    place = cache_dir() / "variants"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Variants(Path(folder))


def run_variants(
    made: Variants,
    tasks_dir: Path,
    settings: Sequence[str],
    stem: str,
    view: launch.View,
    *,
    policy: bool = False,
) -> tuple[int, RunDirectory | None, list[VariantTrial]]:
    """Run a trial of each variant, or as many as `eval_group_size` says.

    Args:
        tasks_dir: of the tasks that were varied.
        settings: as of a run, beside what such a run needs.
        stem: what the run's name begins with.
        policy: one acts, but where `oracle_tasks` says otherwise.

    Returns the exit status of `launch`; the run, where it has finished; and the trials that ended.

    Raises:
        ConfigError: a setting that is not the caller's to make.
    """
    for name in sorted(names_of(settings) & (_FIXED.keys() | {"tasks_dir"})):
        raise ConfigError(f"{name}: this command sets it itself; leave it out")
    fixed = [f"{name}={value}" for name, value in _FIXED.items() if not policy or name != "agent"]
    config = parse_settings([f"tasks_dir={made.place}", *fixed, *settings])
    # What a run of the tasks themselves would do: the copies don't lie among the bundled ones.
    if tasks_dir.resolve().is_relative_to(bundled_tasks().resolve()):
        config = _as_bundled(config)
    status, directory = EvaluationRun(config, stem, (), stem).run(view)
    return status, directory, list(_ended(directory, made)) if directory is not None else []


def _as_bundled(config: RunConfig) -> RunConfig:
    if config.kill_before_verifying == "auto":
        config = config.replace(kill_before_verifying="always")
    return config.replace(fixed_programs="always") if config.fixed_programs == "auto" else config


def _ended(run: RunDirectory, made: Variants) -> Iterator[VariantTrial]:
    names, queued = made.names(), dict[str, str]()
    reader = JournalReader(run)
    try:
        entries = list(reader.each(["trial_queued", "trial_finished"]))
    finally:
        reader.close()
    for entry in entries:
        match event := entry.event:
            case TrialQueued():
                queued[event.trial] = event.task
            case TrialFinished():
                task, variant = names[queued[event.trial]]
                folder = run.trials / event.trial
                recording = folder / "recording.cast"
                yield VariantTrial(
                    task=task,
                    variant=variant,
                    trial=event.trial,
                    outcome=event.outcome.value,
                    verdict=event.verdict,
                    reason=event.reason,
                    skipped=_exit_status(folder) == str(SKIPPED),
                    recording=recording if recording.is_file() else None,
                )
            case _:
                pass


def _exit_status(trial: Path) -> str:
    """The exit status of the script that acted; Harbor writes it where it is not 0."""
    try:
        with open_plain(trial / "agent" / "exit-code.txt") as file:
            return file.read(16).decode(errors="replace").strip()
    except OSError:
        return ""
