"""Takes from Python what Linux alone has: `PYTHONPATH=tests/not_linux uv run pytest ...`.

An imitation of a Mac, for machines that are none: `sys.platform` is "darwin"; functions and
constants that Python has on Linux alone are missing; /proc and /sys are not there; libc has no
`prctl` and the like; a socket without a name has no mode; nothing watches with epoll. All of that
in every Python process that inherits `PYTHONPATH`. Code of the tests, and psutil, which has its own
ways on a Mac, still find Linux. What a Mac has and Linux lacks is not imitated.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import resource
import select
import selectors
import signal
import socket
import stat
import sys
import sysconfig
import time
import types
from pathlib import Path
from typing import Any

import psutil

_TESTS = str(Path(__file__).resolve().parents[1])
_ALLOWED = (str(Path(psutil.__file__).parent), _TESTS)
_LIBRARY = sysconfig.get_paths()["stdlib"]
_HIDDEN = re.compile(r"/(proc|sys)(/|$)")
# Of typeshed: what it has where `sys.platform == "linux"`, and not for "darwin".
_LINUX_ONLY = {
    os: r"CLONE_|EFD_|GRND_|MFD_|POSIX_FADV_|RWF_|SCHED_(BATCH|IDLE|RESET)|SPLICE_|XATTR_"
    r"|O_(DIRECT|LARGEFILE|NOATIME|PATH|RSYNC|TMPFILE)$|P_PIDFD|RTLD_DEEPBIND"
    r"|copy_file_range|eventfd|fdatasync|getrandom|(get|set)res[gu]id|(get|list|remove|set)xattr"
    r"|memfd_create|pidfd_open|pipe2|posix_(fadvise|fallocate)|sched_(get|set|rr)|setns|splice"
    r"|unshare|waitid",
    signal: "SIG(CLD|POLL|PWR|RTM|STKFLT)|pidfd_send_signal|sigtimedwait|sigwaitinfo"
    "|struct_siginfo",
    time: "CLOCK_(BOOTTIME|TAI)|pthread_getcpuclockid",
    socket: r"AF_(ALG|CAN|NETLINK|PACKET|VSOCK)|MSG_(CMSG_CLOEXEC|CONFIRM|ERRQUEUE|MORE)"
    r"|SCM_CREDENTIALS|SOCK_(CLOEXEC|NONBLOCK)|SO_(BINDTODEVICE|PASSCRED|PEERCRED|PEERSEC)"
    r"|TCP_(CORK|KEEPIDLE|QUICKACK|USER_TIMEOUT)",
    select: "EPOLL|epoll|POLLMSG|POLLRDHUP",
    resource: r"RLIMIT_(MSGQUEUE|NICE|OFILE|RTPRIO|RTTIME|SIGPENDING)|RUSAGE_THREAD|prlimit",
    fcntl: r"DN_|FICLONE|F_(ADD_SEALS|GETPIPE_SZ|GET_SEALS|NOTIFY|SEAL_|SETPIPE_SZ|SETSIG)",
}
_LIBC = re.compile(
    r"(clone|mount|pivot_root|prctl|setns|syscall|umount2|unshare|(memfd|pidfd|inotify)_\w+)$"
)


def _allowed(frame: types.FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.startswith(_ALLOWED)


def _asked_by() -> types.FrameType | None:
    """The nearest frame outside of the standard library."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith(("<frozen", _LIBRARY)):
            return frame
        if "site-packages" in name and name != __file__:
            return frame
        frame = frame.f_back
    return None


def _require_visible(path: Any) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        return
    if _HIDDEN.match(os.fsdecode(path)) and not _allowed(_asked_by()):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _without_names(module: types.ModuleType, pattern: str) -> None:
    taken = {name: getattr(module, name) for name in dir(module) if re.match(pattern, name)}
    for name in taken:
        delattr(module, name)

    def found(name: str) -> Any:
        if name in taken and _allowed(sys._getframe(1)):
            return taken[name]
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name)

    module.__dict__["__getattr__"] = found


def _without_directories() -> None:
    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"open", "os.listdir", "os.scandir", "os.chdir"}:
            _require_visible(arguments[0])

    sys.addaudithook(audit)
    # These are not audited.
    for name in ("stat", "lstat", "readlink", "access", "statvfs"):
        genuine = getattr(os, name)

        def looks(path: Any, *rest: Any, _genuine: Any = genuine, **named: Any) -> Any:
            _require_visible(path)
            return _genuine(path, *rest, **named)

        setattr(os, name, looks)
        for group in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if genuine in group:
                group.add(looks)


def _without_calls() -> None:
    genuine = ctypes.CDLL.__getattr__

    def symbol(self: ctypes.CDLL, name: str) -> Any:
        if _LIBC.match(name) and not _allowed(sys._getframe(1)):
            raise AttributeError(f"dlsym: symbol not found: {name}")
        return genuine(self, name)

    ctypes.CDLL.__getattr__ = symbol  # type: ignore[method-assign]
    change_mode = os.fchmod

    def fchmod(descriptor: int, mode: int) -> None:
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        change_mode(descriptor, mode)

    os.fchmod = fchmod


def _imitate() -> None:
    for module, pattern in _LINUX_ONLY.items():
        _without_names(module, pattern)
    selectors.DefaultSelector = selectors.PollSelector
    _without_directories()
    _without_calls()
    # The standard library asks a Mac's own module for the proxies of the system.
    proxies = types.ModuleType("_scproxy")
    proxies.__dict__.update(_get_proxies=dict, _get_proxy_settings=dict)
    sys.modules["_scproxy"] = proxies
    sys.platform = "darwin"


_imitate()
