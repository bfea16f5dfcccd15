"""Stories and transcripts of the shown run's trials, and their tasks' instructions: cached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tbtui.journal.rundir import RunDirectory
    from tbtui.view.state import RunState, TrialView
    from tbtui.view.story import Story
    from tbtui.view.transcript import Transcript

_STORIES = 1024
_TRANSCRIPTS = 64
"""Transcripts that are kept: a trial under way is read on from where it was."""
_INSTRUCTION_BYTES = 40_000
"""Most that is read of an instruction's file."""


class StorySource(Protocol):
    """The run whose stories are read: `LiveRun`."""

    rewound: int

    @property
    def state(self) -> RunState: ...

    def read_on(self, trial: str, transcript: Transcript) -> bool: ...

    def first_prompt(self, trial: str) -> str: ...


class Stories:
    """Trials' transcripts and stories, and tasks' instructions, of one run.

    A trial is read when it is asked for, and again when it has got further: an ended one once.
    """

    def __init__(self, run: StorySource) -> None:
        self._run = run
        self._rewound = 0
        """How often the run had gone back in time when the stories were made."""
        self._transcripts: OrderedDict[str, tuple[Hashable, Transcript]] = OrderedDict()
        """Trial -> how it stood when it was read, and what was read."""
        self._stories: OrderedDict[str, tuple[Hashable, Story]] = OrderedDict()
        self._instructions: dict[str, tuple[Hashable, str]] = {}
        """Task -> the trial that was looked at, how it stood, and what the task asks."""

    def story(self, trial: TrialView) -> Story:
        """The trial's story: what it tried, where it turned, why it ended."""
        from tbtui.view.story import tell

        stands = self._stands(trial)
        kept = self._stories.get(trial.trial)
        if kept is None or kept[0] != stands:
            kept = stands, tell(self.transcript(trial), self.instruction(trial))
            _keep(self._stories, trial.trial, kept, _STORIES)
        return kept[1]

    def transcript(self, trial: TrialView) -> Transcript:
        """The trial's turns and verdict, as far as it has got."""
        from tbtui.view.transcript import Transcript

        stands = self._stands(trial)
        known, transcript = self._transcripts.get(trial.trial, (None, None))
        if transcript is None:
            transcript = Transcript()
        if known != stands:
            self._run.read_on(trial.trial, transcript)
            _keep(self._transcripts, trial.trial, (stands, transcript), _TRANSCRIPTS)
        return transcript

    def instruction(self, trial: TrialView) -> str:
        """What the trial's task asks: as its agent read it, else as the task's directory has it.

        Empty where neither is there.
        """
        from tbtui.view.prompt import instruction_in

        known, text = self._instructions.get(trial.task, (None, ""))
        looked = trial.trial, bool(trial.samples)
        if not text and known != looked:
            state = self._run.state
            group = state.groups.get(trial.group)
            members = (state.trials.get(name) for name in (group.trials if group else ()))
            sampled = (each.trial for each in (trial, *members) if each and each.samples)
            text = next(filter(None, map(self._run.first_prompt, sampled)), "")
            text = instruction_in(text) or instruction_file(state.tasks_dir, trial.task)
            self._instructions[trial.task] = looked, text
        return text

    def _stands(self, trial: TrialView) -> Hashable:
        if self._run.rewound != self._rewound:
            self._rewound = self._run.rewound
            self._transcripts.clear()
            self._stories.clear()
        return trial.phase, trial.turn, len(trial.samples), trial.outcome, trial.touched


def _keep[T](kept: OrderedDict[str, T], name: str, value: T, most: int) -> None:
    kept[name] = value
    kept.move_to_end(name)
    if len(kept) > most:
        kept.popitem(last=False)


def instruction_file(tasks_dir: str, task: str) -> str:
    """The instruction in the task's directory; empty where that has gone."""
    if not tasks_dir:
        return ""
    try:
        with (Path(tasks_dir) / task / "instruction.md").open("rb") as file:
            return file.read(_INSTRUCTION_BYTES).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        return ""


def story_lines(run: RunDirectory, trials: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Trials of any run, each with its story in a line, as each is read: for a thread.

    Raises:
        JournalError: the journal can't be read.
    """
    from tbtui.journal.reader import JournalReader
    from tbtui.view.story import tell
    from tbtui.view.transcript import Transcript

    with closing(JournalReader(run, lenient=True)) as reader:
        for trial in trials:
            transcript = Transcript()
            transcript.apply(reader.read_trial(trial))
            yield trial, tell(transcript).line
