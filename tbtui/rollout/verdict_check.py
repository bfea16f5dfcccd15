"""Checks a verdict of 0 against a fresh sandbox: is it the agent's failure or the verifier's?

All that a verifier prints in the sandbox that the agent worked in may be the agent's doing, so no
text decides. A *control* does: the same verifier, in a fresh sandbox that no agent has touched.

1. A verifier that seems not to have worked (`verifier_fault`) runs once more in an untouched
   sandbox. If it works there, the agent broke it, and its 0 stands.
2. If it does not, the task may be one whose tests can only begin after the work is done (a broken
   Python to be mended). Then the task's own solution runs in another sandbox. If the verifier
   works after that, the 0 stands; if not, or if there is no solution, there is no verdict.
3. In an environment that is not the image which the task's author tested (the sandbox), the first
   0 of a task is checked without any suspicion: if the task's own solution earns no more, the
   environment can't score the task.

All that whichever way the agent ended: a weak policy mostly runs out of turns, time or context, and
its 0 says no more of a task that can't be scored.

A verifier that wrote no verdict, or whose script was killed or replaced, is checked the same way.
Where only the sandbox can be the reason (`TrialFacts.within_sandbox`) and the verifier works in a
fresh one, the agent has failed: else it could trade a certain 0 for a fresh attempt. It then earns
no more than an untouched sandbox does, which may be less than 0. Otherwise there is no reward, and
the controls show whether another attempt may find one.

A task that has earned a reward here can be scored here: from then on only a network that fails is
worth a control. What a control says is kept for a while, so that a group of trials asks once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tbtui.journal.events import TrialPhase
from tbtui.outcomes import Outcome
from tbtui.rollout.link import TrialLink
from tbtui.rollout.messages import (
    ControlAgent,
    FromWorker,
    PhaseEntered,
    TrialFacts,
    TrialSpec,
    VerdictCheck,
)
from tbtui.rollout.outcome import decide
from tbtui.rollout.recording import Recorder
from tbtui.verifier_fault import VerifierFault

RunTrial = Callable[[TrialLink], Coroutine[Any, Any, TrialFacts]]

KEEP_FAULT_SEC = 600.0
"""How long "it can't work here" is believed."""
KEEP_CLEAN_SEC = 10.0
"""How long "it works here" is: a network may fail at any moment, and siblings end together."""


class VerdictChecks:
    """The checks of one worker; controls of one task run one after the other."""

    def __init__(
        self,
        run_trial: RunTrial,
        recorder: Recorder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_trial = run_trial
        self._recorder = recorder
        self._clock = clock
        self._turns: dict[Path, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._faults: dict[Path, tuple[float, VerdictCheck]] = {}
        """When each was said."""
        self._solutions: dict[Path, TrialFacts] = {}
        """How tasks' own solutions went; it holds for good."""
        self._untouched: dict[Path, float | None] = {}
        """Verdicts on tasks' sandboxes that no agent has touched."""
        self._solved: set[Path] = set()
        """Tasks that have earned a reward here."""
        self._one_control = asyncio.Semaphore(1)
        """A control is a sandbox beyond those that were asked for: one at a time."""

    async def examined(self, link: TrialLink, facts: TrialFacts) -> TrialFacts:
        """`facts`, with a check of the verdict if it is in doubt, and with what an untouched
        sandbox earns if the agent has prevented a verdict."""
        facts = await self._checked(link, facts)
        decision = decide(facts)
        if decision.verdict is not None or decision.outcome is not Outcome.FAILED:
            return facts
        async with self._turns[link.spec.task_dir]:
            untouched = await self._verdict_untouched(link)
        return dataclasses.replace(facts, untouched_verdict=untouched)

    async def _checked(self, link: TrialLink, facts: TrialFacts) -> TrialFacts:
        spec = link.spec
        if facts.verdict is not None and facts.verdict > 0:
            self._solved.add(spec.task_dir)
            return facts
        if facts.verdict is None and (facts.failed_phase != "verifier" or not facts.verifier_fault):
            return facts
        if facts.verdict is not None and not _counts(facts):
            return facts
        if not self._in_doubt(spec, facts):
            return facts
        fault = facts.verifier_fault
        link.post(PhaseEntered(spec.trial, TrialPhase.VERIFYING, "once more, in a fresh sandbox"))
        async with self._turns[spec.task_dir]:
            if fault is not None:
                check = await self._of_fault(link, fault)
            else:
                check = await self._of_zero(link, facts.verdict or 0.0)
        link.post(PhaseEntered(spec.trial, TrialPhase.TEARDOWN))
        return dataclasses.replace(facts, verdict_check=check)

    def _in_doubt(self, spec: TrialSpec, facts: TrialFacts) -> bool:
        if facts.within_sandbox and spec.agent not in ("oracle", "untouched"):
            return True  # no 0 to be believed without a check
        if spec.check_zeros == "never":
            return False
        if spec.task_dir in self._solved:
            return facts.verifier_fault is not None and facts.verifier_fault.network
        if facts.verifier_fault is not None:
            return True
        # The solution's own 0 needs no second one, and without a solution there is no witness.
        solvable = spec.agent != "oracle" and _has_solution(spec.task_dir)
        return spec.check_zeros == "first" and solvable

    async def _of_fault(self, link: TrialLink, fault: VerifierFault) -> VerdictCheck:
        task = link.spec.task_dir
        if (known := self._faults.get(task)) is not None:
            age, check = self._clock() - known[0], known[1]
            if age <= (KEEP_CLEAN_SEC if check.works else KEEP_FAULT_SEC):
                return dataclasses.replace(check, evidence=fault.evidence)
        check = await self._controlled(link, fault)
        self._faults[task] = (self._clock(), check)
        return check

    async def _controlled(self, link: TrialLink, fault: VerifierFault) -> VerdictCheck:
        untouched = await self._control(link, "untouched")
        self._untouched[link.spec.task_dir] = untouched.verdict
        problem = _problem(untouched)
        if problem is None:
            return VerdictCheck(works=True, evidence=fault.evidence, control="untouched")
        if link.spec.agent != "oracle" and _has_solution(link.spec.task_dir):
            solved = await self._control(link, "oracle")
            if _problem(solved) is None:
                return VerdictCheck(works=True, evidence=fault.evidence, control="oracle")
        # A network may come back; nothing else that a fresh sandbox lacks will.
        lasting = untouched.verifier_fault is not None and (untouched.offline or not fault.network)
        return VerdictCheck(
            works=False,
            evidence=fault.evidence,
            control="untouched",
            unusable="verifier" if lasting else None,
        )

    async def _of_zero(self, link: TrialLink, verdict: float) -> VerdictCheck:
        task = link.spec.task_dir
        solved = self._solutions.get(task) or await self._control(link, "oracle")
        check = _proof(solved, verdict)
        if check.works or check.unusable:
            self._solutions[task] = solved
        return check

    async def _verdict_untouched(self, link: TrialLink) -> float | None:
        task = link.spec.task_dir
        if task not in self._untouched:
            self._untouched[task] = (await self._control(link, "untouched")).verdict
        return self._untouched[task]

    async def _control(self, link: TrialLink, agent: ControlAgent) -> TrialFacts:
        """Run the task again without the agent, below the directory of the trial."""
        spec = dataclasses.replace(
            link.spec,
            trial=f"{link.spec.trial}-{agent}",
            trials_dir=link.spec.trials_dir / link.spec.trial / "controls",
            agent=agent,
            check_zeros="never",
        )
        control = TrialLink(
            spec, post=_unheard, requests=itertools.count(), recorder=self._recorder
        )
        async with self._one_control:
            try:
                return await self._run_trial(control)
            finally:
                link.left_behind |= control.left_behind


