"""What goes wrong between a policy and its server, and what is said and done about it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
import tinker
from tinker.types import RequestErrorCategory

from tbtui.policies.base import (
    PolicyError,
    PolicyLostError,
    PolicyRefusedError,
)
from tbtui.policies.meter import RequestMeter
from tbtui.policies.tinker.errors import policy_error
from tbtui.policies.tinker.policy import TinkerPolicy
from tbtui.policies.tinker.samplers import SamplerGoneError, sampling_error
from tbtui.policies.tinker.session import open_session, server_address
from tbtui.policies.tinker.training_run import TinkerSettings
from tests.cli.process import invoke
from tests.policies.asking import datum_of, prompt_of, request
from tests.policies.tinker.conftest import MakePolicy
from tests.policies.tinker.test_tinker_policy import LOSS, STEP, train
from tests.tinker_server.server import TinkerServer
from tests.waiting import until

REQUEST = httpx.Request("POST", "http://server/api/v1/optim_step")
KEY = "tml-Secret_Key.42"


def answered(status: int, body: object = None) -> tinker.APIStatusError:
    kinds: dict[int, type[tinker.APIStatusError]] = {
        400: tinker.BadRequestError,
        401: tinker.AuthenticationError,
        402: tinker.BillingError,
        403: tinker.PermissionDeniedError,
        404: tinker.NotFoundError,
        409: tinker.ConflictError,
        422: tinker.UnprocessableEntityError,
        429: tinker.RateLimitError,
        500: tinker.InternalServerError,
    }
    response = httpx.Response(status, request=REQUEST)
    kind = kinds.get(status, tinker.APIStatusError)
    return kind(f"Error code: {status} - {body}", response=response, body=body)


def failed(category: RequestErrorCategory, words: str) -> tinker.RequestFailedError:
    message = f"Request failed: {words} for self.request_id='1' and expected type self.model_cls=X"
    return tinker.RequestFailedError(message, "1", category)


def given_up(status: int) -> ValueError:
    """As the SDK gives up polling."""
    error = ValueError(f"Error retrieving result: no with status {status} for self.request_id='1'")
    error.__cause__ = answered(status, {"detail": "unknown request"})
    return error


@pytest.mark.parametrize(
    ("error", "lost", "says"),
    [
        (answered(401, {"detail": "Invalid API key"}), False, ["TINKER_API_KEY", "Invalid"]),
        (answered(402, {"detail": "no funds"}), False, ["billing", "no funds", "resume"]),
        (answered(403, {"message": "not yours"}), False, ["no right", "not yours"]),
        (answered(404, {"detail": "run gone"}), True, ["no longer has", "run gone"]),
        (answered(410, {"detail": "session finished"}), True, ["its session has ended"]),
        (answered(408), True, ["took too long"]),
        (answered(409), True, ["doesn't fit"]),
        (answered(429), True, ["too much to do"]),
        (answered(500, "oops"), True, ["failed", "oops"]),
        (answered(503), True, ["isn't reached (503)"]),
        (
            answered(
                422,
                {"detail": [{"loc": ["body", "lora_config", "rank"], "msg": "at most 64"}]},
            ),
            False,
            ["lora_config.rank: at most 64", "change lora_rank"],
        ),
        (answered(422, {"detail": "loss_fn gspo is not supported"}), False, ["change loss_fn"]),
        (answered(400, {"error": "ttl_seconds too small"}), False, ["checkpoint_ttl_hours"]),
        (answered(413, "too large"), False, ["refuses", "too large"]),
        (failed(RequestErrorCategory.User, "max_tokens is 0"), False, ["change max_tokens"]),
        (failed(RequestErrorCategory.Server, "worker died"), True, ["failed (worker died)"]),
        (failed(RequestErrorCategory.Unknown, "who knows"), True, ["who knows"]),
        (tinker.APIConnectionError(request=REQUEST), True, ["no connection"]),
        (tinker.APITimeoutError(request=REQUEST), True, ["no connection", "timed out"]),
        (given_up(404), True, ["no longer has", "unknown request"]),
        (given_up(402), False, ["billing"]),
        (RuntimeError("... this TrainingClient is poisoned and ..."), True, ["earlier request"]),
        (RuntimeError("Internal client holder is closed"), False, ["has been closed"]),
        (ValueError("Proto deserialization failed: x"), False, ["can't be read by tinker 0."]),
        (tinker.TinkerError("The api_key must start with 'tml-'"), False, ["TINKER_API_KEY"]),
        (TimeoutError(), True, ["no answer in time"]),
    ],
)
def test_each_failure_is_a_clear_state(error: Exception, lost: bool, says: list[str]) -> None:
    found = policy_error(error, "the optimiser step")
    assert isinstance(found, PolicyLostError) == lost
    assert str(found).startswith("the optimiser step: ")
    assert "\n" not in str(found)
    for words in says:
        assert words in str(found)
    # Where nothing is being trained, there is nothing to lose.
    assert not isinstance(policy_error(error, "sampling", training=False), PolicyLostError)


def test_the_key_is_never_told_and_the_quote_is_short() -> None:
    body = {"detail": f"bad key {KEY}\n" + "x" * 1000}
    text = str(policy_error(answered(401, body), "sampling"))
    assert KEY not in text and "tml-" not in text
    assert "\n" not in text and len(text) < 500
    assert server_address(f"https://me:{KEY}@host:8000/api/?key={KEY}") == "https://host:8000/api"


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (answered(404), True),
        (answered(410), True),
        (given_up(410), True),
        (tinker.TinkerError("retrieve_futures polling failed for sampling session x"), True),
        (failed(RequestErrorCategory.User, "sampling session 7 has expired"), True),
        (failed(RequestErrorCategory.User, "prompt too long"), False),
        (answered(422), False),
        (answered(500), False),
    ],
)
def test_weights_that_are_gone_are_told_from_a_request_that_fails(
    error: Exception, gone: bool
) -> None:
    found = sampling_error(error, "sampling")
    assert isinstance(found, SamplerGoneError) == gone
    assert not isinstance(found, PolicyLostError)


async def start(url: str, log: Path, **settings: Any) -> PolicyError:
    """Why a policy doesn't start."""
    with log.open("ab") as file:
        given = {"model_name": "starter", "renderer": "embedded", **settings}
        policy = TinkerPolicy(TinkerSettings(base_url=url, **given), file)
        try:
            with pytest.raises(PolicyError) as refused:
                await policy.start()
        finally:
            await policy.close("errored")
    assert "\n" not in str(refused.value)
    assert KEY not in str(refused.value)
    return refused.value


