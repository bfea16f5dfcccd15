"""Checkpoints on a real file system, with a process killed at random moments."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.engines.grpo.checkpoint_state import (
    CheckpointError,
    TrainingProgress,
    best,
    fixed_settings,
    latest,
    load_checkpoint,
    require_same_settings,
)
from tbtui.engines.grpo.checkpoints import CheckpointKeeper
from tbtui.journal.events import (
    AnyEvent,
    BestCheckpoint,
    CheckpointRemoved,
    CheckpointSaved,
    EvalFinished,
    Noted,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import PolicyError, PolicyInfo, PolicyLostError
from tests.events import eval_finished, events_of

from .fakes import RotePolicy

CONFIG = RunConfig()


class SavingPolicy(RotePolicy):
    """Saves a number that stands for its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = 0
        self.saves = 0
        self.forgotten: list[tuple[str, int | None]] = []
        """Names of the directories, and the weights that were there."""
        self.keeps: PolicyError | None = None
        """What it fails to forget with."""

    async def save(self, directory: Path) -> None:
        if self.fails:
            raise PolicyError(self.fails)
        self.saves += 1
        (directory / "adapter").mkdir(parents=True)
        (directory / "adapter" / "weights").write_text(str(self.weights))
        (directory / "optimizer").write_text("moments")

    async def forget(self, directory: Path) -> None:
        if self.keeps:
            raise self.keeps
        whole = (directory / "adapter" / "weights").is_file()
        self.forgotten.append((directory.name, weights(directory) if whole else None))


def weights(path: Path) -> int:
    return int((path / "adapter" / "weights").read_text())


