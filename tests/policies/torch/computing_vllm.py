"""A stand-in for vLLM's server that computes: the paths and adapters of `fake_vllm.py`, and behind
them tbtui's own sampler. It can be told to fail one publication.

`make_home(directory, "stale@2", module="computing_vllm")`: version 2 is accepted and not loaded;
`corrupt@2`: it is loaded with noise in it. "": nothing fails.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tbtui.policies.base import SampleRequest, SamplingParams
from tbtui.policies.torch.sampler_client import TransformersSampler
from tbtui.policies.torch.sampling import SamplerSettings
from tests.policies.torch.fake_vllm import Server, option, serve


class _Computing(Server):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault, _, self._version = fault.partition("@")
        self._engine: TransformersSampler | None = None

    async def load(self, request: Request) -> Response:
        answer = await super().load(request)
        if answer.status_code == 200:
            body = await request.json()
            path, version = Path(body["lora_path"]), body["lora_name"].rpartition("-v")[2]
            fault = self._fault if version == self._version else ""
            assert self._engine is not None, "no completion came first"
            if fault == "corrupt":
                path = _with_noise(path)
            if fault != "stale":
                await self._engine.publish(int(version), path)
        return answer

    async def complete(self, request: Request) -> Response:
        body: dict[str, Any] = await request.json()
        engine = await self._sampler(tuple(body["stop_token_ids"]))
        shape = (body[name] for name in ("temperature", "top_p", "top_k", "min_p"))
        sampling = SamplingParams(*shape, stop=tuple(body["stop"]))
        drawn = await engine.sample(
            SampleRequest(tuple(body["prompt"]), body["max_tokens"], sampling, body["seed"])
        )
        choice = {"finish_reason": drawn.stop_reason, "token_ids": drawn.completion_ids,
                  "logprobs": {"token_logprobs": drawn.logprobs.tolist()}}  # fmt: skip
        return JSONResponse({"choices": [choice], "usage": {}})

    async def _sampler(self, stop_ids: tuple[int, ...]) -> TransformersSampler:
        """It is made for the first completion, which comes before any adapter."""
        if self._engine is None:
            settings = SamplerSettings(
                model=option("model"), dtype="float32", device="cpu",
                context_limit=int(option("max-model-len")), max_rows=8, seed=0,
                lora_rank=int(option("max-lora-rank")), stop_ids=stop_ids,
            )  # fmt: skip
            self._engine = TransformersSampler(settings, sys.stderr.buffer)
            await self._engine.start()
        return self._engine


def _with_noise(adapter: Path) -> Path:
    import torch
    from safetensors.torch import load_file, save_file

    copy = Path(tempfile.mkdtemp()) / "adapter"
    shutil.copytree(adapter, copy)
    file = copy / "adapter_model.safetensors"
    torch.manual_seed(0)
    noisy = {
        name: tensor + 0.02 * torch.randn_like(tensor) for name, tensor in load_file(file).items()
    }
    save_file(noisy, file, metadata={"format": "pt"})
    return copy


def main(fault: str) -> None:
    serve(_Computing(fault))
