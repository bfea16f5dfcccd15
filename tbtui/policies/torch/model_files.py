"""What a model's files say of it without its weights being read: sizes, shapes, context.

Read are config.json and the headers of the safetensors files, from a directory, from the cache of
the Hugging Face hub, or from the hub itself (a header of some kilobytes per file). Nothing here
imports torch or transformers.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbtui.policies.base import PolicyRefusedError

if TYPE_CHECKING:
    from huggingface_hub import DryRunFileInfo

WANTED = ("*.json", "*.jinja", "*.txt", "*.model", "*.safetensors")
"""Files of a model that loading it may read."""
UNWANTED = ("*/*", "consolidated*.safetensors")
"""Those of other formats, and the same weights once more."""
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_LONGEST_HEADER = 100_000_000
"""Bytes: what the safetensors library accepts."""
_DISK_MARGIN = 500_000_000
"""Bytes that a download leaves free."""

_PROGRESS_SEC = 5.0

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model as its files describe it."""

    name: str
    config: Mapping[str, Any]
    """config.json."""
    shapes: Shapes | None
    """The stored tensors, by name; None: the weights are in no safetensors files."""
    directory: Path | None
    """Where all of them are on this machine; None: they are still to be downloaded."""
    to_download: int = 0
    """Bytes."""


def find_model(name: str) -> ModelFiles:
    """Look a model up: in a directory, in the hub's cache, then on the hub.

    Raises:
        PolicyRefusedError: it can't be had, or its files can't be read; the line says what to do.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return _in_directory(name, path)
    if name.startswith((".", "/", "~")):
        raise PolicyRefusedError(f"model_name={name}: there is no such directory")
    with hub_refusals(name):
        cached = _cached(name)
        return _in_directory(name, cached) if cached is not None else _on_hub(name)


def require_disk(model: ModelFiles) -> None:
    """
    Raises:
        PolicyRefusedError: what is still to be downloaded doesn't fit the disk of the hub's cache.
    """
    if not model.to_download:
        return
    from huggingface_hub.constants import HF_HUB_CACHE

    place = Path(HF_HUB_CACHE)
    existing = next(each for each in (place, *place.parents) if each.is_dir())
    free = shutil.disk_usage(existing).free
    if free < model.to_download + _DISK_MARGIN:
        raise PolicyRefusedError(
            f"model_name={model.name}: {gigabytes(model.to_download)} to download, and"
            f" {gigabytes(free)} free in {place}; free some, or set HF_HOME to a larger disk"
        )


def download(model: ModelFiles, tell: Callable[[str], None]) -> None:
    """Fetch a model of the hub into its cache; blocks. What was fetched of it before is kept.

    Args:
        tell: gets lines of progress.

    Raises:
        PolicyRefusedError: as `find_model`.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()  # they would be drawn over the app
    blobs = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=model.name, repo_type="model") / "blobs"
    before, began = _stored_bytes(blobs), time.monotonic()
    done = threading.Event()

    def watch() -> None:
        while True:
            got = min(_stored_bytes(blobs) - before, model.to_download)
            rate = got / max(time.monotonic() - began, 1e-3)
            left = f", {gigabytes(rate)}/s" if got else ""
            total = gigabytes(model.to_download)
            tell(f"downloading {model.name}: {gigabytes(got)} of {total}{left}")
            if done.wait(_PROGRESS_SEC):
                return

    watching = threading.Thread(target=watch, name="download", daemon=True)
    watching.start()
    try:
        with hub_refusals(model.name):
            snapshot_download(model.name, allow_patterns=[*WANTED], ignore_patterns=[*UNWANTED])
    finally:
        done.set()
        watching.join()


def _stored_bytes(directory: Path) -> int:
    """Bytes on the disk below a directory whose files come and go; a file that is being filled
    counts by its blocks, for its size may be that of the whole from the start."""
    size = 0
    with contextlib.suppress(FileNotFoundError):
        for entry in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat()
                size += min(found.st_size, found.st_blocks * 512)
    return size


@contextmanager
def hub_refusals(name: str) -> Iterator[None]:
    """Turn what the hub's library raises for a model that can't be had into one line."""
    from httpx2 import HTTPError  # the hub's library is built on it
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    try:
        yield
    except GatedRepoError as error:
        reason = (
            "it is gated: accept its licence on its page on the hub, and put a key into HF_TOKEN"
        )
        raise PolicyRefusedError(f"model_name={name}: {reason}") from error
    except RepositoryNotFoundError as error:
        raise PolicyRefusedError(
            f"model_name={name}: the Hugging Face hub has no such model; check the name (a private"
            " one needs HF_TOKEN)"
        ) from error
    except HFValidationError as error:
        raise PolicyRefusedError(
            f"model_name={name}: it is neither a directory nor a name on the hub (org/name)"
        ) from error
    except OfflineModeIsEnabled as error:
        raise PolicyRefusedError(
            f"model_name={name}: it is not in the cache, and HF_HUB_OFFLINE is set; download it"
            f" with `hf download {name}`, or name its directory"
        ) from error
    except LocalEntryNotFoundError as error:
        raise _unreachable(name, error.__cause__ or error) from error
    except EntryNotFoundError as error:
        raise PolicyRefusedError(
            f"model_name={name}: it has no config.json on the hub; name a model in the format of"
            " transformers"
        ) from error
    except (HfHubHTTPError, HTTPError, OSError) as error:
        raise _unreachable(name, error) from error


