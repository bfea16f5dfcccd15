"""A policy on a vLLM server, over real HTTP, with the embedded model behind it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

from tbtui.policies.base import (
    MODEL_ITSELF,
    ContextOverflowError,
    LossSettings,
    OptimSettings,
    PolicyError,
    SampleRequest,
    SamplingParams,
)
from tbtui.policies.local.client import LocalPolicy
from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED
from tbtui.policies.vllm import metrics as metrics_module
from tbtui.policies.vllm.metrics import read_metrics
from tbtui.policies.vllm.policy import VllmPolicy
from tbtui.server_status import ServerStatus
from tests.policies.asking import request
from tests.policies.served.conftest import MakePolicy
from tests.policies.served.server import VllmServer
from tests.waiting import until


async def test_it_samples_what_the_embedded_policy_does(make_policy: MakePolicy) -> None:
    policy, local = await make_policy(), LocalPolicy()
    await local.start()
    seeds = (1, 2, 2**63 - 1)
    here = await asyncio.gather(*(local.sample(request(local, seed, 200)) for seed in seeds))
    await local.close()
    there = await asyncio.gather(*(policy.sample(request(policy, seed, 200)) for seed in seeds))
    assert [s.completion_ids for s in there] == [s.completion_ids for s in here]
    assert [s.stop_reason for s in there] == [s.stop_reason for s in here]
    assert "stop" in {s.stop_reason for s in there}
    for ours, its in zip(here, there, strict=True):
        assert its.logprobs.dtype == np.float32
        np.testing.assert_allclose(its.logprobs, ours.logprobs, atol=1e-4)
    assert {(s.weights_version, s.cached_tokens) for s in there} == {(0, None)}

    info = policy.info
    assert (info.name, info.model_name, info.context_limit) == ("vllm", "starter", 1024)
    assert info.tokenizer == local.info.tokenizer
    assert info.losses == ()
    assert not info.notes
    assert info.honours == {"vllm_base_url", "renderer"}  # the embedded renderer knows the rest
    status = policy.status()
    assert (status.completed, status.in_flight, status.running) == (3, 0, 0)
    assert status.sampled_tokens == sum(len(s.completion_ids) for s in there)
    assert status.server is not None
    assert (status.server.state, status.server.prompt_tokens) == ("active", 0)


async def test_what_libraries_log_goes_to_the_policys_log(
    make_policy: MakePolicy,
    vllm_server: VllmServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And not to the terminal, where Hugging Face's would write that it asks again."""
    hugging_face = logging.getLogger("huggingface_hub.utils._http")
    with (tmp_path / "policy.log").open("ab") as log:
        policy = await make_policy(log=log)
        assert policy.info.address == vllm_server.url
        hugging_face.warning("Retrying in 1s [Retry 1/5].")
        await policy.close()
    assert "Retrying in 1s" in (tmp_path / "policy.log").read_text()
    assert capfd.readouterr() == ("", "")


