"""The name by which verifiers and Prime-RL load tbtui's plugin: `id = "tbtui-harbor"`.

verifiers imports plugins by the name of a top-level module only.
"""

from tbtui.engines.prime_rl.plugin.environment import HarborEnvironment
from tbtui.engines.prime_rl.plugin.harness import HarborHarness, HarborHarnessConfig
from tbtui.engines.prime_rl.plugin.taskset import HarborTaskset, HarborTasksetConfig

__all__ = [
    "HarborEnvironment",
    "HarborHarness",
    "HarborHarnessConfig",
    "HarborTaskset",
    "HarborTasksetConfig",
]
