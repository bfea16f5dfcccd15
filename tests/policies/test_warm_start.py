"""How the shipped checkpoint was made, and what it can do."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tbtui.policies.local.learner import Learner
from tbtui.policies.local.model import ModelConfig, Parameters
from tbtui.policies.local.renderer import (
    LocalRenderer,
    harbor_directory,
    preamble_of,
    read_template,
)
from tbtui.policies.local.tokenizer import SHIPPED, TOKENIZER, LocalTokenizer
from tests.by_hand.starter.demonstrations import (
    Turn,
    flawed_demonstration,
    good_demonstration,
)
from tests.by_hand.starter.simulated_terminal import SimulatedTerminal
from tests.by_hand.starter.warm_start import (
    FLAWED_SHARE,
    Demonstrator,
    Phase,
    encode_demonstration,
    imitate,
    make_tokenizer,
)
from tests.by_hand.starter.world import KINDS, draw_task
from tests.by_hand.starter.write import starter_tasks
from tests.policies.simulation import simulate

PREAMBLE = preamble_of(read_template(harbor_directory()))


def commands_of(turns: list[Turn]) -> list[str]:
    """The keystrokes of every answer that can be read."""
    keys = []
    for turn in turns:
        try:
            said = json.loads(turn.answer)
        except ValueError:
            continue
        keys += [command["keystrokes"] for command in said["commands"]]
    return keys


@pytest.mark.parametrize("good", [True, False])
def test_good_demonstrations_reach_the_goal_and_flawed_ones_never(good: bool) -> None:
    rng = random.Random(0)
    for _ in range(400):
        task = draw_task(rng)
        turns = (good_demonstration if good else flawed_demonstration)(rng, task, PREAMBLE)
        terminal = SimulatedTerminal(task.files)
        for keys in commands_of(turns):
            terminal.type(keys)
        assert (terminal.tree == dict(task.goal)) == good, (task, turns)
        if good:
            assert json.loads(turns[-1].answer)["task_complete"] is True


def test_simulated_terminal_prints_what_bash_prints() -> None:
    terminal = SimulatedTerminal({"a.txt": "one\ntwo\n"})
    for keys in ("wc -l a.txt\n", "cp b.txt c.txt\n", "echo x > d/e\n", "mkdir a.txt\n", "ls"):
        terminal.type(keys)
    assert terminal.look() == (
        "root@box:/app# wc -l a.txt\n2 a.txt\n"
        "root@box:/app# cp b.txt c.txt\ncp: cannot stat 'b.txt': No such file or directory\n"
        "root@box:/app# echo x > d/e\nbash: d/e: No such file or directory\n"
        "root@box:/app# mkdir a.txt\nmkdir: cannot create directory 'a.txt': File exists\n"
        "root@box:/app# ls"
    )


def test_held_out_tasks_are_never_demonstrated() -> None:
    held_out = {named.task.instruction for named in starter_tasks() if named.split == "heldout"}
    demonstrator = Demonstrator(0, PREAMBLE)
    shown = {demonstrator.task().instruction for _ in range(3000)}
    assert not shown & held_out


@pytest.mark.slow
def test_the_tokenizer_is_reproduced_byte_for_byte(tmp_path: Path) -> None:
    make_tokenizer(tmp_path / "tokenizer.json", PREAMBLE, seed=0)
    assert (tmp_path / "tokenizer.json").read_bytes() == TOKENIZER.read_bytes()


@pytest.mark.slow
def test_imitation_learns_and_is_reproducible(tokenizer: LocalTokenizer) -> None:
    config = ModelConfig(vocab_size=tokenizer.vocab_size, width=32, layers=1, heads=2)
    phase = Phase("skill", 12, 1e-2, FLAWED_SHARE, with_terminal=True)
    reports: list[str] = []
    weights = []
    for _ in range(2):
        parameters = Parameters.initial(config, 0)
        demonstrate = partial(Demonstrator(1, PREAMBLE).demonstrate, FLAWED_SHARE)
        imitate(parameters, tokenizer, demonstrate, phase, reports.append)
        weights.append(parameters.flat)
    np.testing.assert_array_equal(weights[0], weights[1])
    assert float(reports[0].split()[3]) < 6.6  # from ln 1024 = 6.9


def test_only_answers_are_imitated(tokenizer: LocalTokenizer) -> None:
    turns = [Turn("ask", "bad", imitate=False), Turn("again", "good")]
    sequence = encode_demonstration(tokenizer, turns, with_terminal=False)
    trained = [int(id) for id in sequence.tokens[sequence.trained]]
    assert "".join(tokenizer.pieces(trained)) == "good<|end|>"


@pytest.mark.slow
def test_the_shipped_policy_starts_unsure_but_with_every_kind_within_reach(
    tokenizer: LocalTokenizer,
) -> None:
    learner = Learner(SHIPPED, tokenizer.digest, tokenizer.end_id, threads=2)
    tasks = [named.task for named in starter_tasks() if named.split == "heldout"] * 10
    trials = simulate(learner, LocalRenderer(tokenizer), PREAMBLE, tasks)
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for trial in trials:
        by_kind[trial.task.kind].append(bool(trial.solved))
    rates = {kind: float(np.mean(solved)) for kind, solved in by_kind.items()}
    assert set(rates) == set(KINDS)
    assert all(0.1 <= rate <= 0.65 for rate in rates.values()), rates
    assert 0.25 <= float(np.mean(list(rates.values()))) <= 0.40, rates
