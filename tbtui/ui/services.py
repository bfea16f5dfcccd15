"""What the app needs of other packages: a run's host, tools for trials, review rules."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tbtui.journal.commands import Command
from tbtui.journal.commands import RunEnd as RunEnd
from tbtui.journal.rundir import RunDirectory, is_live

if TYPE_CHECKING:
    from tbtui.journal.review_rule import ReviewRule
    from tbtui.ui.library import TaskLibrary
    from tbtui.view.exports import ExportFormat
    from tbtui.view.prompt import PromptPart

_LOOK_SEC = 1.0
"""Between two checks that a run's process is alive."""


class RunHost(Protocol):
    """A run whose engine has an event loop (and thread) of its own."""

    @property
    def directory(self) -> RunDirectory:
        """The run's directory, which exists; its journal appears when the engine starts."""
        ...

    @property
    def outlives(self) -> bool:
        """Whether the run goes on without the app: it was attached to, or is over."""
        ...

    @property
    def read_only(self) -> str:
        """Why the run takes no commands, in a few words; empty: it does."""
        ...

    @property
    def steerable(self) -> bool:
        """Whether commands can reach the run at all, from the client that has the controls."""
        ...

    def start(self) -> None:
        """Start the engine. Returns at once."""
        ...

    def submit(self, command: Command) -> None:
        """Submit a command from any thread. Returns at once; the journal gets the result."""
        ...

    def take_controls(self) -> None:
        """Ask for the right to command, from the client that has it. From any thread; returns at
        once, and `read_only` says whether it was given."""
        ...

    def interrupt(self) -> None:
        """Ask the engine to clean up and end, from any thread. Idempotent; returns at once."""
        ...

    def hang_up(self) -> bool:
        """The terminal has gone, and the app with it; returns whether the run goes on without
        them, as its settings have it. Else it is to be interrupted. Idempotent; returns at once."""
        ...

    async def ended(self) -> RunEnd:
        """Wait, on the caller's loop, until the engine has ended and cleaned up.

        Giving up the wait doesn't end the engine.
        """
        ...


class RecordedRun:
    """A recorded run, which no process runs: it takes no commands."""

    outlives = True
    read_only = "this is a recorded run"
    steerable = False

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self._left = asyncio.Event()

    def start(self) -> None:
        pass

    def submit(self, command: Command) -> None:
        """Do nothing: the app refuses commands before they get here."""

    def take_controls(self) -> None:
        """Do nothing: a recorded run has no controls."""

    def interrupt(self) -> None:
        self._left.set()

    def hang_up(self) -> bool:
        return False

    async def ended(self) -> RunEnd:
        await self._left.wait()
        return RunEnd("interrupted", "left the recorded run")


class WatchedRun(RecordedRun):
    """A live run of another process that takes no commands from here."""

    read_only = "it can't be steered from here"

    async def ended(self) -> RunEnd:
        """Wait for the run's process to end; a run without one is a recorded one."""
        watched = False
        while await asyncio.to_thread(is_live, self.directory):
            watched = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._left.wait(), _LOOK_SEC)
                break
        if watched and not self._left.is_set():
            return RunEnd("interrupted", "the run's process has ended")
        return await super().ended()


class TrialTools(Protocol):
    """Exports trials and reads prompts; slow, called on a thread."""

    def export(self, run: RunDirectory, trial: str, format: ExportFormat, path: Path) -> None:
        """Write a trial to a new file.

        Raises:
            UserError: it is there already, it can't be written, or the trial has nothing of
                this kind.
        """
        ...

    def prompt(self, run: RunDirectory, parts: Sequence[PromptPart]) -> list[PromptPart]:
        """The parts with the text of each token, from the tokenizer of the run's policy.

        Raises:
            UserError: this machine doesn't have that tokenizer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingEntry:
    """A setting as a person reads it."""

    name: str
    heading: str
    """The heading of its group on the settings page."""
    meaning: str
    why: str
    """The reason for the default."""
    kind: str
    """What a value may be: `integer of at least 1`, `auto | sandbox | docker`."""
    live: str
    """From when on a change is felt while the run goes on; empty: it can't change then."""
    fixed: str
    """Why a resumed run must keep its value; empty: it may change then."""
    choices: tuple[str, ...]
    """All that a value may be; empty: too many to list."""
    table: bool
    """It has entries with a value each."""
    tried: bool
    """What another value leads to can be computed from a recorded step."""


class RunSettings(Protocol):
    """All settings; the values that a run has are in its journal."""

    @property
    def entries(self) -> Sequence[SettingEntry]:
        """All settings, in the order in which a person reads them."""
        ...

    def text(self, name: str, value: Any) -> str:
        """A JSON value as text, as it is written on the command line."""
        ...

    def defaults(self, values: Mapping[str, Any]) -> Mapping[str, tuple[str, str]]:
        """The default of each where the others are `values`; and why, if it is not the table's."""
        ...

    def value(self, name: str, text: str) -> Any:
        """The JSON value of a text written for a setting.

        Raises:
            UserError: it can't be used.
        """
        ...

    def effect(self, run: RunDirectory, name: str, text: str) -> Sequence[str]:
        """What the last recorded step would have been with another value, in lines; slow.

        Raises:
            UserError: no step is recorded, or the value can't be used.
        """
        ...


type AddRule = Callable[[Path, ReviewRule], None]
"""Writes a rule to the end of a file, which is made if it isn't there. Called on a thread; raises
`UserError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What others do for the app on a run; by default nothing but to look at it."""

    library: Callable[[RunDirectory], TaskLibrary] | None = None
    """Makes what the task browser shows of a run, on a thread; None: there are no tasks to browse.
    """
    trial_tools: Callable[[], TrialTools] | None = None
    """Makes what exports trials and reads prompts, on a thread."""
    settings: Callable[[], RunSettings] | None = None
    """Makes what says what there is to set, on a thread; None: settings are not shown."""
    join: Callable[[RunDirectory], RunHost] = WatchedRun
    """Makes the host of another live run."""
    add_rule: AddRule | None = None
    """Writes review rules."""
    live_effect: Callable[[str], str] | None = None
    """From when on a change of a setting is felt; empty: it can't change while a run goes on."""
    farewell: Callable[[], Sequence[str]] = tuple
    """Lines that are printed when people have left, before the reason for an end if there is one.
    """
    detach: Callable[[], Sequence[str]] | None = None
    """Has the app's own run go on in this process once the app has left; returns the lines that are
    printed then. None: the run can't go on without the app."""
    defaults: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Maps a run's settings to the defaults of every one; None: they are not known here."""
    guest: bool = False
    """The person is no user of this machine: no files are written for them, no programs started,
    no other runs opened."""


NO_SERVICES = Services()
