"""Asks the policy for completions: again after a failure, and through its server's outages.

A completion that fails is asked for again, with the same seed, before its trial is given up. While
the server says that it is paused or can't be reached, or fails every request, no failure counts and
no trial's time runs: one request at a time tries whether it is back, ever less often. One that has
failed itself tries with a short prompt of ours first: a server that answers that, with whatever it
says, is up, and the failures are those of the requests.

A server that is slow is up, too. What counts as a sign of work is progress, where the policy shows
any, and else an answer to any request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tbtui.engines.grpo.failures import retry_wait
from tbtui.engines.grpo.pausing import OutageCause, Outages
from tbtui.invocation import to_type
from tbtui.journal.events import CompletionRetried
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import (
    MODEL_ITSELF,
    ContextOverflowError,
    Message,
    Policy,
    PolicyBusyError,
    PolicyDeniedError,
    PolicyError,
    PolicyLostError,
    PolicyRefusedError,
    PolicySlowError,
    PolicyStatus,
    Sample,
    SampleRequest,
)
from tbtui.rollout.budget import Budget
from tbtui.server_status import DOWN, ServerStatus

TRIES = 3
"""How often one completion is asked for before its trial is given up."""
_LOOK_SEC = 0.25
"""Between two looks at what the server says of itself, while there are requests."""
_TELL_SEC = 5.0
"""A shorter silence is not journalled."""
_FIRST_TRY_SEC, _LONGEST_TRY_SEC = 1.0, 30.0
_SILENT = 4
"""Failures in a row, of two places at least, after which the server counts as silent."""

_LARGEST_SHARE = 0.8
"""Share of a trial's budget that one completion may take: more is the policy's slowness, and not
the agent's."""
_LONGEST_RETRY_SEC = 60.0
"""A busy server that asks for a longer wait is asked again all the same."""
_PROBE = Message("user", "List the files of /tmp, please.")
_PROBE_TOKENS = 16

_log = logging.getLogger(__name__)

_STATES = {
    "paused_capacity": "is paused: no capacity",
    "paused_rate_limit": "is paused: rate limit",
    "paused_billing": "is paused: billing",
    "unreachable": "can't be reached",
}
_REMEDY = {
    "paused_billing": "settle it with the provider; the run then resumes automatically",
    "unreachable": "start it again, or repair the connection; the run then resumes automatically",
}


@dataclass(frozen=True, slots=True)
class Asker:
    """A trial's turn that asks for a completion."""

    trial: str
    place: str
    """In its group: the same for all attempts."""
    turn: int
    limit_sec: float
    """How long the policy may show no sign of work (`sample_timeout_sec`); a pause of its server
    doesn't count."""
    budget_sec: float
    """The trial's own (`trial_timeout_sec`, or the task's limit)."""
    delayed: Callable[[bool, float], None]
    """Called with True and the seconds waited when there can't be an answer now, with False when
    there can again."""


@dataclass(slots=True, eq=False)
class _Pending:
    asker: Asker
    since: float
    limits: tuple[Budget, ...] = ()
    """While it is asked: how long without a sign of work, and how long altogether."""
    heard: float = 0.0
    """When there was the last sign of work, by the first limit's clock."""
    at_work: bool = False
    """There was one since it was asked."""
    delayed: bool = False
    held: bool = False

    def hear(self) -> None:
        """The policy is at work: its silence begins anew."""
        self.at_work = True
        if self.limits:
            silence = self.limits[0]
            now = silence.active()
            silence.give_back(now - self.heard)
            self.heard = now

    def delay(self, delayed: bool, waited_sec: float = 0.0) -> None:
        if delayed != self.delayed:
            self.delayed = delayed
            self.asker.delayed(delayed, waited_sec)


