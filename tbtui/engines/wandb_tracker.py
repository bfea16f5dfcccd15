"""Copies a run's metrics to wandb, from the journal, on a thread that nothing waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from tbtui.config import RunConfig
from tbtui.journal.events import Entry, EvalFinished, StepFinished
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory

_POLL_SEC = 1.0
_PATIENCE_SEC = 30.0

log = logging.getLogger(__name__)


class WandbTracker:
    """Follows the journal and logs each step's and each evaluation's metrics.

    It can never stop or slow the training: whatever goes wrong is told once, through `on_failure`
    (called on the tracker's thread with one line), and ends the tracking alone.
    """

    def __init__(
        self,
        project: str,
        config: RunConfig,
        directory: RunDirectory,
        on_failure: Callable[[str], None],
    ) -> None:
        self._project = project
        self._config = config
        self._directory = directory
        self._on_failure = on_failure
        self._complete = threading.Event()
        self._thread = threading.Thread(target=self._main, name="wandb", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """The journal is complete: log what is left, and wait a while for wandb to finish."""
        self._complete.set()
        self._thread.join(_PATIENCE_SEC)
        if self._thread.is_alive():
            log.error("wandb did not finish within %.0f s and is left behind", _PATIENCE_SEC)

    def _main(self) -> None:
        try:
            self._track()
        except Exception as error:
            log.exception("wandb failed")
            self._on_failure(f"wandb: {error}; the run goes on without it")

    def _track(self) -> None:
        # Here, because importing wandb takes a second or two.
        import wandb

        reader = JournalReader(self._directory)
        try:
            with wandb.init(
                project=self._project,
                name=self._config.wandb_name or self._directory.name,
                dir=str(self._directory.path),
                config=self._config.model_dump(mode="json"),
                settings=wandb.Settings(console="off", silent=True),
            ) as tracked:
                for metrics in self._rows(reader):
                    tracked.log(metrics)
        finally:
            reader.close()
            wandb.teardown()  # its service process would stay as long as ours

    def _rows(self, reader: JournalReader) -> Iterator[dict[str, float]]:
        """The metrics of each step and evaluation, as they come, until the journal is complete."""
        after, ending = 0, False
        while not ending:
            ending = self._complete.wait(_POLL_SEC)
            while entries := reader.read(after):
                after = entries[-1].seq
                yield from (metrics for entry in entries if (metrics := _metrics(entry)))


def _metrics(entry: Entry) -> dict[str, float]:
    match entry.event:
        case StepFinished() as event:
            return {**event.metrics, "step": event.step}
        case EvalFinished(pass_rate=float()) as event:
            kinds = {f"test/{kind}/pass_rate": rate for kind, rate in event.by_kind.items()}
            assert event.pass_rate is not None
            return {**kinds, "test/pass_rate": event.pass_rate, "step": event.step}
        case _:
            return {}
