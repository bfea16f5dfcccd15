"""wandb, online or offline as its own settings say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tbtui.engines.trackers.base import Progress
from tbtui.engines.trackers.rows import Row
from tbtui.journal.rundir import RunDirectory


class WandbSink:
    """One wandb run for one run of ours, resumed with it under the same id.

    A row's index is wandb's own step, so that a row can't be there twice. Online the server says
    how far it has got, offline our note in the run directory does.
    """

    def __init__(
        self, project: str, name: str, config: dict[str, Any], directory: RunDirectory
    ) -> None:
        # Here, because importing wandb takes a second or two.
        import wandb

        self._wandb = wandb
        self._progress = Progress.load(directory, "wandb")
        again = bool(self._progress.id)
        self._run = wandb.init(
            project=project,
            name=name,
            id=self._progress.id or None,
            resume="allow" if again else None,
            dir=str(directory.path),
            config=config,
            settings=wandb.Settings(console="off", silent=True),
        )
        if again and not self._run.offline:
            self._progress.rows = self._run.starting_step
        self._progress.id = self._run.id
        self._progress.save()
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")

    def log(self, rows: Sequence[Row]) -> None:
        new = [row for row in rows if row.index >= self._progress.rows]
        for row in new:
            self._run.log({**row.values, "step": row.step}, step=row.index)
        if new:
            self._progress.rows = new[-1].index + 1
            self._progress.save()

    def close(self) -> None:
        self._run.finish()
        self._wandb.teardown()  # its service process would stay as long as ours
