"""A run that ended at any of its events goes on, and ends as if it never had."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import pytest

from tbtui import launch
from tbtui.catalog.split import Split
from tbtui.chat import Message
from tbtui.config import ConfigError, RunConfig, to_toml
from tbtui.engines import resume
from tbtui.engines.events_of import task_records
from tbtui.engines.grpo.checkpoint_state import STATE_FILE, CheckpointError
from tbtui.engines.grpo.engine import GrpoEngine
from tbtui.engines.grpo.history import place_of
from tbtui.engines.grpo.plan import task_order
from tbtui.engines.grpo.recorded import RUN_ENDED_FIRST, RUN_WAS_KILLED, StartingPoint
from tbtui.engines.grpo.recovery import Recovery, continue_run, recover
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.resume import keep_settings, request_resume
from tbtui.errors import UserError
from tbtui.journal.commands import Typed
from tbtui.journal.database import JournalError
from tbtui.journal.events import (
    AnyEvent,
    CommandDone,
    CommandIssued,
    CommandVerb,
    Entry,
    EvalFinished,
    EvalStarted,
    Event,
    GroupAdded,
    GroupRefilled,
    GroupScored,
    Noted,
    Outcome,
    PhaseSeconds,
    RunContinued,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    StepFinished,
    StepStarted,
    TasksDrawn,
    TasksSetAside,
    TrialExcluded,
    TrialFinished,
    TrialPhase,
    TrialQueued,
    TrialRetried,
    encode,
)
from tbtui.journal.reader import JournalReader
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, find_run
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import OptimSettings, PolicyInfo, Sample, SampleRequest, StepResult
from tbtui.rollout.environments.choose import EnvironmentChoice
from tbtui.rollout.messages import (
    CompletionFailed,
    KeysTyped,
    PhaseEntered,
    TrialDone,
    TrialSpec,
)
from tests.benchmarks.kill_and_resume import differences, experiment
from tests.events import run_started, spoil, trial_finished, trial_queued
from tests.waiting import until

from .conftest import TASKS, Bench
from .fakes import FakePool, RotePolicy, facts

SPLIT = Split(train=tuple(TASKS[:6]), heldout=tuple(TASKS[6:]))
SETTINGS: dict[str, Any] = {
    "max_steps": 3,
    "batch_size": 2,
    "group_size": 2,
    "eval_every": 2,
    "save_every": 2,
    "keep_checkpoints": 0,
    "retry_wait_sec": 0,
}


Script = Callable[[FakePool, TrialSpec], object]

STARTED = run_started(
    run="whole",
    policy="rote",
    model_name="rote",
    context_limit=10_000,
    environment="fake",
    tasks_dir="/tasks",
    tasks=task_records(SPLIT),
)


class LearningPolicy(RotePolicy):
    """Its weights are a digest of everything that it was trained on, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = "start"
        self.sampler = "start"
        self.versions: dict[int, str] = {}
        """The weights of each version that was published."""

    async def sample(self, request: SampleRequest) -> Sample:
        said = digest(self.sampler, request.seed, request.prompt_ids)[:6]
        ids = tuple(map(ord, said))
        logprobs = np.asarray([-(id % 7) / 8 for id in ids], np.float32)
        return Sample(ids, logprobs, "stop", self.published)

    async def apply(self, settings: OptimSettings) -> StepResult:
        data = [
            (d.tokens, d.mask, *(each[d.mask] for each in (d.logprobs, d.advantages, d.weights)))
            for d in self._accumulated
        ]
        raw = b"".join(np.ascontiguousarray(array).tobytes() for datum in data for array in datum)
        self.weights = digest(self.weights, raw, settings)
        return await super().apply(settings)

    async def publish(self) -> int:
        self.sampler = self.weights
        version = await super().publish()
        self.versions[version] = self.weights
        return version

    async def save(self, directory: Path) -> None:
        await super().save(directory)
        (directory / "weights").write_text(json.dumps([self.weights, self.published]))

    async def load(self, directory: Path) -> None:
        self.weights, self.published = json.loads((directory / "weights").read_text())
        self.sampler = self.weights


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def by_what_it_says(pool: FakePool, spec: TrialSpec) -> object:
    """Two turns; the last completion decides, so that rewards depend on weights and seeds."""
    pool._spawn(_two_turns(pool, spec))
    return True


def typed_in(pool: FakePool, spec: TrialSpec) -> object:
    """As above, and a person types between the turns of each group's first trial."""
    pool._spawn(_two_turns(pool, spec, typed=spec.trial.partition("-retry")[0].endswith("-1")))
    return True


