"""A policy on a Tinker server, through the genuine SDK and real HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbtui.policies.base import (
    MODEL_ITSELF,
    ContextOverflowError,
    Datum,
    LossSettings,
    OptimSettings,
    Policy,
    PolicyError,
    Sample,
    SampleRequest,
    SamplingParams,
)
from tbtui.policies.local.client import LocalPolicy
from tbtui.policies.tinker.policy import TinkerPolicy
from tbtui.policies.tinker.samplers import Sampler
from tests.policies.asking import datum_of, prompt_of, request
from tests.policies.tinker.conftest import MakePolicy
from tests.tinker_server.server import TinkerServer
from tests.waiting import until

LOSS = LossSettings()
STEP = OptimSettings(learning_rate=1e-3)


async def train(policy: Policy, sample: Sample) -> None:
    await asyncio.gather(
        policy.accumulate([datum_of(prompt_of(policy), sample)], LOSS),
        policy.apply(STEP),
        policy.publish(),
    )


async def test_it_samples_what_the_embedded_policy_does_and_learns_in_order(
    make_policy: MakePolicy,
) -> None:
    policy, local = await make_policy(), LocalPolicy()
    await local.start()
    seeds = (1, 2, 3)
    here = await asyncio.gather(*(local.sample(request(local, seed, 200)) for seed in seeds))
    await local.close()
    there = await asyncio.gather(*(policy.sample(request(policy, seed, 200)) for seed in seeds))
    assert [s.completion_ids for s in there] == [s.completion_ids for s in here]
    assert [s.stop_reason for s in there] == [s.stop_reason for s in here]
    assert "stop" in {s.stop_reason for s in there}
    assert all(sample.logprobs.dtype == np.float32 for sample in there)
    np.testing.assert_allclose(
        np.concatenate([s.logprobs for s in there]),
        np.concatenate([s.logprobs for s in here]),
        atol=1e-4,
    )
    assert {sample.weights_version for sample in there} == {0}
    assert {sample.cached_tokens for sample in there} == {0}

    info = policy.info
    assert (info.name, info.model_name, info.context_limit) == ("tinker", "starter", 1024)
    assert not info.divides_gradient and info.parameters is None
    assert info.tokenizer == local.info.tokenizer
    assert {"lora_rank", "checkpoint", "grad_clip", "kl_penalty_coef"} <= info.honours
    assert "thinking" not in info.honours  # the embedded renderer knows of none

    # All handed in at once, and what is sampled meanwhile comes from the old weights.
    data = [datum_of(prompt_of(policy), sample) for sample in there]
    gradient = asyncio.create_task(policy.accumulate(data, LOSS))
    step = asyncio.create_task(policy.apply(STEP))
    published = asyncio.create_task(policy.publish())
    again = await policy.sample(request(policy, 1, 200))
    assert again.weights_version == 0
    np.testing.assert_allclose((await gradient).logprobs[0], there[0].logprobs, atol=1e-4)
    assert ((await step).grad_norm or 0) > 0
    assert await published == 1
    assert await policy.publish() == 1
    after = await policy.sample(request(policy, 1, 200))
    assert after.weights_version == 1
    assert not np.array_equal(after.logprobs, there[0].logprobs)

    (trained,) = await policy.score(data[:1], "trained")
    (reference,) = await policy.score(data[:1], "reference")
    np.testing.assert_allclose(reference, there[0].logprobs, atol=1e-4)
    assert trained.sum() > reference.sum()


async def test_what_is_drawn_from_is_asked_for(make_policy: MakePolicy) -> None:
    policy, local = await make_policy(), LocalPolicy()
    await local.start()
    sampling = SamplingParams(0.7, top_p=0.9, top_k=20, stop=("END",))
    wanted = dataclasses.replace(request(policy), sampling=sampling)
    there, here = await policy.sample(wanted), await local.sample(wanted)
    await local.close()
    assert there.completion_ids == here.completion_ids
    assert there.model_logprobs is not None
    assert np.isnan(there.model_logprobs).all()


async def test_what_has_no_room_is_refused_and_what_has_little_is_cut(
    make_policy: MakePolicy,
) -> None:
    policy = await make_policy(context_limit=64)
    assert policy.info.context_limit == 64
    prompt = (prompt_of(policy) * 64)[:60]
    sample = await policy.sample(SampleRequest(prompt, 100, MODEL_ITSELF, 3))
    assert len(sample.completion_ids) <= 4
    with pytest.raises(ContextOverflowError, match="64 tokens"):
        await policy.sample(SampleRequest((prompt * 2)[:64], 1, MODEL_ITSELF, 3))
    with pytest.raises(PolicyError, match="max_tokens"):
        await policy.sample(SampleRequest(prompt, 0, MODEL_ITSELF, 3))


async def test_a_cancelled_sample_is_cancelled_at_the_server(
    make_policy: MakePolicy, tinker_server: TinkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tinker.lib.internal_client_holder as holder

    cancelled: list[str] = []
    monkeypatch.setattr(
        holder.InternalClientHolder, "enqueue_cancel", lambda _, promise: cancelled.append(promise)
    )
    policy = await make_policy()
    tinker_server.faults.pause(kinds=["asample"], reason="all samplers are taken")
    asked = asyncio.create_task(policy.sample(request(policy)))
    before = tinker_server.record.requests["retrieve"]
    await until(lambda: tinker_server.record.requests["retrieve"] > before)
    assert policy.status().in_flight == 1
    assert policy.status().activity == "sampling"
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await until(lambda: cancelled)
    assert policy.status().in_flight == 0


async def test_a_checkpoint_is_gone_on_from_in_another_session_and_deleted(
    make_policy: MakePolicy, tinker_server: TinkerServer, tmp_path: Path
) -> None:
    first = await make_policy(checkpoint_ttl_hours=2)
    sample = await first.sample(request(first))
    await train(first, sample)
    await first.save(tmp_path / "checkpoint")
    await train(first, sample)
    continued = await first.sample(request(first))
    assert continued.weights_version == 2

    saved = json.loads((tmp_path / "checkpoint" / "tinker.json").read_text())
    assert saved["state_path"].startswith("tinker://")
    assert "a-run-000001" in saved["state_path"]
    assert (saved["model_name"], saved["lora_rank"], saved["weights_version"]) == ("starter", 32, 1)
    assert saved["server"] == tinker_server.url and saved["reference"] is None
    assert saved["expires_at"] - saved["saved_at"] == 2 * 3600
    assert "tml-" not in (tmp_path / "checkpoint" / "tinker.json").read_text()
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["tinker.json"]

    second = await make_policy()
    await second.load(tmp_path / "checkpoint")
    loaded = await second.sample(request(second))
    assert loaded.weights_version == 1
    await train(second, sample)  # with the optimiser's moments: the same step again
    again = await second.sample(request(second))
    assert again.weights_version == 2
    assert again.completion_ids == continued.completion_ids
    np.testing.assert_allclose(again.logprobs, continued.logprobs, atol=1e-4)
    data = [datum_of(prompt_of(second), sample)]
    (reference,) = await second.score(data, "reference")
    np.testing.assert_allclose(reference, sample.logprobs, atol=1e-4)

    deleted = tinker_server.record.requests["delete_checkpoint"]
    await second.forget(tmp_path / "checkpoint")
    await second.forget(tmp_path / "checkpoint")  # it is gone already
    await second.forget(tmp_path)  # there never was one
    assert tinker_server.record.requests["delete_checkpoint"] == deleted + 2
    with pytest.raises(PolicyError, match=r"begin a new run") as refused:
        await second.load(tmp_path / "checkpoint")
    assert "\n" not in str(refused.value)
    # What was trained before is still there.
    assert (await second.sample(request(second))).weights_version == 2


async def test_a_run_that_goes_on_makes_one_training_client(
    make_policy: MakePolicy, tinker_server: TinkerServer, tmp_path: Path
) -> None:
    first = await make_policy()
    sample = await first.sample(request(first))
    await train(first, sample)
    await first.save(tmp_path)
    stored = first.status().stored_bytes
    assert stored is not None and stored > 0

    before = tinker_server.record.requests.copy()
    second = await make_policy(resume=tmp_path)
    assert second.status().stored_bytes == stored
    await second.load(tmp_path)
    made = tinker_server.record.requests - before
    assert (made["create_model"], made["load_weights"]) == (0, 1)
    assert made["save_weights_for_sampler"] == 1
    assert (await second.sample(request(second))).weights_version == 1
    data = [datum_of(prompt_of(second), sample)]
    (reference,) = await second.score(data, "reference")
    np.testing.assert_allclose(reference, sample.logprobs, atol=1e-4)
    await train(second, sample)
    assert (await second.sample(request(second))).weights_version == 2
    # Once it has trained, the same checkpoint is another state.
    await second.load(tmp_path)
    assert (await second.sample(request(second))).weights_version == 1


async def test_a_run_that_was_stopped_for_too_long_is_told_why_it_cannot_go_on(
    make_policy: MakePolicy, tinker_server: TinkerServer, tmp_path: Path
) -> None:
    policy = await make_policy(checkpoint_ttl_hours=1)
    await policy.save(tmp_path)
    saved = json.loads((tmp_path / "tinker.json").read_text())
    await tinker_server.expire(saved["state_path"])
    saved |= {"saved_at": 0.0, "expires_at": 3600.0}
    (tmp_path / "tinker.json").write_text(json.dumps(saved))
    with pytest.raises(PolicyError, match=r"it expired on 1970-.* \(checkpoint_ttl_hours\)") as no:
        await make_policy(resume=tmp_path)
    assert "begin a new run, with checkpoint=" in str(no.value)
    assert "\n" not in str(no.value)


async def test_a_checkpoint_of_something_else_is_refused(
    make_policy: MakePolicy, tinker_server: TinkerServer, tmp_path: Path
) -> None:
    policy = await make_policy()
    await policy.save(tmp_path)
    saved = json.loads((tmp_path / "tinker.json").read_text())
    for changes, reason in (
        ({"model_name": "Qwen/Qwen3-8B"}, "a checkpoint of Qwen/Qwen3-8B, but model_name=starter"),
        ({"lora_rank": 8}, "a checkpoint with lora_rank=8, but lora_rank=32"),
        ({"server": "http://10.0.0.1"}, "set tinker_base_url=http://10.0.0.1"),
        ({"format_version": 9}, "format tbtui-tinker-checkpoint 9"),
        ({"weights_version": "x"}, "not a checkpoint of a Tinker server"),
    ):
        (tmp_path / "tinker.json").write_text(json.dumps(saved | changes))
        with pytest.raises(PolicyError, match=reason):
            await policy.load(tmp_path)
        with pytest.raises(PolicyError, match=reason):
            await make_policy(checkpoint=str(tmp_path))
    with pytest.raises(PolicyError, match=r"tinker\.json is missing"):
        await policy.load(tmp_path / "nothing")


@pytest.mark.slow
async def test_a_training_that_starts_from_a_checkpoint_has_it_as_its_reference(
    make_policy: MakePolicy, tinker_server: TinkerServer, tmp_path: Path
) -> None:
    first = await make_policy()
    await train(first, await first.sample(request(first)))
    await first.save(tmp_path / "start")
    start = await first.sample(request(first))

    second = await make_policy(checkpoint=str(tmp_path / "start"))
    sample = await second.sample(request(second))
    assert sample.weights_version == 0
    assert sample.completion_ids == start.completion_ids
    await train(second, sample)
    await second.save(tmp_path / "later")
    data = [datum_of(prompt_of(second), sample)]
    (reference,) = await second.score(data, "reference")
    np.testing.assert_allclose(reference, sample.logprobs, atol=1e-4)
    await tinker_server.expire()  # they are made again
    (reference,) = await second.score(data, "reference")
    np.testing.assert_allclose(reference, sample.logprobs, atol=1e-4)

    # A policy that only goes on knows the reference from the checkpoint.
    third = await make_policy()
    await third.load(tmp_path / "later")
    (reference,) = await third.score(data, "reference")
    np.testing.assert_allclose(reference, sample.logprobs, atol=1e-4)


class _Told:
    """A sampling client that tells the same log-probabilities of anything."""

    def __init__(self, values: list[float | None]) -> None:
        self._values = values

    async def compute_logprobs(self, prompt: object) -> list[float | None]:
        return self._values


@pytest.mark.parametrize("told", [[None, -0.5, -1.0], [-0.5, -1.0]])
async def test_reference_logprobs_of_the_hosted_service_and_of_skyrl(
    told: list[float | None],
) -> None:
    mask = np.array([False, True, True])
    zeros = np.zeros(3, np.float32)
    data = Datum(np.array([1, 2, 3], np.int32), mask, zeros, zeros, zeros)
    client: Any = _Told(told)
    (scores,) = await Sampler(client, 0).score([data])
    assert scores.tolist() == [-0.5, -1.0]
    short: Any = _Told([-1.0])
    with pytest.raises(PolicyError, match="gave 1 log-probabilities of a sequence of 3 tokens"):
        await Sampler(short, 0).score([data])


async def test_it_is_closed_with_its_true_status(
    make_policy: MakePolicy, tinker_server: TinkerServer, tmp_path: Path
) -> None:
    known = set(tinker_server.record.finished)
    policy = await make_policy()
    tinker_server.faults.pause(kinds=["asample", "save_weights"])
    sample = asyncio.create_task(policy.sample(request(policy)))
    saving = asyncio.create_task(policy.save(tmp_path))
    await until(lambda: policy.status().in_flight == 1)
    await policy.close("errored")
    for call in (sample, saving):
        with pytest.raises(PolicyError):
            await call
    (ended,) = [ended for name, ended in tinker_server.record.finished.items() if name not in known]
    assert ended[0] == "errored"
    with pytest.raises(PolicyError):
        await policy.sample(request(policy))
    with pytest.raises(PolicyError):
        await policy.publish()
    await policy.close()  # once more does nothing
    assert not [t for t in threading.enumerate() if "tinker" in t.name and not t.daemon]


@pytest.mark.slow
async def test_it_closes_in_seconds_when_its_server_is_dead(
    make_policy: MakePolicy, tinker_server: TinkerServer
) -> None:
    policy = await make_policy()
    await tinker_server.kill()
    try:
        async with asyncio.timeout(30):
            await policy.close("interrupted")
        assert policy.status().in_flight == 0
    finally:
        tinker_server.start()


async def test_a_policy_that_never_started_closes(tmp_path: Path) -> None:
    from tbtui.policies.tinker.training_run import TinkerSettings

    with (tmp_path / "log").open("ab") as log:
        policy = TinkerPolicy(TinkerSettings("starter"), log)
        with pytest.raises(PolicyError, match="has not been started"):
            _ = policy.info
        await policy.close()
