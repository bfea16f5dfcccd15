"""The exported checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from tbtui.policies.base import PolicyError
from tbtui.policies.local.checkpoint_file import read_checkpoint
from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED


def test_the_layout(tmp_path: Path) -> None:
    export(SHIPPED, tmp_path)
    checkpoint = read_checkpoint(SHIPPED)
    tensors = load_file(tmp_path / "model.safetensors")
    assert sum(tensor.size for tensor in tensors.values()) == checkpoint.config.size()
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    width = config["hidden_size"]
    assert tensors["model.layers.2.mlp.down_proj.weight"].shape == (
        width,
        config["intermediate_size"],
    )


def test_a_foreign_checkpoint_is_refused(foreign_checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="is not a checkpoint of the embedded policy"):
        export(foreign_checkpoint, tmp_path / "out")
    assert not (tmp_path / "out").exists()
