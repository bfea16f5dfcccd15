"""What may be asked of a trial or of a run, when, and in which words it is refused: one table.

The app, `tbtui ctl`, the engine and Prime-RL's plugin all go by it, each with what it knows of the
trial (`Standing`). What only the engine knows (a deadline that has passed, a group that is being
trained on) it refuses beyond that, and a trial's worker has the last word.

Every command is journalled as `command_issued`, and answered with `command_done`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tbtui.journal.hold import RUNNING, Hold
from tbtui.vocabulary import CommandVerb, TrialPhase


@dataclass(frozen=True, slots=True)
class Standing:
    """How a trial stands, as far as that decides what may be asked of it."""

    trial: str = "it"
    """What refusals call it."""
    phase: TrialPhase = TrialPhase.ACTING
    hold: Hold = RUNNING
    next_typist: str = ""
    """Who is to type in its terminal, from the end of its turn on."""
    asker: str = ""
    """Who asks; empty: not known, so it may be the typist."""
    thaws: bool = False
    """The asker lets a frozen one go on to the end of its turn."""
    held_out: bool = False
    excluded: bool = False
    successor: str = ""
    """The attempt that has taken its place."""
    fork: bool = False
    """It was forked from another trial, for a person."""
    probe: bool = False
    """It tries the model, before a run."""
    step_open: bool = True
    """It runs, or its batch is not handed over yet."""
    program: bool = False
    """Its agent is a program, and none that acts in the trial's own terminal."""
    pending: str = ""
    """A command that is issued and not done."""
    has_tokens: bool = True
    """The policy said something in it."""
    prime_rl: bool = False
    """It runs in an environment server of Prime-RL's."""

    @property
    def over(self) -> bool:
        return self.phase is TrialPhase.FINISHED

    @property
    def typist(self) -> str:
        """Who types in its terminal, or is to."""
        return self.hold.typist or self.next_typist

    @property
    def anothers(self) -> bool:
        """Somebody else than the asker types in it."""
        return bool(self.typist and self.asker) and self.typist != self.asker


Condition = tuple[Callable[[Standing], bool], str]
"""A predicate, and the words for it, with `{trial}`, `{verb}`, `{typist}` and `{successor}`."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A command on a trial or on its group: when it may be given, and what refuses it."""

    does: str
    """One line of help."""
    phases: Collection[TrialPhase]
    """Phases of the trial in which it may be asked."""
    event: str
    """Kind of the event that says that the trial has done it; all but decisions come from its
    worker."""
    refused: tuple[Condition, ...] = ()
    """The first that holds is why it may not be asked now."""
    already: Condition | None = None
    """There is nothing left to do."""
    opposite: CommandVerb | None = None
    """What a key for it asks for then."""
    under_prime_rl: str = ""
    """Why Prime-RL's trials can't; empty: they can."""


@dataclass(frozen=True, slots=True)
class RunVerb:
    """A command on the whole run."""

    does: str
    under_prime_rl: str = ""
    """Why it is refused there; empty: it is not."""


_ALL = frozenset(TrialPhase)
_LIVE = _ALL - {TrialPhase.FINISHED}
_AT_WORK = _LIVE - {TrialPhase.QUEUED, TrialPhase.VERIFYING, TrialPhase.TEARDOWN}
_HELD = _AT_WORK | {TrialPhase.QUEUED}
"""A queued one pauses at its first turn."""
_OVER = frozenset({TrialPhase.FINISHED})

_NOTHING_LEFT: Mapping[TrialPhase, str] = MappingProxyType(
    {
        TrialPhase.QUEUED: "{trial} is still queued",
        TrialPhase.VERIFYING: "{trial} is being verified",
        TrialPhase.TEARDOWN: "{trial} is being torn down",
        TrialPhase.FINISHED: "{trial} is not running",
    }
)
"""Why a trial that is not running takes no commands."""

_ANOTHERS: Condition = (lambda it: it.anothers, "{typist} types in {trial}: one at a time")
_REPLACED: Condition = (
    lambda it: bool(it.successor),
    "{trial} is attempted again already, as {successor}",
)
_STEP_OVER: Condition = (
    lambda it: not it.step_open,
    "{trial} is no part of the step that is being sampled: nothing to {verb}",
)
_TRAINED_ON: tuple[Condition, ...] = (
    (lambda it: it.held_out, "{trial} is held out: it is never trained on"),
    (lambda it: it.fork, "{trial} is a fork: it is never trained on"),
    (lambda it: it.probe, "{trial} is a probe's: it is never trained on"),
    _REPLACED,
    _STEP_OVER,
)
_PRIME_RL_TRAINS = "Prime-RL decides what is trained on: cancel it instead"
_PRIME_RL_TYPES = (
    "trials in Prime-RL's environment servers can't be typed in: their results are always trained"
    " on"
)

