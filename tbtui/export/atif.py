"""The trajectory in Harbor's Agent Trajectory Interchange Format, as Terminus-2 writes its own.

The tests read it with Harbor's own models.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tbtui.export.record import Call, TrialRecord
from tbtui.view.transcript import PERSON

VERSION = "ATIF-v1.7"


def atif(record: TrialRecord) -> str:
    """Steps with tool calls, observations, token ids and log-probabilities."""
    # In ASCII: what a terminal would obey may be in it, and it may be printed on one.
    return json.dumps(_trajectory(record), indent=1) + "\n"


def _trajectory(record: TrialRecord) -> dict[str, Any]:
    queued, finished = record.queued, record.transcript.finished
    steps = _steps(record)
    turns = record.transcript.turns
    cached = [turn.cached_tokens for turn in turns if turn.cached_tokens is not None]
    return _known(
        schema_version=VERSION,
        session_id=record.trial,
        trajectory_id=record.trial,
        agent=_known(
            name="terminus-2",
            version=record.started.harbor_version if record.started else "unknown",
            model_name=record.model_name or None,
        ),
        steps=steps,
        final_metrics=_known(
            total_prompt_tokens=sum(turn.prompt_tokens for turn in turns),
            total_completion_tokens=sum(turn.completion_tokens for turn in turns),
            total_cached_tokens=sum(cached) if cached else None,
            total_steps=len(steps),
        ),
        extra=_known(
            run=record.run.name,
            label=queued.label,
            task=queued.task,
            group=queued.group,
            step=queued.step,
            split=queued.purpose,
            attempt=queued.attempt,
            outcome=finished and str(finished.outcome),
            reason=finished and finished.reason,
            verdict=finished and finished.verdict,
            reward=record.reward,
            advantage=record.advantage,
            verifier_output=finished and finished.verifier_output,
        ),
    )


def _steps(record: TrialRecord) -> list[dict[str, Any]]:
    first = record.calls[0].sample if record.calls else None
    asked = first.prompt_text if first is not None else f"(task {record.queued.task})"
    at = record.calls[0].turn.started_at if record.calls else record.queued_at
    steps = [{"source": "user", "timestamp": _stamp(at), "message": asked}]
    steps += [_step(call) for call in record.calls]
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


def _step(call: Call) -> dict[str, Any]:
    turn = call.turn
    if turn.purpose == PERSON:
        return {
            "source": "user",
            "timestamp": _stamp(turn.started_at),
            "message": turn.text,
            "extra": {"typed_by": turn.plan},
        }
    calls = [
        {
            "tool_call_id": f"call_{turn.turn}_{number}",
            "function_name": "bash_command",
            "arguments": {"keystrokes": command.keystrokes, "duration": command.duration_sec},
        }
        for number, command in enumerate(turn.commands, start=1)
    ]
    # Several commands share one terminal: only a single one's answer is known to be its own.
    source = calls[0]["tool_call_id"] if len(calls) == 1 else None
    if turn.task_complete:
        calls.append(
            {
                "tool_call_id": f"call_{turn.turn}_task_complete",
                "function_name": "mark_task_complete",
                "arguments": {},
            }
        )
    observation = (
        {"results": [_known(source_call_id=source, content=turn.observation)]}
        if turn.observation
        else None
    )
    extra = _known(
        purpose=None if turn.purpose == "turn" else turn.purpose,
        parse_error=turn.error,
        parse_warning=turn.warning,
        weights_version=call.sample and call.sample.weights_version,
    )
    return _known(
        source="agent",
        timestamp=_stamp(turn.started_at),
        message=turn.text,
        reasoning_content=turn.thinking or None,
        tool_calls=calls or None,
        observation=observation,
        metrics=_metrics(call),
        llm_call_count=1,
        extra=extra or None,
    )


def _metrics(call: Call) -> dict[str, Any]:
    turn, sample = call.turn, call.sample
    if sample is None:
        return _known(
            prompt_tokens=turn.prompt_tokens or None,
            completion_tokens=turn.completion_tokens or None,
            cached_tokens=turn.cached_tokens,
        )
    return _known(
        prompt_tokens=len(sample.prompt_ids),
        completion_tokens=len(sample.completion_ids),
        cached_tokens=turn.cached_tokens,
        prompt_token_ids=list(sample.prompt_ids),
        completion_token_ids=list(sample.completion_ids),
        logprobs=sample.logprobs.tolist(),
    )


def _known(**fields: Any) -> dict[str, Any]:
    """Without those that are None, as Harbor writes them."""
    return {name: value for name, value in fields.items() if value is not None}


def _stamp(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat()
