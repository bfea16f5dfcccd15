"""Plans a box: which parts of the host it sees, and what is written for it.

An allow-list. The box sees /usr (read-only below a layer of its own) and a few directories of
/etc that programs need; its /etc is otherwise written here. It sees no /home, /root, /var, /opt,
/srv, /mnt, /run, /tmp or any other top-level directory of the host.
"""

from __future__ import annotations

import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tbtui.rollout.environments.limits import BYTES_PER_INODE, BoxLimits
from tbtui.rollout.environments.snapshots import KEEPS_STATE, PROMPT, SCREEN, STATE
from tbtui.rollout.environments.userland import Userland

_DIRECTORIES = (
    *("/app", "/tests", "/solution", "/home", "/mnt", "/opt", "/srv", "/run", "/run/lock"),
    *("/sys", "/proc", "/dev", "/dev/pts", "/logs", "/etc", "/etc/ssl", "/etc/profile.d"),
    *("/etc/skel", "/etc/default", "/etc/opt", "/etc/cron.d", "/etc/init.d"),
    *("/var", "/var/lib", "/var/cache", "/var/log", "/var/mail", "/var/opt", "/var/spool"),
)
_LOG_DIRECTORIES = ("/logs/agent", "/logs/user-agent", "/logs/verifier", "/logs/artifacts")
# Read-only views of the host's: what programs under /usr look for, none of it secret.
_ETC_DIRECTORIES = (
    *("alternatives", "ssl/certs", "ca-certificates", "fonts", "perl", "vim", "terminfo"),
    *("ld.so.conf.d", "X11", "groff", "python3", "php", "ImageMagick-6", "ImageMagick-7"),
)
_ETC_DIRECTORY_PATTERNS = ("python3.*", "java-*-openjdk", "lua*")
_ETC_FILES = (
    *("ld.so.cache", "ld.so.conf", "services", "protocols", "rpc", "ethertypes", "mime.types"),
    *("magic", "magic.mime", "localtime", "timezone", "os-release", "debian_version"),
    *("lsb-release", "locale.alias", "inputrc", "login.defs", "shells", "host.conf", "gai.conf"),
    *("ssl/openssl.cnf", "manpath.config", "ca-certificates.conf", "adduser.conf"),
)
_LARGEST_ETC_FILE = 1 << 20
# Files about the host's kernel, not about the box; a container hides these too.
HIDDEN_PROC = ("cmdline", "kcore", "keys", "kmsg", "latency_stats", "sched_debug", "timer_list")

_PASSWD = """\
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
sys:x:3:3:sys:/dev:/usr/sbin/nologin
man:x:6:12:man:/var/cache/man:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
backup:x:34:34:backup:/var/backups:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
_GROUP = """\
root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
disk:x:6:
mail:x:8:
man:x:12:
sudo:x:27:
www-data:x:33:
backup:x:34:
shadow:x:42:
staff:x:50:
users:x:100:
nogroup:x:65534:
"""
# Agents read the screen: the prompt must be the same on every host, so no profile script of the
# host runs and this is all that the shell gets.
_SHELL_PROFILE = "PS1='\\u@box:\\w\\$ '\nunset PROMPT_COMMAND\n"
_KEEPING_PROFILE = f"PS1='\\u@box:\\w\\$ '\nPROMPT_COMMAND={shlex.quote(KEEPS_STATE)}\n"
# Terminus-2 asks for a longer history only after its pane exists, when it no longer counts.
_TMUX_CONF = "set -g history-limit 200000\n"


@dataclass(frozen=True, slots=True)
class Bind:
    """A path of the host granted to the box."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Restored:
    """A snapshot's files on the host."""

    index: Path
    packs: Mapping[int, Path]
    """By number, all that the index points into."""


