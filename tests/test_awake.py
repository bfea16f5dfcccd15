"""A clock on which time that nothing ran in never passed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tbtui.awake import ASLEEP_SEC, TICK_SEC, AwakeClock


class Clocks:
    """The machine's."""

    def __init__(self) -> None:
        self.monotonic, self.boottime, self.worked = 1000.0, 5000.0, 7.0

    def run(self, seconds: float, *, suspended: bool = False) -> None:
        self.boottime += seconds
        if not suspended:
            self.monotonic += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def clock(clocks: Clocks) -> AwakeClock:
    return AwakeClock(lambda: clocks.monotonic, lambda: clocks.boottime, lambda: clocks.worked)


def ticks(clock: AwakeClock, clocks: Clocks, count: int) -> None:
    for _ in range(count):
        clocks.run(TICK_SEC)
        clock.time()


def test_a_stopped_process_has_no_time(clock: AwakeClock, clocks: Clocks) -> None:
    """The monotonic clock runs on while a process is stopped, or its virtual machine paused."""
    began = clock.time()
    ticks(clock, clocks, 10)
    clocks.run(3600)
    ticks(clock, clocks, 10)
    assert clock.time() - began == pytest.approx(20 * TICK_SEC, abs=TICK_SEC)
    assert clock.asleep() == pytest.approx(3600, abs=1)


def test_a_suspended_machine_has_no_time(clock: AwakeClock, clocks: Clocks) -> None:
    """The monotonic clock stands still by itself; nothing is left out twice."""
    began = clock.time()
    ticks(clock, clocks, 10)
    clocks.run(8 * 3600, suspended=True)
    ticks(clock, clocks, 10)
    assert clock.time() - began == pytest.approx(20 * TICK_SEC)
    assert clock.asleep() == pytest.approx(8 * 3600)
    assert clock.asleep() == pytest.approx(8 * 3600)


def test_a_busy_machine_is_not_asleep(clock: AwakeClock, clocks: Clocks) -> None:
    began = clock.time()
    for _ in range(10):
        clocks.run(0.9 * ASLEEP_SEC)
        clock.time()
    assert clock.time() - began == pytest.approx(9 * ASLEEP_SEC)
    assert clock.asleep() == 0


def test_a_loop_that_computes_is_not_asleep(clock: AwakeClock, clocks: Clocks) -> None:
    began = clock.time()
    clock.tick()
    clocks.worked += 60
    clocks.run(150)  # a loaded machine
    assert clock.time() - began == 150
    assert clock.asleep() == 0
    clock.tick()
    clocks.run(150)
    assert clock.asleep() == 150


STOPPED = textwrap.dedent("""
    import asyncio, os, signal, sys, time
    from tbtui.awake import TICK_SEC, AwakeLoop

    async def main():
        loop = asyncio.get_running_loop()
        while time.process_time() < 3:  # what it has done before the gap is no work in it
            pass
        await asyncio.sleep(2 * TICK_SEC)
        began = loop.time()
        print("ready", flush=True)
        try:
            async with asyncio.timeout(4.0):
                await asyncio.to_thread(sys.stdin.readline)
        except TimeoutError:
            print("timed out")
            os._exit(1)
        print("in time", loop.clock.asleep() > 5.0, loop.time() - began < 4.0, flush=True)

    asyncio.run(main(), loop_factory=AwakeLoop)
""")


@pytest.mark.slow
async def test_a_stopped_processs_time_limits_stand_still() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STOPPED), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert await process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGSTOP)
    await asyncio.sleep(7.0)  # longer than its limit
    os.kill(process.pid, signal.SIGCONT)
    process.stdin.write(b"go on\n")
    assert (await process.communicate())[0] == b"in time True True\n"
