"""Settings that all tests share."""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

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
