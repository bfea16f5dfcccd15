"""States of trials that are kept, and runs whose trials begin at one."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from tbtui.config.settings.about import About, Fixed, Live
from tbtui.config.settings.trials import Stragglers


class Forks(Stragglers, frozen=True, kw_only=True):
    """Snapshots of sandboxes at turn boundaries, and forks."""

    heading: ClassVar[str] = "Snapshots and forks"

    snapshots: Annotated[
        str,
        msgspec.Meta(
            pattern="^(off|turns|every=[1-9][0-9]*)$", description="off, turns or every=N"
        ),
        About(
            "At which turns a trial's sandbox or container is kept, so that forks need not type its"
            " keys again: off, turns (all), every=N",
            "off: forks of short trials type faster than copies are worth",
        ),
        Live("holds for trials that start from now on"),
    ] = "off"
    snapshot_mb: Annotated[
        int,
        About(
            "Most room that one trial's snapshots take; the oldest turns go first",
            "a hundred turns of a task that writes little",
            "MiB",
            ge=1,
        ),
        Live("holds for trials that start from now on"),
    ] = 256
    keep_snapshots: Annotated[
        bool,
        About(
            "Keep snapshots when the run has ended",
            "off: what agents wrote is large; later forks type the recorded keys again",
        ),
    ] = False
    fork_from: Annotated[
        str | None,
        About(
            "Only fork: RUN/TRIAL@TURN; eval_group_size trials go on from there (tbtui fork);"
            " @bisect or @all: from several turns, to measure their values",
            "none: the run trains, or evaluates",
            trust="path",
        ),
        Fixed.EVALUATIONS,
    ] = None
    fork_go_on: Annotated[
        bool,
        About(
            "Go on where a re-executed turn's screen differs from the recorded one",
            "off: what was reached then is not the state that was asked for",
        ),
        Fixed.EVALUATIONS,
    ] = False
