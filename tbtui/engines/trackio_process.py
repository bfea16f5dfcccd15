"""The process that Trackio runs in: JSON lines in, the first one about the run, then its rows."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Log rows until the parent closes its end; what Trackio prints goes to this process's log."""
    import trackio  # type: ignore[import-not-found,unused-ignore]

    opening = json.loads(sys.stdin.readline())
    trackio.init(
        project=opening["project"],
        name=opening["name"],
        config=opening["config"],
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    for line in sys.stdin:
        row = json.loads(line)
        trackio.log(row["metrics"], step=row["step"])
    trackio.finish()


if __name__ == "__main__":
    main()
