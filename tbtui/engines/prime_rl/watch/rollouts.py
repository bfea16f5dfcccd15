"""Reads rollouts and what became of them into trials and steps."""

from __future__ import annotations

from collections.abc import Sequence

from tbtui.engines.prime_rl.watch.formats import Episode, read_records
from tbtui.engines.prime_rl.watch.recorder import TraceRecorder
from tbtui.engines.prime_rl.watch.source import RolloutFile, SourceDirectory
from tbtui.engines.prime_rl.watch.steps import Steps
from tbtui.engines.prime_rl.watch.tail import Tails
from tbtui.engines.prime_rl.watch.trials import RolloutJournal

_STILL_WRITTEN = 4
"""How many of the newest steps' directories may still grow."""
_ROUND_BYTES = 1 << 20


class RolloutReader:
    """Reads new rollouts in passes; one pass reads at most a chunk of each file."""

    def __init__(
        self,
        source: SourceDirectory,
        tails: Tails,
        trials: RolloutJournal,
        steps: Steps,
        recorder: TraceRecorder,
        floor: int = 0,
    ) -> None:
        """Files of steps before `floor` are read already."""
        self._source = source
        self._tails = tails
        self._trials = trials
        self._steps = steps
        self._recorder = recorder
        self.floor = floor
        """Files of earlier steps are read to their end and not written any more."""
        self.bad_lines = 0
        self.news = 0
        """Records read so far."""

    def read(self) -> int | None:
        """Read what is new. Returns a step when more waits to be read: nothing is known for sure
        of that step and of those after it."""
        files = self._source.rollouts(self.floor)
        read, step = 0, 0
        for file in files:
            if read > _ROUND_BYTES and file.step != step:
                # The results of the steps so far come first.
                self._raise_floor([each for each in files if each.step < file.step])
                self._tails.behind = True
                return file.step
            step = file.step
            effective = file.subset == "effective"
            if effective and (file.kind == "eval" or self._steps.is_finished(file.step)):
                # Nothing that is not journalled already.
                continue
            # A watcher that starts again needs the whole batch of a step that isn't over.
            lines, behind = self._tails.read(file.path, remember=not effective)
            read += sum(map(len, lines))
            for episode in self._records(lines):
                if not effective:
                    self._episode(episode, file.step)
                    continue
                for trace in episode.traces:
                    name = self._trials.name(trace.id)
                    self._steps.shipped(name, file.step, trace.advantage)
            if behind:
                return file.step
        self._raise_floor(files)
        return None

    def rewind(self, step: int) -> None:
        """Read files of steps after `step` again, as they are written again."""
        self.floor = min(self.floor, step + 1)

    def _raise_floor(self, files: Sequence[RolloutFile]) -> None:
        floor = max((file.step for file in files), default=0) - _STILL_WRITTEN
        for file in files:
            if file.step < floor:
                self._tails.forget(file.path)
        self.floor = max(self.floor, floor)

    def _episode(self, episode: Episode, step: int) -> None:
        work = episode.work
        if work.type == "eval":
            step = work.step
        else:
            at = episode.traces[0].timing.start if episode.traces else None
            group = episode.group.id if episode.group is not None else episode.id
            self._steps.start(step, at)
            self._steps.group(step, group, episode.task.name, at)
        for name, ended in self._trials.episode(episode, step):
            self._steps.ended(name, ended)

    def _records(self, lines: list[bytes]) -> list[Episode]:
        records, bad = read_records(Episode, lines)
        if bad and not self.bad_lines:
            self._recorder.warn("a line of the rollouts is no episode; it is left out")
        self.bad_lines += bad
        self.news += len(records)
        return records
