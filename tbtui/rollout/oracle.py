"""Agents without a model: Harbor's oracle, which runs the task's own solution, and an idle one.

The oracle is tied to a trial as Terminus-2 is: its output is the trial's terminal, its time is the
trial's budget, and there are no turns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, override

from harbor.agents.nop import NopAgent
from harbor.agents.oracle import OracleAgent
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from harbor.models.trial.paths import TrialPaths

from tbtui.journal.events import TrialPhase
from tbtui.rollout.ending import require_not_starved
from tbtui.rollout.held_sandbox import HeldSandbox
from tbtui.rollout.link import LINK
from tbtui.rollout.recording import Recording
from tbtui.rollout.terminus import PANE_HEIGHT, PANE_WIDTH

IMPORT_PATH = "tbtui.rollout.oracle:LinkedOracle"
NOP_IMPORT_PATH = "tbtui.rollout.oracle:LinkedNop"


class LineRecording(Recording):
    """Records a file of plain lines, which a terminal would show as stairs."""

    @override
    def _output(self, text: str) -> None:
        super()._output(text.replace("\n", "\r\n"))


class LinkedOracle(OracleAgent):
    """Built by Harbor from its import path; finds its trial in `LINK`."""

    def __init__(self, logs_dir: Path, **kwargs: Any) -> None:
        self._link = link = LINK.get()
        paths = TrialPaths(link.spec.trials_dir / link.spec.trial)
        super().__init__(logs_dir, link.spec.task_dir, paths, **kwargs)

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        link = self._link
        link.stage = "agent_setup"
        link.enter(TrialPhase.SETUP, "solution")
        link.watch.enter("setup")
        await super().setup(environment)
        paths = environment.trial_paths
        link.begin_recording(
            LineRecording(
                paths.agent_dir / self._ORACLE_LOG_FILE,
                paths.trial_dir / "recording.cast",
                width=PANE_WIDTH,
                height=PANE_HEIGHT,
            )
        )

    @override
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        link, budget = self._link, self._link.budget
        link.enter(TrialPhase.ACTING, "solution/solve.sh")
        link.control.attach(HeldSandbox(environment, link.spec.environment.kwargs))
        try:
            async with budget.spending():
                await super().run(instruction, environment, context)
            link.notes.end("completed")
        except TimeoutError:
            if link.control.ending is None and not budget.spent:
                link.notes.end("error")
                raise
            await require_not_starved(link)
            # Returning lets Harbor verify what has been done.
            link.notes.end(link.control.ending or "budget")
        except Exception:
            link.notes.end("error")
            raise
        finally:
            await link.control.detach()


class LinkedNop(NopAgent):
    """Leaves the sandbox as it is; the verifier follows at once."""

    @override
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        LINK.get().notes.finish = "completed"
