"""A checkpoint of `policy=torch` in the form that transformers, PEFT and vLLM load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tbtui.policies.base import PolicyError
from tbtui.policies.torch.loading import (
    Dtype,
    load_base,
    load_config,
    require_torch,
    with_lora,
)
from tbtui.policies.torch.settings import TorchSettings


def export_checkpoint(
    checkpoint: Path, settings: TorchSettings, directory: Path, *, merge: bool
) -> None:
    """Write a checkpoint's weights, its tokenizer and chat template into `directory`.

    Args:
        checkpoint: directory with `policy.safetensors`.
        settings: those that it was trained with.
        merge: add the adapter to the base, in fp32, and write a whole model; without, an adapter is
            written as PEFT keeps it. A training of all weights is always a whole model.

    A whole model is written in the base's own precision.

    Raises:
        PolicyError: the base or the checkpoint can't be had, or the disk refuses.
    """
    require_torch()
    import torch

    from tbtui.policies.torch.checkpoint_file import read_checkpoint
    from tbtui.policies.torch.loading import quiet_libraries

    quiet_libraries()
    _, tensors = read_checkpoint(checkpoint)
    own = load_config(settings.model_name).dtype or torch.float32
    whole = merge or not settings.lora_rank
    dtype: Dtype = "float32" if whole or own != torch.bfloat16 else "bfloat16"
    model: Any = load_base(settings.model_name, dtype, "cpu")
    if settings.lora_rank:
        model = with_lora(model, settings.lora_rank, settings.lora_alpha, settings.lora_targets)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            stored = tensors.get(f"weight/{name}")
            if stored is None or stored.shape != parameter.shape:
                raise PolicyError(f"{checkpoint} is of another model: {name} is missing or differs")
            parameter.copy_(stored)
    if settings.lora_rank and merge:
        model = model.merge_and_unload()
    if whole:
        model.config.use_cache = True  # it was switched off for training
        model = model.to(own)
    _save(model, settings, directory, whole=whole)


def _save(model: Any, settings: TorchSettings, directory: Path, *, whole: bool) -> None:
    from safetensors import SafetensorError
    from transformers import AutoTokenizer

    # An adapter of the embeddings would have PEFT ask the hub for the base's configuration.
    more = {} if whole else {"save_embedding_layers": False}
    name = str(Path(settings.tokenizer or settings.model_name).expanduser())
    try:
        model.save_pretrained(directory, **more)
        AutoTokenizer.from_pretrained(
            name if Path(name).is_dir() else settings.tokenizer or settings.model_name,
            trust_remote_code=False,
        ).save_pretrained(directory)
        for file in directory.iterdir():
            # safetensors writes files that no other user may read, which a server often is.
            file.chmod(0o644)
    except (OSError, SafetensorError) as error:
        raise PolicyError(f"can't write {directory}: {error}") from error
