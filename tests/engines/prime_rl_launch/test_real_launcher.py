"""Prime-RL's own launcher, with stand-ins for the parts that need a GPU.

`TBTUI_PRIME_RL_REPOSITORY=DIR pytest -m slow tests/engines/prime_rl_launch/test_real_launcher.py`
takes `rl` and the configuration classes of commit 559b447 from a Git repository of Prime-RL; they
get a throw-away virtual environment, which takes a package index.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

import pytest

from tbtui.engines.request import request_run
from tbtui.engines.resume import request_resume
from tbtui.journal.commands import RunEnd
from tbtui.journal.events import Noted, RunFinished, StepFinished
from tbtui.journal.rundir import RunDirectory
from tests.engines.prime_rl.real_checkout import check_out
from tests.events import entries_of
from tests.waiting import until

from . import stand_in_parts
from .conftest import Place
from .stand_in import REPOSITORY, living, program
from .test_launched_run import made, run, steps

COMMIT = "559b447"
PARTS = ("inference", "env-server", "orchestrator", "torchrun")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("prime-rl")
    # What the launcher takes from modules that import torch: the one fetches the model.
    without_torch = directory / "without_torch"
    for module, text in (
        ("trainer/model.py", "def pre_download_model(name, *, skip_weights): pass\n"),
        ("utils/utils.py", "def get_free_port(): return 29500\n"),
    ):
        path = without_torch / "prime_rl" / module
        path.parent.mkdir(parents=True)
        path.write_text(text)
    check_out(
        directory,
        COMMIT,
        paths=["src"],
        packages=["loguru", "psutil", "setproctitle"],
        importable=[without_torch, directory / "src"],
    )
    programs = directory / ".venv" / "bin"
    launch = "from prime_rl.entrypoints.rl import main; main()"
    program(
        programs / "rl", f'#!/bin/sh\nexec {programs / "python"} -c {shlex.quote(launch)} "$@"\n'
    )
    for name in PARTS:
        start = f"{shlex.quote(sys.executable)} {shlex.quote(stand_in_parts.__file__)} {name}"
        text = f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(REPOSITORY))} exec {start} "$@"\n'
        program(programs / name, text)
    return directory


@pytest.fixture
def launched(place: Place, real: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("PRIME_RL_DIR", str(real))
    monkeypatch.setenv("STAND_IN_RL", "whole")
    return place


async def test_a_whole_run(launched: Place) -> None:
    assert await run(request_run(launched.config())) == RunEnd("finished", "2 steps")
    assert [event.step for event in launched.events(StepFinished)] == [1, 2]
    told = [event.text for event in launched.events(Noted)]
    assert "dry run: passed" in told
    assert any(text.startswith("configuration: valid, by ") for text in told)
    assert living(launched.pids) == []
    assert "Training finished!" in (launched.run / "logs" / "prime_rl.log").read_text()


async def test_a_trainer_that_dies(launched: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_RL", "crash")
    end = await run(request_run(launched.config()))
    assert end.status == "failed"
    assert "MemoryError: CUDA out of memory" in str(entries_of(RunDirectory(launched.run)))
    assert living(launched.pids) == []


async def test_interrupted_and_resumed(launched: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_RL", "hold")
    task = asyncio.create_task(made(request_run(launched.config())).run())
    await until(lambda: steps(launched) == 1)
    task.cancel()
    assert (await task).status == "interrupted"
    assert len(launched.pids.read_text().split()) == 4
    assert living(launched.pids) == []
    monkeypatch.setenv("STAND_IN_RL", "whole")
    assert await run(request_resume(str(launched.run), [])) == RunEnd("finished", "2 steps")
    assert [event.status for event in launched.events(RunFinished)] == ["interrupted", "finished"]
    assert [event.step for event in launched.events(StepFinished)] == [1, 2]
