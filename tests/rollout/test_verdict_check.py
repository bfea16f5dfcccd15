"""A 0 in doubt: real trials, with verifiers that can't work and agents that break theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.journal.events import Outcome
from tbtui.rollout.messages import TrialFacts
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import DONE, ScriptedEngine, act, make_spec, make_task

pytestmark = pytest.mark.asyncio(loop_scope="session")

# As Terminal-Bench's verifiers do it: what is fetched fails, the script goes on and writes 0.
NEEDS_NETWORK = """
curl -LsSf https://astral.invalid/uv/install.sh | sh
source $HOME/.local/bin/no-such-env
no-such-uvx pytest /tests/test_outputs.py
if [ $? -eq 0 ]; then echo 1 > $R; else echo 0 > $R; fi
"""
# Its tests can begin only if the agent leaves the tools that it needs.
NEEDS_TOOLS = """
checker /app/hello.txt
if [ $? -eq 0 ]; then echo 1 > $R; else echo 0 > $R; fi
"""
CHECKER = r"""RUN printf '#!/bin/sh\ngrep -qx hi "$1"\n' > /usr/local/bin/checker
RUN chmod +x /usr/local/bin/checker
"""
WRITE_HI = "echo hi > /app/hello.txt\n"


def make(path: Path, test: str, *, solution: str | None = None, dockerfile: str = "") -> Path:
    task = make_task(path, test=test)
    with (task / "environment" / "Dockerfile").open("a") as file:
        file.write(dockerfile)
    if solution is not None:
        (task / "solution").mkdir()
        (task / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{solution}")
    return task


def found(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))


async def run(
    engine: ScriptedEngine, task: Path, folder: Path, *keys: str, **changes: object
) -> TrialFacts:
    name = f"trial-{len(found(folder, 'trials/*'))}-{folder.name}"
    script = [act(*keys)] * bool(keys) + [DONE, DONE]
    return await engine.run(make_spec(name, task, folder, **changes), script)


async def test_a_verifier_without_its_network_is_no_verdict(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    task = make(tmp_path / "task", NEEDS_NETWORK, solution=WRITE_HI)
    facts = await run(engine, task, tmp_path, WRITE_HI)
    decision = decide(facts)
    assert (decision.outcome, decision.reward) == (Outcome.VERIFIER_ERROR, None)
    assert decision.verdict == 0.0
    assert "no-such-uvx: command not found" in decision.reason
    assert "Could not resolve host" in decision.reason
    assert decision.lasting  # the sandbox has no network, and will have none


@pytest.mark.parametrize(
    "sabotage",
    [
        "rm /usr/local/bin/checker",
        "printf '#!/bin/sh\\necho checker: command not found; exit 1\\n' > /usr/local/bin/checker",
        "printf '#!/bin/sh\\necho \"curl: (6) Could not resolve host: x\"; exit 1\\n'"
        " > /usr/local/bin/checker",
    ],
)
async def test_an_agent_that_breaks_the_verifier_has_failed(
    engine: ScriptedEngine, tmp_path: Path, sabotage: str
) -> None:
    task = make(tmp_path / "task", NEEDS_TOOLS, solution=WRITE_HI, dockerfile=CHECKER)
    facts = await run(engine, task, tmp_path, f"{sabotage}\n", check_zeros="faults")
    decision = decide(facts)
    assert (decision.outcome, decision.reward) == (Outcome.FAILED, 0.0)
    assert facts.verdict_check is not None
    assert facts.verdict_check.works
    assert "its verifier works in an untouched sandbox" in decision.reason
    assert not decision.lasting


async def test_one_that_leaves_undone_what_the_verifier_needs_has_failed(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """In an untouched sandbox its verifier can't work either: that is the task."""
    solution = (
        "printf '#!/bin/sh\\ngrep -qx hi \"$1\"\\n' > /usr/local/bin/checker\n"
        "chmod +x /usr/local/bin/checker\necho hi > /app/hello.txt\n"
    )
    task = make(tmp_path / "task", NEEDS_TOOLS, solution=solution)
    facts = await run(engine, task, tmp_path, WRITE_HI, check_zeros="faults")
    decision = decide(facts)
    assert (decision.outcome, decision.reward) == (Outcome.FAILED, 0.0)
    assert "works in the solution's sandbox" in decision.reason


async def test_a_task_whose_own_solution_earns_nothing_here_is_not_scored(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Its tests run, and fail for what the sandbox lacks: an image with this release file."""
    task = make(
        tmp_path / "task",
        "if [ -e /etc/no-such-release ]; then echo 1 > $R; else echo 0 > $R; fi",
        solution=WRITE_HI,
    )
    plain = decide(await run(engine, task, tmp_path, check_zeros="faults"))
    assert (plain.outcome, plain.reward) == (Outcome.FAILED, 0.0)
    decision = decide(await run(engine, task, tmp_path, check_zeros="first"))
    assert (decision.outcome, decision.reward) == (Outcome.VERIFIER_ERROR, None)
    assert "its own solution earns no reward" in decision.reason
    assert decision.lasting


async def test_a_verifier_that_never_writes_a_verdict_is_tried_once(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Harbor's own `No working directory set` ends so. An agent that keeps its verifier from giving
    a verdict has failed: no 0 is traded for another attempt."""
    never = make(tmp_path / "never", "echo 'no working directory set'; exit 1", solution=WRITE_HI)
    decision = decide(await run(engine, never, tmp_path))
    assert (decision.outcome, decision.reward) == (Outcome.VERIFIER_ERROR, None)
    assert decision.lasting
    broken = make(tmp_path / "broken", "checker && echo 1 > $R", dockerfile=CHECKER)
    with (broken / "tests" / "test.sh").open("a") as file:
        file.write("[ -e /app/gone ] || echo 0 > $R\n")
    once = decide(
        await run(engine, broken, tmp_path, "touch /app/gone; rm /usr/local/bin/checker\n")
    )
    assert (once.outcome, once.verdict, once.reward) == (Outcome.FAILED, None, 0.0)
    assert "the agent broke its verifier" in once.reason
    assert not once.lasting


async def test_a_zero_of_a_task_that_can_be_solved_here_stands(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    test = "if grep -qx hi /app/hello.txt; then echo 1 > $R; else echo 0 > $R; fi"
    task = make(tmp_path / "task", test, solution=WRITE_HI)
    first = await run(engine, task, tmp_path, check_zeros="first")
    assert first.verdict_check is not None
    assert first.verdict_check.works
    assert decide(first).reason.endswith("the verifier said 0")
    controls = found(tmp_path, "trials/*/controls/*")
    assert [path.name.rpartition("-")[2] for path in controls] == ["oracle"]
    again = await run(engine, task, tmp_path, check_zeros="first")
    assert decide(again).reward == 0.0
    assert len(found(tmp_path, "trials/*/controls/*")) == 1  # proved once
    solved = await run(engine, task, tmp_path, WRITE_HI, check_zeros="first")
    assert solved.verdict_check is None
    assert decide(solved).outcome is Outcome.SOLVED


async def test_nothing_is_checked_where_the_verdict_does_not_matter(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    task = make(tmp_path / "task", NEEDS_NETWORK, solution=WRITE_HI)
    late = await run(engine, task, tmp_path, "sleep 30\n", max_turns=1)
    assert late.finish == "max_turns"
    assert late.verdict_check is None
    never = await run(engine, task, tmp_path, check_zeros="never")
    assert never.verdict_check is None
