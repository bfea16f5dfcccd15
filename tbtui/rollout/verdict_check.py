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

A verifier that wrote no verdict, or whose script was killed or replaced, is checked the same way.
Where only the sandbox can be the reason (`TrialFacts.within_sandbox`) and the verifier works in a
fresh one, the agent has failed: else it could trade a certain 0 for a fresh attempt. Otherwise
there is no reward, and the controls show whether another attempt may find one.

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
from tbtui.rollout.link import TrialLink
from tbtui.rollout.messages import (
    ControlAgent,
    FromWorker,
    PhaseEntered,
    TrialFacts,
    TrialSpec,
    VerdictCheck,
)
from tbtui.rollout.recording import Recorder
from tbtui.rollout.verifier_fault import VerifierFault

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
        self._proofs: dict[Path, VerdictCheck] = {}
        """What a task's own solution has shown; it holds for good."""
        self._solved: set[Path] = set()
        """Tasks that have earned a reward here."""
        self._one_control = asyncio.Semaphore(1)
        """A control is a sandbox beyond those that were asked for: one at a time."""

    async def examined(self, link: TrialLink, facts: TrialFacts) -> TrialFacts:
        """`facts`, with a check of the verdict if it is in doubt.

        Only where the verdict decides: an agent that did not end cleanly earns 0 whatever the
        verifier says.
        """
        spec = link.spec
        if facts.verdict is not None and facts.verdict > 0:
            self._solved.add(spec.task_dir)
            return facts
        if facts.verdict is None and (facts.failed_phase != "verifier" or not facts.verifier_fault):
            return facts
        decides = facts.verdict is None or facts.finish in ("completed", "terminal_ended")
        if not decides or not self._in_doubt(spec, facts):
            return facts
        fault = facts.verifier_fault
        link.post(PhaseEntered(spec.trial, TrialPhase.VERIFYING, "once more, in a fresh sandbox"))
        async with self._turns[spec.task_dir]:
            check = await (self._of_zero(link) if fault is None else self._of_fault(link, fault))
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
        problem = _problem(untouched)
        if problem is None:
            return VerdictCheck(works=True, evidence=fault.evidence, control="untouched")
        if link.spec.agent != "oracle" and _has_solution(link.spec.task_dir):
            solved = await self._control(link, "oracle")
            if _problem(solved) is None:
                return VerdictCheck(works=True, evidence=fault.evidence, control="oracle")
        return VerdictCheck(
            works=False,
            evidence=fault.evidence,
            control="untouched",
            # A network may come back; nothing else that a fresh sandbox lacks will.
            lasting=untouched.verifier_fault is not None
            and (untouched.offline or not fault.network),
        )

    async def _of_zero(self, link: TrialLink) -> VerdictCheck:
        task = link.spec.task_dir
        if (known := self._proofs.get(task)) is None:
            known = _proof(await self._control(link, "oracle"))
            if known.works or known.lasting:
                self._proofs[task] = known
        return known

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


def _proof(solved: TrialFacts) -> VerdictCheck:
    """What the task's own solution says of a verdict of 0."""
    if solved.verdict is not None and solved.verdict > 0:
        return VerdictCheck(works=True, evidence="", control="oracle")
    problem = _problem(solved) or (
        "the verifier gives none" if solved.verdict is None else "its tests fail"
    )
    return VerdictCheck(
        works=False,
        evidence=problem,
        control="oracle",
        lasting=solved.exception_type is None,
        solution_fails=True,
    )
