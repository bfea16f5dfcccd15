"""Saves checkpoints so that a process killed at any instant leaves the previous ones intact.

The policy saves itself into a directory beside, `trainer.json` joins it, all of it reaches the
disk, and one rename makes it a checkpoint. The journal has it afterwards; where a crash came
between, the next process writes it there.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbtui.engines.grpo.checkpoint_state import (
    FORMAT,
    REMOVED,
    REPLACED,
    STATE_FILE,
    WRITING,
    CheckpointError,
    TrainerState,
    TrainingProgress,
    checkpoint_name,
    entries_of,
    file_record,
    leftovers,
    load_checkpoint,
    newest_first,
    sweep,
)
from tbtui.journal.events import (
    BestCheckpoint,
    CheckpointRemoved,
    CheckpointSaved,
    EvalFinished,
    Noted,
)
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import Policy, PolicyError, PolicyLostError


@dataclass(frozen=True, slots=True)
class Best:
    """The checkpoint with the best held-out pass rate so far; of equals, the first."""

    step: int
    path: Path
    pass_rate: float


class CheckpointKeeper:
    """Writes a run's checkpoints and keeps the latest ones and the best one.

    Every method raises `CheckpointError`, `PolicyError` or `JournalError` when a checkpoint can't
    be written; the earlier ones are then untouched. What the policy keeps elsewhere of a
    checkpoint goes with it; where it can't, the journal says so.
    """

    def __init__(
        self,
        journal: JournalWriter,
        policy: Policy,
        keep_last: int,
        settings: Mapping[str, Any],
        *,
        keep_best: bool = True,
    ) -> None:
        """Takes up the checkpoints of a run that goes on; one that a crash left between two names
        is put back.

        Args:
            policy: has started.
            keep_last: how many of the latest stay, beside the best one; 0: all.
            settings: `fixed_settings` of the run's config.
            keep_best: False for a run that never trains: its weights are somewhere already.
        """
        self._directory = directory = journal.run
        self._journal = journal
        self._policy = policy
        self.keep_last = keep_last
        """Latest checkpoints that stay; 0: all."""
        self._settings = dict(settings)
        self._keep_best = keep_best
        self._kept: dict[int, int] = {}
        """Step -> weights version of every checkpoint on disk, in the order of saving."""
        self._written: set[int] = set()
        """Steps saved by this process: others may come again with other weights."""
        self.best: Best | None = None
        sweep(directory)
        self._take_up()

    @property
    def saved(self) -> tuple[int, ...]:
        """Steps of the checkpoints on disk, in the order of saving."""
        return tuple(self._kept)

    def has(self, progress: TrainingProgress) -> bool:
        """Whether this process has saved these very weights, and they are still there."""
        return progress.step in self._written and (
            self._kept.get(progress.step) == progress.weights_version
        )

    async def save(self, progress: TrainingProgress) -> Path:
        """Save the policy's trained weights as those of `progress`; returns where.

        Nothing is written twice: weights that this process has saved already stay as they are.
        """
        path = self._path(progress.step)
        if self.has(progress):
            return path
        writing = path.with_name(WRITING + path.name)
        try:
            for left in leftovers(self._directory):  # by a crash, or by the loss of a policy
                await self._discard(left)
            await self._policy.save(writing)
            state = self._state(progress)
            await asyncio.to_thread(_complete, writing, state)
            replaced = _put_in_place(writing, path)
            await asyncio.to_thread(_sync, path.parent)
            if replaced is not None:
                await self._discard(replaced)
        except OSError as error:
            raise CheckpointError(f"can't save {path}: {error.strerror}") from error
        finally:
            shutil.rmtree(writing, ignore_errors=True)
        self._written.add(progress.step)
        self._add(progress.step, progress.weights_version)
        await self._remove_what_is_not_kept()
        return path

    async def evaluated(self, progress: TrainingProgress, pass_rate: float | None) -> None:
        """Note the held-out pass rate of the policy's trained weights, those of `progress`.

        The best so far are saved, unless they are, and stay until there are better ones.
        """
        if pass_rate is None or not self._beats_the_best(pass_rate):
            return
        await self.save(progress)
        self._mark_best(progress.step, pass_rate)
        await self._remove_what_is_not_kept()

    def _state(self, progress: TrainingProgress) -> TrainerState:
        info = self._policy.info
        return TrainerState(
            **progress.model_dump(),
            format=FORMAT,
            tbtui_version=importlib.metadata.version("tbtui"),
            policy=info.name,
            model_name=info.model_name,
            parameters=info.parameters,
            tokenizer=info.tokenizer,
            journal_seq=self._journal.last_seq,
            settings=self._settings,
            files={},
        )

    def _path(self, step: int) -> Path:
        return self._directory.checkpoints / checkpoint_name(step)

    def _relative(self, step: int) -> str:
        return str(self._path(step).relative_to(self._directory.path))

    def _add(self, step: int, weights_version: int) -> None:
        self._kept.pop(step, None)
        self._kept[step] = weights_version
        self._journal.append(
            CheckpointSaved(step=step, weights_version=weights_version, path=self._relative(step))
        )

    def _beats_the_best(self, pass_rate: float) -> bool:
        return self._keep_best and (self.best is None or pass_rate > self.best.pass_rate)

    def _mark_best(self, step: int, pass_rate: float) -> None:
        self.best = Best(step, self._path(step), pass_rate)
        self._journal.append(
            BestCheckpoint(step=step, path=self._relative(step), pass_rate=pass_rate)
        )

    async def _remove_what_is_not_kept(self) -> None:
        if not self.keep_last:
            return
        latest_ones = list(self._kept)[-self.keep_last :]
        best_step = self.best.step if self.best else None
        for step in [s for s in self._kept if s not in latest_ones and s != best_step]:
            path = self._path(step)
            removed = path.with_name(REMOVED + path.name)
            try:
                # A directory that is half removed must not look like a checkpoint.
                path.rename(removed)
                await self._discard(removed)
            except OSError as error:
                raise CheckpointError(f"can't remove {path}: {error.strerror}") from error
            del self._kept[step]
            self._journal.append(CheckpointRemoved(step=step, path=self._relative(step)))

    async def _discard(self, directory: Path) -> None:
        """Remove a directory that is no checkpoint any more, and what the policy has of it."""
        try:
            await self._policy.forget(directory)
        except PolicyLostError:
            raise
        except PolicyError as error:
            name = directory.name.partition("-")[2]
            text = f"{name} is removed here, but the policy's server still keeps its part: {error}"
            self._journal.append(Noted(level="warning", text=text))
        await asyncio.to_thread(shutil.rmtree, directory)

    def _take_up(self) -> None:
        """Read what is on disk and in the journal; write what a crash kept from the journal."""
        journalled: dict[int, int] = {}
        evaluations: dict[int, EvalFinished] = {}
        kinds = ("checkpoint_saved", "checkpoint_removed", "best_checkpoint", "eval_finished")
        for entry in entries_of(self._directory, kinds):
            match event := entry.event:
                case CheckpointSaved():
                    journalled[event.step] = event.weights_version
                case CheckpointRemoved():
                    journalled.pop(event.step, None)
                case BestCheckpoint():
                    self.best = Best(event.step, self._path(event.step), event.pass_rate)
                case EvalFinished():
                    evaluations[event.step] = event
        for path in reversed(newest_first(self._directory)):
            try:
                state = load_checkpoint(path)
            except CheckpointError:
                continue  # a run that goes on from it is refused with the reason
            if path != self._path(state.step):
                continue  # somebody else's, put there by hand
            self._kept[state.step] = state.weights_version
            if journalled.pop(state.step, None) != state.weights_version:
                self._add(state.step, state.weights_version)
        for step in journalled:
            if not self._path(step).exists():
                self._journal.append(CheckpointRemoved(step=step, path=self._relative(step)))
        if self.best and self.best.step not in self._kept:
            self.best = None
        for step, event in evaluations.items():
            rate = event.pass_rate
            there = self._kept.get(step) == event.weights_version
            if there and rate is not None and self._beats_the_best(rate):
                self._mark_best(step, rate)


def _complete(writing: Path, state: TrainerState) -> None:
    """Add `trainer.json` to what the policy saved, and let all of it reach the disk."""
    inside = sorted(writing.rglob("*"))
    files = [path for path in inside if path.is_file()]
    state = state.model_copy(
        update={"files": {str(p.relative_to(writing)): file_record(p) for p in files}}
    )
    state_file = writing / STATE_FILE
    state_file.write_text(state.model_dump_json(indent=2) + "\n")
    for path in (*inside, state_file, writing):
        _sync(path)


def _put_in_place(writing: Path, path: Path) -> Path | None:
    """Make `writing` the checkpoint; returns where an earlier one of the same step is now.

    A process killed between two of these renames leaves what `sweep` puts back.
    """
    if not path.exists():
        writing.rename(path)
        return None
    replaced = path.with_name(REPLACED + path.name)
    path.rename(replaced)
    writing.rename(path)
    return replaced


def _sync(path: Path) -> None:
    """Wait until the file, or the names in the directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