async def _two_turns(pool: FakePool, spec: TrialSpec, *, typed: bool = False) -> None:
    pool.runner.on_message(1, PhaseEntered(spec.trial, TrialPhase.SETUP))
    messages: tuple[Message, ...] = ()
    text = ""
    for turn in (1, 2):
        messages = (*messages, Message("user", f"turn {turn}"))
        answer = await pool.ask(spec, turn, messages)
        assert not isinstance(answer, CompletionFailed)
        text = answer.text
        messages = (*messages, Message("assistant", text))
        if typed and turn == 1:
            keys = (Typed("text", "ls"), Typed("key", "Enter"))
            pool.runner.on_message(1, KeysTyped(spec.trial, "", keys))
    verdict = float(int(text, 16) % 3 == 0)
    pool._live.discard(spec.trial)
    end = dataclasses.replace(facts(verdict), human_touched=typed)
    pool.runner.on_message(1, TrialDone(spec.trial, end))


def stumbling(pool: FakePool, spec: TrialSpec) -> object:
    """As above, but the infrastructure fails some first attempts, and some places for good."""
    place = spec.trial.partition("-retry")[0]
    first = place == spec.trial
    if place.endswith(("-2", "-4")) and "copy" in place and (first or place.endswith("-4")):
        return pool.end(spec, facts(None, "provider_error", "silence"), 1)
    return by_what_it_says(pool, spec)


@dataclass
class Part:
    """What one process did of a run."""

    policy: LearningPolicy
    bench: Bench


def of_kind[E: Event](kind: type[E], entries: Sequence[Entry]) -> list[E]:
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


@dataclass
class Whole:
    """A run's directory, and what its events say about how it went."""

    directory: RunDirectory
    settings: dict[str, Any]
    script: Script
    split: Split = dataclasses.field(default=SPLIT, kw_only=True)

    def config(self) -> RunConfig:
        return RunConfig(**{**SETTINGS, **self.settings})

    def prepared(self) -> PreparedRun:
        return PreparedRun(
            *(self.config(), Path("/tasks"), self.split, ()),
            *(EnvironmentChoice("fake", ""), self.directory),
        )

    def started(self) -> RunStarted:
        return msgspec.structs.replace(STARTED, tasks=task_records(self.split))

    def bench(
        self, journal: JournalWriter, policy: LearningPolicy, start: StartingPoint | None = None
    ) -> Bench:
        honeypots = self.split.honeypots
        return Bench(self.directory, journal, policy, self.script, start, honeypots=honeypots)

    async def begin(self) -> Part:
        self.directory.config.write_text(to_toml(self.config()))
        policy = LearningPolicy()
        with JournalWriter(self.directory) as journal:
            journal.append(self.started())
            bench = self.bench(journal, policy)
            await self.attend(bench.engine(**{**SETTINGS, **self.settings}))
        return Part(policy, bench)

    async def resume(self) -> Part:
        policy = LearningPolicy()
        with (
            JournalWriter(self.directory, continues=True) as journal,
            contextlib.closing(JournalReader(self.directory)) as reader,
        ):
            start = await continue_run(self.prepared(), policy, journal, reader, self.started())
            bench = self.bench(journal, policy, start)
            await self.attend(bench.engine(**{**SETTINGS, **self.settings}))
        return Part(policy, bench)

    async def attend(self, engine: GrpoEngine) -> None:
        """See the run through to its end."""
        await engine.run()

    def cut(self, where: Path, last: int) -> Self:
        """A copy as it was when the event number `last` was the last one."""
        shutil.copytree(self.directory.path, where)
        directory = RunDirectory(where)
        db = sqlite3.connect(directory.database)
        rows = db.execute(
            "SELECT json_extract(body, '$.sample') FROM events"
            " WHERE kind = 'turn_sampled' AND seq <= ?",
            (last,),
        )
        samples = max((row[0] for row in rows), default=0)
        db.execute("DELETE FROM events WHERE seq > ?", (last,))
        db.execute("DELETE FROM samples WHERE id > ?", (samples,))
        db.commit()
        db.close()
        for path in directory.checkpoints.iterdir():
            if json.loads((path / STATE_FILE).read_text())["journal_seq"] > last:
                shutil.rmtree(path)
        return dataclasses.replace(self, directory=directory)

    def entries(self) -> list[Entry]:
        with contextlib.closing(JournalReader(self.directory)) as reader:
            return reader.read(0, 100_000)

    def events[E: Event](self, kind: type[E]) -> list[E]:
        return of_kind(kind, self.entries())

    def outcome(self) -> object:
        """What must not depend on interruptions: scores, evaluations, steps."""
        entries = self.entries()
        scores = Counter(
            (
                event.step,
                event.group,
                event.disposition,
                event.baseline,
                *(
                    (place_of(trial, event.group), score.reward, score.advantage, score.tokens)
                    for trial, score in event.trials.items()
                ),
            )
            for event in of_kind(GroupScored, entries)
        )
        steps = Counter((e.step, e.weights_version) for e in of_kind(StepFinished, entries))
        evaluations = Counter(
            (e.step, e.weights_version, e.pass_rate) for e in of_kind(EvalFinished, entries)
        )
        # Of a batch that was about to begin, the same groups may have been drawn twice.
        drawn = {
            group: task for e in of_kind(TasksDrawn, entries) for group, task in e.groups.items()
        }
        return scores, steps, evaluations, drawn

    def length(self) -> int:
        return len(self.entries())


