"""What a step's wait went to: its critical path, live and as it was measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tbtui.journal.vocabulary import RunPhase
from tbtui.view.estimate import Outlook
from tbtui.view.spending import breakdown
from tbtui.view.state import SPENDINGS, RunState, Spending, TrialView

METRIC = "time/wait/"
"""Before the name of a spending, in a step's metrics; seconds."""


@dataclass(frozen=True, slots=True)
class StepWait:
    """The time of the trial that a step waited for longest, earlier attempts included."""

    step: int
    seconds: dict[Spending, float]
    """Of the critical path, by what they went to, in the order of a trial's life."""
    live: bool
    """The step is still being sampled."""

    @property
    def shares(self) -> dict[Spending, float]:
        """From 0 to 1."""
        total = sum(self.seconds.values())
        return {name: seconds / total for name, seconds in self.seconds.items()} if total else {}


def step_wait(outlook: Outlook) -> StepWait | None:
    """What the step under way waits for, or what the latest one waited for."""
    state = outlook.state
    if not state.steps:
        return None
    step = next(iter(state.open_steps()), None)
    if state.phase is RunPhase.SAMPLING and step is not None:
        batch = (step.step, "train")
        members = [t for t in outlook.holding_up if (t.step, t.purpose) == batch]
        if members:
            return StepWait(step.step, _with_earlier_attempts(members[0], state, outlook.now), True)
    return next(
        (
            waited
            for each in reversed(state.steps)
            if (waited := measured_wait(each.step, each.metrics)) is not None
        ),
        None,
    )


def in_words(wait: StepWait, most: int = 2) -> str:
    """`sampling 61%, commands 24%`: the largest shares."""
    largest = sorted(wait.shares.items(), key=lambda share: -share[1])[:most]
    return ", ".join(f"{name} {share:.0%}" for name, share in largest if share >= 0.005)


def measured_wait(step: int, metrics: dict[str, float]) -> StepWait | None:
    """The wait that a finished step's metrics tell of, if they do."""
    seconds: dict[Spending, float] = {
        name: metrics[METRIC + name] for name in SPENDINGS if metrics.get(METRIC + name, 0) > 0
    }
    return StepWait(step, seconds, False) if seconds else None


def _with_earlier_attempts(trial: TrialView, state: RunState, now: float) -> dict[Spending, float]:
    seconds = breakdown(trial, now)
    while trial.predecessor is not None and (earlier := state.trials.get(trial.predecessor)):
        for name, value in breakdown(earlier, now).items():
            seconds[name] = seconds.get(name, 0.0) + value
        trial = earlier
    return {name: seconds[name] for name in SPENDINGS if name in seconds}
