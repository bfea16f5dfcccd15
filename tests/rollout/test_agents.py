"""Agents that are programs in the sandbox, in real trials: their calls are turns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tbtui.journal.commands import Typed
from tbtui.journal.events import Outcome
from tbtui.resources import guide_dir
from tbtui.rollout.messages import (
    GivenBack,
    PauseEntered,
    SampleWanted,
    TakenOver,
    TrialFacts,
    TrialSpec,
    TurnSeen,
    TurnUnderstood,
    TypeKeys,
)
from tbtui.rollout.outcome import decide
from tests.rollout.scripted import Fail, ScriptedEngine, Silence, changed

pytestmark = pytest.mark.asyncio(loop_scope="session")

WRITES = "I write it.\n```sh\necho hi > /app/hello.txt; echo written\n```"
DONE = "Done."
GET = (
    "import os,urllib.request as u\n"
    "def get(url, key):\n"
    "  r=u.Request(url, headers={'Authorization': 'Bearer '+key})\n"
    "  try: return u.urlopen(r, timeout=3).status\n"
    "  except u.HTTPError as e: return e.code\n"
    "  except Exception as e: return type(e).__name__\n"
    "BASE, KEY = os.environ['OPENAI_BASE_URL'], os.environ['OPENAI_API_KEY']\n"
)


@pytest.fixture
def own(spec: TrialSpec) -> TrialSpec:
    return changed(spec, agent="tests.agents.ours:Program")


def then(spec: TrialSpec, command: str, **kwargs: str) -> TrialSpec:
    return changed(spec, agent_kwargs={"then": command, **kwargs})


def python(code: str) -> str:
    return f"python3 - <<'END'\n{GET}{code}\nEND"


async def test_the_guides_example(
    engine: ScriptedEngine, spec: TrialSpec, tmp_path_factory: pytest.TempPathFactory
) -> None:
    page = (guide_dir() / "agents.md").read_text()
    agent, program = re.findall(r"```python\n(.*?)\n```\n\n", page + "\n", re.DOTALL)
    place = tmp_path_factory.getbasetemp() / "agents"
    (place / "mine.py").write_text(agent)
    (place / "loop.py").write_text(program)
    facts = await engine.run(changed(spec, agent="mine:Mine"), [WRITES, DONE])
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 2)


def screen(spec: TrialSpec) -> str:
    """All that the trial's terminal has shown."""
    lines = (spec.trials_dir / spec.trial / "recording.cast").read_text().splitlines()
    return "".join(each[2] for each in map(json.loads, lines[1:]) if each[1] == "o")


async def test_its_calls_are_turns(engine: ScriptedEngine, own: TrialSpec) -> None:
    facts = await engine.run(own, [WRITES, DONE])
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 2)
    assert decide(facts).outcome is Outcome.SOLVED
    seen = engine.seen[own.trial]
    first, second = seen.of(SampleWanted)
    assert [m.role for m in first.messages] == ["user"]
    assert [m.role for m in second.messages] == ["user", "assistant", "user"]
    assert second.messages[1].content == WRITES
    assert [(m.turn, m.observation) for m in seen.of(TurnSeen)] == [(1, "written\n")]
    understood = seen.of(TurnUnderstood)
    assert [[c.keystrokes for c in m.commands] for m in understood] == [
        ["echo hi > /app/hello.txt; echo written\n"],
        [],
    ]
    assert facts.offline


async def test_what_it_prints_is_in_the_terminal(engine: ScriptedEngine, own: TrialSpec) -> None:
    await engine.run(then(own, 'echo "my key: $OPENAI_API_KEY"; loop "$TASK"'), [WRITES, DONE])
    shown = screen(own)
    assert "$ TASK=" in shown
    assert "I write it." in shown
    assert "written" in shown
    assert "my key: ****" in shown


async def test_the_secret_is_in_no_file(engine: ScriptedEngine, own: TrialSpec) -> None:
    """Where the agent itself writes none down."""
    given = then(own, 'printf %s "$OPENAI_API_KEY" | rev > /logs/agent/key; loop "$TASK"')
    await engine.run(given, [WRITES, DONE])
    folder = own.trials_dir / own.trial
    secret = (folder / "agent" / "key").read_text()[::-1].encode()
    assert len(secret) > 30
    for file in _files(folder):
        assert secret not in file.read_bytes(), file


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