def require_order(whole: Whole) -> None:
    """Nothing is lost, doubled or left open."""
    entries = whole.entries()
    queued = [event.trial for event in of_kind(TrialQueued, entries)]
    ends = Counter(event.trial for event in of_kind(TrialFinished, entries))
    assert set(ends) == set(queued)
    assert set(ends.values()) <= {1}
    assert len(queued) == len(set(queued))
    for steps in (
        [event.step for event in of_kind(StepStarted, entries)],
        [event.step for event in of_kind(StepFinished, entries)],
        [event.step for event in of_kind(EvalStarted, entries)],
        [event.step for event in of_kind(EvalFinished, entries)],
    ):
        assert len(steps) == len(set(steps))
    groups = [event.group for event in of_kind(GroupScored, entries)]
    assert len(groups) == len(set(groups))


def useful_ends(whole: Whole) -> Counter[tuple[str, int]]:
    """How often each place came to an outcome of its own."""
    entries = whole.entries()
    group = {event.trial: event.group for event in of_kind(TrialQueued, entries)}
    return Counter(
        place_of(event.trial, group[event.trial])
        for event in of_kind(TrialFinished, entries)
        if event.outcome in (Outcome.SOLVED, Outcome.FAILED)
    )


async def uninterrupted(
    where: Path,
    script: Script = by_what_it_says,
    **settings: object,
) -> tuple[Whole, Part]:
    whole = Whole(RunDirectory.create(where / "whole"), settings, script)
    return whole, await whole.begin()


def hopeless(pool: FakePool, spec: TrialSpec) -> object:
    """The infrastructure fails every attempt at some places."""
    if spec.trial.partition("-retry")[0].endswith("-2") and "copy" in spec.trial:
        return pool.end(spec, facts(None, "provider_error", "silence"), 1)
    return by_what_it_says(pool, spec)


VARIANTS: dict[str, tuple[Script, dict[str, Any]]] = {
    "plain": (by_what_it_says, {"max_steps": 2, "save_every": 1, "eval_every": 0}),
    "retries-oversample": (stumbling, {"max_retries": 1, "oversample": 1, "max_steps": 2}),
    "refill": (
        hopeless,
        {"on_outcome": {"provider_error": "mask"}, "max_steps": 2, "eval_every": 0},
    ),
    "replace-substeps": (
        by_what_it_says,
        {"replace_constant_groups": 1, "num_substeps": 2, "max_steps": 2, "eval_every": 0},
    ),
    "learnability": (
        by_what_it_says,
        {"task_sampling": "learnability", "replace_constant_groups": 1, "max_steps": 4},
    ),
    "thompson": (
        by_what_it_says,
        {"task_sampling": "thompson", "task_half_life": 2.0, "max_steps": 4, "save_every": 0},
    ),
    "screen": (
        hopeless,
        {
            "on_outcome": {"provider_error": "mask"},
            **{"screen_trials": 2, "group_size": 4, "replace_constant_groups": 1},
            **{"max_steps": 3, "eval_every": 0},
        },
    ),
    "no-checkpoint": (by_what_it_says, {"save_every": 0, "max_steps": 2}),
    "longer": (by_what_it_says, {"max_steps": 4}),
    "handed-back": (
        typed_in,
        {"train_after_handback": True, "group_size": 3, "max_steps": 3, "save_every": 0},
    ),
}


