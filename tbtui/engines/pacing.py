"""Slows the first turns of a run down, so that a person can follow them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tbtui.config import RunConfig
from tbtui.journal.vocabulary import Purpose

SHOWN_SEC = 2.0
"""How long each turn of the embedded model stands, which takes a tenth of a second by itself: long
enough to read its one command."""
_LOOK_SEC = 0.1
"""Between two looks whether somebody waits, or the pace is another one."""


class Pacer:
    """Holds each answer of the model for a while before the agent gets it.

    The trial's clocks stand still meanwhile: no reward, token or time limit is another one.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds or 0.0

    def change(self, seconds: float | None) -> None:
        """Hold answers for as long, also those that are held now."""
        self._seconds = seconds or 0.0

    async def hold(
        self,
        step: int,
        purpose: Purpose,
        delay: Callable[[bool, float], None],
        hurry: Callable[[], bool] = lambda: False,
    ) -> None:
        """Hold the answer for a trial of this step.

        Args:
            delay: stops the trial's clocks (True), or starts them; no time is given back.
            hurry: whether the answer is to go out now: somebody waits for the end of the turn.
        """
        if not self._seconds or not is_paced(step, purpose):
            return
        begun = time.monotonic()
        delay(True, 0.0)
        # Each of many trials has another reason to look up: nothing could be waited for.
        while (left := begun + self._seconds - time.monotonic()) > 0 and not hurry():  # noqa: ASYNC110
            await asyncio.sleep(min(left, _LOOK_SEC))
        delay(False, 0.0)


def is_paced(step: int, purpose: Purpose) -> bool:
    """Whether it is one of the run's first batches: the evaluation before training, and step 1."""
    return step < 1 or (step == 1 and purpose == "train")


def paced_for_app(config: RunConfig) -> RunConfig:
    """The settings of a run that begins in the app: training the embedded model on the bundled
    tasks is paced, unless the person says otherwise."""
    embedded = config.engine == "grpo" and config.policy == "local" and config.max_steps > 0
    if config.pace_sec is not None or not embedded or config.tasks_dir is not None:
        return config
    return config.replace(pace_sec=SHOWN_SEC)
