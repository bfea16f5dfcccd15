"""What snapshots cost, how quickly forks start, how often recorded keys lead to the same screens.

    uv run python -m tests.benchmarks.snapshots [RUN...]

RUN: run directories whose trials are typed again, at most 200 in all.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import os
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from tbtui.engines.grpo.origins import ForkError, read_origin
from tbtui.journal.events import RunStarted, TrialQueued
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.rollout.environments.box_start import start_box
from tbtui.rollout.environments.limits import box_limits
from tbtui.rollout.environments.plan import plan_box
from tbtui.rollout.forking import ForkPoint, RecordedTurn, SnapshotPlan
from tbtui.rollout.light_harbor import litellm_deferred
from tbtui.rollout.link import TrialLink
from tbtui.rollout.messages import Completion, FromWorker, SampleWanted, TrialFacts, TrialSpec
from tbtui.rollout.recording import Recorder
from tests.rollout.scripted import DONE, SANDBOX, act
from tests.tasks import make_task

with litellm_deferred():
    from tbtui.rollout.trial import run_trial

TRIALS = 200
AT_ONCE = 4
WRITTEN_MB = 10
TURNS = 40
REPEATED = 15


async def snapshot_of_a_box(folder: Path) -> None:
    """A first snapshot of a box in which 10 MB were written, and one in which nothing changed."""
    limits = box_limits(
        memory_mb=512, storage_mb=512, cpus=1, processes=256, cpu_seconds=100, download_mb=10
    )
    box = await start_box(plan_box(limits, keeps_state=True), "benchmark")
    try:
        script = f"head -c {WRITTEN_MB}M /dev/urandom > /app/file"
        path = {"PATH": "/usr/bin:/bin"}
        await box.run(["/bin/bash", "-c", script], environment=path)
        for name, before in (("first", None), ("unchanged", folder / "first.index")):
            taken, copied, sizes = [], [], set()
            for _ in range(REPEATED):
                index, pack = folder / f"{name}.index", folder / f"{name}.pack"
                with index.open("w+b") as i, pack.open("w+b") as p:
                    previous = os.open(before, os.O_RDONLY) if before else None
                    began = time.perf_counter()
                    saved = await box.save(i.fileno(), p.fileno(), 1, 1 << 30, previous)
                    taken.append(time.perf_counter() - began)
                    if previous is not None:
                        os.close(previous)
                sizes.add(index.stat().st_size + pack.stat().st_size)
                began = time.perf_counter()
                (folder / "copy").write_bytes(pack.read_bytes())
                copied.append(time.perf_counter() - began)
            ms = [1000 * each for each in taken]
            print(
                f"snapshot, {name}: median {statistics.median(ms):.1f} ms, least {min(ms):.1f} ms;"
                f" {max(sizes) / 2**20:.2f} MiB for {saved.total / 2**20:.2f} MiB of files;"
                f" reading and writing as many bytes {1000 * statistics.median(copied):.1f} ms"
            )
    finally:
        await box.stop()


async def trial(spec: TrialSpec, script: list[str]) -> tuple[TrialFacts, float, float]:
    """Facts, seconds until the policy was first asked, and seconds in all."""
    began, asked = time.perf_counter(), 0.0

    def post(message: FromWorker) -> None:
        nonlocal asked
        if isinstance(message, SampleWanted):
            asked = asked or time.perf_counter() - began
            text = script.pop(0) if script else DONE
            answer = Completion(message.request, message.trial, text, False, 1, 1)
            asyncio.get_running_loop().call_later(0.05, link.deliver, answer)

    link = TrialLink(spec, post=post, requests=itertools.count(), recorder=Recorder())
    facts = await run_trial(link)
    return facts, asked, time.perf_counter() - began


def spec_of(name: str, task: Path, folder: Path, **more: object) -> TrialSpec:
    return TrialSpec(
        trial=name,
        task_dir=task,
        trials_dir=folder / "trials",
        environment=SANDBOX,
        model_name="scripted",
        max_turns=TURNS + 5,
        budget_sec=600,
        context_limit=1 << 20,
        max_tokens=4096,
        **more,  # type: ignore[arg-type]
    )


async def cost_in_a_trial(folder: Path, task: Path) -> None:
    """A trial of 40 turns, each of which writes a quarter of a megabyte, with and without."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for repeat in range(3):
        for kept in (False, True):
            name = f"turns-{kept}-{repeat}"
            plan = SnapshotPlan(folder / "snapshots" / name, 1, 256 << 20) if kept else None
            script = [
                act(f"head -c 256K /dev/urandom > /app/{turn}\n", duration=0.2)
                for turn in range(TURNS)
            ]
            _, _, wall = await trial(spec_of(name, task, folder, snapshots=plan), script)
            seconds[kept].append(wall)
    off, on = (statistics.median(seconds[kept]) for kept in (False, True))
    print(f"{TURNS} turns: {off:.2f} s without snapshots, {on:.2f} s with: {on / off - 1:+.1%}")


