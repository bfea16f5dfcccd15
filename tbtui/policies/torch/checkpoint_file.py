"""A checkpoint: one `policy.safetensors` with fp32 weights, moments, the random state, a header.

One file, so that replacing it is atomic. Samplers are given a directory instead, in the form that
they read: PEFT's of an adapter, or a whole Hugging Face checkpoint (`export_weights`).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tbtui.policies.base import PolicyError
from tbtui.policies.torch.settings import TrainerSettings

FILE_NAME = "policy.safetensors"
FORMAT = "tbtui-torch-policy"
FORMAT_VERSION = 1
_RANDOM_STATE = "random_state"


@dataclass(frozen=True, slots=True)
class Header:
    """What is known of a checkpoint beside its tensors."""

    model_name: str
    architecture: str
    """The name of transformers' class."""
    lora_rank: int
    lora_alpha: float
    weights_version: int
    optimizer_steps: int


def write_checkpoint(directory: Path, header: Header, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write or replace `directory`'s checkpoint. Raises `PolicyError` when the disk refuses."""
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "header": json.dumps(asdict(header), sort_keys=True),
    }
    content = {name: tensor.contiguous() for name, tensor in tensors.items()}
    content[_RANDOM_STATE] = torch.get_rng_state()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=directory)
        try:
            os.close(descriptor)
            save_file(content, name, metadata=metadata)
            # It was written by its name, perhaps into a new file.
            with Path(name).open("rb") as file:
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o644)
            Path(name).replace(directory / FILE_NAME)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise PolicyError(f"can't save the policy in {directory}: {reason}") from error


def read_checkpoint(directory: Path) -> tuple[Header, dict[str, torch.Tensor]]:
    """The header and the tensors, on the CPU; the random state becomes torch's.

    Raises:
        PolicyError: there is no checkpoint that can be used, and why.
    """
    path = directory / FILE_NAME
    if not path.is_file():
        raise PolicyError(f"{directory} has no {FILE_NAME}; give a checkpoint of policy=torch")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise PolicyError(f"{path} is not a checkpoint of policy=torch")
            if metadata["format_version"] != str(FORMAT_VERSION):
                raise PolicyError(
                    f"{path} has format version {metadata['format_version']}, this tbtui reads"
                    f" {FORMAT_VERSION}"
                )
            header = Header(**json.loads(metadata["header"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        torch.set_rng_state(tensors.pop(_RANDOM_STATE))
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror or error}") from error
    except (SafetensorError, KeyError, RuntimeError, TypeError, ValueError) as error:
        # A random state that is none is a RuntimeError, and so is a header nested too deeply.
        raise PolicyError(f"{path} is damaged: {error}") from error
    return header, tensors


def read_fitting(
    directory: Path,
    settings: TrainerSettings,
    architecture: str,
    parameters: Mapping[str, torch.Tensor],
) -> tuple[Header, dict[str, torch.Tensor]]:
    """As `read_checkpoint`, of a training of this model with these parameters alone.

    Raises:
        PolicyError: there is no such checkpoint, and why.
    """
    header, tensors = read_checkpoint(directory)
    if header.lora_rank != settings.lora_rank or (
        settings.lora_rank and header.lora_alpha != settings.lora_alpha
    ):
        raise PolicyError(
            f"{directory} has lora_rank={header.lora_rank} lora_alpha={header.lora_alpha:g};"
            " give the same here"
        )
    expected = {f"weight/{name}": tuple(p.shape) for name, p in parameters.items()}
    found = {
        name: tuple(tensor.shape) for name, tensor in tensors.items() if name.startswith("weight/")
    }
    if expected != found or header.architecture != architecture:
        raise PolicyError(
            f"{directory} is of another model or adapter ({header.model_name}); it can't be"
            f" loaded into {settings.model_name}"
        )
    return header, tensors


def export_weights(model: Any, directory: Path) -> None:
    """Write the weights as samplers read them: a PEFT adapter, or a Hugging Face checkpoint.

    `directory` has all of it or doesn't exist. Raises `PolicyError` when the disk refuses.
    """
    import peft

    writing = directory.with_name(f"{directory.name}.part")
    # An adapter of the embeddings would have PEFT ask the hub for the base's configuration.
    more = {"save_embedding_layers": False} if isinstance(model, peft.PeftModel) else {}
    try:
        model.save_pretrained(writing, **more)
        writing.rename(directory)
    except (OSError, SafetensorError) as error:
        raise PolicyError(f"can't write the weights for the sampler: {error}") from error
