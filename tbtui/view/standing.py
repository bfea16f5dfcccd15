"""A trial as the rules of `journal/verbs.py` see it: for the app and for `tbtui ctl`. Pure."""

from __future__ import annotations

from tbtui.journal.verbs import Standing
from tbtui.view.state import RunState, TrialView
from tbtui.vocabulary import TERMINAL_AGENTS, RunPhase


def standing(trial: TrialView, state: RunState, name: str = "it", asker: str = "") -> Standing:
    """
    Args:
        name: what refusals call the trial.
        asker: who is about to ask; empty: not known.
    """
    return Standing(
        trial=name,
        phase=trial.phase,
        hold=trial.hold,
        asker=asker,
        held_out=trial.purpose == "eval",
        fork=trial.purpose == "fork",
        probe=trial.purpose == "probe",
        excluded=trial.excluded,
        pending=trial.pending,
        successor=trial.successor or "",
        step_open=trial.live or _open_to_change(trial, state),
        program=state.settings.get("agent", "terminus-2") not in TERMINAL_AGENTS,
        has_tokens=bool(trial.completion_tokens),
        prime_rl=is_prime_rl(state),
    )


def is_prime_rl(state: RunState) -> bool:
    return state.settings.get("engine") == "prime-rl"


def _open_to_change(trial: TrialView, state: RunState) -> bool:
    """Whether its batch is not handed over yet, as far as the journal tells."""
    if state.status is not None:
        return False
    if trial.purpose in ("fork", "probe"):
        return trial.live
    if trial.purpose == "eval":
        return state.phase is RunPhase.EVALUATING and trial.step == state.step
    return any(step.step == trial.step for step in state.open_steps())
