"""Commands on the whole run that no engine carries out: it journals them and says that they are."""

from __future__ import annotations

from tbtui.journal.commands import RUN, Command


def answered_outside(command: Command) -> str | None:
    """What comes of a command that `ControlledRun` carries out; None: the engine's own."""
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