async def test_it_does_not_start_without_what_it_needs(
    tinker_server: TinkerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, log, faults = tinker_server.url, tmp_path / "log", tinker_server.faults
    assert "nearest is starter" in str(await start(url, log, model_name="startr"))
    assert "renderer=nonsense" in str(await start(url, log, renderer="nonsense", tokenizer="x"))
    gone = "tinker://no-such-run/weights/x"
    assert str(await start(url, log, checkpoint=gone)).startswith(f"checkpoint={gone}: ")

    faults.answer("config", 401, detail=f"Invalid API key {KEY}")
    assert "doesn't accept the API key" in str(await start(url, log))
    faults.answer("config", 402, detail="no payment method")
    assert "billing problem (402: no payment method)" in str(await start(url, log))
    faults.answer("create_session", 403, detail="read-only project")
    assert "no right to this" in str(await start(url, log))
    too_large = str(await start(url, log, lora_rank=100_000))
    assert "rank 100000 exceeds max LoRA rank 32" in too_large
    assert "change lora_rank" in too_large
    faults.fail("create_model", category="server", detail="out of memory")
    assert "out of memory" in str(await start(url, log))

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TINKER_API_KEY")
    assert "set TINKER_API_KEY" in str(await start(url, log))
    monkeypatch.setenv("TINKER_API_KEY", "sk-something")
    assert "must start with the 'tml-' prefix" in str(await start(url, log))


@pytest.mark.linux  # its environment is the sandbox, which is asked for first
@pytest.mark.parametrize(
    ("command", "policy", "key", "says"),
    [
        ("run", "tinker", "", "there is no API key; set TINKER_API_KEY="),
        ("run", "tinker", "sk-x", "TINKER_API_KEY does not begin"),
        ("eval", "openai", "", "there is no API key; set OPENAI_API_KEY"),
    ],
)
def test_without_a_key_nothing_is_begun(
    command: str, policy: str, key: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TINKER_API_KEY", key)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    refused = invoke(command, "--no-ui", f"policy={policy}", "model_name=Qwen/Qwen3-8B")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"policy={policy}: {says}" in refused.stderr and refused.stderr.count("\n") == 1
    assert not (tmp_path / "runs").exists()


async def test_a_tokenizer_that_is_waited_for_is_named_with_the_hub(
    tinker_server: TinkerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    settings = TinkerSettings("starter", base_url=tinker_server.url, tokenizer="org/none")
    with (tmp_path / "log").open("ab") as log:
        policy = TinkerPolicy(settings, log)
        with pytest.raises(PolicyRefusedError, match="tokenizer org/none can't be loaded"):
            await policy.start()
        waits = "loading the tokenizer of org/none from the Hugging Face hub"
        assert policy.status().starting == waits
        await policy.close("errored")


async def test_a_server_that_is_not_there_is_said_soon(tinker_server: TinkerServer) -> None:
    meter = RequestMeter()
    with pytest.raises(PolicyError, match=r"no Tinker server answers at .*tinker_base_url"):
        await open_session("http://127.0.0.1:9", None, meter, patience_sec=0)
    assert meter.status().state == "unreachable"


@pytest.mark.parametrize("url", ["localhost:8000", "127.0.0.1:8000", "ftp://host", "http://", "x"])
async def test_an_address_that_is_none_is_refused_as_it_was_written(url: str) -> None:
    with pytest.raises(PolicyRefusedError) as refused:
        await open_session(url, None, RequestMeter(), patience_sec=0)
    assert str(refused.value).startswith(f"tinker_base_url={url}: should begin with http://")


async def test_weights_that_expired_are_published_once_more_for_all_that_wait(
    make_policy: MakePolicy, tinker_server: TinkerServer
) -> None:
    policy = await make_policy()
    before = await policy.sample(request(policy))
    saves = tinker_server.record.requests["save_weights_for_sampler"]
    await tinker_server.expire()
    samples = await asyncio.gather(*(policy.sample(request(policy, seed)) for seed in (7, 8, 9)))
    assert samples[0].completion_ids == before.completion_ids
    assert {sample.weights_version for sample in samples} == {0}
    assert tinker_server.record.requests["save_weights_for_sampler"] == saves + 1
    # A step was taken since: what is published then is newer, and says so.
    data = [datum_of(prompt_of(policy), before)]
    await policy.accumulate(data, LOSS)
    await policy.apply(STEP)
    await tinker_server.expire()
    assert (await policy.sample(request(policy))).weights_version == 1
    assert await policy.publish() == 1

    # Once is all: a server that drops them at once is not asked for ever.
    tinker_server.faults.answer("asample", 404, times=2, detail="unknown sampling session")
    with pytest.raises(PolicyError, match="unknown sampling session"):
        await policy.sample(request(policy))
    # One request that fails concerns nobody else.
    tinker_server.faults.fail("asample", category="server", detail="a worker died")
    one, other = await asyncio.gather(
        policy.sample(request(policy)), policy.sample(request(policy, 8)), return_exceptions=True
    )
    assert sorted(isinstance(each, PolicyError) for each in (one, other)) == [False, True]
    assert not isinstance(one, PolicyLostError) and not isinstance(other, PolicyLostError)


async def test_a_training_run_that_is_deleted_elsewhere_is_lost(
    make_policy: MakePolicy, tinker_server: TinkerServer
) -> None:
    policy = await make_policy()
    sample = await policy.sample(request(policy))
    data = [datum_of(prompt_of(policy), sample)]
    await tinker_server.delete_run((await tinker_server.training_runs())[0])
    with pytest.raises(PolicyLostError, match="no longer has what was being trained"):
        await policy.accumulate(data, LOSS)
    asked = sum(tinker_server.record.requests.values())
    for call in (policy.apply(STEP), policy.publish(), policy.score(data, "trained")):
        with pytest.raises(PolicyLostError):
            await call
    assert sum(tinker_server.record.requests.values()) == asked


async def test_no_step_is_applied_twice_and_one_that_is_in_doubt_loses_the_policy(
    make_policy: MakePolicy, tinker_server: TinkerServer, tmp_path: Path
) -> None:
    faults, record = tinker_server.faults, tinker_server.record
    policy = await make_policy()
    sample = await policy.sample(request(policy))
    await policy.save(tmp_path)
    run = (await tinker_server.training_runs())[0]
    faults.lose("optim_step")  # the connection breaks: the SDK asks again
    await train(policy, sample)
    assert record.applied_steps[run] == 1
    # It is carried out, and nobody can say so any more.
    faults.answer("retrieve:optim_step", 404, detail="unknown request")
    with pytest.raises(PolicyLostError):
        await train(policy, sample)
    await until(lambda: record.applied_steps[run] == 2)  # it may be told sooner than it happens

    again = await make_policy()
    await again.load(tmp_path)
    await train(again, sample)
    assert (await again.sample(request(again))).weights_version == 1
    assert record.applied_steps[run] == 2
