"""wandb for real, in its offline mode: what it stored is read back from its own file."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tbtui.config import RunConfig
from tbtui.journal.rundir import RunDirectory, require_writable_within
from tbtui.journal.writer import JournalWriter

from .test_trackers import resumed, step, tracked

pytestmark = pytest.mark.slow


def test_a_server_that_never_answers_is_one_line(tmp_path: Path) -> None:
    """It gives up after the run has ended."""
    done = subprocess.run(
        [sys.executable, "-m", "tbtui", "run", "--no-ui", "max_steps=0", "eval_tasks=copy-01",
         "n_workers=1", "wandb_project=p", f"logs_dir={tmp_path}"],
        env={**os.environ, "WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9",
             "WANDB_API_KEY": "local-" + 40 * "0", "WANDB_INIT_TIMEOUT": "5",
             "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr


def records(path: Path) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format after a header of 7 bytes."""
    block, header = 32768, struct.Struct("<IHB")
    data = path.read_bytes()
    at, parts = 7, b""
    while at + header.size <= len(data):
        if block - at % block < header.size:
            at += block - at % block
            continue
        _, size, kind = header.unpack_from(data, at)
        at += header.size
        parts += data[at : at + size]
        at += size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield parts
            parts = b""


def stored(directory: Path) -> list[tuple[str, list[dict[str, object]]]]:
    """(Run id, history rows) of each offline run below `directory`, in the order of their end."""
    from wandb.proto.wandb_internal_pb2 import Record

    runs = []
    for path in sorted(
        directory.glob("wandb/offline-run-*/*.wandb"), key=lambda p: p.stat().st_mtime_ns
    ):
        rows, run_id = [], ""
        for data in records(path):
            record = Record()
            record.ParseFromString(data)
            match record.WhichOneof("record_type"):
                case "run":
                    run_id = record.run.run_id
                case "history":
                    rows.append(
                        {
                            item.key or "/".join(item.nested_key): json.loads(item.value_json)
                            for item in record.history.item
                        }
                    )
        runs.append((run_id, rows))
    return runs


def test_a_failure_of_wandb_is_told_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = RunDirectory.create(tmp_path / "run")
    with JournalWriter(run) as writer:
        writer.append(step(1, reward=0.25))
        (problem,) = tracked(run, RunConfig(wandb_project="not/a:name"))
    assert problem.startswith("wandb: ")
    assert problem.endswith("the run goes on without it")


def test_a_resumed_run_goes_on_under_its_id_and_has_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = resumed(tmp_path, RunConfig(wandb_project="demo"))
    (first_id, first), (second_id, second) = stored(run.path)
    assert any(each.is_symlink() for each in (run.path / "wandb").iterdir())
    require_writable_within(run)  # with wandb's own links, it can go on
    assert first_id == second_id
    evaluation, *steps = (*first, *second)
    assert (evaluation["test/pass_rate"], evaluation["step"], evaluation["_step"]) == (0.5, 0, 0)
    assert [(row["_step"], row["step"], row["reward"]) for row in steps] == [
        (1, 1, 0.25),
        (2, 2, 0.5),
    ]
