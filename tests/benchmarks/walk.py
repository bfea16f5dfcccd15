"""Random walks through the app, one after the other, each over a run of its own.

`python -m tests.benchmarks.walk --seconds 3600` tells of each walk, and of each that ended badly
what was done; `--again WORLD:[ACTIONS]` does that again, and makes it as short as it gets.
"""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.ui.walk import Action, Walk, following, walk, wandering
from tests.ui.worlds import WORLDS


def _failure(kind: str, run: Callable[[Walk], Awaitable[None]]) -> Exception | None:
    """What a walk ends with, if it ends badly; its last note is what was done, as JSON."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            asyncio.run(walk(kind, Path(directory), run))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            return error
    return None


def shorter(kind: str, actions: list[Action], like: Exception) -> list[Action]:
    """Fewer actions that end as badly, in the same way."""
    size = max(1, len(actions) // 2)
    while True:
        start = 0
        while start < len(actions):
            fewer = actions[:start] + actions[start + size :]
            error = _failure(kind, following(fewer))
            if error is not None and type(error) is type(like):
                actions = [tuple(each) for each in json.loads(error.__notes__[-1])]
            else:
                start += size
        if size == 1:
            return actions
        size //= 2


def _seeds(first: int, until: float) -> Iterator[int]:
    seed = first
    while time.monotonic() < until:
        yield seed
        seed += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--actions", type=int, default=300)
    parser.add_argument("--world", choices=sorted(WORLDS), action="append")
    parser.add_argument("--again", help="WORLD:[ACTIONS], as JSON: only these, made fewer")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home, suppress(KeyboardInterrupt):
        os.environ.update(XDG_CONFIG_HOME=f"{home}/config", XDG_STATE_HOME=f"{home}/state")
        os.chdir(home)
        if given.again:
            kind, _, actions = given.again.partition(":")
            _explain(kind, [tuple(each) for each in json.loads(actions)])
            return 0
        broken = 0
        kinds = given.world or sorted(WORLDS)
        for seed in _seeds(given.seed, time.monotonic() + given.seconds):
            kind = kinds[seed % len(kinds)]
            faulthandler.dump_traceback_later(300, exit=True)
            begun = time.process_time()
            error = _failure(kind, wandering(seed, given.actions))
            spent = time.process_time() - begun
            print(f"{kind} {seed}: {error!r}, {spent:.1f} s of CPU", flush=True)
            if error is not None:
                broken += 1
                traceback.print_exception(error)
    return min(1, broken)


def _explain(kind: str, actions: list[Action]) -> None:
    error = _failure(kind, following(actions))
    if error is None:
        print("all is well")
        return
    actions = shorter(kind, actions, error)
    print(f"{kind}:{json.dumps(actions)}")
    traceback.print_exception(_failure(kind, following(actions)) or error)


if __name__ == "__main__":
    sys.exit(main())
