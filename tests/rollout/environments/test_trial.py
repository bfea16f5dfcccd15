"""Through Harbor's own Trial."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

from tbtui.rollout.environments.choose import SANDBOX_IMPORT_PATH
from tbtui.rollout.environments.sandbox import SandboxEnvironment
from tests.catalog.task_writer import Files, write_task
from tests.rollout.harbor_trial import reward_of, run_trial

pytestmark = pytest.mark.uid

AsUser = Callable[[Callable[[], Awaitable[None]]], None]
TASK = """\
version = "1.0"
[agent]
timeout_sec = 30
[verifier]
timeout_sec = 30
[environment]
cpus = 0.5
memory_mb = 512
storage_mb = 128
{environment}
"""
SOLVE = "#!/bin/bash\ncat data.txt > hello.txt; echo note > /logs/artifacts/note.txt\n"
TEST = """\
#!/bin/bash
if [ "$(cat /app/hello.txt)" = hi ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def _task(tmp_path: Path, *, environment: str = "", solve: str = SOLVE, test: str = TEST) -> Path:
    files: Files = {
        "instruction.md": "Copy /app/data.txt to /app/hello.txt.\n",
        "environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY data.txt .\n",
        "environment/data.txt": "hi\n",
        "solution/solve.sh": solve,
        "tests/test.sh": test,
    }
    return write_task(tmp_path, "task", TASK.format(environment=environment), files)


async def test_oracle_solves_and_nop_does_not(tmp_path: Path) -> None:
    task, trials = _task(tmp_path), tmp_path / "trials"
    assert reward_of(await run_trial(task, "oracle", trials)) == 1.0
    assert reward_of(await run_trial(task, "nop", trials)) == 0.0
    note = trials / "trial-oracle" / "artifacts" / "logs" / "artifacts" / "note.txt"
    assert note.read_text() == "note\n"


def test_oracle_as_ordinary_user(as_user: AsUser, tmp_path: Path) -> None:
    async def body() -> None:
        home = Path.home()
        assert reward_of(await run_trial(_task(home), "oracle", home / "trials")) == 1.0

    as_user(body)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")
async def test_oracle_through_bubblewrap(tmp_path: Path) -> None:
    task = _task(tmp_path)
    result = await run_trial(task, "oracle", tmp_path / "trials", backend="bubblewrap")
    assert reward_of(result) == 1.0


async def test_what_the_agent_plants_in_the_logs_never_reaches_a_host_file(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    solve = (
        f"#!/bin/bash\ncd /logs/agent; for f in oracle.txt trajectory.json exit-code.txt; do "
        f"rm -f $f; ln -s {victim} $f; done; ln -s {victim} /logs/verifier/test-stdout.txt; "
        f"ln -s {victim} /logs/artifacts/x; rm -rf /logs/agent; ln -s {tmp_path} /logs/agent\n"
    )
    await run_trial(_task(tmp_path, solve=solve), "oracle", tmp_path / "trials")
    assert victim.read_text() == "mine"
    links = [p for p in (tmp_path / "trials").rglob("*") if p.is_symlink()]
    assert not links


@pytest.mark.parametrize(
    ("stated", "network"),
    [
        ("", False),
        ('network_mode = "public"', True),
        ("allow_internet = true", True),
        ("allow_internet = false", False),
        ('network_mode = "no-network"', False),
    ],
)
async def test_network_only_when_the_task_says_so(
    tmp_path: Path, stated: str, network: bool
) -> None:
    task = _task(tmp_path, environment=stated)
    trial = await Trial.create(
        TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=tmp_path / "trials",
            agent=AgentConfig(name="oracle"),
            environment=EnvironmentConfig(import_path=SANDBOX_IMPORT_PATH),
        )
    )
    environment = trial.agent_environment
    assert isinstance(environment, SandboxEnvironment)
    assert environment.network is network
