"""What a run that goes on has to know of what it did; with nothing that takes time to import."""

from __future__ import annotations

from tbtui.journal import events

_EVENTS: tuple[type[events.AnyEvent], ...] = (
    events.CommandDone,
    events.CommandIssued,
    events.EvalFinished,
    events.EvalStarted,
    events.GroupAdded,
    events.GroupRefilled,
    events.GroupScored,
    events.ReviewClosed,
    events.ReviewOpened,
    events.RunContinued,
    events.RunPaused,
    events.RunResumed,
    events.RunStarted,
    events.StepFinished,
    events.StepStarted,
    events.TasksSetAside,
    events.TrialExcluded,
    events.TrialFinished,
    events.TrialQueued,
    events.TrialRelabelled,
    events.TrialRetried,
)
HISTORY_KINDS = tuple(event.kind for event in _EVENTS)
