"""How a test in another process injects faults and looks at what was done: /_test/..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.tinker_server.errors import HttpError
from tests.tinker_server.faults import Fault
from tests.tinker_server.service import Service


def control_routes(service: Service) -> list[Route]:
    """`POST /_test/fault` takes the fields of `Fault`; `pause` the arguments of `Faults.pause`."""
    faults = service.faults
    acts: dict[str, Callable[[dict[str, Any]], object]] = {
        "fault": lambda content: faults.add(Fault(**content)),
        "pause": lambda content: faults.pause(**content),
        "resume": lambda content: faults.resume(),
        "clear": lambda content: faults.clear(),
        "expire": lambda content: service.expire(content.get("path")),
        "delete_run": lambda content: service.delete_run(content["run_id"]),
    }

    async def act(request: Request) -> JSONResponse:
        try:
            acts[request.path_params["act"]](await request.json())
        except HttpError as error:
            return JSONResponse({"detail": error.detail}, error.status)
        except (KeyError, TypeError) as error:
            return JSONResponse({"detail": repr(error)}, 422)
        return JSONResponse({})

    async def record(request: Request) -> JSONResponse:
        return JSONResponse({**service.record.as_json(), "pending_faults": faults.pending})

    return [
        Route("/_test/record", record, methods=["GET"]),
        Route("/_test/{act}", act, methods=["POST"]),
    ]
