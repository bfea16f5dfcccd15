"""A run with any combination of settings and of people's doings goes on after any of its events.

`TBTUI_EXAMPLES=300 uv run pytest -n 0 -m slow tests/engines/test_any_combination.py` draws so many
others.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbtui.engines.grpo.engine import GrpoEngine
from tbtui.journal.commands import Command
from tbtui.journal.demonstrations import DemonstratedAnswer, Demonstration, Demonstrations
from tbtui.journal.events import (
    AgentCommand,
    AnyEvent,
    CommandDone,
    CommandIssued,
    ForksStarted,
    ReviewClosed,
    StepFinished,
    StepStarted,
    TrialFinished,
    TurnsValued,
)
from tbtui.journal.rundir import RunDirectory
from tbtui.rollout.messages import TrialSpec

from .conftest import TASKS
from .fakes import FakePool
from .test_honeypots import BAIT
from .test_resume import (
    SPLIT,
    Part,
    Script,
    by_what_it_says,
    require_order,
    stumbling,
    typed_in,
    useful_ends,
)
from .test_review import Attended, again, busy

EXAMPLES = os.environ.get("TBTUI_EXAMPLES")
SCRIPTS: dict[str, Script] = {
    "plain": by_what_it_says,
    "stumbling": stumbling,
    "typed in": typed_in,
}
DECISIONS: dict[str, Any] = {"nothing": lambda *_: None, "busy": busy, "again": again}
SHOWN = Demonstration(
    trial="s0000-copy-0-1",
    task=TASKS[0].name,
    turn=1,
    step=0,
    actor="ada",
    time=0.0,
    messages=(),
    prompt_ids=(1, 2, 3),
    tokenizer=None,
    answer=DemonstratedAnswer(commands=(AgentCommand(keystrokes="ls\n", duration_sec=0.1),)),
    status="accepted",
)


@dataclass(frozen=True)
class Combination:
    """A run's settings, how its trials go, and what people do."""

    settings: dict[str, Any]
    play: str
    decide: str
    forks: int | str | None
    """Asked for once, as trials of a later step begin."""

    @property
    def repeats(self) -> bool:
        """Nothing depends on which trials end first: two uncut runs end the same."""
        return not any(map(self.settings.get, ("max_steps_off_policy", "oversample", "stream")))


@st.composite
def combinations(draw: st.DrawFn) -> Combination:
    """What can be combined; the settings of one feature are drawn only where it is on."""
    play, off_policy = draw(st.sampled_from(list(SCRIPTS))), draw(st.integers(0, 2))
    review = draw(st.sampled_from(["off", "suspects", "always"]))
    chosen: dict[str, Any] = {
        "save_every": draw(st.integers(1, 3)),
        "max_steps": draw(st.integers(2, 4)),
        "max_steps_off_policy": off_policy,
        "eval_every": draw(st.integers(0, 2)),
        "num_substeps": draw(st.integers(1, 2)),
        "replace_constant_groups": draw(st.integers(0, 1)),
        "oversample": draw(st.integers(0, 1)),
        "task_sampling": draw(st.sampled_from(["uniform", "learnability", "thompson"])),
        "group_size": draw(st.sampled_from([2, 4])),
        "n_parallel_envs": draw(st.sampled_from([3, 32])),
        "honeypots": draw(st.sampled_from([0.0, 0.4])),
        "demos": draw(st.sampled_from(["off", "train"])),
        "train_after_handback": draw(st.booleans()),
        "review": review,
        "stream": review == "off" and draw(st.booleans()),
        "max_retries": 1,
    }
    if chosen["group_size"] == 4:
        chosen["screen_trials"] = draw(st.sampled_from([0, 2]))
    decide = "nothing" if review == "off" else draw(st.sampled_from(list(DECISIONS)))
    return Combination(chosen, play, decide, draw(st.sampled_from([None, 1, 2, "bisect", "all"])))