@pytest.mark.parametrize(
    ("variant", "stride"),
    [
        ("plain", 7),
        *((variant, 19) for variant in VARIANTS if variant != "plain"),
        # Every event of a run whose trials fail; of the others every third.
        pytest.param("retries-oversample", 1, marks=pytest.mark.slow),
        *(pytest.param(variant, 3, marks=pytest.mark.slow) for variant in VARIANTS),
    ],
)
async def test_cut_off_after_any_event_a_run_ends_as_if_it_had_not_been(
    tmp_path: Path, variant: str, stride: int
) -> None:
    script, settings = VARIANTS[variant]
    whole, part = await uninterrupted(tmp_path, script, **settings)
    expected = whole.outcome()
    for last in range(0, whole.length() + 1, stride):
        copy = whole.cut(tmp_path / "copy", last)
        resumed = await copy.resume()
        assert copy.outcome() == expected, f"cut off after event {last}"
        assert resumed.policy.weights == part.policy.weights, f"cut off after event {last}"
        require_order(copy)
        if script is by_what_it_says:
            assert set(useful_ends(copy).values()) == {1}, f"cut off after event {last}"
        shutil.rmtree(copy.directory.path)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_steps_off_policy": 2},
        {"stream": True},
        {"max_steps_off_policy": 2, "stream": True, "task_sampling": "thompson", "max_steps": 5},
    ],
)
async def test_batches_sampled_ahead_are_taken_up_too(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    whole, _ = await uninterrupted(tmp_path, **{"max_steps": 4, "n_parallel_envs": 3} | settings)
    for last in range(5, whole.length() + 1, 37):
        copy = whole.cut(tmp_path / "copy", last)
        ended = Counter(e.trial for e in copy.events(TrialFinished))
        await copy.resume()
        require_order(copy)
        assert set(useful_ends(copy).values()) == {1}
        assert Counter(e.trial for e in copy.events(TrialFinished)) >= ended
        steps = [e.step for e in whole.events(StepFinished)]
        assert [e.step for e in copy.events(StepFinished)] == steps
        shutil.rmtree(copy.directory.path)


@pytest.mark.parametrize(
    ("kind", "which", "change", "says"),
    [
        (GroupScored, -1, {"group": "elsewhere"}, "elsewhere, and not that it was begun"),
        (StepStarted, -1, {"groups": {"s0002-a": "a"}}, "of a, and not that it was begun"),
        (StepStarted, 0, {"groups": {"s0001-a": "a"}}, "of a, and not that it was begun"),
        (GroupAdded, -1, None, "what became of s0002-.*, and not that it was begun"),
        (TrialQueued, -1, {"trial": "a-x"}, "a-x is no trial of the group s000"),
    ],
)
async def test_a_journal_that_does_not_agree_with_itself_is_refused_in_one_line(
    tmp_path: Path, kind: type[AnyEvent], which: int, change: dict[str, object] | None, says: str
) -> None:
    """Whole events are missing, or those of another run are among them."""
    script, settings = VARIANTS["replace-substeps"]
    whole, _ = await uninterrupted(tmp_path, script, **settings, save_every=1)
    (*_, end) = [e.seq for e in whole.entries() if isinstance(e.event, StepFinished)]
    copy = whole.cut(tmp_path / "copy", end - 1)
    entry = [each for each in copy.entries() if isinstance(each.event, kind)][which]
    with contextlib.closing(sqlite3.connect(copy.directory.database, autocommit=True)) as db:
        db.execute("DELETE FROM events WHERE seq = ? AND ?", (entry.seq, change is None))
    spoil(copy.directory, entry.seq, json.dumps(json.loads(encode(entry.event)) | (change or {})))
    with pytest.raises(JournalError, match=says) as caught:
        await copy.resume()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("advantage", ["centred", "batch"])
async def test_a_reward_beyond_all_bounds_in_an_older_journal_is_none(
    tmp_path: Path, advantage: str
) -> None:
    whole, _ = await uninterrupted(
        tmp_path, max_steps=2, eval_every=0, save_every=0, advantage=advantage
    )
    (first, _) = [e.seq for e in whole.entries() if isinstance(e.event, StepFinished)]
    copy = whole.cut(tmp_path / "copy", first)
    ends = [e for e in copy.entries() if isinstance(e.event, TrialFinished)]
    for entry, reward in zip(ends, (1e308, -1e308, 1e20, 1e308), strict=False):
        body = json.loads(encode(entry.event)) | {"reward": reward}
        spoil(copy.directory, entry.seq, json.dumps(body))
    await copy.resume()
    assert [e.step for e in copy.events(StepFinished)] == [1, 2]
    shown = [end.reward for end in copy.events(TrialFinished)[:4]]
    assert shown == [None] * 4


async def test_groups_are_trained_again_in_the_order_in_which_they_finished(tmp_path: Path) -> None:
    """With a gradient as each group finishes, that order decides which groups a substep has."""
    first = f"s0001-{next(task_order(SPLIT.train, 0)).name}"

    async def after_the_others(pool: FakePool, spec: TrialSpec) -> None:
        await until(lambda: len([s for s in pool.started if s.trial.startswith("s")]) == 12)
        await until(lambda: all(trial.startswith(first) for trial in pool._live))
        await _two_turns(pool, spec)

    def script(pool: FakePool, spec: TrialSpec) -> object:
        if not spec.trial.startswith(first):
            return by_what_it_says(pool, spec)
        pool._spawn(after_the_others(pool, spec))
        return True

    settings = {"stream": True, "num_substeps": 2, "batch_size": 3, "group_size": 4}
    whole, part = await uninterrupted(
        tmp_path, script, **settings, max_steps=1, eval_every=0, save_every=0, n_parallel_envs=32
    )
    assert whole.events(GroupScored)[-1].group == first
    (end,) = [e.seq for e in whole.entries() if isinstance(e.event, StepFinished)]
    copy = whole.cut(tmp_path / "copy", end)
    for path in copy.directory.checkpoints.iterdir():
        shutil.rmtree(path)
    resumed = await copy.resume()
    assert resumed.policy.weights == part.policy.weights


async def test_killed_again_and_again_it_still_ends_the_same(tmp_path: Path) -> None:
    whole, part = await uninterrupted(tmp_path, max_steps=2)
    expected, moments = whole.outcome(), (30, 31, 47, 60, 75, 80, 95, 120)
    for number, last in enumerate(moments):
        whole = whole.cut(tmp_path / f"copy-{number}", last)
        resumed = await whole.resume()
    assert whole.outcome() == expected
    assert resumed.policy.weights == part.policy.weights
    require_order(whole)
    assert len(whole.events(RunContinued)) > 1


async def test_how_it_goes_on_is_in_the_journal(tmp_path: Path) -> None:
    whole, _ = await uninterrupted(tmp_path, max_steps=3)
    entries = whole.entries()
    (last,) = [e.seq for e in entries if isinstance(e.event, StepStarted) and e.event.step == 3]
    first_end = next(e.seq for e in entries if e.seq > last and isinstance(e.event, TrialFinished))
    copy = whole.cut(tmp_path / "copy", first_end)
    for path in copy.directory.checkpoints.iterdir():
        shutil.rmtree(path)
    started = {e.trial for e in copy.events(TrialQueued)}
    ended = {e.trial for e in copy.events(TrialFinished)}
    await copy.resume()
    (event,) = copy.events(RunContinued)
    assert (event.checkpoint, event.step, event.replayed) == (None, 0, (1, 2))
    assert event.reused == 1
    assert set(event.requeued) == started - ended
    cut_off = [e for e in copy.events(TrialFinished) if e.reason == RUN_WAS_KILLED]
    assert {e.trial for e in cut_off} == set(event.requeued)
    assert all(e.outcome is Outcome.CANCELLED and e.reward is None for e in cut_off)
    retried = [e for e in copy.events(TrialRetried) if e.reason == "the run was resumed"]
    assert {e.trial for e in retried} == set(event.requeued)
    (note,) = [e.text for e in copy.events(Noted) if "no checkpoint" in e.text]
    assert note == "no checkpoint: all 2 steps are trained again"


async def test_open_ends_are_tied_up(tmp_path: Path) -> None:
    whole, _ = await uninterrupted(tmp_path, max_steps=1)
    copy = whole.cut(tmp_path / "copy", 40)
    with JournalWriter(copy.directory, continues=True) as journal:
        journal.append(
            CommandIssued(command="c", verb="pause", target="run", actor="me", reason="")
        )
        journal.append(RunPaused())
    await copy.resume()
    assert CommandDone(command="c", ok=False, result=RUN_WAS_KILLED) in copy.events(CommandDone)
    assert len(copy.events(RunResumed)) == 1


# What people had asked for


def finished(trial: str, outcome: Outcome = Outcome.SOLVED, reason: str = "") -> TrialFinished:
    reward = 1.0 if outcome is Outcome.SOLVED else None
    return trial_finished(
        trial,
        reward,
        outcome=outcome,
        reason=reason,
        turns=0,
        seconds=PhaseSeconds(sampling=1.0, queue=0.5),
    )


def queued(trial: str, attempt: int = 1) -> TrialQueued:
    return trial_queued(
        trial, label="copy-0/1", task="copy-0", group="s0001-copy-0", attempt=attempt, budget_sec=1
    )


def asked(verb: CommandVerb, trial: str) -> CommandIssued:
    return CommandIssued(command=f"{verb} {trial}", verb=verb, target=trial, actor="me")


def done(verb: CommandVerb, trial: str, ok: bool = True) -> CommandDone:
    return CommandDone(command=f"{verb} {trial}", ok=ok, result="")


FIRST, SECOND = "s0001-copy-0-1", "s0001-copy-0-1-retry1"
CASES: dict[str, tuple[list[AnyEvent], int, str | None, bool]] = {
    # events -> last attempt, trial that stands, other draws
    "cancelled by a person: that stands": (
        [
            queued(FIRST),
            asked("cancel", FIRST),
            finished(FIRST, Outcome.CANCELLED, "by me"),
            done("cancel", FIRST),
        ],
        *(1, FIRST, False),
    ),
    "given up for a fresh one, which was not announced yet": (
        [queued(FIRST), asked("retry", FIRST), finished(FIRST, Outcome.CANCELLED, "by me")],
        *(1, None, True),
    ),
    "a fresh one that was announced": (
        [
            queued(FIRST),
            finished(FIRST),
            asked("retry", FIRST),
            TrialRetried(trial=FIRST, successor=SECOND, reason="asked by me"),
            done("retry", FIRST),
        ],
        *(1, None, True),
    ),
    "a fresh one that was under way": (
        [
            queued(FIRST),
            finished(FIRST),
            asked("retry", FIRST),
            TrialRetried(trial=FIRST, successor=SECOND, reason="asked by me"),
            done("retry", FIRST),
            queued(SECOND, 2),
        ],
        *(2, None, True),
    ),
    "cut off as the run was ended in good order": (
        [queued(FIRST), finished(FIRST, Outcome.CANCELLED, RUN_ENDED_FIRST)],
        *(1, None, False),
    ),
    "a refused retry changes nothing": (
        [queued(FIRST), asked("retry", FIRST), done("retry", FIRST, ok=False), finished(FIRST)],
        *(1, FIRST, False),
    ),
    "asked, and killed before anything came of it": (
        [queued(FIRST), asked("retry", FIRST)],
        *(1, None, False),
    ),
    "a failure that is to be tried again": (
        [queued(FIRST), finished(FIRST, Outcome.SANDBOX_LOST)],
        *(1, None, False),
    ),
    "a failure whose attempts are used up: a new process has its own": (
        [
            queued(FIRST),
            finished(FIRST, Outcome.SANDBOX_LOST),
            TrialRetried(trial=FIRST, successor=SECOND, reason="sandbox_lost"),
            queued(SECOND, 2),
            finished(SECOND, Outcome.SANDBOX_LOST),
        ],
        *(2, None, False),
    ),
    "a failure of a task that can't be used here": (
        [
            queued(FIRST),
            finished(FIRST, Outcome.SETUP_ERROR),
            TasksSetAside(tasks={"copy-0": "its image can't be built"}, by="trial"),
        ],
        *(1, FIRST, False),
    ),
    "a failure that a refill has replaced": (
        [
            queued(FIRST),
            finished(FIRST, Outcome.SANDBOX_LOST),
            GroupRefilled(step=1, group="s0001-copy-0", trials=("s0001-copy-0-3",)),
        ],
        *(1, FIRST, False),
    ),
    "a failure of the refill itself": (
        [
            queued(FIRST),
            finished(FIRST),
            GroupRefilled(step=1, group="s0001-copy-0", trials=("s0001-copy-0-3",)),
            queued("s0001-copy-0-3"),
            finished("s0001-copy-0-3", Outcome.SANDBOX_LOST),
        ],
        *(1, FIRST, False),
    ),
    "being cut off is no failure that counts": (
        [
            queued(FIRST),
            finished(FIRST, Outcome.CANCELLED, RUN_WAS_KILLED),
            TrialRetried(trial=FIRST, successor=SECOND, reason="the run was resumed"),
            queued(SECOND, 2),
            finished(SECOND, Outcome.SANDBOX_LOST),
        ],
        *(2, None, False),
    ),
}


def recovered(directory: RunDirectory, events: list[AnyEvent], **settings: object) -> Recovery:
    with JournalWriter(directory) as journal:
        journal.append(StepStarted(step=1, groups={"s0001-copy-0": "copy-0"}))
        for event in events:
            journal.append(event)
    config = RunConfig(**{**SETTINGS, "max_retries": 1, **settings})
    return recover(JournalReader(directory), SPLIT, config)


@pytest.mark.parametrize("case", CASES)
def test_what_becomes_of_a_place(tmp_path: Path, case: str) -> None:
    events, attempts, stands, other_draws = CASES[case]
    recovery = recovered(RunDirectory.create(tmp_path / "run"), events)
    place = recovery.start.batches[1].places["s0001-copy-0", 1]
    assert place.number == attempts
    assert (place.rollout.trial if place.rollout else None) == stands
    assert (place.seed is not None) == other_draws


def test_an_outcome_that_ended_the_run_is_tried_again(tmp_path: Path) -> None:
    events: list[AnyEvent] = [queued(FIRST), finished(FIRST, Outcome.VERIFIER_ERROR)]
    recovery = recovered(
        RunDirectory.create(tmp_path / "run"), events, on_outcome={"verifier_error": "halt"}
    )
    assert recovery.start.batches[1].places["s0001-copy-0", 1].rollout is None


def test_exclusions_and_the_time_of_all_attempts_are_kept(tmp_path: Path) -> None:
    recovery = recovered(
        RunDirectory.create(tmp_path / "run"),
        [
            queued(FIRST),
            finished(FIRST, Outcome.SANDBOX_LOST),
            TrialRetried(trial=FIRST, successor=SECOND, reason="sandbox_lost", wait_sec=2.0),
            queued(SECOND, 2),
            finished(SECOND),
            TrialExcluded(trial=SECOND, excluded=True),
        ],
    )
    batch = recovery.start.batches[1]
    assert batch.excluded == {SECOND}
    rollout = batch.places["s0001-copy-0", 1].rollout
    assert rollout is not None
    assert (rollout.seconds, rollout.reward) == (1.0, 1.0)
    assert rollout.spent == PhaseSeconds(sampling=2.0, queue=3.0)


def test_a_refilled_place_that_nobody_queued_starts_as_its_first_attempt(tmp_path: Path) -> None:
    recovery = recovered(
        RunDirectory.create(tmp_path / "run"),
        [GroupRefilled(step=1, group="s0001-copy-0", trials=("s0001-copy-0-3",))],
    )
    place = recovery.start.batches[1].places["s0001-copy-0", 3]
    assert (place.number, place.rollout) == (0, None)


# What is refused


async def test_other_tasks_are_refused(tmp_path: Path) -> None:
    whole, _ = await uninterrupted(tmp_path, max_steps=0)
    fewer = Split(train=SPLIT.train[1:], heldout=SPLIT.heldout)
    with pytest.raises(UserError, match=r"copy-0; put them back"):
        recover(JournalReader(whole.directory), fewer, whole.config())


async def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    whole, _ = await uninterrupted(tmp_path, max_steps=2)
    other = LearningPolicy()
    other.info = PolicyInfo("rote", "other", None, 10_000, ("importance_sampling",))
    with (
        JournalWriter(whole.directory, continues=True) as journal,
        contextlib.closing(JournalReader(whole.directory)) as reader,
        pytest.raises(CheckpointError, match="of another model: rote rote, not rote other"),
    ):
        await continue_run(whole.prepared(), other, journal, reader, STARTED)
    assert not whole.events(RunContinued)


async def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path: Path) -> None:
    whole, part = await uninterrupted(tmp_path, max_steps=4)
    newest = max(whole.directory.checkpoints.iterdir())
    (newest / "weights").write_text("[]")
    resumed = await whole.resume()
    assert resumed.policy.weights == part.policy.weights
    (event,) = whole.events(RunContinued)
    assert (event.checkpoint, event.replayed) == ("checkpoints/step-000002", (3, 4))
    assert any(f"{newest} is damaged" in note.text for note in whole.events(Noted))


