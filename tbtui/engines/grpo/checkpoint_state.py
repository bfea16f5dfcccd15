"""What a checkpoint directory holds, and how one is read.

`checkpoints/step-000010/` has what the policy saved of itself (weights, optimiser) and
`trainer.json`: where training stood, whose weights they are, and the size and digest of every
file. A directory appears under this name complete, by one rename; what is being written,
replaced or removed has a name that starts with a dot.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tbtui.config import RunConfig, fixed_on_resume, to_json
from tbtui.errors import UserError
from tbtui.journal.events import BestCheckpoint, Entry
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.paths import open_plain, read_plain, require_plain
from tbtui.policies.base import PolicyInfo

FORMAT = 1
STATE_FILE = "trainer.json"
WRITING, REPLACED, REMOVED = ".writing-", ".replaced-", ".removed-"

_OF_THE_DIRECTORY = frozenset({"run_name", "checkpoint", "tasks_dir"})
"""A checkpoint is the same wherever it and the tasks lie, and carries the weights that its run
began with."""


class CheckpointError(UserError):
    """A checkpoint can't be written or used; the message is one line for a person."""


class TrainingProgress(BaseModel):
    """How far training has come."""

    model_config = ConfigDict(frozen=True)

    step: int
    """Batches trained on."""
    weights_version: int


class FileRecord(BaseModel):
    model_config = ConfigDict(frozen=True)

    size: int
    """Bytes."""
    sha256: str


class TrainerState(TrainingProgress):
    """`trainer.json`."""

    format: int
    tbtui_version: str
    policy: str
    model_name: str
    parameters: int | None
    tokenizer: str | None
    """Digest; None where the policy has none to give."""
    journal_seq: int
    """The last event before it was saved."""
    settings: dict[str, Any]
    """Those of `fixed_on_resume` that a checkpoint depends on."""
    files: dict[str, FileRecord]
    """What the policy saved, by path within the directory."""


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    path: Path
    state: TrainerState
    passed_over: tuple[str, ...] = ()
    """One line for each newer one that can't be used."""


def fixed_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that `require_same_settings` will compare, as JSON has them."""
    values = to_json(config)
    return {name: values[name] for name in fixed_on_resume() if name not in _OF_THE_DIRECTORY}


def load_checkpoint(path: Path, policy: PolicyInfo | None = None) -> TrainerState:
    """The state of the checkpoint in `path`, once all of its files are seen to be whole.

    Raises:
        CheckpointError: there is none, it is damaged, of another format or, where `policy` is
            given, of another model or tokenizer.
    """
    state = _read_state(path)
    for name, record in state.files.items():
        try:
            require_plain(path / name)  # first, since a link that leads to itself can't be resolved
            if not (path / name).resolve().is_relative_to(path.resolve()):
                raise CheckpointError(f"{path} is damaged: {name} is not within it")
            if (size := (path / name).lstat().st_size) != record.size:
                raise CheckpointError(
                    f"{path} is damaged: {name} has {size:,} bytes, not {record.size:,}"
                )
            found = file_record(path / name)
        except OSError as error:
            raise CheckpointError(f"{path} is damaged: {name}: {error.strerror}") from error
        except ValueError as error:
            raise CheckpointError(f"{path} is damaged: {name!a}: {error}") from error
        if found.sha256 != record.sha256:
            raise CheckpointError(f"{path} is damaged: {name} is not what was saved")
    if policy is not None:
        _require_same_model(path, state, policy)
    return state


def require_same_settings(state: TrainerState, config: RunConfig) -> None:
    """Raises `CheckpointError` naming a setting that must not change on resume and did."""
    given = fixed_settings(config)
    for name, value in state.settings.items():
        if name in given and given[name] != value:
            raise CheckpointError(
                f"{name}={_shown(given[name])}: the run was started with {name}={_shown(value)},"
                " which can't change on resume; leave it out, or start a new run from the"
                " checkpoint with checkpoint=DIRECTORY"
            )


def latest(directory: RunDirectory) -> LoadedCheckpoint | None:
    """The newest checkpoint of a run that can be used; None: it has none.

    Raises:
        CheckpointError: it has some, and none can be used.
    """
    refused: list[str] = []
    for path in newest_first(directory):
        try:
            return LoadedCheckpoint(path, load_checkpoint(path), tuple(refused))
        except CheckpointError as error:
            refused.append(str(error))
    if refused:
        more = f"; and {len(refused) - 1} more" if len(refused) > 1 else ""
        raise CheckpointError(f"{refused[0]}{more}")
    return None


def checkpoint_of(directory: RunDirectory, step: int) -> LoadedCheckpoint:
    """The checkpoint of a step. Raises `CheckpointError`: there is none, or it can't be used."""
    path = directory.checkpoints / checkpoint_name(step)
    if not path.is_dir():
        saved = (
            ", ".join(str(step_of(each)) for each in reversed(newest_first(directory))) or "none"
        )
        raise CheckpointError(f"{directory.name} has no checkpoint of step {step}; it has: {saved}")
    return LoadedCheckpoint(path, load_checkpoint(path))


