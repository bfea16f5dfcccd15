"""The one queue of a run's commands, and those that no engine carries out."""

from __future__ import annotations

from typing import Protocol

from tbtui.journal.commands import RUN, Command


class TakesCommands(Protocol):
    """An engine, as the queue of its run's commands sees it."""

    def take_up(self, command: Command) -> None:
        """Journal that a command was given."""
        ...

    def carry_out(self, command: Command) -> bool:
        """Carry a command out; False: it has to wait."""
        ...


class CommandQueue:
    """A run's commands in the order in which they came. Used on the run's event loop.

    They wait until there is an engine, which journals them; some then wait until there are the
    trials that they may be about.
    """

    def __init__(self) -> None:
        self._new: list[Command] = []
        self._journalled: list[Command] = []
        """Taken up by the engine, and not carried out yet."""
        self._engine: TakesCommands | None = None

    @property
    def served(self) -> bool:
        """Whether there is an engine."""
        return self._engine is not None

    @property
    def up_to_date(self) -> bool:
        """Whether the engine has carried out all that it has taken up."""
        return not self._journalled

    def submit(self, command: Command) -> None:
        """Queue a command: it is carried out now or as soon as it can be."""
        if self._engine is None:
            self._new.append(command)
            return
        self._engine.take_up(command)
        if not self._engine.carry_out(command):
            self._journalled.append(command)

    def serve(self, engine: TakesCommands) -> None:
        """Hand over what waits, and all commands from now on."""
        self._engine = engine
        for command in self.take_new():
            self.submit(command)

    def try_again(self) -> None:
        """Carry out what waits and can be carried out by now."""
        for command in self.take_journalled():
            if self._engine is None or not self._engine.carry_out(command):
                self._journalled.append(command)

    def hold(self) -> None:
        """Let commands wait: there is no engine."""
        self._engine = None

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
