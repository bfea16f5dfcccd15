"""A real Tinker server on this machine: SkyRL 0.4.0 with the embedded model, on the CPU.

`python -m tests.tinker_server.skyrl [--home DIR] [COMMAND ...]` installs SkyRL into an environment
of its own the first time (6.2 GB), exports the shipped checkpoint for it, starts the server and
the proxy that newer SDKs need, and runs COMMAND against them: TINKER_BASE_URL and TINKER_API_KEY
are set for it, and `{model}` in it stands for the model's name. Without a command it serves until
Ctrl-C. Both end with it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import httpx

from tbtui.policies.local.export import export
from tbtui.policies.local.tokenizer import SHIPPED

REQUIREMENTS = ("skyrl[tinker,jax]==0.4.0", "aiohttp")  # aiohttp: needed, but not declared
ANY_KEY = "tml-local"
_REPOSITORY = Path(__file__).parents[2]
_DISK_BYTES = 10 * 10**9
_READY_SEC = 300.0
_STOP_SEC = 15.0

_BACKEND = {
    "train_micro_batch_size": 4,
    "max_lora_adapters": 8,
}
_SESSION_TIMEOUT_SEC = 120
"""An adapter of a client that is gone is free again after this; SkyRL's own 300 s would have
several short runs wait for one another."""


class SkyRLError(Exception):
    """One line for a person."""


@dataclass(frozen=True, slots=True)
class SkyRL:
    """A server that is ready."""

    url: str
    """For SDKs from 0.26 on, through the proxy."""
    model: str
    """Its one base model."""
    log: Path
    database: Path
    """SQLite; its table `futures` has each request's kind and times."""

    def environment(self) -> dict[str, str]:
        """What a client finds it by."""
        return {"TINKER_BASE_URL": self.url, "TINKER_API_KEY": ANY_KEY}


def default_home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "tbtui" / "skyrl"


def installed(home: Path) -> Path:
    """The Python of SkyRL's environment below `home`; made when it isn't there."""
    environment = home / "venv"
    python = environment / "bin" / "python"
    done = environment / "installed.json"
    if done.is_file() and json.loads(done.read_text()) == list(REQUIREMENTS):
        return python
    home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(home).free
    if free < _DISK_BYTES:
        raise SkyRLError(
            f"{home} has {free / 1e9:.0f} GB free; SkyRL takes 6.2 GB and needs"
            f" {_DISK_BYTES / 1e9:.0f}: choose another place with --home"
        )
    _say(f"installing {REQUIREMENTS[0]} into {environment}: 6.2 GB, some minutes")
    _uv("venv", "--clear", "--python", "3.12", str(environment))
    # No cache: it would keep all of it a second time.
    _uv("pip", "install", "--no-cache", "--python", str(python), *REQUIREMENTS)
    done.write_text(json.dumps(REQUIREMENTS))
    return python


@contextlib.contextmanager
def serving(home: Path, at_once: int = 16) -> Iterator[SkyRL]:
    """A server with the shipped checkpoint, from a clean state, until the context is left.

    It samples `at_once` sequences together: missing ones are made up for, so that every batch has
    the same shape. Otherwise it compiles anew for each number of requests that it finds waiting,
    which takes longer than the sampling.

    Raises `SkyRLError` when it can't be installed or doesn't start.
    """
    python = installed(home)
    model = home / "starter"
    if not (model / "config.json").is_file():
        export(SHIPPED, model)
    upstream, port = f"http://127.0.0.1:{_free_port()}", _free_port()
    with contextlib.ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="state-", dir=home)))
        log = stack.enter_context((home / "server.log").open("wb"))
        server = stack.enter_context(
            _running(
                _server_command(python, model, state, upstream, at_once),
                log,
                _server_variables(home),
            )
        )
        proxy = stack.enter_context(
            _running(
                [sys.executable, "-m", "tests.tinker_server.skyrl_proxy", upstream, str(port)],
                log,
                {},
            )
        )
        skyrl = SkyRL(f"http://127.0.0.1:{port}", str(model), home / "server.log", _database(state))
        _wait_until_ready(skyrl, (server, proxy))
        yield skyrl


