"""A model that is sampled from and not trained: what a trainer would say of it, without its
weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from tbtui.policies.torch.checkpoint_file import export_weights, read_fitting
from tbtui.policies.torch.loading import (
    context_of,
    load_base,
    load_config,
    resolve_device,
    resolve_dtype,
    with_lora,
)
from tbtui.policies.torch.settings import TrainerSettings


class Untrained:
    """The model's own weights, or those of a checkpoint, at version 0."""

    def __init__(self, settings: TrainerSettings) -> None:
        """Raises `PolicyError` when the model can't be had."""
        self._settings = settings
        self.device = resolve_device(settings.train_device)
        self.dtype = resolve_dtype(settings.dtype, self.device)
        config = load_config(settings.model_name)
        self.context_limit = context_of(config, settings.context_limit, settings.model_name)
        auto: Any = AutoModelForCausalLM
        with torch.device("meta"):
            shapes = auto.from_config(config)
        self.size = sum(map(torch.Tensor.numel, shapes.parameters()))
        self.vocab_size = int(shapes.get_output_embeddings().weight.shape[0])

    def publish(self, root: Path) -> tuple[int, Path | None]:
        """Version 0, and a directory in `root` that has the checkpoint's weights as samplers read
        them; None: the model's own are meant."""
        settings = self._settings
        if settings.checkpoint is None:
            return 0, None
        base = load_base(settings.model_name, self.dtype, "cpu")
        model = base
        if settings.lora_rank:
            model = with_lora(
                base, settings.lora_rank, settings.lora_alpha, settings.lora_targets, settings.seed
            )
        trained = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        _, tensors = read_fitting(settings.checkpoint, settings, type(base).__name__, trained)
        with torch.no_grad():
            for name, parameter in trained.items():
                parameter.copy_(tensors[f"weight/{name}"])
        export_weights(model, directory := root / "version-0")
        return 0, directory
