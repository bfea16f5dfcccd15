"""Slows the first turns of a run down, so that a person can follow them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from tbtui.config import RunConfig
from tbtui.journal.vocabulary import Purpose

SHOWN_SEC = 2.0
"""How long each turn of the embedded model stands, which takes a tenth of a second by itself: long
enough to read its one command."""


class Pacer:
    """Holds each answer of the model for a while before the agent gets it.

    The trial's clocks stand still meanwhile: no reward, token or time limit is another one.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds or 0.0
        self._full_speed = asyncio.Event()

    def change(self, seconds: float | None) -> None:
        """Hold the next answers for as long; with 0 those that are held go out at once."""
        self._seconds = seconds or 0.0
        if self._seconds:
            self._full_speed.clear()
        else:
            self._full_speed.set()

    async def hold(self, step: int, purpose: Purpose, delay: Callable[[bool, float], None]) -> None:
        """Hold the answer for a trial of this step.

        Args:
            delay: stops the trial's clocks (True), or starts them; no time is given back.
        """
        if not self._seconds or not is_paced(step, purpose):
            return
        delay(True, 0.0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._full_speed.wait(), self._seconds)
        delay(False, 0.0)


def is_paced(step: int, purpose: Purpose) -> bool:
    """Whether it is one of the run's first batches: the evaluation before training, and step 1."""
    return step < 1 or (step == 1 and purpose == "train")


def paced_for_app(config: RunConfig) -> RunConfig:
    """The settings of a run that begins in the app: the embedded model on the bundled tasks is
    paced, unless the person says otherwise."""
    embedded = config.engine == "grpo" and config.policy == "local"
    if config.pace_sec is not None or not embedded or config.tasks_dir is not None:
        return config
    return config.replace(pace_sec=SHOWN_SEC)
