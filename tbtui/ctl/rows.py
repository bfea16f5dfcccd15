"""What the lists say of runs, trials and tasks: rows with plain values, for JSON and for tables.

None of it was written by the model or by a task's programs, but for what `content` asks for.
"""

from __future__ import annotations

import contextlib
from typing import Any

from tbtui.ctl.reading import RunReading
from tbtui.journal.events import Entry, fields_of
from tbtui.journal.rundir import RunDirectory
from tbtui.view.estimate import Outlook
from tbtui.view.server import PolicyView
from tbtui.view.state import RunState, TaskView, TrialView
from tbtui.view.waiting import doing, retry_wait, waiting_for

Row = dict[str, Any]

CONTENT = frozenset(
    {
        "text",
        "thinking",
        "analysis",
        "plan",
        "commands",
        "error",
        "warning",
        "observation",
        "reason",
        "verifier_output",
        "keys",
    }
)
"""Fields of a trial's events that hold, or quote, what the model or a program wrote."""


_RUN_FIELDS = (
    *("run", "directory", "status", "pid", "policy", "model", "phase", "waiting_for", "step"),
    *("max_steps", "pass_rate", "rollouts", "trials_running", "trials_queued", "alarms"),
    *("seconds", "silent_sec", "reason"),
)


def run_row(run: RunReading, *, content: bool = False) -> Row:
    state = run.state
    # Why a run failed may quote what failed in it.
    told = content or run.status != "failed"
    running = state.running_trials() if run.live else []
    return {
        "run": run.directory.name,
        "directory": str(run.directory.path),
        "status": run.status,
        "pid": run.pid,
        "policy": state.policy,
        "model": state.model_name,
        "phase": str(state.phase) if run.live else None,
        "waiting_for": waiting_for(Outlook(state, run.now)) if run.live else None,
        "step": state.step,
        "max_steps": state.max_steps,
        "pass_rate": state.evals[-1].pass_rate if state.evals else None,
        "rollouts": state.rollouts,
        "trials_running": len(running),
        "trials_queued": len(state.live_trials()) - len(running) if run.live else 0,
        "alarms": state.alarms_raised,
        "seconds": None if state.started_at is None else round(run.now - state.started_at, 1),
        "silent_sec": round(run.now - state.time, 1) if run.live else None,
        "reason": state.reason if told and not run.live else None,
    }


def unreadable_row(directory: RunDirectory, reason: str) -> Row:
    """As `run_row`, of a run of which no more can be known."""
    return dict.fromkeys(_RUN_FIELDS) | {
        "run": directory.name,
        "directory": str(directory.path),
        "status": "unreadable",
        "reason": reason,
    }


def trial_row(trial: TrialView, run: RunReading, *, content: bool = False) -> Row:
    """`for_sec`: how long it does what it does; `idle_sec`: since it was last heard of, in the
    journal or on its terminal."""
    now = run.now
    row: Row = {
        "trial": trial.trial,
        "label": trial.label,
        "task": trial.task,
        "group": trial.group,
        "step": trial.step,
        "purpose": trial.purpose,
        "attempt": trial.attempt,
        "doing": retry_wait(trial, now) or doing(trial),
        "phase": str(trial.phase),
        "turn": trial.turn,
        "for_sec": round(now - trial.phase_since, 1) if trial.live else None,
        "idle_sec": _idle(trial, run) if trial.live else None,
        "paused": trial.paused,
        "frozen": trial.frozen,
        "pending": trial.pending or None,
        "outcome": None if trial.outcome is None else str(trial.outcome),
        "reward": trial.reward,
        "excluded": trial.excluded,
        "relabelled": trial.relabelled,
        "successor": trial.successor,
    }
    if content:
        row |= {
            "reason": trial.reason,
            "last_text": trial.last_text,
            "last_command": trial.last_command,
        }
    return row


def _idle(trial: TrialView, run: RunReading) -> float | None:
    heard = run.reader.last_time(trial.trial)
    with contextlib.suppress(OSError):  # it has no terminal yet
        heard = max(heard or 0.0, run.directory.recording(trial.trial).stat().st_mtime)
    return None if heard is None else round(max(0.0, run.now - heard), 1)


def task_row(task: TaskView) -> Row:
    return {
        "task": task.name,
        "kind": task.kind,
        "difficulty": task.difficulty,
        "split": task.split,
        "pass_rate": None if task.pass_rate is None else round(task.pass_rate, 3),
        "recent_rate": None if task.recent_rate is None else round(task.recent_rate, 3),
        "scored": task.scored,
        "unscored": task.unscored,
        "live": task.live,
    }


def policy_row(state: RunState, now: float) -> Row:
    row: Row = {
        "policy": state.policy,
        "model": state.model_name,
        "parameters": state.parameters,
        "weights_version": state.weights_version,
        "lost": None if state.policy_lost is None else state.policy_lost.reason,
    }
    return row | (_measured(state.policy_now, now) if state.policy_now is not None else {})


def _measured(policy: PolicyView, now: float) -> Row:
    rate, server = policy.tokens_per_sec(now), policy.server
    row: Row = {
        "activity": policy.activity,
        "in_flight": policy.in_flight,
        "running": policy.running,
        "completed": policy.completed,
        "p50_sec": policy.p50_sec,
        "p95_sec": policy.p95_sec,
        "tokens_per_sec": None if rate is None else round(rate, 1),
    }
    if server is not None:
        row |= {
            "server": server.words,
            "server_reason": server.reason,
            "server_for_sec": round(now - server.since, 1),
            "server_retries": server.retries,
        }
    return row


def event_row(entry: Entry, *, content: bool = False) -> Row:
    """An event of a trial; what is withheld of it is named."""
    fields = fields_of(entry.event)
    row: Row = {"seq": entry.seq, "time": entry.time, **fields}
    withheld = [name for name in fields if name in CONTENT and fields[name]]
    if content or not withheld:
        return row
    return {name: value for name, value in row.items() if name not in withheld} | {
        "withheld": withheld
    }
