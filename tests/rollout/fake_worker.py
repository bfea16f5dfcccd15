"""A rollout worker with everything but Harbor: its trials do what their model name says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time

from tbtui.chat import Message
from tbtui.journal.events import PhaseSeconds
from tbtui.rollout.link import TrialLink
from tbtui.rollout.messages import FinishReason, TrialFacts
from tbtui.rollout.worker import serve_and_leave


async def run_trial(link: TrialLink) -> TrialFacts:
    finish: FinishReason = "completed"
    match link.spec.model_name:
        case "instant":
            pass
        case "ask":
            question = Message("user", link.spec.trial)
            completion = await link.sample((question,), turn=1, purpose="turn")
            return facts("completed", completion.text)
        case "wait":
            await link.control.stopping.wait()
            finish = "stopped"
        case "leave behind":
            link.left_behind.add(asyncio.create_task(deaf()))
            finish = "sandbox_lost"
        case "hang":
            time.sleep(3600)  # noqa: ASYNC251  a stuck event loop is the point
        case "crash":
            os._exit(3)
        case "bug":
            raise ZeroDivisionError("a mistake of ours")
    return facts(finish)


async def deaf() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


def facts(finish: FinishReason, output: str = "") -> TrialFacts:
    return TrialFacts(finish, 1, None, None, None, None, None, PhaseSeconds(), output)


if __name__ == "__main__":
    asyncio.run(serve_and_leave(sys.argv, run_trial))
