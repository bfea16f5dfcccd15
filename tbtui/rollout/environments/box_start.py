"""Starts a box: by this package's own first process alone, or inside one that bubblewrap makes.

Bubblewrap is for hosts that let only it use user namespaces. Ubuntu's AppArmor profile for bwrap
takes every capability from what runs inside. So bwrap makes the tree, /usr stays read-only (an
overlay would need capabilities), and there is one user. /dev/shm has the storage limit a second
time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import marshal
import os
import re
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import tbtui
from tbtui.paths import open_plain
from tbtui.rollout.environments.base import SandboxLostError, SandboxStartError
from tbtui.rollout.environments.box import Box
from tbtui.rollout.environments.cgroups import find_cgroups, make_box_cgroup
from tbtui.rollout.environments.channel import ControlChannel
from tbtui.rollout.environments.ledger import Ledger
from tbtui.rollout.environments.plan import HIDDEN_PROC, BoxPlan

AS_ROOT = (
    "bubblewrap run by root: the sandbox's root is this machine's root, without its capabilities."
    " Run as an ordinary user, or leave environment_kwargs.backend out"
)
# No capabilities even for root, no user namespaces inside.
_LOCKED_DOWN = ("--unshare-user", "--disable-userns", "--cap-drop", "ALL")
_RUNTIME = "/run/box"

_START = "import sys; sys.path.append({root!r}); from {module} import main; main()"
_INIT_MODULE = "tbtui.rollout.environments.box_init"
_PACKAGE_ROOT = str(Path(tbtui.__file__).resolve().parent.parent)

# Numbers no distribution assigns: systemd's list of uid ranges leaves 1879048192..2147483647 free.
_FIRST, _SLOTS, _IDS_PER_BOX = 1_879_048_192, 4096, 65_536

_numbers = itertools.count()


async def start_box(plan: BoxPlan, label: str, *, command: list[str] | None = None) -> Box:
    """Makes a box and waits until it serves.

    Args:
        plan: What it contains.
        label: Goes into its name, which the ledger and its control groups carry.
        command: What starts `box_init` in place of this interpreter (bubblewrap); the number of
            the control socket's descriptor is appended.

    Raises:
        SandboxStartError: which step failed and why.
    """
    if sys.platform != "linux":  # refused before
        raise NotImplementedError
    number = os.getpid() + next(_numbers)
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", label)[-60:]
    name = f"{safe}-{os.getpid()}-{os.urandom(3).hex()}"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = ControlChannel(ours)
    ledger = Ledger()
    cgroup = make_box_cgroup(find_cgroups(), name, plan.limits)
    ledger.record(name, [], list(cgroup.directories))
    errors = tempfile.TemporaryFile()  # noqa: SIM115
    box: Box | None = None
    try:
        with theirs, errors:
            process = await asyncio.create_subprocess_exec(
                *(command or _start_command()),
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                env=_interpreter_environment(),
                cwd="/",
                start_new_session=True,
            )
            theirs.close()
            box = Box(name, plan, channel, process, cgroup, ledger)
            if cgroup.directories:
                cgroup.add(process.pid)
            ids = None if command else _id_range(number, euid=os.geteuid(), own_map=_own_id_map())
            cores = frozenset(os.sched_getaffinity(0))
            wire = plan.wire(
                maps_range=ids is not None,
                assembled=command is not None,
                cgroups=cgroup.held,
                cpu_set=plan.limits.cpu_set(cores, number),
            )
            try:
                await _set_up(box, channel, process.pid, marshal.dumps(wire), ids, errors, plan)
            except SandboxLostError as error:
                # It died before it could say why on the channel.
                raise SandboxStartError(f"can't start a sandbox: {_last_words(errors)}") from error
        pids = [process.pid, *([box.init_pid] if box.init_pid else [])]
        ledger.record(name, pids, list(cgroup.directories))
    except BaseException as error:
        if box is not None:
            await box.stop()
        else:
            channel.close("never started")
            cgroup.remove()
            ledger.forget(name)
        if isinstance(error, OSError):
            raise SandboxStartError(f"can't start a sandbox: {error}") from error
        raise
    return box


async def _set_up(
    box: Box,
    channel: ControlChannel,
    process: int,
    wire: bytes,
    ids: IdRange | None,
    errors: IO[bytes],
    plan: BoxPlan,
) -> None:
    """Hands `process` the plan and waits until process 1 of the box serves."""
    if sys.platform != "linux":  # refused before
        raise NotImplementedError
    with contextlib.ExitStack() as opened:
        plan_file = os.memfd_create("box-plan", os.MFD_CLOEXEC)
        opened.callback(os.close, plan_file)
        os.write(plan_file, wire)
        files = [plan_file]
        restored = map(open_plain, _restored_files(plan))
        files += [opened.enter_context(file).fileno() for file in restored]
        await channel.send_setup(b"plan", files)
    while (line := await channel.receive_setup_line()) != "ready":
        kind, _, rest = line.partition(" ")
        if kind == "namespaces" and ids is not None:
            _write_id_maps(process, ids)
            await channel.send_setup(b"go")
        elif kind == "init":
            box.init_pid = int(rest)
        else:
            raise SandboxStartError(f"can't start a sandbox: {rest or _last_words(errors)}")
    channel.begin()
    if box.init_pid is None:
        box.init_pid = _only_child(process)


def _restored_files(plan: BoxPlan) -> list[Path]:
    """The index of the plan's snapshot, and its packs in the order of their numbers."""
    if plan.restored is None:
        return []
    return [plan.restored.index, *(path for _, path in sorted(plan.restored.packs.items()))]


