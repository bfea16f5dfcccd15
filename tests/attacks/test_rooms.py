"""Attacks on what stands around the trials, a class a room: what is served and exported, trackers,
sweeps, servers that redirect, clocks and disks."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import pty
import re
import socket
import subprocess
import sys
import time
import xml.dom.minidom
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from aiohttp import web
from typer.testing import CliRunner

from tbtui.cli import app
from tbtui.commands.sweep import read_sweep
from tbtui.config import RunConfig
from tbtui.engines.alerts import Alert, AlertError, Webhook
from tbtui.engines.trackers import Tracker, close_all, trackers_for
from tbtui.journal.events import (
    PolicyMeasured,
    ReviewOpened,
    RunPaused,
    StepFinished,
    TrialFinished,
)
from tbtui.journal.rundir import RunDirectory, RunDirectoryError, require_writable_within
from tbtui.journal.writer import JournalWriter
from tbtui.policies.base import PolicyError
from tbtui.policies.openai.policy import OpenAIPolicy
from tbtui.policies.tinker.policy import TinkerPolicy
from tbtui.policies.tinker.training_run import TinkerSettings
from tbtui.policies.vllm.policy import VllmPolicy
from tbtui.server_status import ServerStatus
from tests.attacks.test_servers import asked, lying
from tests.attacks.test_terminal_sequences import infect
from tests.cli.process import tbtui
from tests.events import write_journal
from tests.serve.conftest import nobodys_files, past_run, serving
from tests.serve.serving import Serving
from tests.unprivileged import reachable_directory, unprivileged
from tests.view.story import one_step_run
from tests.waiting import wait_until

__all__ = ["nobodys_files", "past_run", "serving"]


def recorded(path: Path, clock: Callable[[], float] = time.time) -> RunDirectory:
    return write_journal(RunDirectory.create(path), one_step_run(), clock=clock)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.chdir(tmp_path)
    return recorded(tmp_path / "runs" / "a<script>")


def invoke(*words: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


OURS = b" HTTP/1.1\r\nHost: localhost\r\n"
SOCKET = b"""GET /ws%sUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r
Sec-WebSocket-Key: YWFhYWFhYWFhYWFhYWFhYQ==\r\nOrigin: %s\r\n"""
PATHS = b"page/..%2fsession.py static/%2e%2e%2f%2e%2e%2fserver.py page//etc/passwd page/%00 " + (
    b"page/%s %s" % (b"a" * 5000, b"%c3%a9" * 200)
)
HOSTS = b"e.example localhost:80;x [x 127.0.0.1.e.example 2130706433 localhost. e@localhost [::1%2]"
ORIGINS = (
    b"http://evil.example null http://localhost.evil http://localhost:1 file:// http://e,h://l"
)
REQUESTS = {
    b"403": [
        *(b"GET / HTTP/1.1\r\nHost: %s\r\n" % host for host in HOSTS.split()),
        *(SOCKET % (OURS, origin) for origin in (*ORIGINS.split(), b"")),
    ],
    b"404": [b"GET /" + path + OURS for path in PATHS.split()],
    b"400": [
        b"GET /" + OURS + b"Host: evil.example\r\n",
        b"GET /page/page.js" + OURS + b"If-Modified-Since: Mon, 1 Jan 9999999999 0:00:00 GMT\r\n",
        b"\x16\x03\x01\r\n",
        b"GET /" + OURS + b"X: " + b"y" * 20_000 + b"\r\n",
    ],
    b"405": [b"POST /" + OURS + b"Content-Length: 99999999999\r\n"],
}


class TestServe:
    def test_requests(self, serving: Callable[..., Serving], past_run: RunDirectory) -> None:
        server = serving(past_run, "--anyone")
        port = int(server.url.rstrip("/").rpartition(":")[2])
        for status, requests in REQUESTS.items():
            for each in requests:
                with socket.create_connection(("127.0.0.1", port), timeout=20) as stranger:
                    stranger.sendall(each + b"\r\n")
                    assert stranger.recv(100).split()[1:2] == [status], each[:100]
        assert not server.viewers()
        server.end()
        assert len(server.complaints()) == 1  # that no token is asked for


MARKUP = ("</script></pre></style></title>--><script>alert(1)</script><img src=x onerror=alert(1)>"
          "\" onmouseover=\"x\" ' <a href='javascript:x'>&lt;]]>\x1b]8;;x\x07\x9b31m\u202e\ufffe"
)  # fmt: skip
ODD = {"=HYPERLINK(1)": 1.0, "</text><script>\x1b[31m": 1.0, "../../x": 0.0, "huge": 1e308,
       "tiny": 5e-324, "large": 1e300, "step": 99.0, "time": -1.0, "": 2.0}  # fmt: skip


class TestExports:
    @pytest.mark.parametrize("end", ["", "\0"], ids=["markup", "ids that are no paths"])
    def test_a_page_has_no_scripts_and_no_links(self, run: RunDirectory, end: str) -> None:
        for trial in infect(run, MARKUP + end):
            if not end:
                run.recording(trial).parent.mkdir(parents=True)
                event = json.dumps([0.1, "o", f"{MARKUP}\ud800"])
                head = '{"version": 2, "width": 80, "height": 24}'
                run.recording(trial).write_text(f"{head}\n{event}\n")
        assert invoke("export", run.path, "--format", "html", "--out", "out")[::2] == (0, "")
        for page in (each.read_text() for each in Path("out").iterdir()):
            assert {each for each in page if not each.isprintable()} == {"\n"}
            assert not re.search("<(script|img|a|iframe)|[^;] onmouseover", page)

    def test_charts_of_odd_metrics_can_be_opened(self, run: RunDirectory) -> None:
        with JournalWriter(run, continues=True) as journal:
            for step, sign in ((2, 1), (3, -1)):
                values = {name: value * sign for name, value in ODD.items()}
                journal.append(StepFinished(step=step, weights_version=step, metrics=values))
        for log in ([], ["--log"]):
            words = ("--format", "svg", "--metric", "all", "--out", "o.svg", "--overwrite")
            assert invoke("export", run.path, *words, *log)[::2] == (0, "")
            chart = xml.dom.minidom.parse("o.svg")
            assert not chart.getElementsByTagName("script")
            assert not {"nan", "inf"} & set(chart.toxml().replace(",", '"').split('"'))
        table = invoke("export", run.path, "--format", "csv", "--metric", "all", "--out", "-")[1]
        assert "\"'=HYPERLINK" in table or ",'=HYPERLINK" in table

    @pytest.mark.parametrize(
        ("out", "reason"),
        [("RUN/run.db", "own file"), ("RUN/trials/x/recording.cast", "own file"),
         ("link-to-run/config.toml", "own file"), ("fifo", "not a regular"),
         ("RUN/exports/t2.html", ""), ("link", "")],
    )  # fmt: skip
    def test_where_one_may_go(self, run: RunDirectory, out: str, reason: str) -> None:
        Path("precious").write_text("precious")
        os.mkfifo("fifo")
        Path("link").symlink_to("precious")
        Path("link-to-run").symlink_to(run.path)
        before = run.database.read_bytes()
        place = out.replace("RUN", str(run.path))
        status, _, said = invoke("export", run.path, "t2", "--out", place, "--overwrite")
        assert (status, reason in said) == (2 if reason else 0, True)
        assert (run.database.read_bytes(), Path("precious").read_text()) == (before, "precious")


WITH_WANDB = """
import sys; from pathlib import Path; from tbtui.config import RunConfig
from tbtui.engines.trackers import close_all, trackers_for
from tbtui.journal.rundir import RunDirectory
trackers = trackers_for(RunConfig(wandb_project="p"), RunDirectory(Path(sys.argv[1])), print)
[each.start() for each in trackers]
trackers[-1]._thread.join() if sys.stdin.isatty() else sys.stdin.read()
close_all(trackers, patience=0.5)
"""


HANGING = """
import os, subprocess, time
def init(*_, **__): ...
log = finish = init
def STUCK(*_, **__):
    helper = subprocess.Popen(["sleep", "600"])
    with open("new", "w") as file:
        file.write(str(helper.pid))
    os.replace("new", "helper")
    time.sleep(600)
