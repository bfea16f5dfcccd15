"""The tasks of some directories, for the browser: what they are, how they have gone, named sets."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tbtui.catalog import CatalogError, find_tasks, named_tasks
from tbtui.catalog.report import summary
from tbtui.catalog.sets import SET_MARK, TaskSet, delete_set, load_set, save_set, set_names
from tbtui.catalog.split import Split, split_tasks
from tbtui.catalog.tasks import TaskInfo, discover
from tbtui.config import RunConfig
from tbtui.errors import UserError
from tbtui.journal.database import JournalError
from tbtui.journal.history import RunHistory, TaskHistory, read_history
from tbtui.journal.rundir import RunDirectory
from tbtui.paths import config_dir, state_dir
from tbtui.ui.library import (
    PastTask,
    Plan,
    Preview,
    RunRecord,
    SavedSet,
    Start,
    TaskEntry,
    Use,
)
from tbtui.vocabulary import category_of

_FILE_CHARS = 40_000
"""Most that a preview shows of one file."""
_FILES = 40
"""Most files that a preview shows of one directory."""


def browse(directories: Sequence[Path]) -> Start | None:
    """Show the browser over directories, or data sets by name; what to start, if anything.

    Without any: the bundled data sets and the fetched ones.

    Raises:
        CatalogError: one of them isn't there.
    """
    from tbtui.ui.base_app import BrowserApp
    from tbtui.ui.user import User

    given = [find_tasks(directory) for directory in directories]
    library = CatalogLibrary(given or list(named_tasks().values()), RunConfig())
    return BrowserApp(library, user=User.load(config_dir(), state_dir())).run()


class CatalogLibrary:
    """`TaskLibrary` of task directories, with the settings that a run of them would have."""

    def __init__(self, directories: Sequence[Path], config: RunConfig) -> None:
        self._directories = tuple(directories)
        self._config = config
        self._tasks: dict[str, TaskInfo] = {}
        self._broken = 0

    @property
    def title(self) -> str:
        return ", ".join(path.name for path in self._directories)

    @property
    def plan(self) -> Plan:
        config = self._config
        return Plan(config.batch_size, config.group_size, config.n_parallel_envs)

    def entries(self) -> list[TaskEntry]:
        found: dict[str, tuple[TaskInfo, Use]] = {}
        self._broken = 0
        for directory in self._directories:
            catalog = discover(directory)
            uses = _uses(catalog.tasks, self._config)
            self._broken += catalog.found - len(catalog.tasks)
            for task in catalog.tasks:
                found.setdefault(str(task.path), (task, uses[task.name]))
        self._tasks = {id: task for id, (task, _) in found.items()}
        datasets = _datasets(self._tasks.values())
        entries = [_entry(task, use, datasets[task.path.parent]) for task, use in found.values()]
        return sorted(entries, key=lambda entry: (entry.dataset, entry.name))

    def defects(self) -> int:
        return self._broken

    def records(self) -> Mapping[str, PastTask]:
        runs: dict[str, list[RunRecord]] = {}
        for name, history in _histories(self._config.logs_dir):
            for id, task in _of_run(history, self._tasks.values()):
                runs.setdefault(id, []).append(_record(name, history.started_at, task))
        newest = {
            id: tuple(sorted(records, key=lambda record: record.started_at, reverse=True))
            for id, records in runs.items()
        }
        return {id: PastTask(records) for id, records in newest.items()}

    def unusable(self) -> Mapping[str, str]:
        # A run's own choice; its import takes longer than the browser's first frame may.
        from tbtui.engines.task_fitness import choose_for_tasks

        _, fitness = choose_for_tasks(self._config, [task.path for task in self._tasks.values()])
        return {str(path): found[0].text for path, found in fitness.unusable.items()}

    def preview(self, id: str) -> Preview:
        from tbtui.rollout.environments.host_variables import host_variables, listed  # as above

        path = self._task(id).path
        try:
            return Preview(
                instruction=_texts(path, path.glob("instruction.md"), heads=False)
                or _texts(path, path.glob("steps/*/instruction.md")),
                environment=_texts(path, _walk(path / "environment")),
                tests=_texts(path, [*_walk(path / "tests"), *path.glob("steps/*/tests/*")]),
                solution=_texts(
                    path, [*_walk(path / "solution"), *path.glob("steps/*/solution/*")]
                ),
                variables=listed(host_variables(path)),
            )
        except OSError as error:
            raise UserError(f"{path}: can't be read ({error.strerror})") from error

    def sets(self) -> list[SavedSet]:
        return [self._saved(load) for load in map(_load, set_names()) if load is not None]

    def _saved(self, saved: TaskSet) -> SavedSet:
        ends = [tuple(name.split("/")) for name in saved.tasks]
        lengths = {len(end) for end in ends}
        wanted = frozenset(ends)
        return SavedSet(
            saved.name,
            len(wanted),
            frozenset(
                id
                for id, task in self._tasks.items()
                if any(task.path.parts[-length:] in wanted for length in lengths)
                and (saved.tasks_dir is None or task.path.is_relative_to(saved.tasks_dir))
            ),
        )

    def save_set(self, name: str, ids: Sequence[str]) -> None:
        tasks = [self._task(id) for id in ids]
        home = self._home(tasks)
        names = tuple(_name_in(home, task) for task in tasks)
        save_set(TaskSet(name, names, home))

    def _home(self, tasks: Sequence[TaskInfo]) -> Path | None:
        """The directory that a run of these tasks would name: their data set's, if it is one."""
        homes = {task.path.parent for task in tasks}
        common = Path(os.path.commonpath(homes))
        above = {common, *common.parents}
        near = {directory.absolute() for directory in self._directories}
        near |= {directory.parent for directory in near}
        return common if len(homes) == 1 or above & near else None

    def delete_set(self, name: str) -> None:
        delete_set(name)

    def start(self, name: str) -> Start:
        directory = load_set(name).tasks_dir
        if directory is None:
            raise UserError(
                "a run takes its tasks from one directory: select tasks of one data set"
            )
        settings = (f"tasks_dir={directory}", f"tasks={SET_MARK}{name}")
        return Start(settings, shlex.join(["tbtui", "run", *settings]))

    def _task(self, id: str) -> TaskInfo:
        if id not in self._tasks:
            raise UserError(f"{id}: no such task")
        return self._tasks[id]