@pytest.fixture
async def ended(tmp_path: Path) -> Whole:
    """A run of two steps that is complete, by the name of `whole`."""
    whole, _ = await uninterrupted(tmp_path, max_steps=2, run_name="whole", logs_dir=tmp_path)
    with JournalWriter(whole.directory, continues=True) as journal:
        journal.append(RunFinished(status="finished", reason="2 steps"))
    return whole


def test_a_run_goes_by_its_name_or_its_directory(ended: Whole) -> None:
    logs = ended.directory.path.parent
    assert find_run("whole", logs) == ended.directory
    assert find_run(str(ended.directory.path), Path("elsewhere")) == ended.directory
    with pytest.raises(RunDirectoryError, match=r"whale: no such run.*did you mean 'whole'"):
        find_run("whale", logs)
    with pytest.raises(RunDirectoryError, match="none at all in elsewhere"):
        find_run("whole", Path("elsewhere"))


def test_a_finished_run_says_what_to_raise(ended: Whole) -> None:
    run = str(ended.directory.path)
    with pytest.raises(ConfigError, match=r"whole is finished: 2 steps; .* larger max_steps"):
        request_resume(run, [])
    with pytest.raises(ConfigError, match="finished"):
        request_resume(run, ["max_steps=2"])
    # An epoch has three steps of two tasks.
    assert request_resume(run, ["n_epochs=1"]).config.step_limit is None
    request = request_resume(run, ["max_steps=5", "n_parallel_envs=3"])
    assert (request.config.max_steps, request.config.n_parallel_envs) == (5, 3)
    request.discard()
    assert ended.directory.database.exists()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("batch_size", 3),
        ("seed", 7),
        ("advantage", "std"),
        ("eval_tasks", "a"),
        ("temperature", 2),
        ("top_p", 0.9),
        ("top_k", 20),
        ("min_p", 0.1),
        ("stop", "END"),
    ],
)
def test_settings_that_would_make_it_another_run_are_refused_by_name(
    ended: Whole, setting: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=rf"^{setting}=.*whole was begun with .* new run"):
        request_resume(str(ended.directory.path), ["max_steps=5", f"{setting}={value}"])


