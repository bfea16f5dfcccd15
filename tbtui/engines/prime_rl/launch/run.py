"""Runs Prime-RL from its launch to its end, and journals it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import msgspec

from tbtui.config import ConfigError, to_json
from tbtui.config.toml import toml_text
from tbtui.engines.alerts import alerting_of
from tbtui.engines.awaiting import in_background
from tbtui.engines.events_of import task_records
from tbtui.engines.gpus import GPUS_LOST, GpuMonitor
from tbtui.engines.prime_rl.control import PrimeRlControl
from tbtui.engines.prime_rl.launch.preflight import PreflightFinding, require, slow_checks
from tbtui.engines.prime_rl.launch.prepare import FILE, PreparedLaunch
from tbtui.engines.prime_rl.launch.process import (
    GuardedProcess,
    failure_of,
    last_line,
    submitted_job,
)
from tbtui.engines.prime_rl.watch.recorder import Savepoint, TraceRecorder
from tbtui.engines.prime_rl.watch.run import SAVEPOINT, PreparedWatch, WatchOptions, follow
from tbtui.engines.prime_rl.watch.server import ServerMetrics
from tbtui.engines.prime_rl.watch.source import SourceDirectory, run_started
from tbtui.engines.resume import keep_settings
from tbtui.errors import UserError
from tbtui.invocation import to_type
from tbtui.journal.commands import Command, RunEnd
from tbtui.journal.database import JournalError
from tbtui.journal.events import Noted, RunFinished, RunPhase, RunPhaseChanged, RunStarted
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectoryError

log = logging.getLogger(__name__)

LOG = "prime_rl.log"
"""In the run's `logs`: what the launcher prints."""
_POLL_SEC = 0.25
_SETTLE_SEC = 5.0
"""How long reading what was written may take after the launcher's end."""
_FINISH_SEC = 120.0
"""How long the launcher may take to end its parts and itself after the training."""


