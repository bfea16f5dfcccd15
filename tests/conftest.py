"""Settings that all tests share."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests import session

# Under nohup it is ignored, by all that is started too; what it does is part of what is tested.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The tests start hundreds of processes: each would compile everything anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# As in the policy's own process: with few numbers, threads wait for each other more than they help.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Printed commands begin as tbtui was called, which is `uv run` or not.
os.environ["TBTUI_CALLED_AS"] = "tbtui"

# Harbor's LiteLLM would otherwise try the network three times at import.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

# What the hub could tell is no test's business, and without a network it takes a minute to say so.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# No deadline: a machine's pace is not a property of the code.
settings.register_profile(
    "tbtui", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tbtui")


SLOW_SEC = 2.0
"""A test that takes longer is to be marked slow."""


class FailuresAtOnce:
    """Names a failed test when it fails; pytest's own report of why follows at the end."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.write_line(f"failed: {report.nodeid}", red=True)


LONG = 80
"""Characters of a value that name its case."""


def pytest_make_parametrize_id(val: object) -> str | None:
    # Bytes may hold a time, as archives do; workers that collect in different seconds would then
    # have different tests, and none is run.
    if isinstance(val, bytes) and len(val) > LONG // 4:
        return f"{len(val)} bytes"
    if isinstance(val, str) and len(val) > LONG:
        return f"{val[:LONG]} and {len(val) - LONG} more"
    return None


def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(terminal, pytest.TerminalReporter):
        session.config.pluginmanager.register(FailuresAtOnce(terminal))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name tests that take long and are not marked slow, with their seconds, a line each.

    What a fixture takes counts for the test that is the first to need it, and is no test's own.
    """
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call" and "slow" not in report.keywords
    ]
    long = sorted((each for each in reports if each.duration > SLOW_SEC), key=lambda r: -r.duration)
    if long:
        terminalreporter.section(f"over {SLOW_SEC:g} seconds, and not marked slow")
    for report in long:
        terminalreporter.write_line(f"{report.duration:5.1f} s  {report.nodeid}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    _limit(item)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    _limit(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _limit(item: pytest.Item) -> None:
    """End this process, with all stacks, if the test does not end soon after its time is up.

    pytest-timeout raises an exception, which an event loop can catch, and gives up once a test has
    failed: a teardown that hangs after that would hold the session for ever.
    """
    marker = item.get_closest_marker("timeout")
    config = item.config
    timeout = marker.args[0] if marker else config.getoption("timeout") or config.getini("timeout")
    if timeout:  # 0 is none
        faulthandler.dump_traceback_later(float(timeout) + 60, exit=True, file=sys.__stderr__)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if sys.platform != "linux" and "linux" in item.keywords:
            item.add_marker(pytest.mark.skip("needs Linux"))


def pytest_xdist_auto_num_workers() -> int | None:
    """Half as many again as there are cores, for most tests wait; 8 at most, for some don't."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return min(8, max(2, (os.cpu_count() or 1) * 3 // 2))


def pytest_configure() -> None:
    """In every process of pytest: the controller of pytest-xdist, and each worker."""
    session.begin()