class Completions:
    """Asks the policy for the completions of all trials of a session."""

    def __init__(
        self,
        policy: Policy,
        journal: JournalWriter,
        outages: Outages,
        retry_wait_sec: float,
        patience_sec: float,
    ) -> None:
        """
        Args:
            retry_wait_sec: before a failed completion is asked for again; doubles.
            patience_sec: after an outage of this long the run is paused.
        """
        self._policy = policy
        self._journal = journal
        self._outages = outages
        self.change(retry_wait_sec, patience_sec)
        self._retried = 0
        self._pending: set[_Pending] = set()
        self._watching: asyncio.Task[None] | None = None
        self._failed: list[str] = []
        """Places that got no answer since the last answer, in order."""
        self._why = ""
        self._silent = False
        self._down_since: float | None = None
        self._disproved: tuple[str, float] | None = None
        """What the server said of itself, and since when, while it answered all the same."""
        self._progress: int | None = None
        """What the policy showed last."""
        self._changed = asyncio.Event()
        self._trying = False
        self._next_try = 0.0
        self._try_wait = _FIRST_TRY_SEC
        outages.on_lift(self._lift)

    def change(self, retry_wait_sec: float, patience_sec: float) -> None:
        """Use other limits from now on."""
        self._retry_wait_sec = retry_wait_sec
        self._patience_sec = patience_sec

    @property
    def down(self) -> bool:
        """Whether the policy can't be asked now."""
        return self._down_since is not None

    def take_retried(self) -> int:
        """How often a completion was asked for again, since the last call."""
        retried, self._retried = self._retried, 0
        return retried

    async def draw(self, asker: Asker, request: SampleRequest, seed: int) -> Sample:
        """The completion that `request` asks for, whenever the policy can give it.

        `seed` names the waits between tries.

        Raises:
            PolicyLostError, PolicyRefusedError, ContextOverflowError: at once.
            PolicySlowError: it is at work, and not done in the time for one answer.
            PolicyError: it failed `TRIES` times while others were answered.
        """
        async with self._asking(asker) as pending:
            tries = 0
            failed = answers = False
            while True:
                trying = await self._turn_to_ask(pending)
                pending.since = _now()
                try:
                    answers = trying and failed and await self._answers(pending)
                    sample = await self._once(pending, request)
                except (PolicyLostError, PolicyDeniedError, ContextOverflowError):
                    raise
                except PolicyRefusedError:
                    self._answered(trying=trying)
                    raise
                except PolicyError as error:
                    if isinstance(error, PolicySlowError) and await self._works(pending):
                        raise
                    failed = True
                    self._failed_once(asker, str(error))
                    if self.down and not answers:
                        continue
                    tries += 1
                    if tries >= TRIES:
                        if answers or not await self._fails_everybody(pending):
                            raise
                        tries = 0
                        continue
                    await self._wait_to_retry(pending, tries, error, seed)
                else:
                    self._answered(trying=trying)
                    return sample
                finally:
                    if trying:
                        self._tried()

    async def _answers(self, pending: _Pending) -> bool:
        """Whether the policy answers a prompt that no server has a reason to refuse, or to fail at.

        Raises:
            PolicyError: it doesn't.
        """
        prompt = self._policy.renderer.render((_PROBE,))
        try:
            await self._once(pending, SampleRequest(prompt, _PROBE_TOKENS, MODEL_ITSELF, 0))
        except (PolicyLostError, PolicyDeniedError):
            raise
        except (PolicyRefusedError, ContextOverflowError):
            pass
        self._answered(trying=True)
        return True

    async def _fails_everybody(self, pending: _Pending) -> bool:
        """Whether the server's failures are no trial's own: it fails at our prompt, too.

        A request may have failed for good before any other has failed once.
        """
        if not self._failed or self._server() is None:
            return False
        try:
            await self._answers(pending)
        except (PolicyLostError, PolicyDeniedError):
            raise
        except PolicyError:
            self._silent = True
            self._look()
            return True
        return False

    async def _works(self, pending: _Pending) -> bool:
        """Whether a policy that has not been done in time is at work, and not lost."""
        if pending.at_work:
            return True
        pending.delay(True, _now() - pending.since)
        try:
            return await self._answers(pending)
        except (PolicyLostError, PolicyDeniedError):
            raise
        except PolicyError:
            return False

    async def _wait_to_retry(
        self, pending: _Pending, tries: int, error: PolicyError, seed: int
    ) -> None:
        self._retried += 1
        wait = retry_wait(self._retry_wait_sec, tries, seed)
        if isinstance(error, PolicyBusyError):
            wait = max(wait, min(error.retry_after_sec, _LONGEST_RETRY_SEC))
        asker = pending.asker
        self._journal.append(
            CompletionRetried(
                trial=asker.trial, turn=asker.turn, tries=tries, reason=str(error), wait_sec=wait
            )
        )
        pending.delay(True, _now() - pending.since)
        await asyncio.sleep(wait)
        if not self.down:
            pending.delay(False)

    async def _once(self, pending: _Pending, request: SampleRequest) -> Sample:
        asker = pending.asker
        whole_sec = _LARGEST_SHARE * asker.budget_sec
        silence, whole = pending.limits = (Budget(asker.limit_sec), Budget(whole_sec))
        pending.held = pending.at_work = False
        pending.heard = silence.active()
        self._hold(pending)
        try:
            async with whole.spending(), silence.spending():
                return await self._policy.sample(request)
        except TimeoutError as error:
            # Else the trial's budget would run out, and the policy's silence be scored as its own.
            address = self._policy.info.address
            server = "" if address is None else f" from {address}"
            if whole.spent:
                raise PolicySlowError(
                    f"no whole answer{server} within {whole_sec:g} s, {_LARGEST_SHARE:.0%} of the"
                    f" trial's {asker.budget_sec:g} s; trial_timeout_sec gives it more"
                ) from error
            raise PolicyError(
                f"no answer{server} within {asker.limit_sec:g} s (sample_timeout_sec)"
            ) from error
        finally:
            pending.limits = ()

    @contextlib.asynccontextmanager
    async def _asking(self, asker: Asker) -> AsyncIterator[_Pending]:
        pending = _Pending(asker, _now())
        self._pending.add(pending)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="the policy's state")
        try:
            yield pending
        finally:
            self._pending.discard(pending)
            if not self._pending and self._watching is not None:
                self._watching.cancel()
                self._up()  # no request is left that could find that out

    # The server's state

    async def _watch(self) -> None:
        while True:
            self._listen()
            self._look()
            await asyncio.sleep(_LOOK_SEC)

    def _status(self) -> PolicyStatus | None:
        try:
            return self._policy.status()
        except Exception:  # noqa: BLE001  the monitor says so; a completion needs no status
            _log.debug("the policy's status can't be had", exc_info=True)
            return None

    def _server(self) -> ServerStatus | None:
        status = self._status()
        return None if status is None else status.server

    def _listen(self) -> None:
        """Take up that the policy goes on with its work."""
        status = self._status()
        progress = None if status is None else status.progress
        if progress is not None and self._progress is not None and progress != self._progress:
            for pending in self._pending:
                pending.hear()
        self._progress = progress

    def _look(self) -> None:
        """Take up what the server says of itself, and what became of the latest requests."""
        server = self._server()
        state = server.state if server is not None else "unknown"
        self._silent = self._silent and server is not None
        disproved = server is not None and self._disproved == (state, server.since)
        if (state not in DOWN or disproved) and not self._silent:
            self._up()
            return
        now = _now()
        if self._down_since is None:
            waited = max((now - pending.since for pending in self._pending), default=0.0)
            since = time.time() - server.since if server is not None else 0.0
            self._down_since = now - (0.0 if self._silent else min(max(0.0, since), waited))
            self._try_wait, self._next_try = _FIRST_TRY_SEC, now
        lasted = now - self._down_since
        for pending in self._pending:
            waited = now - pending.since
            pending.delay(True, waited if self._silent else min(waited, lasted))
            self._hold(pending)
        self._outages.begin(
            "policy",
            self._cause(state, server.reason if server is not None else ""),
            # What a server says of itself is journalled as it is measured.
            tell=lasted >= (_TELL_SEC if self._silent else self._patience_sec),
            pause=lasted >= self._patience_sec,
        )

    def _cause(self, state: str, reason: str) -> OutageCause:
        name = f"the {self._policy.info.name} server"
        if state in _STATES:
            why = f" ({reason})" if reason else ""
            text = f"{name} {_STATES[state]}{why}"
        else:
            text = f"{name} completes no request ({self._why})"
        remedy = _REMEDY.get(state, "the run then resumes automatically")
        at_once = to_type("ctl", "run", "resume", self._journal.run.path)
        return OutageCause(text, f"{remedy} (`P`, or `{at_once}`, tries at once)")

    def _hold(self, pending: _Pending) -> None:
        """Stop a request's time-out while the server has paused its queue, not while it is gone."""
        server = self._server()
        paused = self.down and server is not None and server.state.startswith("paused")
        if not pending.limits or paused == pending.held:
            return
        pending.held = paused
        for limit in pending.limits:
            if paused:
                limit.hold()
            else:
                limit.release()

    def _failed_once(self, asker: Asker, why: str) -> None:
        self._why = why
        self._failed.append(asker.place)
        if len(self._failed) >= _SILENT and len(set(self._failed)) > 1:
            self._silent = True
        self._look()

    def _answered(self, *, trying: bool) -> None:
        self._failed.clear()
        self._silent = False
        for pending in self._pending:
            pending.hear()
        if trying and (server := self._server()) is not None:
            # What the server says is of another queue, or not true any more.
            self._disproved = server.state, server.since
        self._look()

    def _up(self) -> None:
        if self._down_since is None:
            return
        self._down_since = None
        for pending in self._pending:
            self._hold(pending)
            pending.delay(False)
        self._changed.set()
        self._outages.end("policy", f"the {self._policy.info.name} server is back")

    # Whose turn it is to try whether it is back

    async def _turn_to_ask(self, pending: _Pending) -> bool:
        """Wait until this request may be sent; True if it is the one that tries."""
        while self.down:
            if not self._trying and _now() >= self._next_try:
                self._trying = True
                return True
            self._changed.clear()
            left = max(0.0, self._next_try - _now()) if not self._trying else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return False

    def _tried(self) -> None:
        self._trying = False
        self._next_try = _now() + self._try_wait
        self._try_wait = min(2 * self._try_wait, _LONGEST_TRY_SEC)
        self._changed.set()

    def _lift(self) -> None:
        """Try the server at once, as a person asks, and start its waiting times anew."""
        if self._down_since is not None:
            self._down_since = _now()
            self._try_wait, self._next_try = _FIRST_TRY_SEC, 0.0
            self._changed.set()


def _now() -> float:
    return asyncio.get_running_loop().time()
