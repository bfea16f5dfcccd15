"""Why a detached run has not begun."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from tbtui.config import parse_settings
from tbtui.engines.request import RunRequest
from tbtui.journal.rundir import RunDirectory
from tbtui.launch import detached


def test_one_that_ends_and_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    request = RunRequest(parse_settings([]), RunDirectory.create(tmp_path / "r"))

    def start() -> NoReturn:
        os._exit(3)

    assert detached(request, start, as_json=False) == 3
    assert capfd.readouterr().err == "tbtui: the run ended with status 3 and said nothing\n"
    assert not request.directory.path.exists()
