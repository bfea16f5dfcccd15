"""Serves the owner's requests from inside the box: run, kill, write, read, freeze.

Process 1 of the box. A request is one message `marshal((operation, number, *arguments))`, with
file descriptors attached; the answer is the text `<number> <status> <detail>`, where status is 0,
an errno, or for `exec` the exit code (128 + signal for a killed command). Every path is resolved
here, inside the box's own root, so nothing the box plants can lead a write or a read outside.

Imports only what `box_init` does, for the same reason.
"""

# Importing pathlib would cost more than making a box.
# ruff: noqa: PTH101, PTH103, PTH116, PTH120, PTH211
from __future__ import annotations

import sys

assert sys.platform == "linux"

import _socket
import ctypes
import errno
import marshal
import os
import resource
import select
import struct
import time

from tbtui.rollout.environments import box_files, box_snapshot
from tbtui.rollout.environments.box_files import lookup
from tbtui.rollout.environments.box_programs import Programs
from tbtui.rollout.environments.box_watch import Freezer, Watch, is_busy, pids, signal

TYPE_CHECKING = False  # importing typing itself would double the start-up time
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGPIPE, SIGTERM = 1, 2, 3, 9, 13, 15
# Directories of the host's /usr in which the box may add and replace files.
WRITABLE = (
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/share"),
    *("/usr/include", "/usr/src", "/usr/local", "/usr/local/bin", "/usr/local/sbin"),
    *("/usr/local/lib", "/usr/local/libexec", "/usr/local/share", "/usr/local/include"),
    *("/usr/local/etc", "/usr/local/src", "/usr/local/share/man", "/usr/share/man"),
)
MAX_REQUEST = 256 * 1024
_BACKLOG = 128
_SHELL = "/bin/bash"
_END_ROUNDS = 2000
_END_ROUND_SECONDS = 0.005
_FINISH_SECONDS, _FINISH_LOOK_SECONDS, _FINISH_LOOKS = 2.0, 0.01, 3
"""What was typed last may just have begun: so long a box is waited for until it is idle, so many
looks in a row."""
OWN_OOM_SCORE, COMMANDS_OOM_SCORE = 300, 600
"""Under memory pressure the host's own programs go last, and a box's first process after all of
the box's others."""
OWN_NICENESS = -10
"""Where root may have that: a bomb must not keep the first process from ending it."""

_libc = ctypes.CDLL(None, use_errno=True)


