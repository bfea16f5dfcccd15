"""Real agents of the registries, in real trials against a scripted policy.

Each is installed in a box that has the network, once; the trials have none. Slow, and only where a
package index answers.
"""

from __future__ import annotations

import socket

import pytest

from tbtui.rollout.messages import SampleWanted, TrialSpec, TurnSeen, TurnUnderstood
from tests.rollout.scripted import Answer, Calls, ScriptedEngine, changed

WRITE = "echo hi > /app/hello.txt; echo written"
_PIP = "pip3 install -q --break-system-packages"
_NPM = (
    "set -e; export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt;"
    " npm install -g --silent --prefix ~/.local"
)
AGENTS: dict[str, tuple[str, list[Answer]]] = {
    "mini-swe-agent": (
        f"set -e; {_PIP} mini-swe-agent orjson fastapi; mkdir -p ~/.local/bin;"
        " ln -sf /usr/local/bin/mini-swe-agent ~/.local/bin/;"
        " MSWEA_CONFIGURED=true mini-swe-agent --help >/dev/null",
        [
            Calls("I write it.", "bash", {"command": WRITE}),
            Calls("", "bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),
        ],
    ),
    "claude-code": (
        f"{_NPM} @anthropic-ai/claude-code; ~/.local/bin/claude --version",
        [Calls("I write it.", "Bash", {"command": WRITE, "description": "Write it"}), "Done."],
    ),
    "codex": (
        f"{_NPM} @openai/codex; ln -sf ~/.local/bin/codex /usr/local/bin/codex; codex --version",
        [Calls("I write it.", "exec_command", {"cmd": WRITE}), "Done."],
    ),
}
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]


def _answers(host: str) -> bool:
    try:
        socket.create_connection((host, 443), timeout=3).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("agent", AGENTS)
async def test_solves_a_task_without_a_network(
    engine: ScriptedEngine, spec: TrialSpec, agent: str
) -> None:
    host = "pypi.org" if agent == "mini-swe-agent" else "registry.npmjs.org"
    if not _answers(host):
        pytest.skip(f"{host} is out of reach")
    install, script = AGENTS[agent]
    given = changed(
        spec,
        agent=agent,
        agent_install=install,
        agent_setup_network=True,
        budget_sec=600.0,
        max_turns=8,
    )
    facts = await engine.run(given, script)
    assert (facts.finish, facts.verdict) == ("completed", 1.0), facts
    assert facts.offline
    seen = engine.seen[given.trial]
    assert any(tool.name for message in seen.of(SampleWanted) for tool in message.tools)
    typed = [c.keystrokes for message in seen.of(TurnUnderstood) for c in message.commands]
    assert f"{WRITE}\n" in typed
    assert any("written" in message.observation for message in seen.of(TurnSeen))
