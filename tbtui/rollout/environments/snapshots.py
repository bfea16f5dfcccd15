"""Snapshots of a trial's environment, on the host: files, bound, thinning, and their end.

A trial's snapshots lie in one directory. Of each turn there are a description and, for a sandbox,
an index and a pack (`box_snapshot`), for a container the name of the engine's image that has its
files. A pack stays as long as some index points into it. An image's name is written before there is
the image, and a run's snapshots are written down in the ledger, so that the next start removes what
a killed run has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol, runtime_checkable

import msgspec

from tbtui.paths import read_plain
from tbtui.rollout.environments.base import PANE_LOG, SandboxError
from tbtui.rollout.environments.docker_cli import run_cli
from tbtui.rollout.environments.ledger import Ledger
from tbtui.terminal import without_escapes

_TURN = re.compile(r"turn-(\d{5,})\.json")
_IMAGE, _DROPPED = "image", "dropped"
"""Endings of the files that name an image, and one whose snapshot was removed."""
_REMOVE_SEC = 60.0
_NO_IMAGE = re.compile("no such image|image not known", re.IGNORECASE)
_IN_USE = re.compile(r"is using its|in use by|being used by", re.IGNORECASE)
_MARKS = re.compile("[\x01\x02]")
"""Around what a prompt prints without taking room."""
# In the box: what the shell saves before each prompt, the prompt, what it prints when it begins.
STATE, PROMPT, SCREEN = "/run/.shell", "/run/.prompt", "/run/.screen"
KEEPS_STATE = (
    f'if [ -s {SCREEN} ]; then . {STATE} 2>/dev/null; printf "$(<{SCREEN})"; : >| {SCREEN}; fi; '
    "{ declare -p; declare -f; alias -p; shopt -p; set +o; trap -p; umask -p;"
    f" printf 'cd %q\\n' \"$PWD\"; }} >| {STATE} 2>/dev/null;"
    f' printf %s "${{PS1@P}}" >| {PROMPT} 2>/dev/null'
)
"""A `PROMPT_COMMAND` for bash: restores a shell that stands in a restored box, and saves what a
shell has that is in no file. It runs builtins alone, and leaves `$?` as it was."""


STATE_IMAGES = "tbtui-state"
"""The repository of the images that are states of containers."""
# Files of a run directory name them, which anybody may have written: an engine's client is run, and
# an image started, for no other.
ImageName = Annotated[str, msgspec.Meta(pattern=rf"^({STATE_IMAGES}:[\w.-]{{1,128}})?\Z")]
MOST_PACKS = 100
"""That one snapshot points into; the next one begins anew."""


class SavedImage(msgspec.Struct, frozen=True, kw_only=True):
    """What commands of the environment start with."""

    workdir: str
    environment: dict[str, str]
    user: str
    entrypoint: tuple[str, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an environment just before a turn."""

    turn: int
    image: SavedImage | None = None
    """What a sandbox starts commands with."""
    container_image: ImageName = ""
    """What a container was committed as."""
    hostname: Annotated[str, msgspec.Meta(pattern=r"^[\w.-]{0,64}\Z")] = ""
    """A container's, which prompts show."""
    packs: tuple[int, ...] = ()
    written: int = 0
    """Bytes that it added on the host."""
    total: int = 0
    """Bytes of all files in it."""
    programs: tuple[str, ...] = ()
    """What ran beside the terminal and its shell, and does not in what begins from it."""
    not_at_prompt: str = ""
    """Why the shell can't be restored; empty: it stood at its prompt."""
    screen: str = ""
    """The whole pane, with its colours, and its history."""
    plain: str = ""
    """The same without colours."""
    seen: str = ""
    """The pane as it was when the agent was shown it last."""
    history: int = 0
    """How many of its lines are above the visible screen."""
    row: int = 0
    """The cursor's, on the visible screen."""
    seconds: float = 0.0
    """How long it took to take."""

    @property
    def exact(self) -> bool:
        """Whether what begins from it is all that there was."""
        return not self.programs and not self.not_at_prompt


class StateImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image of an engine that is the state of a container."""

    engine: Literal["docker", "podman"]
    """The engine's client."""
    name: ImageName
    written: int = 0
    """Bytes that it has beyond the image that its container was started from."""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot, and where its files are."""

    snapshot: Snapshot
    store: SnapshotStore

    @property
    def index(self) -> Path:
        return self.store.index(self.snapshot.turn)

    @property
    def packs(self) -> dict[int, Path]:
        return {number: self.store.pack(number) for number in self.snapshot.packs}


@runtime_checkable
class KeepsStates(Protocol):
    """An environment whose state can be saved, and that can begin from a saved one."""

    def keep_states(self) -> None:
        """Prepare for `save_state`: called before it starts."""

    async def has_state(self, stored: StoredSnapshot) -> bool:
        """Whether it can start in this state."""
        ...

    def begin_from(self, stored: StoredSnapshot) -> None:
        """Start in this state: called before it starts."""

    async def save_state(
        self, store: SnapshotStore, draft: Snapshot, terminal: TerminalSnapshot
    ) -> Snapshot:
        """Save its files as those of `draft.turn`; `draft` with what is known of them.

        Raises:
            SandboxError: they can't be saved; the text says why.
        """
        ...

    async def show(self, screen: str) -> None:
        """Let the next shell restore itself and show this, as `printf` reads it."""


@dataclass(frozen=True, slots=True)
class TerminalSnapshot:
    """A trial's terminal when its snapshot is taken."""

    shell: int
    """Process of the pane's shell."""
    server: int
    """Process of tmux."""
    line: str
    """The row that the cursor is in."""
    full_screen: bool = False
    """A program uses the whole screen."""

    def programs(self, processes: Sequence[tuple[int, int, str]]) -> tuple[str, ...]:
        """What runs beside it, of (process, parent, command line) of all processes."""
        own = {self.server, self.shell}
        own |= {pid for pid, _, command in processes if command.startswith("tmux -C attach")}
        piping = {
            pid
            for pid, parent, command in processes
            if parent == self.server and PANE_LOG in command
        }
        own |= piping | {pid for pid, parent, _ in processes if parent in piping}
        return tuple(command for pid, _, command in processes if pid not in own)

    def not_at_prompt(self, processes: Sequence[tuple[int, int, str]], prompt: str) -> str:
        """Why the shell is not at its prompt; empty: it is."""
        running = [command for _, parent, command in processes if parent == self.shell]
        if self.full_screen:
            return f"{(running or ['a program'])[0]} had the whole screen"
        expected = plain_text(prompt).rpartition("\n")[2].rstrip()
        if not expected or self.line.rstrip() != expected:
            return f"{running[0]} ran in the terminal" if running else "it was not at its prompt"
        return ""


class SnapshotStore:
    """The snapshots of one trial."""

    def __init__(self, directory: Path, max_bytes: int = 0) -> None:
        self.directory = directory
        self.max_bytes = max_bytes

    def index(self, turn: int) -> Path:
        return self.directory / f"turn-{turn:05d}.index"

    def pack(self, number: int) -> Path:
        return self.directory / f"{number:05d}.pack"

    def turns(self) -> list[int]:
        """Turns that have a snapshot, ascending."""
        with contextlib.suppress(OSError):
            found = (_TURN.fullmatch(path.name) for path in self.directory.iterdir())
            return sorted(int(each[1]) for each in found if each)
        return []

    def read(self, turn: int) -> Snapshot | None:
        """The snapshot of a turn; None: there is none that can be read."""
        try:
            content = read_plain(self._description(turn))
            return msgspec.json.decode(content, type=Snapshot)
        except (OSError, RecursionError, msgspec.DecodeError):
            return None

    def add(self, snapshot: Snapshot) -> list[Snapshot]:
        """Describe a snapshot whose files are there, and thin; those that were removed."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._description(snapshot.turn)
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(snapshot))
        partial.replace(path)
        return self.thin()

    def thin(self) -> list[Snapshot]:
        """Remove the oldest snapshots until the rest takes no more than its bound."""
        removed: list[Snapshot] = []
        if self.size() <= self.max_bytes:
            return removed
        kept = [found for turn in self.turns() if (found := self.read(turn)) is not None]
        while len(kept) > 1 and self.size() > self.max_bytes:
            oldest = kept.pop(0)
            removed.append(oldest)
            self.index(oldest.turn).unlink(missing_ok=True)
            self._description(oldest.turn).unlink(missing_ok=True)
            self._drop_image(oldest.turn)
            self._drop_packs(kept)
        return removed

    def discard(self, turn: int) -> None:
        """Remove the files of a snapshot that was not described."""
        self.index(turn).unlink(missing_ok=True)
        self.pack(turn).unlink(missing_ok=True)
        self._drop_image(turn)

    def note_image(self, turn: int, image: StateImage) -> None:
        """Write down the image of a turn: before there is one, and when its size is known."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._image(turn)
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.json.encode(image))
        partial.replace(path)

    def size(self) -> int:
        """Bytes of its files, and of the images that belong to them."""
        try:
            files = sum(path.stat().st_size for path in self.directory.iterdir())
        except OSError:
            return 0
        return files + sum(image.written for _, image in _images(self.directory.glob("*.image")))

    def _drop_packs(self, kept: Iterable[Snapshot]) -> None:
        wanted = {number for snapshot in kept for number in snapshot.packs}
        for path in self.directory.glob("*.pack"):
            if path.stem.isdecimal() and int(path.stem) not in wanted:
                path.unlink(missing_ok=True)

    def _drop_image(self, turn: int) -> None:
        """Leave the image to `remove_images`: only the engine's client can remove it."""
        with contextlib.suppress(FileNotFoundError):
            self._image(turn).rename(self.directory / f"turn-{turn:05d}.{_DROPPED}")

    def _image(self, turn: int) -> Path:
        return self.directory / f"turn-{turn:05d}.{_IMAGE}"

    def _description(self, turn: int) -> Path:
        return self.directory / f"turn-{turn:05d}.json"