class Shelf:
    """A run directory whose keeper can be given up and started anew."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.policy = SavingPolicy()
        self.journal = JournalWriter(directory)

    def keeper(self, keep_last: int = 2, *, keep_best: bool = True) -> CheckpointKeeper:
        return CheckpointKeeper(
            self.journal,
            self.policy,
            keep_last,
            fixed_settings(CONFIG),
            keep_best=keep_best,
        )

    def at(self, step: int) -> TrainingProgress:
        """The policy has trained up to `step`."""
        self.policy.weights = step
        return TrainingProgress(step=step, weights_version=step)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.directory.checkpoints.iterdir())

    def events[E: AnyEvent](self, kind: type[E]) -> list[E]:
        return events_of(self.directory, kind)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(RunDirectory.create(tmp_path / "run"))
    yield shelf
    shelf.journal.close()


async def test_a_checkpoint_has_everything_that_training_goes_on_from(shelf: Shelf) -> None:
    keeper = shelf.keeper()
    shelf.policy.weights = 7
    path = await keeper.save(TrainingProgress(step=10, weights_version=9))
    assert path == shelf.directory.checkpoints / "step-000010"
    state = load_checkpoint(path, shelf.policy.info)
    assert (state.step, state.weights_version) == (10, 9)
    assert (state.policy, state.model_name, state.journal_seq) == ("rote", "rote", 0)
    assert set(state.files) == {"adapter/weights", "optimizer"}
    assert weights(path) == 7
    (saved,) = shelf.events(CheckpointSaved)
    assert (saved.step, saved.path) == (10, "checkpoints/step-000010")
    assert shelf.names() == ["step-000010"]
    require_same_settings(state, CONFIG)


async def test_the_latest_ones_and_the_best_stay(shelf: Shelf) -> None:
    keeper = shelf.keeper(keep_last=2)
    for step, rate in enumerate([0.2, 0.7, 0.5, 0.7, 0.6, None], 1):
        await keeper.evaluated(shelf.at(step), rate)
        await keeper.save(shelf.at(step))
    assert shelf.names() == ["step-000002", "step-000005", "step-000006"]
    assert [e.step for e in shelf.events(CheckpointRemoved)] == [1, 3, 4]
    # Of equals the first; no weights are written twice.
    assert [(e.step, e.pass_rate) for e in shelf.events(BestCheckpoint)] == [(1, 0.2), (2, 0.7)]
    assert shelf.policy.saves == 6
    found = best(shelf.directory)
    assert found is not None
    assert weights(found.path) == 2


async def test_the_best_is_saved_as_it_was_evaluated(shelf: Shelf) -> None:
    keeper = shelf.keeper(keep_last=1)
    await keeper.save(shelf.at(10))
    await keeper.evaluated(shelf.at(15), 0.9)
    await keeper.save(shelf.at(20))
    await keeper.evaluated(shelf.at(20), 0.3)
    assert shelf.names() == ["step-000015", "step-000020"]
    assert weights(shelf.directory.checkpoints / "step-000015") == 15


async def test_a_run_that_only_evaluates_copies_no_weights(shelf: Shelf) -> None:
    await shelf.keeper(keep_best=False).evaluated(shelf.at(0), 1.0)
    assert shelf.names() == []


async def test_what_the_policy_keeps_elsewhere_goes_with_a_checkpoint(shelf: Shelf) -> None:
    keeper = shelf.keeper(keep_last=1)
    await keeper.save(shelf.at(1))
    await keeper.save(shelf.at(2))
    # All of it is still there to be read, and nobody takes it for a checkpoint.
    assert shelf.policy.forgotten == [(".removed-step-000001", 1)]
    # Trained again by another process, which writes over what the first one had saved.
    await shelf.keeper(keep_last=1).save(shelf.at(2))
    assert shelf.policy.forgotten[1:] == [(".replaced-step-000002", 2)]
    assert shelf.names() == ["step-000002"]


async def test_what_cannot_be_forgotten_is_said(shelf: Shelf) -> None:
    shelf.policy.keeps = PolicyError("500: try again")
    keeper = shelf.keeper(keep_last=1)
    await keeper.save(shelf.at(1))
    await keeper.save(shelf.at(2))
    assert shelf.names() == ["step-000002"]
    (note,) = shelf.events(Noted)
    assert note.level == "warning"
    assert note.text == (
        "step-000001 is removed here, but the policy's server still keeps its part: 500: try again"
    )


async def test_a_policy_lost_while_forgetting_leaves_no_half_checkpoint(shelf: Shelf) -> None:
    keeper = shelf.keeper(keep_last=1)
    await keeper.save(shelf.at(1))
    shelf.policy.keeps = PolicyLostError("gone")
    with pytest.raises(PolicyLostError):
        await keeper.save(shelf.at(2))
    shelf.policy.keeps = None
    again = shelf.keeper()
    assert again.saved == (2,)
    await again.save(shelf.at(3))
    assert shelf.names() == ["step-000002", "step-000003"]


async def test_a_failed_save_costs_nothing_that_was_there(shelf: Shelf) -> None:
    keeper = shelf.keeper()
    await keeper.save(shelf.at(1))
    shelf.policy.fails = "the server refused"
    with pytest.raises(PolicyError, match="refused"):
        await keeper.save(shelf.at(2))
    assert shelf.names() == ["step-000001"]
    found = latest(shelf.directory)
    assert found is not None
    assert found.state.step == 1


async def test_a_cancelled_save_leaves_nothing(shelf: Shelf) -> None:
    keeper = shelf.keeper()
    begun = asyncio.Event()

    async def slow(directory: Path) -> None:
        await asyncio.to_thread(directory.mkdir)
        begun.set()
        await asyncio.Event().wait()

    shelf.policy.save = slow  # type: ignore[method-assign]
    saving = asyncio.create_task(keeper.save(shelf.at(1)))
    await begun.wait()
    saving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert shelf.names() == []
    assert latest(shelf.directory) is None


# What is refused


@pytest.fixture
async def saved(shelf: Shelf) -> Path:
    return await shelf.keeper().save(shelf.at(3))


def _edit_state(path: Path, **changes: object) -> None:
    state = json.loads((path / "trainer.json").read_text())
    (path / "trainer.json").write_text(json.dumps({**state, **changes}))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda p: shutil.rmtree(p), "there is no such checkpoint"),
        (lambda p: (p / "trainer.json").unlink(), "is no checkpoint: trainer.json is missing"),
        (lambda p: (p / "trainer.json").write_text("{"), "is damaged: trainer.json can't be read"),
        (lambda p: (p / "trainer.json").write_text("[]"), "doesn't say its format"),
        (lambda p: _edit_state(p, step="x"), "is damaged: trainer.json: step: "),
        (lambda p: _edit_state(p, format=2, tbtui_version="9"), "format 2 (written by tbtui 9)"),
        (lambda p: (p / "optimizer").unlink(), "damaged: optimizer: No such file"),
        (lambda p: (p / "optimizer").write_text("mom"), "optimizer has 3 bytes, not 7"),
        (lambda p: (p / "adapter/weights").write_text("4"), "adapter/weights is not what was"),
    ],
)
def test_what_can_not_be_used_is_refused_by_reason(
    saved: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    spoil(saved)
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(saved)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (PolicyInfo("rote", "big", None, 1, ()), "of another model: rote rote, not rote big"),
        (PolicyInfo("rote", "rote", 1200, 1, ()), "not rote rote of 1,200 parameters"),
        (PolicyInfo("local", "rote", None, 1, ()), "of another model"),
    ],
)
def test_another_model_is_refused(saved: Path, policy: PolicyInfo, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(saved, policy)


async def test_another_tokenizer_is_refused(shelf: Shelf) -> None:
    info = shelf.policy.info
    named = {
        digest: PolicyInfo(info.name, info.model_name, None, 1, (), tokenizer=digest)
        for digest in ("one", "two")
    }
    shelf.policy.info = named["one"]
    path = await shelf.keeper().save(shelf.at(1))
    load_checkpoint(path, named["one"])
    with pytest.raises(CheckpointError, match="another tokenizer"):
        load_checkpoint(path, named["two"])


def test_settings_that_must_not_change_are_named(saved: Path) -> None:
    state = load_checkpoint(saved)
    require_same_settings(state, RunConfig(n_parallel_envs=3, max_steps=99))
    with pytest.raises(CheckpointError, match=r"seed=1: the run was started with seed=0"):
        require_same_settings(state, RunConfig(seed=1))


async def test_a_damaged_one_is_passed_over_and_named(shelf: Shelf) -> None:
    keeper = shelf.keeper()
    for step in (1, 2):
        await keeper.save(shelf.at(step))
    (shelf.directory.checkpoints / "step-000002" / "optimizer").unlink()
    found = latest(shelf.directory)
    assert found is not None
    assert found.state.step == 1
    assert "step-000002 is damaged" in found.passed_over[0]
    (shelf.directory.checkpoints / "step-000001" / "trainer.json").unlink()
    with pytest.raises(CheckpointError, match=r"step-000002 is damaged.*; and 1 more"):
        latest(shelf.directory)


# Going on after a crash


async def test_the_next_process_clears_up_and_goes_on(shelf: Shelf) -> None:
    keeper = shelf.keeper(keep_last=1)
    await keeper.evaluated(shelf.at(1), 0.8)
    await keeper.save(shelf.at(2))
    kept = shelf.directory.checkpoints
    (kept / ".writing-step-000003" / "adapter").mkdir(parents=True)
    (kept / ".removed-step-000001").mkdir()
    (kept / "step-000002").rename(kept / ".replaced-step-000002")
    again = shelf.keeper(keep_last=1)
    assert shelf.names()[2:] == ["step-000001", "step-000002"]
    assert again.saved == (1, 2)
    assert not shelf.policy.forgotten
    assert again.best is not None
    assert (again.best.step, again.best.pass_rate) == (1, 0.8)
    await again.evaluated(shelf.at(3), 0.8)
    await again.save(shelf.at(3))
    assert shelf.names() == ["step-000001", "step-000003"]
    # The policy's server has its part of them too, until it is told.
    forgotten = [name for name, _ in shelf.policy.forgotten]
    assert sorted(forgotten[:2]) == [".removed-step-000001", ".writing-step-000003"]
    assert forgotten[2:] == [".removed-step-000002"]


async def test_a_step_that_is_trained_again_is_saved_again(shelf: Shelf) -> None:
    """A run that goes on from step 1 because step 3 is damaged."""
    keeper = shelf.keeper(keep_last=0)
    for step in (1, 3):
        await keeper.save(shelf.at(step))
    (shelf.directory.checkpoints / "step-000003" / "optimizer").unlink()
    again = shelf.keeper(keep_last=1)
    assert again.saved == (1,)
    await again.save(shelf.at(2))
    await again.save(shelf.at(3))
    assert shelf.names() == ["step-000003"]
    found = latest(shelf.directory)
    assert found is not None
    assert (found.state.step, weights(found.path)) == (3, 3)


async def test_what_a_crash_kept_from_the_journal_is_told_later(shelf: Shelf) -> None:
    keeper = shelf.keeper(keep_last=0)
    for step in (1, 2, 3):
        await keeper.save(shelf.at(step))
    shelf.journal.append(_evaluation(2, 0.6))
    # Saved and killed, removed and killed.
    checkpoints = shelf.directory.checkpoints
    shutil.copytree(checkpoints / "step-000003", checkpoints / "step-000004")
    _edit_state(checkpoints / "step-000004", step=4, weights_version=4)
    shutil.rmtree(checkpoints / "step-000001")
    again = shelf.keeper(keep_last=0)
    assert [e.step for e in shelf.events(CheckpointSaved)] == [1, 2, 3, 4]
    assert [e.step for e in shelf.events(CheckpointRemoved)] == [1]
    assert [(e.step, e.pass_rate) for e in shelf.events(BestCheckpoint)] == [(2, 0.6)]
    assert again.saved == (2, 3, 4)
    before = shelf.journal.last_seq
    shelf.keeper(keep_last=0)
    assert shelf.journal.last_seq == before


def _evaluation(step: int, pass_rate: float) -> EvalFinished:
    return eval_finished(step, pass_rate, scored=2)


SAVER = textwrap.dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from tbtui.config import RunConfig
    from tbtui.engines.grpo.checkpoint_state import TrainingProgress, fixed_settings
    from tbtui.engines.grpo.checkpoints import CheckpointKeeper
    from tbtui.journal.rundir import RunDirectory
    from tbtui.journal.writer import JournalWriter
    from tests.engines.fakes import RotePolicy

    class Bulky(RotePolicy):
        version = 0
        async def save(self, directory):
            (directory / "adapter").mkdir(parents=True)
            for name in ("adapter/weights", "optimizer"):
                with (directory / name).open("wb") as file:
                    for _ in range(64):
                        file.write(b"%08d" % self.version * 512)
                        await asyncio.sleep(0)

    async def main():
        directory = RunDirectory(Path(sys.argv[1]))
        journal = JournalWriter(directory, continues=directory.database.exists())
        policy = Bulky()
        keeper = CheckpointKeeper(journal, policy, 2, fixed_settings(RunConfig()))
        step = max(keeper.saved, default=0)
        print(os.getpid(), step, flush=True)
        while True:
            step += 1
            # The second time as after a resume from an earlier checkpoint: the step once more.
            for policy.version in (step, step + 1_000_000):
                progress = TrainingProgress(step=step, weights_version=policy.version)
                await keeper.evaluated(progress, (step * 7919) % 101 / 101)
                await keeper.save(progress)
            print(step, flush=True)

    # A process of its own for every time; the imports are done once.
    for _ in sys.stdin:
        if not (child := os.fork()):
            asyncio.run(main())
        os.waitpid(child, 0)
        print("ended", flush=True)
    """
)


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    rng = random.Random(4)
    finished = 0
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", SAVER, str(directory.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(15):
            process.stdin.write("\n")
            process.stdin.flush()
            child, began = map(int, process.stdout.readline().split())
            # No step that was said to be saved may be lost.
            assert began >= finished
            for _ in range(rng.randrange(1, 4)):
                finished = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            while (line := process.stdout.readline().strip()) != "ended":
                finished = int(line)
            _require_whole(directory, finished)
    marked = best(directory)
    assert marked is not None
    assert marked.state.step > 1


def _require_whole(directory: RunDirectory, finished: int) -> None:
    for path in directory.checkpoints.glob("step-*"):
        state = load_checkpoint(path)
        mark = b"%08d" % state.weights_version
        for name in ("adapter/weights", "optimizer"):
            assert (path / name).read_bytes() == mark * 512 * 64
    found = latest(directory)
    assert found is not None
    # One that was being replaced has its old name back when the next process starts.
    assert found.state.step >= finished - 1
