"""`tbtui export-model` with `policy=torch`: what is loaded of it computes what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra `torch`")
pytest.importorskip("peft", reason="needs the extra `torch`")

import torch

from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED
from tbtui.policies.torch.settings import TrainerSettings
from tbtui.policies.torch.trainer import Trainer
from tests.cli.process import tbtui

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOKENS = torch.tensor([[5, 17, 40, 3, 99, 12, 7, 60, 31, 8]])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("embedded")
    export(SHIPPED, directory)
    return directory


def train(base: Path, logs: Path, rank: int) -> Path:
    done = tbtui(
        *("run", "--no-ui", f"model_name={base}", "renderer=embedded", f"lora_rank={rank}"),
        *("train_device=cpu", "batch_size=2", "group_size=4", "eval_every=0", "tasks=copy-*"),
        *("eval_tasks=copy-01", "save_every=1", "environment_type=sandbox", "max_steps=1"),
        *("learning_rate=1e-2", f"logs_dir={logs}", "run_name=a"),
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return logs / "a"


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model.eval()(TOKENS).logits
    return result


@pytest.mark.parametrize("rank", [0, 8])
def test_what_is_loaded_computes_what_was_trained(base: Path, tmp_path: Path, rank: int) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = train(base, tmp_path, rank)
    trainer = Trainer(TrainerSettings(str(base), lora_rank=rank, train_device="cpu"))
    trainer.load(run / "checkpoints" / "step-000001")
    trained = logits(trainer._model)

    whole = tmp_path / "whole"
    done = tbtui("export-model", str(run), str(whole), "--step", "1", "--merge")
    assert done.returncode == 0, done.stderr
    model = AutoModelForCausalLM.from_pretrained(whole)
    assert torch.allclose(logits(model), trained, atol=1e-4)
    start = logits(AutoModelForCausalLM.from_pretrained(base))
    assert not torch.allclose(start, trained, atol=1e-3), "training has changed something"
    assert AutoTokenizer.from_pretrained(whole).chat_template

    if not rank:
        return
    adapter = tmp_path / "adapter"
    done = tbtui("export-model", str(run), str(adapter), "--step", "1")
    assert done.returncode == 0, done.stderr
    assert not (adapter / "config.json").exists()
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(adapter))
    assert torch.allclose(logits(loaded), trained, atol=1e-4)
    card = (adapter / "README.md").read_text()
    assert 'library_name: "peft"' in card
    assert "a LoRA adapter of rank 8" in card
