"""The app on a run, with all that it may do with this or any other run: join it, write review
rules, browse its tasks, export a trial, read its prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.journal.rundir import RunDirectory

if TYPE_CHECKING:
    from tbtui.journal.review_rule import ReviewRule
    from tbtui.policies.chat.vocabulary import Vocabulary
    from tbtui.policies.local.tokenizer import LocalTokenizer
    from tbtui.ui.library import TaskLibrary
    from tbtui.ui.runs import ReplayedRun
    from tbtui.ui.services import RunHost, RunSettings, TrialTools
    from tbtui.view.exports import ExportFormat
    from tbtui.view.prompt import PromptPart


def show_run(
    host: RunHost,
    recorded: ReplayedRun | None = None,
    trial: str | None = None,
    *,
    fps: int | None = None,
    detach: Callable[[], Sequence[str]] | None = None,
    beside: Sequence[RunDirectory] = (),
) -> int:
    """Run the app for a user of this machine; returns the exit code.

    `detach` is `Services.detach`; `beside` are runs whose curves are overlaid.
    """
    from tbtui.ui.app import run_app
    from tbtui.ui.services import Services

    return run_app(
        host,
        Services(
            library=tasks_of_run,
            trial_tools=make_trial_tools,
            settings=make_settings,
            join=look_on,
            add_rule=add_rule,
            live_effect=live_effect,
            defaults=default_settings,
            # What is replayed is over, and stays what it was.
            detach=detach,
            farewell=tuple if recorded else lambda: farewell(host.directory, goes_on=host.outlives),
        ),
        recorded=recorded,
        trial=trial,
        fps=fps,
        beside=beside,
    )


def default_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The default of every setting, for a run with these: some follow the model and the
    environment."""
    from tbtui.config import RunConfig, to_json
    from tbtui.config.values import defaults_for

    table = to_json(RunConfig())
    given = {name: value for name, value in settings.items() if value != table.get(name)}
    return table | {name: each.value for name, each in defaults_for(given).items()}


def farewell(run: RunDirectory, *, goes_on: bool) -> list[str]:
    """Lines on how far the run has come, and the commands for what one may do next.

    Args:
        goes_on: leaving it has not ended it, if it is still live.
    """
    from tbtui.config import RunConfig
    from tbtui.console.texts import line
    from tbtui.journal.database import JournalError
    from tbtui.journal.rundir import is_live
    from tbtui.view.ending import name_to_type, read_ending

    if not run.database.is_file():
        return []
    name = name_to_type(run, RunConfig().logs_dir)
    try:
        ending = read_ending(run)
    except JournalError as error:
        return [line("run", f"{name}: {error}")]
    facts = list(ending.lines(run.name))
    if goes_on and is_live(run):
        follow = [
            ("attach", to_type("attach", name)),
            ("stop", to_type("ctl", "run", "stop", name)),
        ]
    else:
        follow = list(ending.next_lines(name))
    return [line(head, text) for head, text in (*facts, *follow)]


def look_on(run: RunDirectory) -> RunHost:
    """Join another live run, without its controls."""
    from tbtui.engines.control.client import AttachedRun

    return AttachedRun(run, take=False)


def add_rule(file: Path, rule: ReviewRule) -> None:
    """Write a review rule to the end of a file.

    Raises:
        UserError: it can't be written, or what is there can't be understood.
    """
    from tbtui.engines.grpo.review_rules import append_rule

    append_rule(file, rule)


def live_effect(setting: str) -> str:
    """From when on a change of a setting is felt; empty: it can't change while a run goes on."""
    from tbtui.config import live_effects

    return live_effects().get(setting, "")


def tasks_of_run(run: RunDirectory) -> TaskLibrary:
    """The tasks that a run has.

    Raises:
        UserError: they are not on this machine, or it isn't known which they are.
    """
    from tbtui.catalog import find_tasks
    from tbtui.config import parse_settings
    from tbtui.task_library import CatalogLibrary

    if not run.config.is_file():
        raise UserError(f"{run.name} has no config.toml, which would say what its tasks are")
    # The run may lie elsewhere by now.
    config = parse_settings([f"logs_dir={run.path.parent}"], files=[run.config])
    return CatalogLibrary([find_tasks(config.tasks_dir)], config)


def make_settings() -> RunSettings:
    """Imports every setting's declaration: call on a thread."""
    from tbtui.run_settings import TableOfSettings

    return TableOfSettings()


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
    """The tokenizer of the run's policy.

    Raises:
        PolicyError: it isn't here.
    """
    from tbtui.policies.chat.tokenizer_files import TokenizerFiles
    from tbtui.policies.local.tokenizer import TOKENIZER, LocalTokenizer

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
