"""Users and groups as the box's own files name them.

By hand: the C library's look-up would load plug-ins from the box's own tree.
"""

# Importing pathlib would cost more than making a box.
# ruff: noqa: PTH123
from __future__ import annotations

import errno


class Account:
    def __init__(self, uid: int, gid: int, home: str, groups: list[int]) -> None:
        self.uid, self.gid, self.home, self.groups = uid, gid, home, groups


def _lines(path: str) -> list[list[str]]:
    try:
        with open(path, errors="replace") as file:
            return [line.rstrip("\n").split(":") for line in file.read(1 << 20).splitlines()]
    except OSError:
        return []


def lookup(name: str) -> Account:
    """The user `name`, a uid, `user:group` or `uid:gid`.

    Raises:
        OSError: /etc/passwd or /etc/group of the box has no such name.
    """
    name, _, group = name.partition(":")
    entry = next((e for e in _lines("/etc/passwd") if len(e) >= 6 and name in {e[0], e[2]}), None)
    if entry is None and not name.isdigit():
        raise OSError(errno.EINVAL, f"no user {name!r} in the box")
    uid, gid, home = (int(entry[2]), int(entry[3]), entry[5]) if entry else (int(name), 0, "/")
    known = [e for e in _lines("/etc/group") if len(e) >= 4 and e[2].isdigit()]
    if group:
        found = next((e[2] for e in known if group in {e[0], e[2]}), group)
        if not found.isdigit():
            raise OSError(errno.EINVAL, f"no group {group!r} in the box")
        gid = int(found)
    member = entry[0] if entry else name
    groups = [int(e[2]) for e in known if member in e[3].split(",")]
    return Account(uid, gid, home, [gid, *groups])
