"""First process of a box: makes the namespaces and the file tree, then serves requests.

Runs as `python -I -S` in a process of its own, with an empty environment and one inherited file
descriptor, the control socket. It imports only what it needs from the standard library's C side:
`json`, `socket` and `signal` alone would triple its start-up time.

Order of things, and what goes over the control socket:
  1. new namespaces; `namespaces` -> the owner writes the uid map -> `go` (only when the owner maps
     a range; a single id is mapped from here),
  2. fork into the new pid namespace; the parent reports `init <pid>` and then only waits,
  3. the child, process 1 of the box, builds the tree on one size-limited tmpfs, pivots into it,
     gives up what it no longer needs, reports `ready` and serves (`box_server`).
Any failure is reported as `error <text>`.
"""

# Importing pathlib would cost more than making a box.
# ruff: noqa: PTH101, PTH102, PTH103, PTH106, PTH110, PTH112, PTH114
# ruff: noqa: PTH116, PTH120, PTH123, PTH208
from __future__ import annotations

import sys

assert sys.platform == "linux"

import _socket
import ctypes
import fcntl
import marshal
import os
import struct

from tbtui.rollout.environments import box_seccomp, box_server, box_snapshot

TYPE_CHECKING = False  # importing typing itself would double the start-up time
if TYPE_CHECKING:
    from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
