"""Prime-RL's own launcher, with stand-ins for the parts that need a GPU.

`TBTUI_PRIME_RL_REPOSITORY=DIR pytest -m slow tests/engines/prime_rl_launch/test_real_launcher.py`
takes `rl` and the configuration classes of commit 559b447 from a Git repository of Prime-RL; they
get a throw-away virtual environment, which takes a package index.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tbtui.engines.request import request_run
from tbtui.engines.resume import request_resume
from tbtui.journal.commands import RunEnd
from tbtui.journal.events import Noted, RunFinished, StepFinished

from . import stand_in_parts
from .conftest import Place
from .stand_in import REPOSITORY, living, program
from .test_launched_run import events, made, of, run, steps, until

PRIME_RL = os.environ.get("TBTUI_PRIME_RL_REPOSITORY")
COMMIT = "559b447"
PARTS = ("inference", "env-server", "orchestrator", "torchrun")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if PRIME_RL is None:
        pytest.skip("asked for by TBTUI_PRIME_RL_REPOSITORY")
    directory = tmp_path_factory.mktemp("prime-rl")
    archive = directory / "prime-rl.tar"
    paths = ("packages/prime-rl-configs", "src")
    git = ["git", "-C", PRIME_RL, "archive", "-o", str(archive), COMMIT, *paths]
    subprocess.run(git, check=True)
    subprocess.run(["tar", "-xf", archive, "-C", directory], check=True)
    environment = directory / ".venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    uv = shutil.which("uv")
    install = [uv, "pip"] if uv else [environment / "bin/python", "-m", "pip"]
    packages = (directory / "packages/prime-rl-configs", "loguru", "psutil", "setproctitle")
    subprocess.run(
        [*install, "install", "-q", *packages],
        env=os.environ | {"VIRTUAL_ENV": str(environment)},
        check=True,
    )
    # What the launcher takes from modules that import torch: the one fetches the model.
    without_torch = directory / "without_torch"
    for module, text in (
        ("trainer/model.py", "def pre_download_model(name, *, skip_weights): pass\n"),
        ("utils/utils.py", "def get_free_port(): return 29500\n"),
    ):
        path = without_torch / "prime_rl" / module
        path.parent.mkdir(parents=True)
        path.write_text(text)
    [place] = (environment / "lib").glob("python3*/site-packages")
    paths_there = (without_torch, directory / "src", REPOSITORY, plugin_packages())
    (place / "tbtui.pth").write_text("".join(f"{path}\n" for path in paths_there))
    launch = "from prime_rl.entrypoints.rl import main; main()"
    python = environment / "bin" / "python"
    program(environment / "bin/rl", f'#!/bin/sh\nexec {python} -c {shlex.quote(launch)} "$@"\n')
    for name in PARTS:
        start = f"{shlex.quote(sys.executable)} {shlex.quote(stand_in_parts.__file__)} {name}"
        text = f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(REPOSITORY))} exec {start} "$@"\n'
        program(environment / "bin" / name, text)
    return directory


def plugin_packages() -> str:
    """What tbtui needs, for its plugin; it comes after the environment's own."""
    return sysconfig.get_path("purelib")


@pytest.fixture
def launched(place: Place, real: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("PRIME_RL_DIR", str(real))
    monkeypatch.setenv("STAND_IN_RL", "whole")
    return place


async def test_a_whole_run(launched: Place) -> None:
    assert await run(request_run(launched.config())) == RunEnd("finished", "2 steps")
    found = events(launched)
    assert [event.step for event in of(found, StepFinished)] == [1, 2]
    told = [event.text for event in of(found, Noted)]
    assert "dry run: passed" in told
    assert any(text.startswith("configuration: valid, by ") for text in told)
    assert living(launched.pids) == []
    assert "Training finished!" in (launched.run / "logs" / "prime_rl.log").read_text()


async def test_a_trainer_that_dies(launched: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_RL", "crash")
    end = await run(request_run(launched.config()))
    assert end == RunEnd(
        "failed", "the trainer ended with status 1: MemoryError: CUDA out of memory"
    )
    assert living(launched.pids) == []


async def test_interrupted_and_resumed(launched: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_RL", "hold")
    task = asyncio.create_task(made(request_run(launched.config())).run())
    await until(lambda: steps(launched) == 1, limit_sec=300)
    task.cancel()
    assert (await task).status == "interrupted"
    assert len(launched.pids.read_text().split()) == 4
    assert living(launched.pids) == []
    monkeypatch.setenv("STAND_IN_RL", "whole")
    assert await run(request_resume(str(launched.run), [])) == RunEnd("finished", "2 steps")
    found = events(launched)
    assert [event.status for event in of(found, RunFinished)] == ["interrupted", "finished"]
    assert [event.step for event in of(found, StepFinished)] == [1, 2]
