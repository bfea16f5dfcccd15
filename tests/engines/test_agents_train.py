"""Agents that call the endpoint solve tasks of the workshop in real trials, and a step trains on
exactly what was sampled for their calls: an agent of our own, and real ones of the registries.

The policy is a stand-in: it plays answers that are written beforehand.
"""

from __future__ import annotations

import json
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbtui.catalog.split import Split
from tbtui.catalog.tasks import discover
from tbtui.config import RunConfig, to_toml
from tbtui.engines.prepare import PreparedRun
from tbtui.engines.run import Run
from tbtui.journal.events import TrialFinished, TurnObserved, TurnParsed, TurnSampled
from tbtui.journal.rundir import RunDirectory
from tbtui.outcomes import Outcome
from tbtui.policies.base import PolicyInfo, Sample, SampleRequest
from tbtui.policies.chat.make import make_renderer
from tbtui.policies.chat.template import TemplateRenderer
from tbtui.resources import tasks_dir
from tbtui.rollout.environments.choose import SANDBOX_IMPORT_PATH, EnvironmentChoice
from tests.events import events_of
from tests.policies.chat.chat_models import write_model

from .fakes import RotePolicy

WORKSHOP = tasks_dir() / "workshop"
TASKS = ("log-triage", "sales-join", "merge-settings")
DONE = "Done."


class PlayedPolicy(RotePolicy):
    """Plays each task's own solution and says then that it is done; the first trial of a task says
    so at once. A token's log-probability tells its place in the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.info = PolicyInfo("played", "played", None, 1_000_000, ("importance_sampling",))
        self.drawn: set[tuple[int, ...]] = set()
        self._begun: dict[str, int] = defaultdict(int)

    async def sample(self, request: SampleRequest) -> Sample:
        prompt = self.read(request.prompt_ids)
        named = [name for name in TASKS if instruction(name) in prompt]
        solution = ""
        if named and "I solve it." not in prompt:
            self._begun[named[0]] += 1
            if self._begun[named[0]] > 1:
                solution = (WORKSHOP / named[0] / "solution" / "solve.sh").read_text()
        ids = self.write(f"bash <<'SOLVED'\n{solution}\nSOLVED" if solution else "")
        self.drawn.add(ids)
        return Sample(ids, places(len(ids)), "stop", self.published)

    def read(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def write(self, command: str) -> tuple[int, ...]:
        """The answer that runs a command; empty: that says that all is done."""
        text = f"I solve it.\n```sh\n{command}\n```" if command else DONE
        return tuple(map(ord, text))


class ToolPolicy(PlayedPolicy):
    """The same with a model's own format of tool calls."""

    def __init__(self, renderer: TemplateRenderer, agent: RealAgent) -> None:
        super().__init__()
        self.renderer = renderer
        self._agent = agent

    def read(self, ids: Sequence[int]) -> str:
        return "".join(self.renderer.pieces(ids))

    def write(self, command: str) -> tuple[int, ...]:
        said = "I solve it." if command else DONE
        if command := command or self._agent.last:
            given = {self._agent.parameter: command, **self._agent.more}
            call = json.dumps({"name": self._agent.tool, "arguments": given})
            said = f"{said}\n<tool_call>\n{call}\n</tool_call>"
        return (*self.renderer._vocabulary.encode(said), self.renderer.stop_ids[-1])


def instruction(task: str) -> str:
    """Its first words; agents wrap and quote the rest in ways of their own."""
    return (WORKSHOP / task / "instruction.md").read_text().strip().partition("\n")[0]


