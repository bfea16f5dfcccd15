"""What passes costs no trial: a policy's server that is paused or gone, a disk that refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tbtui.console.printing import Printer
from tbtui.engines.grpo.completions import TRIES
from tbtui.engines.grpo.engine import GrpoEngine
from tbtui.engines.grpo.failures import HaltError
from tbtui.engines.grpo.pausing import OutageCause, Outages
from tbtui.engines.grpo.storage_guard import StorageGuard, cause_in
from tbtui.journal.commands import RUN, Command
from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    AnyEvent,
    CompletionRetried,
    Noted,
    OutageBegan,
    OutageEnded,
    Outcome,
    RunPaused,
    RunResumed,
    StepFinished,
    TasksSetAside,
    TrialFinished,
    TrialRetried,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import (
    PolicyError,
    PolicyLostError,
    PolicyRefusedError,
    PolicyStatus,
    Sample,
    SampleRequest,
)
from tbtui.rollout.messages import TrialSpec
from tbtui.server_status import ServerState, ServerStatus
from tests.events import events_of
from tests.waiting import until

from .conftest import Bench
from .fakes import FakePool, RotePolicy, facts
from .test_policy_lost import Fate, FatedPolicy, night
from .test_resume import Whole, by_what_it_says, require_order, uninterrupted

CAUSE = OutageCause("the disk is full", "free some room")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


@dataclass
class Server:
    state: ServerState = "active"
    fails: str = ""
    since: float = field(default_factory=time.time)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while it answers."""

    def __post_init__(self) -> None:
        self.gone.set()


class ServedPolicy(RotePolicy):
    """On a server that says how it is."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()

    async def sample(self, request: SampleRequest) -> Sample:
        self.requests.append(request)
        await self.server.gone.wait()
        if self.server.fails:
            raise PolicyError(self.server.fails)
        return await super().sample(request)

    def status(self) -> PolicyStatus:
        server = ServerStatus(self.server.state, "why", self.server.since)
        return PolicyStatus(0, 0, len(self.requests), 0, (), "idle", server=server)


@pytest.fixture
def served(bench: Bench) -> ServedPolicy:
    policy = bench.policy = ServedPolicy()
    return policy


@contextlib.asynccontextmanager
async def running(engine: GrpoEngine) -> AsyncIterator[asyncio.Task[str]]:
    task = asyncio.create_task(engine.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, HaltError):
            await task


def outcomes(bench: Bench) -> set[Outcome]:
    return {event.outcome for event in bench.events(TrialFinished)}


def pauses(bench: Bench) -> list[str]:
    return [event.reason for event in bench.events(RunPaused)]


# What ended a run does not end the next


async def test_a_run_that_an_outage_has_ended_goes_on_once_that_is_over(tmp_path: Path) -> None:
    """Every trial's attempts are used up, and still `--resume` finds something to do."""
    full = True

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if full:
            return pool.end(spec, facts(None, "error", "No space left on device"), 0)
        return by_what_it_says(pool, spec)

    whole = Whole(
        RunDirectory.create(tmp_path / "run"),
        {"max_steps": 1, "eval_every": 0, "max_retries": 1, "halt_after": 0},
        script,
    )
    with pytest.raises(HaltError, match="none of"):
        await whole.begin()
    with pytest.raises(HaltError, match="none of"):
        await whole.resume()
    full = False
    await whole.resume()
    assert [event.step for event in whole.events(StepFinished)] == [1]
    require_order(whole)


# One completion that fails


async def test_a_failed_completion_is_asked_for_again(tmp_path: Path) -> None:
    """With the same seed: what is drawn is what would have been drawn."""
    whole, part = await uninterrupted(tmp_path / "calm", max_steps=1)
    shaken = Whole(RunDirectory.create(tmp_path / "shaken"), {"max_steps": 1}, by_what_it_says)
    seen: set[tuple[object, ...]] = set()

    class Shaky(type(part.policy)):  # type: ignore[misc]
        async def sample(self, request: SampleRequest) -> Sample:
            key = (request.seed, request.prompt_ids, self.published)
            if key not in seen:
                seen.add(key)
                raise PolicyError("503: try again")
            return await super().sample(request)

    import tests.engines.test_resume as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LearningPolicy", Shaky)
        again = await shaken.begin()
    assert again.policy.weights == part.policy.weights
    assert shaken.outcome() == whole.outcome()
    assert not shaken.events(TrialRetried)
    retried = shaken.events(CompletionRetried)
    assert len(retried) == len(seen)
    assert {(event.tries, event.reason) for event in retried} == {(1, "503: try again")}