async def start_bubblewrap_box(plan: BoxPlan, label: str) -> Box:
    """As `start_box`, on a host that lets only bubblewrap use user namespaces."""
    # bwrap makes /dev and /proc itself, and nothing more may be written there.
    made = replace(
        plan,
        directories=tuple(d for d in plan.directories if not d[0].startswith(("/dev", "/proc"))),
        links=tuple(link for link in plan.links if not link[0].startswith("/dev")),
    )
    return await start_box(made, label, command=_bubblewrap_command(plan))


def _bubblewrap_command(plan: BoxPlan) -> list[str]:
    """The command line that makes the box of `plan` and starts `box_init` in it.

    Raises:
        SandboxStartError: bwrap is not installed.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxStartError("bubblewrap is not installed: apt-get install bubblewrap")
    argv = [program, "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session"]
    argv += [*_LOCKED_DOWN, "--uid", "0", "--gid", "0", "--hostname", "box", "--clearenv"]
    if plan.network:
        argv.append("--share-net")
    argv += ["--size", str(plan.limits.storage_bytes), "--tmpfs", "/"]
    for directory in plan.overlays:
        argv += ["--ro-bind", directory, directory]
    for path, target in plan.links:
        if path.count("/") == 1:  # /lib and its like: the interpreter needs them to start
            argv += ["--symlink", target, path]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    # When root runs it, box-root is the host's.
    for path in ("/proc/sys", "/proc/sysrq-trigger", "/proc/pressure"):
        argv += ["--ro-bind-try", path, path]
    for name in HIDDEN_PROC:
        if Path("/proc", name).exists():
            argv += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    argv += ["--size", str(plan.limits.storage_bytes), "--tmpfs", "/dev/shm"]
    argv += ["--remount-ro", "/dev"]
    for bind in plan.binds:
        argv += ["--ro-bind" if bind.read_only else "--bind", bind.source, bind.target]
    # The interpreter and this package, nothing else of where they are installed.
    base = Path(sys.base_prefix).resolve()
    interpreter = Path(sys.executable).resolve()
    if not base.is_relative_to("/usr"):
        argv += ["--ro-bind", str(base), f"{_RUNTIME}/python"]
        argv += ["--setenv", "LD_LIBRARY_PATH", f"{_RUNTIME}/python/lib"]
        interpreter = Path(f"{_RUNTIME}/python") / interpreter.relative_to(base)
    package = Path(__file__).resolve().parent
    argv += ["--ro-bind", str(package), f"{_RUNTIME}/lib/tbtui/rollout/environments"]
    return [*argv, "--", *_start_command(str(interpreter), f"{_RUNTIME}/lib")]


def _start_command(interpreter: str = sys.executable, root: str = _PACKAGE_ROOT) -> list[str]:
    """How `box_init` is started: no site-packages, no environment, nothing of the user's."""
    code = _START.format(root=root, module=_INIT_MODULE)
    return [interpreter, "-I", "-S", "-c", code]


def _only_child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _interpreter_environment() -> dict[str, str]:
    """What process 1 needs of our environment to start: where its interpreter's libraries are.

    The programs of the box get none of it, and can't read it (process 1 can't be traced).
    """
    path = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": path} if path else {}


def _last_words(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read(65_536).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "its first process ended without a word"


@dataclass(frozen=True, slots=True)
class IdRange:
    """Which user ids of the host stand behind those of a box.

    The box's ids 0..65535 are the host's `first`.. : every user works inside, none is real.
    """

    first: int


def _id_range(box_number: int, *, euid: int, own_map: str) -> IdRange | None:
    """A range for a box of root's, or None: map box-root to the owner's own id.

    An unprivileged owner may map only itself. Root in a container whose own map lacks these
    numbers is in the same place.

    Args:
        box_number: Any number; boxes with different numbers mod 4096 share no id.
        euid: Effective user id of the owner.
        own_map: The owner's /proc/self/uid_map.
    """
    if euid != 0:
        return None
    first = _FIRST + (box_number % _SLOTS) * _IDS_PER_BOX
    for line in own_map.splitlines():
        inside, _, length = (int(field) for field in line.split())
        if inside <= first and first + _IDS_PER_BOX <= inside + length:
            return IdRange(first)
    return None


def _own_id_map() -> str:
    """This process's own map, for `_id_range`."""
    return Path("/proc/self/uid_map").read_text()


def _write_id_maps(pid: int, ids: IdRange) -> None:
    """Maps the user namespace of process `pid`, which waits for it.

    Raises:
        OSError: the kernel refuses, e.g. because the owner lacks CAP_SETUID.
    """
    text = f"0 {ids.first} {_IDS_PER_BOX}\n"
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{name}").write_text(text)
