"""What the engine does about an alarm, beside journalling it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

import pytest

from tbtui.engines.grpo.failures import HaltError
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    AlarmRaised,
    EvalFinished,
    RunPaused,
    RunPhaseChanged,
    StepFinished,
    StepStarted,
)

from .conftest import Bench, until
from .test_engine import by_index


def after_step_1(
    action: Literal["warn", "pause", "halt"],
) -> Callable[[StepFinished | EvalFinished], Sequence[AlarmRaised]]:
    def watch(event: StepFinished | EvalFinished) -> Sequence[AlarmRaised]:
        if not (isinstance(event, StepFinished) and event.step == 1):
            return ()
        return (
            AlarmRaised(
                alarm="no_signal", step=1, text="nothing to learn", numbers={}, action=action
            ),
        )

    return watch


async def test_a_warning_lets_the_run_go_on(bench: Bench) -> None:
    bench.script, bench.watch = by_index, after_step_1("warn")
    await bench.engine(max_steps=2, eval_every=0).run()
    assert [alarm.alarm for alarm in bench.events(AlarmRaised)] == ["no_signal"]
    assert len(bench.events(StepFinished)) == 2
    assert not bench.events(RunPaused)


async def test_an_alarm_may_pause_the_run(bench: Bench) -> None:
    bench.script, bench.watch = by_index, after_step_1("pause")
    engine = bench.engine(max_steps=2, eval_every=0)
    running = asyncio.create_task(engine.run())
    await until(lambda: bench.events(RunPaused))
    await asyncio.sleep(0.1)
    assert [event.step for event in bench.events(StepStarted)] == [1]
    # Saved or not, it waits for nothing else than to be resumed.
    await until(lambda: bench.events(RunPhaseChanged)[-1].phase == "sampling")
    engine.submit(Command("resume", RUN, actor="ann"))
    await running
    assert [event.step for event in bench.events(StepFinished)] == [1, 2]


async def test_an_alarm_may_end_the_run(bench: Bench) -> None:
    bench.script, bench.watch = by_index, after_step_1("halt")
    with pytest.raises(HaltError, match=r"nothing to learn \(on_alarm\.no_signal=halt\)"):
        await bench.engine(max_steps=3, eval_every=0).run()
    assert [event.step for event in bench.events(StepFinished)] == [1]
