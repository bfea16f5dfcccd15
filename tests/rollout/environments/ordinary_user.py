"""Runs a test's body as an unprivileged user, wherever the interpreter lies."""

from __future__ import annotations

import asyncio
import ctypes
import os
import pickle
import stat
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

UID = 54321
_HOME = "/mnt"
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18


def run_as_ordinary_user[T](body: Callable[[], Awaitable[T]], home: Path) -> T:
    """What `body` returns in a fork of this process that has become user 54321; raises what it
    raises.

    The interpreter's directory may lie below one only root can enter (/root): in the fork's own
    mounts that one is hidden by an empty file system with nothing but the interpreter in it. The
    directory `home` becomes the user's home, shown at /mnt: pytest's own are closed as well.
    """
    home.mkdir(exist_ok=True)
    os.chown(home, UID, UID)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _make_reachable(home)
            os.setgroups([])
            os.setresgid(UID, UID, UID)
            os.setresuid(UID, UID, UID)
            os.environ["HOME"] = _HOME
            os.environ.pop("XDG_STATE_HOME", None)
            os.environ.pop("XDG_CACHE_HOME", None)
            answer = pickle.dumps(("", asyncio.run(_awaited(body))))
        except BaseException:  # noqa: BLE001  (reported by the parent)
            answer = pickle.dumps((traceback.format_exc(), None))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    failure, returned = pickle.loads(answer) if answer else ("it was killed", None)
    assert not failure, failure
    return cast(T, returned)


async def _awaited[T](body: Callable[[], Awaitable[T]]) -> T:
    return await body()


def _make_reachable(home: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: str, kind: str | None, flags: int) -> None:
        done = libc.mount(
            source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), None
        )
        assert done == 0, os.strerror(ctypes.get_errno())

    os.unshare(os.CLONE_NEWNS)
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    mount(str(home), _HOME, None, _MS_BIND)
    base = Path(sys.base_prefix).resolve()
    closed = [p for p in reversed(base.parents) if not p.stat().st_mode & stat.S_IXOTH]
    if closed:
        descriptor = os.open(base, os.O_PATH)
        mount("tmpfs", str(closed[0]), "tmpfs", 0)
        base.mkdir(parents=True)
        mount(f"/proc/self/fd/{descriptor}", str(base), None, _MS_BIND)
        os.close(descriptor)
