"""The protocol's paths. The kinds by which faults and counts name requests are below."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.tinker_server.errors import HttpError, WorkFailed
from tests.tinker_server.futures import Pending, Promise
from tests.tinker_server.service import Service
from tests.tinker_server.settings import ServedModel
from tests.tinker_server.wire import PROTOBUF, read_json, read_training

_REFUSALS = frozenset({400, 401, 403, 404, 410, 422})
"""Statuses after which the SDK doesn't send a request again: its turn is over."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that has been read: by which names faults strike it, and what it does."""

    names: tuple[str, ...]
    run: Callable[[], Awaitable[Response] | Response]
    turn: tuple[str, int] | None = None
    """Model and number of a request that has its place in a training client's order."""


Reader = Callable[[Service, Request, bytes], Call]


def make_app(service: Service) -> Starlette:
    return Starlette(
        routes=[
            Route(f"/api/v1{path}", partial(_handle, service, reader), methods=[method])
            for method, path, reader in _ROUTES
        ]
    )


async def _handle(service: Service, reader: Reader, request: Request) -> Response:
    body = await request.body()
    if not request.headers.get("x-api-key", "").startswith("tml-"):
        return _refusal(401, "Invalid API key")
    try:
        call = reader(service, request, body)
    except HttpError as error:
        return _refusal(error.status, error.detail)
    except (KeyError, TypeError, ValueError) as error:
        return _refusal(422, f"the request can't be read: {error!r}")
    service.record.request(call.names[0])
    fault = service.faults.take(("answer", "lose", "slow"), call.names)
    if fault is not None and fault.action == "answer":
        response: Response = _refusal(fault.status, fault.detail or "injected fault")
    else:
        response = await _run(call)
    if call.turn is not None and response.status_code in _REFUSALS:
        _pass_over(service, *call.turn)
    if fault is not None and fault.action == "slow":
        await asyncio.sleep(fault.seconds)
    if fault is not None and fault.action == "lose":
        request.scope["extensions"]["tests.drop_connection"]()
    return response


async def _run(call: Call) -> Response:
    try:
        result = call.run()
        return result if isinstance(result, Response) else await result
    except HttpError as error:
        return _refusal(error.status, error.detail)
    except (KeyError, TypeError, ValueError) as error:
        return _refusal(422, f"the request can't be read: {error!r}")


def _pass_over(service: Service, model_id: str, seq_id: int) -> None:
    try:
        service.run(model_id).pass_over(seq_id)
    except HttpError:
        return  # there is no such model that could wait for it


def _refusal(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status)


def _json(kind: str, act: Callable[[Service, dict[str, Any]], dict[str, Any] | None]) -> Reader:
    """A request with a JSON body that is answered at once."""

    def read(service: Service, request: Request, body: bytes) -> Call:
        content = {**read_json(body), **request.path_params}

        def run() -> Response:
            answer = act(service, content)
            return Response(status_code=204) if answer is None else JSONResponse(answer)

        return Call((kind,), run)

    return read


def _promise(kind: str, act: Callable[[Service, dict[str, Any]], Promise]) -> Reader:
    """A request with a JSON body that is answered with a future."""

    def read(service: Service, request: Request, body: bytes) -> Call:
        content = read_json(body)
        turn = None
        if content.get("model_id") and content.get("seq_id") is not None:
            turn = (content["model_id"], content["seq_id"])
        return Call((kind,), lambda: JSONResponse(act(service, content).submission), turn)

    return read


def _gradient(service: Service, request: Request, body: bytes) -> Call:
    given = read_training(body, request.headers.get("content-encoding", ""))
    kind = "forward" if given.forward_only else "forward_backward"
    turn = (given.model_id, given.seq_id)
    return Call((kind,), lambda: JSONResponse(service.gradient(given).submission), turn)


