"""`tbtui whatif` on a journal, as a person runs it."""

from __future__ import annotations

import json
import shutil
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tbtui.algorithm.advantages import advantages
from tbtui.cli import app
from tbtui.config import RunConfig, to_json
from tbtui.journal.events import GroupScored, StepFinished, TrialScore
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.events import run_started, sample_record, trial_finished, trial_queued


def whatif(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["whatif", *map(str, arguments)], env={"COLUMNS": "80"})


def start(writer: JournalWriter, config: RunConfig) -> None:
    writer.append(run_started(run="r", tasks=(), settings=to_json(config)))


def sample(writer: JournalWriter, trial: str, turns: int, version: int) -> None:
    prompt: tuple[int, ...] = (1, 2)
    for turn in range(1, turns + 1):
        drawn = (3, 4, 5)
        writer.add_sample(
            sample_record(
                trial,
                turn=turn,
                prompt_ids=prompt,
                completion_ids=drawn,
                logprobs=np.full(3, -0.5, np.float32),
                pieces=("a", "b", "c"),
                weights_version=version,
            )
        )
        prompt = (*prompt, *drawn, 6)


def train(
    writer: JournalWriter,
    step: int,
    rewards: Sequence[Sequence[float | None]],
    *,
    sampled_by: int,
    config: RunConfig,
    prefix: str = "copy",
) -> None:
    """A step whose trials took as many turns as they have siblings before them, and one more."""
    results = advantages(rewards, config.advantage, config.min_group)
    for number, (group, result) in enumerate(zip(rewards, results, strict=True), 1):
        task = f"{prefix}-0{number}"
        scores = {}
        for place, (reward, advantage) in enumerate(zip(group, result.advantages, strict=True), 1):
            trial = f"s{step:04d}-{task}-{place}"
            writer.append(
                trial_queued(
                    trial,
                    label=f"{task}/{place}",
                    task=task,
                    group=f"s{step:04d}-{task}",
                    step=step,
                )
            )
            sample(writer, trial, place, sampled_by)
            writer.append(trial_finished(trial, reward, turns=place))
            scores[trial] = TrialScore(reward=reward, advantage=advantage, tokens=3 * place)
        writer.append(
            GroupScored(
                step=step,
                group=f"s{step:04d}-{task}",
                task=task,
                disposition=result.disposition,
                baseline=result.baseline,
                trials=scores,
            )
        )
    metrics = {"optim/clip_fraction": 0.125, "optim/kl_sample_train_v2": 1e-7}
    metrics["optim/max_logprob_gap"] = 1e-6 if sampled_by == step - 1 else 0.5
    writer.append(StepFinished(step=step, weights_version=step, metrics=metrics))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Step 1 on policy, step 2 with samples that are one step old."""
    config = RunConfig(batch_size=3, group_size=4)
    directory = RunDirectory.create(tmp_path / "run")
    with JournalWriter(directory) as writer:
        start(writer, config)
        rewards: list[list[float | None]] = [[1, 0, 0, None], [1, 1, 1, 1], [1, 0, 1, 0]]
        train(writer, 1, rewards, sampled_by=0, config=config)
        train(writer, 2, rewards[:1], sampled_by=0, config=config)
    return directory.path


def document(*arguments: str | Path) -> dict[str, Any]:
    result = whatif(*arguments, "--json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


def test_a_step_side_by_side_fits_80_columns(run: Path) -> None:
    result = whatif(run, "--step", "1", "--advantage", "std", "--normalizer", "trial")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "Step 1 of run" in lines[0]
    text = " ".join(result.stdout.split())
    assert "advantage centred -> std" in text
    assert "copy-01/1 1 3 +0.667" in text
    assert "copy-01/4 - 12 left out left out" in text
    assert "copy-02 (all 4) 1 30 0 0.0% 0 0.0%" in text
    assert "every ratio is 1" in text
    assert "clip_fraction 0.125" in text
    assert text.endswith(
        "This shows one step's surrogate loss on the rollouts that were recorded, not what would"
        " have been learned: other settings lead to other weights, and those to other rollouts."
    )


def test_long_names_leave_room_for_the_numbers(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    config = RunConfig()
    with JournalWriter(directory) as writer:
        start(writer, config)
        train(writer, 1, [[1, 0], [1, 1]], sampled_by=0, config=config, prefix="a-long-name" * 9)
    lines = whatif(directory.path).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[1] for line in lines if "…/" in line] == ["1", "0"]
    assert any("… (all 2)" in line for line in lines)


def test_the_numbers_are_those_of_the_definitions(run: Path) -> None:
    found = document(run, "--step", "1", "--advantage", "leave_one_out", "--normalizer", "trial")
    by_trial = {row["trial"]: row for row in found["trials"]}
    row = by_trial["copy-01/1"]
    assert row["trained"]["advantage"] == pytest.approx(2 / 3)
    assert row["what_if"]["advantage"] == pytest.approx(1.0)
    # 78 action tokens have a part in the mean, or 11 trials.
    assert found["totals"]["trained"]["divisor"] == 78
    assert found["totals"]["what_if"]["divisor"] == 11
    assert row["trained"]["gradient"] == pytest.approx(3 * (2 / 3) / 78)
    assert row["what_if"]["gradient"] == pytest.approx(1.0 / 11)
    assert by_trial["copy-01/4"]["what_if"]["advantage"] is None
    for side in ("trained", "what_if"):
        assert sum(row[side]["share"] for row in found["trials"]) == pytest.approx(1)
        assert found["totals"][side]["clip_fraction"] == 0.0
        assert found["totals"][side]["learning_trials"] == 7


@pytest.mark.parametrize("step", ["1", "2"])
def test_without_changes_nothing_differs(run: Path, step: str) -> None:
    for row in document(run, "--step", step)["trials"]:
        assert row["trained"] == row["what_if"]


def test_a_loss_makes_no_difference_at_a_ratio_of_one(run: Path) -> None:
    found = document(run, "--step", "1", "--loss", "ppo", "--clip-low", "0.01")
    assert found["settings"]["what_if"]["loss_fn"] == "ppo"
    assert all(row["trained"] == row["what_if"] for row in found["trials"])


def test_stale_tokens_have_no_known_clip_fraction(run: Path) -> None:
    found = document(run, "--loss", "ppo")
    assert found["step"] == 2
    assert {row["what_if"]["clip_fraction"] for row in found["trials"]} == {None}
    result = whatif(run, "--loss", "ppo")
    assert "4 of 4 trials taught nothing and met other weights" in " ".join(result.stdout.split())


def test_penalties_that_were_in_force_shape_the_rewards(tmp_path: Path) -> None:
    config = RunConfig(turn_penalty=0.1)
    directory = RunDirectory.create(tmp_path / "run")
    with JournalWriter(directory) as writer:
        start(writer, config)
        train(writer, 1, [[1, 1]], sampled_by=0, config=config)
    found = document(directory.path)
    assert any("penalties taken off" in note for note in found["notes"])
    rows = found["trials"]
    assert [row["reward"] for row in rows] == pytest.approx([0.9, 0.8])
    assert [row["what_if"]["advantage"] for row in rows] == pytest.approx([0.05, -0.05])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "nowhere: no such run, and none at all in runs"),
        (["{run}", "--step", "9"], "step 9 has no scored groups; choose --step from 1 to 2"),
        (["{run}", "--loss", "mse"], "loss_fn=mse: should be importance_sampling"),
        (["{run}", "--normalizer", "word"], "loss_normalizer=word: should be token"),
        (["{run}", "--clip-low", "2"], "clip_low=2.0: should be"),
        (["{broken}"], "run.db: can't be read (file is not a database)"),
        (["{empty}"], "no group has been scored in this run yet"),
        (["{uneven}"], "(a model call's tokens) is corrupt"),
        (["{textless}"], "(a model call's tokens) is corrupt"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)  # where the tests are run from there may be runs
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "run.db").write_bytes(b"not a database, however long it may be" * 9)
    empty = RunDirectory.create(tmp_path / "empty")
    JournalWriter(empty).close()
    for name, column, value in (
        ("uneven", "logprobs", b"\0" * 4),
        ("textless", "pieces", zlib.compress(b"[]")),
    ):
        shutil.copytree(run, tmp_path / name)
        with closing(sqlite3.connect(tmp_path / name / "run.db", autocommit=True)) as db:
            db.execute(f"UPDATE samples SET {column} = ?", (value,))
    copies = {name: tmp_path / name for name in ("uneven", "textless")}
    places = {"run": run, **copies, "broken": broken, "empty": empty.path}
    result = whatif(*(argument.format(**places) for argument in arguments))
    assert result.exit_code == 2
    assert result.stderr.startswith("tbtui: ")
    assert complaint in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout
