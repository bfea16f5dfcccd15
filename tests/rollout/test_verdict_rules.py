"""Which verdicts are checked, by which controls, and what these say: as data, without sandboxes.

`test_verdict_check.py` has the same with real ones.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from tbtui.findings import UnusableKind
from tbtui.journal.events import PhaseSeconds, TrialPhase
from tbtui.rollout.link import TrialLink
from tbtui.rollout.messages import FromWorker, PhaseEntered, TrialFacts, TrialSpec, VerdictCheck
from tbtui.rollout.recording import Recorder
from tbtui.rollout.verdict_check import KEEP_CLEAN_SEC, KEEP_FAULT_SEC, VerdictChecks
from tbtui.verifier_fault import VerifierFault
from tests.rollout.scripted import make_spec


def ended(verdict: float | None = 0.0, **more: Any) -> TrialFacts:
    facts = TrialFacts("completed", 1, verdict, None, None, None, None, PhaseSeconds())
    return dataclasses.replace(facts, **more)


class Checks:
    """A worker's checks, whose controls end as `ends` says."""

    def __init__(self, folder: Path, *, solution: bool = True) -> None:
        self.folder = folder
        self.ends: dict[str, TrialFacts] = {}
        self.ran: list[TrialSpec] = []
        self.posted: list[FromWorker] = []
        self.now = 0.0
        self.checks = VerdictChecks(self._run, Recorder(), lambda: self.now)
        if solution:
            (folder / "solution").mkdir()
            (folder / "solution" / "solve.sh").touch()

    async def _run(self, control: TrialLink) -> TrialFacts:
        self.ran.append(control.spec)
        control.left_behind = {asyncio.current_task()}  # type: ignore[arg-type]
        return self.ends[str(control.spec.agent)]

    async def __call__(self, facts: TrialFacts, **spec: Any) -> TrialFacts:
        self.link = TrialLink(
            make_spec("t", self.folder, self.folder, **spec),
            post=self.posted.append,
            requests=itertools.count(),
            recorder=Recorder(),
        )
        return await self.checks.examined(self.link, facts)

    def controls(self) -> str:
        """The agents of the controls since the last time."""
        agents = " ".join(str(spec.agent) for spec in self.ran)
        self.ran.clear()
        return agents


MISSING = VerifierFault("command", "uvx: not found", network=False)
NETWORK = VerifierFault("network", "curl: (6) no host", network=True)
LACKS, CUT = ended(verifier_fault=MISSING), ended(verifier_fault=NETWORK)
CLEAN, SOLVED, FAILS, SILENT = ended(), ended(1.0), ended(), ended(None)
BROKEN = ended(None, exception_type="X", exception_message="no", failed_phase="environment")
UNREAD = dataclasses.replace(BROKEN, failed_phase="verifier")
KILLED = ended(None, failed_phase="verifier", verifier_fault=MISSING, within_sandbox=True)
FIRST, NEVER, UNSOLVED = {"check_zeros": "first"}, {"check_zeros": "never"}, {"solution": False}
ORACLE = {"agent": "oracle"}


def works(control: Any, fault: VerifierFault | None = MISSING) -> VerdictCheck:
    return VerdictCheck(True, fault.evidence if fault else "", control)


def lacks(fault: VerifierFault, *, unusable: bool) -> VerdictCheck:
    return VerdictCheck(False, fault.evidence, "untouched", "verifier" if unusable else None)


def unsolved(evidence: str, unusable: UnusableKind | None = "solution") -> VerdictCheck:
    return VerdictCheck(False, evidence, "oracle", unusable, solution_fails=True)


CASES: list[
    tuple[TrialFacts, dict[str, Any], TrialFacts | None, TrialFacts | None, VerdictCheck | None]
] = [
    # the trial; its spec; how an untouched sandbox ends, and the solution's; the check
    (SOLVED, FIRST, None, None, None),
    (FAILS, {}, None, None, None),
    (LACKS, NEVER, None, None, None),
    (LACKS, {}, CLEAN, None, works("untouched")),
    (LACKS, {}, UNREAD, None, works("untouched")),
    (LACKS, {}, LACKS, FAILS, works("oracle")),
    (LACKS, {}, LACKS, LACKS, lacks(MISSING, unusable=True)),
    (LACKS, UNSOLVED, LACKS, None, lacks(MISSING, unusable=True)),
    (LACKS, ORACLE, LACKS, None, lacks(MISSING, unusable=True)),
    (LACKS, UNSOLVED, BROKEN, None, lacks(MISSING, unusable=False)),
    (CUT, UNSOLVED, CUT, None, lacks(NETWORK, unusable=False)),
    (CUT, UNSOLVED, dataclasses.replace(CUT, offline=True), None, lacks(NETWORK, unusable=True)),
    (FAILS, FIRST, None, SOLVED, works("oracle", None)),
    (FAILS, FIRST, None, FAILS, unsolved("its tests fail")),
    (FAILS, FIRST, None, SILENT, unsolved("the verifier gives none")),
    (FAILS, FIRST, None, LACKS, unsolved(MISSING.evidence)),
    (FAILS, FIRST, None, BROKEN, unsolved("X: no", None)),
    (FAILS, FIRST, None, dataclasses.replace(BROKEN, unusable="image"), unsolved("X: no", "image")),
    (ended(-1.0), FIRST, None, FAILS, works("oracle", None)),
    (ended(-1.0), FIRST, None, ended(-1.0), unsolved("its tests fail")),
    (FAILS, FIRST | UNSOLVED, None, None, None),
    (FAILS, FIRST | ORACLE, None, None, None),
    (ended(finish="max_turns"), FIRST, None, SOLVED, works("oracle", None)),
    *(
        (ended(finish=finish), FIRST, None, FAILS, unsolved("its tests fail"))
        for finish in ("max_turns", "budget", "context_overflow", "output_truncated")
    ),
    (
        *(dataclasses.replace(LACKS, finish="max_turns"), UNSOLVED, LACKS, None),
        lacks(MISSING, unusable=True),
    ),
    (ended(finish="cancelled"), FIRST, None, None, None),
    (KILLED, NEVER, CLEAN, None, works("untouched")),
    (KILLED, NEVER | ORACLE, None, None, None),
    (dataclasses.replace(KILLED, verifier_fault=None), FIRST, None, None, None),
    (dataclasses.replace(KILLED, failed_phase="agent"), FIRST, None, None, None),
]


