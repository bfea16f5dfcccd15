"""Alerts about alarms, budgets, the end and a crash; secrets that are never written down."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tbtui.config import ConfigError, parse_settings, to_json, to_toml
from tbtui.engines.alerts import (
    Alert,
    Alerts,
    Webhook,
    alerting,
    deliver,
    make_alert,
    receivers_of,
)
from tbtui.findings import Rule
from tbtui.journal.events import AlarmRaised, AlertSent, BudgetReached, RunFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.journal.writer import JournalWriter
from tests.waiting import until

from .test_wandb_tracker import records

ALARM = AlarmRaised(alarm=Rule.NO_SIGNAL, step=3, text="all equal", numbers={}, action="warn")
SPENT = BudgetReached(budget="rollouts", spent=80, limit=100, ends=False)
END = RunFinished(status="finished", reason="3 steps")


class Hook(HTTPServer):
    """A webhook; it refuses the first requests with these statuses."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses = list(statuses)
        self.got: list[tuple[str, dict[str, Any]]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/services/s3cret?key=s3cret"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, json.loads(body)))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "r")


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    yield server
    server.shutdown()
    server.server_close()


def test_everything_that_matters_is_told_once(directory: RunDirectory, hook: Hook) -> None:
    sent: list[AlertSent] = []
    with JournalWriter(directory) as journal:
        journal.append(ALARM)  # of an earlier process
        journal.flush()
        with alerting([hook.address], None, directory, sent.append) as deliver_last:
            journal.append(ALARM)
            journal.append(SPENT)
            journal.append(END)
            journal.flush()
            deliver_last()
    assert [body["about"] for _, body in hook.got] == ["alarm", "budget", "end"]
    path, first = hook.got[0]
    assert path == "/services/s3cret?key=s3cret"
    assert first["text"] == "r: no signal at step 3: all equal"
    assert (first["run"], first["directory"]) == ("r", str(directory.path))
    assert hook.got[1][1]["text"] == "r: 80 rollouts of 100 rollouts spent (80%)"
    assert [event.ok for event in sent] == [True, True, True]
    assert all("s3cret" not in event.to for event in sent)


@pytest.mark.parametrize(
    ("statuses", "ok", "tries"),
    [((), True, 1), ((503, 429), True, 3), ((404,), False, 1), ((500,) * 9, False, 5)],
)
def test_what_may_pass_is_tried_again(
    directory: RunDirectory, hook: Hook, statuses: tuple[int, ...], ok: bool, tries: int
) -> None:
    hook.statuses = list(statuses)
    stop = threading.Event()
    stop.set()  # without pauses
    found = deliver(make_alert("end", "x", directory, 0.0), Webhook(hook.address), stop)
    assert (found.ok, found.tries, len(hook.got)) == (ok, tries, tries)
    assert "s3cret" not in repr(found)


def test_a_receiver_that_hangs_holds_nothing_up(directory: RunDirectory) -> None:
    release = threading.Event()

    class Hanging:
        name = "hanging"

        def send(self, alert: object) -> None:
            release.wait()

    with JournalWriter(directory) as journal:
        journal.append(ALARM)
        journal.flush()
        alerts = Alerts([Hanging()], directory, lambda _: None)
        alerts.start()
        journal.append(END)
        journal.flush()
        alerts.close(patience=0.1)  # comes back
    release.set()


def test_a_command_gets_it_on_its_input(directory: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = (
        f"import os,sys;open({str(out)!r},'w').write(os.environ['TBTUI_ALERT']+sys.stdin.read())"
    )
    (program,) = receivers_of([f"command:{sys.executable} -c {json.dumps(script)}"], None, "r")
    assert deliver(make_alert("crash", "died", directory, 0.0), program, threading.Event()).ok
    about, _, document = out.read_text().partition("{")
    assert about == "crash"
    assert json.loads("{" + document)["text"] == "r: died"
    (missing,) = receivers_of(["command:/no/such/program"], None, "r")
    found = deliver(make_alert("end", "x", directory, 0.0), missing, threading.Event())
    assert (found.ok, found.tries) == (False, 1)


def test_a_killed_run_is_told_of_by_the_process_beside_it(
    directory: RunDirectory, hook: Hook
) -> None:
    with JournalWriter(directory) as journal:
        journal.flush()
    script = (
        "import sys, time; from pathlib import Path\n"
        "from tbtui.engines.alerts import alerting; from tbtui.journal.rundir import RunDirectory\n"
        f"with alerting([{hook.address!r}], None, RunDirectory(Path({str(directory.path)!r})),"
        " print):\n    print('up', flush=True); time.sleep(600)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    asyncio.run(until(lambda: bool(hook.got)))
    assert hook.got[0][1]["about"] == "crash"
    assert f"tbtui run --resume {directory.path}" in hook.got[0][1]["text"]


def test_secrets_are_not_written_down() -> None:
    config = parse_settings(
        ["alerts=https://me:pw@hooks.example/T0/s3cret?k=s3cret,https://h/$HOOK"]
    )
    assert to_json(config)["alerts"] == ["https://me:***@hooks.example/***", "https://h/$HOOK"]
    assert "s3cret" not in to_toml(config) and ":pw" not in to_toml(config)


@pytest.mark.parametrize(
    ("alerts", "why"),
    [
        ("https://h/***", "was written down without its secret"),
        ("ftp://h/x", "should be https://..., command:... or wandb"),
        ("command:", "write command:PROGRAM"),
        ("wandb", "give wandb_project too"),
        ("https://h/$NO_SUCH_VARIABLE", "$NO_SUCH_VARIABLE is not in the environment"),
    ],
)
def test_what_cannot_be_told_is_refused_in_a_line(alerts: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        receivers_of([alerts], None, "r")
    assert why in str(refused.value)


@pytest.mark.slow
def test_wandb_raises_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real wandb, offline: what it would send lies in its own file."""
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    alert = Alert("alarm", "no signal", "r", "/runs/r", "here", 1.0)
    receivers_of(["wandb"], "p", "r")[0].send(alert)
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    alerts, runs = [], []
    for data in records(file):
        record = Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "alert":
            alerts.append((record.alert.title, record.alert.text))
        elif record.WhichOneof("record_type") == "run":
            runs.append((record.run.project, record.run.display_name))
    assert alerts == [("r: alarm", "no signal")]
    assert runs[0] == ("p", "r-alerts")
