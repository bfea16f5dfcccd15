"""What the app needs for a trial beyond its journal; it knows no more of it than this."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tbtui.journal.rundir import RunDirectory
from tbtui.view.exports import ExportFormat
from tbtui.view.prompt import PromptPart


class TrialToolError(Exception):
    """It can't be done; the message is one line for a person."""


class TrialTools(Protocol):
    """Slow: called on a thread."""

    def export(self, run: RunDirectory, trial: str, format: ExportFormat, path: Path) -> None:
        """Write a trial to a new file.

        Raises:
            TrialToolError: it is there already, it can't be written, or the trial has nothing of
                this kind.
        """
        ...

    def prompt(self, run: RunDirectory, parts: Sequence[PromptPart]) -> list[PromptPart]:
        """The parts with the text of each token, from the tokenizer of the run's policy.

        Raises:
            TrialToolError: this machine doesn't have that tokenizer.
        """
        ...
