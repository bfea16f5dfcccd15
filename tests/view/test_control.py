"""What people see of steering: pauses, exclusions, further attempts, commands."""

from __future__ import annotations

from tbtui.findings import Unusable
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    DeadlinePassed,
    GroupRefilled,
    Outcome,
    RunPhase,
    RunPhaseChanged,
    SettingsChanged,
    StepStarted,
    TasksSetAside,
    TrialExcluded,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialResumed,
    TrialRetried,
    TurnSampled,
    WorkerRecycled,
    WorkerStarted,
)
from tbtui.view.current import active_seconds, attempts, siblings
from tbtui.view.state import MAX_COMMANDS, RECENT_REWARDS
from tbtui.view.times import Outlook, agent_seconds, breakdown
from tbtui.view.waiting import doing, retry_wait, waiting_for

from .story import finished, folded, queued, started, turn


def sampling(*trials: str) -> list[AnyEvent]:
    """A step under way whose trials act."""
    events: list[AnyEvent] = [
        started(),
        StepStarted(step=1, groups={"g": "copy-01"}),
        RunPhaseChanged(phase=RunPhase.SAMPLING, step=0),
    ]
    for trial in trials:
        events += [queued(trial), TrialPhaseChanged(trial=trial, phase=TrialPhase.ACTING)]
    return events


def test_a_trial_whose_answer_is_held_by_the_pace_does_not_wait_for_the_model() -> None:
    model = TrialPhaseChanged(trial="t1", phase=TrialPhase.MODEL)
    asking = [*sampling("t1"), model]
    assert doing(folded(*asking).trials["t1"]) == "waiting for the model"
    sampled = next(each for each in turn("t1", 1) if isinstance(each, TurnSampled))
    assert doing(folded(*asking, sampled).trials["t1"]) == "turn 1, about to act"
    asked_again = folded(*asking, sampled, model).trials["t1"]
    assert doing(asked_again) == "turn 1, waiting for the model"


def test_what_a_pace_holds_is_no_time_of_the_agents() -> None:
    model = TrialPhaseChanged(trial="t1", phase=TrialPhase.MODEL)
    sampled = next(each for each in turn("t1", 1) if isinstance(each, TurnSampled))
    acting = TrialPhaseChanged(trial="t1", phase=TrialPhase.ACTING)
    begun = [
        *sampling("t1"),
        SettingsChanged(settings={"pace_sec": 2.0}, before={}),
        model,
        sampled,
    ]

    # Events are a second apart: the trial began with an act of 2 s, then asked the model for 1 s.
    held = folded(*begun)
    trial = held.trials["t1"]
    assert active_seconds(trial, held.time + 30) == 3
    assert breakdown(trial, held.time + 30) == {
        **{"queue": 1, "sampling": 1, "commands": 2, "delayed": 30},
    }
    assert agent_seconds(trial, held.time + 30) == 3
    went_on = folded(*begun, acting)
    assert active_seconds(went_on.trials["t1"], went_on.time + 5) == 3 + 5
    assert went_on.trials["t1"].paused_sec == 1
    # A freeze takes over from the pace, and nothing is counted twice.
    frozen = folded(*begun, TrialPaused(trial="t1", frozen=True), TrialResumed(trial="t1"), acting)
    assert frozen.trials["t1"].paused_sec == 2
    # From step 2 on there is no pace.
    assert folded(*sampling("t1"), model, sampled).trials["t1"].held_since is None


def test_frozen_is_a_state_of_its_own() -> None:
    events = sampling("t1")
    frozen = TrialPaused(trial="t1", frozen=True)
    state = folded(*events, TrialPaused(trial="t1"), frozen)
    trial = state.trials["t1"]
    assert (trial.hold.paused, trial.hold.frozen, doing(trial)) == (True, True, "frozen")
    assert waiting_for(Outlook(state, state.time)) == "copy-01/1, frozen"
    state = folded(*events, TrialPaused(trial="t1"), frozen, TrialResumed(trial="t1"))
    trial = state.trials["t1"]
    assert (trial.hold.paused, trial.hold.frozen) == (False, False)
    # From the first pause on, though it was frozen later.
    assert trial.paused_sec == 2


def test_an_excluded_trial_counts_as_left_out_until_it_is_included() -> None:
    events = [*sampling("t1", "t2"), finished("t1", 1.0), finished("t2", 0.0)]
    out = TrialExcluded(trial="t1", excluded=True, reason="it cheated")
    state = folded(*events, out)
    assert state.trials["t1"].left_out == "excluded"
    assert (list(state.rewards), state.steps[-1].rewards) == ([0.0], [0.0])
    assert state.left_out["excluded"] == 1
    state = folded(*events, out, TrialExcluded(trial="t1", excluded=False))
    assert state.trials["t1"].left_out is None
    assert sorted(state.rewards) == [0.0, 1.0]
    assert state.left_out["excluded"] == 0
    # Excluded while it ran: never counted.
    state = folded(*sampling("t1"), out, finished("t1", 1.0))
    assert not state.rewards