@dataclass(frozen=True, slots=True)
class BoxPlan:
    """Everything the box's first process needs to know."""

    limits: BoxLimits
    network: bool
    """True: the host's network; False: a network of its own with a loopback only."""
    binds: tuple[Bind, ...] = ()
    overlays: tuple[str, ...] = ()
    """Directories of the host below a layer of the box's own."""
    layers: tuple[tuple[str, str], ...] = ()
    """Directories of the host, each between such a directory and the box's own layer."""
    installed: str | None = None
    """A directory of the host with a tree that is laid over the box's, below the box's own layer:
    what an agent's set-up has installed."""
    directories: tuple[tuple[str, int], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, bytes, int], ...] = field(default=(), repr=False)
    restored: Restored | None = None
    """A snapshot that takes the place of directories, links and files."""

    def wire(
        self, *, maps_range: bool, assembled: bool, cgroups: frozenset[str], cpu_set: list[int]
    ) -> dict[str, Any]:
        """The form `box_init` reads; `cgroups` names the totals a control group already holds."""
        limits = self.limits
        held = "memory" in cgroups
        return {
            "maps_range": maps_range,
            "assembled": assembled,
            "own_network": not self.network,
            "binds": [(b.source, b.target, b.read_only) for b in self.binds],
            "overlays": list(self.overlays),
            "layers": list(self.layers),
            "restore": sorted(self.restored.packs) if self.restored is not None else [],
            "installed": self.installed,
            "dirs": list(self.directories),
            "links": list(self.links),
            "files": list(self.files),
            "hidden": list(HIDDEN_PROC),
            "storage_bytes": limits.storage_bytes,
            "inodes": max(20_000, limits.storage_bytes // BYTES_PER_INODE // 2),
            "rlimits": limits.rlimits(memory_cgroup=held),
            "cpus": cpu_set,
            "processes": limits.processes,
            "watch_memory_bytes": 0 if held else limits.memory_bytes,
            "watch_cpu": "cpu" not in cgroups,
            # A group has its share anyway; without one, what runs the trials goes first.
            "niceness": 0 if "cpu" in cgroups else 5,
        }


def plan_box(
    limits: BoxLimits,
    *,
    network: bool = False,
    grants: tuple[Bind, ...] = (),
    userland: Userland | None = None,
    keeps_state: bool = False,
    installed: str | None = None,
) -> BoxPlan:
    """The standard box of this host: its own userland, nothing of its users' data.

    Args:
        limits: What the box may use.
        network: Share the host's network, name servers included.
        grants: Further paths of the host, shown in the box because a setting asks for them.
        userland: What its image's programs and packages are here.
        keeps_state: Its shells save before each prompt what is in no file.
        installed: A tree that is laid over the box's (`BoxPlan.installed`).
    """
    binds = [Bind(str(path), str(path)) for path in _etc_directories()]
    overlays, links = ["/usr"], [("/dev/ptmx", "pts/ptmx"), ("/dev/fd", "/proc/self/fd")]
    links += [(f"/dev/std{n}", f"/proc/self/fd/{i}") for i, n in enumerate(("in", "out", "err"))]
    links += [("/var/run", "/run"), ("/var/lock", "/run/lock"), ("/etc/mtab", "/proc/mounts")]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/") / name
        if path.is_symlink():
            links.append((str(path), str(path.readlink())))
        elif path.is_dir():
            overlays.append(str(path))
    directories = [(path, 0o755) for path in _DIRECTORIES]
    directories += [("/root", 0o700), ("/tmp", 0o1777), ("/var/tmp", 0o1777)]
    directories += [("/dev/shm", 0o1777), *((path, 0o777) for path in _LOG_DIRECTORIES)]
    files = _etc_files(network, _KEEPING_PROFILE if keeps_state else _SHELL_PROFILE)
    if keeps_state:
        files += [(path, b"", 0o666) for path in (STATE, PROMPT, SCREEN)]
    if userland is not None:
        binds += [Bind(source, target) for source, target in userland.shown]
        directories += [(path, 0o755) for path in userland.directories]
        links += userland.links
        files += userland.files
    return BoxPlan(
        limits=limits,
        network=network,
        binds=(*binds, *grants),
        overlays=tuple(overlays),
        layers=userland.layers if userland is not None else (),
        installed=installed,
        directories=tuple(directories),
        links=tuple(links),
        files=tuple(files),
    )


def _etc_directories() -> list[Path]:
    etc = Path("/etc")
    found = [etc / name for name in _ETC_DIRECTORIES]
    for pattern in _ETC_DIRECTORY_PATTERNS:
        found += sorted(etc.glob(pattern))
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _etc_files(network: bool, profile: str) -> list[tuple[str, bytes, int]]:
    written = {
        "passwd": _PASSWD,
        "group": _GROUP,
        "hostname": "box\n",
        "hosts": "127.0.0.1 localhost box\n::1 localhost ip6-localhost ip6-loopback\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
        "profile": profile,
        "bash.bashrc": profile,
        "tmux.conf": _TMUX_CONF,
        "fstab": "",
        "resolv.conf": "",
        "environment": "",
    }
    files = [(f"/etc/{name}", text.encode(), 0o644) for name, text in written.items()]
    shadow = "".join(f"{line.split(':')[0]}:*:19000:0:99999:7:::\n" for line in _lines(_PASSWD))
    gshadow = "".join(f"{line.split(':')[0]}:*::\n" for line in _lines(_GROUP))
    files += [("/etc/shadow", shadow.encode(), 0o640), ("/etc/gshadow", gshadow.encode(), 0o640)]
    copied = (*_ETC_FILES, "resolv.conf") if network else _ETC_FILES
    for name in copied:
        path = Path("/etc") / name
        content = _public_content(path)
        if content is not None:
            files.append((str(path), content, 0o644))
    return files


def _lines(text: str) -> list[str]:
    return text.splitlines()


def _public_content(path: Path) -> bytes | None:
    """The file's bytes, if anyone on the host may read them."""
    try:
        info = path.stat()
        readable = info.st_mode & stat.S_IROTH and info.st_size <= _LARGEST_ETC_FILE
        return path.read_bytes() if readable and stat.S_ISREG(info.st_mode) else None
    except OSError:
        return None
