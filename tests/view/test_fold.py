"""The fold: what a person sees follows from the events, and only from them."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest

from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    DemonstrationKept,
    GpuMeasured,
    GpusMeasured,
    Outcome,
    PolicyLost,
    PolicyMeasured,
    ProcessMeasured,
    ResourcesMeasured,
    RunFinished,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    StepFinished,
    StepStarted,
    TrialFinished,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TurnParsed,
    TurnSampled,
    TurnStarted,
    WorkerStarted,
    decode,
    encode,
)
from tbtui.server_status import RequestStatus
from tbtui.view.current import current_trials
from tbtui.view.state import MAX_FINISHED_TRIALS, RECENT_REWARDS, RunState
from tbtui.view.times import Outlook
from tbtui.view.transcript import Transcript
from tbtui.view.waiting import duration, waiting_for
from tests.events import eval_finished, policy_measured, server_status, turn_sampled

from .story import entries, finished, folded, one_step_run, queued, started, turn


def test_a_run_is_told_from_first_to_last() -> None:
    state = folded(*one_step_run())
    assert (state.step, state.weights_version, state.status) == (1, 1, "finished")
    assert state.phase is RunPhase.FINISHED
    assert [e.pass_rate for e in state.evals] == [0.0]
    assert state.rollouts == 3
    assert list(state.rewards) == [1.0, 0.0]
    outcomes = [trial.outcome for trial in state.trials.values()]
    assert outcomes == [Outcome.FAILED, Outcome.SOLVED, Outcome.FAILED, Outcome.SANDBOX_LOST]


def test_the_rewards_that_are_shown_are_all_those_of_one_step() -> None:
    """However many; of the next step, sampled ahead, none."""
    events: list[AnyEvent] = [started(), StepStarted(step=1, groups={"g": "copy-01"})]
    for number in range(2 * RECENT_REWARDS):
        events += [queued(f"a{number}"), finished(f"a{number}", float(number % 2))]
    events.append(StepStarted(step=2, groups={"h": "copy-01"}))
    ahead = [queued("b", group="h", step=2), finished("b", 1.0)]
    trained = StepFinished(step=1, weights_version=1, metrics={})
    more: list[list[AnyEvent]] = [[], [*ahead], [trained]]
    for each in more:
        step = folded(*events, *each).rewarded_step()
        assert step is not None and (step.step, step.mean_reward) == (1, 0.5)
        assert Counter(step.rewards) == {0.0: RECENT_REWARDS, 1.0: RECENT_REWARDS}
        assert step.outcomes == {Outcome.FAILED: RECENT_REWARDS, Outcome.SOLVED: RECENT_REWARDS}
    then = folded(*events, *ahead, trained).rewarded_step()
    assert then is not None and (then.step, then.rewards) == (2, [1.0])


def test_a_person_reads_that_what_they_typed_is_kept() -> None:
    run = list(one_step_run())
    trial = next(event.trial for event in run if isinstance(event, TrialFinished))
    kept = DemonstrationKept(
        trial=trial, demonstration=f"{trial}-t1", turn=1, actor="ann", commands=2
    )
    state = folded(*run, kept)
    label = state.trials[trial].label
    assert state.notes[-1].text == (
        f"{label}: what ann typed is kept as a demonstration, to be reviewed"
    )


def test_what_infrastructure_failed_is_not_a_failure() -> None:
    state = folded(*one_step_run())
    task = state.tasks["copy-01"]
    assert (task.scored, task.unscored, task.live) == (2, 1, 0)
    assert task.pass_rate == 0.5
    assert [trial.trial for trial in state.trials.values() if trial.infrastructure] == ["t3"]
    assert state.steps[-1].mean_reward == 0.5
    assert state.steps[-1].left_out == {"infrastructure": 1}


def test_evaluation_rewards_stay_out_of_the_training_histogram() -> None:
    state = folded(started(), queued("e1", "move-07", "e", 0), finished("e1", 1.0))
    assert not state.rewards
    assert state.tasks["move-07"].scored == 1


def test_a_command_is_pending_until_the_engine_says_so() -> None:
    issued = CommandIssued(command="c", verb="pause", target="t1", actor="ann")
    events: list[AnyEvent] = [queued("t1"), issued]
    assert folded(*events).trials["t1"].pending == "pause"
    refused = CommandDone(command="c", ok=False, result="t1 is still queued: nothing to pause")
    state = folded(*events, refused)
    assert state.trials["t1"].pending == ""
    # By the name that people know it by; and a refusal needs nobody.
    label = state.trials["t1"].label
    assert label != "t1"
    told = f"{label} is still queued: nothing to pause"
    assert state.commands[-1].result == told
    assert (state.notes[-1].level, state.notes[-1].text) == ("info", f"pause refused: {told}")


def measured(
    tokens: int = 0, *, state: str = "", since: float = 1000.0, oldest: float | None = None
) -> PolicyMeasured:
    in_flight = 0 if oldest is None else 2
    requests = RequestStatus("sample", in_flight, oldest, 5, 1, 0.1, 0.2)  # 1 of 5 failed
    server = server_status(
        state=state,
        reason="all replicas are busy",
        since=since,
        requests=(requests,),
        retries=3,
        prompt_tokens=200,
        cached_tokens=150,
    )
    return policy_measured(
        in_flight=1,
        running=1,
        completed=1,
        sampled_tokens=tokens,
        p50_sec=0.1,
        p95_sec=0.2,
        server=server if state else None,
    )


def test_tokens_per_second_come_from_two_measurements() -> None:
    assert tokens_per_sec(folded(measured(0))) is None
    assert tokens_per_sec(folded(measured(0), measured(120))) == pytest.approx(120)


def tokens_per_sec(state: RunState, later: float = 0.0) -> float | None:
    assert state.policy_now is not None
    return state.policy_now.tokens_per_sec(state.time + later)


def test_when_the_run_has_ended_nothing_that_was_measured_last_stands() -> None:
    worker = ProcessMeasured(role="worker 0", pid=7, rss_mb=120.0, cpu=0.5)
    at_work = [
        *(measured(tokens, state="active", oldest=4.0) for tokens in (0, 120)),
        WorkerStarted(worker=0, pid=7),
        ResourcesMeasured(processes=(worker,), engine_lag_ms=1.0),
        GpusMeasured(host="here", gpus=()),
    ]
    state = folded(*at_work)
    assert state.workers and state.processes and state.gpus
    state = folded(*at_work, RunFinished(status="finished", reason="1 step"))
    assert (state.workers, state.processes, state.gpus) == ({}, (), {})
    assert tokens_per_sec(state) is None
    policy = state.policy_now
    assert policy is not None and policy.server is not None
    assert (policy.activity, policy.in_flight, policy.completed) == ("ended", 0, 1)
    assert (policy.server.in_flight, policy.server.oldest_sec) == ((), None)
    assert policy.server.requests[0].completed == 5


def test_tokens_per_second_fall_while_nothing_comes() -> None:
    state = folded(*[measured(100 * second) for second in range(30)])
    assert tokens_per_sec(state) == pytest.approx(100)
    # Nothing is journalled while nothing changes: the view knows that time has passed.
    assert tokens_per_sec(state, later=5) == pytest.approx(50)
    assert tokens_per_sec(state, later=60) == 0


def test_a_new_policy_begins_to_count_again() -> None:
    state = folded(measured(0), measured(900), measured(10), measured(30))
    assert tokens_per_sec(state) == pytest.approx(20)


def test_the_server_is_seen_as_it_was_measured() -> None:
    state = folded(measured(state="paused_capacity", since=998.5, oldest=7.0))
    assert state.policy_now is not None
    server = state.policy_now.server
    assert server is not None
    assert (server.words, server.held_up, server.since) == ("paused: no capacity", True, 998.5)
    assert state.policy_now.age(server.oldest_sec, state.time + 30) == 37.0
    assert (server.cache_share, server.failed, server.retries) == (0.75, 1, 3)
    assert waiting_for(Outlook(state, state.time + 30)) == "the server, paused: no capacity (32s)"


def test_a_server_that_holds_nobody_up_is_not_waited_for() -> None:
    assert "server" not in waiting_for(Outlook(folded(measured(state="active", oldest=1.0)), 1001))
    assert "server" not in waiting_for(Outlook(folded(measured(state="unreachable")), 1001))
    paused = [RunPaused(), measured(state="paused_capacity", oldest=7.0)]
    assert "server" not in waiting_for(Outlook(folded(*paused), 1001))


def test_a_lost_policy_is_seen_until_a_new_one_works() -> None:
    lost = PolicyLost(step=3, reason="the run was deleted", wait_sec=12)
    phase = RunPhaseChanged(phase=RunPhase.STARTING, step=3)
    state = folded(lost, phase)
    assert state.notes[-1].text == "policy lost at step 3: the run was deleted"
    assert waiting_for(Outlook(state, 1002)) == "the lost policy; a new one in 11s"
    assert waiting_for(Outlook(state, 1023)) == "the lost policy; a new one (since 10s)"
    again = RunPhaseChanged(phase=RunPhase.SAMPLING, step=3)
    assert folded(lost, phase, again).policy_lost is None
    ended = RunFinished(status="failed", reason="lost too often")
    assert folded(lost, ended).policy_lost is None


def test_a_long_run_stays_small() -> None:
    events: list[AnyEvent] = [started()]
    for number in range(MAX_FINISHED_TRIALS * 2):
        trial = queued(f"t{number}", group=f"g{number // 8}", step=number // 16 + 1)
        events += [trial, finished(f"t{number}", 1.0)]
    events.append(queued("live"))
    state = folded(*events)
    assert len(state.trials) <= MAX_FINISHED_TRIALS + 1
    assert "live" in state.trials
    assert len(state.groups) <= MAX_FINISHED_TRIALS + 1
    # Groups leave as a whole: what is left of one would be counted as if it were all of it.
    sizes = Counter(trial.group for trial in state.trials.values() if not trial.live)
    assert set(sizes.values()) == {8}
    assert state.tasks["copy-01"].scored == MAX_FINISHED_TRIALS * 2


def test_a_large_step_is_kept_whole_while_it_is_under_way() -> None:
    size = MAX_FINISHED_TRIALS * 2
    events: list[AnyEvent] = [started(), StepStarted(step=1, groups={"g": "copy-01"})]
    events += [queued(f"a{number}") for number in range(size)]
    events += [finished(f"a{number}", 1.0) for number in range(size - 1)]
    # The next step is sampled ahead, and its trials are done.
    events.append(StepStarted(step=2, groups={"h": "copy-01"}))
    for number in range(3):
        events += [queued(f"b{number}", group="h", step=2), finished(f"b{number}", 0.0)]
    state = folded(*events)
    shown = current_trials(state)
    assert sum(not trial.live for trial in shown if trial.step == 1) == size - 1
    assert len(shown) == size + 3
    assert len(state.groups["g"].trials) == size
    trained = StepFinished(step=1, weights_version=1, metrics={})
    state = folded(*events, finished(f"a{size - 1}", 1.0), trained, queued("c", "h", step=2))
    # Its group is shown whole or not at all.
    assert len(state.trials) == 4
    assert [trial.trial for trial in current_trials(state)] == ["b0", "b1", "b2", "c"]


def test_the_status_names_the_oldest_trial() -> None:
    state = folded(RunPhaseChanged(phase=RunPhase.SAMPLING, step=0), queued("t1"), *turn("t1", 1))
    assert waiting_for(Outlook(state, state.time + 60)) == "copy-01/1 (turn 1, acting, 1m05s)"


def test_a_paused_run_waits_for_a_person() -> None:
    state = folded(
        RunPhaseChanged(phase=RunPhase.SAMPLING, step=0),
        queued("t1"),
        TrialPhaseChanged(trial="t1", phase=TrialPhase.MODEL),
        TrialPaused(trial="t1"),
        RunPaused(),
    )
    assert waiting_for(Outlook(state, state.time)) == "the run to be resumed"


def test_a_transcript_is_one_trials_own() -> None:
    transcript = Transcript()
    story = entries([*turn("t1", 1, "first"), *turn("t1", 2, "second"), finished("t1", 1.0)])
    assert transcript.apply(story[:6])
    assert [t.text for t in transcript.turns] == ["first"]
    assert transcript.apply(story[6:])
    assert not transcript.apply([])
    assert [t.text for t in transcript.turns] == ["first", "second"]
    assert transcript.turns[1].commands[0].keystrokes == "cp a b\n"
    assert transcript.finished is not None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (61, "1m01s"), (7500, "2h05m"), (-1, "0s")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_trial_that_was_cut_off_is_no_rollout() -> None:
    cut_off = finished("t1", None, outcome=Outcome.CANCELLED)
    state = folded(started(), queued("t1", "copy-01", "g", 1), cut_off)
    assert (state.rollouts, state.trials_finished) == (0, 1)


def test_what_the_last_evaluation_cost_is_in_the_total() -> None:
    step = StepFinished(step=1, weights_version=1, metrics={"cost/total_usd": 0.0064})
    totals = {"cost/total_usd": 0.0068, "tokens/total/prompt": 9.0}
    last = eval_finished(1, 1.0, scored=1, metrics={"cost/eval_usd": 0.0004, **totals})
    assert folded(started(), step, last).totals == totals


def test_gpus_are_known_by_machine() -> None:
    here, there = (GpusMeasured(host=host, gpus=()) for host in ("a", "b"))
    again = GpusMeasured(host="a", gpus=(GpuMeasured(index=0, name="H100"),))
    assert folded(here, there, again).gpus == {"a": again, "b": there}


def test_an_older_measurement_of_a_server_can_be_read() -> None:
    old = json.loads(encode(policy_measured(server=server_status())))
    for name in ("kv_cache_use", "preemptions", "latencies"):
        del old["server"][name]
    assert decode("policy_measured", json.dumps(old)) == policy_measured(server=server_status())


def sampled(sample: int, text: str, purpose: str) -> TurnSampled:
    return turn_sampled("t", turn=3, purpose=purpose, sample=sample, text=text, prompt_tokens=10)


def test_a_call_that_summarises_is_no_turn() -> None:
    answer = msgspec.structs.replace(
        sampled(2, "an answer", "turn"), thinking="let me see", cached_tokens=8
    )
    events: list[AnyEvent] = [
        TurnStarted(trial="t", turn=3, purpose="summarize-summary"),
        sampled(1, "so far: much", "summarize-summary"),
        TurnStarted(trial="t", turn=3),
        answer,
        TurnParsed(trial="t", turn=3, analysis="a", plan="p", commands=(), task_complete=False),
    ]
    transcript = Transcript()
    assert transcript.apply(entries(events))
    summary, turn = transcript.turns
    assert (summary.purpose, summary.sample, summary.text) == (
        "summarize-summary",
        1,
        "so far: much",
    )
    assert not summary.plan
    assert (turn.purpose, turn.sample, turn.plan) == ("turn", 2, "p")
    assert (turn.thinking, turn.text) == ("let me see", "an answer")
    assert (turn.cached_tokens, turn.prompt_tokens) == (8, 10)
