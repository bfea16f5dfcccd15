"""Trials of the small agent in the sandbox: a block per turn, waits of its own, `DONE`."""

from __future__ import annotations

import pytest

from tbtui.journal.events import Outcome
from tbtui.rollout.messages import SampleWanted, TrialSpec, TurnSeen, TurnUnderstood
from tbtui.rollout.outcome import decide
from tbtui.rollout.shell_format import STOP, UNREADABLE
from tests.rollout.scripted import Cut, Script, ScriptedEngine, changed, sh

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.uid]

HELLO = sh("echo hi > /app/hello.txt")


@pytest.fixture
def shell(spec: TrialSpec) -> TrialSpec:
    return changed(spec, agent="shell")


def screens(engine: ScriptedEngine, spec: TrialSpec) -> list[str]:
    return [seen.observation for seen in engine.seen[spec.trial].of(TurnSeen)]


async def test_a_block_and_the_word_solve_a_task(engine: ScriptedEngine, shell: TrialSpec) -> None:
    shell = changed(shell, agent_examples="Task: Say {it}.\n```bash\necho {it}\n```\nDONE\n")
    facts = await engine.run(shell, [HELLO, "DONE"])
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 2)
    assert decide(facts).outcome is Outcome.SOLVED
    first, second = engine.seen[shell.trial].of(SampleWanted)
    assert [len(first.messages), len(second.messages)] == [1, 3]
    prompt = first.messages[0].content
    assert "```bash\necho {it}\n```\nDONE\n\nTask: Create the file" in prompt
    assert ":/app#\n\nExamples:" in prompt  # and no more empty lines below the screen
    assert first.stop == STOP
    seen = second.messages[-1].content
    assert seen.startswith("New Terminal Output:\nroot@")
    assert seen.endswith(":/app#")
    assert "echo hi > /app/hello.txt" in seen
    understood = engine.seen[shell.trial].of(TurnUnderstood)
    assert [(each.task_complete, each.error, each.warning) for each in understood] == [
        (False, None, None),
        (True, None, None),
    ]


async def test_what_was_forgiven_is_recorded_and_not_told(
    engine: ScriptedEngine, shell: TrialSpec
) -> None:
    facts = await engine.run(shell, ["$ echo hi > /app/hello.txt", "I am **done**", "**DONE**"])
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 3)
    understood = engine.seen[shell.trial].of(TurnUnderstood)
    assert [(each.error, each.warning) for each in understood] == [
        (None, "no block"),
        (UNREADABLE, None),
        (None, "DONE with signs around it"),
    ]
    _, second, third = engine.seen[shell.trial].of(SampleWanted)
    assert "no block" not in second.messages[-1].content
    assert UNREADABLE in third.messages[-1].content


@pytest.mark.parametrize(
    ("script", "turns", "ran"),
    [
        ([Cut("```bash\necho hi > /app/hello.txt\n```\nThen I would"), "DONE"], 2, 2),
        ([Cut("```bash\necho hi > /app/hel"), HELLO, "DONE"], 3, 2),
    ],
    ids=["behind its block", "in its block"],
)
async def test_an_answer_that_is_cut_off(
    engine: ScriptedEngine, shell: TrialSpec, script: Script, turns: int, ran: int
) -> None:
    facts = await engine.run(shell, script)
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, turns)
    assert not facts.last_truncated
    assert len(screens(engine, shell)) == ran


LONG = "for i in 1 2 3; do\n\techo turn $i\n\tsleep 0.1\ndone\ncat > /app/t <<'EOF'\n\ta\tb\nEOF"


@pytest.mark.parametrize(
    ("block", "left"),
    [
        (LONG, "turn 3"),
        ("sleep 0.3; echo late", "late"),
        ("bash -c 'sleep 0.3; echo late'", "late"),
        ("printf 'no end of line'", "no end of line"),
        ("clear", ":/app#"),
        ("cat -A /app/t 2>&1; seq 200", "200"),
    ],
    ids=["lines", "slow", "a shell", "no line end", "clear", "much"],
)
async def test_it_waits_until_the_shell_is_at_its_prompt_again(
    engine: ScriptedEngine, shell: TrialSpec, block: str, left: str
) -> None:
    await engine.run(shell, [sh(block), "DONE"])
    seen = screens(engine, shell)[0]
    assert left in seen
    assert seen.endswith(":/app#")


async def test_a_tab_is_a_tab(engine: ScriptedEngine, shell: TrialSpec) -> None:
    await engine.run(shell, [sh(LONG), sh("cat -A /app/t"), "DONE"])
    assert "^Ia^Ib$" in screens(engine, shell)[1]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("sleep 600", "(still running; the next commands interrupt it)"),
        ("cat", "(still running; the next commands interrupt it)"),
        ("trap '' INT; sleep 600", "(still running; the next commands interrupt it)"),
        ("echo 'no end", "(the command is not complete; the next commands cancel it)"),
        ("cat <<EOF\na", "(the command is not complete; the next commands cancel it)"),
    ],
    ids=["sleeps", "reads", "ignores ctrl-c", "a quote", "a here-document"],
)
async def test_what_does_not_end_is_interrupted_by_the_next_block(
    engine: ScriptedEngine, shell: TrialSpec, block: str, said: str
) -> None:
    facts = await engine.run(changed(shell, budget_sec=2.4), [sh(block), HELLO, "DONE"])
    assert (facts.finish, facts.verdict) == ("completed", 1.0)
    assert screens(engine, shell)[0].endswith(said)
    assert screens(engine, shell)[1].endswith(":/app#")


async def test_ending_the_shell_ends_the_trial(engine: ScriptedEngine, shell: TrialSpec) -> None:
    facts = await engine.run(shell, [sh("echo hi > /app/hello.txt\nexit"), "DONE"])
    assert facts.finish == "terminal_ended"
    assert decide(facts).outcome is not Outcome.SOLVED


async def test_of_a_long_output_a_small_context_has_both_ends(
    engine: ScriptedEngine, shell: TrialSpec
) -> None:
    await engine.run(changed(shell, context_limit=1_000), [sh("seq 5000"), "DONE"])
    (seen, *_) = screens(engine, shell)
    assert len(seen) < 1_000
    assert "seq 5000" in seen
    assert seen.endswith(":/app#")


async def test_garbage_is_its_own(engine: ScriptedEngine, shell: TrialSpec) -> None:
    noise = [
        *("\0\ud800", sh("echo a\0b \ud800"), sh("printf '\x1b[201~\x03'")),
        *("`" * 9_000, sh("y" * 9_000)),
    ]
    facts = await engine.run(changed(shell, max_turns=9), [*noise, HELLO, "DONE"])
    assert (facts.finish, facts.verdict) == ("completed", 1.0)
