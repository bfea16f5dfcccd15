"""Agents that are programs in the sandbox, in real trials: their calls are turns."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import pytest_asyncio

from tbtui.journal.commands import Typed
from tbtui.journal.events import Outcome
from tbtui.journal.rundir import AGENT_STREAM
from tbtui.resources import guide_dir
from tbtui.rollout.agent_terminal import AgentTerminal
from tbtui.rollout.messages import (
    GivenBack,
    PauseEntered,
    SampleWanted,
    SideCallSeen,
    TakenOver,
    TrialFacts,
    TrialSpec,
    TurnSeen,
    TurnUnderstood,
    TypeKeys,
)
from tbtui.rollout.outcome import decide
from tbtui.rollout.trial_calls import MOST_REFUSED
from tests.rollout.scripted import Cut, Fail, ScriptedEngine, Seen, Silence, changed, make_spec

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.uid]

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
    facts = await engine.run(changed(spec, agent="mine:Mine"), [Cut(WRITES), DONE])
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 2)
    # Whether it can read an answer that was cut off is for the agent to know.
    first, _ = engine.seen[spec.trial].of(TurnUnderstood)
    assert (first.error, str(first.warning)[:22]) == (None, "the completion was cut")


async def test_what_is_printed_without_a_terminal_fills_no_disk(tmp_path: Path) -> None:
    terminal = AgentTerminal("secret", tmp_path / "stream")
    terminal.write_to(tmp_path / "output")
    for _ in range(70):
        terminal.show("x" * (1 << 20))
    assert (tmp_path / "output").stat().st_size == 64 << 20


def screen(spec: TrialSpec) -> str:
    """All that the trial's terminal has shown."""
    lines = (spec.trials_dir / spec.trial / "recording.cast").read_text().splitlines()
    return "".join(each[2] for each in map(json.loads, lines[1:]) if each[1] == "o")


class Ran(NamedTuple):
    """A trial that went well: its directory, its facts and its messages."""

    spec: TrialSpec
    facts: TrialFacts
    seen: Seen


