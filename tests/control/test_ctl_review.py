"""`tbtui ctl` and a step under review."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, override

import pytest

from tbtui.engines.grpo.trials import TrialRunner
from tbtui.journal.events import (
    CommandIssued,
    GroupScored,
    ReviewClosed,
    ReviewOpened,
    TrialRelabelled,
)
from tbtui.rollout.messages import TrialSpec
from tests.engines.fakes import FakePool, facts
from tests.waiting import until

from .bench import LiveRun
from .conftest import Ctl, asked


def flaky(pool: FakePool, spec: TrialSpec) -> object:
    """All say the same without a command; the third is failed."""
    return pool.end(spec, facts(0.0 if spec.trial.endswith("-3") else 1.0))


class ReviewedRun(LiveRun):
    @override
    def _pool(self, _: object, runner: TrialRunner[Any]) -> FakePool:
        return FakePool(runner, flaky)


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[ReviewedRun]:
    """Waits for a look at the first step."""
    run = ReviewedRun(tmp_path / "runs" / "r", review="suspects", group_size=3, eval_every=0)
    await run.begin()
    await until(lambda: run.events(ReviewOpened))
    yield run
    await run.stop()


async def test_an_open_review_is_shown_and_answered(live: ReviewedRun, ctl: Ctl) -> None:
    (review,) = (await asked(ctl, "group", "list"))["reviews"]
    (group,) = review["groups"]
    first, _, third = group["trials"]
    assert review["step"] == 1
    assert review["undecided"] == [*group["trials"]]
    assert group["trials"][third]["suspects"] == ["flaky_verdict"]
    assert group["trials"][first]["suspects"] == ["no_commands"]
    assert "why" not in group["trials"][third]
    (shown,) = (await asked(ctl, "run", "show"))["reviews"]
    assert shown["undecided"] == review["undecided"]
    lines = (await ctl("run", "show")).stdout
    assert "step 1, 3 of 3 trials undecided" in lines
    table = (await ctl("group", "list", "--content")).stdout.splitlines()
    assert table[1].split()[:3] == ["1", group["group"], "trained"]
    assert f"{third}* verdict 0; 2 of 2 siblings that said the same" in table[1]

    done = await asked(ctl, "trial", "relabel", third, "--reward", "0.5", "--reason", "flaky")
    assert done["ok"]
    (relabelled,) = live.events(TrialRelabelled)
    assert (relabelled.reward, relabelled.before, relabelled.reason) == (0.5, 0.0, "flaky")
    assert (await asked(ctl, "trial", "show", third))["relabelled"]
    await asked(ctl, "trial", "accept", first)
    (review,) = (await asked(ctl, "group", "list"))["reviews"]
    assert len(review["undecided"]) == 1

    would = await asked(ctl, "run", "accept", "--dry-run")
    assert (would["ok"], would["changed"]) == (True, False)
    refused = await asked(ctl, "run", "accept", "--step", "7", status=1)
    assert refused["result"] == "step 7 is not under review"
    assert not live.events(ReviewClosed)
    await asked(ctl, "run", "accept", "--step", "1", "--reason", "looked at")
    (closed,) = live.events(ReviewClosed)
    assert (closed.step, closed.how, closed.reason) == (1, "accepted", "looked at")
    await until(lambda: live.events(GroupScored))
    assert live.events(GroupScored)[0].trials[third].reward == 0.5
    assert live.events(CommandIssued)[-1].arguments == {"step": 1}


async def test_a_group_is_refilled_and_a_relabelling_taken_back(
    live: ReviewedRun, ctl: Ctl
) -> None:
    group = live.events(ReviewOpened)[0].groups[0]
    first, second, _ = group.trials
    refused = await asked(ctl, "group", "refill", group.group, status=1)
    assert group.group in refused["result"]
    await asked(ctl, "trial", "exclude", first)
    await asked(ctl, "trial", "relabel", second, "--reward", "0", "--reason", "so")
    await asked(ctl, "trial", "relabel", second, "--verdict")
    assert [event.reward for event in live.events(TrialRelabelled)] == [0.0, 1.0]
    assert not (await asked(ctl, "trial", "show", second))["relabelled"]
    await asked(ctl, "group", "refill", group.group)
    await until(lambda: len(live.events(ReviewOpened)) == 2)
    assert len(live.events(ReviewOpened)[1].groups[0].trials) == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("trial", "relabel", "t"), "give --reward R, or --verdict"),
        (("trial", "relabel", "t", "--reward", "1", "--verdict"), "give --reward R, or --verdict"),
        (("trial", "relabel", "t", "--reward", "1"), "say why with --reason"),
        (
            ("trial", "relabel", "t", "--reward", "nan", "--reason", "x"),
            "--reward nan: should be a finite number",
        ),
        (("group", "refill", "g"), "no live run"),
        (("run", "accept", "--step", "0"), "--step"),
    ],
)
async def test_what_makes_no_sense_is_bad_input(
    ctl: Ctl, arguments: tuple[str, ...], complaint: str
) -> None:
    result = await ctl(*arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


async def test_a_group_that_is_not_there_is_bad_input(live: ReviewedRun, ctl: Ctl) -> None:
    group = live.events(ReviewOpened)[0].groups[0].group
    result = await ctl("group", "refill", group + "x")
    assert result.exit_code == 2
    assert f"did you mean '{group}'?" in result.stderr
