"""Whose entries are abandoned, wherever the processes are written down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tbtui.rollout.environments.ledger import Ledger, abandoned
from tests.engines.test_outages import small_files


def test_what_a_living_process_has_written_down_is_not_abandoned(tmp_path: Path) -> None:
    Ledger(tmp_path).record("mine", [], [])
    ledger = Ledger.__module__
    code = f"import sys; from {ledger} import Ledger; Ledger(Path(sys.argv[1])).record('a', [], [])"
    code = f"from pathlib import Path; {code}"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert [path.stem for path, _ in abandoned(tmp_path)] == ["a"]


def test_an_entry_for_which_there_is_no_room_is_named(tmp_path: Path) -> None:
    with small_files(0), pytest.raises(OSError, match=str(tmp_path / "box.json")):
        Ledger(tmp_path).record("box", [], [])
    assert not list(tmp_path.iterdir())