async def test_one_that_keeps_failing_costs_its_trial(bench: Bench) -> None:
    bench.policy.fails = "500"
    with pytest.raises(HaltError, match="none of 2 trials could be run; the last one: provider_e"):
        await bench.engine(max_retries=0, halt_after=0, eval_every=0).run()
    assert outcomes(bench) == {Outcome.PROVIDER_ERROR}
    assert {event.reward for event in bench.events(TrialFinished)} == {None}
    retried = bench.events(CompletionRetried)
    assert {event.tries for event in retried} == set(range(1, TRIES))


# The policy's server


@pytest.mark.parametrize("state", ["paused_capacity", "paused_rate_limit", "paused_billing"])
async def test_a_paused_server_is_waited_for(
    bench: Bench, served: ServedPolicy, state: ServerState
) -> None:
    """Far longer than it may take for an answer; nothing fails, and the run goes on by itself."""
    engine = bench.engine(sample_timeout_sec=0.3, halt_after=1, eval_every=0)
    served.server.state = state
    served.server.gone.clear()
    async with running(engine) as task:
        await until(lambda: pauses(bench))
        assert "the rote server is paused" in pauses(bench)[0]
        assert "(why)" in pauses(bench)[0]
        assert {delay.delayed for delay in bench.pool.delays} == {True}
        assert not bench.events(TrialFinished)
        served.server.state = "active"
        served.server.gone.set()
        await task
    assert outcomes(bench) == {Outcome.SOLVED}
    assert not bench.events(TrialRetried)
    assert not bench.events(CompletionRetried)
    assert len(bench.events(RunResumed)) == 1
    assert [event.what for event in bench.events(OutageEnded)] <= ["policy"]


@pytest.mark.parametrize(("state", "at_once"), [("unreachable", 8), ("active", 8), ("active", 1)])
async def test_a_server_that_fails_everybody_costs_nobody(
    bench: Bench, served: ServedPolicy, state: ServerState, at_once: int
) -> None:
    """Whether it is known to be gone, or only fails, and however many ask it at once."""
    engine = bench.engine(
        sample_timeout_sec=0.3, halt_after=1, max_retries=0, eval_every=0, n_parallel_envs=at_once
    )
    served.server.state = state
    served.server.fails = "502: bad gateway"
    async with running(engine) as task:
        await until(lambda: pauses(bench))
        words = (
            "can't be reached"
            if state == "unreachable"
            else "completes no request (502: bad gateway)"
        )
        assert words in pauses(bench)[0]
        asked = len(served.requests)
        assert not bench.events(TrialFinished)
        served.server.state, served.server.fails = "active", ""
        await task
    assert outcomes(bench) == {Outcome.SOLVED}
    assert not bench.events(TrialRetried)
    assert asked < 40  # one of those that wait tries, ever less often


async def test_a_server_that_answers_is_not_paused_whatever_it_says(
    bench: Bench, served: ServedPolicy
) -> None:
    """It may speak of another queue."""
    served.server.state = "paused_capacity"
    await bench.engine(sample_timeout_sec=0.3, halt_after=1, eval_every=0).run()
    assert not pauses(bench)
    assert outcomes(bench) == {Outcome.SOLVED}


class ChoosyPolicy(ServedPolicy):
    """Answers a short question, and what it is asked by trials in its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.progress: int | None = None
        self.looks = 0

    def choosy(self) -> None:
        """What becomes of a trial's request that is not answered."""

    async def sample(self, request: SampleRequest) -> Sample:
        if b"turn" in bytes(request.prompt_ids):
            self.requests.append(request)
            self.choosy()
            await self.server.gone.wait()
        return await RotePolicy.sample(self, request)

    def status(self) -> PolicyStatus:
        self.looks += 1
        if self.progress is not None:
            self.progress += 1
        return PolicyStatus(0, 0, 0, 0, (), "idle", progress=self.progress)


