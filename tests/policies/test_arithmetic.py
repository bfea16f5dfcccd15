"""Gradients, losses and log-probabilities against independent computations."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tbtui.algorithm.datum import Datum
from tbtui.policies.base import LossName, SampleRequest, TrainSettings
from tbtui.policies.local.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from tbtui.policies.local.gradient import TrainingSequence, loss_and_gradient, packs_of
from tbtui.policies.local.learner import Learner
from tbtui.policies.local.losses import policy_loss
from tbtui.policies.local.model import Array, ModelConfig, Parameters, Rotary
from tbtui.policies.local.sampling import sample
from tbtui.policies.local.shipped import SHIPPED
from tbtui.policies.local.tokenizer import LocalTokenizer

SMALL = ModelConfig(vocab_size=50, width=32, layers=2, heads=2, feed_forward=48, context_limit=320)


def negative_log_likelihood(logprobs: Array) -> tuple[float, Array]:
    return -float(logprobs.sum(dtype=np.float64)), np.full(len(logprobs), -1, np.float32)


def random_sequences(lengths: list[int], seed: int = 0) -> list[TrainingSequence]:
    rng = np.random.default_rng(seed)
    return [
        TrainingSequence(
            rng.integers(0, SMALL.vocab_size, length),
            np.sort(rng.choice(np.arange(1, length), (length + 1) // 2, replace=False)),
            negative_log_likelihood,
        )
        for length in lengths
    ]


def small_parameters() -> Parameters:
    parameters = Parameters.initial(SMALL, seed=3)
    parameters.embedding[...] *= 10  # so that the softmax is not flat
    return parameters


@pytest.mark.parametrize("lengths", [[40, 40], [300, 7, 2, 129]])
def test_gradient_along_random_directions(lengths: list[int]) -> None:
    parameters, rotary = small_parameters(), Rotary(SMALL)
    sequences = random_sequences(lengths)
    rng = np.random.default_rng(1)
    with ThreadPoolExecutor(2) as pool:

        def loss_at(flat: Array) -> float:
            moved = Parameters(SMALL, flat)
            outcomes, _ = loss_and_gradient(moved, rotary, sequences, pool, 2, want_gradient=False)
            return sum(outcome.loss for outcome in outcomes)

        _, gradient = loss_and_gradient(parameters, rotary, sequences, pool, 2)
        for name, view in Parameters(SMALL, gradient).views.items():
            # Along the gradient of one tensor and along a random change of it.
            for along in (view, rng.standard_normal(view.shape).astype(np.float32)):
                direction = Parameters.zeros(SMALL)
                direction.views[name][...] = along / np.linalg.norm(along)
                step = np.float32(2e-2 if name != "embedding" else 5e-3)
                numeric = (
                    loss_at(parameters.flat + step * direction.flat)
                    - loss_at(parameters.flat - step * direction.flat)
                ) / (2 * float(step))
                analytic = float(np.dot(gradient, direction.flat))
                tolerance = 0.01 * float(np.linalg.norm(view)) + 0.01
                assert abs(numeric - analytic) < tolerance, (name, numeric, analytic)


def test_a_step_gives_the_same_bits_whatever_the_timing() -> None:
    parameters, rotary = small_parameters(), Rotary(SMALL)
    sequences = random_sequences([300, 200, 250, 260, 50, 60, 300, 280] * 2)
    with ThreadPoolExecutor(2) as pool:
        first = loss_and_gradient(parameters, rotary, sequences, pool, 2)[1]
        second = loss_and_gradient(parameters, rotary, sequences, pool, 2)[1]
        alone = loss_and_gradient(parameters, rotary, sequences, pool, 1)[1]
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, alone, rtol=1e-3, atol=1e-3)


def test_packs_hold_every_sequence_once() -> None:
    lengths = [1023, 5, 700, 30, 30, 30, 4000, 1]
    packs = [pack for share in packs_of(lengths, 2) for pack in share]
    assert sorted(i for pack in packs for i in pack) == list(range(len(lengths)))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampled_logprobs_are_the_models(temperature: float) -> None:
    """Against a pass over the whole sequence, position by position, at that temperature."""
    parameters, rotary = small_parameters(), Rotary(SMALL)
    requests = [
        SampleRequest(tuple(range(1, 2 + 7 * i)), 60 - 5 * i, temperature, seed=i) for i in range(7)
    ]
    completions = sample(parameters, rotary, requests, stop_id=0)
    scaled = parameters.copy()
    scaled.final_norm[...] /= temperature  # logits are linear in it
    for request, completion in zip(requests, completions, strict=True):
        ids = np.array([*request.prompt_ids, *completion.ids])
        trained = np.arange(len(request.prompt_ids), len(ids))
        sequence = TrainingSequence(ids, trained, negative_log_likelihood)
        with ThreadPoolExecutor(1) as pool:
            outcomes, _ = loss_and_gradient(
                scaled, rotary, [sequence], pool, 1, want_gradient=False
            )
        np.testing.assert_allclose(completion.logprobs, outcomes[0].logprobs, atol=1e-5)
        assert len(completion.ids) <= request.max_tokens
        assert (completion.stop_reason == "stop") == (completion.ids[-1] == 0)


def test_sampling_follows_the_distribution() -> None:
    parameters, rotary = small_parameters(), Rotary(SMALL)
    requests = [SampleRequest((1, 2, 3), 1, 1.0, seed=i) for i in range(4000)]
    completions = sample(parameters, rotary, requests, stop_id=0)
    counts = np.bincount([c.ids[0] for c in completions], minlength=SMALL.vocab_size)
    chances = {c.ids[0]: math.exp(c.logprobs[0]) for c in completions}
    for token, chance in chances.items():
        deviation = math.sqrt(4000 * chance * (1 - chance))
        assert abs(counts[token] - 4000 * chance) < 5 * deviation + 1


def test_a_seed_draws_the_same_in_any_company() -> None:
    """The shipped model, alone and among 32: the tokens agree, and so do the log-probabilities
    to 2e-5. (A draw could differ where a random number falls within rounding of a boundary.)"""
    checkpoint = read_checkpoint(SHIPPED)
    parameters = Parameters(checkpoint.config, checkpoint.weights)
    rotary = Rotary(checkpoint.config)
    requests = [
        SampleRequest(tuple(range(300, 320 + 3 * i)), 30, 1.0, seed=1000 + i) for i in range(32)
    ]
    together = sample(parameters, rotary, requests, stop_id=0)
    for request, completion in zip(requests, together, strict=True):
        (alone,) = sample(parameters, rotary, [request], stop_id=0)
        assert alone.ids == completion.ids
        np.testing.assert_allclose(alone.logprobs, completion.logprobs, atol=2e-5)


NEW = np.array([-1.0, -1.0, -1.0, -1.0], np.float32)
OLD = np.array([-1.5, -1.5, -0.5, -0.5], np.float32)  # ratios e^.5 = 1.65 and e^-.5 = 0.61
ADVANTAGES = np.array([1.0, -2.0, 1.0, -2.0], np.float32)
WEIGHTS = np.array([0.5, 0.25, 1.0, 2.0], np.float32)


@pytest.mark.parametrize(
    ("name", "losses", "slopes"),
    [
        # -w A r, and the same as slope
        (
            "importance_sampling",
            [-0.5 * 1.648721, 0.5 * 1.648721, -0.606531, 4 * 0.606531],
            [-0.5 * 1.648721, 0.5 * 1.648721, -0.606531, 4 * 0.606531],
        ),
        # clipped at 1.3 where A > 0 and r is high, at 0.8 where A < 0 and r is low
        (
            "ppo",
            [-0.5 * 1.3, 0.5 * 1.648721, -0.606531, 4 * 0.8],
            [0.0, 0.5 * 1.648721, -0.606531, 0.0],
        ),
        # -w A clip(r) new, with new = -1
        (
            "cispo",
            [0.5 * 1.3, -0.5 * 1.3, 0.8, -4 * 0.8],
            [-0.5 * 1.3, 0.5 * 1.3, -0.8, 4 * 0.8],
        ),
    ],
)
def test_losses_against_figures_worked_out_by_hand(
    name: LossName, losses: list[float], slopes: list[float]
) -> None:
    settings = TrainSettings(1e-3, loss=name, clip_low=0.2, clip_high=0.3)
    loss, derivative = policy_loss(NEW, OLD, ADVANTAGES, WEIGHTS, settings)
    assert loss == pytest.approx(sum(losses), rel=1e-5)
    np.testing.assert_allclose(derivative, slopes, rtol=1e-5)


def test_training_goes_on_bit_for_bit_after_save_and_load(
    tokenizer: LocalTokenizer, tmp_path: Path
) -> None:
    config = ModelConfig(vocab_size=50, width=32, layers=1, heads=2, feed_forward=48)
    flat = Parameters.initial(config, 0).flat
    write_checkpoint(
        tmp_path / "start", Checkpoint(config, tokenizer.digest, 0, flat, None, None, 0)
    )
    rng = np.random.default_rng(0)

    def data() -> list[Datum]:
        return [
            Datum(
                tokens=rng.integers(0, 50, 30).astype(np.int32),
                mask=np.arange(30) > 9,
                logprobs=np.full(30, -3.9, np.float32),
                advantages=rng.standard_normal(30).astype(np.float32),
                weights=np.full(30, 0.01, np.float32),
            )
            for _ in range(8)
        ]

    first, second, third = data(), data(), data()
    settings = TrainSettings(1e-2, grad_clip=0.3, weight_decay=0.1)
    straight = Learner(tmp_path / "start", tokenizer.digest, 0, threads=2)
    for batch in (first, second):
        straight.train_step(batch, settings)
    straight.save(tmp_path / "middle")
    expected = straight.train_step(third, settings)
    straight.save(tmp_path / "end")

    resumed = Learner(tmp_path / "middle", tokenizer.digest, 0, threads=2)
    assert resumed.publish() == 2
    found = resumed.train_step(third, settings)
    resumed.save(tmp_path / "end-again")
    assert found.loss == expected.loss
    for one, other in zip(found.logprobs, expected.logprobs, strict=True):
        np.testing.assert_array_equal(one, other)
    end = (tmp_path / "end" / "policy.npz").read_bytes()
    assert (tmp_path / "end-again" / "policy.npz").read_bytes() == end
