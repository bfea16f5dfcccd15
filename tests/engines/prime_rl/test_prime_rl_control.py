"""Commands to a run of Prime-RL's, from `submit` to what the journal and the screen say."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tbtui.engines.prime_rl import control
from tbtui.engines.prime_rl.control import PrimeRlControl
from tbtui.engines.prime_rl.plugin.files import FILE_NAME
from tbtui.engines.prime_rl.watch import run as watch_run
from tbtui.engines.prime_rl.watch.recorder import TraceRecorder
from tbtui.engines.prime_rl.watch.run import follow
from tbtui.journal.commands import RUN
from tbtui.journal.events import TrialFinished
from tests.waiting import until

from .hosted_run import HostedRun
from .pausable_server import PausableServer, pausable
from .recorded_run import RecordedRun
from .steered import Steered
from .watching import Watching

TRACE = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def steered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Steered:
    monkeypatch.setattr(watch_run, "POLL_SEC", 0.02)
    return Steered(tmp_path)


@pytest_asyncio.fixture
async def live(steered: Steered) -> AsyncIterator[HostedRun]:
    """A trial that is running, as far as its log says."""
    trial = HostedRun(steered.trials_dir, TRACE)
    trial.queued()
    trial.turn(1)
    async with steered.followed():
        await steered.seen("trial_queued", trial=trial.name)
        yield trial


async def test_the_run_is_paused_and_goes_on(steered: Steered, live: HostedRun) -> None:
    pause = await steered.ask("pause")
    ok, said = await steered.answer(pause)
    assert ok
    assert said == "no new trial starts; each of 1 live trials stops at the end of its turn"
    assert steered.state().paused
    assert steered.passed_on() == [("pause", RUN)]
    resume = await steered.ask("resume")
    assert await steered.answer(resume) == (True, "the run goes on")
    assert not steered.state().paused
    assert steered.kinds().count("command_issued") == 2


async def test_what_the_trial_answers_is_the_answer(steered: Steered, live: HostedRun) -> None:
    pause = await steered.ask("pause", live.name)
    await steered.seen("command_issued", command=pause.id)
    assert steered.state().trials[live.name].pending == "pause"
    live.takes_up(pause)
    live.answers(pause, True, "paused, it says")
    assert await steered.answer(pause) == (True, "paused, it says")
    assert steered.kinds().count("command_issued") == steered.kinds().count("command_done") == 1


async def test_a_trial_that_nobody_runs(
    steered: Steered, live: HostedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "ANSWER_SEC", 0.3)
    command = await steered.ask("freeze", "copy-file__gone")
    ok, said = await steered.answer(command)
    text = "no environment server of tbtui's plugin runs copy-file__gone: nothing to freeze"
    assert (ok, said) == (False, text)


async def test_commands_that_come_early_wait(steered: Steered) -> None:
    pause = await steered.ask("pause")
    assert steered.passed_on() == []
    async with steered.followed():
        ok, said = await steered.answer(pause)
    assert (ok, said) == (True, "no new trial starts; none is live")


async def test_no_step_of_it_waits_for_a_review(steered: Steered) -> None:
    async with steered.followed():
        ok, said = await steered.answer(await steered.ask("accept"))
    assert (ok, said) == (
        False,
        "Prime-RL trains a batch as soon as it is complete: no step waits to be accepted",
    )


async def test_lines_written_by_hand_are_journalled_once(steered: Steered, live: HostedRun) -> None:
    file = steered.trials_dir / FILE_NAME
    file.write_text('{"verb": "pause", "target": "run"}\n{"verb": "retry", "target": "run"}\n')
    done = await steered.seen("command_done", ok=False)
    assert done.result == "retry needs a trial; to end the run, quit"
    assert steered.state().paused
    assert steered.kinds().count("command_issued") == 2


async def test_a_pause_outlasts_the_watcher(steered: Steered) -> None:
    async with steered.followed():
        await steered.answer(await steered.ask("pause"))
    async with steered.followed():
        resume = await steered.ask("resume")
        await steered.answer(resume)
    kinds = steered.kinds()
    assert (kinds.count("run_paused"), kinds.count("run_resumed")) == (1, 1)
    assert kinds.count("command_issued") == kinds.count("command_done") == 2


async def test_a_control_file_that_cannot_be_written(steered: Steered) -> None:
    steered.trials_dir.write_text("no directory")
    async with steered.followed():
        pause = await steered.ask("pause")
        ok, said = await steered.answer(pause)
    assert not ok
    assert said == f"{steered.trials_dir}: File exists"


async def test_other_harnesses_cannot_be_paused(steered: Steered) -> None:
    steered.run.arrived(steered.run.episode("another", 1), 1)
    async with steered.followed():
        await steered.seen("trial_finished")
        pause = await steered.ask("pause")
        ok, said = await steered.answer(pause)
    assert not ok
    assert said.startswith("no trial runs in tbtui's plugin")
    assert not steered.state().paused


async def test_cancelled_with_the_run_its_trials_end(steered: Steered) -> None:
    trial = HostedRun(steered.trials_dir, TRACE)
    trial.queued()
    with TraceRecorder(steered.prepared.directory, continues=False) as recorder:
        following = asyncio.create_task(
            follow(steered.prepared, recorder, steered.control, ends_it=True)
        )
        await steered.seen("trial_queued")
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    (finished,) = [event for event in steered.events() if isinstance(event, TrialFinished)]
    assert (finished.outcome, finished.reason) == ("cancelled", "the run was ended")


# Freezing the inference servers


@pytest.fixture
def servers() -> Iterator[tuple[PausableServer, PausableServer]]:
    with pausable(PausableServer()) as first, pausable(PausableServer()) as second:
        yield first, second


async def frozen(steered: Steered, *servers: PausableServer) -> tuple[bool, str]:
    steered.control = PrimeRlControl(steered.trials_dir, [server.url for server in servers])
    async with steered.followed():
        freeze = await steered.ask("freeze")
        return await steered.answer(freeze)


async def test_freeze_holds_every_server_and_resume_lets_them_go(
    steered: Steered, servers: tuple[PausableServer, PausableServer]
) -> None:
    ok, said = await frozen(steered, *servers)
    assert ok
    assert "keeps its requests" in said
    assert "time limits of verifiers' own run on" in said
    assert "no /is_paused" not in said
    assert all(server.paused for server in servers)
    assert servers[0].asked == ["/pause?mode=keep&clear_cache=false", "/is_paused"]
    assert steered.passed_on() == [("freeze", RUN)]
    async with steered.followed():  # another process would know that they are frozen, too
        assert (await steered.answer(await steered.ask("resume")))[0]
    assert not any(server.paused for server in servers)
    assert steered.passed_on()[-1] == ("resume", RUN)


async def test_resume_asks_no_server_that_was_not_frozen(
    steered: Steered, servers: tuple[PausableServer, PausableServer]
) -> None:
    steered.control = PrimeRlControl(steered.trials_dir, [servers[0].url])
    async with steered.followed():
        await steered.answer(await steered.ask("pause"))
        await steered.answer(await steered.ask("resume"))
    assert servers[0].asked == []


async def slowly_paused(steered: Steered, server: PausableServer) -> None:
    """Returns when it is paused and has not said so."""
    await steered.ask("freeze")
    await until(lambda: server.paused)


async def test_a_resume_that_waits_for_a_freeze_lets_the_servers_go(steered: Steered) -> None:
    standing = threading.Event()
    with pausable(PausableServer(standing=standing)) as server:
        steered.control = PrimeRlControl(steered.trials_dir, [server.url])
        async with steered.followed():
            await slowly_paused(steered, server)
            resume = await steered.ask("resume")
            standing.set()
            assert await steered.answer(resume) == (True, "the run goes on")
        assert not server.paused
    assert steered.passed_on() == [("freeze", RUN), ("resume", RUN)]


async def test_a_freeze_that_its_watcher_did_not_outlive_can_be_resumed(steered: Steered) -> None:
    standing = threading.Event()
    with pausable(PausableServer(standing=standing)) as server:
        steered.control = PrimeRlControl(steered.trials_dir, [server.url])
        async with steered.followed():
            await slowly_paused(steered, server)
        standing.set()
        async with steered.followed():
            assert (await steered.answer(await steered.ask("resume")))[0]
        assert not server.paused


async def test_a_freeze_that_can_be_neither_passed_on_nor_undone(steered: Steered) -> None:
    steered.trials_dir.write_text("no directory")
    with pausable(PausableServer(broken=frozenset({"/resume"}))) as server:
        ok, said = await frozen(steered, server)
    assert not ok
    assert f"{steered.trials_dir}: File exists; and the servers stand still: " in said
    assert "HTTP 500" in said


@pytest.mark.parametrize(
    ("server", "because"),
    [
        (PausableServer(missing=frozenset({"/pause"})), "start vLLM with VLLM_SERVER_DEV_MODE=1"),
        (PausableServer(broken=frozenset({"/pause"})), 'HTTP 500 {"error": "out of order"}'),
        (PausableServer(deaf=True), "took /pause and says that it isn't paused"),
    ],
)
async def test_a_server_that_cannot_be_frozen(
    steered: Steered,
    servers: tuple[PausableServer, PausableServer],
    server: PausableServer,
    because: str,
) -> None:
    with pausable(server):
        ok, said = await frozen(steered, servers[0], server)
    assert not ok
    assert because in said
    assert not servers[0].paused  # the other one goes on
    assert steered.passed_on() == []
    assert not steered.state().paused


async def test_a_server_that_is_away(steered: Steered) -> None:
    ok, said = await frozen(steered, PausableServer(url="http://127.0.0.1:9"))
    assert not ok
    assert said.startswith("http://127.0.0.1:9/pause: ")


async def test_a_server_without_is_paused_is_frozen_unchecked(steered: Steered) -> None:
    with pausable(PausableServer(missing=frozenset({"/is_paused"}))) as server:
        ok, said = await frozen(steered, server)
        assert ok
        assert server.paused
    assert said.endswith("(it has no /is_paused to check that with)")


# Why nothing goes forward


def stalls(watching: Watching) -> list[str]:
    return [note.text for note in watching.state().notes if note.text.startswith("no progress")]


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    run = RecordedRun(tmp_path / "tb")
    run.launch()
    run.ready()
    watching = Watching(run, tmp_path / "journal", trials_dir=tmp_path / "trials_dir")
    yield watching
    watching.stop()


@pytest.mark.parametrize(
    ("ago", "times"), [(30, (228, 230, 229)), (-3600, (0, 0, 0))], ids=["", "clock was set back"]
)
def test_live_trials_say_what_they_wait_for(
    watching: Watching, tmp_path: Path, ago: int, times: tuple[int, ...]
) -> None:
    for trace in ("a" * 32, "b" * 32, "c" * 32):
        trial = HostedRun(tmp_path / "trials_dir", trace)
        trial.now = watching.now - ago
        trial.queued()
        if trace[0] != "a":
            trial.model()
        if trace[0] == "c":
            trial.paused()
    watching.read()
    watching.now += 200
    watching.read()
    assert stalls(watching)[0].endswith(
        "/logs/attempt_1; live trials:"
        " 1 paused (for up to {} s), 1 queued (for up to {} s), 1 waiting for the model"
        " (for up to {} s)".format(*times)
    )


def test_trials_that_are_all_paused_say_so(watching: Watching, tmp_path: Path) -> None:
    trial = HostedRun(tmp_path / "trials_dir", TRACE)
    trial.queued()
    trial.model()
    trial.paused()
    trial.now = watching.now
    watching.read()
    watching.now += 200
    watching.read()
    assert " s: all trials that have begun are held: 1 paused" in stalls(watching)[0]


def test_a_paused_run_says_who_paused_it(watching: Watching, tmp_path: Path) -> None:
    control = tmp_path / "trials_dir" / FILE_NAME
    control.parent.mkdir()
    control.write_text('{"verb": "pause", "target": "run", "actor": "ada"}\n')
    watching.read()
    watching.restart()
    watching.read()
    watching.now += 200
    watching.read()
    assert stalls(watching)[0].endswith(" s: the run is paused by ada: resume it")