async def test_a_server_that_fails_at_what_it_is_asked_and_answers_else_is_up(bench: Bench) -> None:
    """Whatever is left of a run fails: it ends."""

    class Failing(ChoosyPolicy):
        def choosy(self) -> None:
            raise PolicyError("500: no such layer")

    bench.policy = Failing()
    with pytest.raises(HaltError, match="no such layer"):
        await bench.engine(max_retries=0, halt_after=0, eval_every=0).run()
    assert outcomes(bench) == {Outcome.PROVIDER_ERROR}


@pytest.mark.parametrize("answered", [True, False])
async def test_a_prompt_that_is_refused_costs_its_trial_alone(bench: Bench, answered: bool) -> None:
    """It is not asked again, nor counted against the run."""
    refused = bench.policy = ChoosyPolicy()

    def choosy() -> None:
        if len(refused.requests) <= 3 or not answered:
            raise PolicyRefusedError("400: flagged")

    refused.choosy = choosy  # type: ignore[method-assign]
    running = bench.engine(halt_after=1, eval_every=0).run()
    if answered:
        await running
        assert outcomes(bench) == {Outcome.REFUSED, Outcome.SOLVED}
    else:
        with pytest.raises(HaltError, match=r"none of .*refused: 400: flagged"):
            await running
        assert outcomes(bench) == {Outcome.REFUSED}
    assert not bench.events(TrialRetried)
    assert not bench.events(CompletionRetried)


