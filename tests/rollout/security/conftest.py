"""Where this room's helpers lie: the scripted policy, and running as an ordinary user."""

from __future__ import annotations

import sys
from pathlib import Path

_ROLLOUT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(_ROLLOUT), str(_ROLLOUT / "environments")]