def _unheard(_: FromWorker) -> None:
    """A control is no trial of the run: nothing of it is journalled."""


def _has_solution(task: Path) -> bool:
    return any(task.glob("solution/solve.*")) or any(task.glob("steps/*/solution/solve.*"))


def _problem(control: TrialFacts) -> str | None:
    """What says that the verifier could not work in a control either."""
    if control.verifier_fault is not None:
        return control.verifier_fault.evidence
    if control.exception_type is not None and control.failed_phase != "verifier":
        return f"{control.exception_type}: {control.exception_message}"
    return None


def _counts(facts: TrialFacts) -> bool:
    """Whether the trial's verdict decides what it earns."""
    outcome = decide(facts).outcome
    return not outcome.infrastructure and outcome is not Outcome.CANCELLED


def _proof(solved: TrialFacts, verdict: float) -> VerdictCheck:
    """What the task's own solution says of a verdict of 0, or of less."""
    if solved.verdict is not None and solved.verdict > verdict:
        return VerdictCheck(works=True, evidence="", control="oracle")
    problem = _problem(solved) or (
        "the verifier gives none" if solved.verdict is None else "its tests fail"
    )
    return VerdictCheck(
        works=False,
        evidence=problem,
        control="oracle",
        unusable=solved.unusable or ("solution" if solved.exception_type is None else None),
        solution_fails=True,
    )
