"""Paths that people give, where a user's own files lie, files that others may have put there."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

import platformdirs

from tbtui.errors import UserError

MOST_BYTES = 16 << 20
"""Most bytes of a file that is read as a whole, unless a caller says otherwise."""
MOST_RECORDED = 64 << 20
"""Most bytes of a recording: four times what a trial may leave."""
_LINK = "a link, which is not followed"
_SPECIAL = "not a regular file"


class PathError(UserError):
    """The path can't be used; the message is one line for a person."""


def expanded_user(given: str | Path) -> Path:
    """The path with its `~` or `~name` resolved. Nothing is looked at on the disk.

    Raises:
        PathError: the user has no home directory here.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise PathError(f"{given}: no such user ({Path(given).parts[0]})") from error


def expanded(given: str | Path) -> Path:
    """As `expanded_user`, of a path that may be looked at: `exists()` and the like don't fail.

    Nothing need be there.

    Raises:
        PathError: the user has no home directory here; or no path can be so, or this user
            mayn't look there.
    """
    path = expanded_user(given)
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise PathError(f"{given}: {error.strerror or error}") from error
    except ValueError as error:
        raise PathError(f"{str(given)!r}: not a path ({error})") from error
    return path


def leads_inside(path: Path, directory: Path) -> bool:
    """Whether what `path` means, links followed, lies in the directory."""
    try:
        return path.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError):  # a cycle of links
        return False


def open_plain(path: str | Path) -> BufferedReader:
    """Open a file that another user may have put there, to read it.

    A link is not followed, nothing is waited for (FIFOs), and no device is read.

    Raises:
        OSError: it can't be opened, or is no regular file; `strerror` says what it is.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(error.errno, _LINK, str(path)) from error
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise OSError(error.errno, _SPECIAL, str(path)) from error
        raise
    except ValueError as error:  # a name from a file, with a NUL in it
        raise OSError(errno.EINVAL, "not a path", str(path)) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, _SPECIAL, str(path))
    return os.fdopen(descriptor, "rb")


def replace_file(path: Path, content: bytes) -> None:
    """Write a whole file, in place of one of that name; its directory is made. Raises `OSError`,
    which names the file.

    Where two write at the same moment, one of them wins, and no reader sees a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    try:
        # A file of its own: a link that somebody has put there is not written through.
        with part.open("xb") as file:
            file.write(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        # Of a disk that is full Python does not say what was being written.
        raise OSError(error.errno, error.strerror, str(path)) from error


def read_plain(path: str | Path, most: int = MOST_BYTES) -> bytes:
    """Read a file that another user may have put there.

    Raises:
        OSError: as `open_plain`; or it has more than `most` bytes.
    """
    with open_plain(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
    return content


def require_plain(path: str | Path) -> None:
    """Raise `OSError` where something is there that is no regular file: for what others open."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, _LINK if stat.S_ISLNK(mode) else _SPECIAL, str(path))


_NAME = "tbtui"


def config_dir() -> Path:
    """Named sets, keys, themes: `$XDG_CONFIG_HOME/tbtui`, else `~/.config/tbtui`."""
    return platformdirs.user_config_path(_NAME)


def data_dir() -> Path:
    """Fetched tasks: `$XDG_DATA_HOME/tbtui`, else `~/.local/share/tbtui`."""
    return platformdirs.user_data_path(_NAME)


def state_dir() -> Path:
    """Which runs are live, and what else may be lost: `$XDG_STATE_HOME/tbtui`, else
    `~/.local/state/tbtui`."""
    return platformdirs.user_state_path(_NAME)


def cache_dir() -> Path:
    """What can be fetched again: `$XDG_CACHE_HOME/tbtui`, else `~/.cache/tbtui`."""
    return platformdirs.user_cache_path(_NAME)
