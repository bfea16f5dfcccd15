"""`tbtui probe` of a model behind a Chat Completions API: the real command, trials and HTTP."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tbtui.commands.probe import NOT_AS_IT_IS
from tbtui.resources import tasks_dir
from tests.cli.process import tbtui
from tests.policies.served.server import VllmServer


@pytest.mark.slow
async def test_a_served_model_is_probed(vllm_server: VllmServer, tmp_path: Path) -> None:
    for name in ("mkdir-01", "mkdir-02", "mkdir-07"):
        shutil.copytree(tasks_dir() / "starter" / name, tmp_path / "tasks" / name)
    printed = await asyncio.to_thread(
        tbtui,
        *("probe", "starter", str(tmp_path / "tasks"), "--json", f"logs_dir={tmp_path / 'runs'}"),
        *("policy=openai", f"openai_base_url={vllm_server.url}/v1", "n_workers=1", "max_turns=3"),
        *("probe=terminus-2@0.8", "probe_tasks=1", "eval_group_size=3"),
    )
    document = json.loads(printed.stdout)
    (arm,) = document["arms"]
    # What the stand-in says is no answer of Terminus-2's.
    assert (arm["trials"], arm["scored"], arm["broken"]) == (3, 3, 0)
    assert (arm["answers"], arm["readable"], arm["cut"]) == (9, 0, 0)
    assert document["verdict"] in ("warm_start", "other_agent")
    assert "0% of 9 answers" in document["why"]
    assert printed.returncode == NOT_AS_IT_IS
    assert sum(body.get("temperature") == 0.8 for body in vllm_server.asked) == 9
    # It can't be trained where it is served, and has no name on the hub.
    assert " run " not in document["command"]
