"""Which user ids of the host stand behind those of a box."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Numbers no distribution assigns: systemd's list of uid ranges leaves 1879048192..2147483647 free.
_FIRST, _SLOTS, IDS_PER_BOX = 1_879_048_192, 4096, 65_536


@dataclass(frozen=True, slots=True)
class IdRange:
    """The box's ids 0..65535 are the host's `first`.. : every user works inside, none is real."""

    first: int


def id_range(box_number: int, *, euid: int, own_map: str) -> IdRange | None:
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
    first = _FIRST + (box_number % _SLOTS) * IDS_PER_BOX
    for line in own_map.splitlines():
        inside, _, length = (int(field) for field in line.split())
        if inside <= first and first + IDS_PER_BOX <= inside + length:
            return IdRange(first)
    return None


def own_id_map() -> str:
    """This process's own map, for `id_range`."""
    return Path("/proc/self/uid_map").read_text()


def write_id_maps(pid: int, ids: IdRange) -> None:
    """Maps the user namespace of process `pid`, which waits for it.

    Raises:
        OSError: the kernel refuses, e.g. because the owner lacks CAP_SETUID.
    """
    text = f"0 {ids.first} {IDS_PER_BOX}\n"
    for name in ("uid_map", "gid_map"):
        Path(f"/proc/{pid}/{name}").write_text(text)
