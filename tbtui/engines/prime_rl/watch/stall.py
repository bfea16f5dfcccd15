"""When nothing has gone forward for too long, and what is said of it. Pure."""

from __future__ import annotations

from tbtui.journal.events import PolicyMeasured


class Stall:
    """Times are in seconds since the epoch."""

    def __init__(self, stall_sec: float) -> None:
        """`stall_sec`: what is too long; twice as long each further time."""
        self._stall_sec = stall_sec
        self._next = stall_sec
        self._moved_at: float | None = None
        """None while the past is being read."""

    def moved(self, now: float) -> None:
        """Something went forward."""
        if self._moved_at is not None:
            self._moved_at, self._next = now, self._stall_sec

    def past_is_read(self, moved_at: float) -> None:
        """It has been still since then; said once."""
        if self._moved_at is None:
            self._moved_at = moved_at

    def due(self, now: float) -> float | None:
        """For how long nothing has moved, where that is to be told now."""
        if self._moved_at is None or now - self._moved_at < self._next:
            return None
        self._next = (now - self._moved_at) * 2
        return now - self._moved_at


def server_words(measured: PolicyMeasured | None) -> str:
    """What the inference server says of itself, as the end of a sentence."""
    if measured is None or measured.server is None:
        return ""
    if measured.server.state == "unreachable":
        return f"; the inference server doesn't answer ({measured.server.reason})"
    waiting = measured.in_flight - measured.running
    use = measured.server.kv_cache_use
    cache = "" if use is None else f", KV cache {use:.0%} full"
    return f"; the inference server has {measured.running} running, {waiting} waiting{cache}"
