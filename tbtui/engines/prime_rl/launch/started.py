"""What a launched run tells of itself when it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tbtui.config import to_json
from tbtui.engines.prime_rl.watch.configuration import run_started
from tbtui.engines.prime_rl.watch.layout import SourceDirectory
from tbtui.engines.task_records import task_records
from tbtui.journal.events import RunStarted

if TYPE_CHECKING:
    from tbtui.engines.prime_rl.launch.prepare import PreparedLaunch


def started_event(prepared: PreparedLaunch) -> RunStarted:
    """As the file tells it, with our settings, and the tasks by use where they are ours."""
    changes: dict[str, object] = {
        "run": prepared.directory.name,
        "settings": settings_of(prepared),
    }
    if prepared.environment is not None:
        changes["environment"] = prepared.environment.name
        changes["environment_reason"] = prepared.environment.reason
    if prepared.split is not None:
        changes["tasks"] = task_records(prepared.split)
    return _told(prepared).model_copy(update=changes)


def settings_of(prepared: PreparedLaunch) -> dict[str, Any]:
    """Ours; beside a file of Prime-RL's they are only defaults, and what is in the file counts."""
    settings = to_json(prepared.config)
    if prepared.config.prime_rl_config is not None:
        told = _told(prepared).settings
        settings |= {name: value for name, value in told.items() if name in settings}
    return settings


def _told(prepared: PreparedLaunch) -> RunStarted:
    return run_started(SourceDirectory(prepared.source), prepared.toml)