def test_a_run_that_was_trained_in_a_way_that_is_gone_says_so(ended: Whole) -> None:
    run, file = str(ended.directory.path), ended.directory.config
    own = file.read_text()
    file.write_text(own + 'group_from = "task"\nfork_groups_per_step = 2\n')
    assert request_resume(run, ["max_steps=5"]).config.max_steps == 5
    for gone in ("group_from=fork", "advantage=turn_value"):
        name, _, value = gone.partition("=")
        kept = [line for line in own.splitlines() if not line.startswith(f"{name} =")]
        file.write_text("\n".join([*kept, f'{name} = "{value}"\n']))
        with pytest.raises(ConfigError, match=rf"config.toml: {gone}: .* revision 53aa2b5 has it"):
            request_resume(run, ["max_steps=5"])


def test_tasks_may_lie_elsewhere_by_now(
    ended: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, file = str(ended.directory.path), ended.directory.config
    before = file.read_text()
    monkeypatch.chdir(tmp_path)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    file.write_text(before.replace("# tasks_dir =", 'tasks_dir = "here"'))
    # The file says so now, not the person who began the run: once.
    with pytest.raises(ConfigError, match="repeat it to allow it"):
        request_resume(run, ["max_steps=5"])
    request = request_resume(run, ["max_steps=5", f"tasks_dir={tmp_path}/here"])
    assert request.config.tasks_dir == tmp_path / "here"
    assert request_resume(run, ["max_steps=5"]) == request
    with pytest.raises(ConfigError, match=r"^tasks_dir=.*there: whole was begun with .*here"):
        request_resume(run, ["max_steps=5", "tasks_dir=there"])
    (tmp_path / "here").rename(tmp_path / "moved")
    moved = request_resume(run, ["max_steps=5", "tasks_dir=moved"])
    assert moved.config.tasks_dir == tmp_path / "moved"


def test_a_run_whose_path_looks_like_a_setting_goes_on(ended: Whole) -> None:
    run = ended.directory.path.rename(ended.directory.path.with_name("lr=1e-4"))
    file = run / "config.toml"
    file.write_text(file.read_text().replace('run_name = "whole"', "# run_name ="))
    assert request_resume(str(run), ["max_steps=5"]).config.max_steps == 5
    by_name = request_resume("lr=1e-4", ["max_steps=5", f"logs_dir={run.parent}"])
    assert by_name.directory.path == run


def test_a_live_run_is_refused_with_its_process(ended: Whole) -> None:
    with (
        JournalWriter(ended.directory, continues=True),
        pytest.raises(RunDirectoryError, match=r"is live \(process \d+\)"),
    ):
        request_resume(str(ended.directory.path), ["max_steps=5"])


@pytest.mark.linux
def test_of_two_that_go_on_at_once_one_is_refused(
    ended: Whole, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another process takes the run after this one has found that nobody has it."""
    asked = request_resume(str(ended.directory.path), ["max_steps=5"])
    monkeypatch.setattr(resume, "request_resume", lambda *_: asked)
    with JournalWriter(ended.directory, continues=True):
        assert launch.resume(str(ended.directory.path), ["max_steps=5"], "json") == 2
        said = capsys.readouterr().err
    assert re.fullmatch(r"tbtui: .* is live \(process \d+\).*\n", said)
    assert ended.directory.database.exists()


def test_another_format_is_refused(ended: Whole) -> None:
    db = sqlite3.connect(ended.directory.database)
    db.execute("PRAGMA user_version = 1")
    db.close()
    with pytest.raises(JournalError, match="journal format 1, this tbtui reads 2"):
        request_resume(str(ended.directory.path), ["max_steps=5"])


def test_earlier_settings_are_kept_beside_the_new_ones(ended: Whole) -> None:
    directory, first = ended.directory, ended.directory.config.read_text()
    keep_settings(directory, ended.config())
    assert not list(directory.path.glob("config-*"))
    request = request_resume(str(directory.path), ["max_steps=5"])
    keep_settings(directory, request.config)
    request = request_resume(str(directory.path), ["max_steps=6"])
    keep_settings(directory, request.config)
    assert (directory.path / "config-1.toml").read_text() == first
    assert "max_steps = 5" in (directory.path / "config-2.toml").read_text()
    assert "max_steps = 6" in directory.config.read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_run_survives_being_killed(tmp_path: Path) -> None:
    settings = {"max_steps": "3", "group_size": "2", "save_every": "2", "eval_every": "2"}
    alone, killed, kills = experiment(tmp_path, 3, 0, 3.0, settings)
    assert len(kills) == 3
    assert differences(alone, killed) == []
