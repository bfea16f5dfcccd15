"""Saves what a box has written, from inside it, and puts it into another box before that starts.

What a box writes lies in its root and in the upper layers of its overlays. A snapshot is an index,
a line for each file there, and a pack, with the contents of the files that are not as they were in
the snapshot before; the index of an unchanged file points into an earlier pack. Neither is ever
unpacked on the host. Named pipes, sockets and what is mounted are left out.

Imports only what `box_init` does, for the same reason.
"""

# Importing pathlib would cost more than making a box.
# ruff: noqa: PTH101, PTH103, PTH123
# ruff: noqa: PTH208, PTH211
from __future__ import annotations

import sys

assert sys.platform == "linux"

import errno
import os
import stat

from tbtui.rollout.environments.box_watch import pids

TYPE_CHECKING = False  # importing typing itself would double the start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator

_NONE = "-"
_LONGEST_COMMAND = 80
_LONGEST_PROMPT = 1024


class _Entry:
    """One line of an index."""

    __slots__ = ("fields",)

    def __init__(self, fields: list[str]) -> None:
        # space, kind, mode, uid, gid, mtime, ctime, inode, size, pack, offset, name, target, xattrs
        self.fields = fields

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for a file that has not been written to."""
        space, kind, _, _, _, *rest = self.fields
        return (space, kind, *rest[:4])

    @property
    def name(self) -> str:
        return _decoded(self.fields[11])

    def line(self) -> bytes:
        return " ".join(self.fields).encode() + b"\n"


def _encoded(text: str) -> str:
    return os.fsencode(text).hex() or _NONE


def _decoded(text: str) -> str:
    return "" if text == _NONE else os.fsdecode(bytes.fromhex(text))


def _read_index(index: int) -> Iterator[_Entry]:
    with open(index, "rb", closefd=False) as file:
        file.seek(0)
        for line in file:
            yield _Entry(line.decode().split())


class _Saving:
    def __init__(self, pack: int, number: int, limit: int, before: dict[tuple[str, ...], _Entry]):
        self._pack = pack
        self._number = number
        self._left = limit
        self._before = before
        self._linked: dict[tuple[str, int], str] = {}
        self.lines: list[bytes] = []
        self.written = 0
        self.total = 0
        self.packs: set[int] = set()

    def tree(self, space: str, top: int) -> None:
        device = os.fstat(top).st_dev
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
            try:
                here = os.open(directory or ".", flags, dir_fd=top)
            except OSError:
                continue  # it is gone
            try:
                info = os.fstat(here)
                if info.st_dev != device:
                    continue  # something is mounted there
                self._add(space, "d", info, directory, xattrs=_xattrs(here))
                for name in os.listdir(here):
                    inner = f"{directory}/{name}" if directory else name
                    if self._below(space, here, name, inner, device):
                        waiting.append(inner)
            finally:
                os.close(here)

    def _below(self, space: str, here: int, name: str, inner: str, device: int) -> bool:
        """Adds what is no directory; says whether it is one."""
        try:
            info = os.stat(name, dir_fd=here, follow_symlinks=False)
            kind = stat.S_IFMT(info.st_mode)
            if info.st_dev != device:
                return False
            if kind == stat.S_IFDIR:
                return True
            if kind == stat.S_IFLNK:
                self._add(space, "l", info, inner, target=os.readlink(name, dir_fd=here))
            elif kind == stat.S_IFREG:
                self._file(space, here, name, inner, info)
            elif kind == stat.S_IFCHR and info.st_rdev == 0:
                self._add(space, "w", info, inner)  # of an overlay: what is below is deleted
        except FileNotFoundError:
            pass  # the box is alive: its files come and go
        return False

    def _file(self, space: str, here: int, name: str, inner: str, info: os.stat_result) -> None:
        if info.st_nlink > 1:
            first = self._linked.setdefault((space, info.st_ino), inner)
            if first != inner:
                self._add(space, "h", info, inner, target=first)
                return
        entry = _entry(space, "f", info, inner)
        known = self._before.get(entry.key)
        if known is not None:
            entry.fields[9:11], entry.fields[13] = known.fields[9:11], known.fields[13]
        else:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
            try:
                size = self._copy(file, info.st_size)
                entry.fields[8] = str(size)
                entry.fields[9:11] = [str(self._number), str(self.written - size)]
                entry.fields[13] = _xattrs(file)
            finally:
                os.close(file)
        self.total += int(entry.fields[8])
        self.packs.add(int(entry.fields[9]))
        self.lines.append(entry.line())

    def _copy(self, file: int, size: int) -> int:
        self._left -= size
        if self._left < 0:
            raise OSError(errno.EFBIG, "more than snapshot_mb was written")
        at = 0
        while at < size and (sent := os.sendfile(self._pack, file, at, size - at)):
            at += sent
        self.written += at
        return at

    def _add(
        self,
        space: str,
        kind: str,
        info: os.stat_result,
        name: str,
        target: str = "",
        xattrs: str = _NONE,
    ) -> None:
        entry = _entry(space, kind, info, name)
        entry.fields[12], entry.fields[13] = _encoded(target), xattrs
        self.lines.append(entry.line())


def _entry(space: str, kind: str, info: os.stat_result, name: str) -> _Entry:
    numbers = (
        *(stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid, info.st_mtime_ns),
        *(info.st_ctime_ns, info.st_ino, info.st_size, 0, 0),
    )
    return _Entry([_encoded(space), kind, *map(str, numbers), _encoded(name), _NONE, _NONE])


def _xattrs(file: int) -> str:
    """Extended attributes that a user may set: an overlay keeps its own there."""
    try:
        names = [name for name in os.listxattr(file) if name.startswith("user.")]
        pairs = [f"{_encoded(name)}={os.getxattr(file, name).hex()}" for name in names]
    except OSError:
        return _NONE  # this file system has none
    return ",".join(pairs) or _NONE


def save(
    spaces: dict[str, int],
    descriptors: list[int],
    number: int,
    limit: int,
) -> None:
    """Writes a snapshot.

    Args:
        spaces: top directory of each tree, by its name.
        descriptors: of the index, the pack, and the summary to write, and of the index of the
            snapshot before, if there is one.
        number: the pack's.
        limit: most bytes of the pack.

    Raises:
        OSError: EFBIG, where it would be more.
    """
    index, pack, summary, *previous = descriptors
    before = {}
    for each in previous:
        before = {entry.key: entry for entry in _read_index(each) if entry.fields[1] == "f"}
    saving = _Saving(pack, number, limit, before)
    for space, top in spaces.items():
        saving.tree(space, top)
    with open(index, "wb", closefd=False) as file:
        file.writelines(saving.lines)
    packs = ",".join(map(str, sorted(saving.packs)))
    lines = [f"{saving.written} {saving.total} {packs or _NONE} {_prompt()}", *_processes()]
    os.write(summary, "\n".join(lines).encode(errors="replace"))


def _prompt() -> str:
    """The prompt that the terminal's shell has shown last, as `snapshots.KEEPS_STATE` saves it."""
    try:
        file = os.open("/run/.prompt", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return _NONE
    try:
        return os.read(file, _LONGEST_PROMPT).hex() or _NONE
    finally:
        os.close(file)


def _processes() -> list[str]:
    """`pid parent command` of each process of the box but this one."""
    found = []
    for pid in pids():
        if pid == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read(_LONGEST_COMMAND).replace(b"\0", b" ").decode(errors="replace")
            with open(f"/proc/{pid}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state not in (b"Z", b"X") and command:
            found.append(f"{pid} {int(parent)} {' '.join(command.split())}")
    return found


def restore(stage: str, spaces: dict[str, str], index: int, packs: dict[int, int]) -> None:
    """Puts a snapshot into new, empty trees.

    The index may be anybody's. So `stage` is this process's root meanwhile: whatever names and
    links the index has, nothing outside of the box's own file system can be reached.

    Args:
        stage: the directory that all trees lie in; empty: this process's root is the box's.
        spaces: top directory of each tree in it, by its name; a snapshot's others are left out.
        index: its descriptor.
        packs: the descriptors of the packs that it points into, by number.

    Raises:
        ValueError, LookupError, OverflowError: the index is damaged, or names a place outside of
            its tree.
        OSError: it can't be restored.
    """
    if not stage:
        _restore(spaces, index, packs)
        return
    outside = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chroot(stage)
        os.chdir("/")
        _restore(spaces, index, packs)
    finally:
        os.fchdir(outside)
        os.chroot(".")
        os.close(outside)


def _restore(spaces: dict[str, str], index: int, packs: dict[int, int]) -> None:
    directories: list[tuple[str, int]] = []
    for entry in _read_index(index):
        space, kind, mode, uid, gid, mtime, _, _, size, pack, offset = entry.fields[:11]
        space = _decoded(space)
        if space not in spaces:
            continue
        top, target = spaces[space], _decoded(entry.fields[12])
        path = f"{top}/{_within(entry.name)}" if entry.name else top
        match kind:
            case "d":
                os.makedirs(path, exist_ok=True)
                directories.append((path, int(mtime)))
            case "l":
                os.symlink(target, path)
            case "h":
                os.link(f"{top}/{_within(target)}", path, follow_symlinks=False)
                continue
            case "w":
                os.mknod(path, stat.S_IFCHR, 0)
            case "f":
                _restore_file(path, packs[int(pack)], int(offset), int(size))
        os.chown(path, int(uid), int(gid), follow_symlinks=False)
        if kind in "df":
            os.chmod(path, int(mode))
            for pair in [] if entry.fields[13] == _NONE else entry.fields[13].split(","):
                name, _, value = pair.partition("=")
                if (attribute := _decoded(name)).startswith("user."):
                    os.setxattr(path, attribute, bytes.fromhex(value), follow_symlinks=False)
        if kind == "f":
            os.utime(path, ns=(int(mtime), int(mtime)))
    for path, modified in reversed(directories):
        os.utime(path, ns=(modified, modified))


def _within(name: str) -> str:
    """A name below the top of a tree."""
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"it names a place outside of its box: {name!r}")
    return name


def _restore_file(path: str, pack: int, offset: int, size: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        end = offset + size
        while offset < end and (sent := os.sendfile(file, pack, offset, end - offset)):
            offset += sent
    finally:
        os.close(file)