def _uses(tasks: Sequence[TaskInfo], config: RunConfig) -> dict[str, Use]:
    """Task -> what a run would use it for, if it took all of them."""
    split: Split = split_tasks(
        tasks,
        eval_split=config.eval_split,
        seed=config.seed,
        eval_tasks=config.eval_tasks,
        trains=False,
    )
    uses: dict[str, Use] = dict.fromkeys((task.name for task in tasks), "train")
    uses |= dict.fromkeys((task.name for task in split.heldout), "heldout")
    return uses | dict.fromkeys((task.name for task in split.unused), "unused")


def _datasets(tasks: Iterable[TaskInfo]) -> dict[Path, str]:
    """Directory -> the name of its data set; more of the path where two are called alike.

    Directories that are browsed together may each have a `tasks`.
    """
    names = {task.path.parent: task.dataset for task in tasks}
    alike: dict[str, list[Path]] = {}
    for home, name in names.items():
        alike.setdefault(name, []).append(home)
    for homes in alike.values():
        if len(homes) > 1:
            common = os.path.commonpath(homes)
            names |= {home: home.relative_to(common).as_posix() for home in homes}
    return names


def _entry(task: TaskInfo, use: Use, dataset: str) -> TaskEntry:
    return TaskEntry(
        id=str(task.path),
        name=task.short_name,
        dataset=dataset,
        kind=category_of(task.kind, task.category),
        difficulty=task.difficulty or "",
        use=use,
        size=_size(task.path),
        timeout_sec=task.agent_timeout_sec,
        summary=summary(task.instruction),
    )


def _size(directory: Path) -> int:
    """Bytes of all files below; what can't be looked at counts as none."""
    total = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += _size(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return total
    return total


def _histories(logs_dir: Path) -> Iterator[tuple[str, RunHistory]]:
    """The history of tasks over all runs that can be read; broken ones are left out."""
    for database in sorted(logs_dir.glob("*/run.db")):
        run = RunDirectory(database.parent)
        try:
            history = read_history(run)
        except JournalError:
            continue
        if history is not None:
            yield run.name, history


def _of_run(history: RunHistory, tasks: Iterable[TaskInfo]) -> Iterator[tuple[str, TaskHistory]]:
    """The listed tasks that the run had, by where they lie: names alone may be taken twice."""
    by_name = {task.task: task for task in history.tasks}
    here = [task for task in tasks if history.tasks_dir in task.path.parents]
    times = Counter(task.short_name for task in here)
    for task in here:
        inner = task.path.relative_to(history.tasks_dir)
        full = str(inner) if len(inner.parts) > 1 else f"{history.tasks_dir.name}/{inner}"
        # A run that knew one task of the name doesn't say which of two it was.
        known = by_name.get(full) or (
            by_name.get(task.short_name) if times[task.short_name] == 1 else None
        )
        if known is not None:
            yield str(task.path), known


def _record(run: str, started_at: float, task: TaskHistory) -> RunRecord:
    return RunRecord(
        run=run,
        started_at=started_at,
        rollouts=task.trials,
        scored=task.scored,
        reward_sum=task.reward_sum,
        solved=task.solved,
        seconds=task.seconds if task.trials else None,
    )


def _load(name: str) -> TaskSet | None:
    """A saved set; one that was edited into nonsense is not offered."""
    try:
        return load_set(name)
    except CatalogError:
        return None


def _name_in(home: Path | None, task: TaskInfo) -> str:
    """A set's name for the task: its own, with the data set's in front below another `home`."""
    if home == task.path.parent:
        return task.short_name
    return task.full_name if home is None else task.path.relative_to(home).as_posix()


def _walk(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _texts(root: Path, paths: Iterable[Path], *, heads: bool = True) -> str:
    """The files' texts below one another, each under its name."""
    parts: list[str] = []
    files = [path for path in paths if path.is_file()]
    # What a person looks for first.
    files.sort(key=lambda path: (path.name not in ("Dockerfile", "test.sh", "solve.sh"), path))
    for path in files[:_FILES]:
        head = f"── {path.relative_to(root)} ──\n" if heads else ""
        parts.append(head + _text(path))
    if len(files) > _FILES:
        parts.append(f"── and {len(files) - _FILES} more files ──")
    return "\n\n".join(parts)


def _text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_FILE_CHARS + 1)
    if b"\0" in content:
        return f"({path.stat().st_size:,} bytes that are no text)"
    text = content[:_FILE_CHARS].decode("utf-8", "replace").rstrip("\n")
    if len(content) > _FILE_CHARS:
        text += f"\n… {path.stat().st_size - _FILE_CHARS:,} more bytes"
    return text