async def test_nothing_else_is_reachable(engine: ScriptedEngine, own: TrialSpec) -> None:
    """No other address, no other port of the endpoint's machine, no other trial's secret."""
    code = (
        "import socket\n"
        "print('own:', get(BASE + '/models', KEY))\n"
        "print('none:', get(BASE + '/models', ''))\n"
        "print('other:', get(BASE + '/models', 'x' * 43))\n"
        "rows = [r.split() for r in open('/proc/net/tcp').readlines()[1:]]\n"
        "listen = [int(r[1].split(':')[1], 16) for r in rows if r[3] == '0A']\n"
        "print('ports:', len(listen), str(listen[0]) in BASE)\n"
        "print('interfaces:', [name for _, name in socket.if_nameindex()])\n"
        "for host in '10.0.0.1', '172.17.0.1', '192.168.0.1', '1.1.1.1', '169.254.169.254':\n"
        "  s = socket.socket(); s.settimeout(1)\n"
        "  print(host, s.connect_ex((host, 80))); s.close()\n"
    )
    await engine.run(then(own, f'{python(code)}\nloop "$TASK"'), [WRITES, DONE])
    shown = screen(own)
    assert "own: 200" in shown
    assert "none: 401" in shown
    assert "other: 401" in shown
    assert "ports: 1 True" in shown
    assert "interfaces: ['lo']" in shown
    for host in ("10.0.0.1", "172.17.0.1", "192.168.0.1", "1.1.1.1", "169.254.169.254"):
        assert f"{host} 101" in shown  # ENETUNREACH


@pytest.mark.slow
async def test_anothers_secret_is_refused(engine: ScriptedEngine, own: TrialSpec) -> None:
    """Though both trials are served by the same process, and both run."""
    other = changed(own, trial=f"{own.trial}-other")
    engine.start(
        then(other, 'printf %s "$OPENAI_API_KEY" > /logs/agent/key; loop "$TASK"; loop x'),
        [WRITES, Silence()],
    )
    await engine.until(lambda: len(engine.seen[other.trial].of(SampleWanted)) == 2 or None)
    # What only the host can read: the one trial's key is given to the other.
    key = next(
        line.split("=", 1)[1]
        for line in _environment_of("loop.py")
        if line.startswith("OPENAI_API_KEY=")
    )
    code = f"print('theirs:', get(BASE + '/models', {key!r}))"
    await engine.run(then(own, f'{python(code)}\nloop "$TASK"'), [WRITES, DONE])
    assert "theirs: 401" in screen(own)
    engine.pool.control(other.trial, "cancel")
    await engine.facts(other.trial)


def _environment_of(program: str) -> list[str]:
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if program in line and "python3 /opt" in line:
            return [f"{name}={value}" for name, value in process.environ().items()]
    raise AssertionError(f"{program} does not run")


@pytest.mark.parametrize(
    ("kwargs", "finish", "outcome", "says"),
    [
        (
            {"first": "echo broken >&2; exit 3"},
            "not_run",
            Outcome.SETUP_ERROR,
            "not set up: broken",
        ),
        ({"then": "exit 4"}, "no_calls", Outcome.AGENT_ERROR, "talks to another model"),
        ({"then": ":"}, "no_calls", Outcome.AGENT_ERROR, "talks to another model"),
        ({"then": 'loop "$TASK"; exit 5'}, "error", Outcome.AGENT_ERROR, "it ended with 5"),
    ],
)
async def test_its_faults_earn_no_reward(
    engine: ScriptedEngine,
    own: TrialSpec,
    kwargs: dict[str, str],
    finish: str,
    outcome: Outcome,
    says: str,
) -> None:
    facts = await engine.run(changed(own, agent_kwargs=kwargs), [WRITES, DONE])
    decision = decide(facts)
    assert (facts.finish, decision.outcome, decision.reward) == (finish, outcome, None)
    assert says in decision.reason


