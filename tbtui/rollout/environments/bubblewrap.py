"""The box made by bubblewrap, for hosts that let only it use user namespaces.

Ubuntu's AppArmor profile for bwrap takes every capability from what runs inside. So bwrap makes
the tree, /usr stays read-only (an overlay would need capabilities), and there is one user.
/dev/shm has the storage limit a second time.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from tbtui.rollout.environments.box import Box, start_command
from tbtui.rollout.environments.box_init import HIDDEN_PROC
from tbtui.rollout.environments.errors import SandboxStartError
from tbtui.rollout.environments.plan import BoxPlan

# No capabilities even for root, no user namespaces inside.
LOCKED_DOWN = ("--unshare-user", "--disable-userns", "--cap-drop", "ALL")
AS_ROOT = (
    "bubblewrap run by root: the sandbox's root is this machine's root, without its capabilities."
    " Run as an ordinary user, or leave environment_kwargs.backend out"
)
_RUNTIME = "/run/box"


async def start_box(plan: BoxPlan, label: str) -> Box:
    """As `Box.start`. Raises SandboxStartError."""
    # bwrap makes /dev and /proc itself, and nothing more may be written there.
    made = replace(
        plan,
        directories=tuple(d for d in plan.directories if not d[0].startswith(("/dev", "/proc"))),
        links=tuple(link for link in plan.links if not link[0].startswith("/dev")),
    )
    return await Box.start(made, label, command=bubblewrap_command(plan))


def bubblewrap_command(plan: BoxPlan, bwrap: str | None = None) -> list[str]:
    """The command line that makes the box of `plan` and starts `box_init` in it.

    Raises:
        SandboxStartError: bwrap is not installed.
    """
    program = bwrap or shutil.which("bwrap")
    if program is None:
        raise SandboxStartError("bubblewrap is not installed: apt-get install bubblewrap")
    argv = [program, "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session"]
    argv += [*LOCKED_DOWN, "--uid", "0", "--gid", "0", "--hostname", "box", "--clearenv"]
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
    return [*argv, "--", *start_command(str(interpreter), f"{_RUNTIME}/lib")]
