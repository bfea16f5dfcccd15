"""What can be asked of a run and of a trial, and when there is nothing left to ask. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tbtui.journal.vocabulary import CommandVerb

if TYPE_CHECKING:
    # The commands are made of these tables whenever tbtui starts.
    from tbtui.view.state import RunState, TrialView

RUN_VERBS: Mapping[CommandVerb, str] = MappingProxyType(
    {
        "pause": "Start no trial; let running ones end their turn first.",
        "freeze": "Start no trial, and stop running ones now, their processes too.",
        "resume": "Go on, with all trials but those that somebody paused one by one.",
    }
)
"""Those without a further argument; each with its help."""

TRIAL_VERBS: Mapping[CommandVerb, str] = MappingProxyType(
    {
        "pause": "Pause it at the end of its turn; its time stands still.",
        "freeze": "Pause it now, its sandbox's processes too.",
        "resume": "Let it go on.",
        "stop": "End it at the end of its turn and verify what it has done.",
        "cancel": "End it now, without verdict.",
        "retry": "Give this attempt up and start a fresh one in its place.",
        "exclude": "Leave it out of training and of its group's baseline.",
        "include": "Take an exclusion back.",
        "accept": "Under review: train on it as it is.",
        "take_over": "Type in its terminal yourself, from the end of its turn on.",
        "give_back": "Let the agent go on in a trial that was taken over.",
    }
)


def run_is_so(verb: CommandVerb, state: RunState) -> str:
    """Why there is nothing to do; empty: there is."""
    match verb:
        case "pause" if state.paused:
            return "the run is paused already"
        case "resume" if not state.paused and state.started_at is not None:
            return "the run is not paused"
    return ""


def trial_is_so(verb: CommandVerb, trial: TrialView) -> str:
    """The same for a trial."""
    match verb:
        case "pause" if trial.paused:
            return f"{trial.trial} is paused already"
        case "freeze" if trial.frozen:
            return f"{trial.trial} is frozen already"
        case "give_back" if not trial.typist:
            return f"nobody types in {trial.trial}"
        case "stop" | "cancel" if not trial.live:
            return f"{trial.trial} has ended already"
        case "retry" if trial.successor is not None:
            return f"{trial.trial} is attempted again already, as {trial.successor}"
        case "exclude" if trial.excluded:
            return f"{trial.trial} is left out already"
        case "include" if not trial.excluded:
            return f"{trial.trial} is not left out"
    return ""
