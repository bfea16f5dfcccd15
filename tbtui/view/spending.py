"""Where a trial's wall time goes, and has gone so far. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tbtui.journal.vocabulary import TrialPhase
from tbtui.view.state import SPENDINGS, Spending, TrialView

if TYPE_CHECKING:
    from tbtui.journal.events import PhaseSeconds

_SPENDING: dict[TrialPhase, Spending] = {
    TrialPhase.QUEUED: "queue",
    TrialPhase.MODEL: "sampling",
    TrialPhase.ACTING: "commands",
    TrialPhase.PAUSED: "paused",
    TrialPhase.VERIFYING: "verifying",
    TrialPhase.TEARDOWN: "teardown",
    TrialPhase.FINISHED: "teardown",
}


def spending_of(phase: TrialPhase, detail: str) -> Spending:
    """What the time of a phase counts as; set-up is told apart by its detail."""
    if phase is TrialPhase.SETUP:
        return "build" if detail == "sandbox" else "setup"
    return _SPENDING[phase]


def spend(trial: TrialView, spending: Spending, now: float) -> None:
    """From `now` on the trial's time goes to `spending`."""
    since = trial.spent.get(trial.spending, 0.0)
    trial.spent[trial.spending] = since + max(0.0, now - trial.spent_until)
    trial.spending, trial.spent_until = spending, now


def breakdown(trial: TrialView, now: float) -> dict[Spending, float]:
    """Seconds by what they went to, in the order of a trial's life; zeros are left out.

    Of a finished trial it is what was measured where the trial ran, of a live one what its
    changes of phase say so far.
    """
    if trial.seconds is not None:
        seconds = _measured(trial.seconds)
        if any(seconds.values()):
            return {name: value for name, value in seconds.items() if value > 0}
    seconds = dict(trial.spent)
    if trial.live:
        so_far = seconds.get(trial.spending, 0.0)
        seconds[trial.spending] = so_far + max(0.0, now - trial.spent_until)
    return {name: seconds[name] for name in SPENDINGS if seconds.get(name, 0.0) > 0}


def _measured(seconds: PhaseSeconds) -> dict[Spending, float]:
    return {
        "queue": seconds.queue,
        "build": seconds.build,
        "setup": seconds.setup,
        "sampling": seconds.sampling,
        "commands": seconds.commands,
        "paused": seconds.paused,
        "verifying": seconds.verifying,
        "teardown": seconds.teardown,
    }
