"""How well the tests protect: changes one thing in a module, and sees whether a test fails.

    uv run python -m tests.by_hand.mutants [MODULE...] [--sample N] [--json FILE] [--compare FILE]

A mutant (`mutations.py`) is killed if a test fails or takes too long, and survives if all pass. A
module's sample is chosen by a hash of the changed lines: it stays nearly the same when other lines
change. All happens in a copy of the working tree, below the temporary directory. A forked process
tries each mutant with the tests that execute the changed lines, the quickest file first.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib.metadata
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import coverage
import hypothesis
import pytest

from tests.by_hand.mutations import Mutant, mutants_of, sample

ROOT = Path(__file__).parents[2]
PR_SET_PDEATHSIG = 1

TESTS: Mapping[str, str] = {
    "tbtui/algorithm/[!_]*.py": "algorithm/test_*.py policies/test_arithmetic.py"
    " engines/test_consumption.py engines/test_curriculum.py",
    "tbtui/rollout/outcome.py": "rollout/test_trial_outcome.py",
    "tbtui/verifier_fault.py": "algorithm/test_verifier_fault.py",
    "tbtui/rollout/verdict_check.py": "rollout/test_verdict_*.py",
    "tbtui/journal/verbs.py": "control/test_verbs.py engines/test_control.py",
    "tbtui/engines/trials/steering.py": "control/test_verbs.py engines/test_control.py"
    " engines/test_steering.py",
    "tbtui/engines/grpo/recovery.py": "engines/test_resume.py",
}
"""The modules that are measured, and the tests that are considered for each; patterns."""


def files_for(module: str) -> list[str]:
    """The files of the tests that are considered for a module."""
    patterns = next(names for name, names in TESTS.items() if Path(module).match(name)).split()
    files = (path for each in patterns for path in sorted((ROOT / "tests").glob(each)))
    return [str(path.relative_to(ROOT)) for path in files]


# Which tests execute what


def _file(test: str) -> str:
    return test.split("::")[0]


class _Watch:
    """A plugin of pytest's: writes down which tests execute which lines, and their seconds."""

    def __init__(self, to: Path, modules: Sequence[Path]) -> None:
        self._to, self._modules = to, modules
        self._seconds: dict[str, float] = defaultdict(float)
        self._others: dict[str, str] = {}
        self._context = ""
        self._coverage = coverage.Coverage(data_file=None, include=list(map(str, modules)))
        self._coverage.start()

    def _switch(self, context: str) -> None:
        self._context = context
        self._coverage.switch_context(context)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._switch(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """What a shared fixture executes is executed for all tests of the file, or for all."""
        before, scope = self._context, fixturedef.scope
        if scope != "function":
            self._switch(_file(before) if scope in ("module", "class") else "tests/")
        result = yield
        self._switch(before)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if not report.passed:
            self._others[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {path.name: data.contexts_by_lineno(str(path)) for path in self._modules}
        seconds = {test: sec for test, sec in self._seconds.items() if test not in self._others}
        about = {"lines": lines, "seconds": seconds, "others": self._others}
        self._to.write_text(json.dumps(about))


def tests_of(recorded: Mapping[str, Any], module: str, lines: range) -> list[str]:
    """The tests that execute one of these lines, or any of the module; the quickest file first.

    Where none does in pytest's own process, all that are considered.
    """
    by_line, seconds = recorded["lines"][Path(module).name], recorded["seconds"]
    places = map(str, lines) if lines else by_line
    hits = tuple({each for at in places for each in by_line.get(at, ()) if each})
    considered = [test for test in seconds if _file(test) in files_for(module)]
    tests = [test for test in considered if test.startswith(hits)] or considered
    costs: dict[str, float] = defaultdict(float)
    for test in tests:
        costs[_file(test)] += seconds[test]
    return sorted(tests, key=lambda it: (costs[_file(it)], _file(it), seconds[it]))


# Trying mutants


class _Chosen:
    """A plugin of pytest's: runs the chosen tests alone, in their order, and names what failed."""

    def __init__(self, tests: Sequence[str], failed: Path) -> None:
        self._order = {test: at for at, test in enumerate(tests)}
        self._failed = failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.write_text(report.nodeid)


class Tree:
    """A copy of the working tree, in which pytest runs in forked processes."""

    def __init__(self, directory: Path, marks: str) -> None:
        self.path = directory / "tree"
        self._marks = marks
        self._written = 0
        self.output = directory / "output"
        listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if os.path.lexists(ROOT / name):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.path / name, follow_symlinks=False)

    def write(self, module: str, source: str) -> None:
        """Change a module; its time is one that no compiled form of it has."""
        self._written += 1
        (self.path / module).write_text(source)
        os.utime(self.path / module, (self._written, self._written))

    def pytest(
        self, plugin: Callable[[], object], limit: float | None, *arguments: str
    ) -> int | None:
        """pytest's exit status; None: it took longer than `limit` seconds."""
        start = multiprocessing.get_context("fork").Process
        fork = start(target=self._run, args=(plugin, arguments))
        fork.start()
        fork.join(limit)
        status = fork.exitcode
        fork.kill()  # what it has started goes with it: tests/session.py
        fork.join()
        return status

    def _run(self, plugin: Callable[[], object], arguments: Sequence[str]) -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.chdir(self.path)
        os.environ["PYTHONPATH"] = str(self.path)
        sys.path[:] = [str(self.path), *(p for p in sys.path if Path(p).resolve() != ROOT)]
        for name in [name for name in sys.modules if name.split(".")[0] in ("tbtui", "tests")]:
            del sys.modules[name]
        output = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        options = ("-q", "-n", "0", "-p", "no:cacheprovider", "-o", "addopts=", "-m", self._marks)
        profile = "--hypothesis-profile=mutants"
        os._exit(pytest.main([*options, profile, *arguments], plugins=[plugin()]))


def result_of(
    tree: Tree, recorded: Mapping[str, Any], module: str, mutant: Mutant
) -> dict[str, Any]:
    """What became of a mutant, as the report has it."""
    tests = tests_of(recorded, module, mutant.lines)
    original = (tree.path / module).read_text()
    failed = tree.output.with_name("failed")
    failed.write_text("")
    tree.write(module, mutant.source())
    limit = 10 + 5 * sum(recorded["seconds"][test] for test in tests)
    status = tree.pytest(
        lambda: _Chosen(tests, failed), limit, "-x", *dict.fromkeys(map(_file, tests))
    )
    tree.write(module, original)
    survives = status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    by = "" if survives else "time" if status is None else failed.read_text() or "no test begins"
    return {"module": module, "line": mutant.line, "key": mutant.key, "killed by": by}


# The report


def _share(report: Mapping[str, Any], module: str) -> str:
    tried = [bool(each["killed by"]) for each in report["tried"] if each["module"] == module]
    return f"{sum(tried)} of {len(tried)} ({sum(tried) / len(tried):.0%})" if tried else ""


def lines_of(report: Mapping[str, Any], before: Mapping[str, Any] | None) -> Iterator[str]:
    """A Markdown table of the mutants that are killed, and were; then those that survive."""
    yield f"| module | mutants |{' killed before |' if before else ''} killed |"
    yield f"|---|---|---|{'---|' if before else ''}"
    for module, count in report["mutants"].items():
        shares = [_share(each, module) for each in (before, report) if each]
        yield f"| `{module}` | {count} | {' | '.join(shares)} |"
    killers = {(it["module"], *it["key"]): it["killed by"] for it in (before or report)["tried"]}
    for it in report["tried"]:
        if not it["killed by"]:
            old, new = (" ".join(each.split()) for each in it["key"][1:3])
            killer = killers.get((it["module"], *it["key"]))
            was = f" (was killed by {killer})" if killer else ""
            yield f"{it['module']}:{it['line']}: {old} -> {new}{was}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="paths; none: all")
    parser.add_argument("--sample", type=int, default=24, help="mutants of a module; 0: all")
    parser.add_argument("--seed", type=int, default=0, help="chooses another sample")
    parser.add_argument("--slow", action="store_true", help="slow tests have a chance, too")
    parser.add_argument("--json", type=Path, help="a file for what became of each mutant")
    parser.add_argument("--compare", type=Path, help="such a file, of before")
    options = parser.parse_args()
    every = [str(path.relative_to(ROOT)) for name in TESTS for path in sorted(ROOT.glob(name))]
    modules = options.modules or every
    if unknown := set(modules).difference(every):
        parser.error(f"{', '.join(unknown)}: TESTS in {__file__} has no such module")
    files = dict.fromkeys(file for module in modules for file in files_for(module))
    before = json.loads(options.compare.read_text()) if options.compare else None
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # no shrinking
    constant = hypothesis.settings.get_profile("ci")
    hypothesis.settings.register_profile("mutants", constant, max_examples=50, phases=phases)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # What all forks would import of other packages, each anew.
    for module in modules:
        importlib.import_module(module.removesuffix(".py").replace("/", "."))
    for plugin in importlib.metadata.entry_points(group="pytest11"):
        plugin.load()
    gc.collect()
    gc.freeze()
    marks = "not docker and not browser" + ("" if options.slow else " and not slow")
    report: dict[str, Any] = {"seed": options.seed, "mutants": {}, "tried": []}
    with tempfile.TemporaryDirectory(prefix="tbtui-mutants-") as name:
        directory, began = Path(name), time.monotonic()
        tree = Tree(directory, marks)
        written, paths = directory / "tests.json", [tree.path / module for module in modules]
        if tree.pytest(lambda: _Watch(written, paths), None, *files) not in (0, 1):
            print(tree.output.read_text(), file=sys.stderr)
            return 1
        recorded = json.loads(written.read_text())
        others = "".join(f"\n{how}: {test}" for test, how in recorded["others"].items())
        _note(began, f"{len(recorded['seconds'])} tests pass{others}")
        for module in modules:
            began, mutants = time.monotonic(), mutants_of((ROOT / module).read_text())
            chosen = sample(mutants, options.sample, options.seed)
            report["mutants"][module] = len(mutants)
            report["tried"] += [result_of(tree, recorded, module, mutant) for mutant in chosen]
            _note(began, f"{module}: {_share(report, module)}")
            if options.json:
                options.json.write_text(json.dumps(report, indent=1))
    print(*lines_of(report, before), sep="\n")
    return 0


def _note(began: float, text: str) -> None:
    print(f"{time.monotonic() - began:4.0f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
