"""Freezes, thaws and keeps alive a trial's sandbox."""

from __future__ import annotations

import logging
import math
import time

from harbor.environments.base import BaseEnvironment

from tbtui.rollout.control import TimeLeft
from tbtui.rollout.environments.freezing import freeze, thaw
from tbtui.rollout.environments.lifetime import extend, lifetime

_WANTED_SEC = 3600.0

_log = logging.getLogger(__name__)


class HeldSandbox:
    """Make it when the sandbox has started: a total lifetime counts from then."""

    def __init__(self, environment: BaseEnvironment) -> None:
        self._environment = environment
        self._lifetime = lifetime(environment)
        self._ends = math.inf
        if self._lifetime is not None:
            self._ends = time.monotonic() + self._lifetime.seconds

    def used(self) -> None:
        """A command was run; an idle time begins anew."""
        if self._lifetime is not None and self._lifetime.kind == "idle":
            self._ends = time.monotonic() + self._lifetime.seconds

    async def freeze(self) -> None:
        await freeze(self._environment)

    async def thaw(self) -> None:
        await thaw(self._environment)

    async def keep_alive(self) -> TimeLeft | None:
        """See to it that it lives an hour from now, or as long as it may be idle."""
        mine = self._lifetime
        if mine is None:
            return None
        left = self._ends - time.monotonic()
        if left > 2 * _WANTED_SEC:
            return TimeLeft(left, secured=True)
        wanted = mine.seconds if mine.kind == "idle" else _WANTED_SEC
        if mine.extendable and await self._extended(wanted):
            left = max(left, wanted)
            self._ends = time.monotonic() + left
            return TimeLeft(left, secured=True)
        return TimeLeft(left, secured=False, note=mine.setting or "")

    async def _extended(self, wanted: float) -> bool:
        try:
            return await extend(self._environment, wanted)
        except Exception as error:  # noqa: BLE001  any SDK's; not extended is the answer
            _log.warning("%s: not extended: %r", self._environment.session_id, error)
            return False
