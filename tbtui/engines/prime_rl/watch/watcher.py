"""Follows a Prime-RL run directory and writes what happens there into a tbtui journal."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tbtui.engines.prime_rl.control import CommandJournal
from tbtui.engines.prime_rl.watch.formats import read_records
from tbtui.engines.prime_rl.watch.part_logs import (
    PARTS,
    Part,
    Pipeline,
    Stall,
    read_line,
)
from tbtui.engines.prime_rl.watch.plugin_logs import PluginLogs
from tbtui.engines.prime_rl.watch.plugin_trials import PluginTrials
from tbtui.engines.prime_rl.watch.recorder import Savepoint, TraceRecorder
from tbtui.engines.prime_rl.watch.rollouts import RolloutReader
from tbtui.engines.prime_rl.watch.server import server_words
from tbtui.engines.prime_rl.watch.source import (
    SourceDirectory,
    eval_settings,
    read_configuration,
    run_started,
)
from tbtui.engines.prime_rl.watch.steps import Steps, step_of
from tbtui.engines.prime_rl.watch.tail import Tails
from tbtui.engines.prime_rl.watch.trials import RolloutJournal
from tbtui.engines.prime_rl.watch.turns import TokenText
from tbtui.journal.commands import RunEnd
from tbtui.journal.events import (
    CheckpointSaved,
    Noted,
    PolicyMeasured,
    RunContinued,
    RunFinished,
    RunPhase,
    RunPhaseChanged,
    RunStarted,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory

_MAX_ROWS = 1000
"""Rows of metrics that wait for the rollouts before them."""


class Watcher:
    """Reads in rounds; never writes to the directory it watches.

    Everything here happens on one thread. A round is short: it reads at most a chunk of each file.
    """

    def __init__(
        self,
        source: SourceDirectory,
        directory: RunDirectory,
        recorder: TraceRecorder,
        savepoint: Savepoint,
        stall_sec: float = 120.0,
        clock: Callable[[], float] = time.time,
        trials_dir: Path | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """
        Args:
            trials_dir: where the plugin's environment servers log trials and take commands.
            settings: of the run from here on; None: those that it began with.
        """
        self._settings = settings
        self._source = source
        self._recorder = recorder
        self._savepoint = savepoint
        self._saved_at = directory.path / "watch.json"
        self._clock = clock
        self._tails = Tails(savepoint.positions)
        self._steps = Steps(recorder)
        self.commands = CommandJournal(recorder, trials_dir, clock)
        logs = PluginLogs(trials_dir, self._tails) if trials_dir is not None else None
        self._plugin_trials = PluginTrials(recorder, self.commands, logs, self._steps, savepoint)
        self._trials = RolloutJournal(recorder, self._plugin_trials)
        self._rollouts = RolloutReader(
            source, self._tails, self._trials, self._steps, recorder, savepoint.floor
        )
        self._tokens: TokenText | None = None
        """Text of the model's tokens, once the configuration is there."""
        self._rows: deque[dict[str, Any]] = deque()
        self._begun: RunStarted | None = None
        self._phase: tuple[RunPhase, str] | None = None
        self._continuing = False
        self._checkpoints = set(savepoint.checkpoints)
        self._broadcasts: list[tuple[int, bool]] = []
        self._server: PolicyMeasured | None = None
        self._stall = Stall(stall_sec)
        self.end: RunEnd | None = None
        """How the run ended, once that is in the journal."""
        self._restore(directory)

    def poll(self) -> bool:
        """Read one round. Returns whether there is more to read at once."""
        now = self._clock()
        self._tails.behind = False
        before = self._progress()
        self._attempt()
        if self._begin():
            if self._continuing:
                self._read_logs()
                self._continue()
            if not self._continuing:
                self._read_all(now)
        more = self._tails.behind or self._plugin_trials.behind or bool(self._rows)
        moved = self._progress() != before
        if moved:
            self._stall.moved(now)
        if not more and self._begun is not None:
            self._stall.past_is_read(min(now, self._tails.modified or now))
            if not moved:
                self._finish()
            self._warn_of_stall(now)
        if moved or more:
            self._save()
        return more

    def measured(self, server: PolicyMeasured) -> None:
        """Journal what the inference servers report now."""
        if server != self._server:
            self._server = server
            if self._begun is not None:
                self._recorder.record(server)

    def leave(self, reason: str) -> None:
        """Journal why the watcher leaves, while the run goes on."""
        if self.end is None and self._begun is not None:
            self._recorder.record(Noted(level="info", text=reason))

    def abandon(self) -> None:
        """End the trials that still seem to run: the run's end is not watched."""
        self._plugin_trials.end_all("the run was ended")

    def close(self) -> None:
        self._save()
        self._tails.close_all()

    def _restore(self, directory: RunDirectory) -> None:
        with closing(JournalReader(directory)) as reader:
            started = reader.read_kinds(("run_started",), 0, limit=1)
            if not started:
                return
            assert isinstance(started[0].event, RunStarted)
            self._begun = started[0].event
            config, _ = read_configuration(self._source) or ({}, 0.0)
            self._steps.evaluates(eval_settings(config))
            self._read_tokens(config)
            self.commands.restore(reader)
            self._steps.restore(reader)
            for name, ended in self._trials.restore(reader, self._steps.done):
                self._steps.ended(name, ended)
        if self._savepoint.over and not self._new_attempt():
            self.end = RunEnd("finished", "the run was over when it was watched last")

    def _begin(self) -> bool:
        """Whether the run's beginning is in the journal."""
        if self._begun is not None:
            return True
        found = read_configuration(self._source)
        if found is None and self._source.empty:
            return False
        config, at = found or ({}, self._clock())
        self._steps.evaluates(eval_settings(config))
        detail = f"watching {self._source.path}"
        event = RunPhaseChanged(phase=RunPhase.STARTING, step=0, detail=detail)
        self._recorder.record(event, at)
        self._begun = run_started(self._source, config)
        self._recorder.record(self._begun, at)
        self._read_tokens(config)
        if self._server is not None:
            self._recorder.record(self._server)
        return True

    def _read_tokens(self, config: dict[str, Any]) -> None:
        self._tokens = TokenText(config)
        self._recorder.pieces = self._tokens.pieces

    def _read_all(self, now: float) -> None:
        # A step's row is written after its rollouts: what is read first was written last.
        self._read_metrics()
        # So are these markers.
        self._broadcasts = self._source.broadcasts()
        horizon = self._rollouts.read()
        # Prime-RL says where a new rollout belongs before the plugin logs it.
        self._plugin_trials.read(now)
        if self._tokens is not None and (problem := self._tokens.problem()):
            self._recorder.record(Noted(level="info", text=f"tokens stay ids: {problem}"))
        while self._rows and (horizon is None or (step_of(self._rows[0]) or 0) < horizon):
            self._steps.row(self._rows.popleft())
        self._steps.settle()
        self._read_checkpoints()
        self._read_logs()
        self.commands.read(
            self._plugin_trials.live, hosts=self._plugin_trials.any or not self._trials.any
        )
        self._change_phase()

    def _read_metrics(self) -> None:
        if len(self._rows) < _MAX_ROWS:
            # A step's rows come one by one: all are read again by a watcher that starts again.
            lines, _ = self._tails.read(self._source.metrics, remember=False)
            rows, bad = read_records(dict[str, Any], lines)
            self._rows.extend(rows)
            if bad:
                self._recorder.warn(
                    f"{bad} lines of metrics.jsonl can't be read; they are left out"
                )

    def _read_logs(self) -> None:
        if self._savepoint.attempt is None:
            return
        attempt = Path(self._savepoint.attempt)
        for part in PARTS:
            lines, _ = self._tails.read(attempt / f"{part}.log")
            for line in lines:
                self._add_line(part, read_line(line))

    def _add_line(self, part: Part, line: str) -> None:
        before = self._pipeline.evaluating
        self._pipeline.add(part, line)
        if (self._pipeline.evaluating or before) != before:
            step = self._pipeline.shipped + 1
            self._steps.evaluation_begins(step, self._pipeline.evaluation)

    def _read_checkpoints(self) -> None:
        for step, path in self._source.checkpoints(self._checkpoints):
            self._checkpoints.add(step)
            saved = CheckpointSaved(step=step, weights_version=step, path=str(path))
            self._recorder.record(saved, path.stat().st_mtime)

    def _new_attempt(self) -> bool:
        attempt = self._source.attempt()
        return attempt is not None and str(attempt) != self._savepoint.attempt

    def _attempt(self) -> None:
        """Look for another launch of the run, which has logs of its own."""
        attempt = self._source.attempt()
        if attempt is None or str(attempt) == self._savepoint.attempt:
            return
        if self._savepoint.attempt is not None:
            self._continuing, self._savepoint.over, self.end = True, False, None
            for part in PARTS:
                self._tails.close(Path(self._savepoint.attempt) / f"{part}.log")
            self._savepoint.pipeline = Pipeline()
        self._savepoint.attempt = str(attempt)

    def _continue(self) -> None:
        """Continue the run, once the orchestrator has logged from which step."""
        step = self._pipeline.resumed_from
        if step is None or self._begun is None:
            return
        self._continuing = False
        self._steps.rewind(step)
        self._rollouts.rewind(step)
        self._pipeline.shipped = self._pipeline.trained = step
        self._recorder.record(
            RunContinued(
                pid=os.getpid(),
                host=socket.gethostname(),
                tbtui_version=self._begun.tbtui_version,
                harbor_version=self._begun.harbor_version,
                checkpoint=str(self._source.path / "checkpoints" / f"step_{step}")
                if step
                else None,
                step=step,
                replayed=(),
                reused=0,
                requeued=(),
                settings=self._settings or self._begun.settings,
            )
        )
        self.commands.run_continues()

    def _change_phase(self) -> None:
        phase = self._pipeline.phase()
        if phase != self._phase and self.end is None:
            self._phase = phase
            event = RunPhaseChanged(phase=phase[0], step=self._steps.done, detail=phase[1])
            self._recorder.record(event)

    def _finish(self) -> None:
        if self.end is None and self._pipeline.over:
            self._steps.settle(over=True)
            self._conclude(f"{self._steps.done} steps")

    def _conclude(self, reason: str) -> None:
        self._plugin_trials.end_all("the run is over")
        self._recorder.record(RunFinished(status="finished", reason=reason))
        self._savepoint.over = True
        self.end = RunEnd("finished", reason)
        self._save()

    def _warn_of_stall(self, now: float) -> None:
        if self.end is not None or self._pipeline.over:
            return
        if (still := self._stall.due(now)) is not None:
            self._recorder.warn(f"no progress for {still:.0f} s: {self._standing(now)}")

    def _standing(self, now: float) -> str:
        """What is known of a run that stands still, and where to look."""
        if who := self.commands.paused_by:
            return f"the run is paused by {who}: resume it"
        trials = self._plugin_trials.waiting(now)
        if self._plugin_trials.all_held:
            return f"all trials that have begun are held: {trials}"
        of_trials = f"; live trials: {trials}" if trials else ""
        logs = self._savepoint.attempt or "not there yet"
        return f"its parts' logs are {logs}{of_trials}{server_words(self._server)}"

    def _progress(self) -> tuple[object, ...]:
        """Figures that differ when there was progress."""
        pipeline = self._pipeline
        return (
            self._rollouts.news,
            self._plugin_trials.news,
            self._steps.done,
            self._steps.collected,
            len(self._checkpoints),
            tuple(self._broadcasts),
            (pipeline.shipped, pipeline.trained, pipeline.evaluating),
            (pipeline.server_ready, pipeline.looping, pipeline.trainer_ready, pipeline.over),
            self._begun is None,
        )

    @property
    def _pipeline(self) -> Pipeline:
        return self._savepoint.pipeline

    def _save(self) -> None:
        self._savepoint.positions = self._tails.positions
        self._savepoint.floor = self._rollouts.floor
        self._savepoint.checkpoints = sorted(self._checkpoints)
        self._savepoint.save(self._saved_at)
