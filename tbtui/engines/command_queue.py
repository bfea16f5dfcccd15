"""The one queue of a run's commands, and those that no engine carries out."""

from __future__ import annotations

from collections.abc import Callable

from tbtui.journal.commands import RUN, Command


class CommandQueue:
    """A run's commands in the order in which they came. Used on the run's event loop.

    They wait until there is an engine, which journals them; some then wait until there are the
    trials that they may be about.
    """

    def __init__(self) -> None:
        self._new: list[Command] = []
        self._journalled: list[Command] = []
        """Taken up by the engine, and not carried out yet."""
        self._take_up: Callable[[Command], None] | None = None
        self._carry_out: Callable[[Command], bool] = lambda _: False

    @property
    def up_to_date(self) -> bool:
        """Whether the engine has carried out all that it has taken up."""
        return not self._journalled

    def submit(self, command: Command) -> None:
        """Queue a command: it is carried out now or as soon as it can be."""
        if self._take_up is None:
            self._new.append(command)
            return
        self._take_up(command)
        if not self._carry_out(command):
            self._journalled.append(command)

    def serve(
        self, take_up: Callable[[Command], None], carry_out: Callable[[Command], bool]
    ) -> None:
        """Hand over what waits, and all commands from now on.

        Args:
            take_up: journals that a command was given.
            carry_out: says whether it could be carried out by now, or has to wait.
        """
        self._take_up, self._carry_out = take_up, carry_out
        for command in self.take_new():
            self.submit(command)

    def try_again(self) -> None:
        """Carry out what waits and can be carried out by now."""
        self._journalled = [each for each in self.take_journalled() if not self._carry_out(each)]

    def hold(self) -> None:
        """Let commands wait: there is no engine."""
        self._take_up = None

    def take_new(self) -> list[Command]:
        """Remove and return the commands that no engine has taken."""
        taken, self._new = self._new, []
        return taken

    def take_journalled(self) -> list[Command]:
        """Remove and return the commands that an engine has taken and not carried out."""
        taken, self._journalled = self._journalled, []
        return taken


def answered_outside(command: Command) -> str | None:
    """What comes of a command that `ControlledRun` carries out, and the engine only journals;
    None: it is the engine's own."""
    if command.target != RUN:
        return None
    if command.verb == "stop":
        return "the run ends; what it has done is kept"
    if command.verb == "take":
        before = command.arguments.get("from")
        alone = ", for itself" if command.arguments.get("exclusive") else ""
        had = f"; {before} had them" if before else ""
        return f"{command.actor} has the controls{alone}{had}"
    return None
