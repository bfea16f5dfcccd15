"""What the app on a run needs of other packages; it knows no more of them than this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tbtui.ui.host import RunHost, WatchedRun

if TYPE_CHECKING:
    from tbtui.journal.review_rule import Rule
    from tbtui.journal.rundir import RunDirectory
    from tbtui.ui.library import TaskLibrary
    from tbtui.view.exports import ExportFormat
    from tbtui.view.prompt import PromptPart


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


type AddRule = Callable[[Path, Rule], None]
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
    join: Callable[[RunDirectory], RunHost] = WatchedRun
    """Makes the host of another live run."""
    add_rule: AddRule | None = None
    """Writes review rules."""
    farewell: Callable[[], Sequence[str]] = tuple
    """Lines that are printed when people have left, before the reason for an end if there is one.
    """
    guest: bool = False
    """The person is no user of this machine: no files are written for them, no programs started,
    no other runs opened."""


NO_SERVICES = Services()
