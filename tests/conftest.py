"""Settings that all tests share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# Under nohup it is ignored, by all that is started too; what it does is part of what is tested.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The tests start hundreds of processes: each would compile everything anew.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# As in the policy's own process: with few numbers, threads wait for each other more than they help.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Harbor's LiteLLM would otherwise try the network three times at import.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

# What the hub could tell is no test's business, and without a network it takes a minute to say so.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# No deadline: a machine's pace is not a property of the code.
settings.register_profile(
    "tbtui", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tbtui")


def pytest_xdist_auto_num_workers() -> int | None:
    """Half as many again as there are cores, for most tests wait; 8 at most, for some don't."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return min(8, max(2, (os.cpu_count() or 1) * 3 // 2))


@pytest.fixture(scope="session", autouse=True)
def state_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a person's runs have left in their state directory is nothing to a test, nor the
    other way round: which run directories are trusted, above all."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
