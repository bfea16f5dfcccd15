"""The memory table against what tiny models of real architectures measure, and its refusals."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra `torch`")
pytest.importorskip("peft", reason="needs the extra `torch`")

import torch

from tbtui.policies.base import PolicyRefusedError
from tbtui.policies.torch import memory_fit, vllm_memory
from tbtui.policies.torch import trainer as trainer_module
from tbtui.policies.torch.free_memory import Memory
from tbtui.policies.torch.memory_fit import Fit, assess, preflight
from tbtui.policies.torch.memory_plan import Dimensions, kv_bytes_per_token, slot_columns
from tbtui.policies.torch.model_files import find_model
from tbtui.policies.torch.sampling import SamplerSettings
from tbtui.policies.torch.settings import TorchSettings, TrainerSettings
from tbtui.policies.torch.slots import SlotPlaces, Slots
from tbtui.policies.torch.trainer import Trainer
from tests.cli.process import tbtui
from tests.policies.torch import tiny_models as tiny
from tests.policies.torch.conftest import Model

pytestmark = pytest.mark.extras


def fit_of(model: Path, rank: int, targets: tuple[str, ...] = ()) -> Fit:
    settings = TorchSettings(
        str(model), lora_rank=rank, lora_targets=targets, train_device="cpu", max_rows=3
    )
    fit = assess(settings)
    assert fit is not None
    return fit


def resized(model: Path, directory: Path, **config: int) -> Path:
    """A copy of the model whose configuration says otherwise."""
    copy = Path(shutil.copytree(model, directory / "resized"))
    said = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(said | config))
    return copy


def size(fit: Fit, what: str, part: str = "training") -> int:
    return next(item.size for item in fit.items if (item.what, item.part) == (what, part))


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
@pytest.mark.parametrize(("rank", "targets"), [(4, ()), (4, ("q_proj", "down_proj")), (0, ())])
def test_what_training_keeps_is_exact(
    model: Model, architecture: str, rank: int, targets: tuple[str, ...]
) -> None:
    directory = model(architecture)
    fit = fit_of(directory, rank, targets)
    trainer = Trainer(
        TrainerSettings(str(directory), lora_rank=rank, lora_targets=targets, train_device="cpu")
    )
    trained = sum(parameter.numel() for parameter in trainer.parameters.values())
    assert size(fit, "weights") == trainer.size * 4
    if rank:
        assert size(fit, "adapter") == trained * 4
    state = trainer._optimizer.state()
    moments = [tensor for name, tensor in state.items() if not name.startswith("weight/")]
    assert size(fit, "optimiser") == sum(tensor.numel() * 4 for tensor in moments)
    assert size(fit, "gradients") == trained * 4


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_the_cache_of_keys_and_values_is_exact(model: Model, architecture: str) -> None:
    directory = model(architecture)
    sizes = Dimensions.of(find_model(str(directory)).config)
    slots = Slots()
    slots.reserve(3, tiny.CONTEXT)
    slots.place = SlotPlaces(torch.arange(3), torch.zeros(3, 1, dtype=torch.long), 1, True)
    for layer in range(sizes.layers):
        states = torch.zeros(3, sizes.kv_heads, 1, sizes.head_size)
        slots.update(states, states, layer)
    held = sum(states.numel() * states.element_size() for states in (*slots._keys, *slots._values))
    assert held == 3 * slot_columns(tiny.CONTEXT) * kv_bytes_per_token(sizes, 4)
    assert held == size(fit_of(directory, 4), "KV cache", "sampling")


@pytest.mark.parametrize(
    ("megabytes", "asked", "tokens"), [(9000, 0, 4096), (9, 0, 1474), (9, 2048, 2048)]
)
def test_what_a_cpu_computes_at_once_is_planned_and_bounded(
    model: Model, monkeypatch: pytest.MonkeyPatch, megabytes: int, asked: int, tokens: int
) -> None:
    """A micro-batch has many sequences: more than one of the context's length."""
    memory = Memory("cpu", "RAM", megabytes << 20, megabytes << 20)
    for module in (memory_fit, trainer_module):
        monkeypatch.setattr(module, "free_memory", lambda device: memory)
    settings = TorchSettings(
        str(model("qwen3")), lora_rank=4, train_device="cpu", micro_batch_tokens=asked
    )
    fit = assess(settings)
    assert fit is not None
    assert fit.micro_batch_tokens == tokens
    # 4 layers of width 32 and 48 within: each layer's input, and one layer whole, in fp32.
    assert size(fit, "activations") == tokens * 4 * (4 * 32 + 20 * 32 + 4 * 48)
    assert f"micro-batches of {tokens} tokens" in Trainer(settings).description