LOOKS_ABOUT = (
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


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ran(engine: ScriptedEngine, task: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One that prints its secret, writes it down backwards, and looks for what it can reach."""
    command = (
        'echo "my key: $OPENAI_API_KEY"; printf %s "$OPENAI_API_KEY" | rev > /logs/agent/key\n'
        f'{python(LOOKS_ABOUT)}\nloop "$TASK"'
    )
    spec = make_spec("ran", task, tmp_path_factory.mktemp("ran"), agent="tests.agents.ours:Program")
    facts = await engine.run(then(spec, command), [WRITES, DONE])
    return Ran(spec, facts, engine.seen[spec.trial])


async def test_its_calls_are_turns(ran: Ran) -> None:
    facts, seen = ran.facts, ran.seen
    assert (facts.finish, facts.verdict, facts.turns) == ("completed", 1.0, 2)
    assert decide(facts).outcome is Outcome.SOLVED
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


async def test_what_it_prints_is_in_the_terminal(ran: Ran) -> None:
    shown = screen(ran.spec)
    for text in ("$ TASK=", "I write it.", "written", "my key: ****"):
        assert text in shown


async def test_what_it_prints_for_programs_is_kept_beside_the_terminal(
    engine: ScriptedEngine, own: TrialSpec
) -> None:
    """In its place are the commands of its calls, and what came of them."""
    prints = "import json, sys\nfor line in sys.stdin: print(json.dumps({'type': 'x', 'y': line}))"
    command = f'echo starting; loop "$TASK" | python3 -uc {shlex.quote(prints)}'
    facts = await engine.run(then(own, command), [WRITES, DONE])
    assert facts.finish == "completed"
    shown = screen(own)
    assert "starting" in shown
    assert "$ echo hi > /app/hello.txt; echo written" in shown
    assert re.search(r"^written", shown, re.MULTILINE)
    assert '"type"' not in shown
    stream = own.trials_dir / own.trial / AGENT_STREAM
    assert {"type": "x", "y": "written\n"} in map(json.loads, stream.read_text().splitlines())


async def test_the_secret_is_in_no_file(ran: Ran) -> None:
    """Where the agent itself writes none down."""
    folder = ran.spec.trials_dir / ran.spec.trial
    secret = (folder / "agent" / "key").read_text()[::-1].encode()
    assert len(secret) > 30
    for file in folder.rglob("*"):
        assert not file.is_file() or secret not in file.read_bytes(), file


async def test_nothing_else_is_reachable(ran: Ran) -> None:
    """No other address, no other port of the endpoint's machine, no other trial's secret."""
    shown = screen(ran.spec)
    for text in ("own: 200", "none: 401", "other: 401", "ports: 1 True", "interfaces: ['lo']"):
        assert text in shown
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
        (
            {"then": 'OPENAI_API_KEY=mine loop "$TASK"'},
            "error",
            Outcome.AGENT_ERROR,
            "its calls were refused: the API key",
        ),
        (
            {"then": 'OPENAI_BASE_URL="$OPENAI_BASE_URL/v2" loop "$TASK"'},
            "error",
            Outcome.AGENT_ERROR,
            "POST /v1/v2/chat/completions: the endpoint has POST chat/completions",
        ),
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


AFTER_A_CALL = {
    "ends by a signal, of its own or the model's": "kill -9 $PPID",
    "ends with a status": "",
    "is removed, or its interpreter is": "rm -f /opt/loop.py",
    "takes another key, or another path": "",
    "writes logs that Harbor can't read": "printf '\\377' > /logs/agent/trajectory.json",
    "removes the programs of its box": "rm -rf /usr/bin/*",
}
"""What the agent's program does, and the command with which the model has it done."""
THEN = {
    "ends with a status": 'loop "$TASK"; exit 5',
    "takes another key, or another path": (
        'loop "$TASK"; OPENAI_API_KEY=mine loop x || OPENAI_BASE_URL="$OPENAI_BASE_URL/v2" loop x'
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AFTER_A_CALL)
async def test_no_end_after_a_call_is_worth_another_attempt(
    engine: ScriptedEngine, own: TrialSpec, name: str
) -> None:
    """Each is a row of the guide's table."""
    assert f"| {name} |" in (guide_dir() / "trust.md").read_text()
    answer = f"I end it.\n```sh\n{AFTER_A_CALL[name]}\n```"
    then_again = THEN.get(name, 'loop "$TASK" && loop x')
    facts = await engine.run(then(own, then_again), [answer, DONE])
    decision = decide(facts)
    assert (decision.outcome, decision.reward) == (Outcome.FAILED, 0.0), decision.reason
    assert decision.verdict in (0.0, None)
    clean = name == "writes logs that Harbor can't read"
    assert facts.finish == ("completed" if clean else "program_failed")
    assert clean or decision.reason.startswith(
        ("the agent's program failed after ", "the agent broke its verifier")
    )


@pytest.mark.slow
async def test_a_program_that_dies_with_its_work_done(
    engine: ScriptedEngine, spec: TrialSpec
) -> None:
    """Harbor's own kind of agent; such an end is no clean one."""
    installed = changed(spec, agent="tests.agents.ours:Installed")
    facts = await engine.run(installed, [WRITES, "```sh\nkill -9 $PPID\n```"])
    assert (facts.finish, facts.verdict) == ("program_failed", 1.0)
    assert decide(facts).reward == 0.0


async def test_tokens_are_counted_so_many_times_and_of_no_more_than_a_context_holds(
    engine: ScriptedEngine, own: TrialSpec
) -> None:
    code = (
        "import json\n"
        "def count(text='x'):\n"
        "  body = json.dumps({'messages': [{'role': 'user', 'content': text}]}).encode()\n"
        "  r = u.Request(BASE + '/messages/count_tokens', body, {'x-api-key': KEY})\n"
        "  try: return u.urlopen(r).status\n"
        "  except u.HTTPError as e: return e.code, e.read().decode()\n"
        "print('long:', count('x' * 270_000))\n"
        "print('counts:', *(count() for _ in range(9)))"
    )
    few = changed(then(own, f'{python(code)}\nloop "$TASK"'), max_turns=1, context_limit=4096)
    await engine.run(few, [DONE])
    said = " ".join(screen(few).split())
    assert "a request of more than 262144 bytes exceeds" in said
    assert f"counts: {'200 ' * 8}(429, " in said


async def _ends(engine: ScriptedEngine, spec: TrialSpec, *script: object) -> TrialFacts:
    return await engine.run(spec, list(script))  # type: ignore[arg-type]


WRONG_KEYS = python("while True: get(BASE + '/models', 'mine')")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flood", "script"),
    [
        ('while true; do loop "$TASK" >/dev/null 2>&1; done', [WRITES]),
        (f'loop "$TASK"\n{WRONG_KEYS}', [WRITES, WRITES, WRITES, DONE]),
    ],
    ids=["calls", "wrong keys"],
)
async def test_it_asks_again_and_again_and_is_ended(
    engine: ScriptedEngine, own: TrialSpec, flood: str, script: list[str]
) -> None:
    """What it has done is verified."""
    facts = await engine.run(changed(then(own, flood), max_turns=4), script)
    assert (facts.finish, facts.turns, facts.verdict) == ("max_turns", 4, 1.0)
    assert (decide(facts).outcome, decide(facts).reward) == (Outcome.AGENT_TIMEOUT, 0.0)
    log = worker_log(engine)
    assert log.count(f"{own.trial}: a call refused") <= MOST_REFUSED


def worker_log(engine: ScriptedEngine) -> str:
    return "".join(each.read_text() for each in engine.log_dir.glob("worker-*.log"))


async def test_what_it_logs_is_short_and_plain_in_the_workers_log(
    engine: ScriptedEngine, own: TrialSpec
) -> None:
    said = "\x1b]0;" + "x" * 100_000 + "end\x07"
    await engine.run(changed(own, agent_kwargs={"logs": said}), [DONE])
    (line,) = [each for each in worker_log(engine).splitlines() if "␛]0;" in each]
    assert len(line) < 10_000
    assert "\x1b" not in worker_log(engine)


@pytest.mark.parametrize("counted", [False, True])
async def test_calls_beside_the_conversation_are_told_apart(
    engine: ScriptedEngine, own: TrialSpec, counted: bool
) -> None:
    """A title, asked for first, and a check: both without the tools that the conversation has."""
    asks = (
        "import json\n"
        "def ask(text, **more):\n"
        "  messages = [{'role': 'user', 'content': text}]\n"
        "  body = json.dumps({'model': 'm', 'messages': messages} | more).encode()\n"
        "  head = {'Authorization': 'Bearer ' + KEY, 'Content-Type': 'application/json'}\n"
        "  u.urlopen(u.Request(BASE + '/chat/completions', body, head)).read()\n"
        "what = {'name': 'sh', 'parameters': {'type': 'object'}}\n"
        "tool = {'type': 'function', 'function': what}\n"
        "ask('a title'); ask('go', tools=[tool]); ask('a check'); ask('go on', tools=[tool])\n"
    )
    spec = changed(then(own, python(asks)), max_turns=2, train_side_calls=counted)
    facts = await engine.run(spec, [DONE])
    assert facts.finish == ("max_turns" if counted else "completed")
    assert [each.turn for each in engine.seen[spec.trial].of(SideCallSeen)] == (
        [1] if counted else [1, 3]
    )


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


async def test_its_first_prompt_does_not_fit(engine: ScriptedEngine, own: TrialSpec) -> None:
    """It got as far as that: it talks to this model, and starts."""
    facts = await _ends(engine, own, Fail("context_overflow", "the prompt has 9000 tokens"))
    decision = decide(facts)
    assert decision.outcome is Outcome.CONTEXT_OVERFLOW
    assert "the first prompt doesn't fit: the prompt has 9000 tokens" in decision.reason


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
