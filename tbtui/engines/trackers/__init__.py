"""Copies a run's metrics from its journal to files and services. None can stop the training."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from tbtui.config import ConfigError, RunConfig, to_json
from tbtui.engines.trackers.base import Sink, Tracker, close_all
from tbtui.engines.trackers.sinks import (
    TENSORBOARD,
    TRACKIO,
    JsonLinesSink,
    TensorBoardSink,
    TrackioSink,
    WandbSink,
)
from tbtui.journal.rundir import RunDirectory

__all__ = ["Tracker", "check_trackers", "close_all", "trackers_for"]


def check_trackers(config: RunConfig) -> None:
    """Refuse a tracker whose package is not installed. Imports nothing.

    Raises:
        ConfigError: a tracker is asked for whose package is not installed.
    """
    for asked, package, setting, extra in (
        (config.tensorboard, TENSORBOARD, "tensorboard=true", "tensorboard"),
        (config.trackio_project, TRACKIO, f"trackio_project={config.trackio_project}", "trackio"),
    ):
        if asked and importlib.util.find_spec(package) is None:
            raise ConfigError(f"{setting}: {package} is not installed; install tbtui[{extra}]")


def trackers_for(
    config: RunConfig, directory: RunDirectory, on_failure: Callable[[str], None]
) -> list[Tracker]:
    """Everything that the config asks for, not started yet; `metrics.jsonl` always.

    The journal must exist when they are started, and each is closed (`close_all`) when it is
    complete. `on_failure` is called with one line, on a tracker's thread.
    """
    path, settings = directory.path, to_json(config)

    def tracker(name: str, open_sink: Callable[[], Sink]) -> Tracker:
        return Tracker(name, open_sink, directory, on_failure)

    trackers = [tracker("metrics.jsonl", lambda: JsonLinesSink(path / "metrics.jsonl"))]
    if config.tensorboard:
        trackers.append(tracker("tensorboard", lambda: TensorBoardSink(path / "tensorboard")))
    if wandb_project := config.wandb_project:
        name = config.wandb_name or directory.name
        trackers.append(
            tracker("wandb", lambda: WandbSink(wandb_project, name, settings, directory))
        )
    if trackio_project := config.trackio_project:
        trackers.append(
            tracker(
                "trackio",
                lambda: TrackioSink(trackio_project, directory.name, settings, directory),
            )
        )
    return trackers
