"""What tbtui makes of public task repositories, beside what Harbor makes of them: by hand.

`python -m tests.by_hand.public_tasks DIRECTORY... [--deviations FILE] [--no-check]
[--other-harbor [WHEEL]]`
`python -m tests.by_hand.public_tasks DIRECTORY... --oracles ENVIRONMENT [--results FILE]
[--tasks GLOB] [--sample FILE] [--limit N] [--jobs N] [--timeout-factor X]
[--kill-before-verifying]`

The first form prints, for each directory: whether tbtui's loader and the installed Harbor accept
the same tasks, how many tasks are found from the directory itself, and which tasks `tbtui tasks
check` refuses that Harbor accepts, by kind of message. `--other-harbor` repeats it with the other
version that pyproject.toml allows, in an environment that it makes and throws away.

The second form runs each task's own solution as a trial and prints what became of it. A solution
that is scored 0 is listed with the end of what the verifier said. FILE gets a JSON line for each
trial; tasks that are there already are left out, so the same command goes on after an
interruption.

The directories are checkouts made before: nothing is downloaded here, but solutions and verifiers
are other people's programs. Tasks that ask for the network get the host's: to give them none, run
this in a network namespace of its own (`unshare --net`).
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from harbor.models.task.task import Task

from tbtui.catalog import CatalogError
from tbtui.catalog.report import check_directory
from tbtui.catalog.tasks import discover
from tests.by_hand import public_oracles
from tests.by_hand.public_oracles import OracleOptions, PublicTask, table, without_particulars
from tests.rollout.test_harbor_versions import ROOT, make_environment

PARALLEL_CHECKS = 4
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What each side says of one task; an empty text is acceptance."""

    task: PublicTask
    harbor: str
    loader: str
    check: tuple[str, ...] = ()
    """Messages of the errors that `tbtui tasks check` finds."""


