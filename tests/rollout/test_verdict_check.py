"""A 0 in doubt: real trials, with verifiers that can't work and agents that break theirs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.journal.events import Outcome
from tbtui.rollout.messages import TrialFacts
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import DONE, Script, ScriptedEngine, act, make_spec
from tests.tasks import make_task

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
    assert decision.unusable  # the sandbox has no network, and will have none


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
    assert not decision.unusable


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
    assert decide(await run(engine, task, tmp_path, check_zeros="faults")).reward == 0.0
    decision = decide(await run(engine, task, tmp_path, check_zeros="first"))
    assert (decision.outcome, decision.reward) == (Outcome.VERIFIER_ERROR, None)
    assert "its own solution earns no reward" in decision.reason
    assert decision.unusable


async def test_where_failures_are_negative_none_is_better_for_being_unclean(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    test = (
        "if checker; then echo 1 > $R; else echo -1 > $R; fi\n"
        "[ ! -e /app/gone ] || { rm $R; exit 1; }\n"
    )
    checker = "RUN printf '#!/bin/sh\\nfalse\\n' > /usr/bin/checker && chmod +x /usr/bin/checker\n"
    task = make(tmp_path / "task", test, dockerfile=checker)
    scripts: dict[str, Script] = {
        "clean": [DONE, DONE],
        "exit": [act("exit\n")],
        "prevented": [act("touch /app/gone\n"), DONE, DONE],
    }
    for name, script in scripts.items():
        spec = make_spec(f"{name}-{tmp_path.name}", task, tmp_path)
        decision = decide(await engine.run(spec, script))
        assert (name, decision.reward) == (name, -1.0)


async def test_a_verifier_that_never_writes_a_verdict_is_tried_once(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Harbor's own `No working directory set` ends so. An agent that keeps its verifier from giving
    a verdict has failed: no 0 is traded for another attempt."""
    never = make(tmp_path / "never", "echo 'no working directory set'; exit 1", solution=WRITE_HI)
    decision = decide(await run(engine, never, tmp_path))
    assert (decision.outcome, decision.reward) == (Outcome.VERIFIER_ERROR, None)
    assert decision.unusable
    broken = make(tmp_path / "broken", "checker && echo 1 > $R", dockerfile=CHECKER)
    with (broken / "tests" / "test.sh").open("a") as file:
        file.write("[ -e /app/gone ] || echo 0 > $R\n")
    once = decide(
        await run(engine, broken, tmp_path, "touch /app/gone; rm /usr/local/bin/checker\n")
    )
    assert (once.outcome, once.verdict, once.reward) == (Outcome.FAILED, None, 0.0)
    assert "the agent broke its verifier" in once.reason
    assert not once.unusable


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


@pytest.mark.parametrize(
    ("writes", "says"),
    [
        ("echo 1 > ${R%.txt}.json", "no object of numbers"),
        (f"echo '{{\"reward\": {10**400}}}' > ${{R%.txt}}.json", "no object of numbers"),
        ("mkdir $R", "Is a directory"),
    ],
    ids=["scalar", "huge", "directory"],
)
async def test_a_reward_file_that_never_can_be_read_is_tried_once(
    engine: ScriptedEngine, tmp_path: Path, writes: str, says: str
) -> None:
    task = make(tmp_path / "task", writes, solution=WRITE_HI)
    decision = decide(await run(engine, task, tmp_path, WRITE_HI))
    assert (decision.outcome, decision.reward) == (Outcome.VERIFIER_ERROR, None)
    assert says in decision.reason
    assert decision.unusable


HEALTHCHECK = '[environment.healthcheck]\ncommand = "false"\ninterval_sec = 0.01\nretries = 2\n'
UNSET = '[verifier.env]\nJUDGE_KEY = "${NO_SUCH_JUDGE_KEY}"\n'


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        (HEALTHCHECK, "Healthcheck failed"),
        (UNSET, "needs NO_SUCH_JUDGE_KEY"),
        (UNSET.replace("NO_SUCH_JUDGE_KEY", "A_KEY_OF_THE_HOST"), "task_credentials=A_KEY_OF_THE"),
    ],
)
async def test_what_no_agent_can_change_is_found_before_it_acts_and_tried_once(
    engine: ScriptedEngine, tmp_path: Path, toml: str, says: str
) -> None:
    task = make(tmp_path / "task", "echo 1 > $R")
    with (task / "task.toml").open("a") as file:
        file.write(toml)
    facts = await run(engine, task, tmp_path, WRITE_HI)
    decision = decide(facts)
    assert (decision.outcome, facts.turns) == (Outcome.SETUP_ERROR, 0)
    assert says in decision.reason
    assert decision.unusable


async def test_an_entrypoint_runs_beside_the_agent_with_the_command_of_a_container(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """As itself, in the image's directory with its variables; where it ends at once, its container
    would."""
    script = '#!/bin/sh\\necho "$PWD $SAYS $*" > /tmp/entered\\nexec "$@"\\n'
    steps = f"""ENV SAYS=hello
RUN printf '{script}' > /ep.sh && chmod +x /ep.sh
WORKDIR /srv
ENTRYPOINT ["/bin/false"]
ENTRYPOINT ["/ep.sh"]
WORKDIR /app
"""
    said = "/app hello sh -c sleep infinity"
    judge = f"[ \"$(cat /tmp/entered)\" = '{said}' ] && pgrep -x sleep; echo $((1 - $?)) > $R"
    task = make(tmp_path / "task", judge, dockerfile=steps)
    facts = await run(engine, task, tmp_path)
    assert (facts.exception_type, facts.verdict) == (None, 1.0), facts
    fails = make(
        tmp_path / "fails", "echo 1 > $R", dockerfile="ENTRYPOINT echo no service; exit 7\n"
    )
    decision = decide(await run(engine, fails, tmp_path))
    assert decision.outcome is Outcome.SETUP_ERROR
    assert "ENTRYPOINT ended at once, with exit code 7" in decision.reason
    assert decision.reason.endswith("no service")
    assert decision.unusable
