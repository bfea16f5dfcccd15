"""When a rollout was doing what, from the spans that verifiers notes. Pure."""

from __future__ import annotations

from tbtui.engines.prime_rl.watch.records import Timing
from tbtui.journal.events import PhaseSeconds


def last_moment(timing: Timing) -> float:
    spans = (timing.boot, timing.setup, timing.agent, timing.finalize, timing.scoring)
    return max(timing.start, *(max(span.start, span.end) for span in spans))


def spent(timing: Timing) -> PhaseSeconds:
    began = timing.boot.start or timing.setup.start or timing.agent.start or timing.start
    model = timing.agent.model.duration
    return PhaseSeconds(
        queue=max(0.0, began - timing.start) if timing.start else 0.0,
        build=_seconds(timing.boot.start, timing.boot.end),
        setup=_seconds(timing.setup.start, timing.setup.end),
        sampling=model,
        commands=max(0.0, _seconds(timing.agent.start, timing.agent.end) - model),
        verifying=_seconds(timing.scoring.start, timing.scoring.end),
        teardown=_seconds(timing.finalize.start, timing.finalize.end),
    )


def _seconds(start: float, end: float) -> float:
    return max(0.0, end - start) if end else 0.0
