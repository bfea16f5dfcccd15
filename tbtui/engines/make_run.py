"""The run that was asked for, whichever engine runs it.

A module of its own, for nothing that an engine imports may know both engines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tbtui.config import ConfigError
from tbtui.engines.alerts import receivers_of
from tbtui.engines.prepare import prepare_run
from tbtui.engines.request import RunRequest
from tbtui.journal.commands import Command, RunEnd


class AnyRun(Protocol):
    """A run that may start. Everything happens on the event loop that `run` is awaited on."""

    def submit(self, command: Command) -> None:
        """Send it a command; the result is read from the journal."""
        ...

    async def run(self) -> RunEnd:
        """Run to the end, or until cancelled; always cleans up, never raises."""
        ...


def prepare(request: RunRequest) -> Callable[[], AnyRun]:
    """Check the request; returns what makes the run.

    Making it imports the engine, which takes seconds: there is time to say so before.

    Raises `UserError`; nothing is left then, the run directory included.
    """
    config = request.config
    try:
        receivers_of(config.alerts, config.wandb_project, request.directory.name)
    except ConfigError:
        request.discard()
        raise
    if config.engine == "prime-rl":
        from tbtui.engines.prime_rl.launch.prepare import prepare_launch

        launch = prepare_launch(request)

        def make_prime_rl() -> AnyRun:
            from tbtui.engines.prime_rl.launch.run import PrimeRlRun

            return PrimeRlRun(launch)

        return make_prime_rl
    prepared = prepare_run(request)

    def make() -> AnyRun:
        from tbtui.engines.run import Run

        return Run(prepared)

    return make
