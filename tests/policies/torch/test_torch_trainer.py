"""The trainer without its process: gradients, micro-batches, memory that runs out, checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra `torch`")
pytest.importorskip("peft", reason="needs the extra `torch`")

import torch
from safetensors.torch import load_file

from tbtui.algorithm.losses import LossName, LossSettings
from tbtui.algorithm.step import Datum
from tbtui.policies.base import OptimSettings, PolicyError, PolicyRefusedError
from tbtui.policies.local.export import as_tensors
from tbtui.policies.local.learner import Learner
from tbtui.policies.local.model import Parameters
from tbtui.policies.local.tokenizer import SHIPPED, TOKENIZER, LocalTokenizer
from tbtui.policies.torch.loading import load_base
from tbtui.policies.torch.logprobs import OutputHead, token_logprobs
from tbtui.policies.torch.settings import TrainerSettings
from tbtui.policies.torch.trainer import Trainer
from tests.policies.torch import tiny_models as tiny
from tests.policies.torch.conftest import Model

pytestmark = pytest.mark.extras

STEP = OptimSettings(1e-3, grad_clip=1.0, divide_by=3.0)


def trainer(model: Path, **changes: Any) -> Trainer:
    settings = TrainerSettings(str(model), lora_rank=0, train_device="cpu")
    return Trainer(dataclasses.replace(settings, **changes))


def data_of(
    lengths: Sequence[int], vocabulary: int = tiny.VOCABULARY, seed: int = 0
) -> list[Datum]:
    rng = np.random.default_rng(seed)
    data = []
    for length in lengths:
        mask = rng.random(length) < 0.4
        mask[0], mask[length // 2] = False, True
        data.append(
            Datum(
                rng.integers(0, vocabulary, length).astype(np.int32),
                mask,
                -rng.exponential(2, length).astype(np.float32),
                rng.normal(size=length).astype(np.float32),
                rng.random(length).astype(np.float32),
            )
        )
    return data


LENGTHS = (40, 7, 90, 41, 64, 3)


def gradient_of(learning: Trainer) -> Any:
    """The accumulated gradient as one vector, by name."""
    found = learning._optimizer.gradients()
    return torch.cat([found[name].flatten() for name in sorted(found)])


def weights_of(learning: Trainer) -> Any:
    return torch.cat([p.detach().flatten() for p in learning.parameters.values()])


def test_the_embedded_model_is_the_same_in_torch(model: Model) -> None:
    tokenizer = LocalTokenizer(TOKENIZER)
    ours = trainer(model("embedded"))
    numpy = Learner(SHIPPED, tokenizer.digest, tokenizer.end_id, 1)
    data = data_of((40, 300, 7, 128), vocabulary=tokenizer.vocab_size)
    for datum in data:  # it ends messages, and is what transformers pads with
        datum.tokens[2::5] = tokenizer.end_id
    small = dataclasses.replace(STEP, learning_rate=1e-8)  # all losses at the same weights
    for loss in get_args(LossName):
        found = ours.accumulate(data, LossSettings(loss))
        expected = numpy.accumulate(data, LossSettings(loss))
        for one, other in zip(found.logprobs, expected.logprobs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)
        assert found.loss == pytest.approx(expected.loss, rel=1e-4)
        assert found.entropy == pytest.approx(expected.entropy, rel=1e-5)
        assert numpy._gradient is not None
        layout = as_tensors(Parameters(numpy.config, numpy._gradient))
        theirs = torch.cat([torch.tensor(layout[name]).flatten() for name in sorted(layout)])
        cosine = torch.nn.functional.cosine_similarity(
            gradient_of(ours).double(), theirs.double(), dim=0
        )
        assert float(cosine) >= 0.9999
        step, other_step = ours.apply(small), numpy.apply(small)
        assert step.grad_norm == pytest.approx(other_step.grad_norm, rel=1e-3)


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_real_architectures_take_a_step_with_every_loss(
    model: Model, architecture: str, rank: int
) -> None:
    learning = trainer(model(architecture), lora_rank=rank)
    data = data_of(LENGTHS)
    scored = learning.score(data, "trained")
    for datum, found in zip(data, scored, strict=True):
        whole = tiny.reference_logprobs(
            model(architecture), tuple(int(id) for id in datum.tokens), 1, 1.0
        )
        np.testing.assert_allclose(found, whole.numpy()[datum.mask[1:]], atol=1e-4)
    for loss in get_args(LossName):
        before = weights_of(learning)
        learning.accumulate(data, LossSettings(loss))
        assert learning.apply(STEP).grad_norm
        assert not torch.equal(before, weights_of(learning)), loss
    reference = learning.score(data, "reference")
    for one, other in zip(reference, scored, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_softcapped_logits_are_known_and_others_refused(model: Model) -> None:
    learning = trainer(model("gemma3"))
    causal = learning._causal
    causal.config.final_logit_softcapping = 2.0
    OutputHead(causal).check(causal, "capped")
    plain = learning._head
    with pytest.raises(PolicyRefusedError, match="computes its logits in a way"):
        plain.check(causal, "capped")


@pytest.mark.parametrize("softcap", [None, 3.0])
def test_chunks_change_nothing(model: Model, softcap: float | None) -> None:
    causal = load_base(model("gemma3"), "float32", "cpu").double()
    causal.config.final_logit_softcapping = softcap
    head = OutputHead(causal)
    torch.manual_seed(0)
    hidden = torch.randn(50, 32, dtype=torch.float64)
    targets = torch.randint(0, tiny.VOCABULARY, (50,))
    weights = torch.randn(50, dtype=torch.float64)
    found = []
    for chunk in (7, 50):
        asked = hidden.clone().requires_grad_()
        causal.zero_grad()
        logprobs, entropies = token_logprobs(head, asked, targets, chunk)
        (logprobs * weights).sum().backward()
        embedding = causal.get_output_embeddings().weight.grad.clone()
        found.append((logprobs.detach(), entropies, asked.grad, embedding))
    # And as plainly as it can be written.
    asked = hidden.clone().requires_grad_()
    causal.zero_grad()
    every = torch.log_softmax(head.logits(asked), -1)
    logprobs = every.gather(1, targets[:, None])[:, 0]
    (logprobs * weights).sum().backward()
    embedding = causal.get_output_embeddings().weight.grad
    plain = (logprobs.detach(), -(every.exp() * every).sum(-1).detach(), asked.grad, embedding)
    for each in found:
        for one, other in zip(each, plain, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rank", [0, 4])
def test_the_gradient_does_not_depend_on_micro_batches(model: Model, rank: int) -> None:
    data = data_of(LENGTHS)
    gradients = []
    for tokens, checkpointing in ((1, True), (100, False), (10_000, True)):
        learning = trainer(
            model("qwen3"), lora_rank=rank, micro_batch_tokens=tokens,
            gradient_checkpointing=checkpointing,
        )  # fmt: skip
        found = learning.accumulate(data[:4], LossSettings("ppo"))
        learning.accumulate(data[4:], LossSettings("ppo"))
        assert found.metrics["micro_batches"] == {1: 4, 100: 3, 10_000: 1}[tokens]
        gradients.append(gradient_of(learning))
    for other in gradients[1:]:
        torch.testing.assert_close(gradients[0], other, rtol=1e-4, atol=1e-6)


def limit_memory(learning: Trainer, monkeypatch: pytest.MonkeyPatch, tokens: int) -> list[int]:
    """Let a forward pass of more than `tokens` tokens run out of memory; returns their sizes."""
    decoder = learning._causal.get_decoder()
    whole, sizes = decoder.forward, []

    def forward(input_ids: Any, **more: Any) -> Any:
        sizes.append(input_ids.numel())
        if input_ids.numel() > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(input_ids=input_ids, **more)

    monkeypatch.setattr(decoder, "forward", forward)
    return sizes


@pytest.mark.parametrize("rank", [0, 4])
def test_memory_that_runs_out_loses_no_step(
    model: Model, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_of(LENGTHS)
    # What fits alone is handed in first: its gradient is there when memory runs out.
    first, second = data[-1:], data[:-1]
    plain, tight = (trainer(model("qwen3"), lora_rank=rank) for _ in range(2))
    sizes = limit_memory(tight, monkeypatch, tokens=100)
    for learning in (plain, tight):
        learning.accumulate(first, LossSettings("ppo"))
        result = learning.accumulate(second, LossSettings("ppo"))
    torch.testing.assert_close(gradient_of(plain), gradient_of(tight), rtol=1e-4, atol=1e-6)
    assert result.metrics["out_of_memory"] >= 1
    assert result.metrics["micro_batch_tokens"] <= 200
    plain.apply(STEP)
    tight.apply(STEP)
    sizes.clear()
    again = tight.accumulate(data, LossSettings("ppo"))
    assert again.metrics["out_of_memory"] == 0, "it is remembered"
    assert max(sizes) <= 100
    scored = zip(plain.score(data, "trained"), tight.score(data, "trained"), strict=True)
    for one, other in scored:
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_a_segment_that_never_fits_is_one_line(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    learning = trainer(model("qwen3"))
    before = weights_of(learning)
    limit_memory(learning, monkeypatch, tokens=50)
    with pytest.raises(PolicyError, match=r"a segment of \d+ tokens doesn't fit the memory of cpu"):
        learning.accumulate(data_of(LENGTHS), LossSettings())
    with pytest.raises(PolicyError, match="a part of the gradient failed"):
        learning.apply(STEP)
    assert torch.equal(before, weights_of(learning))
    learning.accumulate(data_of((20, 30)), LossSettings())
    assert learning.apply(STEP).grad_norm


@pytest.mark.parametrize(("rank", "dtype"), [(0, "fp32"), (4, "fp32"), (0, "bf16"), (4, "bf16")])
def test_a_checkpoint_goes_on_bit_for_bit(
    model: Model, rank: int, dtype: str, tmp_path: Path
) -> None:
    def step(learning: Trainer, seed: int) -> None:
        learning.accumulate(data_of(LENGTHS, seed=seed), LossSettings("ppo"))
        learning.apply(STEP)

    first = trainer(model("llama"), lora_rank=rank, dtype=dtype)
    step(first, 1)
    first.save(tmp_path / "one")
    step(first, 2)
    second = trainer(model("llama"), lora_rank=rank, dtype=dtype, seed=9)
    step(second, 5)
    second.load(tmp_path / "one")
    assert second.publish(tmp_path)[0] == 1
    step(second, 2)
    ours, theirs = first._optimizer.state(), second._optimizer.state()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    # A new training from it: its weights are the reference, and the moments are none of it.
    third = trainer(model("llama"), lora_rank=rank, dtype=dtype, checkpoint=tmp_path / "one")
    data = data_of(LENGTHS)
    begin = third.score(data, "trained")
    step(third, 3)
    for one, other in zip(begin, third.score(data, "reference"), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(PolicyError, match="give the same here"):
        trainer(model("llama"), lora_rank=7).load(tmp_path / "one")
    with pytest.raises(PolicyError, match="of another model or adapter"):
        trainer(model("qwen3"), lora_rank=rank, dtype=dtype).load(tmp_path / "one")


@pytest.mark.parametrize("rank", [0, 4])
def test_a_checkpoint_is_the_same_in_every_process(model: Model, rank: int, tmp_path: Path) -> None:
    """To the last bit, with the generator's state, which PyTorch seeds anew in each process."""
    for name in ("one", "other"):
        torch.seed()
        learning = trainer(model("llama"), lora_rank=rank)
        learning.accumulate(data_of(LENGTHS), LossSettings("ppo"))
        learning.apply(STEP)
        learning.save(tmp_path / name)
    one, other = (load_file(tmp_path / name / "policy.safetensors") for name in ("one", "other"))
    assert "random_state" in one
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_dropout_is_off(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=160)
    assert config.resid_pdrop and config.attn_pdrop
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    learning = trainer(tmp_path)
    data = data_of(LENGTHS)
    results = [learning.accumulate(data, LossSettings()).logprobs for _ in range(2)]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_can_not_be_had_is_one_line(model: Model, tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    bert = tmp_path / "bert"
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32}
    BertForMaskedLM(BertConfig(num_attention_heads=2, **sizes)).save_pretrained(bert)
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, text in (
        ({"model": bert}, "no causal language model but BertForMaskedLM"),
        ({"model": tmp_path / "none"}, "there is no such directory"),
        ({"model": empty}, "name a directory with config.json"),
        ({"model": model("llama"), "context_limit": 9999}, "has a context of 160 tokens"),
        ({"model": model("llama"), "train_device": "cuda:77"}, "train_device=cuda:77: "),
        (
            {"model": model("llama"), "lora_rank": 4, "lora_targets": ("q_proj", "query")},
            "lora_targets=query: the model has no such module; it has down_proj, ",
        ),
    ):
        with pytest.raises(PolicyRefusedError) as caught:
            trainer(**arguments)
        assert text in str(caught.value)
        assert "\n" not in str(caught.value)
