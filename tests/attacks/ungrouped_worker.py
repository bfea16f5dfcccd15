"""A rollout worker on a machine without control groups."""

from __future__ import annotations

import sys
from unittest.mock import patch

from tbtui.rollout import worker
from tbtui.rollout.environments import box_start, cgroups

if __name__ == "__main__":
    nothing = cgroups.CgroupHost("none", {})
    with (
        patch.object(box_start, "find_cgroups", lambda: nothing),
        patch.object(cgroups, "find_cgroups", lambda: nothing),
    ):
        worker.main(sys.argv)
