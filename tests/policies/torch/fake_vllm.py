"""A fake of vLLM's server, as far as `sampler=vllm` uses it: real HTTP, started by the command that
starts vLLM. Tokens are made up: each completion is the number of its adapter, over and over.

`make_home(directory)` writes an environment whose Python runs this file in place of vLLM;
`computing_vllm.py` has a server that computes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tbtui.policies.torch.vllm_environment import CPU, Build, _record

BASE_TOKEN = 7


def make_home(
    directory: Path, says: str = "", *, module: str = "fake_vllm", build: Build = CPU
) -> Path:
    """Directory of environments with one that is installed.

    Args:
        says: to the module's `main`; to this one's, the words that it ends with.
    """
    python = directory / build.name / "bin" / "python"
    python.parent.mkdir(parents=True)
    run = f"import tests.policies.torch.{module} as server; server.main({says!r})"
    root = Path(__file__).parents[3]
    python.write_text(f'#!/bin/sh\ncd {root}\nexec {sys.executable} -c "{run}" "$@"\n')
    python.chmod(0o755)
    (directory / build.name / "installed.json").write_text(json.dumps(_record(build)))
    return directory


class Server:
    """What vLLM answers on these paths. Asleep it fails whatever needs the GPU's memory."""

    def __init__(self) -> None:
        self.loaded: dict[str, str] = {}
        self.asleep = False

    def allowed(self, request: Request) -> bool:
        return request.headers.get("authorization") == f"Bearer {os.environ['VLLM_API_KEY']}"

    async def models(self, request: Request) -> Response:
        if not self.allowed(request):
            return JSONResponse({"error": "Unauthorized"}, 401)
        cards = [{"id": "base", "root": "x", "max_model_len": 64, "parent": None}]
        cards += [{"id": n, "root": p, "max_model_len": None, "parent": "base"}
                  for n, p in self.loaded.items()]  # fmt: skip
        return JSONResponse({"object": "list", "data": cards})

    async def load(self, request: Request) -> Response:
        body = await request.json()
        name, path = body["lora_name"], Path(body["lora_path"])
        if self.asleep:
            return JSONResponse({"error": {"message": "the engine is asleep"}}, 500)
        if name in self.loaded:
            return JSONResponse({"error": {"message": "has already been loaded"}}, 400)
        if not (path / "adapter_config.json").is_file():
            message = f"Loading lora {name} failed: No adapter found for {path}"
            return JSONResponse({"error": {"message": message}}, 404)
        self.loaded[name] = str(path)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        name = (await request.json())["lora_name"]
        if self.loaded.pop(name, None) is None:
            return JSONResponse({"error": {"message": "cannot be found"}}, 404)
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    async def complete(self, request: Request) -> Response:
        body: dict[str, Any] = await request.json()
        name = body["model"]
        if self.asleep:
            return JSONResponse({"error": {"message": "the engine is asleep"}}, 500)
        if name != "base" and name not in self.loaded:
            return JSONResponse({"error": {"message": f"The model `{name}` does not exist."}}, 404)
        if name == "base":
            token = BASE_TOKEN
        else:
            # The real one reads it again, too, and its engine ends if it isn't there.
            path = Path(self.loaded[name]) / "adapter_config.json"
            if not path.is_file():
                os._exit(9)
            token = json.loads(path.read_text())["number"]
        ids = [token] * body["max_tokens"]
        choice = {"finish_reason": "length", "token_ids": ids,
                  "logprobs": {"token_logprobs": [-0.5] * len(ids)}}  # fmt: skip
        return JSONResponse({"choices": [choice], "usage": {}})

    async def sleep(self, request: Request) -> Response:
        self.asleep = True
        sys.stderr.write(f"asleep at level {request.query_params['level']}\n")
        return JSONResponse({"status": "sleeping", "level": 1})

    async def wake(self, request: Request) -> Response:
        self.asleep = False
        sys.stderr.write("awake\n")
        return JSONResponse({"status": "awake", "tags": None})

    async def health(self, request: Request) -> Response:
        return Response()

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0.0\n"
            "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.25\n"
        )


def serve(server: Server) -> None:
    """Until it is killed, on the port that vLLM would be given."""
    routes = [
        Route("/health", server.health),
        Route("/metrics", server.metrics),
        Route("/v1/models", server.models),
        Route("/v1/completions", server.complete, methods=["POST"]),
        Route("/v1/load_lora_adapter", server.load, methods=["POST"]),
        Route("/v1/unload_lora_adapter", server.unload, methods=["POST"]),
    ]
    if os.environ.get("VLLM_SERVER_DEV_MODE") == "1" and "--enable-sleep-mode" in sys.argv:
        routes += [
            Route("/sleep", server.sleep, methods=["POST"]),
            Route("/wake_up", server.wake, methods=["POST"]),
        ]
    uvicorn.run(
        Starlette(routes=routes), host="127.0.0.1", port=int(option("port")), log_level="warning"
    )


def option(name: str) -> str:
    """What vLLM is started with as `--name`."""
    return sys.argv[sys.argv.index(f"--{name}") + 1]


def main(dies: str) -> None:
    if dies:
        sys.stderr.write(dies + "\n")
        sys.exit(3)
    serve(Server())