def find_tasks(root: Path) -> Iterator[PublicTask]:
    """Every directory below `root` that has a task.toml and does not lie in a task itself."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name != ".git")
        if "task.toml" in files:
            names.clear()
            path = Path(folder)
            yield PublicTask(root.name, (Path(root.name) / path.relative_to(root)).as_posix(), path)


def harbor_refusal(path: Path) -> str:
    """Why the installed Harbor refuses the task; empty if it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Task(path)
    except (OSError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {first_line(str(error))}"
    return ""


def loader_refusal(path: Path) -> str:
    """Why tbtui's own look at the directory refuses the task; empty if it does not."""
    try:
        catalog = discover(path)
    except CatalogError as error:
        return first_line(str(error))
    if any(task.path == path for task in catalog.tasks):
        return ""
    return catalog.defects[0].message if catalog.defects else "not found"


async def check_errors(path: Path) -> tuple[str, ...]:
    """Messages of the errors that `tbtui tasks check` reports for the task."""
    try:
        report = await check_directory(path)
    except CatalogError as error:
        return (first_line(str(error)),)
    return tuple(row.message for row in report.rows if row.severity == "error")


async def verdicts_of(tasks: Sequence[PublicTask], *, with_check: bool) -> list[Verdicts]:
    gate = asyncio.Semaphore(PARALLEL_CHECKS)

    async def look(task: PublicTask) -> Verdicts:
        async with gate:
            check = await check_errors(task.path) if with_check else ()
            return Verdicts(task, harbor_refusal(task.path), loader_refusal(task.path), check)

    return await asyncio.gather(*map(look, tasks))


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def found_from(root: Path, tasks: Sequence[PublicTask]) -> set[Path]:
    """The tasks that tbtui finds when it is given the repository itself, usable or not."""
    try:
        catalog = discover(root)
    except CatalogError:
        return set()
    seen = {task.path for task in catalog.tasks}
    for defect in catalog.defects:
        seen |= {defect.path, *defect.path.parents}
    return {task.path for task in tasks if task.path in seen}


def loader_table(verdicts: Mapping[Path, Sequence[Verdicts]]) -> list[str]:
    rows: list[tuple[object, ...]] = []
    for root, found in verdicts.items():
        agree = sum(bool(each.harbor) == bool(each.loader) for each in found)
        misses = sum(bool(each.harbor) and not each.loader for each in found)
        alarms = sum(bool(each.loader) and not each.harbor for each in found)
        refused = sum(bool(each.harbor) for each in found)
        from_root = len(found_from(root, [each.task for each in found]))
        rows.append((root.name, len(found), refused, agree, misses, alarms, from_root))
    total = [sum(int(str(row[column])) for row in rows) for column in range(1, 7)]
    header = ("repository", "tasks", "Harbor refuses", "agree", "misses", "false alarms", "found")
    return table(header, [*rows, ("total", *total)])


def check_table(verdicts: Sequence[Verdicts]) -> list[str]:
    """Refusals by `check` of tasks that Harbor accepts, by kind of message.

    Harbor does not read Dockerfiles or scripts: some of these tasks can indeed not be built.
    """
    accepted = [each for each in verdicts if not each.harbor]
    kinds: defaultdict[str, list[Verdicts]] = defaultdict(list)
    for each in accepted:
        for kind in {without_particulars(message) for message in each.check}:
            kinds[kind].append(each)
    refused = sum(bool(each.check) for each in accepted)
    missed = sum(bool(each.harbor) and not each.check for each in verdicts)
    return [
        f"check refuses {refused} of the {len(accepted)} tasks that Harbor accepts,"
        f" and accepts {missed} of the {len(verdicts) - len(accepted)} that it refuses",
        *table(
            ("tasks", "repositories", "message", "first of them"),
            [
                (len(each), len({v.task.repository for v in each}), kind, each[0].task.name)
                for kind, each in sorted(kinds.items(), key=lambda pair: -len(pair[1]))
            ],
        ),
    ]


def deviations(verdicts: Sequence[Verdicts]) -> Iterator[str]:
    """A line for each disagreement, to be read or searched."""
    for each in verdicts:
        if each.harbor and not each.loader:
            yield f"miss\t{each.task.name}\t{each.harbor}"
        if each.loader and not each.harbor:
            yield f"false alarm\t{each.task.name}\t{each.loader}"
        if not each.harbor:
            for message in each.check:
                yield f"check\t{each.task.name}\t{message}"


def survey(roots: Sequence[Path], deviations_file: Path | None, *, with_check: bool) -> None:
    say(f"Harbor {importlib.metadata.version('harbor')}, tbtui {public_oracles.commit()}")
    verdicts = {
        root: asyncio.run(verdicts_of(list(find_tasks(root)), with_check=with_check))
        for root in roots
    }
    everything = [each for found in verdicts.values() for each in found]
    say("", *loader_table(verdicts))
    if with_check:
        say("", *check_table(everything))
    if deviations_file is not None:
        lines = list(deviations(everything))
        deviations_file.write_text("".join(f"{line}\n" for line in lines))
        say("", f"{len(lines)} deviations in {deviations_file}")


def survey_elsewhere(wheel: str, arguments: Sequence[str]) -> int:
    """Repeat the survey with the other Harbor."""
    here = importlib.metadata.version("harbor")
    other = "0.25" if here.startswith("0.24.") else "0.24"
    with tempfile.TemporaryDirectory(prefix="tbtui-harbor-") as folder:
        try:
            python = make_environment(Path(folder), wheel or f"harbor=={other}.*")
        except pytest.skip.Exception as reason:
            say(f"not run: {reason}")
            return 1
        command = [str(python), "-m", "tests.by_hand.public_tasks", *arguments]
        return subprocess.run(command, cwd=ROOT, check=False).returncode


def existing_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{path} is not a file")
    return path


def say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directories", nargs="*", type=Path, metavar="DIRECTORY")
    parser.add_argument("--deviations", type=Path, metavar="FILE")
    parser.add_argument("--no-check", action="store_true", help="the loader alone")
    parser.add_argument("--other-harbor", nargs="?", const="", metavar="WHEEL")
    parser.add_argument("--oracles", metavar="ENVIRONMENT", help="sandbox, docker, ...")
    parser.add_argument("--results", type=Path, metavar="FILE", help="default: oracles.jsonl")
    parser.add_argument("--tasks", metavar="GLOB", help="of REPOSITORY/PATH of a task")
    parser.add_argument(
        "--sample", type=existing_file, metavar="FILE", help="a REPOSITORY/PATH a line"
    )
    parser.add_argument("--limit", type=int, metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--timeout-factor", type=float, default=1.0, metavar="X")
    parser.add_argument(
        "--nobody", action="store_true", help="nobody acts: which zeros a run would believe"
    )
    parser.add_argument(
        "--kill-before-verifying",
        action="store_true",
        help="what a solution has left running is killed first",
    )
    given = parser.parse_args()
    roots = [directory.absolute() for directory in given.directories]
    if not roots:
        parser.error("give the directories of one or more repositories")
    for root in roots:
        if not root.is_dir():
            parser.error(f"{root} is not a directory")
    if given.oracles:
        tasks = [task for root in roots for task in find_tasks(root)]
        options = OracleOptions(
            given.oracles,
            given.results or Path("oracles.jsonl"),
            given.tasks,
            frozenset(given.sample.read_text().splitlines()) if given.sample else None,
            given.limit,
            given.jobs,
            given.timeout_factor,
            given.nobody,
            given.kill_before_verifying,
        )
        try:
            return asyncio.run(public_oracles.run(tasks, options, say))
        except KeyboardInterrupt:
            say("interrupted; the same command goes on from here")
            return EXIT_INTERRUPTED
    if given.other_harbor is not None:
        others = [*map(str, roots), *(["--no-check"] if given.no_check else [])]
        if given.deviations is not None:
            others += ["--deviations", str(given.deviations.absolute())]
        return survey_elsewhere(given.other_harbor, others)
    survey(roots, given.deviations, with_check=not given.no_check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