def test_what_does_not_fit_is_refused_with_the_setting_to_change(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = str(resized(model("qwen3"), tmp_path, max_position_embeddings=65536))
    settings = TorchSettings(large, lora_rank=4, train_device="cpu")

    def free(megabytes: int) -> None:
        memory = Memory("cpu", "RAM", megabytes << 20, megabytes << 20)
        monkeypatch.setattr(memory_fit, "free_memory", lambda device: memory)

    free(100_000)
    assert preflight(settings)[0].startswith("memory: training ")
    free(120)
    with pytest.raises(PolicyRefusedError, match=r"does not fit.*give context_limit=\d+$") as said:
        preflight(settings)
    given = int(str(said.value).rpartition("=")[2])
    assert preflight(dataclasses.replace(settings, context_limit=given, max_rows=1))
    evaluated = preflight(dataclasses.replace(settings, context_limit=given, trains=False))
    assert evaluated[0].startswith("memory: sampling ")
    free(0)
    with pytest.raises(PolicyRefusedError, match="take a smaller model"):
        preflight(settings)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("total", "free", "context", "share", "at_once"),
    [
        (24, 23, 2048, 0.11, 3),  # what is needed
        (6, 5.5, 2048, 0.41, 2),  # one and a half trials at the limit
        (5, 4.8, 4096, 0.5, 1),  # no more than half
        (5, 4.8, 65536, 0.5, 0),
    ],
)
def test_a_server_on_the_gpu_that_trains_gets_a_share(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    total: float, free: float, context: int, share: float, at_once: int,
) -> None:  # fmt: skip
    """With a stand-in for the GPU: the share that the table says is the one that vLLM gets."""
    # Keys and values of 32 KiB a token.
    sizes = {"max_position_embeddings": 65536, "num_key_value_heads": 4, "head_dim": 512}
    large = str(resized(model("qwen3"), tmp_path, **sizes))
    gpu = Memory("cuda", "cuda:0 (stand-in)", int(total * GIB), int(free * GIB))
    for module in (memory_fit, vllm_memory):
        monkeypatch.setattr(module, "free_memory", lambda device: gpu)
    settings = TorchSettings(
        large, lora_rank=4, sampler="vllm", dtype="bf16", context_limit=context, max_rows=3
    )
    fit = assess(settings)
    assert fit is not None
    sampler = SamplerSettings(
        model=large, dtype="bfloat16", device="cuda", context_limit=context, max_rows=3,
        seed=0, lora_rank=4, stop_ids=(),
    )  # fmt: skip
    assert fit.server_share == vllm_memory.share_for(sampler, shared=True) == share
    assert fit.trials_at_once == at_once
    assert fit.fits == bool(at_once)
    if not at_once:
        assert "have no room for one trial of 65536 tokens" in fit.verdict
        assert "give context_limit=" in fit.verdict
    elsewhere = assess(dataclasses.replace(settings, vllm_devices=("1",)))
    assert elsewhere is not None
    assert elsewhere.server_share is None
    assert vllm_memory.share_for(sampler, shared=False) == 0.9


def test_a_server_on_a_cpu_gets_room_for_a_whole_trial(model: Model, tmp_path: Path) -> None:
    settings = SamplerSettings(str(model("qwen3")), "float32", "cpu", 160, 3, 0, 4, ())
    assert vllm_memory.cache_gigabytes(settings) == 1
    # 4 layers, 2 heads, keys and values of 4 bytes, 240 tokens.
    large = str(resized(model("qwen3"), tmp_path, head_dim=1 << 20))
    assert vllm_memory.cache_gigabytes(dataclasses.replace(settings, model=large)) == 15


def test_the_command_says_it_as_a_table_and_as_json(model: Model) -> None:
    doctor = ("doctor", "model", str(model("llama")))
    table = tbtui(*doctor, "train_device=cpu")
    assert table.returncode == 0, table.stderr
    assert "KV cache" in table.stdout
    record = json.loads(tbtui(*doctor, "train_device=cpu", "lora_rank=0", "--json").stdout)
    assert record["fits"]
    assert "adapter" not in {item["what"] for item in record["items"]}
    refused = tbtui(*doctor, "context_limit=100000")
    assert refused.returncode == 2
    assert f"has a context of {tiny.CONTEXT} tokens" in refused.stderr
