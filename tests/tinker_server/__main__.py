"""`python -m tests.tinker_server --port N --state-dir D`: the server as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from pathlib import Path

from tests.tinker_server.faults import Faults
from tests.tinker_server.server import TinkerServer
from tests.tinker_server.settings import STARTER, ServedModel, ServerSettings


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.tinker_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--state-dir", type=Path, required=True, help="where checkpoints are kept")
    parser.add_argument("--model", action="append", help=f"a name to serve; default: {STARTER}")
    given = parser.parse_args()
    models = {name: ServedModel() for name in given.model or [STARTER]}
    server = TinkerServer(ServerSettings(given.state_dir, models), Faults())
    sock = socket.create_server(("127.0.0.1", given.port))
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"

    def say_so() -> None:
        sys.stdout.write(url + "\n")
        sys.stdout.flush()

    asyncio.run(server.serve(sock, say_so))


if __name__ == "__main__":
    main()
