"""A trial in formats of others: as ATIF, as an asciicast, as lines of JSON."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from tbtui.errors import UserError
from tbtui.export.record import CallRecord, TrialRecord
from tbtui.journal.database import is_time
from tbtui.journal.events import ToolUse
from tbtui.paths import MOST_RECORDED, read_plain
from tbtui.view.transcript import PERSON

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

VERSION = "ATIF-v1.7"


def atif(record: TrialRecord) -> str:
    """The trial in ATIF: steps with tool calls, observations, token ids and log-probabilities."""
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
            name=_agent(record),
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


def _agent(record: TrialRecord) -> str:
    agent = record.started.settings.get("agent") if record.started else None
    return agent if isinstance(agent, str) else "terminus-2"


def _steps(record: TrialRecord) -> list[dict[str, Any]]:
    first = record.calls[0].sample if record.calls else None
    asked = first.prompt_text if first is not None else f"(task {record.queued.task})"
    at = record.calls[0].turn.started_at if record.calls else record.queued_at
    steps = [{"source": "user", "timestamp": _stamp(at), "message": asked}]
    steps += [_step(call) for call in record.calls]
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


def _step(call: CallRecord) -> dict[str, Any]:
    turn = call.turn
    if turn.purpose == PERSON:
        return {
            "source": "user",
            "timestamp": _stamp(turn.started_at),
            "message": turn.text,
            "extra": {"typed_by": turn.plan},
        }
    calls = [_tool_call(call) for call in turn.tool_calls] or [
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


def _tool_call(call: ToolUse) -> dict[str, Any]:
    """A call of one of the agent's own tools; a model's server may give what is no JSON object."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (RecursionError, msgspec.DecodeError):
        arguments = {"arguments": call.arguments}
    return {"tool_call_id": call.id, "function_name": call.name, "arguments": arguments}


def _metrics(call: CallRecord) -> dict[str, Any]:
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
        logprobs=sample.logprobs.tolist() if sample.has_logprobs else None,
    )


def _known(**fields: Any) -> dict[str, Any]:
    """The fields that are not None, as Harbor writes them."""
    return {name: value for name, value in fields.items() if value is not None}


def _stamp(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat()


def cast(record: TrialRecord) -> str:
    """The recording without lines cut off by a crash; its title says which trial it is.

    Raises:
        UserError: nothing was recorded.
    """
    path = record.run.recording(record.trial)
    try:
        lines = read_plain(path, MOST_RECORDED).decode("utf-8", "replace").split("\n")
    except OSError as error:
        raise UserError(f"{record.trial}: its terminal was not recorded") from error
    header = _parsed(lines[0])
    if not isinstance(header, dict) or header.get("version") != 2:
        raise UserError(f"{path}: not an asciicast of version 2")
    header["title"] = f"{record.queued.label} ({record.run.name}, step {record.queued.step})"
    events = [each for each in map(_parsed, lines[1:]) if _is_event(each)]
    events += _markers(record, header)
    # Stable: a turn's marker comes after what was on the screen when it began.
    events.sort(key=lambda each: float(each[0]))
    # In ASCII: some readers take other characters than \n for the end of a line.
    return "".join(json.dumps(each) + "\n" for each in (header, *events))


def _markers(record: TrialRecord, header: dict[str, Any]) -> list[list[Any]]:
    began = header.get("began", header.get("timestamp"))
    if not is_time(began):
        return []
    return [
        [round(max(0.0, call.turn.started_at - began), 6), "m", f"turn {call.turn.turn}"]
        for call in record.calls
        if call.turn.purpose == "turn"
    ]


def _is_event(value: Any) -> bool:
    match value:
        case [time, str(), str()]:
            return is_time(time)
        case _:
            return False


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (RecursionError, ValueError):
        return None


def json_lines(record: TrialRecord) -> str:
    """A line of JSON per model call: times in seconds since the epoch, log-probabilities in nats.

    `prompt_ids`, `completion_ids`, `logprobs` and `pieces` are null where only another's
    trainer has the tokens.
    """
    # In ASCII: some readers take other characters than \n for the end of a line.
    rows = (_row(record, call) for call in record.calls)
    return "".join(json.dumps(row) + "\n" for row in rows)


def _or_none(logprobs: npt.NDArray[np.float32]) -> list[float | None]:
    """Log-probabilities, None where one is not known: JSON has no NaN."""
    return [None if math.isnan(each) else each for each in logprobs.tolist()]


def _row(record: TrialRecord, call: CallRecord) -> dict[str, Any]:
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
        "logprobs": sample.logprobs.tolist() if sample and sample.has_logprobs else None,
        "model_logprobs": _or_none(sample.of_model) if sample and sample.has_logprobs else None,
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
