"""Tries what a box needs, in a process of its own: `python -I -S -c "...; main()"`.

Prints one line: `usable overlay`, `usable plain` (no overlayfs), `powerless <why>` (namespaces
without capabilities, which is what AppArmor leaves), or `refused <why>`.
"""

from __future__ import annotations

import sys

assert sys.platform == "linux"

import ctypes
import os

_NAMESPACES = (
    os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWUTS | os.CLONE_NEWIPC
)
_MS_REC_PRIVATE = 16384 | 1 << 18


def main() -> None:
    """Entry point."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        os.unshare(_NAMESPACES | os.CLONE_NEWNET | os.CLONE_NEWCGROUP)
    except OSError as error:
        print(f"refused {error.strerror}")  # noqa: T201
        return
    try:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {uid} 1"),
            ("gid_map", f"0 {gid} 1"),
        ):
            descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(descriptor, text.encode())
            os.close(descriptor)
    except OSError as error:
        print(f"powerless id map: {error.strerror}")  # noqa: T201
        return
    child = os.fork()
    if child == 0:
        print(_in_namespaces(), flush=True)  # noqa: T201
        os._exit(0)
    os.waitpid(child, 0)


def _in_namespaces() -> str:
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> bool:
        arguments = (source.encode(), target.encode(), kind.encode())
        result: int = libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None)
        return result == 0

    for source, target, kind, flags in (
        ("none", "/", "", _MS_REC_PRIVATE),
        ("box", "/tmp", "tmpfs", 0),
        ("proc", "/proc", "proc", 0),
    ):
        if not mount(source, target, kind, flags):
            return f"powerless mount {kind or 'private'}: {os.strerror(ctypes.get_errno())}"
    for name in ("upper", "work", "merged"):
        os.mkdir(f"/tmp/{name}")  # noqa: PTH102
    options = "lowerdir=/usr,upperdir=/tmp/upper,workdir=/tmp/work,userxattr"
    return "usable overlay" if mount("o", "/tmp/merged", "overlay", 0, options) else "usable plain"