# statvfs flags a remount inside a user namespace must repeat, or the kernel refuses it.
_LOCKED_FLAGS = MS_NOSUID | MS_NODEV | MS_NOEXEC | 1024 | 2048 | (1 << 21)
_ST_RELATIME = 4096  # in statvfs; MS_RELATIME is another number
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
# What Docker leaves to a container's root, by number in linux/capability.h: chown, dac_override,
# fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod,
# audit_write, setfcap.
_KEPT_CAPABILITIES = frozenset([0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31])
_STAGE = "/tmp"  # any directory that always exists: the tmpfs goes over it, in our mounts only
_LAYERS = {"upper": f"{_STAGE}/upper", "layered": f"{_STAGE}/layered/upper"}
"""Where the writable layers of the box's overlays are, by a name for each."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_OWN_DEPTH, _OWN_FILES, _SMALL = 5, 3, 1 << 16
_PACKAGES = ("node_modules", "site-packages", "dist-packages", "__pycache__", "include")
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000  # the same on every architecture
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4

_libc = ctypes.CDLL(None, use_errno=True)


class SetupError(Exception):
    """The box could not be made; the text says which step failed and why."""


def _check(result: int, step: str) -> None:
    if result != 0:
        raise SetupError(f"{step}: {os.strerror(ctypes.get_errno())}")


def _mount(
    source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None
) -> None:
    _check(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() if kind else None,
            ctypes.c_ulong(flags),
            options.encode() if options else None,
        ),
        f"mount {kind or 'bind'} {source} on {target}",
    )


def _bind(source: str, target: str, read_only: bool) -> None:
    """Shows `source` at `target`, with everything that is mounted below it.

    Read-only means all of that: no writes, no set-user-id, no devices, in any file system there.
    """
    _mount(source, target, None, MS_BIND | MS_REC)
    if read_only and not _set_read_only(target):
        for place in _mounts_below(target):
            _remount_read_only(place)


def _set_read_only(target: str) -> bool:
    """Makes a tree of mounts read-only in one step; False where the kernel has no such call.

    Linux 5.12 has it. A seccomp filter around us may refuse it with EPERM.
    """
    attributes = struct.pack("4Q", _ATTR_RDONLY | _ATTR_NOSUID | _ATTR_NODEV, 0, 0, 0)
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_AT_RECURSIVE),
        attributes,
        ctypes.c_size_t(len(attributes)),
    )
    return bool(result == 0)


def _mounts_below(target: str) -> list[str]:
    """Mount points at and below `target`, parents first."""
    top = os.path.realpath(target)
    with open("/proc/self/mountinfo", "rb") as file:
        names = [line.split()[4] for line in file]
    # Blanks, tabs, newlines and backslashes stand there in octal.
    places = [os.fsdecode(name.decode("unicode_escape").encode("latin-1")) for name in names]
    return sorted({p for p in places if p == top or p.startswith(f"{top}/")})


def _remount_read_only(target: str) -> None:
    current = os.statvfs(target).f_flag
    keep = current & _LOCKED_FLAGS | ((1 << 21) if current & _ST_RELATIME else 0)
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | keep
    _mount("none", target, None, flags)


def _loopback_up() -> None:
    control = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    request = struct.pack("16sh22x", b"lo", 0)
    (flags,) = struct.unpack_from("h", fcntl.ioctl(control.fileno(), _SIOCGIFFLAGS, request), 16)
    up = struct.pack("16sh22x", b"lo", flags | _IFF_UP)
    fcntl.ioctl(control.fileno(), _SIOCSIFFLAGS, up)
    control.close()


def _overlay(
    root: str, directory: str, layer: str | None = None, installed: str | None = None
) -> None:
    """A writable view of a host directory, or a read-only one where overlayfs is not to be had.

    A directory that exists in the upper layer belongs to box-root, so files can be added to it;
    one that exists only below still belongs to the host's root, whom the box doesn't know.

    `layer` is a directory laid over the host's; where there is no overlayfs it stands in its place.
    `installed` is the root of a tree whose part is laid over both.
    """
    stage = f"{_STAGE}/layered" if layer else _STAGE
    upper, work = f"{stage}/upper{directory}", f"{stage}/work{directory}"
    target = root + directory
    for path in (upper, work, target):
        os.makedirs(path, exist_ok=True)
    lower = [layer, directory] if layer else [directory]
    if installed and os.path.isdir(installed + directory):
        lower.insert(0, installed + directory)
    for place in lower:
        for name in _writable_below(place, directory, deep=place == layer):
            os.makedirs(f"{upper}/{name}", exist_ok=True)
    options = f"lowerdir={':'.join(lower)},upperdir={upper},workdir={work},userxattr"
    try:
        _mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options)
    except SetupError:
        _bind(lower[0], target, read_only=True)


def _installed(root: str, tree: str) -> None:
    """Lays what was installed outside the host's directories below the box's own files."""
    for name in os.listdir(tree):
        lower, own = f"{tree}/{name}", f"{root}/{name}"
        if os.path.islink(lower) or not os.path.isdir(lower) or os.path.islink(own):
            continue
        if os.path.ismount(own):
            continue  # an overlay of the host's: it is in there
        upper, work = f"{_STAGE}/installed/upper/{name}", f"{_STAGE}/installed/work/{name}"
        for path in (own, upper, work):
            os.makedirs(path, exist_ok=True)
        os.chmod(upper, os.stat(own).st_mode & 0o7777)
        _own_what_changes(lower, upper, own)
        options = f"lowerdir={own}:{lower},upperdir={upper},workdir={work},userxattr"
        _mount("overlay", own, "overlay", MS_NOSUID | MS_NODEV, options)


def _own_what_changes(lower: str, upper: str, own: str, depth: int = 0) -> None:
    """Gives box-root the directories below `lower` that its programs may add files to, and the
    small files near the top, which are settings: what is only there belongs to the host's owner.
    """
    for entry in os.scandir(lower):
        place, there = f"{upper}/{entry.name}", f"{own}/{entry.name}"
        if entry.is_symlink():
            continue
        mode = entry.stat().st_mode & 0o777
        if entry.is_dir():
            if depth < _OWN_DEPTH and entry.name not in _PACKAGES:
                os.mkdir(place, mode)
                _own_what_changes(entry.path, place, there, depth + 1)
        elif depth < _OWN_FILES and entry.stat().st_size <= _SMALL and not os.path.lexists(there):
            with open(entry.path, "rb") as source:
                content = source.read(_SMALL)
            copy = os.open(place, os.O_CREAT | os.O_WRONLY | os.O_EXCL, mode)
            os.write(copy, content)
            os.close(copy)


def _writable_below(place: str, directory: str, *, deep: bool) -> list[str]:
    """Directories in which the box may add and replace files: programs', and Python packages'.

    `deep`: also all directories in the latter, so that pip can replace what is there.
    """
    inside = f"{directory}/"
    names = [path[len(inside) :] for path in box_server.WRITABLE if path.startswith(inside)]
    found = [name for name in names if os.path.isdir(f"{place}/{name}")]
    for name in [each for each in found if each == "lib" or each.endswith("/lib")]:
        for python in os.listdir(f"{place}/{name}"):
            if not python.startswith("python3."):
                continue
            for packages in ("site-packages", "dist-packages"):
                path = f"{name}/{python}/{packages}"
                if deep:
                    tree = os.walk(f"{place}/{path}")
                    found += [below[len(place) + 1 :] for below, _, _ in tree]
                elif os.path.isdir(f"{place}/{path}"):
                    found.append(path)
    return [name for name in found if not os.path.islink(f"{place}/{name}")]


def _devices(root: str) -> None:
    # On the box's own tmpfs, so that what is written under /dev counts against its size.
    for name in _DEVICES:
        os.close(os.open(f"{root}/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        _bind(f"/dev/{name}", f"{root}/dev/{name}", read_only=False)
    options = "newinstance,ptmxmode=0666,mode=620"
    _mount("devpts", f"{root}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, options)


def _restore(plan: dict[str, Any], stage: str, trees: dict[str, str]) -> None:
    """Puts the plan's snapshot into the trees, in place of what a new box begins with."""
    index, *packs = plan["restored"]
    for top in trees.values():
        os.makedirs(top or "/", exist_ok=True)
    within = {name: top.removeprefix(stage) for name, top in trees.items()}
    numbered = dict(zip(plan["restore"], packs, strict=True))
    try:
        box_snapshot.restore(stage, within, index, numbered)
    except (ValueError, LookupError, OverflowError) as error:
        raise SetupError(f"the snapshot can't be restored: {error}") from error
    root = trees[""]
    for mounted in ("/proc", "/dev/pts"):  # what is mounted is in no snapshot
        os.makedirs(root + mounted, exist_ok=True)
    for descriptor in plan["restored"]:
        os.close(descriptor)


