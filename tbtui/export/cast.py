"""The terminal as an asciicast v2 that any player understands, with a marker at each turn."""

from __future__ import annotations

import json
from typing import Any

from tbtui.export.record import ExportError, TrialRecord
from tbtui.journal.database import is_time
from tbtui.paths import MOST_RECORDED, read_plain


def cast(record: TrialRecord) -> str:
    """The recording without lines cut off by a crash; its title says which trial it is.

    Raises:
        ExportError: nothing was recorded.
    """
    path = record.run.recording(record.trial)
    try:
        lines = read_plain(path, MOST_RECORDED).decode("utf-8", "replace").split("\n")
    except OSError as error:
        raise ExportError(f"{record.trial}: its terminal was not recorded") from error
    header = _parsed(lines[0])
    if not isinstance(header, dict) or header.get("version") != 2:
        raise ExportError(f"{path}: not an asciicast of version 2")
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