async def test_the_models_own_distribution_is_asked_for(
    make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    """A vLLM server would take what is left out from the model's generation settings."""
    policy = await make_policy()
    wanted = request(policy, seed=2**63 + 5)
    await policy.sample(wanted)
    body = vllm_server.asked[-1]
    assert body["prompt"] == list(wanted.prompt_ids)
    assert body["stop_token_ids"] == list(policy.renderer.stop_ids)
    assert (body["seed"], body["temperature"]) == (5, 1.0)
    assert (body["top_p"], body["top_k"], body["min_p"]) == (1.0, 0, 0.0)
    assert body["repetition_penalty"] == 1.0


async def test_what_is_drawn_from_is_asked_for(
    make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    sampling = SamplingParams(0.7, top_p=0.9, top_k=20, min_p=0.01, stop=("\n\n", "END"))
    policy, local = await make_policy(sampling=sampling), LocalPolicy()
    names = ("temperature", "top_p", "top_k", "min_p", "stop")
    asked = (0.7, 0.9, 20, 0.01, ["\n\n", "END"])
    # As it starts, too: a server that refuses some of it is no server for this run.
    assert tuple(vllm_server.asked[-1][name] for name in names) == asked
    wanted = dataclasses.replace(request(policy), sampling=sampling)
    there = await policy.sample(wanted)
    assert tuple(vllm_server.asked[-1][name] for name in names) == asked
    await local.start()
    here = await local.sample(wanted)
    await local.close()
    assert there.completion_ids == here.completion_ids
    np.testing.assert_allclose(there.logprobs, here.logprobs, atol=1e-4)
    # Whether they are the model's depends on how a server was started.
    assert there.model_logprobs is not None
    assert np.isnan(there.model_logprobs).all()


async def test_a_model_is_found_by_its_own_tokenizer(
    make_policy: MakePolicy, vllm_server: VllmServer, tmp_path: Path
) -> None:
    """The server names a directory that is here too, or the model below an adapter."""
    export(SHIPPED, tmp_path / "exported")
    vllm_server.served.root = str(tmp_path / "exported")
    policy = await make_policy(
        model_name="starter-lora", renderer="template", base_url=vllm_server.url + "/v1/"
    )
    assert policy.info.context_limit == 1024
    wanted = {"vllm_base_url", "renderer", "tokenizer", "thinking", "tool_format"}
    assert policy.info.honours == wanted
    assert not [note for note in policy.info.notes if "tokens" in note]
    sample = await policy.sample(request(policy, max_tokens=200))
    assert vllm_server.asked[-1]["model"] == "starter-lora"
    assert policy.renderer.answer(sample.completion_ids).text


async def test_another_tokenizer_is_told(make_policy: MakePolicy, vllm_server: VllmServer) -> None:
    vllm_server.served.tokenizer_offset = 1
    policy = await make_policy()
    (note,) = policy.info.notes
    assert "the server's tokenizer makes other tokens" in note
    vllm_server.faults.answer("tokenize", 404)
    assert not (await make_policy()).info.notes


async def test_what_has_no_room_is_refused_and_what_has_little_is_cut(
    make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    policy = await make_policy(context_limit=64)
    assert policy.info.context_limit == 64
    prompt = (request(policy).prompt_ids * 64)[:60]
    sample = await policy.sample(SampleRequest(prompt, 100, MODEL_ITSELF, 3))
    assert len(sample.completion_ids) <= 4
    with pytest.raises(ContextOverflowError, match="64 tokens"):
        await policy.sample(SampleRequest((prompt * 2)[:64], 1, MODEL_ITSELF, 3))
    with pytest.raises(PolicyError, match="max_tokens"):
        await policy.sample(SampleRequest(prompt, 0, MODEL_ITSELF, 3))
    # The server may know better.
    vllm_server.served.context = 40
    with pytest.raises(ContextOverflowError, match=r"no room .*\(400: This model's max"):
        await policy.sample(SampleRequest(prompt, 4, MODEL_ITSELF, 3))


async def test_what_the_server_had_in_its_cache_is_told_where_it_tells(
    make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    vllm_server.served.tells_cached = True
    policy = await make_policy()
    wanted = SampleRequest(tuple(range(40, 80)), 1, MODEL_ITSELF, 1)
    assert [(await policy.sample(wanted)).cached_tokens for _ in range(2)] == [0, 32]
    status = policy.status().server
    assert status is not None
    assert (status.prompt_tokens, status.cached_tokens) == (80, 32)


async def test_a_cancelled_sample_is_aborted_at_the_server(
    make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    policy = await make_policy()
    vllm_server.hold()
    asked = asyncio.create_task(policy.sample(request(policy)))
    await until(lambda: vllm_server.in_flight == 1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert await asyncio.to_thread(vllm_server.aborted.wait, 20)
    assert policy.status().in_flight == 0


async def test_the_servers_own_count_says_how_many_are_computed(
    make_policy: MakePolicy, vllm_server: VllmServer
) -> None:
    policy = await make_policy()
    vllm_server.hold()
    vllm_server.served.running = (2, 0)  # as if one of ours waited
    asked = [asyncio.create_task(policy.sample(request(policy, seed))) for seed in range(3)]
    await until(lambda: policy.status().running == 2)
    assert policy.status().in_flight == 3
    vllm_server.served.running = (2, 6)
    await until(lambda: policy.status().running == 3)  # no more than we have asked for
    vllm_server.release()
    await asyncio.gather(*asked)
    assert (policy.status().in_flight, policy.status().running) == (0, 0)


async def test_the_servers_cache_and_latencies_are_told_while_they_are_known(
    make_policy: MakePolicy, vllm_server: VllmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_module, "_BETWEEN_LOOKS_SEC", 0.01)
    policy = await make_policy()
    assert of_inference(policy) is None
    vllm_server.hold()
    asked = asyncio.create_task(policy.sample(request(policy)))
    await until(lambda: of_inference(policy) is not None)
    first = of_inference(policy)
    assert first is not None
    assert (first.kv_cache_use, first.preemptions, first.latencies) == (0.25, 3, ())
    vllm_server.served.first_tokens = (8, 10, 10)
    await until(lambda: (now := of_inference(policy)) is not None and bool(now.latencies))
    later = of_inference(policy)
    assert later is not None
    (latency,) = later.latencies
    assert (latency.kind, latency.count, latency.p50_sec) == ("first_token", 10, 0.0625)
    vllm_server.release()
    await asked
    assert of_inference(policy) is not None
    monkeypatch.setattr(metrics_module, "_LATELY_SEC", 0.0)
    assert of_inference(policy) is None


def of_inference(policy: VllmPolicy) -> ServerStatus | None:
    server = policy.status().server
    assert server is not None
    return server if server.is_vllm else None


def test_metrics_are_read_or_not_there() -> None:
    told = (
        "# HELP vllm:num_requests_running Number of requests\n"
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="a b"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="a b"} 1e+01\n'
        'vllm:num_requests_running_by_other{engine="1"} 5.0\n'
    )
    assert read_metrics(told).gauge("num_requests_running") == 13
    assert read_metrics("vllm:num_requests_running 4\n").gauge("num_requests_running") == 4
    assert read_metrics("# TYPE x gauge\nx 1.0\n").values == {}
    odd = "\n".join(f'vllm:num_requests_running{{engine="{n}"}} 1.5e308' for n in range(9))
    assert (
        read_metrics(f"{odd}\nvllm:num_requests_running NaN\n").gauge("num_requests_running")
        is None
    )
    assert read_metrics("vllm:num_requests_running NaN\n").values == {}


async def test_it_can_only_be_evaluated(make_policy: MakePolicy, tmp_path: Path) -> None:
    policy = await make_policy()
    refused = (
        policy.accumulate([], LossSettings()),
        policy.apply(OptimSettings(learning_rate=1e-3)),
        policy.score([], "reference"),
        policy.save(tmp_path / "x"),
        policy.load(tmp_path / "x"),
    )
    for asked in refused:
        with pytest.raises(PolicyError, match="can only be evaluated"):
            await asked
    assert await policy.publish() == 0
    await policy.forget(tmp_path / "x")
    assert not (tmp_path / "x").exists()
