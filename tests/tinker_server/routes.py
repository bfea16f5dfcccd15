"""The protocol's paths. The kinds by which faults and counts name requests are below."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.tinker_server import views
from tests.tinker_server.control import control_routes
from tests.tinker_server.errors import HttpError, WorkFailed
from tests.tinker_server.futures import Pending, Promise
from tests.tinker_server.service import Service
from tests.tinker_server.wire import (
    PROTOBUF,
    TrainingRequest,
    read_json,
    read_training,
)

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
    routes = [
        Route(f"/api/v1{path}", _endpoint(service, reader), methods=[method])
        for method, path, reader in _ROUTES
    ]
    return Starlette(routes=[*routes, *control_routes(service)])


def _endpoint(service: Service, reader: Reader) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        response = await _handle(service, reader, request)
        service.record.answered(response.status_code)
        return response

    return endpoint


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
    path = request.url.path
    fault = service.faults.take(("answer", "lose", "slow"), call.names, path)
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


def _gradient(forward_only: bool) -> Reader:
    def read(service: Service, request: Request, body: bytes) -> Call:
        given: TrainingRequest = read_training(
            body,
            request.headers.get("content-type", ""),
            request.headers.get("content-encoding", ""),
            forward_only,
        )
        kind = "forward" if given.forward_only else "forward_backward"
        turn = None if given.seq_id is None else (given.model_id, given.seq_id)
        return Call((kind,), lambda: JSONResponse(service.gradient(given).submission), turn)

    return read


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
        if PROTOBUF in request.headers.get("accept", ""):
            encoded = answer.as_proto()
            if encoded is not None:
                return Response(encoded, media_type=PROTOBUF)
        return JSONResponse(answer.as_json())

    return Call(names, run)


def _paged(kind: str, name: str, all_of: Callable[[Service], list[Any]], total: bool) -> Reader:
    def read(service: Service, request: Request, body: bytes) -> Call:
        limit = int(request.query_params.get("limit", 20))
        offset = int(request.query_params.get("offset", 0))

        def run() -> Response:
            found = all_of(service)
            answer: dict[str, Any] = {name: found[offset : offset + limit]}
            if total:
                answer["cursor"] = {"offset": offset, "limit": limit, "total_count": len(found)}
            return JSONResponse(answer)

        return Call((kind,), run)

    return read


_RUN = "/training_runs/{run_id}"
_CHECKPOINT = _RUN + "/checkpoints/{checkpoint_id:path}"
_ROUTES: list[tuple[str, str, Reader]] = [
    ("GET", "/healthz", _json("health", lambda s, c: {"status": "ok"})),
    ("POST", "/client/config", _json("config", lambda s, c: dict(s.settings.client_config))),
    ("POST", "/client/dynamic_config", _json("dynamic_config", lambda s, c: {})),
    ("POST", "/telemetry", _json("telemetry", lambda s, c: {"status": "accepted"})),
    ("POST", "/create_session", _json("create_session", views.create_session)),
    ("POST", "/session_heartbeat", _json("heartbeat", views.heartbeat)),
    ("POST", "/sessions/{session_id}/finish", _json("finish", views.finish)),
    ("GET", "/get_server_capabilities", _json("capabilities", views.capabilities)),
    ("POST", "/create_model", _promise("create_model", Service.create_model)),
    ("POST", "/get_info", _json("get_info", views.get_info)),
    ("POST", "/forward", _gradient(True)),
    ("POST", "/forward_backward", _gradient(False)),
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
        _json("create_sampling_session", views.create_sampling_session),
    ),
    ("POST", "/asample", _promise("asample", Service.sample)),
    ("GET", "/samplers/{sampler_id}", _json("get_sampler", views.get_sampler)),
    ("GET", "/sessions", _paged("sessions", "sessions", Service.sessions, False)),
    ("GET", "/sessions/{session_id}", _json("get_session", views.get_session)),
    ("GET", "/training_runs", _paged("training_runs", "training_runs", views.all_runs, True)),
    ("GET", _RUN, _json("training_run", views.training_run)),
    ("GET", _RUN + "/checkpoints", _json("checkpoints", views.checkpoints)),
    ("PUT", _CHECKPOINT + "/ttl", _json("checkpoint_ttl", views.set_ttl)),
    ("DELETE", _CHECKPOINT, _json("delete_checkpoint", views.delete_checkpoint)),
    ("GET", "/checkpoints", _paged("all_checkpoints", "checkpoints", views.all_checkpoints, True)),
    ("POST", "/weights_info", _json("weights_info", views.weights_info)),
]
