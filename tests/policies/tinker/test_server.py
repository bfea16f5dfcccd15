"""The genuine Tinker SDK against the test server: what it computes, and that every fault arrives
at the SDK as it should."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import numpy as np
import psutil
import pytest
import pytest_asyncio
import tinker
from tinker.lib.api_future_impl import QueueState, QueueStateObserver
from tinker.types import LossFnType, RequestErrorCategory

from tbtui.policies.base import Datum, LossSettings, Message, OptimSettings, SampleRequest
from tbtui.policies.local.checkpoint_file import read_checkpoint
from tbtui.policies.local.client import LocalPolicy
from tbtui.policies.local.tokenizer import SHIPPED
from tests.policies.tinker.sdk import (
    END,
    KEY,
    RENDERER,
    policy_datum,
    prompt,
    sampling,
    tinker_datum,
    whole_datum,
)
from tests.tinker_server.errors import Category
from tests.tinker_server.faults import Faults
from tests.tinker_server.process import server_process
from tests.tinker_server.server import TinkerServer
from tests.tinker_server.settings import ServedModel, ServerSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPTS = [RENDERER.render([Message("user", text)]) for text in ("Say 1", "List the files", "Hi")]
STEP = tinker.AdamParams(learning_rate=1e-3, eps=1e-8)
DATUM = tinker.Datum(
    model_input=prompt(PROMPTS[0][:-1]),
    loss_fn_inputs={
        "target_tokens": tinker.TensorData(list(PROMPTS[0][1:]), "int64"),
        "weights": tinker.TensorData([1.0] * len(PROMPTS[0][1:]), "float32"),
    },
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinkerServer]:
    settings = ServerSettings(
        tmp_path_factory.mktemp("server"),
        {"starter": ServedModel(), "sample-only": ServedModel(99, trainable=False)},
        client_config={"fwdbwd_max_chunk_len": 5, "proto_compress_fwdbwd": True},
        poll_seconds=2.0,
    )
    server = TinkerServer(settings, Faults())
    server.start()
    yield server
    asyncio.run(server.kill())


@pytest.fixture(autouse=True)
def no_faults_left(server: TinkerServer) -> Iterator[None]:
    yield
    server.faults.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(server: TinkerServer) -> AsyncIterator[tinker.ServiceClient]:
    service = tinker.ServiceClient(base_url=server.url, api_key=KEY)
    yield service
    await service.close("success")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def training(service: tinker.ServiceClient) -> tinker.TrainingClient:
    """Shared, as to start a policy takes its time: tests count on nothing that was done to it."""
    return await new_training(service)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sampler(service: tinker.ServiceClient) -> tinker.SamplingClient:
    client = await service.create_sampling_client(base_model="starter")
    assert isinstance(client, tinker.SamplingClient)
    return client


@pytest.fixture
def rest(server: TinkerServer) -> tinker.RestClient:
    return tinker.RestClient(base_url=server.url, api_key=KEY)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started() -> AsyncIterator[LocalPolicy]:
    policy = LocalPolicy()
    await policy.start()
    yield policy
    await policy.close()


@pytest_asyncio.fixture(loop_scope="module")
async def local(started: LocalPolicy) -> LocalPolicy:
    """The embedded policy as it is shipped."""
    await started.load(SHIPPED)
    return started


async def new_training(service: tinker.ServiceClient) -> tinker.TrainingClient:
    client = await service.create_lora_training_client(base_model="starter", rank=8)
    assert isinstance(client, tinker.TrainingClient)
    return client


# What it computes


async def test_the_same_seeds_draw_the_embedded_policys_tokens(
    sampler: tinker.SamplingClient, local: LocalPolicy
) -> None:
    asked = [(ids, seed) for ids in PROMPTS for seed in (3, 1 << 40)]
    answers = await asyncio.gather(
        *(sampler.sample(prompt(ids), 1, sampling(seed)) for ids, seed in asked)
    )
    expected = await asyncio.gather(
        *(local.sample(SampleRequest(ids, 24, 1.0, seed)) for ids, seed in asked)
    )
    for answer, sample in zip(answers, expected, strict=True):
        (sequence,) = answer.sequences
        assert tuple(sequence.tokens) == sample.completion_ids
        assert sequence.stop_reason == sample.stop_reason
        np.testing.assert_allclose(sequence.logprobs, sample.logprobs, atol=1e-5)
    ids = [answer.sequences[0].sequence_id for answer in answers]
    assert len(set(ids)) == len(ids)


async def test_several_samples_stop_tokens_prompt_logprobs_and_cache_hits(
    service: tinker.ServiceClient, sampler: tinker.SamplingClient, local: LocalPolicy
) -> None:
    ids = (*PROMPTS[1], *PROMPTS[0], *PROMPTS[2], *PROMPTS[1])
    greedy = tinker.SamplingParams(max_tokens=20, seed=1, temperature=0.0)
    several = await sampler.sample(prompt(ids), 3, sampling(7), include_prompt_logprobs=True)
    assert len({tuple(each.tokens) for each in several.sequences}) > 1
    assert several.prompt_cache_hit_tokens == 0
    datum = dataclasses.replace(
        whole_datum(ids, await local.sample(SampleRequest(ids, 1, 1.0, 0)), 0.0)
    )
    (scores,) = await local.score([datum], "trained")
    assert several.prompt_logprobs is not None and several.prompt_logprobs[0] is None
    np.testing.assert_allclose(several.prompt_logprobs[1:], scores[: len(ids) - 1], atol=1e-5)

    whole = await sampler.sample(prompt(ids), 1, greedy)
    again = await sampler.sample(prompt((*ids, *whole.sequences[0].tokens)), 1, greedy)
    assert whole.prompt_cache_hit_tokens == (len(ids) - 1) // 16 * 16
    assert whole.prompt_cache_hit_tokens < again.prompt_cache_hit_tokens < len(ids) + 20
    stop = whole.sequences[0].tokens[4]
    params = tinker.SamplingParams(max_tokens=20, seed=1, temperature=0.0, stop=[stop, END])
    stopped = (await sampler.sample(prompt(ids), 1, params)).sequences[0]
    first = whole.sequences[0].tokens.index(stop)
    assert stopped.stop_reason == "stop"
    assert stopped.tokens == whole.sequences[0].tokens[: first + 1]
    last = await sampler.sample(
        prompt(ids), 1, greedy, include_prompt_logprobs=True, prompt_logprobs_last_n=2
    )
    assert last.prompt_logprobs is not None
    assert [value is None for value in last.prompt_logprobs[-3:]] == [True, False, False]
    assert len(await sampler.compute_logprobs(prompt(ids))) == len(ids)


async def test_every_losss_gradient_is_the_embedded_policys(
    server: TinkerServer,
    service: tinker.ServiceClient,
    local: LocalPolicy,
    tmp_path: Path,
) -> None:
    training = await new_training(service)
    requests = [SampleRequest(ids, 16, 1.0, seed) for seed, ids in enumerate(PROMPTS * 2)]
    samples = await asyncio.gather(*(local.sample(request) for request in requests))
    data = [
        whole_datum(request.prompt_ids, sample, (-1.0) ** i * (1 + i / 4))
        for i, (request, sample) in enumerate(zip(requests, samples, strict=True))
    ]
    rng = np.random.default_rng(0)
    for datum in data:  # ratios that are clipped on both sides
        datum.logprobs[datum.advantages != 0] += rng.normal(0, 0.3, (datum.advantages != 0).sum())
    drawn = [dataclasses.replace(datum, mask=datum.advantages != 0) for datum in data]
    weights = [rng.uniform(0, 2, len(datum.tokens)).astype(np.float32) for datum in data]
    ones = [np.ones(len(datum.tokens), np.float32) for datum in data]
    clips = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.3}
    bounds = {"clip_low": 0.1, "clip_high": 0.3}
    cases: list[
        tuple[LossFnType, dict[str, float], list[tinker.Datum], list[Datum], LossSettings]
    ] = [
        (
            "cross_entropy",
            {},
            [tinker_datum(d, {"weights": w}) for d, w in zip(data, weights, strict=True)],
            [
                dataclasses.replace(d, weights=w, advantages=o)
                for d, w, o in zip(data, weights, ones, strict=True)
            ],
            LossSettings("dro", dro_beta=0.0),
        ),
        (
            "importance_sampling", {}, [policy_datum(d) for d in data], drawn,
            LossSettings("importance_sampling"),
        ),
        ("ppo", clips, [policy_datum(d) for d in data], drawn, LossSettings("ppo", **bounds)),
        ("cispo", clips, [policy_datum(d) for d in data], drawn, LossSettings("cispo", **bounds)),
        (
            "dro", {"beta": 0.2}, [policy_datum(d) for d in data], data,
            LossSettings("dro", dro_beta=0.2),
        ),
        (
            "gspo",
            clips,
            [
                tinker_datum(
                    d,
                    {
                        "logprobs": d.logprobs,
                        "advantages": d.advantages,
                        "sequence_ratio_mask": d.advantages != 0,
                    },
                )
                for d in data
            ],
            drawn,
            LossSettings("gspo", **bounds),
        ),
    ]  # fmt: skip
    still = tinker.AdamParams(learning_rate=0.0, eps=1e-8)
    before = [np.zeros(1, np.float32)] * 2
    whole = await local.score(data, "trained")
    for name, config, theirs, ours, settings in cases:
        forward = training.forward(theirs, name, config)
        result = training.forward_backward(theirs, name, config)
        step = training.optim_step(still)
        saved = training.save_state(name)
        expected = await local.accumulate(ours, settings)
        applied = await local.apply(OptimSettings(learning_rate=0.0))
        await local.save(tmp_path)
        for outcome in (await result, await forward):
            assert outcome.metrics["loss:sum"] == pytest.approx(expected.loss, rel=1e-5), name
            for output, logprobs in zip(outcome.loss_fn_outputs, whole, strict=True):
                np.testing.assert_allclose(output["logprobs"].to_numpy(), logprobs, atol=1e-5)
        norm = (await step).metrics["unclipped_grad_l2:mean"]
        assert norm == pytest.approx(applied.grad_norm, rel=1e-5), name
        directory = (
            server.settings.state_dir / "runs" / (await saved).path.removeprefix("tinker://")
        )
        moments = [first_moment(directory), first_moment(tmp_path)]
        gradients = [
            (now - np.float32(0.9) * last) / np.float32(0.1)
            for now, last in zip(moments, before, strict=True)
        ]
        before = moments
        assert np.abs(gradients[0] - gradients[1]).max() < 1e-6 * norm, name
    assert server.record.applied_steps[training.model_id] == len(cases)


def first_moment(directory: Path) -> np.ndarray:
    moment = read_checkpoint(directory).first_moment
    assert moment is not None
    return moment


@pytest.mark.slow
async def test_five_steps_learn_what_the_embedded_policy_learns(
    service: tinker.ServiceClient, local: LocalPolicy
) -> None:
    training = await new_training(service)
    token = PROMPTS[1][-3]
    rewards = []
    for step in range(5):
        sampler = await training.save_weights_and_get_sampling_client()
        asked = [(ids, 100 * step + seed) for ids in PROMPTS for seed in range(4)]
        answers = await asyncio.gather(
            *(sampler.sample(prompt(ids), 1, sampling(seed, 12)) for ids, seed in asked)
        )
        samples = await asyncio.gather(
            *(local.sample(SampleRequest(ids, 12, 1.0, seed)) for ids, seed in asked)
        )
        assert [tuple(answer.sequences[0].tokens) for answer in answers] == [
            sample.completion_ids for sample in samples
        ]
        found = np.array([len(s.completion_ids) - s.completion_ids.count(token) for s in samples])
        rewards.append(-float(found.mean()))
        advantages = (found.mean() - found) / len(samples)
        data = [
            whole_datum(ids, sample, float(advantage))
            for (ids, _), sample, advantage in zip(asked, samples, advantages, strict=True)
        ]
        gradient = training.forward_backward([policy_datum(d) for d in data], "importance_sampling")
        applied = training.optim_step(STEP)
        await local.accumulate(data, LossSettings())
        await local.apply(OptimSettings(learning_rate=1e-3))
        await local.publish()
        await gradient
        await applied
    assert rewards[-1] > rewards[0]


# The endpoints


async def test_says_what_it_is_and_does(
    service: tinker.ServiceClient, training: tinker.TrainingClient, rest: tinker.RestClient
) -> None:
    models = {m.model_name: m for m in (await rest.get_server_capabilities()).supported_models}
    assert models["starter"].trainable and models["starter"].max_context_length == 1024
    assert not models["sample-only"].trainable and models["sample-only"].max_context_length == 99
    info = training.get_info()
    assert (info.model_data.model_name, info.is_lora) == ("starter", False)
    with pytest.raises(tinker.NotFoundError, match="no-such is not served"):
        await service.create_lora_training_client(base_model="no-such")
    with pytest.raises(tinker.UnprocessableEntityError, match="can't be trained"):
        await service.create_lora_training_client(base_model="sample-only")


async def test_checkpoints_are_saved_listed_kept_for_a_time_and_deleted(
    training: tinker.TrainingClient, service: tinker.ServiceClient, rest: tinker.RestClient
) -> None:
    run = training.model_id
    saved = await training.save_state("one", ttl_seconds=7200, user_metadata={"step": "0"})
    named = await training.save_weights_for_sampler("two")
    assert saved.path == f"tinker://{run}/weights/one"
    assert named.path == f"tinker://{run}/sampler_weights/two"
    with pytest.raises(tinker.RequestFailedError, match="already exists"):
        await training.save_state("one")
    await training.save_state("one", overwrite=True)
    listed = (await rest.list_checkpoints(run)).checkpoints
    assert [(c.checkpoint_id, c.checkpoint_type) for c in listed] == [
        ("sampler_weights/two", "sampler"),
        ("weights/one", "training"),
    ]
    assert all(checkpoint.size_bytes for checkpoint in listed)
    await rest.set_checkpoint_ttl_from_tinker_path(named.path, 3600)
    (kept,) = [c for c in (await rest.list_checkpoints(run)).checkpoints if c.expires_at]
    assert kept.tinker_path == named.path
    assert (await rest.get_weights_info_by_tinker_path(saved.path)).base_model == "starter"
    found = await rest.get_training_run(run)
    assert found.last_checkpoint is not None and found.last_checkpoint.tinker_path == saved.path
    runs = await rest.list_training_runs()
    assert run in [each.training_run_id for each in runs.training_runs]
    assert len((await rest.list_user_checkpoints()).checkpoints) >= 2
    session = await rest.get_session(run.split(":")[0])
    assert run in session.training_run_ids
    assert run.split(":")[0] in (await rest.list_sessions(limit=1000)).sessions
    await rest.delete_checkpoint_from_tinker_path(saved.path)
    with pytest.raises(tinker.NotFoundError):
        await rest.get_weights_info_by_tinker_path(saved.path)
    client = await service.create_sampling_client(model_path=named.path)
    assert client.get_base_model() == "starter"


async def test_training_goes_on_from_a_checkpoint(
    training: tinker.TrainingClient, service: tinker.ServiceClient
) -> None:
    async def step(client: tinker.TrainingClient) -> float:
        gradient = client.forward_backward([DATUM], "cross_entropy")
        applied = client.optim_step(STEP)
        await applied
        return float((await gradient).metrics["loss:sum"])

    await step(training)
    saved = (await training.save_state("state")).path
    sampler = (await training.save_weights_for_sampler("sampler")).path
    resumed = await service.create_training_client_from_state_with_optimizer(saved)
    weights = await service.create_training_client_from_state(sampler)
    with pytest.raises(tinker.UnprocessableEntityError, match="no optimizer state"):
        await service.create_training_client_from_state_with_optimizer(sampler)
    first = [await step(client) for client in (training, resumed, weights)]
    second = [await step(client) for client in (training, resumed, weights)]
    assert first == pytest.approx([first[0]] * 3)
    assert second[0] == pytest.approx(second[1])
    assert second[0] != pytest.approx(second[2]), "without its moments AdamW steps elsewhere"


async def test_closes_a_session_with_its_status(server: TinkerServer) -> None:
    for status in ("success", "errored", "interrupted"):
        service = tinker.ServiceClient(base_url=server.url, api_key=KEY)
        await service.create_sampling_client(base_model="starter")
        session = service.holder.get_session_id()
        await service.close(status, detail="why")
        assert server.record.finished[session] == (status, "why")
    headers = {"X-API-Key": KEY}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
        answer = await client.post("/api/v1/session_heartbeat", json={"session_id": session})
        assert answer.status_code == 410
        living = (await client.post("/api/v1/create_session", json={})).json()["session_id"]
        await client.post("/api/v1/session_heartbeat", json={"session_id": living})
    assert server.record.heartbeats[living] == 1


async def test_speaks_json_too(server: TinkerServer, training: tinker.TrainingClient) -> None:
    tokens = list(PROMPTS[0])
    datum = {
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens[:-1]}]},
        "loss_fn_inputs": {
            "target_tokens": {"data": tokens[1:], "dtype": "int64"},
            "weights": {"data": [1.0] * len(tokens[1:]), "dtype": "float32"},
        },
    }
    async with httpx.AsyncClient(base_url=server.url, headers={"X-API-Key": KEY}) as client:
        given = {"data": [datum], "loss_fn": "cross_entropy"}
        body = {"model_id": training.model_id, "forward_input": given}
        promise = (await client.post("/api/v1/forward", json=body)).json()
        answer = (await client.post("/api/v1/retrieve_future", json=promise)).json()
    (output,) = answer["loss_fn_outputs"]
    assert len(output["logprobs"]["data"]) == len(tokens) - 1
    assert answer["metrics"]["loss:sum"] == pytest.approx(-sum(output["logprobs"]["data"]))


@pytest.mark.parametrize(
    ("loss_fn", "config", "inputs", "words"),
    [
        ("stable_reinforce", {}, {}, "loss_fn 'stable_reinforce' is not supported"),
        ("cross_entropy", {"beta": 1.0}, {}, "loss_fn_config 'beta'"),
        ("importance_sampling", {}, {}, "needs"),
        ("cross_entropy", {}, {"mask": [1.0]}, "takes no"),
        ("cross_entropy", {}, {"target_tokens": [1, 2]}, "shape"),
    ],
)
async def test_what_it_cant_train_fails_by_name(
    training: tinker.TrainingClient,
    loss_fn: LossFnType,
    config: dict[str, float],
    inputs: dict[str, list[float]],
    words: str,
) -> None:
    arrays = {name: tinker.TensorData.from_numpy(np.array(v)) for name, v in inputs.items()}
    datum = tinker.Datum(DATUM.model_input, {**DATUM.loss_fn_inputs, **arrays})
    with pytest.raises(tinker.RequestFailedError, match=words) as caught:
        await training.forward([datum], loss_fn, config)
    assert caught.value.category is RequestErrorCategory.User


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"top_p": 0.5}, 422),
        ({"top_k": 5}, 422),
        ({"stop": ["x"]}, 422),
        ({"stop": []}, 422),
        ({"max_tokens": 4000}, 400),
    ],
)
async def test_what_it_cant_sample_is_refused(
    sampler: tinker.SamplingClient, params: dict[str, object], status: int
) -> None:
    with pytest.raises(tinker.APIStatusError) as caught:
        await sampler.sample(prompt(PROMPTS[0]), 1, tinker.SamplingParams(**params))
    assert caught.value.status_code == status


async def test_optimizers_it_doesnt_have_are_refused(training: tinker.TrainingClient) -> None:
    for params in (tinker.AdamParams(beta2=0.999), tinker.AdamParams(eps=1e-3)):
        with pytest.raises(tinker.UnprocessableEntityError):
            await training.optim_step(params)
    await training.forward_backward([DATUM], "cross_entropy")
    await training.optim_step(STEP)
    with pytest.raises(tinker.RequestFailedError, match="no gradient"):
        await training.optim_step(STEP)


# Faults


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, tinker.AuthenticationError),
        (404, tinker.NotFoundError),
        (410, tinker.APIStatusError),
        (422, tinker.UnprocessableEntityError),
    ],
)
async def test_refusals_reach_the_sdk_and_the_next_request_goes_on(
    server: TinkerServer,
    training: tinker.TrainingClient,
    status: int,
    error: type[Exception],
) -> None:
    server.faults.answer("forward_backward", status, detail="as injected")
    refused = training.forward_backward([DATUM], "cross_entropy")
    again = training.forward_backward([DATUM], "cross_entropy")
    with pytest.raises(error, match="as injected"):
        await refused
    assert (await again).metrics["loss:sum"] > 0


async def test_billing_and_a_wrong_key_reach_the_sdk(
    server: TinkerServer, service: tinker.ServiceClient
) -> None:
    server.faults.answer("create_model", 402, detail="pay first")
    with pytest.raises(tinker.BillingError, match="pay first"):
        await service.create_lora_training_client(base_model="starter")
    async with httpx.AsyncClient(base_url=server.url) as client:
        answer = await client.post("/api/v1/create_session", headers={"X-API-Key": "other"})
    assert answer.status_code == 401


@pytest.mark.slow
async def test_a_step_is_applied_once_however_often_it_is_sent(
    server: TinkerServer, training: tinker.TrainingClient
) -> None:
    repeats = server.record.repeats["optim_step"]
    steps = server.record.applied_steps[training.model_id]
    for number, status in enumerate((None, 408, 409, 429, 500, 503)):
        if status is None:
            server.faults.lose("optim_step")
        else:
            server.faults.answer("optim_step", status)
        gradient = training.forward_backward([DATUM], "cross_entropy")
        applied = training.optim_step(STEP)
        await gradient
        await applied
        assert server.faults.pending == 0
        assert server.record.applied_steps[training.model_id] == steps + number + 1
    assert server.record.repeats["optim_step"] == repeats + 1


async def test_lost_and_slow_answers_are_answered_as_the_first_time(
    server: TinkerServer, training: tinker.TrainingClient, sampler: tinker.SamplingClient
) -> None:
    server.faults.lose("asample")
    server.faults.lose("forward_backward")
    server.faults.lose("retrieve:forward_backward")
    server.faults.slow("retrieve:asample", 0.2)
    gradient = training.forward_backward([DATUM] * 12, "cross_entropy")
    sample = sampler.sample(prompt(PROMPTS[0]), 1, sampling(1))
    assert len((await gradient).loss_fn_outputs) == 12
    assert len((await sample).sequences) == 1
    assert server.faults.pending == 0


@pytest.mark.parametrize("category", ["unknown", "server", "user"])
async def test_a_failed_request_has_its_category(
    server: TinkerServer, training: tinker.TrainingClient, category: Category
) -> None:
    server.faults.fail("forward_backward", category=category, detail="bad luck")
    with pytest.raises(tinker.RequestFailedError, match="bad luck") as caught:
        await training.forward_backward([DATUM], "cross_entropy")
    assert caught.value.category is RequestErrorCategory(category)


async def test_a_step_can_fail_after_it_was_applied(
    server: TinkerServer, training: tinker.TrainingClient
) -> None:
    steps = server.record.applied_steps[training.model_id]
    server.faults.fail("optim_step", carried_out=True)
    gradient = training.forward_backward([DATUM], "cross_entropy")
    applied = training.optim_step(STEP)
    await gradient
    with pytest.raises(tinker.RequestFailedError):
        await applied
    assert server.record.applied_steps[training.model_id] == steps + 1


class _States(QueueStateObserver):
    def __init__(self, awaited: QueueState) -> None:
        self.seen: list[tuple[QueueState, str | None]] = []
        self.awaited = awaited
        self.arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def on_queue_state_change(self, queue_state: QueueState, reason: str | None) -> None:
        self.seen.append((queue_state, reason))
        if queue_state is self.awaited:
            self._loop.call_soon_threadsafe(self.arrived.set)


@pytest.mark.parametrize("state", [QueueState.PAUSED_CAPACITY, QueueState.PAUSED_RATE_LIMIT])
async def test_queue_states_are_told_until_it_goes_on(
    server: TinkerServer, training: tinker.TrainingClient, state: QueueState
) -> None:
    steps = server.record.applied_steps[training.model_id]
    states = training._queue_state_logger = _States(state)  # type: ignore[assignment]
    server.faults.pause(state.value, "because", kinds=["optim_step"])
    gradient = training.forward_backward([DATUM], "cross_entropy")
    applied = training.optim_step(STEP)
    await gradient
    await states.arrived.wait()
    assert server.record.applied_steps[training.model_id] == steps
    server.faults.resume()
    await applied
    assert (state, "because") in states.seen
    assert states.seen[-1] == (QueueState.ACTIVE, None)


async def test_a_pause_can_end_by_itself(
    server: TinkerServer, sampler: tinker.SamplingClient
) -> None:
    server.faults.pause(seconds=0.3)
    assert (await sampler.sample(prompt(PROMPTS[0]), 1, sampling(1))).sequences


async def test_sampling_weights_expire(
    server: TinkerServer, service: tinker.ServiceClient, training: tinker.TrainingClient
) -> None:
    ephemeral = await training.save_weights_and_get_sampling_client()
    path = (await training.save_weights_for_sampler("soon")).path
    named = await service.create_sampling_client(model_path=path)
    base = await service.create_sampling_client(base_model="starter")
    await server.expire()
    for client in (ephemeral, named):
        with pytest.raises(tinker.NotFoundError, match="expired"):
            await client.sample(prompt(PROMPTS[0]), 1, sampling(1))
    assert (await base.sample(prompt(PROMPTS[0]), 1, sampling(1))).sequences
    await server.expire(path)
    with pytest.raises(tinker.NotFoundError, match="expired"):
        await service.create_sampling_client(model_path=path)


async def test_a_training_run_is_deleted_elsewhere(
    server: TinkerServer, service: tinker.ServiceClient, rest: tinker.RestClient
) -> None:
    training = await new_training(service)
    server.faults.pause(kinds=["forward_backward"])
    waiting = training.forward_backward([DATUM], "cross_entropy")
    queued = training.optim_step(STEP)
    await training.holder.run_coroutine_threadsafe(_turn(training, 2))
    await server.delete_run(training.model_id)
    for future in (waiting, queued):
        with pytest.raises(tinker.RequestFailedError, match="gone"):
            await future
    with pytest.raises(tinker.NotFoundError):
        await training.save_state("late")
    with pytest.raises(tinker.NotFoundError):
        await rest.get_training_run(training.model_id)


async def _turn(training: tinker.TrainingClient, turn: int) -> None:
    """On the SDK's loop: until so many requests have been accepted."""
    async with training._take_turn(turn):
        training._turn_counter -= 1