async def starts(folder: Path, task: Path) -> None:
    """Seconds until the policy is asked: of a fresh trial, and of a fork by a snapshot."""
    kept = folder / "snapshots" / "parent"
    plan = SnapshotPlan(kept, 1, 256 << 20)
    keys = act(f"head -c {WRITTEN_MB}M /dev/urandom > /app/file\n", duration=0.5)
    await trial(spec_of("parent", task, folder, snapshots=plan), [keys, act("ls\n")])
    shared = RecordedTurn(1, "prompt", keys, (), "")
    point = ForkPoint("parent", 2, (shared,), "next", snapshots=(kept,), go_on=True)
    fresh, forked = [], []
    for number in range(REPEATED):
        fresh.append((await trial(spec_of(f"fresh-{number}", task, folder), []))[1])
        facts, asked, _ = await trial(spec_of(f"fork-{number}", task, folder, origin=point), [])
        assert facts.fork is not None and facts.fork.way == "snapshot", facts
        forked.append(asked)
    a, b = statistics.median(fresh), statistics.median(forked)
    print(f"start: fresh {1000 * a:.0f} ms, fork by a snapshot {1000 * b:.0f} ms: {b / a:.2f}x")


async def typed_again(runs: list[Path], folder: Path) -> None:
    """The share of recorded trials whose keys lead to every recorded screen."""
    wanted = []
    for path in runs:
        run = RunDirectory(path.resolve())
        with closing(JournalReader(run)) as reader:
            started = next(e.event for e in reader.each(["run_started"]))
            assert isinstance(started, RunStarted)
            for entry in list(reader.each(["trial_queued"])):
                assert isinstance(entry.event, TrialQueued)
                calls = reader.samples(entry.event.trial)
                try:
                    origin = read_origin(run, reader, entry.event.trial, calls[-1].turn)
                except (ForkError, IndexError):
                    continue
                if any(turn.screen is not None for turn in origin.point.turns):
                    wanted.append((Path(started.tasks_dir) / origin.task, origin.point))
    wanted = wanted[:: max(1, len(wanted) // TRIALS)][:TRIALS]
    gate, why = asyncio.Semaphore(AT_ONCE), collections.Counter[str]()
    turns = same = 0

    async def again(number: int, task: Path, point: ForkPoint) -> None:
        nonlocal turns, same
        async with gate:
            facts, _, _ = await trial(spec_of(f"again-{number}", task, folder, origin=point), [])
            if facts.fork is None:
                why[f"{facts.exception_type}: {facts.exception_message}"] += 1
                return
            turns += facts.fork.replayed
            same += not facts.fork.parted
            if facts.fork.parted:
                why[facts.fork.difference] += 1

    async with asyncio.TaskGroup() as group:
        for number, (task, point) in enumerate(wanted):
            group.create_task(again(number, task, point))
    print(f"typed again: {same} of {len(wanted)} trials show every screen, {turns} turns in all")
    for text, count in why.most_common(12):
        print(f"  {count} x {text[:200]}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        task = folder / "solve"
        make_task(task)
        await snapshot_of_a_box(folder)
        await starts(folder, task)
        await cost_in_a_trial(folder, task)
        if runs := [Path(each) for each in sys.argv[1:]]:
            await typed_again(runs, folder)


if __name__ == "__main__":
    asyncio.run(main())