async def test_a_policy_that_shows_work_is_waited_for(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tbtui.engines.grpo.completions._LOOK_SEC", 0.02)
    slow = bench.policy = ChoosyPolicy()
    slow.progress = 0
    slow.server.gone.clear()
    async with running(bench.engine(sample_timeout_sec=0.3, halt_after=1, eval_every=0)) as task:
        await until(lambda: slow.looks > 100)  # several times as long as that
        slow.server.gone.set()
        await task
    assert outcomes(bench) == {Outcome.SOLVED}
    assert not bench.events(CompletionRetried)


async def test_a_policy_that_is_too_slow_for_a_trial_is_not_lost(bench: Bench) -> None:
    slow = bench.policy = ChoosyPolicy()
    slow.server.gone.clear()
    with pytest.raises(HaltError, match=r"too_slow: .*80% of the trial's 0.2 s; trial_timeout_sec"):
        await bench.engine(trial_timeout_sec=0.2, halt_after=1, eval_every=0).run()
    assert outcomes(bench) == {Outcome.TOO_SLOW}
    assert not bench.events(TrialRetried)
    assert not bench.events(OutageBegan)


async def test_who_resumes_has_the_server_tried_at_once(
    bench: Bench, served: ServedPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tbtui.engines.grpo.completions._FIRST_TRY_SEC", 1e6)
    monkeypatch.setattr("tbtui.engines.grpo.completions._LONGEST_TRY_SEC", 1e6)
    engine = bench.engine(sample_timeout_sec=0.3, halt_after=1, eval_every=0)
    served.server.state, served.server.fails = "unreachable", "refused"
    async with running(engine) as task:
        await until(lambda: pauses(bench))
        served.server.fails = ""  # and nothing but a request would find that out
        asked = len(served.requests)
        engine.queue.submit(Command("resume", RUN, "somebody"))
        await until(lambda: len(served.requests) > asked)
        served.server.state = "active"
        await task
    assert outcomes(bench) == {Outcome.SOLVED}


async def test_a_persons_own_pause_outlasts_the_outage(bench: Bench, served: ServedPolicy) -> None:
    engine = bench.engine(sample_timeout_sec=0.3, eval_every=0)
    served.server.state, served.server.fails = "unreachable", "refused"
    async with running(engine) as task:
        await until(lambda: pauses(bench))
        engine.queue.submit(Command("pause", RUN, "somebody"))
        served.server.state, served.server.fails = "active", ""
        await until(lambda: not bench.runner.completions.down)
        assert not bench.events(RunResumed)
        engine.queue.submit(Command("resume", RUN, "somebody"))
        await task
    assert outcomes(bench) == {Outcome.SOLVED}


# The run directory


async def test_what_fails_in_an_outage_is_nobodys_failure(bench: Bench) -> None:
    """It is not counted against the run, its task is not set aside, and it is tried again."""
    broken = 6

    def script(pool: FakePool, spec: TrialSpec) -> object:
        nonlocal broken
        if not broken:
            return None
        broken -= 1
        pool.runner.outages.begin("storage", CAUSE)
        asyncio.get_running_loop().call_later(0.2, pool.runner.outages.end, "storage")
        return pool.end(spec, facts(None, "not_run", "No space left on device"), 0)

    bench.script = script
    await bench.engine(
        max_retries=0, halt_after=1, eval_every=0, n_parallel_envs=8, max_unusable=0.01
    ).run()
    useful = [e for e in bench.events(TrialFinished) if e.outcome is Outcome.SOLVED]
    assert len(useful) == 4 + 4  # a step, and two evaluations
    assert not bench.events(TasksSetAside)
    assert set(pauses(bench)) == {str(CAUSE)}
    assert {event.what for event in bench.events(OutageBegan)} == {"storage"}


@contextlib.contextmanager
def tmpfs(where: Path, size: str) -> Iterator[Path]:
    where.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", where], check=True)
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", where], check=True)


def bind(what: Path, where: Path) -> None:
    subprocess.run(["mount", "--bind", what, where], check=True)


def unmount(where: Path) -> None:
    subprocess.run(["umount", "-l", where], check=True)


def fill(where: Path) -> Path:
    """Until nothing fits in."""
    filler = where / "filler"
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return filler


@pytest.mark.uid
@needs_root
def test_what_is_wrong_with_a_directory_is_said_with_a_way_on(tmp_path: Path) -> None:
    where = tmp_path / "disk"
    with tmpfs(where, "8m"):
        assert cause_in(where) is None
        fill(where)
        full = cause_in(where)
        assert full is not None
        assert f"{where} has 0.0 MB left" in full.text
        assert "free 0.2 MB there" in full.remedy
        assert "--resume" in full.remedy
        (where / "filler").unlink()
        subprocess.run(["mount", "-o", "remount,ro", where], check=True)
        read_only = cause_in(where)
        assert read_only is not None
        assert "is read-only" in read_only.text
        subprocess.run(["mount", "-o", "remount,rw", where], check=True)
        assert cause_in(where) is None
    gone = cause_in(where / "run")
    assert gone is not None
    assert "can't be reached" in gone.text


@contextlib.contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file may grow beyond that: what a quota does to an ordinary user."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def written(directory: RunDirectory) -> list[str]:
    return [event.text for event in events_of(directory, Noted)]


def append(journal: JournalWriter, count: int, begin: int = 0) -> None:
    for number in range(begin, begin + count):
        journal.append(Noted(level="info", text=f"{number} {'x' * 5000}"))


def test_a_journal_that_nothing_more_fits_into_loses_nothing(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    with JournalWriter(directory) as journal:
        blocked: list[str] = []
        journal.on_blocked = lambda: blocked.append(journal.blocked)
        with small_files(1 << 16):
            append(journal, 40)
            assert len(blocked) == 1
            assert not journal.flush()
            with journal.together():
                append(journal, 5, 40)
            assert journal.last_seq == 45
        assert len(written(directory)) < 40
        assert journal.flush()
        append(journal, 5, 45)
        assert not journal.blocked
    assert [int(text.split()[0]) for text in written(directory)] == list(range(50))


def test_without_somebody_to_flush_it_a_full_disk_ends_the_writing(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    with (
        JournalWriter(directory) as journal,
        small_files(1 << 16),
        pytest.raises(JournalError, match="can't write the journal"),
    ):
        append(journal, 40)


@pytest.mark.uid
def test_a_journal_that_can_not_be_read_for_a_while_is_followed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who prints it must not end the run that waits for its disk."""
    monkeypatch.setattr("tbtui.console.printing._AGAIN_SEC", 0.05)
    directory = RunDirectory.create(tmp_path / "run")
    complete = threading.Event()
    with JournalWriter(directory) as journal:
        append(journal, 1)
        hidden = directory.database.rename(tmp_path / "hidden")
        printer = Printer(
            directory, lambda: lambda entry: iter([entry.event.kind]), 0, detaches=False
        )
        following = threading.Thread(target=printer.follow, args=[complete])
        following.start()
        time.sleep(0.2)
        assert following.is_alive()
        hidden.rename(directory.database)
    complete.set()
    following.join()
    assert capsys.readouterr().out == "noted\n"


class Paused:
    """A run that outages steer."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.resumed = 0

    def pause_for_outage(self, reason: str) -> None:
        self.reasons.append(reason)

    def resume_after_outage(self) -> None:
        self.resumed += 1


@pytest.mark.uid
@pytest.mark.parametrize(
    ("spoil", "mend", "words"),
    [
        pytest.param(fill, lambda seen: (seen / "filler").unlink(), "left", id="full"),
        pytest.param(
            unmount,
            lambda seen: bind(seen.parent / "kept", seen),
            "can't be reached",
            id="gone",
        ),
    ],
)
@needs_root
async def test_a_directory_that_comes_back_has_its_whole_journal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], Any],
    mend: Callable[[Path], Any],
    words: str,
) -> None:
    monkeypatch.setattr("tbtui.engines.grpo.storage_guard.PERIOD_SEC", 0.2)
    kept, seen = tmp_path / "kept", tmp_path / "seen"
    seen.mkdir()
    with tmpfs(kept, "4m"):
        bind(kept, seen)
        try:
            directory = RunDirectory.create(seen / "run")
            with JournalWriter(directory) as journal:
                run, outages = Paused(), Outages(journal)
                outages.steer(run)
                guard = StorageGuard(directory.path, journal, outages)
                looking = asyncio.create_task(guard.run())
                append(journal, 10)
                spoil(seen)
                append(journal, 30, 10)
                assert await guard.check()
                assert words in run.reasons[0]
                append(journal, 10, 40)
                mend(seen)
                await until(lambda: run.resumed)
                append(journal, 10, 50)
                looking.cancel()
            events: list[AnyEvent] = [*events_of(directory, OutageBegan)]
            assert len(events) == 1
            texts = [text for text in written(directory) if "xx" in text]
            assert [int(text.split()[0]) for text in texts] == list(range(60))
        finally:
            unmount(seen)


# A server that is gone while the policy is trained, or made afresh


def says(monkeypatch: pytest.MonkeyPatch, fate: Fate, state: ServerState, until_made: int) -> None:
    """What the server says of itself until so many policies were made."""

    def status(self: FatedPolicy) -> PolicyStatus:
        now: ServerState = state if len(fate.made) < until_made else "active"
        server = ServerStatus(now, "why", time.time())
        return PolicyStatus(0, 0, 0, 0, (), "idle", server=server)

    monkeypatch.setattr(FatedPolicy, "status", status)


@pytest.mark.parametrize(
    ("state", "error"), [("unreachable", PolicyLostError), ("paused_billing", PolicyError)]
)
async def test_however_long_its_server_is_gone_the_run_goes_on_afterwards(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: ServerState,
    error: type[PolicyError],
) -> None:
    calm = night(tmp_path / "calm", Fate(), max_steps=2, save_every=1)
    await calm.run.run()
    starts = {("start", number) for number in range(2, 14)}
    fate = Fate(frozenset({("accumulate", 2), *starts}), error)
    long = night(tmp_path / "long", fate, policy_restarts=1, max_steps=2, save_every=1)
    says(monkeypatch, fate, state, until_made=14)
    end = await long.run.run()
    assert end.status == "finished", end
    assert len(long.waits) == 13
    assert max(long.waits) == 300
    assert long.whole.outcome() == calm.whole.outcome()
    assert long.weights == calm.weights


async def test_who_resumes_has_a_lost_policy_made_at_once(tmp_path: Path) -> None:
    async def wait_for_ever() -> None:
        lost.run.submit(Command("resume", RUN, "somebody"))
        await asyncio.Event().wait()

    fate = Fate(frozenset({("apply", 2)}))
    lost = night(tmp_path / "run", fate, while_waiting=wait_for_ever, max_steps=2)
    async with asyncio.timeout(60):
        assert (await lost.run.run()).status == "finished"