def _retrieve(service: Service, request: Request, body: bytes) -> Call:
    content = read_json(body)
    promise = service.futures.find(content["request_id"])
    names = ("retrieve",) if promise is None else ("retrieve", f"retrieve:{promise.kind}")

    async def run() -> Response:
        promise = service.futures.get(content["request_id"])
        try:
            answer = await service.futures.wait(promise)
        except WorkFailed as error:
            return JSONResponse({"error": str(error), "category": error.category})
        if isinstance(answer, Pending):
            content_408: dict[str, Any] = {
                "type": "try_again",
                "request_id": promise.request_id,
                "queue_state": "active" if answer.pause is None else answer.pause.state,
            }
            if answer.pause is not None and answer.pause.reason is not None:
                content_408["queue_state_reason"] = answer.pause.reason
            return JSONResponse(content_408, 408)
        if isinstance(answer, bytes):
            return Response(answer, media_type=PROTOBUF)
        return JSONResponse(answer)

    return Call(names, run)


# What the simple requests are answered with: None is an answer without a body


def create_session(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    session = service.create_session()
    return {
        "type": "create_session",
        "session_id": session.session_id,
        "info_message": "This server trains all weights: LoRA settings are ignored.",
    }


def heartbeat(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    service.open_session(content["session_id"])
    return {"type": "session_heartbeat"}


def finish(service: Service, content: dict[str, Any]) -> None:
    service.finish(content["session_id"], content["reason"]["type"], content.get("detail"))


def capabilities(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    def describe(name: str, model: ServedModel) -> dict[str, Any]:
        return {
            "model_name": name,
            "max_context_length": model.max_context_length or service.context_limit,
            "trainable": model.trainable,
            "sampleable": model.sampleable,
        }

    return {"supported_models": [describe(*each) for each in service.settings.models.items()]}


def get_info(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    run = service.run(content["model_id"])
    return {
        "type": "get_info",
        "model_id": run.run_id,
        "model_name": run.base_model,
        "is_lora": False,
        "model_data": {
            "arch": "tbtui-embedded",
            "model_name": run.base_model,
            "tokenizer_id": "embedded",
        },
    }


def create_sampling_session(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    sampler = service.create_sampling_session(content)
    return {
        "type": "create_sampling_session",
        "sampling_session_id": sampler.sampling_session_id,
    }


def checkpoints(service: Service, content: dict[str, Any]) -> dict[str, Any]:
    run = service.store.run(content["run_id"])
    found = service.store.of_run(run.run_id)
    return {"checkpoints": [service.store.describe(each) for each in found]}


def delete_checkpoint(service: Service, content: dict[str, Any]) -> None:
    service.store.delete(f"tinker://{content['run_id']}/{content['checkpoint_id']}")


_CHECKPOINTS = "/training_runs/{run_id}/checkpoints"
_ROUTES: list[tuple[str, str, Reader]] = [
    ("GET", "/healthz", _json("health", lambda s, c: {"status": "ok"})),
    ("POST", "/client/config", _json("config", lambda s, c: {})),
    ("POST", "/client/dynamic_config", _json("dynamic_config", lambda s, c: {})),
    ("POST", "/telemetry", _json("telemetry", lambda s, c: {"status": "accepted"})),
    ("POST", "/create_session", _json("create_session", create_session)),
    ("POST", "/session_heartbeat", _json("heartbeat", heartbeat)),
    ("POST", "/sessions/{session_id}/finish", _json("finish", finish)),
    ("GET", "/get_server_capabilities", _json("capabilities", capabilities)),
    ("POST", "/create_model", _promise("create_model", Service.create_model)),
    ("POST", "/get_info", _json("get_info", get_info)),
    ("POST", "/forward_backward", _gradient),
    ("POST", "/optim_step", _promise("optim_step", Service.optim_step)),
    ("POST", "/save_weights", _promise("save_weights", Service.save_weights)),
    (
        "POST",
        "/save_weights_for_sampler",
        _promise("save_weights_for_sampler", Service.save_weights_for_sampler),
    ),
    ("POST", "/load_weights", _promise("load_weights", Service.load_weights)),
    ("POST", "/retrieve_future", _retrieve),
    (
        "POST",
        "/create_sampling_session",
        _json("create_sampling_session", create_sampling_session),
    ),
    ("POST", "/asample", _promise("asample", Service.sample)),
    ("GET", _CHECKPOINTS, _json("checkpoints", checkpoints)),
    (
        "DELETE",
        _CHECKPOINTS + "/{checkpoint_id:path}",
        _json("delete_checkpoint", delete_checkpoint),
    ),
]
