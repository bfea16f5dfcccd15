"""What a run prints without the app."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path

import msgspec
import pytest

from tbtui.console import HumanLines, follow, json_line
from tbtui.findings import Rule
from tbtui.journal.events import (
    AlarmRaised,
    AnyEvent,
    BestCheckpoint,
    CheckpointRemoved,
    CommandDone,
    CommandIssued,
    DeadlinePassed,
    Estimate,
    GpuMeasured,
    GpusMeasured,
    GroupAdded,
    GroupRefilled,
    Noted,
    Outcome,
    PolicyLost,
    PolicyMeasured,
    ResourcesMeasured,
    RunFinished,
    RunPaused,
    StepFinished,
    StepStarted,
    TasksSetAside,
    TrialExcluded,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialResumed,
    TrialRetried,
    WorkerRecycled,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import eval_finished, group_scored, policy_measured, run_continued, server_status

from ..view.story import entries, finished, one_step_run, queued, started


def human(*events: AnyEvent) -> list[str]:
    lines = HumanLines()
    return [line for entry in entries([*events]) for line in lines.lines(entry)]


def test_a_run_reads_as_a_story() -> None:
    lines = human(*one_step_run())
    text = "\n".join(lines)
    assert "policy  local starter, 0.77M parameters" in text
    assert "tasks   1 to train on, 1 held out, from /tasks/starter" in text
    assert "eval    after step 0: one trial, reward 0" in text
    assert "trial   t3 sandbox_lost: because" in text
    assert "step    1/2 · reward 0.50 · failed 1 sandbox_lost 1 solved 1" in text
    assert lines[-1] == "finished: 1 step, held-out pass rate 0.00 -> 0.50"


def test_the_last_line_of_a_failed_run_is_the_reason() -> None:
    lines = human(RunFinished(status="failed", reason="the disk is full"))
    assert lines[-1] == "failed: the disk is full"


def test_json_lines_are_whole_events() -> None:
    events = list(one_step_run())
    for entry, event in zip(entries(events), events, strict=True):
        line = json_line(entry)
        assert "\n" not in line
        fields = json.loads(line)
        assert fields["kind"] == event.kind
        assert fields["seq"] == entry.seq


def test_nothing_that_is_printed_can_steer_the_terminal_or_hide() -> None:
    hostile = "\x1b[2J\x07\x9b31m\r\x7f[bold] a\u202eb\u200bc\u2028d\ud800e naïve 🦀 日本"
    (line,) = human(Noted(level="warning", text=hostile))
    assert line == "warning ␛[2J␇�31m␍␡[bold] a�b�c�d�e naïve 🦀 日本"
    assert "\x9b" not in json_line(entries([Noted(level="warning", text=hostile)])[0])


def followed(run: RunDirectory, after: int = 0) -> list[str]:
    """Its lines, now that it is complete."""
    complete, out = threading.Event(), io.StringIO()
    complete.set()
    follow(run, complete, HumanLines().lines, out, after)
    return out.getvalue().splitlines()


def test_a_journal_is_followed_until_it_is_complete(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    complete, out = threading.Event(), io.StringIO()
    following = threading.Thread(target=follow, args=(run, complete, HumanLines().lines, out))
    following.start()
    with JournalWriter(run) as writer:
        for event in one_step_run():
            writer.append(event)
        complete.set()
        following.join()
    assert out.getvalue().splitlines()[-1].startswith("finished:")


def test_what_was_told_before_a_resume_is_not_told_again(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    with JournalWriter(run) as writer:
        told = [writer.append(event) for event in one_step_run()][-2]
    # What is new still knows what was before.
    assert followed(run, told)[0].startswith("end     3 rollouts, 1 held-out trial in ")


def test_a_run_that_never_wrote_is_followed_to_nothing(tmp_path: Path) -> None:
    assert followed(RunDirectory.create(tmp_path / "run")) == []


def test_every_act_of_steering_is_one_line() -> None:
    lines = human(
        StepStarted(step=1, groups={"g": "copy-01"}),
        CommandIssued(command="a", verb="freeze", target="t1", actor="ann", reason="stuck"),
        TrialPaused(trial="t1", frozen=True),
        CommandDone(command="a", ok=True, result=""),
        TrialResumed(trial="t1"),
        TrialPaused(trial="t1"),
        CommandDone(command="b", ok=False, result="t2 is still queued: nothing to pause"),
        TrialExcluded(trial="t1", excluded=True, reason="it cheated"),
        TrialExcluded(trial="t1", excluded=False),
        TrialRetried(trial="t1", successor="t1b", reason="sandbox_lost", wait_sec=4.0),
        GroupRefilled(step=1, group="g", trials=("t8", "t9")),
        DeadlinePassed(step=1, action="stop", trials=("t3",)),
        WorkerRecycled(worker=1, pid=7, reason="it had grown to 600 MB"),
        RunPaused(),
        # Of a paused run each trial says nothing new.
        TrialPaused(trial="t4"),
    )
    assert lines == [
        "asked   ann: freeze t1 (stuck)",
        "trial   t1 is frozen, its processes stopped",
        "done    freeze t1",
        "trial   t1 goes on",
        "trial   t1 is paused at the end of its turn",
        "refused t2 is still queued: nothing to pause",
        "trial   t1 is left out of training: it cheated",
        "trial   t1 counts for training again",
        "trial   t1 is attempted again in 4 s as t1b (sandbox_lost)",
        "group   copy-01 is refilled with t8, t9",
        "step    1 has had its time; stopped and verified: t3",
        "worker  1 is replaced: it had grown to 600 MB",
        "run     paused: no trial starts, running ones end their turn first",
    ]


def test_a_step_says_what_was_masked_and_what_it_waited_for() -> None:
    metrics = {"time/total": 3.0, "time/sampling": 2.5, "time/training": 0.5}
    lines = human(
        started(),
        queued("t1"),
        finished("t1", None, Outcome.CONTEXT_OVERFLOW),
        StepFinished(
            step=1,
            weights_version=1,
            metrics={**metrics, "time/wait/sampling": 2.0, "time/wait/queue": 0.5},
        ),
    )
    assert "trial   t1 context_overflow, masked: because" in lines
    assert lines[-1] == (
        "step    1/2 · no reward · context_overflow 1 · 1 masked"
        " · 3.0s (trials 2.5, training 0.5; waited for sampling 80%, queue 20%)"
    )


def test_a_resumed_run_says_where_it_goes_on() -> None:
    lines = human(
        started(),
        queued("t1"),
        run_continued(
            checkpoint="checkpoints/step-000004",
            step=4,
            replayed=(5, 6),
            reused=9,
            requeued=("t1",),
            settings={"max_steps": None, "n_epochs": 3, "batch_size": 1},
        ),
        step_finished(7, {}),
        RunFinished(status="finished", reason="done"),
    )
    assert "resumed from step 4 (checkpoints/step-000004)" in lines
    assert "resumed steps 5 to 6 trained again on what was recorded of them" in lines
    assert "resumed 9 finished trials are used again, 1 that were under way start again" in lines
    assert any(line.startswith("step    7/3 ") for line in lines)


def test_a_group_that_is_scored_again_after_a_resume_is_one_group() -> None:
    constant = group_scored("g", {}, step=2, disposition="constant", baseline=0.0)
    trained = msgspec.structs.replace(constant, group="h", disposition="trained")
    line = human(started(), constant, trained, constant, step_finished(2, {}))[-1]
    assert " · 1 of 2 groups constant · " in line


def test_a_step_says_what_it_cost() -> None:
    paid = step_finished(2, {"cost/step_usd": 0.043, "cost/total_usd": 12.5})
    line = human(started(), paid)[-1]
    assert " · $0.043 (so far $12.50) · 3.0s " in line


def step_finished(step: int, metrics: dict[str, float]) -> StepFinished:
    times = {"time/total": 3.0, "time/sampling": 2.5, "time/training": 0.5}
    return StepFinished(step=step, weights_version=step, metrics=times | metrics)


def test_steps_that_overlap_are_told_apart() -> None:
    lines = human(
        started(),
        StepStarted(step=1, groups={"g": "copy-01"}),
        StepStarted(step=2, groups={"h": "copy-01"}),
        queued("a"),
        queued("b", group="h", step=2),
        finished("b", 1.0),
        finished("a", 0.0),
        GroupAdded(step=1, group="i", task="move-02", replaces="g"),
        step_finished(1, {"async/staleness_max": 1.0}),
        step_finished(2, {}),
    )
    assert "group   move-02 is added for copy-01, which has nothing to teach" in lines
    first, second = lines[-2:]
    assert "failed 1 ·" in first
    assert "up to 1 step stale" in first
    assert "solved 1 ·" in second


def test_tasks_that_cannot_be_used_are_named() -> None:
    lines = human(
        started(),
        TasksSetAside(tasks={"move-01": "it needs a network"}, by="preflight"),
        StepStarted(step=1, groups={"g": "copy-01"}),
        TasksSetAside(tasks={"copy-01": "uvx: command not found"}, by="trial"),
        GroupAdded(step=1, group="i", task="move-02", replaces="g"),
    )
    assert "task    copy-01 is not tried again: uvx: command not found" in lines
    assert "group   move-02 is added for copy-01, which can't be used" in lines


def test_a_slow_step_of_a_build_is_one_line_for_all_trials_of_a_task() -> None:
    step = "step 2 of 3, RUN pip install numpy"
    lines = human(
        queued("t1"),
        queued("t2"),
        TrialPhaseChanged(trial="t1", phase=TrialPhase.SETUP, detail="sandbox"),
        TrialPhaseChanged(trial="t1", phase=TrialPhase.SETUP, detail=f"sandbox: {step}"),
        TrialPhaseChanged(trial="t2", phase=TrialPhase.SETUP, detail=f"sandbox: {step}"),
        TrialPhaseChanged(trial="t1", phase=TrialPhase.SETUP, detail="sandbox: step 3 of 3, RUN x"),
    )
    first, second = lines
    task = first.removeprefix("build").strip().partition(":")[0]
    assert first == f"build   {task}: {step}; every trial builds its sandbox anew"
    assert second == f"build   {task}: step 3 of 3, RUN x"


def test_alarms_best_checkpoints_and_intervals_are_told() -> None:
    lines = human(
        AlarmRaised(alarm=Rule.BELOW_BASE, step=4, text="0.20 of 48", numbers={}, action="halt"),
        BestCheckpoint(step=4, path="checkpoints/step-000004", pass_rate=0.5),
        CheckpointRemoved(step=1, path="checkpoints/step-000001"),
        eval_finished(
            4,
            0.5,
            by_kind={"copy": 0.5},
            trials_by_kind={"copy": 8},
            pass_at={
                4: Estimate(value=0.7, low=0.4, high=0.9),
                1: Estimate(value=0.5, low=0.2, high=0.8),
            },
        ),
    )
    assert lines == [
        "alarm   below base at step 4: 0.20 of 48; the run ends",
        "best    checkpoints/step-000004: held-out pass rate 0.50",
        "removed checkpoints/step-000001",
        "eval    after step 4: held-out pass rate 0.50 (0.20 to 0.80) of 8 trials"
        " · pass@4 0.70 (0.40 to 0.90) · copy 0.50 (n 8)",
    ]


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ((4, 4), "starter 0.75 workshop 0.25 (n 4 each)"),
        ((5, 3), "starter 0.75 (n 5) workshop 0.25 (n 3)"),
        ((), "starter 0.75 workshop 0.25"),  # of an earlier version
    ],
)
def test_data_sets_are_told_before_kinds(trials: tuple[int, ...], said: str) -> None:
    rates = {"starter": 0.75, "workshop": 0.25}
    counts = dict(zip(rates, trials, strict=False))
    event = eval_finished(4, 0.5, by_kind={"copy": 0.5}, by_dataset=rates, trials_by_dataset=counts)
    (told,) = human(event)
    assert told.endswith(f"pass rate 0.50 of 8 trials · {said} · copy 0.50")


def on_a_server(state: str, since: float, reason: str = "") -> PolicyMeasured:
    return policy_measured(
        in_flight=1, server=server_status(state=state, reason=reason, since=since)
    )


A_SECOND = ResourcesMeasured(processes=(), engine_lag_ms=0.0)


def test_a_server_that_holds_the_run_up_is_told_once_and_taken_back() -> None:
    tinker = msgspec.structs.replace(started(), policy="tinker")
    lines = human(
        tinker,
        on_a_server("active", 1000),
        on_a_server("paused_capacity", 1003, "no\x1breplicas"),
        *[A_SECOND] * 40,
        on_a_server("active", 1043),
        A_SECOND,
    )
    assert [line for line in lines if line.startswith("tinker")] == [
        "tinker  paused: no capacity (no␛replicas), for 3s so far",
        "tinker  active after 40s",
    ]


def test_a_pause_that_is_soon_over_is_not_told() -> None:
    flapping = [
        on_a_server("paused_rate_limit" if second % 2 else "active", 1000 + second)
        for second in range(1, 20)
    ]
    assert human(*flapping) == []


def test_an_sdk_that_does_not_tell_the_state_is_told_once() -> None:
    events = [on_a_server("unknown", 1000, "the SDK has no hook")] * 3
    assert human(*events) == ["policy  state not reported (the SDK has no hook)"]


def test_a_lost_policy_is_told() -> None:
    (line,) = human(PolicyLost(step=4, reason="the run was deleted", wait_sec=10))
    assert line == "policy  lost at step 4: the run was deleted; a new one in 10 s"


BUSY = GpuMeasured(index=0, name="NVIDIA H100 80GB HBM3", utilisation=0.97)
IDLE = GpuMeasured(index=1, name="NVIDIA H100 80GB HBM3", utilisation=0.0)
LOST = GpuMeasured(index=1, name="", problem="GPU is lost")


def gpus(*each: GpuMeasured, unreachable: str = "") -> GpusMeasured:
    return GpusMeasured(host="node-1", gpus=each, unreachable=unreachable)


def test_a_machine_is_told_of_once_and_when_something_happens_to_it() -> None:
    away = gpus(unreachable="no route")
    events = [gpus(BUSY, IDLE), gpus(IDLE, BUSY), gpus(BUSY, LOST), away, away, gpus(BUSY, IDLE)]
    assert human(*events) == [
        "gpus    node-1: 2 x NVIDIA H100 80GB HBM3",
        "gpus    node-1: 1 x NVIDIA H100 80GB HBM3, GPU 1: GPU is lost",
        "gpus    node-1: no GPUs to be seen (no route)",
        "gpus    node-1: 2 x NVIDIA H100 80GB HBM3",
    ]


def test_preemptions_are_told_of_less_and_less_often() -> None:
    """What came before the run is not of the run, and a server that starts again counts anew."""
    counts = [40, 40, 41, 41, 42, 43, 44, 45, 46, 48, 3, 4, None]
    servers = [server_status(kv_cache_use=0.99, preemptions=count) for count in counts]
    assert human(*[policy_measured(server=server) for server in servers]) == [
        "policy  its KV cache is full: 1 request preempted so far, to be computed again",
        "policy  its KV cache is full: 2 requests preempted so far, to be computed again",
        "policy  its KV cache is full: 4 requests preempted so far, to be computed again",
        "policy  its KV cache is full: 8 requests preempted so far, to be computed again",
        "policy  its KV cache is full: 1 request preempted so far, to be computed again",
    ]