def gigabytes(size: float) -> str:
    """`1.5 GB`; below 0.1 GB `12 MB`."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _unreachable(name: str, error: BaseException) -> PolicyRefusedError:
    from huggingface_hub.constants import is_offline_mode

    if is_offline_mode():
        return PolicyRefusedError(
            f"model_name={name}: it is not in the cache, and HF_HUB_OFFLINE is set; download it"
            f" with `hf download {name}`, or name its directory"
        )
    said = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".: ")
    return PolicyRefusedError(
        f"model_name={name}: it is not in the cache, and the hub can't be reached ({said}); check"
        f" the network, or download it elsewhere (`hf download {name}`) and name its directory"
    )


def _in_directory(name: str, directory: Path) -> ModelFiles:
    config = _read_config(name, directory)
    files = _weight_files(name, directory)
    if not files:
        return ModelFiles(name, config, None, directory)
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        shapes |= _header(name, file)
    return ModelFiles(name, config, shapes, directory)


def _read_config(name: str, directory: Path) -> dict[str, Any]:
    try:
        config = _read_object(directory / "config.json")
    except FileNotFoundError as error:
        raise PolicyRefusedError(
            f"model_name={name}: there is no config.json in it; name a directory with config.json"
            " and the weights"
        ) from error
    except (OSError, ValueError) as error:
        raise PolicyRefusedError(
            f"model_name={name}: its config.json can't be read: {error}"
        ) from error
    return config


def _read_object(file: Path) -> dict[str, Any]:
    """Raises `OSError`; `ValueError` where it is no JSON object."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found


def _weight_files(name: str, directory: Path) -> list[Path]:
    """The safetensors files that the model is loaded from."""
    index = directory / _INDEX
    if index.is_file():
        try:
            names = {str(each) for each in _read_object(index)["weight_map"].values()}
        except (OSError, ValueError, LookupError, AttributeError) as error:
            raise PolicyRefusedError(
                f"model_name={name}: its {_INDEX} can't be read: {error!r}; copy or download it"
                " again"
            ) from error
        if strange := [each for each in names if Path(each).name != each]:
            raise PolicyRefusedError(
                f"model_name={name}: its {_INDEX} names {min(strange)!a}, no file beside it"
            )
        return [directory / each for each in sorted(names)]
    single = directory / _SINGLE
    return [single] if single.is_file() else []


def _header(name: str, file: Path) -> dict[str, tuple[int, ...]]:
    """Shapes by name: 8 bytes of length, then JSON (the safetensors format)."""
    try:
        with file.open("rb") as opened:
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > _LONGEST_HEADER:
                raise ValueError("its header is too long")
            header = json.loads(opened.read(length))
        return {
            key: tuple(map(int, row["shape"]))
            for key, row in header.items()
            if key != "__metadata__"
        }
    except (
        AttributeError,
        LookupError,
        OSError,
        RecursionError,
        TypeError,
        ValueError,
        struct.error,
    ) as error:
        raise PolicyRefusedError(
            f"model_name={name}: {file.name} can't be read as safetensors: {error}; copy or"
            " download it again"
        ) from error


def _cached(name: str) -> Path | None:
    """The model's directory in the hub's cache, where all weights are there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        directory = Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    files = _weight_files(name, directory)
    there = bool(files) and all(file.is_file() for file in files)
    return directory if there and (directory / "config.json").is_file() else None


def _on_hub(name: str) -> ModelFiles:
    from huggingface_hub import HfApi, hf_hub_download, snapshot_download
    from huggingface_hub.errors import DryRunError

    api = HfApi()
    api.model_info(name)  # raises what is wrong with the name or the key, which a dry run hides
    try:
        found: str | list[DryRunFileInfo] = snapshot_download(
            name, allow_patterns=[*WANTED], ignore_patterns=[*UNWANTED], dry_run=True
        )
    except DryRunError as error:
        raise error.__cause__ or error from None
    assert not isinstance(found, str)
    config = _read_config(name, Path(hf_hub_download(name, "config.json")).parent)
    names = {file.filename for file in found}
    if not names & {_INDEX, _SINGLE}:
        return ModelFiles(name, config, None, None, _missing(found))
    parts = api.get_safetensors_metadata(name).files_metadata
    shapes = {
        tensor: tuple(info.shape)
        for part in parts.values()
        for tensor, info in part.tensors.items()
    }
    return ModelFiles(name, config, shapes, None, _missing(found))


def _missing(found: Iterable[DryRunFileInfo]) -> int:
    """Bytes that are still to be downloaded."""
    return sum(file.file_size or 0 for file in found if file.will_download)
