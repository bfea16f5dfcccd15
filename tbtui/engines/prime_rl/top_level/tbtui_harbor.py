"""Names tbtui's plugin for verifiers and Prime-RL: `id = "tbtui-harbor"`.

verifiers imports plugins by the name of a top-level module only.
"""

from tbtui.engines.prime_rl.plugin.harness import (
    HarborEnvironment,
    HarborHarness,
    HarborHarnessConfig,
)
from tbtui.engines.prime_rl.plugin.taskset import HarborTaskset, HarborTasksetConfig

__all__ = [
    "HarborEnvironment",
    "HarborHarness",
    "HarborHarnessConfig",
    "HarborTaskset",
    "HarborTasksetConfig",
]
