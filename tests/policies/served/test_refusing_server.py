"""A Chat Completions server that answers is up: what it refuses, withholds or fails at concerns
that request, and the run goes on and ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tbtui.chat import Message
from tbtui.journal.events import OutageBegan, Outcome, TrialFinished, TrialQueued
from tbtui.policies.base import (
    MODEL_ITSELF,
    PolicyBusyError,
    PolicyDeniedError,
    PolicyError,
    PolicyRefusedError,
    PolicyWithheldError,
    SampleRequest,
)
from tbtui.policies.openai.policy import OpenAIPolicy
from tbtui.policies.vllm import connection
from tbtui.policies.work import ServerSettings
from tests.policies.served.scripted_chat import (
    ChatServer,
    Streamed,
    chatting,
    chunk,
    refusal,
    turn,
    whole,
    write_task,
)
from tests.policies.served.test_vllm_eval import events, tbtui

Ask = Callable[[Any], Awaitable[str]]


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


async def started(server: ChatServer) -> OpenAIPolicy:
    policy = OpenAIPolicy(ServerSettings(model_name="stub", base_url=server.url))
    await policy.start()
    return policy


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    """The text that a started policy makes of an answer."""
    async with chatting() as server:
        policy = await started(server)

        async def answered(answer: Any) -> str:
            server.respond["it"] = lambda _: (
                web.json_response(answer) if isinstance(answer, dict) else answer
            )
            prompt = policy.renderer.render((Message("user", "KIND:it"),))
            drawn = await policy.sample(SampleRequest(prompt, 64, MODEL_ITSELF, 0))
            return policy.renderer.answer(drawn.completion_ids).text

        yield answered
        await policy.close()


LOGPROBS = {"logprobs": {"content": [{"token": "Hi", "logprob": -0.5}]}}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(whole("Hi"), "Hi", id="whole"),
        pytest.param(whole(None), "", id="nothing"),
        pytest.param(whole(None, refusal="I won't."), "I won't.", id="refusal"),
        pytest.param(
            Streamed([chunk({"role": "assistant"}), chunk({"content": "H"}), chunk({}, "stop")]),
            "H",
            id="stream",
        ),
        pytest.param(
            Streamed(
                [
                    {"object": "chat.completion.chunk", "choices": [], "prompt_filter_results": []},
                    chunk({"content": "Hi"}, "stop", **LOGPROBS),
                    {"object": "chat.completion.chunk", "choices": [], "usage": {}},
                ]
            ),
            "Hi",
            id="stream-of-azure",
        ),
        pytest.param(
            Streamed([chunk({"refusal": "I "}), chunk({"refusal": "won't."}, "stop")], ends=False),
            "I won't.",
            id="streamed-refusal",
        ),
    ],
)
async def test_what_a_model_says(ask: Ask, answer: Any, text: str) -> None:
    """Its own refusal in words is its answer."""
    assert await ask(answer) == text


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        pytest.param(whole("", "content_filter"), PolicyWithheldError, "filter", id="filter"),
        pytest.param(whole("", "SAFETY"), PolicyWithheldError, "SAFETY", id="safety"),
        pytest.param({"choices": []}, PolicyWithheldError, "choices is empty", id="empty"),
        pytest.param(
            {"choices": None, "promptFeedback": {"blockReason": "OTHER"}},
            PolicyWithheldError,
            "blockReason",
            id="feedback",
        ),
        pytest.param(
            Streamed([chunk({"content": "x"}), chunk({}, "content_filter")]),
            PolicyWithheldError,
            "content_filter",
            id="streamed-filter",
        ),
        pytest.param(refusal(400, "flagged"), PolicyRefusedError, "400: flagged", id="400"),
        pytest.param(refusal(413, "too large"), PolicyRefusedError, "413: too large", id="413"),
        pytest.param(refusal(401, "bad key"), PolicyDeniedError, "OPENAI_API_KEY", id="401"),
        pytest.param(
            {"error": {"code": 403, "message": "moderated"}},
            PolicyRefusedError,
            "403: moderated",
            id="error-in-200",
        ),
        pytest.param(
            {"choices": [{"error": {"code": 502, "message": "upstream"}}]},
            PolicyError,
            "502: upstream",
            id="error-in-choice",
        ),
        pytest.param(
            Streamed([chunk({"content": "x"}), {"error": {"message": "out of memory"}}]),
            PolicyError,
            "out of memory",
            id="error-in-stream",
        ),
        pytest.param(refusal(429, "slow down"), PolicyBusyError, "slow down", id="429"),
        pytest.param(Streamed([chunk({"content": "x"})], ends=False), PolicyError, "broke off",
            id="cut-stream"),
        pytest.param(web.Response(text='{"choices": [{'), PolicyError, "no JSON", id="cut-json"),
        pytest.param(
            web.Response(text="<html>", content_type="text/html"), PolicyError, "no JSON", id="html"
        ),
    ],
)  # fmt: skip
async def test_what_is_no_answer(
    ask: Ask, answer: Any, error: type[PolicyError], text: str
) -> None:
    with pytest.raises(PolicyError, match=text) as caught:
        await ask(answer)
    assert type(caught.value) is error


async def test_a_server_that_is_busy_at_the_start_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_PATIENT_WAITS_SEC", (0.01, 0.01))
    async with chatting() as server:
        server.first = [refusal(429, "busy", **{"Retry-After": "0"}), refusal(503, "loading")]
        await (await started(server)).close()
        assert not server.first
        server.first = [refusal(429, "out of quota", **{"Retry-After": "86400"})]
        with pytest.raises(PolicyBusyError, match="out of quota"):
            await started(server)


async def test_a_filter_that_holds_the_first_words_back_shows_a_server_that_is_up() -> None:
    async with chatting() as server:
        server.first = [web.json_response(whole("", "content_filter"))]
        await (await started(server)).close()


@pytest.mark.slow
async def test_a_run_with_refused_prompts_goes_on_and_ends(tmp_path: Path) -> None:
    """The last trials of it, too, when nothing else is answered any more."""
    kinds: dict[str, Any] = {
        "filter": lambda _: web.json_response(whole("", "content_filter")),
        "empty": lambda _: web.json_response({"choices": []}),
        "bad": lambda _: refusal(400, "the prompt was flagged"),
        "words": lambda _: web.json_response(whole(None, refusal="I can't help with that.")),
        "fails": lambda _: refusal(500, "no such layer"),
        "breaks": lambda _: web.Response(text="{", content_type="application/json"),
        "stream": lambda body: Streamed([*(chunk({"content": c}) for c in turn(body)),
            chunk({}, "stop")]),
    }  # fmt: skip
    for kind in (*kinds, "well"):
        write_task(tmp_path / "tasks", kind)
    async with chatting(**kinds) as server, asyncio.timeout(120):
        status, out, err = await tbtui(
            *("eval", "--no-ui", "policy=openai", "model_name=stub", "max_turns=3"),
            *(f"openai_base_url={server.url}", f"tasks_dir={tmp_path / 'tasks'}", "eval_tasks=*"),
            *(f"logs_dir={tmp_path / 'runs'}", "run_name=it", "max_retries=1", "n_workers=1"),
            *("retry_wait_sec=0.1", "check_zeros=never"),
        )
    assert status == 0, out + err
    told = events(tmp_path / "runs" / "it")
    task_of = {e.trial: e.task for e in told if isinstance(e, TrialQueued)}
    ends = {task_of[e.trial]: e for e in told if isinstance(e, TrialFinished)}
    assert {task: end.outcome for task, end in ends.items()} == {
        "filter": Outcome.REFUSED,
        "empty": Outcome.REFUSED,
        "bad": Outcome.REFUSED,
        "words": Outcome.PARSE_ERROR,
        "fails": Outcome.PROVIDER_ERROR,
        "breaks": Outcome.PROVIDER_ERROR,
        "stream": Outcome.SOLVED,
        "well": Outcome.SOLVED,
    }
    assert "flagged" in ends["bad"].reason
    assert ends["filter"].reward is None
    assert not [e for e in told if isinstance(e, OutageBegan)]


@pytest.mark.slow
async def test_an_evaluation_with_nothing_scored_fails_and_says_why(tmp_path: Path) -> None:
    write_task(tmp_path / "tasks", "bad")
    async with chatting(bad=lambda _: refusal(400, "the prompt was flagged")) as server:
        status, out, err = await tbtui(
            *("eval", "--no-ui", "policy=openai", "model_name=stub"),
            *(f"openai_base_url={server.url}", f"tasks_dir={tmp_path / 'tasks'}", "eval_tasks=*"),
            *(f"logs_dir={tmp_path / 'runs'}", "n_workers=1"),
        )
    assert status == 1, out
    assert "the prompt was flagged" in (out + err).splitlines()[-1]
