"""A rollout worker with little patience, so that what hangs is given up within seconds."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import sys
from collections.abc import Sequence

from tbtui.rollout.light_harbor import litellm_deferred
from tbtui.rollout.worker import RunTrial, serve


def main(argv: Sequence[str]) -> None:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    logging.basicConfig(level=logging.INFO)
    with litellm_deferred():
        from tbtui.rollout.supervision import Patience
        from tbtui.rollout.trial import run_trial

    patience = Patience(
        grace_sec=5.0, handling_sec=8.0, teardown_sec=5.0, cancel_sec=3.0, attempts=2, tick_sec=0.2
    )
    asyncio.run(_serve_and_leave(argv, functools.partial(run_trial, patience=patience)))


async def _serve_and_leave(argv: Sequence[str], run_trial: RunTrial) -> None:
    await serve(argv, run_trial)
    logging.shutdown()
    os._exit(0)  # ending the loop would wait for trials that were left behind


if __name__ == "__main__":
    main(sys.argv)
