"""Slows the first turns of a run down, so that a person can follow them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tbtui.config import RunConfig
from tbtui.vocabulary import Purpose, is_paced

SHOWN_SEC = 2.0
"""How long each turn of the embedded model stands, which takes a tenth of a second by itself: long
enough to read its one command."""
_LOOK_SEC = 0.1
"""How often a held answer looks whether it is to go out now, or the pace has changed."""


class Pacer:
    """Holds each answer of the model for a while before the agent gets it.

    The trial's clocks stand still meanwhile, so that rewards, tokens and time limits are the same.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds or 0.0

    def change(self, seconds: float | None) -> None:
        """Set how long answers are held, those that are held now included."""
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
            delay: stops the trial's clocks (True), or starts them; gives no time back.
            hurry: whether the answer is to go out now, because a person waits for the turn's end.
        """
        if not self._seconds or not is_paced(step, purpose):
            return
        begun = time.monotonic()
        delay(True, 0.0)
        try:
            # Polls: `hurry` reads what people have asked of the trial, which no event announces.
            while (left := begun + self._seconds - time.monotonic()) > 0 and not hurry():  # noqa: ASYNC110
                await asyncio.sleep(min(left, _LOOK_SEC))
        finally:
            delay(False, 0.0)


def paced_for_app(config: RunConfig) -> RunConfig:
    """The settings with the pace of a run that begins in the app.

    Training the embedded model on the bundled tasks is paced, unless `pace_sec` is set.
    """
    embedded = config.engine == "grpo" and config.policy == "local" and config.max_steps > 0
    if config.pace_sec is not None or not embedded or config.tasks_dir is not None:
        return config
    return config.replace(pace_sec=SHOWN_SEC)
