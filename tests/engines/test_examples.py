"""Solved training tasks in the small agent's prompt: chosen, performed in real trials, kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tbtui.catalog.load import TaskInfo
from tbtui.catalog.split import split_tasks
from tbtui.catalog.tasks import discover
from tbtui.commands.evaluate import Weights, weights_config
from tbtui.config import ConfigError, RunConfig, parse_settings, to_toml
from tbtui.config.values import absolute
from tbtui.engines.agent_checks import agent_problems, check_agent_of, read_kept_examples
from tbtui.engines.grpo.examples import candidates
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.run import Run
from tbtui.journal.commands import RunEnd
from tbtui.journal.events import Noted, TrialQueued
from tbtui.journal.rundir import RunDirectory
from tbtui.policies.base import PolicyInfo
from tbtui.resources import tasks_dir
from tests.events import events_of

from .conftest import task
from .fakes import RotePolicy
from .real_run import SANDBOX

STARTER = discover(tasks_dir() / "starter").require_tasks()


class ExampleRun:
    """Runs of a step of the starter tasks, of a model that says at once that it is done."""

    def __init__(self, where: Path, **settings: Any) -> None:
        self.directory = RunDirectory.create(where)
        self.policy = RotePolicy(lambda _: "DONE")
        defaults: dict[str, Any] = {"batch_size": 1, "group_size": 2, "eval_every": 0}
        config = RunConfig(
            **defaults, agent="shell", max_steps=1, n_workers=1, save_every=1, **settings
        )
        self.directory.config.write_text(to_toml(config))
        split = split_tasks(STARTER, eval_split=0, seed=0, eval_tasks=["copy-07"])
        self.prepared = PreparedRun(
            config, tasks_dir() / "starter", split, (), SANDBOX, self.directory
        )

    async def run(self, max_steps: int = 1, *, resumed: bool = False) -> RunEnd:
        config = self.prepared.config.replace(max_steps=max_steps)
        prepared = dataclasses.replace(self.prepared, config=config, resumed=resumed)
        return await Run(prepared, lambda *_: self.policy).run()

    @property
    def examples(self) -> list[str]:
        """The instructions of those that are kept."""
        text = self.directory.agent_examples.read_text()
        return [line for line in text.splitlines() if line.startswith("Task: ")]

    def prompts(self) -> list[str]:
        asked = ("".join(map(chr, each.prompt_ids)) for each in self.policy.requests)
        return [prompt for prompt in asked if prompt.count("<user>") == 1]

    def chosen(self) -> list[str]:
        """The tasks that the journal names."""
        notes = [e.text for e in events_of(self.directory, Noted) if "performed" in e.text]
        return [note.partition(": ")[2].partition(", performed")[0] for note in notes]


@pytest.mark.slow
async def test_training_tasks_are_performed_once_and_shown_from_then_on(tmp_path: Path) -> None:
    run = ExampleRun(tmp_path / "run", agent_examples="3")
    assert (await run.run()).status == "finished"
    (named,) = run.chosen()
    by_name = {task.name: task for task in run.prepared.split.train}
    shown = [by_name[name].instruction.strip() for name in named.split(", ")]
    assert [f"Task: {each}" for each in shown] == run.examples
    assert len({by_name[name].kind for name in named.split(", ")}) == 3
    text = run.directory.agent_examples.read_text()
    assert text.count("New Terminal Output:\nroot@") == 3  # what the terminal really showed
    first = run.prompts()[0]
    others = [each for each in shown if not first.rstrip().endswith(f"Task: {each}")]
    assert all(f"Task: {each}\n```bash\n" in first for each in others)
    # They are no trials of the run.
    assert not [e for e in events_of(run.directory, TrialQueued) if "example" in e.trial]
    assert not [*run.directory.trials.glob("*example*")]

    asked = len(run.policy.requests)
    assert (await run.run(2, resumed=True)).status == "finished"
    assert run.chosen() == [named]
    assert run.directory.agent_examples.read_text() == text
    later = "".join(map(chr, run.policy.requests[asked].prompt_ids))
    assert sum(each in later for each in run.examples) >= 2

    config = weights_config(Weights("", run=run.directory), [])
    assert config.agent_examples == str(run.directory.agent_examples)


def test_examples_of_a_strangers_run_are_no_link_and_text(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("Task: x\n```bash\nls\n```\nDONE\n")
    run.agent_examples.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match=r"agent-examples\.txt"):
        read_kept_examples(run.agent_examples)
    assert weights_config(Weights("", run=run), []).agent_examples == "0"
    run.agent_examples.unlink()
    run.agent_examples.write_bytes(b"Task: \xff")
    with pytest.raises(ConfigError, match="no text in UTF-8"):
        read_kept_examples(run.agent_examples)


@pytest.mark.slow
async def test_a_prompt_without_room_for_them_is_refused_in_one_line(tmp_path: Path) -> None:
    run = ExampleRun(tmp_path / "run", agent_examples="2", max_tokens=64)
    run.policy.info = PolicyInfo("rote", "rote", None, 600, ("importance_sampling",))
    end = await run.run()
    assert end.status == "refused"
    assert end.reason.startswith("agent_examples=2: the prompt with them has ")
    assert end.reason.endswith(
        "tokens, and the context of 600 leaves it 536 beside an answer of max_tokens=64: give"
        " fewer, or shorter ones"
    )


def of(kind: str, number: int, solution: str, where: Path) -> TaskInfo:
    made = dataclasses.replace(task(f"{kind}-{number}"), path=where / f"{kind}-{number}")
    (made.path / "solution").mkdir(parents=True)
    (made.path / "solution" / "solve.sh").write_text(solution)
    return made


def test_one_of_each_kind_comes_before_the_second_of_any(tmp_path: Path) -> None:
    kinds = ("copy", "move", "create")
    tasks = [of(kind, n, f"cp {n} b\n", tmp_path) for kind in kinds for n in range(4)]
    orders = [[each.name for each, _ in candidates(tasks, seed)] for seed in range(5)]
    for order in orders:
        assert {name.partition("-")[0] for name in order[:3]} == set(kinds)
        assert sorted(order) == sorted(each.name for each in tasks)
    assert len(set(map(tuple, orders))) > 1
    assert orders[0] == [each.name for each, _ in candidates(tasks[::-1], 0)]


@pytest.mark.parametrize(
    ("script", "block"),
    [
        ("#!/bin/bash\nset -e\ncd /app || exit 1\n\n# copy\ncp a b\n", "cp a b"),
        ("cd sub || exit 1\ncp a b\n", "cd sub\ncp a b"),
        ("cp a b || exit 2", "cp a b"),
        ("install -m 755 /solution/rotate /app/rotate", ""),
        ("[ -e a ] || { cp a b; exit 0; }", ""),
        ("".join(f"echo {n}\n" for n in range(9)), ""),
        ("echo " + "x" * 500, ""),
        ("#!/bin/bash\n", ""),
    ],
)
def test_the_commands_of_a_solution(tmp_path: Path, script: str, block: str) -> None:
    found = candidates([of("copy", 1, script, tmp_path)], 0)
    assert [each for _, each in found] == ([block] if block else [])


EXAMPLE = "Task: Copy it.\n```bash\ncp a b\n```\nDONE\n"


@pytest.mark.parametrize(
    ("given", "content", "said"),
    [
        ("9", None, "agent_examples=9: 0 to 8, or a file of examples"),
        ("nowhere.txt", None, "agent_examples=nowhere.txt: No such file or directory: give 0"),
        (".", None, "agent_examples=.: "),
        ("own.txt", b"Copy it.", "agent_examples=own.txt: there is no example in it: a line"),
        ("own.txt", b"\xff\xfe", "agent_examples=own.txt: it is no text in UTF-8"),
        ("own.txt", EXAMPLE.encode(), ""),
        ("8", None, ""),
    ],
)
def test_what_is_no_choice_of_examples_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, content: bytes | None, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("own.txt").write_bytes(content)
    config = parse_settings(["agent=shell", f"agent_examples={given}"])
    problems = [each.text for each in agent_problems(config)]
    try:
        check_agent_of(config)
    except ConfigError as error:
        problems.append(str(error))
    assert len(problems) == bool(said)
    assert not said or problems[0].startswith(said)
    if content is not None:
        assert absolute(config).agent_examples == str(tmp_path / "own.txt")


def test_other_agents_have_none() -> None:
    problems: Sequence[str] = [
        each.text for each in agent_problems(parse_settings(["agent_examples=2"]))
    ]
    assert problems == ["agent_examples: not used by agent=terminus-2; agent=shell has them"]