def populate(root: str, plan: dict[str, Any]) -> None:
    """Makes the plan's directories, links and small files under `root`."""
    for path, mode in plan["dirs"]:
        os.makedirs(root + path, exist_ok=True)
        os.chmod(root + path, mode)
    for path, target in plan["links"]:
        if not os.path.lexists(root + path):
            os.symlink(target, root + path)
    for path, content, mode in plan["files"]:
        descriptor = os.open(root + path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
        os.fchmod(descriptor, mode)
        os.write(descriptor, content)
        os.close(descriptor)


def set_limits(plan: dict[str, Any]) -> None:
    """Resource limits of everything in the box; the kernel hands them down to children."""
    for kind, value in plan["rlimits"]:
        _, hard = resource.getrlimit(kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (ceiling, ceiling))
    if plan["cpus"]:
        os.sched_setaffinity(0, plan["cpus"])


def _fail(code: int, message: str) -> NoReturn:
    os.write(2, f"{message}\n".encode(errors="replace"))
    os._exit(code)


class Server:
    """The request loop."""

    def __init__(
        self,
        control: _socket.socket,
        plan: dict[str, Any],
        oom_score: int,
        layers: dict[str, int],
    ) -> None:
        """
        Args:
            oom_score: open on this process's own `oom_score_adj`.
            layers: the directories of the box's writable layers, open, by name.
        """
        self._layers = layers
        self._programs = Programs(list(layers.values()))
        self._control = control
        self._oom_score = oom_score
        self._plan = plan
        self._running: dict[int, int] = {}
        """pid of each command being run -> number of its request"""
        self._pidfds: dict[int, int] = {}
        self._starting: dict[int, tuple[int, int]] = {}
        """pid of each test script -> descriptor that says why it can't start, if it can't, and how
        many processes the backstop had killed before"""
        self._freezer = Freezer()
        self._watch = Watch(plan)
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)

    def serve(self) -> NoReturn:
        """Serve until the owner closes its end, or dies: the whole box ends with this process."""
        while True:
            wait = max(0.0, self._watch.due - time.monotonic()) * 1000
            for descriptor, _ in self._poll.poll(wait):
                if descriptor == self._control.fileno():
                    self._receive()
            # Daemons end unannounced; they are reaped with whatever woke us, or at the next tick.
            self._reap()
            self._watch.act()

    def _receive(self) -> None:
        data, ancillary, _, _ = self._control.recvmsg(MAX_REQUEST, 256, _socket.MSG_CMSG_CLOEXEC)
        if not data:
            os._exit(0)
        raw = ancillary[0][2] if ancillary else b""
        descriptors = list(struct.unpack(f"{len(raw) // 4}i", raw[: len(raw) // 4 * 4]))
        operation, number, *arguments = marshal.loads(data)
        try:
            answer = self._handle(operation, number, arguments, descriptors)
        except OSError as error:
            answer = (error.errno or errno.EIO, str(error) or "failed")
        for descriptor in descriptors:
            os.close(descriptor)
        if answer is not None:
            self._answer(number, *answer)

    def _answer(self, number: int, status: int, detail: str = "") -> None:
        self._control.send(f"{number} {status} {detail}".encode(errors="replace")[:8192])

    def _handle(
        self, operation: str, number: int, arguments: list[Any], descriptors: list[int]
    ) -> tuple[int, str] | None:
        match operation:
            case "exec":
                output, errors = descriptors
                self._run(number, arguments, (None, output, errors))
                return None
            case "open":
                self._run(number, arguments, (descriptors[0], descriptors[0], None))
                return None
            case "script":
                self._run_script(number, arguments)
                return None
            case "get":
                path, longest = arguments
                self._start(number, lambda: box_files.send_tree(path, descriptors[0], longest))
                return None
            case "save":
                self._start(number, lambda: self._save(descriptors, *arguments))
                return None
            case "kill":
                self._kill(arguments[0])
            case "freeze":
                self._freezer.freeze()
            case "thaw":
                self._freezer.thaw()
            case "end":
                self._end_processes()
            case "report":
                return 0, self._watch.report()
            case "mark_programs":
                self._programs.mark()
            case "changed_programs":
                return 0, self._programs.changed()
            case "make_room":
                self._watch.make_room()
            case "mkdir":
                for path in arguments[0]:
                    os.makedirs(path, exist_ok=True)
                    if arguments[1] is not None:
                        os.chmod(path, arguments[1])
            case "put":
                box_files.put(arguments[0], arguments[1], arguments[2], descriptors[0])
            case "empty":
                for aside in box_files.empty(arguments[0], arguments[1]):
                    self._discard(aside)
            case "room":
                disk = os.statvfs("/")
                return 0, f"{disk.f_bavail * disk.f_frsize} {disk.f_favail}"
            case "same":
                same = box_files.is_same(arguments[0], arguments[1], descriptors)
                return (0, "") if same else (errno.EILSEQ, "changed")
            case "link":
                box_files.link(arguments[0], arguments[1])
            case "executable":
                box_files.make_executable(arguments[0])
            case "stat":
                return 0, str(os.stat(arguments[0]).st_mode)
            case "fifo":
                self._fifo(number, arguments[0])
                return None
            case "listen":
                self._listen(number, arguments[0])
                return None
            case _:
                return errno.ENOSYS, f"unknown operation {operation}"
        return 0, ""

    def _run(self, number: int, arguments: list[Any], streams: tuple[int | None, ...]) -> None:
        self._start(number, lambda: _run(arguments, streams, self._plan))

    def _run_script(self, number: int, arguments: list[Any]) -> None:
        """Runs a program as a child of this process, with no shell between that could be false."""
        output, *rest = arguments
        reading, writing = os.pipe2(os.O_CLOEXEC)
        pid = self._start(number, lambda: _run_script(output, rest, self._plan, writing))
        os.close(writing)
        self._starting[pid] = reading, self._watch.kills

    def _save(self, descriptors: list[int], pack: int, limit: int) -> None:
        root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        try:
            box_snapshot.save({"": root, **self._layers}, descriptors, pack, limit)
        except OSError as error:
            # Here is what went wrong, where what was saved would be.
            os.write(descriptors[2], f"error {error.strerror}".encode())

    def _start(self, number: int, body: Callable[[], None]) -> int:
        # A child has its parent's. It could not open its own, nor may anything in the box.
        os.write(self._oom_score, str(COMMANDS_OOM_SCORE).encode())
        try:
            pid = os.fork()
        finally:
            if os.getpid() == 1:
                os.write(self._oom_score, str(OWN_OOM_SCORE).encode())
        if pid == 0:
            try:
                body()
                os._exit(0)
            except Exception as error:  # noqa: BLE001  (whatever it is, its owner must see it)
                _fail(126, f"{error}")
            finally:
                # Whatever happens, this copy of the server must not go on to serve.
                os._exit(125)
        self._running[pid] = number
        descriptor = os.pidfd_open(pid)
        self._pidfds[descriptor] = pid
        self._poll.register(descriptor, select.POLLIN)
        return pid

    def _discard(self, path: str) -> None:
        """Deletes a tree in a process of its own: it may be deep, and may be stopped."""
        if os.fork() == 0:
            try:
                box_files.delete(path)
            finally:
                os._exit(0)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._finished(pid, status)

    def _finished(self, pid: int, status: int) -> None:
        number = self._running.pop(pid, None)
        if number is None:
            return  # a daemon's, inherited by process 1
        for descriptor in [d for d, p in self._pidfds.items() if p == pid]:
            self._poll.unregister(descriptor)
            os.close(descriptor)
            del self._pidfds[descriptor]
        code = os.waitstatus_to_exitcode(status)
        detail = self._script_end(pid, code) if pid in self._starting else ""
        self._answer(number, code if code >= 0 else 128 - code, detail)

    def _script_end(self, pid: int, code: int) -> str:
        """`ended <signal> <processes killed by the backstop> <why it did not start>`"""
        reading, limited = self._starting.pop(pid)
        reason = os.read(reading, 1024).decode(errors="replace")
        os.close(reading)
        return f"ended {max(0, -code)} {self._watch.kills - limited} {reason}"

    def _end_processes(self) -> None:
        """Lets what is about to end do so, kills everything in the box, waits until it is gone.

        Raises:
            OSError: something does not go.
        """
        deadline, idle = time.monotonic() + _FINISH_SECONDS, 0
        while idle < _FINISH_LOOKS and time.monotonic() < deadline:
            idle = 0 if is_busy() else idle + 1
            time.sleep(_FINISH_LOOK_SECONDS)
        for _ in range(_END_ROUNDS):
            signal(-1, SIGKILL)
            self._reap()
            if not pids():
                return
            time.sleep(_END_ROUND_SECONDS)
        raise OSError(errno.EBUSY, f"{len(pids())} processes can't be ended")

    def _kill(self, number: int) -> None:
        for pid, running in self._running.items():
            if running == number:
                try:
                    os.killpg(pid, SIGKILL)
                except ProcessLookupError:
                    os.kill(pid, SIGKILL)  # has not yet made its group

    def _fifo(self, number: int, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkfifo(path, 0o666)
        os.chmod(path, 0o666)
        # Both directions, so that the reader never sees EOF when one writer goes.
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._pass(number, descriptor)
        os.close(descriptor)

    def _listen(self, number: int, port: int) -> None:
        """A socket of this box's network, which keeps belonging to it wherever it is used."""
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(_BACKLOG)
            self._pass(number, listener.fileno())
        finally:
            listener.close()

    def _pass(self, number: int, descriptor: int) -> None:
        passed = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("i", descriptor))]
        self._control.sendmsg([f"{number} 0 ".encode()], passed)


def _run(arguments: list[Any], streams: tuple[int | None, ...], plan: dict[str, Any]) -> None:
    argv, environment, cwd, user, workdir = arguments
    environment = _become(environment, cwd, user, workdir, streams, plan)
    _fail(*_execute(argv, environment))


def _run_script(output: str, arguments: list[Any], plan: dict[str, Any], complaint: int) -> None:
    argv, environment, cwd, user, workdir = arguments
    environment = _become(environment, cwd, user, workdir, (None, None, None), plan)
    try:
        # Not through a link that waits there: box-root may not be who put it there.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        file = os.open(output, flags, 0o666)
        os.set_blocking(file, True)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
        status, refusal = _execute(argv, environment)
    except OSError as error:
        status, refusal = 126, f"{output}: {error.strerror}"
    os.write(complaint, refusal.encode(errors="replace")[:1024])
    _fail(status, refusal)


def _become(
    environment: dict[str, str],
    cwd: str,
    user: str | None,
    workdir: bool,
    streams: tuple[int | None, ...],
    plan: dict[str, Any],
) -> dict[str, str]:
    """Makes this process what a command of the box is; the command's environment variables."""
    os.setsid()
    own = os.getpriority(os.PRIO_PROCESS, 0)  # a process that is nicer already may not go back
    os.setpriority(os.PRIO_PROCESS, 0, max(own, plan["niceness"]))
    # Below what the server itself may use, so that a fork bomb leaves room to look at it.
    resource.setrlimit(resource.RLIMIT_NPROC, (plan["processes"], plan["processes"]))
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for target, source in enumerate(streams):
        os.dup2(null if source is None else source, target)
    # Python ignores SIGPIPE, and whatever started us may ignore the others: a shell does for what
    # it starts with `&`, nohup for all. A command must be stopped by them. SIGXFSZ Python ignores
    # too, and that stays: a write to a file that has grown too large fails, as on a full disk, and
    # a test script that goes on can still give its verdict.
    for number in (SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM):
        _libc.signal(number, None)
    if user is not None:
        try:
            account = lookup(user)
        except OSError as error:
            _fail(126, error.strerror or str(error))
        try:
            os.setgroups(account.groups)
            os.setresgid(account.gid, account.gid, account.gid)
            os.setresuid(account.uid, account.uid, account.uid)
        except OSError as error:
            _fail(126, f"can't become user {user}: {error.strerror}")
        environment = {"HOME": account.home, "USER": user.partition(":")[0], **environment}
    if "HOME" in environment and "PATH" in environment:
        environment["PATH"] = _with_own_programs(environment["PATH"], environment["HOME"])
    try:
        os.chdir(cwd)
    except OSError as error:
        if not workdir:
            _fail(126, f"working directory {cwd}: {error.strerror}")
        # It was there when the box was made: an agent that removes it has not lost its box.
        os.chdir("/")
    return environment


def _with_own_programs(path: str, home: str) -> str:
    """PATH with `~/.local/bin`, where pip and uv put programs for one user, if it isn't there."""
    own = f"{home}/.local/bin"
    return path if own in path.split(":") else f"{path}:{own}"


def _execute(argv: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Does not return, unless the program can't be run: the exit status for that, and why."""
    # Not os.execvpe: it imports a module, and the interpreter's files are out of reach here.
    found = [argv[0]]
    if "/" not in argv[0]:
        found = [f"{place}/{argv[0]}" for place in environment.get("PATH", "").split(":") if place]
    refusal = ""
    for path in found:
        try:
            os.execve(path, argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == errno.ENOEXEC and path == argv[0] != _SHELL:
                # A script whose first line names no interpreter is the shell's, as in a shell.
                return _execute([_SHELL, *argv], environment)
            refusal = str(error.strerror)
    if refusal:
        return 126, f"{argv[0]}: {refusal}"
    there = "/" in argv[0] and os.path.lexists(argv[0])
    return 127, f"{argv[0]}: {'no interpreter for it' if there else 'command not found'}"
