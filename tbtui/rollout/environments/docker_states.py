"""States of containers: commits of a running one, and what a new one needs to begin from them."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec

from tbtui.rollout.environments.base import SandboxError, SandboxStartError
from tbtui.rollout.environments.docker_running import RunningProject
from tbtui.rollout.environments.snapshots import (
    PROMPT,
    SCREEN,
    STATE,
    STATE_IMAGES,
    Snapshot,
    SnapshotStore,
    StateImage,
    TerminalSnapshot,
)

_PREPARE = """\
mkdir -p /run && for file in "$@"; do : >>"$file" && chmod 666 "$file" || exit; done
"""
_LIST_PROCESSES = """\
for program in cat tr cut; do
    command -v $program >/dev/null || { echo "no $program"; exit 1; }
done
for directory in /proc/[0-9]*; do
    process=${directory#/proc/}
    case " $$ $* " in *" $process "*) continue ;; esac
    stat=$(cat "$directory/stat" 2>/dev/null) || continue
    stat=${stat##*) } state=${stat%% *} parent=${stat#* } parent=${parent%% *}
    case $state in Z|X) continue ;; esac
    command=$(tr '\\0\\n' '  ' <"$directory/cmdline" 2>/dev/null | cut -c 1-400)
    [ -z "$command" ] || echo "$process $parent $command"
done
"""


async def prepare_for_states(running: RunningProject) -> None:
    """Make the files in which shells save themselves. Raises `SandboxStartError`."""
    made = await running.shell(_PREPARE, STATE, PROMPT, SCREEN)
    if made.exit_code != 0:
        raise SandboxStartError(f"the container can't keep states: {made.complaint}")


async def show_in_next_shell(running: RunningProject, screen: str) -> None:
    """Let the next shell restore itself and print this. Raises `SandboxStartError`."""
    shown = await running.shell('cat >"$1"', SCREEN, stdin=screen.encode())
    if shown.exit_code != 0:
        raise SandboxStartError(f"the screen can't be restored: {shown.complaint}")


async def commit_state(
    running: RunningProject, store: SnapshotStore, draft: Snapshot, terminal: TerminalSnapshot
) -> Snapshot:
    """Commit the container as the snapshot of `draft.turn`; it stands still meanwhile.

    Raises:
        SandboxError: it is more than the store takes, or can't be kept; the text says which.
    """
    processes = await _processes(running)
    prompt = await running.shell('cat "$1"', PROMPT)
    hostname = await running.ask("inspect", "--format", "{{.Config.Hostname}}", running.container)
    key = hashlib.sha256(f"{store.directory.absolute()} {draft.turn}".encode()).hexdigest()[:24]
    names = {"engine": running.engine[0], "name": f"{STATE_IMAGES}:{key}"}
    image = msgspec.convert(names, StateImage)
    try:
        await asyncio.to_thread(store.note_image, draft.turn, image)
        await running.commit(image.name)
        written = await _written_in(running, image.name)
        if written > store.max_bytes:
            raise SandboxError("more than snapshot_mb was written")
        noted = msgspec.structs.replace(image, written=written)
        await asyncio.to_thread(store.note_image, draft.turn, noted)
    except OSError as error:
        raise SandboxError(f"no snapshot: {error.strerror}") from error
    return msgspec.structs.replace(
        draft,
        container_image=image.name,
        hostname=hostname.strip(),
        written=written,
        total=written,
        programs=terminal.programs(processes),
        not_at_prompt=terminal.not_at_prompt(processes, prompt.stdout),
    )


async def _processes(running: RunningProject) -> list[tuple[int, int, str]]:
    """Process, parent and command line of all that came with the agent, by the container's own
    programs."""
    listed = await running.shell(_LIST_PROCESSES, *running.spared)
    if listed.exit_code != 0:
        await running.check()
        raise SandboxError(f"the container can't list its processes: {listed.complaint}")
    rows = [line.split(" ", 2) for line in listed.stdout.splitlines()]
    return [(int(row[0]), int(row[1]), row[2].strip()) for row in rows]


async def _written_in(running: RunningProject, image: str) -> int:
    """Bytes that a commit has beyond what the container was started from."""
    base = (await running.ask("inspect", "--format", "{{.Image}}", running.container)).strip()
    sizes = await running.ask("image", "inspect", "--format", "{{.Size}}", image, base)
    whole, before = map(int, sizes.split())
    return max(0, whole - before)