@pytest.mark.slow
async def test_a_killed_server_comes_back_with_its_checkpoints_alone(tmp_path: Path) -> None:
    server = TinkerServer(ServerSettings(tmp_path), Faults())
    server.start()
    try:
        service = tinker.ServiceClient(base_url=server.url, api_key=KEY)
        training = await service.create_lora_training_client(base_model="starter")
        path = (await training.save_state("kept")).path
        server.faults.pause(kinds=["forward_backward"])
        waiting = training.forward_backward([DATUM], "cross_entropy")
        await training.holder.run_coroutine_threadsafe(_turn(training, 2))
        url = server.url
        await server.kill()
        server.faults.clear()
        server.start()
        assert server.url == url
        with pytest.raises(Exception, match="Promise expired"):
            await waiting
        with pytest.raises(tinker.NotFoundError):
            await training.optim_step(STEP)
        again = tinker.ServiceClient(base_url=server.url, api_key=KEY)
        resumed = await again.create_training_client_from_state_with_optimizer(path)
        assert (await resumed.forward([DATUM], "cross_entropy")).metrics["loss:sum"] > 0
        await again.close("interrupted")
    finally:
        await server.kill()


@pytest.mark.slow
async def test_as_a_process_it_is_killed_and_started_again(tmp_path: Path) -> None:
    async with server_process(tmp_path, ["starter", "other"]) as server:
        service = tinker.ServiceClient(base_url=server.url, api_key=KEY)
        training = await service.create_lora_training_client(base_model="other")
        await server.control("fault", action="lose", kind="optim_step")
        gradient = training.forward_backward([DATUM], "cross_entropy")
        applied = training.optim_step(STEP)
        await gradient
        await applied
        path = (await training.save_state("kept")).path
        record = await server.record()
        assert record["applied_steps"] == {training.model_id: 1}
        assert (record["repeats"], record["pending_faults"]) == ({"optim_step": 1}, 0)
        policies = psutil.Process(server.pid).children()
        await server.kill()
        assert psutil.wait_procs(policies, timeout=20)[1] == []
        await server.start()
        assert (await server.record())["applied_steps"] == {training.model_id: 1}
        again = tinker.ServiceClient(base_url=server.url, api_key=KEY)
        resumed = await again.create_training_client_from_state_with_optimizer(path)
        assert resumed.get_info().model_data.model_name == "other"
        process = psutil.Process(server.pid)
        process.send_signal(signal.SIGTERM)
        await server.stop()
        assert not process.is_running()