def best(directory: RunDirectory) -> LoadedCheckpoint | None:
    """The checkpoint with the best held-out pass rate, as the journal has it; None: no such.

    Raises:
        CheckpointError: it can't be used.
        JournalError: nor can the journal.
    """
    relative = None
    for entry in entries_of(directory, ("best_checkpoint",)):
        if isinstance(entry.event, BestCheckpoint):
            relative = entry.event.path
    if relative is None:
        return None
    path = directory.path / relative
    if not path.resolve().is_relative_to(directory.path.resolve()):
        raise CheckpointError(
            f"{directory.database}: its best checkpoint, {relative!a}, is not within the run"
        )
    return LoadedCheckpoint(path, load_checkpoint(path))


def entries_of(directory: RunDirectory, kinds: Sequence[str]) -> list[Entry]:
    """Every event of these kinds. Raises `JournalError` when the journal can't be read."""
    with closing(JournalReader(directory)) as reader:
        return list(reader.each(kinds))


def newest_first(directory: RunDirectory) -> list[Path]:
    """A run's checkpoint directories in the order in which they were saved, the last one first.
    Damaged ones come where their step would have them."""

    def saved(path: Path) -> tuple[int, int]:
        step = step_of(path)
        try:
            return _read_state(path).journal_seq, step
        except CheckpointError:
            return 0, step

    if not directory.checkpoints.is_dir():
        return []
    found = [path for path in directory.checkpoints.iterdir() if _is_checkpoint_name(path.name)]
    # Numbers that can't be read are taken from the next lower step that can.
    positions: list[tuple[int, int, Path]] = []
    last = 0
    for path in sorted(found, key=lambda path: saved(path)[1]):
        seq, step = saved(path)
        last = seq or last
        positions.append((last, step, path))
    return [path for _, _, path in sorted(positions, reverse=True)]


def checkpoint_name(step: int) -> str:
    return f"step-{step:06d}"


def step_of(checkpoint: Path) -> int:
    """The step in the name of a checkpoint's directory."""
    return int(checkpoint.name.removeprefix("step-"))


def _is_checkpoint_name(name: str) -> bool:
    return name.startswith("step-") and name.removeprefix("step-").isdecimal()


def sweep(directory: RunDirectory) -> None:
    """Put back what a crash left between two names. Only for a run without a writer.

    Raises:
        CheckpointError: the file system refuses.
    """
    try:
        directory.checkpoints.mkdir(exist_ok=True)
        for path in sorted(directory.checkpoints.iterdir()):
            if path.name.startswith(REPLACED):
                successor = path.with_name(path.name.removeprefix(REPLACED))
                if not successor.exists():
                    path.rename(successor)
    except OSError as error:
        raise CheckpointError(f"{directory.checkpoints}: {error.strerror}") from error


def leftovers(directory: RunDirectory) -> list[Path]:
    """Directories half written, replaced or removed: no checkpoints. Raises OSError."""
    half_done = (WRITING, REPLACED, REMOVED)
    return [path for path in directory.checkpoints.iterdir() if path.name.startswith(half_done)]


def file_record(path: Path) -> FileRecord:
    """Size and digest. Raises OSError."""
    with open_plain(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(size=file.tell(), sha256=digest)


def _read_state(path: Path) -> TrainerState:
    if not path.is_dir():
        raise CheckpointError(f"{path}: there is no such checkpoint")
    try:
        fields = json.loads(read_plain(path / STATE_FILE))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is no checkpoint: {STATE_FILE} is missing") from error
    except OSError as error:
        raise CheckpointError(f"{path / STATE_FILE}: {error.strerror}") from error
    except (RecursionError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {STATE_FILE} can't be read") from error
    found = fields.get("format") if isinstance(fields, dict) else None
    if not isinstance(found, int):
        raise CheckpointError(f"{path} is damaged: {STATE_FILE} doesn't say its format")
    if found != FORMAT:
        by = f" (written by tbtui {fields.get('tbtui_version')})"
        raise CheckpointError(f"{path} has format {found}{by}, this tbtui reads {FORMAT}")
    try:
        return TrainerState.model_validate(fields)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise CheckpointError(
            f"{path} is damaged: {STATE_FILE}: {where}: {error.errors()[0]['msg']}"
        ) from error


def _require_same_model(path: Path, state: TrainerState, policy: PolicyInfo) -> None:
    saved = (state.policy, state.model_name, state.parameters)
    used = (policy.name, policy.model_name, policy.parameters)
    if saved != used:
        raise CheckpointError(f"{path} is of another model: {_model(*saved)}, not {_model(*used)}")
    if None not in (state.tokenizer, policy.tokenizer) and state.tokenizer != policy.tokenizer:
        raise CheckpointError(
            f"{path} is of another tokenizer: its token ids mean other text to {policy.model_name}"
        )


def _model(policy: str, name: str, parameters: int | None) -> str:
    return f"{policy} {name}" + (f" of {parameters:,} parameters" if parameters else "")


def _shown(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)
