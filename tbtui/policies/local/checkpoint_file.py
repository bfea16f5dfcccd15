"""A checkpoint: one `policy.npz` with the weights, those that training started from, the
optimiser's moments and a header.

One file, so that replacing it is atomic. It holds arrays only (no pickles); the header says what
they are, and a file that is not ours, or is for another model or tokenizer, is refused by reason.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tbtui.paths import open_plain
from tbtui.policies.base import PolicyError
from tbtui.policies.local.model import Array, ModelConfig

FILE_NAME = "policy.npz"
FORMAT = "tbtui-local-policy"
FORMAT_VERSION = 1
_NO_CHECKPOINT = (
    *(AttributeError, EOFError, IndexError, KeyError, MemoryError, NotImplementedError),
    *(OverflowError, RecursionError, TypeError, ValueError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What NumPy and `zipfile` raise for a file that is none of ours."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything that training goes on from."""

    config: ModelConfig
    tokenizer_digest: str
    weights_version: int
    weights: Array
    first_moment: Array | None
    second_moment: Array | None
    optimizer_steps: int
    reference: Array | None = None
    """The weights that training started from; None where it has not started."""


def write_checkpoint(
    directory: Path, checkpoint: Checkpoint, *, dtype: npt.DTypeLike = np.float32
) -> None:
    """Write or replace `directory`'s checkpoint. Raises `PolicyError` when the disk refuses."""
    header = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model": asdict(checkpoint.config),
        "tokenizer": checkpoint.tokenizer_digest,
        "weights_version": checkpoint.weights_version,
        "optimizer_steps": checkpoint.optimizer_steps,
    }
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "header": np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8),
        "weights": checkpoint.weights.astype(dtype),
    }
    if checkpoint.first_moment is not None and checkpoint.second_moment is not None:
        arrays["first_moment"] = checkpoint.first_moment
        arrays["second_moment"] = checkpoint.second_moment
    if checkpoint.reference is not None:
        arrays["reference"] = checkpoint.reference
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, delete=False) as file:
            try:
                np.savez(file, allow_pickle=False, **arrays)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o644)
                Path(file.name).replace(directory / FILE_NAME)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise PolicyError(f"can't save the policy in {directory}: {error.strerror}") from error


def read_checkpoint(directory: Path) -> Checkpoint:
    """Raises `PolicyError` with the reason when there is no checkpoint that can be used."""
    path = directory / FILE_NAME
    try:
        with open_plain(path) as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays["header"].tobytes())
        found = (header["format"], header["format_version"])
    except FileNotFoundError as error:
        raise PolicyError(f"{directory} has no {FILE_NAME}; give a checkpoint directory") from error
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror or error}") from error
    except _NO_CHECKPOINT as error:
        raise PolicyError(f"{path} is not a checkpoint of the embedded policy") from error
    if found[0] != FORMAT:
        raise PolicyError(f"{path} is not a checkpoint of the embedded policy")
    if found[1] != FORMAT_VERSION:
        raise PolicyError(
            f"{path} has format version {found[1]}, this tbtui reads {FORMAT_VERSION}"
        )
    try:
        config = ModelConfig(**header["model"])
        checkpoint = Checkpoint(
            config=config,
            tokenizer_digest=header["tokenizer"],
            weights_version=header["weights_version"],
            weights=arrays["weights"].astype(np.float32),
            first_moment=arrays.get("first_moment"),
            second_moment=arrays.get("second_moment"),
            optimizer_steps=header["optimizer_steps"],
            reference=arrays.get("reference"),
        )
    except (KeyError, TypeError) as error:
        raise PolicyError(f"{path} is damaged: {error}") from error
    sizes = {
        array.shape
        for array in (
            checkpoint.weights,
            checkpoint.first_moment,
            checkpoint.second_moment,
            checkpoint.reference,
        )
        if array is not None
    }
    if sizes != {(config.size(),)}:
        raise PolicyError(f"{path} is damaged: its arrays are not of {config.size()} parameters")
    return checkpoint