def test_excluding_a_trial_long_ago_leaves_the_latest_rewards_alone() -> None:
    names = [f"t{number}" for number in range(RECENT_REWARDS + 1)]
    events = [*sampling(*names), *(finished(name, 1.0) for name in names)]
    old = folded(*events, TrialExcluded(trial="t0", excluded=True))
    assert len(old.rewards) == RECENT_REWARDS
    assert len(old.steps[-1].rewards) == RECENT_REWARDS
    late = folded(*events, TrialExcluded(trial="t9", excluded=True))
    assert len(late.rewards) == RECENT_REWARDS - 1


def test_masked_outcomes_are_counted_apart_from_failures_of_infrastructure() -> None:
    state = folded(
        *sampling("t1", "t2", "t3"),
        finished("t1", None, Outcome.CONTEXT_OVERFLOW),
        finished("t2", None, Outcome.PROVIDER_ERROR),
        finished("t3", None, Outcome.CANCELLED),
    )
    assert state.steps[-1].left_out == {"masked": 1, "infrastructure": 1, "cancelled": 1}
    assert [t.infrastructure for t in state.trials.values()] == [False, True, False]
    assert state.steps[-1].mean_reward is None


def test_attempts_are_linked_and_the_wait_is_told() -> None:
    retried = TrialRetried(trial="t1", successor="t1b", reason="sandbox_lost", wait_sec=4.0)
    events = [*sampling("t1"), finished("t1", None), retried]
    state = folded(*events)
    assert retry_wait(state.trials["t1"], state.time) == "retry in 4 s"
    assert waiting_for(Outlook(state, state.time)) == "copy-01/1 (retry in 4 s)"
    assert retry_wait(state.trials["t1"], state.time + 4) == ""
    state = folded(*events, queued("t1b"))
    first, second = state.trials["t1"], state.trials["t1b"]
    assert (first.successor, second.predecessor) == ("t1b", "t1")
    assert retry_wait(second, state.time) == "retry in 3 s"
    assert attempts(first, state) == attempts(second, state) == [first, second]
    assert siblings(first, state) == [second]


def test_a_scored_trial_that_is_retried_gives_its_reward_up() -> None:
    retried = TrialRetried(trial="t1", successor="t1b", reason="asked for by ann")
    state = folded(*sampling("t1"), finished("t1", 1.0), retried)
    assert not state.rewards
    assert state.left_out == {"retried": 1}


def test_refills_deadlines_and_new_workers_are_noted() -> None:
    state = folded(
        *sampling("t1"),
        WorkerStarted(worker=0, pid=1),
        GroupRefilled(step=1, group="g", trials=("t9",)),
        DeadlinePassed(step=1, action="mask", trials=("t1",)),
        WorkerRecycled(worker=0, pid=1, reason="it had grown to 600 MB"),
        TasksSetAside(tasks={"move-01": "it needs a network"}, by="preflight"),
        TasksSetAside(tasks={"copy-01": "no such command"}, by="trial"),
    )
    assert state.unusable == {
        "copy-01": Unusable("unknown", "no such command", "trial"),
        "move-01": Unusable("unknown", "it needs a network"),
    }
    assert state.groups["g"].refilled == 1
    assert state.trials["t1"].overdue
    assert not state.workers
    assert [note.text for note in state.notes] == [
        "copy-01: the group had lost members and gets 1 fresh trial",
        "step 1 has had its time: 1 trial is left out of training",
        "worker 0 is replaced: it had grown to 600 MB",
        "copy-01 is not tried again: no such command",
    ]


def test_commands_are_kept_with_who_why_and_what_came_of_them() -> None:
    asked = CommandIssued(command="c", verb="freeze", target="t1", actor="ann", reason="stuck")
    events = [*sampling("t1"), asked]
    (view,) = folded(*events).commands
    assert (view.label, view.actor, view.reason, view.ok) == ("copy-01/1", "ann", "stuck", None)
    state = folded(*events, CommandDone(command="c", ok=False, result="no sandbox to freeze"))
    (view,) = state.commands
    assert (view.ok, view.result) == (False, "no sandbox to freeze")
    assert view.done_at == view.time + 1


def test_of_two_commands_the_other_stays_pending() -> None:
    events = [
        *sampling("t1"),
        CommandIssued(command="a", verb="pause", target="t1", actor="ann"),
        CommandIssued(command="b", verb="stop", target="t1", actor="ann"),
    ]
    assert folded(*events).trials["t1"].pending == "stop"
    state = folded(*events, CommandDone(command="b", ok=False, result="no"))
    assert state.trials["t1"].pending == "pause"


def test_ten_thousand_commands_stay_few() -> None:
    events: list[AnyEvent] = []
    for number in range(MAX_COMMANDS * 2):
        name = str(number)
        events.append(CommandIssued(command=name, verb="pause", target="run", actor="script"))
        events.append(CommandDone(command=name, ok=True, result=""))
    state = folded(*events)
    assert len(state.commands) == MAX_COMMANDS
    assert not state.pending