class PrimeRlRun:
    """A prepared launch. Everything here happens on one event loop."""

    def __init__(self, prepared: PreparedLaunch) -> None:
        self._prepared = prepared
        self._source = SourceDirectory(prepared.source)
        self._logs = prepared.directory.path / "logs"
        self._control = PrimeRlControl(prepared.directory.path, prepared.facts.server_urls)
        self._submitted: str | None = None
        """The SLURM job that runs elsewhere; empty: its number is not known."""

    def submit(self, command: Command) -> None:
        self._control.submit(command)

    async def run(self) -> RunEnd:
        """Run to the end, or until cancelled; always clean up, never raise.

        This is the one place that turns a failure into how the run ended.
        """
        prepared = self._prepared
        try:
            with TraceRecorder(prepared.directory, continues=prepared.resumed) as recorder:
                async with alerting_of(prepared.config, prepared.directory, recorder.record):
                    end = await self._journalled(recorder)
                    recorder.flush()
                return end
        except RunDirectoryError as error:  # another process was faster
            return RunEnd("refused" if prepared.resumed else "failed", str(error))
        except (JournalError, OSError) as error:
            return RunEnd("failed", str(error))

    async def _journalled(self, recorder: TraceRecorder) -> RunEnd:
        try:
            end, journalled = await self._launched(recorder)
        except asyncio.CancelledError as error:
            if self._submitted is not None:
                return self._left()
            end, journalled = RunEnd("interrupted", str(error) or "everything is cleaned up"), False
        except ConfigError as error:
            end, journalled = RunEnd("refused", str(error)), False
        except (UserError, OSError) as error:
            end, journalled = RunEnd("failed", str(error)), False
        except JournalError:
            raise
        except Exception as error:
            log.exception("the run failed")
            reason = f"{type(error).__name__}: {error} (see log.txt)"
            end, journalled = RunEnd("failed", reason), False
        if not journalled:
            status = "failed" if end.status == "refused" else end.status
            recorder.record(RunFinished(status=status, reason=end.reason))
        return end

    async def _launched(self, recorder: TraceRecorder) -> tuple[RunEnd, bool]:
        """Launch and follow it. Returns the end, and whether the journal has it already."""
        prepared = self._prepared
        self._begin(recorder)
        await self._check(recorder)
        before = self._source.attempt()
        process = await self._start()
        try:
            gpus = GpuMonitor(recorder.record, prepared.config.gpu_hosts)
            async with in_background(gpus.run(), GPUS_LOST, recorder.record):
                self._phase(recorder, "Prime-RL's launcher")
                return await self._until_over(recorder, process, before)
        finally:
            await process.stop()

    def _begin(self, recorder: TraceRecorder) -> None:
        prepared = self._prepared
        self._logs.mkdir(exist_ok=True)
        self._phase(recorder, "the checks of what Prime-RL needs")
        if not _has_begun(prepared):
            recorder.record(started_event(prepared))
        _note(recorder, prepared.findings)

    async def _check(self, recorder: TraceRecorder) -> None:
        """Ask Prime-RL's own environment; raises `ConfigError` where it says that it can't run."""
        prepared = self._prepared
        findings = await slow_checks(prepared.checkout, prepared.facts, prepared.toml)
        require(findings, prepared.config)
        _note(recorder, findings)
        if prepared.resumed:
            keep_settings(prepared.directory, prepared.config)

    async def _start(self) -> GuardedProcess:
        prepared = self._prepared
        place = prepared.directory.path
        file = place / FILE
        file.write_text(toml_text(prepared.toml))
        printed = self._logs / LOG
        if printed.exists():  # by an earlier launch
            earlier = 1 + sum(1 for _ in self._logs.glob("prime_rl-*.log"))
            printed.rename(self._logs / f"prime_rl-{earlier}.log")
        return await GuardedProcess.start(
            [str(prepared.checkout.rl), "@", str(file)],
            # As `uv run rl` is used: SLURM's script and relative paths count on it.
            cwd=prepared.checkout.directory,
            environment=prepared.checkout.environment(),
            log=printed,
        )

    async def _until_over(
        self, recorder: TraceRecorder, process: GuardedProcess, before: Path | None
    ) -> tuple[RunEnd, bool]:
        if not await self._until_attempt(recorder, process, before):
            return self._ended(recorder, process.status or 0, None), False
        elsewhere = self._submitted is not None
        following = asyncio.create_task(
            follow(self._watch(), recorder, self._control, ends_it=not elsewhere)
        )
        try:
            if elsewhere:
                return await following, True
            launcher = asyncio.create_task(process.wait())
            await asyncio.wait({following, launcher}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                await asyncio.wait({following}, timeout=_SETTLE_SEC)
            if following.done():
                end = following.result()
                if end.status == "finished":
                    # It ends the inference server by itself, and waits for that.
                    await asyncio.wait({launcher}, timeout=_FINISH_SEC)
                return end, True
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
        return self._ended(recorder, launcher.result(), self._source.attempt()), False

    async def _until_attempt(
        self, recorder: TraceRecorder, process: GuardedProcess, before: Path | None
    ) -> bool:
        """Wait for the logs of this launch; False: it ended without any."""
        if self._prepared.facts.slurm:
            if await process.wait() != 0:
                return False
            self._submitted = submitted_job(self._logs / LOG) or ""
            self._phase(recorder, f"SLURM to start the job {self._submitted}".rstrip())
        shown = ""
        while (attempt := self._source.attempt()) is None or attempt == before:
            if process.status is not None and self._submitted is None:
                return False
            said = last_line(self._logs / LOG)
            if said != shown and self._submitted is None:
                shown = said
                self._phase(recorder, f"Prime-RL's launcher ({said})")
            await asyncio.sleep(_POLL_SEC)
        return True

    def _watch(self) -> PreparedWatch:
        """The watch of this launch; raises `UserError` where the last one's can't be read."""
        prepared = self._prepared
        urls = prepared.facts.server_urls
        return PreparedWatch(
            self._source,
            prepared.directory,
            Savepoint.load(prepared.directory.path / SAVEPOINT, self._source.path),
            WatchOptions(
                server_urls=urls,
                trials_dir=prepared.directory.path,
                settings=_settings_of(prepared),
            ),
            ServerMetrics(urls) if urls else None,
            continues=True,
        )

    def _ended(self, recorder: TraceRecorder, status: int, attempt: Path | None) -> RunEnd:
        """The end of a launcher whose parts' logs, if any, have no end."""
        if status == 0:
            return RunEnd("finished", "Prime-RL's launcher has ended")
        failure = failure_of(self._logs / LOG, attempt, status)
        for line in failure.lines:
            recorder.record(Noted(level="error", text=line))
        return RunEnd("failed", failure.reason)

    def _left(self) -> RunEnd:
        """The job goes on without tbtui: the journal stays open for the next watcher."""
        place = self._prepared.directory.path
        end_it = f"`scancel {self._submitted}` ends it" if self._submitted else "scancel ends it"
        return RunEnd(
            "interrupted",
            f"the job goes on: {end_it};"
            f" `{to_type('prime-rl', 'watch', self._source.path, '--into', place)}`"
            " watches it again",
        )

    def _phase(self, recorder: TraceRecorder, detail: str) -> None:
        recorder.record(RunPhaseChanged(phase=RunPhase.STARTING, step=0, detail=detail))


def _note(recorder: TraceRecorder, findings: Iterable[PreflightFinding]) -> None:
    for finding in findings:
        level: Literal["info", "warning", "error"]
        level = "info" if finding.level == "ok" else finding.level
        recorder.record(Noted(level=level, text=finding.text))


def _has_begun(prepared: PreparedLaunch) -> bool:
    if not prepared.resumed:
        return False
    with closing(JournalReader(prepared.directory)) as reader:
        return bool(reader.read_kinds(("run_started",), 0, limit=1))


def started_event(prepared: PreparedLaunch) -> RunStarted:
    """The run's beginning: what the file says, tbtui's settings, and the split of its tasks."""
    changes: dict[str, object] = {
        "run": prepared.directory.name,
        "settings": _settings_of(prepared),
    }
    if prepared.environment is not None:
        changes["environment"] = prepared.environment.name
        changes["environment_reason"] = prepared.environment.reason
    if prepared.split is not None:
        changes["tasks"] = task_records(prepared.split)
    return msgspec.structs.replace(_started(prepared), **changes)


def _settings_of(prepared: PreparedLaunch) -> dict[str, Any]:
    """tbtui's settings; beside a file of Prime-RL's, those that the file decides are the file's."""
    settings = to_json(prepared.config)
    if prepared.config.prime_rl_config is not None:
        in_file = _started(prepared).settings
        settings |= {name: value for name, value in in_file.items() if name in settings}
    return settings


def _started(prepared: PreparedLaunch) -> RunStarted:
    return run_started(SourceDirectory(prepared.source), prepared.toml)
