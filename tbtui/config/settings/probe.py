"""Runs that only try a model, before one is trained."""

from __future__ import annotations

from typing import Annotated, ClassVar

from tbtui.config.settings.about import About, Fixed
from tbtui.config.settings.forks import Forks


class Probing(Forks, frozen=True, kw_only=True):
    """A few trials of training tasks, with several agents and temperatures."""

    heading: ClassVar[str] = "Probe"

    probe: Annotated[
        tuple[str, ...],
        About(
            "Only probe: AGENT@TEMPERATURE for each way in which the training tasks are tried,"
            " eval_group_size times each (tbtui probe)",
            "empty: the run trains, or evaluates",
            trust="class",
        ),
        Fixed.EVALUATIONS,
    ] = ()
    probe_tasks: Annotated[
        int,
        About(
            "Training tasks that a probe tries, of as many kinds as there are",
            "one task with a signal is worth a run: with six of them it shows as .17",
            "tasks",
            ge=1,
        ),
        Fixed.EVALUATIONS,
    ] = 6
