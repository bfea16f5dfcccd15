"""What a run that goes on has to know of what it did; with nothing that takes time to import."""

from __future__ import annotations

from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    EvalFinished,
    EvalStarted,
    GroupAdded,
    GroupRefilled,
    GroupScored,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    RunPaused,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
    TrialExcluded,
    TrialFinished,
    TrialQueued,
    TrialRelabelled,
    TrialRetried,
)

_EVENTS: tuple[type[AnyEvent], ...] = (
    CommandDone,
    CommandIssued,
    EvalFinished,
    EvalStarted,
    GroupAdded,
    GroupRefilled,
    GroupScored,
    ReviewClosed,
    ReviewOpened,
    RunContinued,
    RunPaused,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
    TrialExcluded,
    TrialFinished,
    TrialQueued,
    TrialRelabelled,
    TrialRetried,
)
HISTORY_KINDS = tuple(str(event.model_fields["kind"].default) for event in _EVENTS)
