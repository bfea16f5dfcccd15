"""The end of an agent's run, whichever agent it is: what is looked at before a verifier may judge.

Harbor verifies where the agent's `run` returns, and does not where it raises.
"""

from __future__ import annotations

import asyncio
import logging

from harbor.environments.base import BaseEnvironment

from tbtui.rollout.budget import MachineStarvedError
from tbtui.rollout.environments.base import NoticesLoss, SandboxLostError
from tbtui.rollout.link import TrialLink

PROBE_SEC = 10
"""A sandbox that takes longer to run `true` does not answer."""

_log = logging.getLogger(__name__)


class PolicyFailedError(Exception):
    """The policy gave no completion; the message is its reason."""


async def out_of_time(link: TrialLink, environment: BaseEnvironment) -> None:
    """Look whose doing it is that the agent was cut off: by its time, or by a person.

    Raises:
        PolicyFailedError: the policy did not answer in time.
        SandboxLostError: the sandbox does not answer, or was kept from the CPU.
    """
    if link.control.ending is None and (reason := link.silence):
        link.notes.end("too_slow", reason)
        raise PolicyFailedError(reason)
    await link.control.detach()
    await require_not_starved(link)
    await require_answers(link, environment)


async def require_not_starved(link: TrialLink) -> None:
    """Raise `MachineStarvedError` where the machine took its time, and no person ended it."""
    if link.control.ending is not None or link.starvation is None:
        return
    try:
        await link.starvation.check()
    except MachineStarvedError:
        link.notes.end("sandbox_lost")
        raise


async def require_answers(link: TrialLink, environment: BaseEnvironment) -> None:
    """Raise `SandboxLostError` where the sandbox does not answer."""
    if not await answers(environment):
        link.notes.end("sandbox_lost")
        raise SandboxLostError("the sandbox does not answer any more")


async def answers(environment: BaseEnvironment) -> bool:
    """Whether the sandbox still answers.

    Where it says so itself when it is gone, a command that fails is an answer: an agent that has
    removed the shell, or its working directory, has not lost its sandbox.
    """
    probe = asyncio.ensure_future(environment.exec("true", timeout_sec=PROBE_SEC))
    # Not `asyncio.timeout`: a call that hangs may not even react to being cancelled.
    done, _ = await asyncio.wait((probe,), timeout=PROBE_SEC)
    if not done:
        probe.cancel()
        _log.warning("%s: no answer within %d s", environment.session_id, PROBE_SEC)
        return False
    error = None if probe.cancelled() else probe.exception()
    if error is not None or probe.cancelled():
        _log.warning("%s: the sandbox does not answer: %r", environment.session_id, error)
        return False
    return probe.result().return_code == 0 or isinstance(environment, NoticesLoss)