def _build_tree(plan: dict[str, Any], sources: list[int]) -> str:
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    options = f"mode=0755,size={plan['storage_bytes']},nr_inodes={plan['inodes']}"
    _mount("box", _STAGE, "tmpfs", MS_NOSUID | MS_NODEV, options)
    root = f"{_STAGE}/root"
    os.mkdir(root, 0o755)
    _mount(root, root, None, MS_BIND)  # pivot_root wants a mount point
    if plan["restored"]:
        _restore(plan, _STAGE, {"": root, **_LAYERS})
    else:
        box_server.populate(root, plan)
    installed = f"/proc/self/fd/{sources[-1]}" if plan["installed"] else None
    for directory in plan["overlays"]:
        _overlay(root, directory, installed=installed)
    layers = sources[len(plan["binds"]) :]
    for descriptor, (_, directory) in zip(layers, plan["layers"], strict=False):
        _overlay(root, directory, f"/proc/self/fd/{descriptor}", installed)
        os.close(descriptor)
    if installed:
        _installed(root, installed)
        os.close(sources[-1])
    _mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _devices(root)
    for descriptor, (_, target, read_only) in zip(sources, plan["binds"], strict=False):
        source = f"/proc/self/fd/{descriptor}"
        if os.path.isdir(source):
            os.makedirs(root + target, exist_ok=True)
        elif not os.path.exists(root + target):
            os.makedirs(os.path.dirname(root + target), exist_ok=True)
            os.close(os.open(root + target, os.O_CREAT | os.O_WRONLY, 0o644))
        _bind(source, root + target, read_only)
        os.close(descriptor)
    return root


def _enter(root: str) -> None:
    os.mkdir(f"{root}/.old")
    os.chdir(root)
    _check(_libc.pivot_root(b".", b".old"), "pivot_root")
    os.chdir("/")
    _check(_libc.umount2(b"/.old", MNT_DETACH), "unmount the host's tree")
    os.rmdir("/.old")


def _own_oom_score() -> int:
    """A descriptor of this process's `oom_score_adj`, which it can't open once it is undumpable."""
    _check(_libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "dumpable")
    return os.open("/proc/self/oom_score_adj", os.O_WRONLY)


def _give_up_privileges(hidden: list[str]) -> None:
    # No user namespaces inside the box: they would give its processes the kernel's whole
    # privileged surface. Only CAP_SYS_RESOURCE, dropped below, could set this back.
    with open("/proc/sys/user/max_user_namespaces", "w") as setting:
        setting.write("0")
    for name in hidden:
        if os.path.exists(f"/proc/{name}"):
            _bind("/dev/null", f"/proc/{name}", read_only=True)
    # Nothing in there is the box's to change: settings of the kernel, triggers of its pressure
    # statistics, and which of the box's processes is to go first when there is no memory left.
    _bind("/proc", "/proc", read_only=True)
    last = int(open("/proc/sys/kernel/cap_last_cap").read())  # noqa: SIM115
    for capability in range(last + 1):
        if capability not in _KEPT_CAPABILITIES:
            _check(_libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "drop a capability")
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    box_seccomp.install()
    # This process never executes anything after the namespaces were made, so with this its
    # memory and descriptors are out of reach of everything in the box, box-root included.
    _check(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "undumpable")