def _server_command(python: Path, model: Path, state: Path, url: str, at_once: int) -> list[str]:
    # It looks at the command line of its parent, which has to be `uv run`, to start its engine.
    start = ["uv", "run", "--no-project", "--python", str(python), "-m", "skyrl.tinker.api"]
    options = {
        "backend": "jax",
        "backend-config": json.dumps({**_BACKEND, "sample_max_num_sequences": at_once}),
        "host": "127.0.0.1",
        "port": url.rpartition(":")[2],
        "base-model": str(model),
        "checkpoints-base": str(state / "checkpoints"),
        "database-url": f"sqlite:///{_database(state)}",
        "session-timeout-sec": str(_SESSION_TIMEOUT_SEC),
    }
    return start + [part for name, value in options.items() for part in (f"--{name}", value)]


def _database(state: Path) -> Path:
    return state / "tinker.db"


def _server_variables(home: Path) -> dict[str, str]:
    return {
        "JAX_PLATFORMS": "cpu",
        # The model is a directory: nothing is to be looked for elsewhere.
        "HF_HUB_OFFLINE": "1",
        # What was compiled once is found again by the next server.
        "JAX_COMPILATION_CACHE_DIR": str(home / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }


@contextlib.contextmanager
def _running(
    command: Sequence[str], log: IO[bytes], variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A child with all that it starts, in a process group that ends with the context."""
    process = subprocess.Popen(
        command,
        cwd=_REPOSITORY,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    # The group may outlive the process that it is named after, so it is ended in any case.
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SEC)


def _wait_until_ready(skyrl: SkyRL, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Until the engine behind the server answers: the server itself listens long before."""
    deadline = time.monotonic() + _READY_SEC
    _say(f"starting the server; its log is {skyrl.log}")
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            raise SkyRLError(f"the server ended while it started: see {skyrl.log}")
        with contextlib.suppress(httpx.TransportError), httpx.Client(timeout=_READY_SEC) as client:
            # Not its model: the engine refuses at once, without compiling anything.
            asked = client.post(
                f"{skyrl.url}/api/v1/asample",
                json={
                    "base_model": "none",
                    "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
                    "sampling_params": {"max_tokens": 1},
                },
            )
            if asked.status_code == httpx.codes.OK:
                future = {"request_id": asked.json()["request_id"]}
                client.post(f"{skyrl.url}/api/v1/retrieve_future", json=future)
                return
        time.sleep(0.5)
    raise SkyRLError(f"the server wasn't ready after {_READY_SEC:.0f} s: see {skyrl.log}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _uv(*arguments: str) -> None:
    try:
        subprocess.run(["uv", *arguments], check=True)
    except FileNotFoundError as error:
        raise SkyRLError("uv isn't on the PATH; SkyRL's server can't be started without") from error
    except subprocess.CalledProcessError as error:
        raise SkyRLError(f"uv {arguments[0]} failed: see what it printed above") from error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tinker_server.skyrl")
    parser.add_argument("--home", type=Path, default=default_home(), help="default: %(default)s")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="to run against the server")
    arguments = parser.parse_args()
    end_politely()
    try:
        with serving(arguments.home.resolve()) as skyrl:
            _say(f"SkyRL at {skyrl.url}, model {skyrl.model}")
            command = [part.replace("{model}", skyrl.model) for part in arguments.command]
            if not command:
                signal.pause()
            return subprocess.run(
                command, env={**os.environ, **skyrl.environment()}, check=False
            ).returncode
    except SkyRLError as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def end_politely() -> None:
    """From now on signals that ask this process to end let it end its children first. A shell that
    starts it in the background has it ignore SIGINT otherwise."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _interrupted)


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