async def _ends(engine: ScriptedEngine, spec: TrialSpec, *script: object) -> TrialFacts:
    return await engine.run(spec, list(script))  # type: ignore[arg-type]


@pytest.mark.slow
async def test_out_of_turns(engine: ScriptedEngine, own: TrialSpec) -> None:
    """It asks again and again, and is ended; what it has done is verified."""
    flood = 'while true; do loop "$TASK" >/dev/null 2>&1; done'
    facts = await _ends(engine, changed(then(own, flood), max_turns=4), WRITES)
    assert (facts.finish, facts.turns, facts.verdict) == ("max_turns", 4, 1.0)
    assert decide(facts).reward == 0.0


@pytest.mark.slow
async def test_it_hangs_after_a_call(engine: ScriptedEngine, own: TrialSpec) -> None:
    facts = await _ends(
        engine, changed(then(own, 'loop "$TASK"; sleep 1000'), budget_sec=4), WRITES, DONE
    )
    assert facts.finish == "budget"
    assert decide(facts).outcome is Outcome.AGENT_TIMEOUT


@pytest.mark.slow
async def test_it_hangs_without_a_call(engine: ScriptedEngine, own: TrialSpec) -> None:
    facts = await _ends(engine, changed(then(own, "sleep 1000"), budget_sec=2), WRITES)
    assert facts.finish == "no_calls"
    assert decide(facts).reward is None


async def test_the_policy_fails(engine: ScriptedEngine, own: TrialSpec) -> None:
    facts = await _ends(engine, own, WRITES, Fail("provider_error"))
    assert decide(facts).outcome is Outcome.PROVIDER_ERROR


async def test_the_context_is_full(engine: ScriptedEngine, own: TrialSpec) -> None:
    facts = await _ends(engine, own, WRITES, Fail("context_overflow"))
    assert decide(facts).outcome is Outcome.CONTEXT_OVERFLOW
    assert decide(facts).reward == 0.0


async def test_paused_it_waits_at_its_next_call(engine: ScriptedEngine, own: TrialSpec) -> None:
    """A person takes it over, types in its sandbox, and gives it back."""
    engine.start(then(own, 'sleep 1; loop "$TASK"'), [WRITES, DONE])
    engine.pool.control(own.trial, "take_over", "tester")
    await engine.wait_for(own.trial, TakenOver)
    assert not engine.seen[own.trial].of(SampleWanted)
    engine.pool.type_keys(TypeKeys(own.trial, "c1", (Typed(kind="text", text="touch /app/by"),)))
    engine.pool.type_keys(TypeKeys(own.trial, "c2", (Typed(kind="key", text="Enter"),)))
    engine.pool.control(own.trial, "give_back")
    await engine.wait_for(own.trial, GivenBack)
    engine.pool.control(own.trial, "resume")
    facts = await engine.facts(own.trial)
    assert facts.human_touched
    assert "touch /app/by" in screen(own)
    assert decide(facts).outcome is Outcome.HUMAN_TOUCHED


@pytest.mark.slow
async def test_stopped_in_the_middle_it_is_verified(engine: ScriptedEngine, own: TrialSpec) -> None:
    """All that it has started ends with it."""
    started = 'setsid sh -c "while true; do date > /app/alive; sleep 0.1; done" & loop "$TASK"'
    engine.start(then(own, f"{started}; sleep 1000"), [WRITES, DONE])
    await engine.until(lambda: len(engine.seen[own.trial].of(SampleWanted)) == 2 or None)
    engine.pool.control(own.trial, "stop")
    facts = await engine.facts(own.trial)
    assert (facts.finish, facts.verdict) == ("stopped", 1.0)


@pytest.mark.slow
async def test_frozen_and_gone_on(engine: ScriptedEngine, own: TrialSpec) -> None:
    engine.start(then(own, 'loop "$TASK"; sleep 1'), [WRITES, DONE])
    await engine.wait_for(own.trial, SampleWanted)
    engine.pool.control(own.trial, "freeze")
    await engine.wait_for(own.trial, PauseEntered, lambda message: message.frozen)
    engine.pool.control(own.trial, "resume")
    facts = await engine.facts(own.trial)
    assert facts.finish == "completed"