def places(count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return -np.arange(1, count + 1, dtype=np.float32) / 10_000


@dataclass(frozen=True)
class RealAgent:
    """How an agent of a registry is installed, and runs a command."""

    host: str
    install: str
    tool: str
    parameter: str
    more: Mapping[str, str] = field(default_factory=dict)
    last: str = ""
    """The command that ends its work; empty: an answer without a call does."""


_NPM = (
    "set -e; export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt;"
    " npm install -g --silent --prefix ~/.local"
)
REAL = {
    "mini-swe-agent": RealAgent(
        "pypi.org",
        "set -e; pip3 install -q --break-system-packages mini-swe-agent orjson fastapi;"
        " mkdir -p ~/.local/bin; ln -sf /usr/local/bin/mini-swe-agent ~/.local/bin/;"
        " MSWEA_CONFIGURED=true mini-swe-agent --help >/dev/null",
        "bash",
        "command",
        last="echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    ),
    "code-puppy": RealAgent(
        "pypi.org",
        "set -e; pip3 install -q --user --break-system-packages code-puppy;"
        " ~/.local/bin/code-puppy --version",
        "shell",
        "command",
    ),
    "claude-code": RealAgent(
        "registry.npmjs.org",
        f"{_NPM} @anthropic-ai/claude-code; ~/.local/bin/claude --version",
        "Bash",
        "command",
        more={"description": "Solve it"},
    ),
    "codex": RealAgent(
        "registry.npmjs.org",
        f"{_NPM} @openai/codex; ln -sf ~/.local/bin/codex /usr/local/bin/codex; codex --version",
        "exec_command",
        "cmd",
    ),
}


async def trained_on(
    policy: PlayedPolicy, where: Path, calls: range, names: Sequence[str] = TASKS, **settings: Any
) -> RunDirectory:
    """The run of a step on these tasks, of two trials each; checks what it was trained on.

    Args:
        calls: how many calls all trials may make.
    """
    directory = RunDirectory.create(where)
    config = RunConfig(
        max_steps=1,
        batch_size=len(names),
        group_size=2,
        n_workers=1,
        n_parallel_envs=2,
        max_tokens=20_000,
        eval_every=0,
        check_zeros="never",
        **settings,
    )
    directory.config.write_text(to_toml(config))
    tasks = [task for task in discover(WORKSHOP).require_tasks() if task.path.name in names]
    choice = EnvironmentChoice("sandbox", "asked for", import_path=SANDBOX_IMPORT_PATH)
    split = Split(train=tuple(tasks), heldout=())
    run = Run(PreparedRun(config, WORKSHOP, split, (), choice, directory), lambda *_: policy)
    end = await run.run()
    assert end.status == "finished", end

    finished = events_of(directory, TrialFinished)
    solved = sorted(event.outcome for event in finished)
    assert solved == [Outcome.FAILED] * len(names) + [Outcome.SOLVED] * len(names), finished
    assert len(events_of(directory, TurnSampled)) in calls
    ((data, _),) = policy.trained
    assert len(data) >= 2 * len(names)
    for datum in data:
        left = tuple(int(token) for token in datum.tokens[datum.mask])
        expected: list[float] = []
        while left:
            ids = next(each for each in policy.drawn if left[: len(each)] == each)
            expected += places(len(ids)).tolist()
            left = left[len(ids) :]
        assert np.allclose(datum.logprobs[datum.mask], expected)
    return directory


@pytest.mark.slow
async def test_three_tasks_and_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    directory = await trained_on(
        PlayedPolicy(),
        tmp_path / "run",
        range(9, 10),
        agent="tests.agents.ours:Program",
        agent_kwargs={"then": 'cd /app; loop "$TASK"'},
    )
    assert len(events_of(directory, TurnObserved)) == 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", REAL)
async def test_real_agents_and_a_step(tmp_path: Path, name: str) -> None:
    """Each is installed in a box that has the network, once; the trials have none."""
    agent = REAL[name]
    try:
        socket.create_connection((agent.host, 443), timeout=3).close()
    except OSError:
        pytest.skip(f"{agent.host} is out of reach")
    renderer = make_renderer("template", str(write_model("hermes", tmp_path)), "keep")
    assert isinstance(renderer, TemplateRenderer)
    run = await trained_on(
        ToolPolicy(renderer, agent),
        tmp_path / "run",
        range(3, 40),
        TASKS[:1],
        agent=name,
        agent_install=agent.install,
        agent_setup_network=True,
        trial_timeout_sec=900,
    )
    # What its calls ran is told as typed, and what came of it as seen.
    typed = [c.keystrokes for each in events_of(run, TurnParsed) for c in each.commands]
    assert sum(keys.startswith("bash <<'SOLVED'") for keys in typed) == 1
    assert events_of(run, TurnObserved)
