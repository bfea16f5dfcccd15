"""What the app can do with a trial beyond showing its journal: export it, read its prompts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbtui.errors import UserError
from tbtui.journal.rundir import RunDirectory

if TYPE_CHECKING:
    from tbtui.policies.chat.vocabulary import Vocabulary
    from tbtui.policies.local.tokenizer import LocalTokenizer
    from tbtui.ui.services import TrialTools
    from tbtui.view.exports import ExportFormat
    from tbtui.view.prompt import PromptPart


def make_trial_tools() -> TrialTools:
    """Imports what they need: call on a thread."""
    return RecordedTrialTools()


class RecordedTrialTools:
    """Implements `tbtui.ui.services.TrialTools`."""

    def __init__(self) -> None:
        self._tokenizers: dict[Path, LocalTokenizer | Vocabulary] = {}

    def export(self, run: RunDirectory, trial: str, format: ExportFormat, path: Path) -> None:
        from tbtui.export import export_trial

        export_trial(run, trial, format, path)

    def prompt(self, run: RunDirectory, parts: Sequence[PromptPart]) -> list[PromptPart]:
        from tbtui.view.prompt import with_pieces

        if run.path not in self._tokenizers:
            self._tokenizers[run.path] = _tokenizer(run)
        found = with_pieces(parts, self._tokenizers[run.path].pieces)
        if found is None:
            raise UserError("this machine's tokenizer is not the one of the run")
        return found


def _tokenizer(run: RunDirectory) -> LocalTokenizer | Vocabulary:
    """Of the run's policy.

    Raises:
        PolicyError: it isn't here.
    """
    from tbtui.policies.chat.tokenizer_files import TokenizerFiles
    from tbtui.policies.local.shipped import TOKENIZER
    from tbtui.policies.local.tokenizer import LocalTokenizer

    policy, model, settings = _policy(run)
    if policy == "local" or settings.get("renderer") == "embedded":
        return LocalTokenizer(TOKENIZER)
    return TokenizerFiles(str(settings.get("tokenizer") or model)).vocabulary


def _policy(run: RunDirectory) -> tuple[str, str, dict[str, Any]]:
    """The run's policy, its model, and the settings in force."""
    from tbtui.journal.events import RunStarted
    from tbtui.journal.reader import JournalReader

    with closing(JournalReader(run, lenient=True)) as reader:
        for entry in reader.read_kinds(["run_started"], 0, 1):
            if isinstance(entry.event, RunStarted):
                return entry.event.policy, entry.event.model_name, entry.event.settings
    return "", "", {}
