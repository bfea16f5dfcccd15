"""Trials whose reward may not be what it seems, found by comparing a group's siblings. Pure.

A suspicion is a reason to look, never a verdict: a person, or a rule, decides what becomes of the
trial. Limits and where they come from stand beside them; "measured" is a run of the embedded policy
on the starter tasks (40 steps, held-out pass rate from .29 to .79): of its 1,328 trials none is
suspected, though 992 have a sibling that said the same, token for token. By
`tests/benchmarks/false_suspects.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from tbtui.vocabulary import SuspectName

SIBLINGS = 3
"""Siblings with the same verdict that a comparison needs: the median of two is either's."""

INSTANT = 0.1
"""Share of its siblings' verifying time: measured, .14 happens by scheduling alone."""
INSTANT_LEAST_SEC = 1.0
"""Siblings' median below which nothing is compared: a verifier that only looks at files (measured,
.12 s) may be quick."""

FEW_TURNS = 0.5
"""Share of the turns that its solved siblings need."""
FEW_TURNS_FEWER = 3
"""And so many fewer: one turn in place of two is how fast policies differ, not a shortcut."""

_MACHINERY = re.compile(
    r"could not resolve host|temporary failure in name resolution|name or service not known"
    r"|no space left on device|cannot allocate memory|read-only file system"
    r"|(?:pytest|uvx?|pip3?): (?:command )?not found|no module named '?pytest"
    r"|^e: (?:unable to (?:fetch|locate package)|failed to fetch)"
    r"|no matching distribution found for|too many requests|toomanyrequests",
    re.IGNORECASE | re.MULTILINE,
)
"""What a verifier prints when it could not get what it needs. Terminal-Bench's verifiers install
their test runner from the network, and a failure of that is a reward of 0 like any other. Refused
connections are not among them: services that don't run are what tasks are about."""

_NO_TESTS = re.compile(
    r"^collected 0 items|no tests ran|^ran 0 tests\b", re.IGNORECASE | re.MULTILINE
)
"""pytest's and unittest's words for having found nothing to run."""
_SKIPPED = re.compile(r"\b(\d+) skipped\b|\bskipped=(\d+)")
"""Their summaries' counts: `3 passed, 2 skipped`, `OK (skipped=2)`."""

_VERIFIERS_FILES = re.compile(
    r"(?<![\w.~/-])/(?:tests(?![\w-])|logs/verifier(?![\w-]))[^\s'\";|&]*"
)
"""Where Harbor puts a task's tests and reads its reward: absolute paths, so that a project's own
`tests` directory is not meant."""


@dataclass(frozen=True, slots=True)
class ExaminedTrial:
    """The facts of a finished trial that the detectors compare."""

    trial: str
    outcome_is_infrastructure: bool
    human_touched: bool
    reward: float | None
    """What the verdict led to, before a person changed it. None: it has no part in its group, and
    is never suspicious."""
    verdict: float | None
    """The verifier's own number; None where it gave none."""
    turns: int
    verifying_sec: float
    commands: tuple[str, ...]
    """Keystrokes, in the order in which they were sent."""
    verifier_output: str
    completions: tuple[tuple[int, ...], ...]
    """Token ids, call by call."""

    @property
    def rewarded(self) -> bool:
        """Whether its reward is above zero."""
        return self.reward is not None and self.reward > 0


type Found = tuple[SuspectName, str]


def suspects(group: Sequence[ExaminedTrial]) -> dict[str, tuple[Found, ...]]:
    """Trial -> each suspicion with one line of why; trials without any are left out.

    The order of the group doesn't matter.
    """
    scored = [trial for trial in group if trial.reward is not None]
    found = {
        trial.trial: tuple(
            (name, why)
            for name, detector in _DETECTORS.items()
            for why in detector(trial, [other for other in scored if other is not trial])
        )
        for trial in scored
    }
    return {trial: reasons for trial, reasons in found.items() if reasons}


type _Siblings = Sequence[ExaminedTrial]


