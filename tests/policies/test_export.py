"""The exported checkpoint; opt-in where torch and transformers are installed:

pip install torch transformers && pytest tests/policies/test_export.py
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tbtui.policies.base import Message, PolicyError
from tbtui.policies.local.checkpoint_file import read_checkpoint
from tbtui.policies.local.export import export
from tbtui.policies.local.gradient import TrainingSequence, loss_and_gradient
from tbtui.policies.local.model import Array, Parameters, Rotary
from tbtui.policies.local.renderer import LocalRenderer
from tbtui.policies.local.tokenizer import SHIPPED, LocalTokenizer


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


def test_transformers_computes_the_same_logprobs(tokenizer: LocalTokenizer, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is no dependency of tbtui")
    transformers = pytest.importorskip("transformers")
    export(SHIPPED, tmp_path)
    messages = [
        Message("user", "Create a file named hello.txt in /app with the content: ☃ river"),
        Message("assistant", '{"analysis": "The terminal is ready."}'),
        Message("user", "New Terminal Output:\n\nroot@box:/app# ls\n" + "hello.txt\n" * 60),
    ]
    ids = np.array(LocalRenderer(tokenizer).render(messages), np.int64)

    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.encode(messages[0].content) == tokenizer.encode(messages[0].content)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0]
    logprobs = torch.log_softmax(logits.float(), -1)[:-1]
    expected = logprobs[torch.arange(len(ids) - 1), torch.from_numpy(ids)[1:]].numpy()

    def nothing(found: Array) -> tuple[float, Array]:
        return 0.0, np.zeros_like(found)

    checkpoint = read_checkpoint(SHIPPED)
    sequence = TrainingSequence(ids, np.arange(1, len(ids)), nothing)
    with ThreadPoolExecutor(1) as pool:
        outcomes, _ = loss_and_gradient(
            Parameters(checkpoint.config, checkpoint.weights),
            Rotary(checkpoint.config),
            [sequence],
            pool,
            1,
            want_gradient=False,
        )
    np.testing.assert_allclose(outcomes[0].logprobs, expected, atol=5e-5)
