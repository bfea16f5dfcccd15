"""Limits from which on training looks wrong: alarms and the diagnosis share them.

"Measured" is the embedded policy on the starter tasks; `algorithm/alarms.py` has what is compared.
"""

from __future__ import annotations

NO_SURPRISE = 0.01
"""Nats per token below which nothing is left to explore: tokens of .99 and more. Healthy runs,
measured, end at .05 to .1; the end of learning comes with the end of entropy (Cui et al. 2025,
arXiv 2505.22617)."""

MISMATCH_KL = 0.01
"""Nats per token between sampler and trainer with the same weights: training is stable below it
(Tinker's documentation). The embedded policy's is 1e-12."""
MISMATCH_KL_STALE = 0.1
"""The same where the sampler's weights are older: well outside PPO's usual .01 to .05 a step."""
