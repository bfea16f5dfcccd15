"""The one queue of a run's commands."""

from __future__ import annotations

from tbtui.engines.command_queue import CommandQueue
from tbtui.journal.commands import RUN, Command


class Engine:
    """Carries out what is about the run, and about trials once there are some."""

    def __init__(self) -> None:
        self.journalled: list[str] = []
        self.done: list[str] = []
        self.trials = False

    def take_up(self, command: Command) -> None:
        self.journalled.append(command.id)

    def carry_out(self, command: Command) -> bool:
        ready = self.trials or command.target == RUN
        if ready:
            self.done.append(command.id)
        return ready


def of_run(id: str) -> Command:
    return Command("pause", RUN, "ada", id=id)


def of_trial(id: str) -> Command:
    return Command("pause", "copy-1-1", "ada", id=id)


def test_commands_wait_for_the_engine_and_then_for_the_trials() -> None:
    queue, engine = CommandQueue(), Engine()
    for command in (of_trial("a"), of_run("b"), of_trial("c")):
        queue.submit(command)
    assert queue.up_to_date
    queue.serve(engine)
    assert (engine.journalled, engine.done) == (["a", "b", "c"], ["b"])
    assert not queue.up_to_date
    queue.submit(of_run("d"))
    engine.trials = True
    queue.try_again()
    assert engine.done == ["b", "d", "a", "c"]
    assert engine.journalled == ["a", "b", "c", "d"]
    assert queue.up_to_date


def test_between_two_engines_commands_wait_for_the_next() -> None:
    queue, first, second = CommandQueue(), Engine(), Engine()
    queue.serve(first)
    queue.submit(of_trial("a"))
    # The first one answers what it has journalled and will not carry out.
    assert [each.id for each in queue.take_journalled()] == ["a"]
    queue.hold()
    queue.submit(of_run("b"))
    assert first.done == []
    queue.serve(second)
    assert (second.journalled, second.done) == (["b"], ["b"])
    queue.hold()
    queue.submit(of_run("c"))
    assert [each.id for each in queue.take_new()] == ["c"]