@dataclass
class Combined(Attended):
    """A run of a combination."""

    combination: Combination = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        self.script = self._play
        self._asked = False

    async def attend(self, engine: GrpoEngine) -> None:
        self._engine = engine
        await super().attend(engine)

    def _play(self, pool: FakePool, spec: TrialSpec) -> object:
        if spec.origin is not None:
            return by_what_it_says(pool, spec)
        if self.combination.forks is not None and not spec.trial.startswith(("e", "s0001-")):
            self._ask_for_forks()
        return SCRIPTS[self.combination.play](pool, spec)

    def _ask_for_forks(self) -> None:
        if self._asked or any(event.verb == "fork" for event in self.events(CommandIssued)):
            return
        rewarded = [e.trial for e in self.events(TrialFinished) if e.reward is not None]
        trained = [trial for trial in rewarded if trial.startswith("s")]
        if trained:
            self._asked = True
            wanted = {"turn": self.combination.forks, "trials": 2}
            self._engine.queue.submit(Command("fork", trained[0], "ada", arguments=wanted))

    def require_forks(self) -> None:
        """Those that were promised have come, each to its end."""
        ends, begun = useful_ends(self), self.events(ForksStarted)
        for group in begun:
            assert sum(n for place, n in ends.items() if place[0] == group.group) == group.trials
        asked = {e.command for e in self.events(CommandIssued) if e.verb == "fork"}
        if any(done.ok and done.command in asked for done in self.events(CommandDone)):
            assert begun
        assert len(self.events(TurnsValued)) == any(group.search for group in begun)


def combined(where: Path, combination: Combination) -> Combined:
    split = SPLIT
    if combination.settings["honeypots"]:
        split = dataclasses.replace(SPLIT, honeypots=(BAIT,))
    whole = Combined(
        RunDirectory.create(where / "whole"),
        combination.settings,
        by_what_it_says,
        DECISIONS[combination.decide],
        split=split,
        combination=combination,
    )
    if combination.settings["demos"] == "train":
        Demonstrations(whole.directory).write(SHOWN)
    return whole


def require_same(whole: Combined, part: Part, copy: Combined, resumed: Part) -> None:
    """The resumed run has ended as the uncut one, as far as such a run repeats itself."""
    require_order(copy)
    copy.require_forks()
    closed = [event.step for event in copy.events(ReviewClosed)]
    assert len(set(closed)) == len(closed)
    steps = [event.step for event in whole.events(StepFinished)]
    assert [event.step for event in copy.events(StepFinished)] == steps
    if whole.combination.repeats:
        assert copy.outcome() == whole.outcome()
        assert resumed.policy.weights == part.policy.weights


async def cut_and_resumed(combination: Combination, cuts: list[int]) -> None:
    """Cut the run off after each event, and what comes of the last once more."""
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        whole = combined(where, combination)
        part = await whole.begin()
        length = whole.length()
        require_same(whole, part, whole, part)
        for number, cut in enumerate(cuts):
            last = cut % (length + 1)
            copy = whole.cut(where / f"copy-{number}", last)
            trained = [event.weights_version for event in copy.events(StepFinished)]
            resumed = await copy.resume()
            require_same(whole, part, copy, resumed)
            for version in trained:  # trained again, it is what it was
                now = resumed.policy.versions.get(version)
                assert now in (None, part.policy.versions[version])
        again = copy.cut(where / "again", last + cuts[0] % (copy.length() - last + 1))
        require_same(whole, part, again, await again.resume())


PLAIN = {"save_every": 1, "max_steps": 3, "eval_every": 0, "honeypots": 0.0, "demos": "off"}


@pytest.mark.parametrize(
    ("changed", "forks", "after"),
    [
        ({"honeypots": 0.4, "batch_size": 3}, None, StepStarted),
        ({}, "all", CommandDone),
        ({"save_every": 2}, 2, ForksStarted),
    ],
)
async def test_cut_off_where_it_once_could_not_go_on(
    tmp_path: Path, changed: dict[str, Any], forks: str | int | None, after: type[AnyEvent]
) -> None:
    whole = combined(tmp_path, Combination({**PLAIN, **changed}, "plain", "nothing", forks))
    part = await whole.begin()
    last = max(entry.seq for entry in whole.entries() if isinstance(entry.event, after))
    copy = whole.cut(tmp_path / "copy", last)
    require_same(whole, part, copy, await copy.resume())


@pytest.mark.slow
@pytest.mark.timeout(0 if EXAMPLES else 300)
@settings(max_examples=int(EXAMPLES or 12), derandomize=not EXAMPLES, print_blob=True)
@given(combinations(), st.lists(st.integers(0, 10_000), min_size=6, max_size=6))
def test_cut_off_anywhere_it_ends_as_if_it_had_not_been(
    combination: Combination, cuts: list[int]
) -> None:
    asyncio.run(cut_and_resumed(combination, cuts))
