"""`tbtui eval` of a model on a vLLM server: the real command, real trials, real HTTP."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tbtui.config import ConfigError, parse_settings
from tbtui.engines.request import request_run
from tbtui.journal.events import AnyEvent, EvalFinished, TrialQueued, TurnSampled
from tbtui.journal.rundir import RunDirectory
from tbtui.resources import tasks_dir
from tests.events import entries_of
from tests.policies.served.server import VllmServer


async def tbtui(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tbtui", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def events(run: Path) -> Sequence[AnyEvent]:
    return [entry.event for entry in entries_of(RunDirectory.open(run))]


def said(run: Path) -> list[tuple[str, int, str]]:
    told = events(run)
    labels = {event.trial: event.label for event in told if isinstance(event, TrialQueued)}
    return sorted(
        (labels[event.trial], event.turn, event.text)
        for event in told
        if isinstance(event, TurnSampled)
    )


@pytest.mark.slow
async def test_a_served_model_is_worth_what_the_same_weights_are_here(
    vllm_server: VllmServer, tmp_path: Path
) -> None:
    for name in ("mkdir-01", "mkdir-07", "remove-01"):
        shutil.copytree(tasks_dir() / "starter" / name, tmp_path / "tasks" / name)
    shared = (
        *("eval", "--no-ui", f"tasks_dir={tmp_path / 'tasks'}", f"logs_dir={tmp_path / 'runs'}"),
        *("eval_tasks=mkdir-01,mkdir-07", "eval_group_size=3", "max_turns=3", "n_workers=1"),
    )
    served = (
        *("policy=vllm", "model_name=starter", "renderer=embedded"),
        f"vllm_base_url={vllm_server.url}/v1",
    )
    (here, _, _), (there, out, err) = await asyncio.gather(
        tbtui(*shared, "run_name=here"), tbtui(*shared, *served, "run_name=there")
    )
    assert (here, there) == (0, 0), out + err
    assert "pass@1" in out
    assert said(tmp_path / "runs" / "there") == said(tmp_path / "runs" / "here")
    rates = [
        [e.pass_rate for e in events(tmp_path / "runs" / name) if isinstance(e, EvalFinished)]
        for name in ("here", "there")
    ]
    assert rates[0] == rates[1]
    assert len(rates[0]) == 1
    assert not (tmp_path / "runs" / "there" / "checkpoints" / "step-0").exists()


async def test_what_the_settings_ask_for_in_vain_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    status, out, err = await tbtui(
        *("run", "--no-ui", "policy=vllm", "model_name=x", "max_steps=3"),
        f"logs_dir={tmp_path / 'runs'}",
    )
    assert status == 2
    assert "can only be evaluated; use tbtui eval policy=vllm model_name=x logs_dir=" in err
    assert err.count("\n") == 1, out + err
    assert not (tmp_path / "runs").exists()


def test_the_embedded_model_alone_has_one_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="policy=vllm to evaluate one"):
        request_run(parse_settings(["model_name=x", f"logs_dir={tmp_path}"]))
