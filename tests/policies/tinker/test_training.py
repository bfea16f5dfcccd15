"""Gradients and optimiser steps of a training client: exact, in order, and never half taken."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tinker
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.losses import AnyLoss, policy_loss
from tbtui.policies.base import (
    MODEL_ITSELF,
    Datum,
    LossName,
    LossSettings,
    Message,
    OptimSettings,
    PolicyError,
    PolicyLostError,
    SampleRequest,
)
from tbtui.policies.local.client import LocalPolicy
from tbtui.policies.meter import RequestMeter
from tbtui.policies.tinker.capabilities import Reduction, ServerAbilities
from tbtui.policies.tinker.data import answered, cross_entropy_data, masked_ones, policy_data
from tbtui.policies.tinker.training import Training
from tests.policies.tinker.toy import LOSSES as OF_ROLLOUTS
from tests.policies.tinker.toy import (
    NATIVE,
    VOCABULARY,
    Array,
    Toy,
    log_softmax,
    refusal,
    tensor,
)
from tests.tinker_server.server import serving

LOSSES: tuple[AnyLoss, ...] = (*OF_ROLLOUTS, "cross_entropy")
STEP = OptimSettings(0.1)


def draw_datum(random: np.random.Generator) -> Datum:
    length = int(random.integers(2, 12))
    mask = random.random(length) < 0.6
    mask[0] = False
    return Datum(
        tokens=random.integers(0, VOCABULARY, length).astype(np.int32),
        mask=mask,
        logprobs=-random.exponential(2.0, length).astype(np.float32),
        advantages=random.normal(0, 1, length).astype(np.float32),
        weights=random.uniform(0, 1, length).astype(np.float32),
    )


def draw_data(seed: int, count: int = 4) -> list[Datum]:
    random = np.random.default_rng(seed)
    data = [draw_datum(random) for _ in range(count)]
    whole = data[0]
    mask = np.arange(len(whole.tokens)) > 0
    return [dataclasses.replace(whole, mask=mask), *data[1:]]


def expected(
    toy: Toy, data: Sequence[Datum], settings: LossSettings
) -> tuple[float, Array, list[Array]]:
    """The summed loss, its gradient and the log-probabilities, by the definition."""
    table = log_softmax(toy.logits)
    total, gradient, logprobs = 0.0, np.zeros_like(table), []
    for datum in data:
        at = np.flatnonzero(datum.mask)
        before, after = datum.tokens[at - 1], datum.tokens[at]
        new = table[before, after]
        old, advantages, weights = (
            array[at].astype(np.float64)
            for array in (datum.logprobs, datum.advantages, datum.weights)
        )
        loss, slopes = policy_loss(new, old, advantages, weights, settings)
        total += loss
        residual = np.eye(VOCABULARY)[after] - np.exp(table[before])
        np.add.at(gradient, before, slopes[:, None] * residual)
        logprobs.append(new)
    return total, gradient, logprobs


def training(
    toy: Toy, native: frozenset[LossName] = NATIVE, context_limit: int | None = None
) -> Training:
    reduction: Reduction = "sum" if toy.reduction == "sums" else "sequence_mean"
    abilities = ServerAbilities("toy", context_limit, native, reduction)
    return Training(toy.client, abilities, RequestMeter())


losses = st.builds(
    LossSettings,
    st.sampled_from(LOSSES),
    st.floats(0.01, 0.5),
    st.floats(0.01, 1.0),
    st.floats(0.01, 1.0),
)


@given(st.integers(0, 2**32), losses, st.booleans(), st.sampled_from(["sums", "averages"]))
def test_the_step_is_along_the_gradient_of_our_loss(
    seed: int, loss: LossSettings, native: bool, reduction: str
) -> None:
    """Whether the server computes the loss or we do, and whether it sums or averages."""

    async def run() -> None:
        toy = Toy("sums" if reduction == "sums" else "averages", seed=seed % 1000)
        data = draw_data(seed)
        value, gradient, logprobs = expected(toy, data, loss)
        taught = training(toy, NATIVE if native else frozenset())
        result, step = await asyncio.gather(taught.accumulate(data, loss), taught.apply(STEP))
        scale = np.abs(gradient).max() + 1e-3
        np.testing.assert_allclose(toy.steps[0], gradient, atol=1e-4 * scale)
        assert result.loss == pytest.approx(value, rel=1e-4, abs=1e-4)
        assert result.entropy is None
        for found, new in zip(result.logprobs, logprobs, strict=True):
            np.testing.assert_allclose(found, new, atol=1e-5)
        assert step.grad_norm == pytest.approx(np.linalg.norm(toy.steps[0]))

    asyncio.run(run())


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("reduction", ["sums", "averages"])
async def test_the_parts_of_a_gradient_add_up(reduction: str, native: bool) -> None:
    toy = Toy("sums" if reduction == "sums" else "averages")
    data = draw_data(3, 9)
    _, gradient, _ = expected(toy, data, LossSettings())
    taught = training(toy, NATIVE if native else frozenset())
    await asyncio.gather(
        taught.accumulate(data[:4], LossSettings()), taught.accumulate(data[4:], LossSettings())
    )
    await taught.apply(STEP)
    sent = sum(bool(datum.mask.any()) for datum in data)
    first = sum(bool(datum.mask.any()) for datum in data[:4])
    # Who averages has divided by the number of all sequences, which the first part didn't know.
    share = 1.0 if reduction == "sums" else first / sent
    np.testing.assert_allclose(toy.steps[0], gradient * share, atol=1e-5 * np.abs(gradient).max())


async def test_what_is_native_is_not_waited_for() -> None:
    toy = Toy()
    toy.hold = {"forward_backward": asyncio.Event(), "optim_step": asyncio.Event()}
    taught = training(toy)
    calls = asyncio.gather(taught.accumulate(draw_data(1), LossSettings()), taught.apply(STEP))
    scored = asyncio.ensure_future(taught.score(draw_data(2)))
    await scored
    assert toy.log == ["forward_backward", "optim_step", "forward"]
    assert not calls.done()
    for event in toy.hold.values():
        event.set()
    await calls


async def test_a_loss_of_ours_lets_nothing_come_between_its_two_passes() -> None:
    toy = Toy()
    toy.hold = {"forward": asyncio.Event()}
    taught = training(toy, frozenset())
    data = draw_data(1)

    async def saved() -> str:
        return "saved"

    def save() -> asyncio.Task[str]:
        toy.log.append("save")
        return asyncio.ensure_future(saved())

    calls = asyncio.gather(
        taught.accumulate(data, LossSettings()),
        taught.apply(STEP),
        taught.in_order(save),
        taught.score(data),
    )
    await toy.asked.wait()
    assert toy.log == ["forward"]
    toy.hold["forward"].set()
    result, _, answer, scores = await calls
    assert toy.log == ["forward", "forward_backward", "optim_step", "save", "forward"]
    assert answer == "saved"
    # Scored with the weights after the step.
    assert not np.allclose(np.concatenate(scores), np.concatenate(result.logprobs))


async def test_optimiser_settings_and_metrics() -> None:
    toy = Toy()
    taught = training(toy)
    result = await taught.accumulate(draw_data(1), LossSettings())
    assert result.metrics == {"server/loss_sum": pytest.approx(result.loss, rel=1e-5)}
    step = await taught.apply(OptimSettings(3e-4, grad_clip=0.5, weight_decay=0.01))
    assert set(step.metrics) == {"server/skyrl.ai/grad_norm"}
    assert toy.params == [
        tinker.AdamParams(
            learning_rate=3e-4,
            beta1=0.9,
            beta2=0.95,
            eps=1e-12,
            weight_decay=0.01,
            grad_clip_norm=0.5,
        )
    ]
    with pytest.raises(PolicyError, match="can't divide a gradient"):
        await taught.apply(OptimSettings(1e-3, divide_by=2.0))


async def test_data_without_trained_tokens_ask_nothing_of_the_server() -> None:
    toy = Toy()
    taught = training(toy)
    untrained = dataclasses.replace(draw_data(1)[0], mask=np.zeros(len(draw_data(1)[0].mask), bool))
    assert (await taught.accumulate([], LossSettings())).logprobs == ()
    nothing = await taught.accumulate([untrained], LossSettings())
    assert nothing.loss == 0.0
    assert [len(each) for each in nothing.logprobs] == [0]
    assert [len(each) for each in await taught.score([untrained])] == [0]
    with pytest.raises(PolicyError, match="there is no gradient"):
        await taught.apply(STEP)
    assert toy.log == []
    result = await taught.accumulate([untrained, draw_data(1)[0]], LossSettings())
    assert [len(each) > 0 for each in result.logprobs] == [False, True]


async def test_refused_data_take_no_step() -> None:
    toy = Toy()
    taught = training(toy, context_limit=11)
    good = draw_data(1)
    long = [
        dataclasses.replace(
            good[0],
            **{
                field.name: np.resize(getattr(good[0], field.name), 12)
                for field in dataclasses.fields(Datum)
            },
        )
    ]
    outcomes = await asyncio.gather(
        taught.accumulate(long, LossSettings()), taught.apply(STEP), return_exceptions=True
    )
    assert [str(outcome) for outcome in outcomes] == [
        "a datum has 12 tokens; the context limit is 11",
        "a part of the gradient failed: the step was not taken",
    ]
    assert not isinstance(outcomes[1], PolicyLostError)
    # Nothing of it had reached the server, so it goes on.
    await taught.accumulate(good, LossSettings())
    await taught.apply(STEP)
    assert len(toy.steps) == 1

    # A part that did can't be taken back.
    await taught.accumulate(good, LossSettings())
    with pytest.raises(PolicyError, match="context limit"):
        await taught.accumulate(long, LossSettings())
    with pytest.raises(PolicyError, match="the step was not taken"):
        await taught.apply(STEP)
    with pytest.raises(PolicyLostError, match="can't be taken back"):
        await taught.accumulate(good, LossSettings())
    assert len(toy.steps) == 1


@pytest.mark.parametrize("status", [422, 404])
async def test_a_step_on_its_way_behind_a_failed_gradient_counts_as_lost(status: int) -> None:
    toy = Toy()
    toy.hold = {"forward_backward": asyncio.Event()}
    toy.fails = {"forward_backward": refusal(status, "no")}
    taught = training(toy)
    data = draw_data(1)
    accumulated = asyncio.ensure_future(taught.accumulate(data, LossSettings()))
    applied = asyncio.ensure_future(taught.apply(STEP))
    saved = asyncio.ensure_future(taught.in_order(lambda: asyncio.sleep(0, "saved")))
    scored = asyncio.ensure_future(taught.score(data))
    await scored
    # The server has taken the step and saved, and told so.
    assert len(toy.steps) == 1
    assert not applied.done() and not saved.done()
    toy.hold["forward_backward"].set()
    with pytest.raises(PolicyError):
        await accumulated
    for outcome in (applied, saved, taught.score(data), taught.accumulate(data, LossSettings())):
        with pytest.raises(PolicyLostError):
            await outcome
    with pytest.raises(PolicyLostError):
        await taught.apply(STEP)
    assert toy.log == ["forward_backward", "optim_step", "forward"]


async def test_a_failed_step_loses_what_was_trained() -> None:
    toy = Toy()
    toy.fails = {"optim_step": refusal(409, "busy")}
    taught = training(toy)
    await taught.accumulate(draw_data(1), LossSettings())
    with pytest.raises(PolicyLostError, match="the optimiser step"):
        await taught.apply(STEP)
    with pytest.raises(PolicyLostError):
        await taught.score(draw_data(1))


async def test_a_failed_score_leaves_the_training_as_it_is() -> None:
    toy = Toy()
    toy.fails = {"forward": refusal(422, "no")}
    taught = training(toy)
    with pytest.raises(PolicyError, match="log-probabilities"):
        await taught.score(draw_data(1))
    await taught.accumulate(draw_data(1), LossSettings())
    await taught.apply(STEP)


async def test_a_failed_forward_of_our_loss_takes_no_step_and_goes_on() -> None:
    toy = Toy()
    toy.fails = {"forward": refusal(422, "no")}
    taught = training(toy, frozenset())
    outcomes = await asyncio.gather(
        taught.accumulate(draw_data(1), LossSettings()), taught.apply(STEP), return_exceptions=True
    )
    assert all(isinstance(outcome, PolicyError) for outcome in outcomes)
    assert toy.log == ["forward"]
    await taught.accumulate(draw_data(1), LossSettings())
    await taught.apply(STEP)


async def test_a_gradient_that_is_not_finite_is_not_sent() -> None:
    toy = Toy()
    toy.logits[:] = np.nan
    taught = training(toy, frozenset())
    with pytest.raises(PolicyError, match="not finite"):
        await taught.accumulate(draw_data(1), LossSettings())
    assert toy.log == ["forward"]


async def test_a_cancelled_call_is_carried_out() -> None:
    toy = Toy()
    toy.hold = {"forward": asyncio.Event()}
    taught = training(toy, frozenset())
    call = asyncio.ensure_future(taught.accumulate(draw_data(1), LossSettings()))
    await toy.asked.wait()
    call.cancel()
    toy.hold["forward"].set()
    await taught.apply(STEP)
    assert toy.log == ["forward", "forward_backward", "optim_step"]


async def test_an_sdk_that_is_closed_is_no_cancellation() -> None:
    toy = Toy()
    toy.hold = {"forward_backward": asyncio.Event()}
    taught = training(toy)
    call = asyncio.ensure_future(taught.accumulate(draw_data(1), LossSettings()))
    await toy.asked.wait()
    toy.answers[0].cancel()
    with pytest.raises(PolicyError, match="closed before the Tinker server answered"):
        await call


def test_data_on_the_wire() -> None:
    datum = Datum(
        tokens=np.array([5, 6, 7, 8], np.int32),
        mask=np.array([False, False, True, True]),
        logprobs=np.array([9, 9, -0.5, -0.25], np.float32),
        advantages=np.array([9, 9, 2, -2], np.float32),
        weights=np.array([9, 9, 0.5, 0.25], np.float32),
    )
    (sent,) = policy_data([datum], "gspo", [2.0])
    assert sent.model_input.to_ints() == [5, 6, 7]
    assert {name: array.tolist() for name, array in sent.loss_fn_inputs.items()} == {
        "target_tokens": [6, 7, 8],
        "logprobs": [0, -0.5, -0.25],
        "advantages": [0, 2, -1],
        "sequence_ratio_mask": [0, 1, 1],
    }
    (sent,) = cross_entropy_data([datum], masked_ones([datum]))
    assert sent.loss_fn_inputs["weights"].tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="dro"):
        policy_data([datum], "dro", [1.0])

    def output(*arrays: Array) -> tinker.ForwardBackwardOutput:
        fields = [{"logprobs": tensor(array)} for array in arrays]
        return tinker.ForwardBackwardOutput("ArrayRecord", fields)

    (logprobs,) = answered([datum], output(np.array([-1, -2, -3])))
    assert logprobs.tolist() == [-2, -3]
    with pytest.raises(PolicyError, match="2 logprobs for a sequence of 3 targets"):
        answered([datum], output(np.array([1, 2])))
    with pytest.raises(PolicyError, match="answered 0 sequences where 1 were sent"):
        answered([datum], output())


async def sampled_data(local: LocalPolicy) -> list[Datum]:
    """Data sampled by the embedded policy, with log-probabilities of slightly other weights."""
    random = np.random.default_rng(5)
    prompts = [local.renderer.render([Message("user", f"Say {i}")]) for i in range(4)]
    samples = await asyncio.gather(
        *(
            local.sample(SampleRequest(prompt, 16, MODEL_ITSELF, i))
            for i, prompt in enumerate(prompts)
        )
    )
    data = []
    for prompt, drawn in zip(prompts, samples, strict=True):
        length = len(prompt) + len(drawn.completion_ids)
        logprobs = np.zeros(length, np.float32)
        logprobs[len(prompt) :] = drawn.logprobs + random.normal(0, 0.3, len(drawn.logprobs))
        data.append(
            Datum(
                tokens=np.array([*prompt, *drawn.completion_ids], np.int32),
                mask=np.arange(length) >= len(prompt),
                logprobs=logprobs,
                advantages=random.normal(0, 1, length).astype(np.float32),
                weights=random.uniform(0.1, 1, length).astype(np.float32),
            )
        )
    return data


@pytest.mark.parametrize("native", [True, False])
async def test_of_a_real_server_the_step_is_the_embedded_policys(
    tmp_path: Path, native: bool
) -> None:
    """A step with every loss, computed there or here, beside the embedded policy's own."""
    settings = OptimSettings(1e-3, grad_clip=0.5)
    local = LocalPolicy()
    await local.start()
    data = await sampled_data(local)
    async with serving(state_dir=tmp_path) as server:
        with tinker.ServiceClient(base_url=server.url, api_key="tml-test") as service:
            client = await service.create_lora_training_client(base_model="starter")
            abilities = ServerAbilities("starter", None, NATIVE if native else frozenset())
            taught = Training(client, abilities, RequestMeter())
            for name in sorted(NATIVE) if native else LOSSES:
                loss = LossSettings(name)
                wanted, wanted_step, wanted_scores = await asyncio.gather(
                    local.accumulate(data, loss),
                    local.apply(settings),
                    local.score(data, "trained"),
                )
                result, step, scores = await asyncio.gather(
                    taught.accumulate(data, loss), taught.apply(settings), taught.score(data)
                )
                assert result.loss == pytest.approx(wanted.loss, rel=1e-3)
                assert step.grad_norm == pytest.approx(wanted_step.grad_norm, rel=1e-3)
                for found, new in zip(result.logprobs, wanted.logprobs, strict=True):
                    np.testing.assert_allclose(found, new, atol=1e-3)
                for found, new in zip(scores, wanted_scores, strict=True):
                    np.testing.assert_allclose(found, new, atol=1e-3)
                moved = np.concatenate(scores) - np.concatenate(result.logprobs)
                assert np.abs(moved).max() > 0.05
    await local.close()
