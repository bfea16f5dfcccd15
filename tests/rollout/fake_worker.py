"""A rollout worker with everything but Harbor: its trials do what their model name says."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from tbtui.journal.events import PhaseSeconds
from tbtui.rollout.link import TrialLink
from tbtui.rollout.messages import FinishReason, TrialFacts
from tbtui.rollout.worker import serve


async def run_trial(link: TrialLink) -> TrialFacts:
    finish: FinishReason = "completed"
    match link.spec.model_name:
        case "instant":
            pass
        case "ask":
            completion = await link.sample([("user", link.spec.trial)], turn=1, purpose="turn")
            return facts("completed", completion.text)
        case "wait":
            await link.control.stopping.wait()
            finish = "stopped"
        case "ask, then boundary":
            await link.sample([], turn=1, purpose="turn")
            await link.boundary()
        case "hang":
            time.sleep(3600)  # noqa: ASYNC251  a stuck event loop is the point
        case "crash":
            os._exit(3)
        case "bug":
            raise ZeroDivisionError("a mistake of ours")
    return facts(finish)


def facts(finish: FinishReason, output: str = "") -> TrialFacts:
    return TrialFacts(finish, 1, None, None, None, None, None, PhaseSeconds(), output)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv, run_trial))
