"""Reads rollouts and what became of them, in either layout, into trials and steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tbtui.engines.prime_rl.watch.formats import (
    Annotation,
    Delta,
    Episode,
    read_records,
    trial_name,
)
from tbtui.engines.prime_rl.watch.source import RolloutFile, SourceDirectory
from tbtui.engines.prime_rl.watch.steps import Steps
from tbtui.engines.prime_rl.watch.tail import SealedError, Tails
from tbtui.engines.prime_rl.watch.trials import Trials

_STILL_WRITTEN = 4
"""How many of the newest steps' directories may still grow."""
_ROUND_BYTES = 1 << 20
_GONE_SEC = 10.0
"""How long a rollout whose live file is gone may take to appear among the finished ones."""


class RolloutReader:
    """Reads new rollouts in passes; one pass reads at most a chunk of each file."""

    def __init__(
        self,
        source: SourceDirectory,
        tails: Tails,
        trials: Trials,
        steps: Steps,
        warn: Callable[[str], None],
        floor: int = 0,
    ) -> None:
        """`warn` shows a person a line. Files of steps before `floor` are read already."""
        self._source = source
        self._tails = tails
        self._trials = trials
        self._steps = steps
        self._warn = warn
        self.floor = floor
        """Files of earlier steps are read to their end and not written any more."""
        self._unreadable: set[Path] = set()
        self._latest_step = 0
        """At which the newest rollout of the stream came back."""
        self._gone: dict[str, float] = {}
        self._in_flight: set[Path] = set()
        self.bad_lines = 0
        self.news = 0
        """Records read so far."""

    def read(self, now: float) -> int | None:
        """Read what is new. Returns a step when more waits to be read: nothing is known for sure
        of that step and of those after it."""
        self._live()
        horizons = [step for step in (self._directories(), self._stream()) if step is not None]
        if not horizons:
            self._annotations()
            self._lost(now)
        return min(horizons, default=None)

    def rewind(self, step: int) -> None:
        """Read files of steps after `step` again, as they are written again."""
        self.floor = min(self.floor, step + 1)

    def _directories(self) -> int | None:
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
            for episode in self._records(Episode, lines):
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

    def _raise_floor(self, files: Sequence[RolloutFile]) -> None:
        floor = max((file.step for file in files), default=0) - _STILL_WRITTEN
        for file in files:
            if file.step < floor:
                self._tails.forget(file.path)
        self.floor = max(self.floor, floor)

    def _stream(self) -> int | None:
        for number, path in self._source.chunks():
            if path in self._unreadable:
                continue
            try:
                sealed = path.suffix == ".zst"
                lines, behind = (self._tails.read_sealed if sealed else self._tails.read)(path)
            except SealedError as error:
                self._unreadable.add(path)
                self._warn(f"chunk {number} of the rollouts is left out: {error}")
                continue
            for episode in self._records(Episode, lines):
                step = _arrival(episode)
                self._latest_step = max(self._latest_step, step)
                self._episode(episode, step)
            if behind:
                return self._latest_step
        return None

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

    def _annotations(self) -> None:
        for path in self._source.annotations():
            lines, _ = self._tails.read(path, remember=False)
            for note in self._records(Annotation, lines):
                if note.info.effective and (step := int(note.info.ship.get("step", 0))):
                    name = self._trials.name(note.trace_id)
                    self._steps.shipped(name, step, note.info.advantage)

    def _live(self) -> None:
        files = set(self._source.live())
        for path in self._in_flight - files:
            self._tails.close(path)
        self._in_flight = files
        for path in sorted(files):
            # What came before is needed to know what a turn's prompt was: no position is kept.
            lines, _ = self._tails.read(path, remember=False)
            for delta in self._records(Delta, lines):
                if (who := delta.dispatch) is not None and who.kind != "eval":
                    self._steps.start(who.step, who.started)
                    self._steps.group(who.step, who.group, who.task, who.started)
                self._trials.delta(delta)

    def _lost(self, now: float) -> None:
        flying = {trial_name(path.stem) for path in self._in_flight}
        missing = [name for name in self._trials.live if name not in flying]
        self._gone = {name: self._gone.get(name, now) for name in missing}
        for name, since in self._gone.items():
            if now - since > _GONE_SEC:
                self._trials.lost(name)

    def _records[T](self, kind: type[T], lines: list[bytes]) -> list[T]:
        records, bad = read_records(kind, lines)
        if bad and not self.bad_lines:
            self._warn(f"a line of the rollouts is no {kind.__name__.lower()}; it is left out")
        self.bad_lines += bad
        self.news += len(records)
        return records


def _arrival(episode: Episode) -> int:
    """The step at which it came back; where that is not recorded, that of its start."""
    for trace in episode.traces:
        arrival = trace.info.get("arrival")
        if isinstance(arrival, dict) and isinstance(step := arrival.get("step"), int):
            return step
    return episode.work.step
