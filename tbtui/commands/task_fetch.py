"""`tbtui tasks fetch` and `tbtui tasks prefetch`, on the screen: data sets, and the packages that
tasks install."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from tbtui.catalog import fetched_tasks, find_tasks
from tbtui.catalog.fetch import Fetched, Registry, source_of
from tbtui.catalog.fetch import FetchProgress as FetchProgress
from tbtui.catalog.tasks import TaskInfo, discover
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.rollout.environments.userland import missing_packages
from tbtui.terminal import counted, one_line, visible
from tbtui.wheels.cache import cache_root
from tbtui.wheels.filling import Filled, Filling, FillProgress, find_uv
from tbtui.wheels.interpreters import box_python
from tbtui.wheels.requests import PackageRequests, read_task


async def print_data_sets(registry: str | None) -> None:
    """A line for each data set that can be fetched.

    Raises:
        FetchError: the registry can't be reached or read.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    sets = await Registry(registry).data_sets()
    width = max((len(each.id) for each in sets), default=0)
    for each in sets:
        about = visible(one_line(each.description, 80))
        console.print(
            f"{visible(each.id):{width}} {counted(each.tasks, 'task'):>12}  {about}".rstrip()
        )
    of = () if registry is None else ("--registry", registry)
    console.print(
        f"{counted(len(sets), 'data set')}: {to_type('tasks', 'fetch', 'NAME@VERSION', *of)}"
    )


async def print_fetch(name: str, into: Path | None, registry: str | None) -> None:
    """Fetch a data set, telling how far it is: a bar on a terminal, else lines.

    Raises:
        CatalogError: there is no such data set, or something else is in its place.
        FetchError: it can't be had; what there is of it stays for the next time.
    """
    console = Console(soft_wrap=True, highlight=False, markup=False)
    source = source_of(name, registry)
    console.print(f"asking the registry for {name}")
    chosen = await source.find(name)
    if chosen.id != name:
        console.print(f"that is {visible(chosen.id)}")
    if console.is_terminal:
        columns = (TextColumn(chosen.id), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(*columns, console=console, transient=True) as bar:
            shown = bar.add_task(chosen.id, total=chosen.tasks)

            def move(progress: FetchProgress) -> None:
                bar.update(shown, completed=progress.done, total=progress.total)

            fetched = await source.fetch(chosen, into, move)
    else:

        def say(progress: FetchProgress) -> None:
            console.print(f"{progress.done} of {counted(progress.total, 'task')}")

        fetched = await source.fetch(chosen, into, say)
    _print_fetched(console, fetched)


def _print_fetched(console: Console, fetched: Fetched) -> None:
    what = "already there" if fetched.already else "fetched"
    console.print(f"{what}: {counted(fetched.tasks, 'task')} in {fetched.path}")
    named = fetched.path.parent == fetched_tasks()
    where = fetched.path.name if named else str(fetched.path)
    console.print(f"train on them: {to_type('run', f'tasks_dir={where}')}")


_MOST_PACKAGES = 12
_LINES_EVERY = 20
"""Steps a line where there is no progress bar."""


async def print_prefetch(
    directory: Path | None, pythons: Sequence[str], skip: Sequence[str], *, dry_run: bool
) -> bool:
    """Fetch what the tasks of a directory install, telling how far it is; whether all was had.

    Raises:
        CatalogError: there are no tasks.
        UserError: what was given is no version of Python.
        FillError: nothing can be fetched on this host.
        WheelCacheError: what is there already can't be used.
        OSError: the cache can't be written.
    """
    for each in pythons:
        if "/" not in each and not re.fullmatch(r"3\.\d+", each):
            raise UserError(f"--python {each}: give a version such as 3.13, or a path")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    tasks = discover(find_tasks(directory)).require_tasks()
    with _progress(console) as tell:
        asked = _read(tasks, tell)
    for line in asked.unread:
        console.print(f"left out, for only running it would tell: {visible(line)}")
    _print_asked(console, len(tasks), asked, pythons)
    _print_debian(console, asked.debian)
    if dry_run:
        return True
    uv = find_uv()
    if cache_root().exists():
        console.print(f"checking what is in {cache_root()}")
    with _progress(console) as tell:
        filled = await Filling(cache_root(), uv, tell, skip=skip).fill(asked, pythons)
    _print_prefetched(console, filled)
    return not filled.problems


@contextmanager
def _progress(console: Console) -> Iterator[_Tell]:
    if not console.is_terminal:
        yield _Tell(console, None)
        return
    columns = (TextColumn("{task.description:10}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        yield _Tell(console, bar)


class _Tell:
    """Shows progress: a bar for each stage on a terminal, else a line now and then."""

    def __init__(self, console: Console, bar: Bar | None) -> None:
        self._console = console
        self._bar = bar
        self._said: dict[str, int] = {}

    def __call__(self, now: FillProgress) -> None:
        if self._bar is None:
            if now.done == now.total or now.done >= self._said.get(now.stage, 0) + _LINES_EVERY:
                self._said[now.stage] = now.done
                self._console.print(f"{now.stage} {now.done} of {now.total}")
            return
        if now.stage not in self._said:
            self._said[now.stage] = self._bar.add_task(now.stage, total=now.total)
        self._bar.update(TaskID(self._said[now.stage]), completed=now.done)


def _read(tasks: Sequence[TaskInfo], tell: _Tell) -> PackageRequests:
    asked = PackageRequests()
    for number, task in enumerate(tasks, start=1):
        asked.add(read_task(task.path))
        tell(FillProgress("read", number, len(tasks)))
    return asked


def _print_asked(
    console: Console, tasks: int, asked: PackageRequests, pythons: Sequence[str]
) -> None:
    host = box_python() or "of the box"
    counts = Counter(request.python or host for request in asked.requests)
    sets = ", ".join(f"{count} for Python {python}" for python, count in sorted(counts.items()))
    what = f"{counted(len(asked.requests), 'set')} of packages"
    console.print(f"{what} for {counted(tasks, 'task')}: {sets or 'none'}")
    wanted = sorted({*asked.pythons, *pythons}, key=lambda each: (len(each), each))
    if wanted:
        console.print(
            f"images and scripts name Python {visible(', '.join(wanted))}; boxes have {host}"
        )


def _print_debian(console: Console, wanted: Counter[str]) -> None:
    """What only the host's own package manager can bring: boxes see the host's /usr."""
    lacking = missing_packages(tuple(each for each, _ in wanted.most_common()))
    if not lacking:
        return
    first = ", ".join(f"{each} ({wanted[each]})" for each in lacking[:_MOST_PACKAGES])
    more = len(lacking) - _MOST_PACKAGES
    rest = f" and {more} more" if more > 0 else ""
    console.print(
        f"{len(lacking)} Debian packages that tasks install are not on this host:"
        f" {visible(first)}{rest} (in brackets: by how many tasks); boxes see what"
        " `sudo apt-get install` brings here, and it is not fetched by this command"
    )


def _print_prefetched(console: Console, filled: Filled) -> None:
    for line in filled.problems:
        console.print(f"not had: {visible(line)}")
    megabytes = filled.bytes / 1e6
    pythons = f", Python {', '.join(filled.pythons)}" if filled.pythons else ""
    console.print(
        f"{filled.fetched} wheels fetched; {filled.wheels} in all{pythons}: {megabytes:,.0f} MB"
        f" in {cache_root()}"
    )
    if filled.problems:
        console.print(
            f"{len(filled.problems)} could not be had; the same command asks for them again"
        )