@pytest.mark.parametrize(("facts", "spec", "untouched", "oracle", "check"), CASES)
async def test_which_controls_run_and_what_they_say(
    tmp_path: Path,
    facts: TrialFacts,
    spec: dict[str, Any],
    untouched: TrialFacts | None,
    oracle: TrialFacts | None,
    check: VerdictCheck | None,
) -> None:
    checks = Checks(tmp_path, solution=spec.get("solution", True))
    wanted = {"untouched": untouched, "oracle": oracle}
    checks.ends = {agent: facts for agent, facts in wanted.items() if facts is not None}
    spec = {name: value for name, value in spec.items() if name != "solution"}
    checked = await checks(facts, **spec)
    assert checked.verdict_check == check
    assert dataclasses.replace(checked, verdict_check=None, untouched_verdict=None) == facts
    assert [str(control.agent) for control in checks.ran] == list(checks.ends)
    for control in checks.ran:
        assert control == dataclasses.replace(
            checks.link.spec,
            trial=f"t-{control.agent}",
            trials_dir=tmp_path / "trials" / "t" / "controls",
            agent=control.agent,
            check_zeros="never",
        )
    phases = [e.phase for e in checks.posted if isinstance(e, PhaseEntered)]
    assert phases == ([TrialPhase.VERIFYING, TrialPhase.TEARDOWN] if check else [])
    # What a control left behind is the trial's.
    assert len(checks.link.left_behind) == bool(checks.ran)


async def test_how_long_a_control_is_believed(tmp_path: Path) -> None:
    for end, keep in ((CLEAN, KEEP_CLEAN_SEC), (LACKS, KEEP_FAULT_SEC)):
        (tmp_path / str(keep)).mkdir()
        checks = Checks(tmp_path / str(keep), solution=False)
        checks.ends = {"untouched": end}
        await checks(LACKS)
        checks.now = keep
        again = (await checks(CUT)).verdict_check
        assert again is not None
        assert (again.works, again.evidence) == (end is CLEAN, NETWORK.evidence)
        assert checks.controls() == "untouched"
        checks.now += 0.1
        await checks(LACKS)
        assert checks.controls() == "untouched"


async def test_what_the_solution_shows_holds_for_good_unless_it_was_bad_luck(
    tmp_path: Path,
) -> None:
    for number, (end, controls) in enumerate(
        ((SOLVED, "oracle"), (FAILS, "oracle"), (BROKEN, "oracle oracle"))
    ):
        (tmp_path / str(number)).mkdir()
        checks = Checks(tmp_path / str(number))
        checks.ends = {"oracle": end}
        first, second = await checks(FAILS, **FIRST), await checks(FAILS, **FIRST)
        assert first.verdict_check == second.verdict_check
        assert checks.controls() == controls


async def test_of_a_task_that_was_solved_here_only_a_network_is_doubted(tmp_path: Path) -> None:
    checks = Checks(tmp_path)
    checks.ends = {"untouched": CLEAN}
    await checks(SOLVED)
    assert (await checks(FAILS, **FIRST)).verdict_check is None
    assert (await checks(LACKS, **FIRST)).verdict_check is None
    assert (await checks(CUT, **FIRST)).verdict_check == works("untouched", NETWORK)


async def test_who_prevents_a_verdict_earns_what_an_untouched_sandbox_does(tmp_path: Path) -> None:
    checks = Checks(tmp_path, solution=False)
    checks.ends = {"untouched": ended(-0.5)}
    full = ended(None, failed_phase="verifier", damage="used up its disk")
    assert [(await checks(full)).untouched_verdict for _ in range(2)] == [-0.5, -0.5]
    assert checks.controls() == "untouched"
    assert (await checks(KILLED)).untouched_verdict == -0.5
    assert (await checks(FAILS)).untouched_verdict is None