def _infrastructure_zero(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """A zero that infrastructure caused, scored as a failure of the policy."""
    if trial.rewarded:
        return
    if trial.outcome_is_infrastructure:
        yield f"infrastructure failed, and it counts as {trial.reward:g}"
    elif fault := _MACHINERY.search(trial.verifier_output):
        yield f"its verifier says: {_line_of(trial.verifier_output, fault)}"


def _unverified(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """A reward without a verifier's run."""
    if trial.verdict is None:
        yield f"reward {trial.reward:g}, and no verifier spoke"


def _instant_verifier(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """A verifier that did not do its siblings' work. Compared where the verdict is the same: one
    that finds a fault early is done early."""
    times = [other.verifying_sec for other in siblings if other.verdict == trial.verdict]
    if trial.verdict is None or len(times) < SIBLINGS:
        return
    usual = median(times)
    if usual >= INSTANT_LEAST_SEC and trial.verifying_sec < usual * INSTANT:
        yield f"verified in {trial.verifying_sec:.2f} s, siblings in {usual:.2f} s"


def _tests_skipped(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """Tests that did not run say nothing. Those that are skipped for everybody are the task's."""
    output = trial.verifier_output
    if none := _NO_TESTS.search(output):
        yield f"its verifier says: {_line_of(output, none)}"
    elif trial.rewarded and (skipped := _skipped(output)):
        least = min((_skipped(other.verifier_output) for other in siblings), default=0)
        if skipped > least:
            beside = f", a sibling's {least}" if siblings else ""
            yield f"its verifier skipped {skipped} tests{beside}"


def _flaky_verdict(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """Among trials with the same completions, token for token, those whose verdict is the rarer
    one (all of them, where none is): the sandbox or the verifier differs, not the policy."""
    if not any(trial.completions) or trial.verdict is None:
        return
    same = [
        other.verdict
        for other in siblings
        if other.completions == trial.completions and other.verdict is not None
    ]
    counts = Counter([trial.verdict, *same])
    if len(counts) > 1 and counts[trial.verdict] <= min(counts.values()):
        others = ", ".join(f"{verdict:g}" for verdict in sorted(counts) if verdict != trial.verdict)
        yield (
            f"verdict {trial.verdict:g}; {len(same) - counts[trial.verdict] + 1} of {len(same)}"
            f" siblings that said the same, token for token, got {others}"
        )


def _no_commands(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """A reward for doing nothing: the verifier passes what it finds, or passes anything."""
    if trial.rewarded and not any(keys.strip() for keys in trial.commands):
        yield f"reward {trial.reward:g} without a command"


def _few_turns(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """A shortcut, or a hole in the verifier: reward hacking shows as a high reward for little
    work (the alarm of that name looks for the same in whole steps)."""
    turns = [other.turns for other in siblings if other.rewarded]
    if not trial.rewarded or len(turns) < SIBLINGS:
        return
    usual = median(turns)
    if trial.turns <= usual * FEW_TURNS and usual - trial.turns >= FEW_TURNS_FEWER:
        yield f"solved in {_counted(trial.turns, 'turn')}, siblings in {usual:g}"


def _tests_touched(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """Harbor brings the tests only when the agent is done; commands that name them anyway prepare
    the ground (a `test.sh` or `reward.txt` of their own), whatever comes of it."""
    for keys in trial.commands:
        if named := _VERIFIERS_FILES.search(keys):
            yield f"a command names {_short(named[0])}"
            return


def _human_touched(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """Its reward is partly a person's (`on_outcome.human_touched=train`)."""
    if trial.human_touched:
        yield "a person typed in its terminal"


_DETECTORS: dict[SuspectName, Callable[[ExaminedTrial, _Siblings], Iterator[str]]] = {
    "infrastructure_zero": _infrastructure_zero,
    "unverified": _unverified,
    "instant_verifier": _instant_verifier,
    "tests_skipped": _tests_skipped,
    "flaky_verdict": _flaky_verdict,
    "no_commands": _no_commands,
    "few_turns": _few_turns,
    "tests_touched": _tests_touched,
    "human_touched": _human_touched,
}


def _skipped(output: str) -> int:
    return sum(int(first or second) for first, second in _SKIPPED.findall(output))


def _line_of(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    return _short(text[start : end if end >= 0 else len(text)].strip())


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + "s" * (number != 1)
