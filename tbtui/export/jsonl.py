"""A line of JSON a model call, complete in itself: for training elsewhere, and for analysis."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from tbtui.export.record import Call, TrialRecord


def json_lines(record: TrialRecord) -> str:
    """Times in seconds since the epoch, log-probabilities in nats.

    `prompt_ids`, `completion_ids`, `logprobs` and `pieces` are null where only somebody else's
    trainer has the tokens.
    """
    # In ASCII: some readers take other characters than \n for the end of a line.
    rows = (_row(record, call) for call in record.calls)
    return "".join(json.dumps(row) + "\n" for row in rows)


def _row(record: TrialRecord, call: Call) -> dict[str, Any]:
    queued, finished = record.queued, record.transcript.finished
    turn, sample = call.turn, call.sample
    return {
        "run": record.run.name,
        "trial": queued.trial,
        "label": queued.label,
        "task": queued.task,
        "group": queued.group,
        "step": queued.step,
        "split": queued.purpose,
        "attempt": queued.attempt,
        "model": record.model_name,
        "turn": turn.turn,
        "purpose": turn.purpose,
        "started_at": turn.started_at,
        "model_seconds": turn.model_seconds,
        "command_seconds": turn.command_seconds,
        "prompt_ids": None if sample is None else list(sample.prompt_ids),
        "completion_ids": None if sample is None else list(sample.completion_ids),
        "logprobs": None if sample is None else sample.logprobs.tolist(),
        "pieces": None if sample is None else list(sample.pieces),
        "new_in_prompt": None if sample is None else sample.prompt_text,
        "stop_reason": None if sample is None else sample.stop_reason,
        "weights_version": None if sample is None else sample.weights_version,
        "temperature": None if sample is None else sample.temperature,
        "thinking": turn.thinking,
        "text": turn.text,
        "analysis": turn.analysis,
        "plan": turn.plan,
        "commands": [msgspec.structs.asdict(command) for command in turn.commands],
        "task_complete": turn.task_complete,
        "error": turn.error,
        "warning": turn.warning,
        "observation": turn.observation,
        "outcome": finished and str(finished.outcome),
        "reason": finished and finished.reason,
        "verdict": finished and finished.verdict,
        "reward": record.reward,
        "advantage": record.advantage,
    }
