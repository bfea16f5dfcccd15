"""The report that is otherwise run by hand with a key, against the test server."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tbtui.policies.tinker.training_run import TinkerSettings
from tests.by_hand.tinker_report import examine, main
from tests.tinker_server.server import TinkerServer

KEY = "tml-of-a-test"  # as in conftest


@pytest.mark.slow
def test_everything_that_a_run_needs_is_tried(
    tinker_server: TinkerServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    command = ["tinker_report", "starter", "--renderer", "embedded"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*command, "--base-url", tinker_server.url])
    assert main() == 0
    said = capsys.readouterr().out
    tried = ["start", "sample", "gradient", "optimiser step", "publish", "save", "resume"]
    for name in [*tried, "delete", "resume what is deleted", "close"]:
        assert f"ok      {name}" in said
    assert "refused as it should be" in said
    assert "everything worked" in said
    assert KEY not in said


async def test_a_failure_is_one_line_and_ends_what_depends_on_it(
    tinker_server: TinkerServer, tmp_path: Path
) -> None:
    said: list[str] = []
    settings = TinkerSettings("star", base_url=tinker_server.url, renderer="embedded")
    assert not await examine(settings, tmp_path, said.append)
    (failed,) = (line for line in said if line.startswith("FAILED"))
    assert "start" in failed and "starter" in failed
    assert said[-1].startswith("failed: start")
    assert not any("optimiser" in line or KEY in line for line in said)
