"""Whose a verdict is: real trials whose verifiers are killed, say too much, or stand apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbtui.journal.events import Outcome
from tbtui.rollout.messages import RewardChoice, TrialSpec
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import DONE, HELLO, ScriptedEngine, act, changed
from tests.tasks import make_task

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.uid]

KILL_IT = act(
    "(setsid bash -c 'until pgrep -f ^/bin/bash./tests/test.sh; do :; done;"
    " echo 1 > /logs/verifier/reward.txt; pkill -9 -f /tests/test.sh' > /dev/null 2>&1 &)\n"
)


def with_toml(task: Path, old: str, new: str) -> Path:
    toml = task / "task.toml"
    text = toml.read_text()
    assert old in text
    toml.write_text(text.replace(old, new))
    return task


@pytest.mark.parametrize("said", ["-1e7", "inf"])
async def test_a_reward_beyond_all_bounds_is_none(
    engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path, said: str
) -> None:
    task = make_task(tmp_path / "task", test=f"echo {said} > $R")
    decision = decide(await engine.run(changed(spec, task_dir=task), [HELLO, DONE, DONE]))
    assert (decision.outcome, decision.verdict) == (Outcome.VERIFIER_ERROR, None)
    assert decision.reward is None
    assert decision.unusable  # an untouched sandbox's verifier says the same


KEYS = """echo '{"speed": 0.5, "size": 3, "quality": 1}' > /logs/verifier/reward.json"""


@pytest.mark.parametrize(
    ("test", "choice", "verdict"),
    [
        (KEYS, RewardChoice("quality"), 1.0),
        (KEYS, RewardChoice(weights={"quality": 1, "size": -0.5, "speed": 0.1}), -0.45),
        (KEYS.replace("size", "reward"), RewardChoice(), 3.0),
        (KEYS.replace("size", "reward"), RewardChoice("speed"), 0.5),
        ("""echo '{"only": 0.25}' > /logs/verifier/reward.json""", RewardChoice(), 0.25),
    ],
    ids=["key", "weights", "reward", "another", "single"],
)
async def test_of_several_rewards_the_settings_choose(
    engine: ScriptedEngine,
    spec: TrialSpec,
    tmp_path: Path,
    test: str,
    choice: RewardChoice,
    verdict: float,
) -> None:
    task = make_task(tmp_path / "task", test=test)
    chosen = changed(spec, task_dir=task, rewards=choice)
    decision = decide(await engine.run(chosen, [DONE, DONE]))
    assert decision.verdict == decision.reward == pytest.approx(verdict)


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        (RewardChoice(), "speed, size, quality; choose one (reward_key=speed), or weigh them"),
        (RewardChoice("sped"), "reward_key: no reward sped, but speed, size, quality"),
        (RewardChoice(weights={"speed": 1, "x": -1}), "reward_weights: no reward x, but speed, s"),
    ],
)
async def test_rewards_of_which_none_is_the_one_are_a_lasting_reason(
    engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path, choice: RewardChoice, says: str
) -> None:
    task = make_task(tmp_path / "task", test=KEYS)
    chosen = changed(spec, task_dir=task, rewards=choice, check_zeros="never")
    decision = decide(await engine.run(chosen, [DONE, DONE]))
    assert (decision.outcome, decision.reward) == (Outcome.VERIFIER_ERROR, None)
    assert says in decision.reason
    assert decision.unusable


async def test_an_agent_that_has_its_verifier_say_it_has_failed(
    engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "task", test="cat /app/said > $R || echo 0 > $R")
    script = [act("echo 1e308 > /app/said\n"), DONE, DONE]
    decision = decide(await engine.run(changed(spec, task_dir=task), script))
    assert (decision.outcome, decision.reward) == (Outcome.FAILED, 0.0)
    assert "rewards are within ±1,000,000" in decision.reason


async def test_the_mean_of_other_steps_is_no_verdict_on_a_step_whose_verifier_was_killed(
    engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path
) -> None:
    task = make_task(
        tmp_path / "task",
        test='[ -e /app/second ] && sleep 15; [ -e /app/second ] && echo 0 > "$R" || echo 1 > "$R"',
    )
    with (task / "task.toml").open("a") as file:
        file.write('[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n')
    for name in ("one", "two"):
        (task / "steps" / name).mkdir(parents=True)
        (task / "steps" / name / "instruction.md").write_text("Go on.\n")
    (task / "instruction.md").unlink()
    second = act("touch /app/second\n")
    script = [HELLO, DONE, DONE, second, KILL_IT, DONE, DONE]
    facts = await engine.run(changed(spec, task_dir=task, max_turns=9), script)
    assert facts.verdict is None
    decision = decide(facts)
    assert (decision.outcome, decision.reward) == (Outcome.FAILED, 0.0), decision
    assert "SIGKILL" in decision.reason


SERVED = """
for i in 1 2 3 4 5 6 7 8; do
    python3 -c 'import socket; socket.create_connection(("127.0.0.1", 4711), 5)' 2> /dev/null && {
        echo 1 > $R; exit; }
    sleep 0.1
done; echo 0 > $R
"""
SERVE = act(
    '(setsid python3 -c \'import socket, time; s = socket.create_server(("127.0.0.1", 4711));'
    ' open("/app/up", "w"); time.sleep(600)\' > /dev/null 2>&1 &); '
    "until [ -e /app/up ]; do sleep 0.1; done\n",
    duration=0.5,
)


@pytest.mark.parametrize(("needed", "verdict"), [("", 0.0), ("true", 1.0)])
async def test_what_runs_is_killed_unless_the_verifier_needs_it(
    engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path, needed: str, verdict: float
) -> None:
    task = make_task(tmp_path / "task", test=SERVED)
    if needed:
        with (task / "task.toml").open("a") as file:
            file.write(f"[metadata]\nverifier_needs_processes = {needed}\n")
    alone = changed(spec, task_dir=task, kill_before_verifying=True)
    facts = await engine.run(alone, [SERVE, DONE, DONE])
    assert facts.verdict == verdict
    recording = spec.trials_dir / spec.trial / "recording.cast"
    assert "4711" in recording.read_text()


@pytest.mark.parametrize("setting", ["", 'env = { PYTHONSAFEPATH = "" }\n'])
async def test_a_separate_verifiers_python_has_its_own_modules(
    engine: ScriptedEngine, spec: TrialSpec, tmp_path: Path, setting: str
) -> None:
    """Not those of the agent's artifacts, which lie in its working directory; but the tests' own.
    A task may say otherwise."""
    task = make_task(
        tmp_path / "task",
        test="python3 -c 'import json; json.loads' && python3 /tests/sub/check.py"
        " && echo 0 > $R || echo 1 > $R",
    )
    (task / "tests" / "sub").mkdir()
    (task / "tests" / "sub" / "check.py").write_text("import helper\n")
    (task / "tests" / "helper.py").write_text("")
    with_toml(task, "[verifier]", f'[verifier]\nenvironment_mode = "separate"\n{setting}')
    with_toml(task, 'schema_version = "1.4"', 'schema_version = "1.4"\nartifacts = ["/app"]')
    script = [act("touch /app/json.py\n"), DONE, DONE]
    facts = await engine.run(changed(spec, task_dir=task), script)
    assert facts.verdict == (1.0 if setting else 0.0), facts.verifier_output
