"""The script that is run by hand on a GPU, on a CPU at its smallest size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra `torch`")
pytest.importorskip("peft", reason="needs the extra `torch`")
pytestmark = [pytest.mark.extras, pytest.mark.timeout(300)]


def test_all_is_right_on_a_cpu(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.by_hand.gpu_run", "--size", "tiny", "--device", "cpu"),
            *("--steps", "6", "--json", str(found)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    report = json.loads(found.read_text())
    assert report["wrong"] == []
    figures = report["figures"]
    assert figures["times out of memory in the limited step"] >= 1
    assert figures["harbor, textual, tinker, vllm imported"] == "nothing"