TRIAL_VERBS: Mapping[CommandVerb, Verb] = MappingProxyType(
    {
        "pause": Verb(
            "Pause it at the end of its turn, a queued one at its first; its clocks stop.",
            _HELD,
            "trial_paused",
            already=(lambda it: it.hold.paused, "{trial} is paused already"),
            opposite="resume",
        ),
        "freeze": Verb(
            "Pause it now, its sandbox's processes too.",
            _AT_WORK,
            "trial_paused",
            refused=((lambda it: bool(it.typist), "{typist} types in {trial}"),),
            already=(lambda it: it.hold.frozen, "{trial} is frozen already"),
            opposite="resume",
        ),
        "resume": Verb(
            "Resume it.",
            _HELD,
            "trial_resumed",
            refused=(
                (
                    lambda it: it.anothers,
                    "{typist} types in {trial}; give_back takes it from them",
                ),
            ),
        ),
        "stop": Verb(
            "End it now, even in mid-command, and verify what it has done.",
            _LIVE,
            "trial_finished",
            already=(lambda it: it.over, "{trial} has ended already"),
        ),
        "cancel": Verb(
            "End it now, without verification or reward.",
            _LIVE,
            "trial_finished",
            already=(lambda it: it.over, "{trial} has ended already"),
        ),
        "retry": Verb(
            "Give this attempt up and start a fresh one in its place.",
            _ALL - {TrialPhase.QUEUED},
            "trial_retried",
            refused=(_REPLACED, _STEP_OVER),
            already=_REPLACED,
        ),
        "exclude": Verb(
            "Exclude it from training and from its group's baseline.",
            _ALL,
            "trial_excluded",
            refused=_TRAINED_ON,
            already=(lambda it: it.excluded, "{trial} is excluded already"),
            opposite="include",
            under_prime_rl=_PRIME_RL_TRAINS,
        ),
        "include": Verb(
            "Undo an exclusion.",
            _ALL,
            "trial_excluded",
            refused=_TRAINED_ON,
            already=(lambda it: not it.excluded, "{trial} is not excluded"),
            under_prime_rl=_PRIME_RL_TRAINS,
        ),
        "accept": Verb(
            "Under review: train on it as it is.",
            _OVER,
            "command_done",
            refused=(_STEP_OVER,),
            under_prime_rl=_PRIME_RL_TRAINS,
        ),
        "relabel": Verb(
            "Override its reward, until its step is trained. The verdict stays on record.",
            _OVER,
            "trial_relabelled",
            refused=(
                *_TRAINED_ON,
                (
                    lambda it: not it.has_tokens,
                    "{trial} has no sampled tokens: there is nothing to train on",
                ),
            ),
            under_prime_rl=_PRIME_RL_TRAINS,
        ),
        "take_over": Verb(
            "Type in its terminal yourself, from the end of its turn on.",
            _AT_WORK,
            "trial_taken_over",
            refused=(
                _ANOTHERS,
                (
                    lambda it: it.hold.frozen and not it.thaws,
                    "{trial} is frozen in the middle of a turn: resume it first, or say that it"
                    " may be thawed to end its turn",
                ),
            ),
            under_prime_rl=_PRIME_RL_TYPES,
        ),
        "type": Verb(
            "Type in the terminal of a trial that you have taken over.",
            _AT_WORK,
            "human_typed",
            refused=(
                _ANOTHERS,
                (
                    lambda it: bool(it.typist) and not it.hold.typist,
                    "{trial} is not yours to type in: it waits for the end of its turn",
                ),
                (
                    lambda it: not it.hold.typist,
                    "{trial} is not yours to type in: take it over first",
                ),
            ),
            under_prime_rl=_PRIME_RL_TYPES,
        ),
        "give_back": Verb(
            "Give the terminal back to the agent, which continues.",
            _LIVE,
            "trial_given_back",
            refused=((lambda it: not it.typist, "nobody has taken {trial} over"),),
            already=(lambda it: not it.typist, "nobody types in {trial}"),
            under_prime_rl=_PRIME_RL_TYPES,
        ),
        "message": Verb(
            "Write to the agent of a paused trial: its next prompt ends with the message.",
            _AT_WORK,
            "human_messaged",
            refused=(
                _ANOTHERS,
                (
                    lambda it: not it.hold.paused,
                    "{trial} is not paused: pause it, and write when it stands",
                ),
            ),
            under_prime_rl=_PRIME_RL_TYPES,
        ),
        "fork": Verb(
            "Start trials that go on from one of its turns, with its conversation and its state.",
            _ALL - {TrialPhase.QUEUED},
            "forks_started",
            refused=(
                (lambda it: not it.has_tokens, "{trial} has no turn to fork from"),
                (
                    lambda it: it.program,
                    "{trial} can't be forked: its agent is a program, whose conversation is its"
                    " own; those of agent=terminus-2 and agent=shell can be",
                ),
            ),
            under_prime_rl="trials in Prime-RL's environment servers can't be forked",
        ),
    }
)