"""


class Quitting:
    def log(self, rows: object) -> None:
        sys.exit(3)

    def close(self) -> None: ...


class TestTrackers:
    @pytest.mark.slow
    @pytest.mark.parametrize("way", ["never answers", "has no key, on a terminal"])
    def test_wandb(self, run: RunDirectory, way: str) -> None:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("WANDB")}
        kept |= {"HOME": str(Path.cwd()), "WANDB_ERROR_REPORTING": "false"}
        stuck, (ours, theirs) = way == "never answers", pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-c", WITH_WANDB, run.path], text=True, start_new_session=True,
            stdin=subprocess.PIPE if stuck else theirs, stdout=subprocess.PIPE, stderr=theirs,
            env=kept | ({"WANDB_MODE": "offline"} if stuck else {}),
        ) as process:  # fmt: skip
            try:
                if stuck:
                    note = run.path / "trackers" / "wandb.json"
                    wait_until(lambda: note.is_file() and json.loads(note.read_text())["rows"])
                    (service,) = psutil.Process(process.pid).children()
                    service.suspend()
                said, _ = process.communicate(timeout=30)
            finally:
                os.killpg(process.pid, 9) if process.returncode is None else None
                for each in (ours, theirs):
                    os.close(each)
        assert process.returncode == 0
        assert stuck or said.startswith("wandb: No API key configured")

    @pytest.mark.parametrize("stuck", ["init", "log", "finish"])
    def test_trackio_that_hangs_leaves_nothing_behind(
        self, run: RunDirectory, monkeypatch: pytest.MonkeyPatch, stuck: str
    ) -> None:
        Path("fake").mkdir()
        Path("fake/trackio.py").write_text(HANGING.replace("STUCK", stuck))
        monkeypatch.setenv("PYTHONPATH", str(Path("fake").resolve()), prepend=os.pathsep)
        problems: list[str] = []
        trackers = trackers_for(RunConfig(trackio_project="p"), run, problems.append)
        for each in trackers:
            each.start()
        if stuck == "finish":
            trackers[-1].finish()
        wait_until(Path("helper").exists)
        helper = psutil.Process(int(Path("helper").read_text()))
        close_all(trackers, patience=0.5)
        assert problems == ["trackio: ended with status -9; the run goes on without it"]
        wait_until(lambda: not helper.is_running() or helper.status() == psutil.STATUS_ZOMBIE)

    def test_odd_metrics_and_a_library_that_ends_its_process(self, run: RunDirectory) -> None:
        problems: list[str] = []
        with JournalWriter(run, continues=True) as journal:
            journal.append(StepFinished(step=2, weights_version=2, metrics=ODD))
        trackers = trackers_for(RunConfig(), run, problems.append)
        trackers.append(Tracker("quitting", Quitting, run, problems.append))
        for each in trackers:
            each.start()
        close_all(trackers)
        assert problems == ["quitting: 3; the run goes on without it"]
        row = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])
        assert row["step"] == 2
        assert row["time"] > 1e9


SETTINGS = '[settings]\nmax_steps = 0\nn_workers = 1\neval_tasks = "copy-01"\nlogs_dir = "runs"\n'


class TestSweeps:
    def test_a_table_obeys_nothing_and_a_damaged_run_hides_no_other(
        self, run: RunDirectory
    ) -> None:
        odd = '"\\u001b[31m[/red]\\u202e"'
        text = f'name = "s"\nmetric = {odd}\n{SETTINGS}[[runs]]\nwandb_name = {odd}\n'
        Path("s.toml").write_text(text)
        (planned,) = read_sweep(Path("s.toml")).runs
        planned.directory.path.mkdir()
        planned.directory.database.write_bytes(b"no journal" * 1000)
        status, printed, said = invoke("sweep", "s.toml", "--table")
        assert (status, said) == (1, "")
        assert {each for each in printed if not each.isprintable()} == {"\n"}
        Path("runs/s.sweep.json").write_bytes(b"\xff\xfe")
        assert "has begun with other runs" in invoke("sweep", "s.toml")[2]

    @pytest.mark.slow
    def test_a_run_that_was_killed_before_its_journal_begins_again(self, run: RunDirectory) -> None:
        Path("s.toml").write_text(f'name = "s"\n{SETTINGS}[grid]\nlearning_rate = [1e-4]\n')
        (planned,) = read_sweep(Path("s.toml")).runs
        RunDirectory.create(planned.directory.path).config.write_text("max_steps = 0\n")
        done = tbtui("sweep", "s.toml", "--json")
        assert done.returncode == 0, done.stderr + planned.output.read_text()


SECRET = "tml-s3cret"


async def tinker(url: str) -> None:
    settings = TinkerSettings("m", url, renderer="embedded", run_name="r")
    with contextlib.closing(await asyncio.to_thread(Path("log").open, "ab")) as log:
        policy = TinkerPolicy(settings, log)
        try:
            await policy.start(None)
        finally:
            await policy.close()


ALERT = Alert("end", SECRET, "r", "/r", "here", 1.0)
CLIENTS: dict[str, Callable[[str], Awaitable[None]]] = {
    "tinker": tinker,  "vllm": lambda url: asked(VllmPolicy, url),
    "openai": lambda url: asked(OpenAIPolicy, url),
    "a password": lambda url: asked(VllmPolicy, url.replace("//", f"//me:{SECRET}@")),
    "alerts": lambda url: asyncio.to_thread(Webhook(f"{url}/?key={SECRET}").send, ALERT),
}  # fmt: skip


class TestRedirects:
    @pytest.mark.parametrize("client", CLIENTS)
    async def test_another_host_is_sent_no_secret(
        self, client: str, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("TINKER_API_KEY", "OPENAI_API_KEY"):
            monkeypatch.setenv(name, SECRET)
        monkeypatch.setenv("TINKER_TELEMETRY", "0")
        came: list[str] = []

        async def elsewhere(request: web.Request) -> web.StreamResponse:
            came.append(f"{request.raw_headers} {await request.text()}".lower())
            return web.json_response({})

        async def redirect(request: web.Request) -> web.StreamResponse:
            came.append("redirected")
            return web.Response(status=307, headers={"Location": f"{other}{request.path}"})

        where = lying(lambda *_: None, elsewhere), lying(lambda *_: None, redirect)
        async with where[0] as other, where[1] as url:
            with contextlib.suppress(PolicyError, AlertError):
                await asyncio.wait_for(CLIENTS[client](url), 30)
        assert came
        assert not [each for each in came if SECRET in each or "authorization" in each]


class TestClocksAndDisks:
    @pytest.mark.parametrize("jump", [-3600.0, 86_400.0, -1e9])
    def test_no_time_is_negative(self, tmp_path: Path, jump: float) -> None:
        for at in range(2, 26, 8):
            times = (1.7e9 + n + jump * (n >= at) for n in itertools.count())
            run = recorded(tmp_path / str(at), times.__next__)
            status, printed, _ = invoke("ctl", "run", "show", run.path, "--json")
            assert (status, json.loads(printed)["seconds"] >= 0) == (0, True)

    @pytest.mark.parametrize("jump", [-3600.0, 86_400.0])
    def test_no_time_of_a_live_run_is_negative(self, tmp_path: Path, jump: float) -> None:
        run, at = RunDirectory.create(tmp_path / "r"), time.time() - jump
        server = ServerStatus("paused_capacity", "", at)
        measured = PolicyMeasured(
            activity="", in_flight=1, running=1, completed=0, sampled_tokens=0, p50_sec=None,
            p95_sec=None, server=server,
        )  # fmt: skip
        with JournalWriter(run, clock=lambda: at) as journal:
            for event in itertools.takewhile(lambda e: e.kind != "group_scored", one_step_run()):
                if not (isinstance(event, TrialFinished) and event.trial == "t1"):
                    journal.append(event)
            journal.append(ReviewOpened(step=1, groups=(), timeout_sec=9.0))
            journal.append(RunPaused())
            journal.append(measured)
            journal.flush()
            shown = [
                invoke("ctl", *words, run.path, "--json")
                for words in (
                    ("run", "show"),
                    ("policy", "show"),
                    ("trial", "list", "--ended", "--run"),
                )
            ]
        assert [each[::2] for each in shown] == [(0, "")] * 3
        rows = "".join(each[1] for each in shown)
        times = re.findall(r'"(\w*_sec|seconds)": (-?[\d.]+)', rows)
        assert {"server_for_sec", "for_sec", "idle_sec", "seconds"} <= {name for name, _ in times}
        assert [each for each in times if float(each[1]) < 0] == []
        assert ("closes_in_sec", "9.0") in times  # it stands still while the run is paused

    @pytest.mark.uid
    def test_a_run_that_may_not_be_written(self) -> None:
        with reachable_directory() as place:
            run = recorded(place / "r")
            for each in (run.path, *run.path.rglob("*")):
                each.chmod(0o555 if each.is_dir() else 0o444)
            with unprivileged():
                with pytest.raises(RunDirectoryError, match="go on with a copy of the run"):
                    require_writable_within(run)
                assert invoke("runs", "journal", run.path)[::2] == (0, "")