def _init(control: _socket.socket, plan: dict[str, Any], sources: list[int]) -> None:
    # A box must not outlive the process above it; that process is single-threaded, so the signal
    # can't come from the end of some thread. The owner's death is seen as EOF on the socket.
    _check(_libc.prctl(PR_SET_PDEATHSIG, box_server.SIGKILL, 0, 0, 0), "prctl")
    oom_score = _own_oom_score()
    _check(_libc.sethostname(b"box", 3), "sethostname")
    if plan["own_network"]:
        _loopback_up()
    root = _build_tree(plan, sources)
    # Opened now: once the box's tree is entered, they have no path.
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    layers = {n: os.open(path, flags) for n, path in _LAYERS.items() if os.path.isdir(path)}
    _enter(root)
    box_server.set_limits(plan)
    _give_up_privileges(plan["hidden"])
    server = box_server.Server(control, plan, oom_score, layers)
    control.send(b"ready")
    server.serve()


def _unshare(control: _socket.socket, plan: dict[str, Any]) -> list[int]:
    """Makes the namespaces; descriptors of what is to be bound into the box."""
    uid, gid = os.geteuid(), os.getegid()
    namespaces = os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWUTS
    namespaces |= os.CLONE_NEWIPC | os.CLONE_NEWCGROUP
    if plan["own_network"]:
        namespaces |= os.CLONE_NEWNET
    os.unshare(namespaces)
    # In the new mounts, or they couldn't be bound; still as the owner, who may be allowed to
    # enter directories that the box's root is not; and before a tmpfs hides any of them.
    paths = [source for source, *_ in (*plan["binds"], *plan["layers"])]
    if plan["installed"]:
        paths.append(plan["installed"])
    sources = [os.open(path, os.O_PATH) for path in paths]
    if plan["maps_range"]:
        control.send(b"namespaces")
        if control.recv(16) != b"go":
            os._exit(0)
        os.setresgid(0, 0, 0)
        os.setgroups([])
        os.setresuid(0, 0, 0)
        return sources
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    return sources


def _hide_command_line() -> None:
    """Anyone in the box may read /proc/1/cmdline; the host's paths in ours are not for it."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, fields 48 and 49
    title = b"box-init"
    if start and end - start > len(title):
        ctypes.memmove(start, title + bytes(end - start - len(title)), end - start)


def _read_plan(control: _socket.socket) -> dict[str, Any]:
    # As a file: a plan can be longer than a message may be.
    _, ancillary, _, _ = control.recvmsg(16, 4096)
    raw = ancillary[0][2]
    descriptor, *restored = struct.unpack(f"{len(raw) // 4}i", raw)
    with open(descriptor, "rb") as file:
        file.seek(0)
        plan: dict[str, Any] = marshal.load(file)
    plan["restored"] = restored
    return plan


def _go_first() -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, 0, box_server.OWN_NICENESS)
    except PermissionError:
        return  # root of a container that may not


def main() -> None:
    """Entry point: `python -I -S -c "...; main()" <descriptor of the control socket>`."""
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    control = _socket.socket(fileno=descriptor)
    os.umask(0o022)
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(box_server.OWN_OOM_SCORE))
    if os.geteuid() == 0:
        _go_first()
    _hide_command_line()
    try:
        plan = _read_plan(control)
        if plan["assembled"]:  # bubblewrap made the tree and put us in it
            if plan["restored"]:
                _restore(plan, "", {"": ""})
            else:
                box_server.populate("", plan)
            box_server.set_limits(plan)
            oom_score = _own_oom_score()
            box_seccomp.install()
            _check(_libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "undumpable")
            server = box_server.Server(control, plan, oom_score, {})
            control.send(b"ready")
            server.serve()
        sources = _unshare(control, plan)
        child = os.fork()
        if child == 0:
            _init(control, plan, sources)
        control.send(f"init {child}".encode())
        control.close()
        os.waitpid(child, 0)
    except (OSError, SetupError, KeyError) as error:
        control.send(f"error {error}".encode()[:4096])
        os._exit(1)
    os._exit(0)
