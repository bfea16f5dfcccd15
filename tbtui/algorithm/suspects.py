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

from tbtui.findings import Finding, Rule
from tbtui.verifier_fault import FaultKind, VerifierFault, find_fault, find_trace

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

_LACKED: tuple[FaultKind, ...] = ("packages", "resources", "network")
"""What no test is about: doubtful though tests had results. Terminal-Bench's verifiers install
their test runner from the network, and a failure of that is a reward of 0 like any other."""
_SKIPPED = re.compile(r"\b(\d+) skipped\b|\bskipped=(\d+)")
"""Their summaries' counts: `3 passed, 2 skipped`, `OK (skipped=2)`."""
_NUMBER = re.compile(r"\d[\d.]*")

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
    began_at: float
    ended_at: float
    """When it had a sandbox, in seconds of one clock."""
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


def suspects(group: Sequence[ExaminedTrial]) -> dict[str, tuple[Finding, ...]]:
    """Trial -> each suspicion; trials without any are left out.

    The order of the group doesn't matter.
    """
    scored = [trial for trial in group if trial.reward is not None]
    found = {
        trial.trial: tuple(
            Finding(rule, text, "watch", trials=(trial.trial,))
            for rule, detector in _DETECTORS.items()
            for text in detector(trial, [other for other in scored if other is not trial])
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
    elif (fault := _fault(trial.verifier_output)) and fault.kind != "tests":
        yield f"its verifier says: {_short(fault.evidence)}"


def _unverified(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """A reward without a verifier's run."""
    if trial.verdict is None:
        yield f"reward {trial.reward:g}, and no verifier spoke"


def _instant_verifier(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """A verifier that did not do its siblings' work. Compared where the verdict is the same: one
    that finds a fault early is done early. A trial that is resumed alone, or is the last one, has
    the machine to itself and may be that much quicker: there it is what was printed that counts."""
    alike = [other for other in siblings if other.verdict == trial.verdict]
    if trial.verdict is None or len(alike) < SIBLINGS:
        return
    usual = median(other.verifying_sec for other in alike)
    if usual < INSTANT_LEAST_SEC or trial.verifying_sec >= usual * INSTANT:
        return
    beside = sum(other.began_at < trial.ended_at <= other.ended_at for other in alike)
    if beside >= SIBLINGS or not any(_prints_as(trial, other) for other in alike):
        yield f"verified in {trial.verifying_sec:.2f} s, siblings in {usual:.2f} s"


def _prints_as(trial: ExaminedTrial, other: ExaminedTrial) -> bool:
    """Whether its verifier printed most lines that the other's did, numbers aside."""
    mine, theirs = (
        {_NUMBER.sub("0", line.strip()) for line in each.verifier_output.splitlines()}
        for each in (trial, other)
    )
    return 2 * len(mine & theirs) >= len(theirs)


def _tests_skipped(trial: ExaminedTrial, siblings: _Siblings) -> Iterator[str]:
    """Tests that did not run say nothing. Those that are skipped for everybody are the task's."""
    output = trial.verifier_output
    if (fault := _fault(output)) and fault.kind == "tests":
        yield f"its verifier says: {_short(fault.evidence)}"
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


_DETECTORS: dict[Rule, Callable[[ExaminedTrial, _Siblings], Iterator[str]]] = {
    Rule.INFRASTRUCTURE_ZERO: _infrastructure_zero,
    Rule.UNVERIFIED: _unverified,
    Rule.INSTANT_VERIFIER: _instant_verifier,
    Rule.TESTS_SKIPPED: _tests_skipped,
    Rule.FLAKY_VERDICT: _flaky_verdict,
    Rule.NO_COMMANDS: _no_commands,
    Rule.FEW_TURNS: _few_turns,
    Rule.TESTS_TOUCHED: _tests_touched,
    Rule.HUMAN_TOUCHED: _human_touched,
}


def _fault(output: str) -> VerifierFault | None:
    return find_fault(output) or find_trace(output, _LACKED)


def _skipped(output: str) -> int:
    return sum(int(first or second) for first, second in _SKIPPED.findall(output))


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + "s" * (number != 1)
