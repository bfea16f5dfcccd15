"""Which commands make sense for a trial as it stands; the engine has the last word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tbtui.journal.vocabulary import CommandVerb, TrialPhase
from tbtui.ui.input.keys import Key
from tbtui.view.state import RunState, TrialView
from tbtui.view.waiting import doing, verb_words

_CLOSING = (TrialPhase.VERIFYING, TrialPhase.TEARDOWN)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command would be pointless, in one line."""

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
}
"""Id of a key that is for a trial -> what it asks of it."""


_OF_STARTED = ("pause", "freeze", "retry", "take_over")
"""What can't be asked of a trial that is still queued."""


def keys_that_work(keys: Iterable[Key], trial: TrialView | None, state: RunState) -> list[Key]:
    """Leave out keys that would be refused for the trial, or the run, as it stands; name each for
    what it does now."""
    working = []
    queued = trial is not None and trial.phase is TrialPhase.QUEUED
    for key in keys:
        if key.id == "pause-run" and state.paused:
            working.append(replace(key, label="resume run"))
        elif (verb := _VERBS.get(key.id)) is None:
            working.append(key)
        elif queued and verb in _OF_STARTED:
            # Whether it has begun by now, the engine knows: it is asked, if somebody insists.
            continue
        elif trial is not None and not isinstance(meant := verb_meant(verb, trial, state), Refusal):
            working.append(key if meant == verb else replace(key, label=meant))
    return working


def verb_meant(key: CommandVerb, trial: TrialView, state: RunState) -> CommandVerb | Refusal:
    """The verb that a key means for a trial as it stands: `pause` on a paused one is `resume`."""
    meant: CommandVerb = key
    if key in ("pause", "freeze") and trial.paused and (key == "pause" or trial.frozen):
        meant = "resume"
    elif key == "exclude" and trial.excluded:
        meant = "include"
    if trial.pending == meant:
        return Refusal(f"{verb_words(meant)} is under way")
    refusal = why_not(meant, trial, state)
    return Refusal(refusal) if refusal else meant


def why_not(verb: CommandVerb, trial: TrialView, state: RunState) -> str:
    match verb:
        case "pause" | "freeze" | "resume":
            if not trial.live or trial.phase in _CLOSING:
                return f"nothing left to {verb}"
        case "stop" | "cancel":
            return "" if trial.live else "it has ended already"
        case "take_over":
            if not trial.live:
                return "it has ended, and its terminal with it"
            if trial.phase is TrialPhase.QUEUED:
                return "it is still queued, and has no terminal yet"
            if trial.phase in _CLOSING:
                return f"it is {doing(trial)}: its agent's run is over"
        case "retry":
            if trial.successor is not None:
                return "it is being attempted again already"
            if not trial.live and not _open_to_change(trial, state):
                return "it has ended, and its step is over"
        case "relabel":
            if trial.live:
                return "it has no verdict yet"
            if not trial.completion_tokens:
                return "the policy said nothing in it that could be trained on"
            return why_not("exclude", trial, state)
        case "exclude" | "include":
            if trial.purpose == "eval":
                return "it is held out: never trained on"
            if trial.successor is not None:
                return "another attempt has taken its place"
            if not _open_to_change(trial, state):
                return "its step is over"
    return ""


def _open_to_change(trial: TrialView, state: RunState) -> bool:
    """The step of a training trial is not trained yet; whether it is too late, the run knows."""
    if trial.purpose != "train" or state.status is not None:
        return False
    return any(step.step == trial.step for step in state.open_steps())
