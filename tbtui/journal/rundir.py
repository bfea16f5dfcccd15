"""Where a run keeps its things."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


class RunDirectoryError(Exception):
    """The run directory can't be used; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """`run.db`, `config.toml`, `log.txt`, `trials/`, `checkpoints/` under one path."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def database(self) -> Path:
        return self.path / "run.db"

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def trials(self) -> Path:
        return self.path / "trials"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def recording(self, trial: str) -> Path:
        """The trial's terminal, asciicast v2, growing while it runs."""
        return self.trials / trial / "recording.cast"

    @classmethod
    def create(cls, path: Path) -> RunDirectory:
        """Make a new run directory.

        Raises:
            RunDirectoryError: it exists and is not empty, or can't be written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RunDirectoryError(
                    f"{path}: a run is already there; give another logs_dir or run_name"
                )
            run = cls(path.resolve())
            run.trials.mkdir()
            run.checkpoints.mkdir()
        except OSError as error:
            raise RunDirectoryError(
                f"{path}: can't make the run directory ({os.strerror(error.errno or 0)}); "
                f"choose a writable place with logs_dir=..."
            ) from error
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run.

        Raises:
            RunDirectoryError: there is no journal.
        """
        run = cls(path.resolve())
        if not run.database.is_file():
            raise RunDirectoryError(f"{path}: no run here (run.db is missing)")
        return run
