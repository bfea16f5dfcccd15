"""Runs with `policy=torch` through the command line: trained, resumed, evaluated, exported, and
refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra `torch`")
pytest.importorskip("peft", reason="needs the extra `torch`")

import torch

from tbtui.journal.events import AlarmRaised, ResourcesMeasured, StepFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import PolicyRefusedError
from tbtui.policies.torch.model_files import ModelFiles, require_disk
from tbtui.policies.torch.settings import TrainerSettings
from tbtui.policies.torch.trainer import Trainer
from tests.cli.process import tbtui
from tests.events import events_of

pytestmark = [pytest.mark.extras, pytest.mark.timeout(900)]

PATIENCE_SEC = 290.0
"""A run's two processes import PyTorch, which takes long where much else runs."""

TOKENS = torch.tensor([[5, 17, 40, 3, 99, 12, 7, 60, 31, 8]])
Trained = Callable[[int], Path]


@pytest.fixture(scope="module")
def trained(embedded: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """The directory of a run of two steps, by the rank of its adapter; nobody writes there."""

    @cache
    def run(rank: int) -> Path:
        logs = tmp_path_factory.mktemp("runs")
        done = tbtui(
            *("run", "--no-ui", f"model_name={embedded}", "renderer=embedded"),
            *(f"lora_rank={rank}", "train_device=cpu", "batch_size=2", "group_size=4"),
            *("eval_every=0", "tasks=copy-*", "eval_tasks=copy-01", "save_every=1"),
            *("environment_type=sandbox", "max_steps=2", "learning_rate=1e-2"),
            *(f"logs_dir={logs}", "run_name=a"),
            timeout=PATIENCE_SEC,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert "step    2/2" in done.stdout
        return logs / "a"

    return run


@pytest.mark.parametrize("rank", [0, 8])
def test_a_run_trains_and_is_resumed(trained: Trained, tmp_path: Path, rank: int) -> None:
    run = Path(shutil.copytree(trained(rank), tmp_path / "a"))
    directory = RunDirectory(run)
    alarms = [event.alarm for event in events_of(directory, AlarmRaised)]
    assert "sampler_mismatch" not in alarms
    steps = events_of(directory, StepFinished)
    assert [step.step for step in steps] == [1, 2]
    # Without a gradient the weights are those that were compared before.
    gaps = [step.metrics.get("optim/sentinel_gap", 0.0) for step in steps]
    assert max(gaps) < 1e-3
    measured = [event.processes for event in events_of(directory, ResourcesMeasured)]
    pids = {process.role: process.pid for each in measured for process in each}
    assert {"trainer", "sampler"} <= pids.keys()
    assert pids["trainer"] != pids["sampler"]
    assert (run / "checkpoints/step-000002/policy.safetensors").is_file()
    again = tbtui("run", "--no-ui", "--resume", str(run), "max_steps=3", timeout=PATIENCE_SEC)
    assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-2000:]
    assert "step    3/3" in again.stdout
    evaluated = tbtui("eval", str(run), "--no-ui", f"logs_dir={tmp_path}", timeout=PATIENCE_SEC)
    assert evaluated.returncode == 0, evaluated.stdout[-2000:] + evaluated.stderr[-2000:]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = model.eval()(TOKENS).logits
    return result


@pytest.mark.parametrize("rank", [0, 8])
def test_what_is_exported_computes_what_was_trained(
    trained: Trained, embedded: Path, tmp_path: Path, rank: int
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = trained(rank)
    trainer = Trainer(TrainerSettings(str(embedded), lora_rank=rank, train_device="cpu"))
    trainer.load(run / "checkpoints" / "step-000001")
    expected = logits(trainer._model)

    whole = tmp_path / "whole"
    done = tbtui("export-model", str(run), str(whole), "--step", "1", "--merge")
    assert done.returncode == 0, done.stderr
    model = AutoModelForCausalLM.from_pretrained(whole)
    assert torch.allclose(logits(model), expected, atol=1e-4)
    start = logits(AutoModelForCausalLM.from_pretrained(embedded))
    assert not torch.allclose(start, expected, atol=1e-3), "training has changed something"
    assert AutoTokenizer.from_pretrained(whole).chat_template
    assert {file.stat().st_mode & 0o777 for file in whole.iterdir()} == {0o644}
    card = (whole / "README.md").read_text()
    assert ("a LoRA adapter of rank 8, alpha 32, merged into the base" in card) == bool(rank)

    if not rank:
        return
    adapter = tmp_path / "adapter"
    done = tbtui("export-model", str(run), str(adapter), "--step", "1")
    assert done.returncode == 0, done.stderr
    assert not (adapter / "config.json").exists()
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(embedded), str(adapter))
    assert torch.allclose(logits(loaded), expected, atol=1e-4)
    card = (adapter / "README.md").read_text()
    assert 'library_name: "peft"' in card
    assert "a LoRA adapter of rank 8" in card


def test_a_model_without_a_chat_template_is_one_line(embedded: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(embedded, tmp_path / "mute"))
    config = model / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": None}))
    (model / "chat_template.jinja").unlink(missing_ok=True)
    done = tbtui(
        *("run", "--no-ui", "policy=torch", f"model_name={model}", "train_device=cpu"),
        *("lora_rank=4", f"logs_dir={tmp_path}"),
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "renderer=" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stdout + done.stderr


def test_a_disk_too_small_for_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ModelFiles("org/name", {}, None, None, to_download=int(3e9))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=int(2e9)))
    with pytest.raises(PolicyRefusedError, match=r"3\.0 GB to download, and 2\.0 GB free") as said:
        require_disk(model)
    assert "set HF_HOME to a larger disk" in str(said.value)
    assert "\n" not in str(said.value)