GROUP_VERBS: Mapping[CommandVerb, Verb] = MappingProxyType(
    {
        "refill": Verb(
            "Start fresh trials in place of its members that are left out of training.",
            _ALL,
            "group_refilled",
            refused=(_STEP_OVER,),
            under_prime_rl=_PRIME_RL_TRAINS,
        ),
    }
)

RUN_VERBS: Mapping[CommandVerb, RunVerb] = MappingProxyType(
    {
        "pause": RunVerb("Start no trial; let running ones end their turn first."),
        "freeze": RunVerb("Start no trial, and stop running ones now, their processes too."),
        "resume": RunVerb("Resume it, except the trials that were paused one by one."),
        "stop": RunVerb("End it: trials are cleaned up, and what it has done is kept."),
        "accept": RunVerb(
            "Train on the step under review, as it stands.",
            "Prime-RL trains a batch as soon as it is complete: no step waits to be accepted",
        ),
        "set": RunVerb(
            "Change settings of a live run.",
            "Prime-RL reads its settings when it starts: stop the run, and resume it",
        ),
        "take": RunVerb("Take the controls: commands of other clients are refused."),
        "give_back": RunVerb(
            "Give back all trials that the asker has taken over; they stay paused."
        ),
    }
)


WEIGHTS_UNDER_PRIME_RL = "Prime-RL chooses its tasks itself: they have no weights"
"""Why `set` on a task, which gives it a weight, is refused there."""


def refusal(verb: CommandVerb, trial: Standing) -> str:
    """Why a trial or group refuses a command now, in one line; empty: it doesn't."""
    rule = TRIAL_VERBS.get(verb) or GROUP_VERBS.get(verb)
    if rule is None:
        return f"{verb} is nothing that a trial could do"
    if trial.prime_rl and rule.under_prime_rl:
        return rule.under_prime_rl
    if trial.phase not in rule.phases:
        too_early = rule.phases == _OVER
        stands = "{trial} is not over yet" if too_early else _NOTHING_LEFT[trial.phase]
        return _said(stands + ": nothing to {verb}", verb, trial)
    return next((_said(words, verb, trial) for holds, words in rule.refused if holds(trial)), "")


def already_so(verb: CommandVerb, trial: Standing) -> str:
    """Why there is nothing left to do for a verb, in one line; empty: there is."""
    rule = TRIAL_VERBS.get(verb)
    if rule is None or rule.already is None:
        return ""
    holds, words = rule.already
    return _said(words, verb, trial) if holds(trial) else ""


def pointless(verb: CommandVerb, trial: Standing) -> str:
    """Why a key's verb would do nothing, in one line; empty: it would do something."""
    # A person is asked whether a frozen one may be thawed.
    asked = replace(trial, thaws=True)
    return already_so(verb, asked) or refusal(verb, asked)


def meant(key: CommandVerb, trial: Standing) -> tuple[CommandVerb, str]:
    """What a key asks of a trial as it stands: `pause` of a paused one is `resume`.

    Returns:
        The verb, and why it would do nothing; empty: it would do something.
    """
    opposite = TRIAL_VERBS[key].opposite
    verb = opposite if opposite and already_so(key, trial) else key
    if trial.pending == verb == "pause" and trial.phase is TrialPhase.QUEUED:
        verb = "resume"
    if trial.pending == verb:
        return verb, _said("{verb} is under way", verb, trial)
    return verb, pointless(verb, trial)


def run_refusal(verb: CommandVerb, *, prime_rl: bool = False) -> str:
    """Why a run refuses a command, in one line; empty: it doesn't."""
    if (rule := RUN_VERBS.get(verb)) is None:
        return f"{verb} needs a {'group' if verb == 'refill' else 'trial'}"
    return rule.under_prime_rl if prime_rl else ""


def run_already_so(verb: CommandVerb, *, paused: bool) -> str:
    """Why there is nothing left to do for a verb on a run, in one line; empty: there is."""
    if verb == "pause" and paused:
        return "the run is paused already"
    if verb == "resume" and not paused:
        return "the run is not paused"
    return ""


def _said(words: str, verb: CommandVerb, trial: Standing) -> str:
    return words.format(
        trial=trial.trial,
        verb=verb.replace("_", " "),
        typist=trial.typist,
        successor=trial.successor,
    )
