"""Gradients, losses and log-probabilities against independent computations."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from tbtui.algorithm.losses import AnyLoss
from tbtui.algorithm.step import Datum
from tbtui.policies.base import (
    MODEL_ITSELF,
    LossName,
    LossSettings,
    OptimSettings,
    PolicyError,
    SampleRequest,
    SamplingParams,
)
from tbtui.policies.local.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from tbtui.policies.local.gradient import TrainingSequence, loss_and_gradient
from tbtui.policies.local.learner import Learner
from tbtui.policies.local.model import Array, ModelConfig, Parameters, Rotary
from tbtui.policies.local.sampling import sample
from tbtui.policies.local.tokenizer import SHIPPED, LocalTokenizer

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


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampled_logprobs_are_the_models(temperature: float) -> None:
    """Against a pass over the whole sequence, position by position, at that temperature."""
    parameters, rotary = small_parameters(), Rotary(SMALL)
    requests = [
        SampleRequest(tuple(range(1, 2 + 7 * i)), 60 - 5 * i, SamplingParams(temperature), seed=i)
        for i in range(7)
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
    requests = [SampleRequest((1, 2, 3), 1, MODEL_ITSELF, seed=i) for i in range(4000)]
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
        SampleRequest(tuple(range(300, 320 + 3 * i)), 30, MODEL_ITSELF, seed=1000 + i)
        for i in range(32)
    ]
    together = sample(parameters, rotary, requests, stop_id=0)
    for request, completion in zip(requests, together, strict=True):
        (alone,) = sample(parameters, rotary, [request], stop_id=0)
        assert alone.ids == completion.ids
        np.testing.assert_allclose(alone.logprobs, completion.logprobs, atol=2e-5)


class Batches:
    """Random training data for a small model, its start checkpoint written to `directory`."""

    def __init__(self, directory: Path, tokenizer: LocalTokenizer) -> None:
        config = ModelConfig(vocab_size=50, width=32, layers=1, heads=2, feed_forward=48)
        flat = Parameters.initial(config, 0).flat
        self.start = directory / "start"
        write_checkpoint(self.start, Checkpoint(config, tokenizer.digest, 0, flat, None, None, 0))
        self._digest = tokenizer.digest
        self._rng = np.random.default_rng(0)

    def learner(self) -> Learner:
        return Learner(self.start, self._digest, 0, threads=2)

    def draw(self) -> list[Datum]:
        return [
            Datum(
                tokens=self._rng.integers(0, 50, 30).astype(np.int32),
                mask=np.arange(30) > 9,
                logprobs=np.full(30, -3.9, np.float32),
                advantages=self._rng.standard_normal(30).astype(np.float32),
                weights=np.full(30, 0.01, np.float32),
            )
            for _ in range(8)
        ]


@pytest.fixture
def batches(tmp_path: Path, tokenizer: LocalTokenizer) -> Batches:
    return Batches(tmp_path, tokenizer)


LOSS = LossSettings()
STEP = OptimSettings(1e-2, grad_clip=0.3, weight_decay=0.1)


def saved(learner: Learner, directory: Path) -> bytes:
    learner.save(directory)
    return (directory / "policy.npz").read_bytes()


def test_training_goes_on_bit_for_bit_after_save_and_load(batches: Batches, tmp_path: Path) -> None:
    straight = batches.learner()
    for _ in range(2):
        straight.accumulate(batches.draw(), LOSS)
        straight.apply(STEP)
    straight.save(tmp_path / "middle")
    third = batches.draw()
    expected = straight.accumulate(third, LOSS)
    straight.apply(STEP)

    resumed = batches.learner()
    resumed.load(tmp_path / "middle")
    assert resumed.publish() == 2
    found = resumed.accumulate(third, LOSS)
    resumed.apply(STEP)
    assert found.loss == expected.loss
    for one, other in zip(found.logprobs, expected.logprobs, strict=True):
        np.testing.assert_array_equal(one, other)
    assert saved(straight, tmp_path / "one") == saved(resumed, tmp_path / "other")


@pytest.mark.parametrize("loss", [*get_args(LossName), "cross_entropy"])
def test_a_gradient_in_parts_is_the_gradient_of_the_whole(
    batches: Batches, tmp_path: Path, loss: AnyLoss
) -> None:
    """To rounding, since the parts are packed differently: the moments, which are linear and
    quadratic in the gradient, to 1e-6 of the largest."""
    data, settings = batches.draw(), LossSettings(loss)
    whole, parts = batches.learner(), batches.learner()
    at_once = whole.accumulate(data, settings)
    in_turn = [parts.accumulate(data[part], settings) for part in (slice(0, 3), slice(3, 8))]
    assert sum(part.loss for part in in_turn) == pytest.approx(at_once.loss, rel=1e-6)
    norms = [learner.apply(OptimSettings(1e-2)).grad_norm for learner in (whole, parts)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)
    whole.save(tmp_path / "whole")
    parts.save(tmp_path / "parts")
    one, other = read_checkpoint(tmp_path / "whole"), read_checkpoint(tmp_path / "parts")
    for left, right in (
        (one.first_moment, other.first_moment),
        (one.second_moment, other.second_moment),
    ):
        assert left is not None
        assert right is not None
        assert float(np.abs(left - right).max()) <= 1e-6 * float(np.abs(left).max())


def test_the_divisor_acts_before_the_clipping(batches: Batches, tmp_path: Path) -> None:
    data = batches.draw()
    divided, scaled = batches.learner(), batches.learner()
    divided.accumulate(data, LOSS)
    scaled.accumulate([replace(d, weights=d.weights / np.float32(4)) for d in data], LOSS)
    settings = OptimSettings(1e-2, grad_clip=0.01)
    norm = scaled.apply(settings).grad_norm
    assert norm is not None
    assert norm > settings.grad_clip
    # A power of two, so that nothing is rounded.
    assert divided.apply(replace(settings, divide_by=4.0)).grad_norm == norm
    assert saved(divided, tmp_path / "divided") == saved(scaled, tmp_path / "scaled")


def test_a_checkpoint_has_no_accumulated_gradient_and_loading_clears_it(
    batches: Batches, tmp_path: Path
) -> None:
    learner, data = batches.learner(), batches.draw()
    before = saved(learner, tmp_path / "before")
    learner.accumulate(data, LOSS)
    assert saved(learner, tmp_path / "between") == before
    learner.load(tmp_path / "between")
    with pytest.raises(PolicyError, match="no gradient"):
        learner.apply(STEP)
    learner.accumulate(data, LOSS)
    learner.apply(STEP)
    undisturbed = batches.learner()
    undisturbed.accumulate(data, LOSS)
    undisturbed.apply(STEP)
    assert saved(learner, tmp_path / "one") == saved(undisturbed, tmp_path / "other")


def test_no_step_along_a_gradient_that_is_broken_or_lacks_a_part(
    batches: Batches, tmp_path: Path
) -> None:
    learner, data = batches.learner(), batches.draw()
    learner.accumulate(data, LOSS)
    learner.apply(STEP)
    before = saved(learner, tmp_path / "before")

    nowhere = np.full_like(data[0].advantages, np.nan)
    learner.accumulate([replace(data[0], advantages=nowhere), *data[1:]], LOSS)
    with pytest.raises(PolicyError, match="not finite: the step was not taken; lower learning_ra"):
        learner.apply(STEP)

    learner.accumulate(data, LOSS)
    untrained = replace(data[0], mask=np.zeros_like(data[0].mask))
    with pytest.raises(PolicyError, match="no trained tokens"):
        learner.accumulate([untrained], LOSS)
    with pytest.raises(PolicyError, match="a part of the gradient failed"):
        learner.apply(STEP)

    learner.accumulate(data, LOSS)
    with pytest.raises(PolicyError, match=r"can't be divided by 0\.0"):
        learner.apply(replace(STEP, divide_by=0.0))
    with pytest.raises(PolicyError, match="no gradient"):
        learner.apply(STEP)
    assert saved(learner, tmp_path / "after") == before
    learner.accumulate(data, LOSS)
    learner.apply(STEP)
    assert learner.publish() == 2


def test_the_reference_stays_where_training_started(batches: Batches, tmp_path: Path) -> None:
    learner, data = batches.learner(), batches.draw()
    started_with = learner.score(data, "trained")

    def is_reference(scored: tuple[Array, ...]) -> bool:
        return all(np.array_equal(a, b) for a, b in zip(scored, started_with, strict=True))

    assert is_reference(learner.score(data, "reference"))
    gradient = learner.accumulate(data, LOSS)
    learner.apply(STEP)
    np.testing.assert_allclose(gradient.logprobs[3], started_with[3], atol=1e-6)
    assert not is_reference(learner.score(data, "trained"))
    assert is_reference(learner.score(data, "reference"))
    learner.save(tmp_path / "trained")

    elsewhere = tmp_path / "elsewhere"
    start = read_checkpoint(batches.start)
    write_checkpoint(elsewhere, replace(start, weights=start.weights * np.float32(0.5)))
    resumed = Learner(elsewhere, start.tokenizer_digest, 0, threads=1)
    assert not is_reference(resumed.score(data, "reference"))
    resumed.load(tmp_path / "trained")
    assert is_reference(resumed.score(data, "reference"))
    # A new training, though, starts at its own beginning.
    anew = Learner(tmp_path / "trained", start.tokenizer_digest, 0, threads=1)
    assert anew.publish() == 0
    np.testing.assert_array_equal(
        anew.score(data, "reference")[0], resumed.score(data, "trained")[0]
    )


def test_scoring_leaves_the_gradient_alone_and_takes_data_without_trained_tokens(
    batches: Batches,
) -> None:
    learner, data = batches.learner(), batches.draw()
    untrained = replace(data[0], mask=np.zeros_like(data[0].mask))
    nothing, something = learner.score([untrained, data[1]], "reference")
    assert len(nothing) == 0
    assert len(something) == 20
    with pytest.raises(PolicyError, match="no gradient"):
        learner.apply(STEP)


def test_a_model_of_another_shape_is_refused(batches: Batches, tmp_path: Path) -> None:
    learner = batches.learner()
    config = ModelConfig(vocab_size=50, width=64, layers=1, heads=2, feed_forward=48)
    digest = read_checkpoint(batches.start).tokenizer_digest
    other = Checkpoint(config, digest, 0, Parameters.initial(config, 0).flat, None, None, 0)
    write_checkpoint(tmp_path / "wider", other)
    with pytest.raises(PolicyError, match=r"a model of another shape.*width=64"):
        learner.load(tmp_path / "wider")