def nearest(
    directories: Iterable[Path], turn: int, *, inexact: bool = False
) -> StoredSnapshot | None:
    """The latest snapshot up to a turn, in the first directory that has one.

    `inexact`: of `turn` itself also one in which programs ran.
    """
    for directory in directories:
        store = SnapshotStore(directory)
        for each in reversed(store.turns()):
            if each > turn or (found := store.read(each)) is None:
                continue
            if found.exact or (inexact and each == turn and not found.not_at_prompt):
                return StoredSnapshot(found, store)
    return None


def plain_text(text: str) -> str:
    """A terminal's text without colours and marks."""
    return _MARKS.sub("", without_escapes(text))


def _images(files: Iterable[Path]) -> Iterator[tuple[Path, StateImage]]:
    for path in sorted(files):
        with contextlib.suppress(OSError, RecursionError, msgspec.DecodeError):
            yield path, msgspec.json.decode(read_plain(path), type=StateImage)


async def remove_images(directory: Path, *, dropped_only: bool = False) -> None:
    """Remove the engines' images that are written down below a directory, and forget them.

    Args:
        dropped_only: those alone whose snapshots were removed.

    Raises:
        SandboxError: an engine does not answer, or has not removed one.
    """
    endings = (_DROPPED,) if dropped_only else (_DROPPED, _IMAGE)
    files = await asyncio.to_thread(
        lambda: [path for ending in endings for path in directory.rglob(f"*.{ending}")]
    )
    for path, image in _images(files):
        result = await run_cli([image.engine, "image", "rm", image.name], timeout_sec=_REMOVE_SEC)
        if result.exit_code != 0 and not _NO_IMAGE.search(result.stderr):
            if dropped_only and _IN_USE.search(result.stderr):
                continue  # a fork began from it and still runs
            raise SandboxError(f"{image.engine} image rm {image.name}: {result.complaint}")
        path.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def held_snapshots(directory: Path, *, keep: bool) -> AsyncIterator[None]:
    """A run's directory of snapshots, for as long as the run goes on; with `keep` it stays."""
    if keep:
        yield
        return
    ledger, name = (
        Ledger(),
        f"snapshots-{hashlib.blake2b(str(directory).encode(), digest_size=8).hexdigest()}",
    )
    ledger.record(name, [], [], directories=[directory])
    try:
        yield
    finally:
        # An engine that does not remove them has them removed at a later start: the entry stays.
        with contextlib.suppress(SandboxError):
            await asyncio.shield(remove_images(directory))
            shutil.rmtree(directory, ignore_errors=True)
            ledger.forget(name)


def screen_script(snapshot: Snapshot, height: int) -> str:
    """What `printf` prints to bring an empty terminal to a snapshot's screen, up to its prompt.

    The lines above the visible screen are printed and pushed into the history first.
    """
    lines = snapshot.screen.split("\n")
    above, visible = lines[: snapshot.history], lines[snapshot.history :][: snapshot.row]
    push = min(len(above), height - 1)
    parts = ["\033[m\033[H\033[2J\033[3J", *(f"{line}\033[m\n" for line in above)]
    if push:
        parts.append(f"\033[{height};1H" + "\n" * push)
    parts += ["\033[H", *(f"{line}\033[m\n" for line in visible)]
    text = "".join(parts).replace("\\", "\\\\").replace("%", "%%")
    return text.replace("\033", "\\033").replace("\n", "\\n")
