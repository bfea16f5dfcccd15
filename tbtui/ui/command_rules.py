"""What keys ask of a trial as it stands, by the rules of `journal/verbs.py`; the engine has the
last word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tbtui.journal.verbs import TRIAL_VERBS, already_so, refusal
from tbtui.ui.input.keys import Key
from tbtui.view.current import attempts
from tbtui.view.standing import standing
from tbtui.view.state import RunState, TrialView
from tbtui.view.waiting import verb_words
from tbtui.vocabulary import CommandVerb, TrialPhase


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command would do nothing, in one line that calls the trial `it`."""

    reason: str


_VERBS: dict[str, CommandVerb] = {
    "pause": "pause",
    "freeze": "freeze",
    "stop": "stop",
    "cancel": "cancel",
    "retry": "retry",
    "exclude": "exclude",
    "relabel": "relabel",
    "take-over": "take_over",
    "message": "message",
}
"""Id of a key that is for a trial -> what it asks of it."""


_OF_A_TRIAL = frozenset({"open", "group", "trial-group"})
"""Ids of further keys that need one."""


def keys_that_work(keys: Iterable[Key], trial: TrialView | None, state: RunState) -> list[Key]:
    """Leave out keys that would be refused for the trial, or the run, as it stands; name each for
    what it does now."""
    working = []
    for key in keys:
        if key.id == "pause-run" and state.paused:
            working.append(replace(key, label="resume run"))
        elif key.id in _OF_A_TRIAL and trial is None:
            continue
        elif key.id == "parent":
            if trial is not None and trial.parent in state.trials:
                working.append(key)
        elif key.id == "fork":
            if trial is not None and trial.completion_tokens:
                working.append(key)
        elif key.id == "attempt":
            if trial is not None and len(attempts(trial, state)) > 1:
                working.append(key)
        elif (verb := _VERBS.get(key.id)) is None:
            working.append(key)
        elif trial is not None and not isinstance(meant := verb_meant(verb, trial, state), Refusal):
            working.append(key if meant == verb else replace(key, label=meant))
    return working


def verb_meant(key: CommandVerb, trial: TrialView, state: RunState) -> CommandVerb | Refusal:
    """The verb that a key means for a trial as it stands: `pause` on a paused one is `resume`."""
    opposite = TRIAL_VERBS[key].opposite
    meant = opposite if opposite and already_so(key, standing(trial, state)) else key
    if trial.pending == meant == "pause" and trial.phase is TrialPhase.QUEUED:
        meant = "resume"
    if trial.pending == meant:
        return Refusal(f"{verb_words(meant)} is under way")
    why = why_not(meant, trial, state)
    return Refusal(why) if why else meant


def why_not(verb: CommandVerb, trial: TrialView, state: RunState) -> str:
    """Why a verb makes no sense for a trial as it stands; empty: it does."""
    stands = standing(trial, state)
    if verb == "take_over":
        # A person is asked whether it may be thawed.
        stands = replace(stands, frozen=False)
    return already_so(verb, stands) or refusal(verb, stands)
