"""Running commands and moving files."""

# ruff: noqa: ASYNC110, ASYNC240
from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.rollout.environments.base import (
    ExecTimeoutError,
    SandboxError,
    SandboxLostError,
    direct_argv,
)
from tbtui.rollout.environments.box import Box
from tbtui.rollout.environments.output import KEPT_HEAD, KEPT_TAIL, BoundedOutput
from tbtui.rollout.environments.transfer import receive
from tbtui.rollout.environments.upload import Ownership, upload_file, upload_tree
from tbtui.rollout.environments.userland import BASE_ENVIRONMENT
from tests.rollout.environments.boxes import limits, processes_of, running_box, sh

pytestmark = pytest.mark.uid


async def test_results_and_environment() -> None:
    async with running_box() as box:
        result = await sh(box, "echo out; echo err >&2; exit 7")
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 7)
        assert (await sh(box, "kill -9 $$")).exit_code == 137
        assert (await box.run(["nosuch"], environment={}, cwd="/")).exit_code == 127
        assert (await box.run(["/bin/true"], environment={}, cwd="/nosuch")).exit_code == 126
        locale = await sh(box, "printf 'é' | wc -m")
        assert locale.stdout.strip() == "1"


async def test_a_daemon_does_not_hold_the_result_and_lives_on() -> None:
    async with running_box() as box:
        daemon = (
            "while :; do echo noise; read -t 0.01 < <(:) ; done & echo $! > /tmp/pid; echo done"
        )
        result = await asyncio.wait_for(sh(box, daemon), 10)
        assert result.stdout.endswith("done\n") or "done\n" in result.stdout
        assert (await sh(box, "kill -0 $(cat /tmp/pid)")).exit_code == 0


async def _no_sleep_is_left(box: Box) -> None:
    """The kill has been sent; the last of them is reaped a moment later."""
    async with asyncio.timeout(10):
        while (await sh(box, "pgrep -c sleep")).stdout != "0\n":
            await asyncio.sleep(0.01)


async def test_timeout_kills_the_group() -> None:
    async with running_box() as box:
        with pytest.raises(ExecTimeoutError, match="timed out after"):
            await sh(box, "sleep 100 & sleep 100", timeout_sec=0.2)
        await _no_sleep_is_left(box)


async def test_cancelling_kills_the_command() -> None:
    async with running_box() as box:
        task = asyncio.create_task(sh(box, "touch /tmp/on; sleep 100"))
        while await box.mode_of("/tmp/on") is None:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _no_sleep_is_left(box)


async def test_much_output_is_bounded() -> None:
    async with running_box() as box:
        result = await sh(box, "head -c 200M /dev/zero | tr '\\0' x; echo end")
        assert len(result.stdout) < KEPT_HEAD + KEPT_TAIL + 200
        assert "bytes of output not kept" in result.stdout
        assert result.stdout.endswith("xend\n")


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_bounded_output(chunks: list[bytes]) -> None:
    output = BoundedOutput(head=10, tail=10)
    for chunk in chunks:
        output.add(chunk)
    whole = b"".join(chunks)
    if len(whole) <= 20:
        assert output.text() == whole.decode(errors="replace")
    else:
        assert f"{len(whole) - 20} bytes" in output.text()


async def test_lost_box_fails_what_is_pending_and_what_comes_after() -> None:
    async with running_box() as box:
        task = asyncio.create_task(sh(box, "sleep 100"))
        await asyncio.sleep(0)
        assert box.init_pid is not None
        os.kill(box.init_pid, 9)
        with pytest.raises(SandboxLostError):
            await task
        with pytest.raises(SandboxLostError):
            await sh(box, "true")
        assert box.lost


async def test_stop_leaves_nothing() -> None:
    async with running_box() as box:
        await sh(box, "setsid sleep 100 & (sleep 100 &)")
        pids = processes_of(box)
        assert len(pids) >= 3
        await box.stop()
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        await box.stop()


async def test_files_both_ways(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "deep" / "run.sh").chmod(0o700)
    (source / "link").symlink_to("deep/run.sh")
    async with running_box() as box:
        await upload_tree(box, source, "/app/copy")
        assert (await sh(box, "/app/copy/link")).stdout == "ran\n"
        await upload_file(box, source / "deep" / "run.sh", "/new/dir/x", Ownership(mode=0o600))
        assert (await sh(box, "stat -c %a /new/dir/x")).stdout == "600\n"
        target = tmp_path / "target"
        target.mkdir()
        assert await box.get("/app/copy", target) == 1
        assert (target / "deep" / "run.sh").read_text() == "#!/bin/sh\necho ran\n"
        assert not (target / "link").exists()
        with pytest.raises(SandboxError, match="can't read /nosuch"):
            await box.get("/nosuch", target)


async def test_download_never_follows_what_the_box_planted(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("host")
    target = tmp_path / "target"
    target.mkdir()
    async with running_box() as box:
        await sh(
            box,
            f"mkdir -p /x/dir; ln -s {secret} /x/link; ln -s {tmp_path} /x/dirlink; "
            "mkfifo /x/fifo; ln -s /etc/passwd /x/single; echo good > /x/dir/good; "
            "touch $'/x/new\\nline'",
        )
        await box.get("/x", target)
        found = sorted(p.name for p in target.rglob("*"))
        assert found == ["dir", "good", "new\nline"]
        # One file, named by a link: the box's own file, never the host's.
        await box.get("/x/single", tmp_path / "single")
        assert "nobody" in (tmp_path / "single").read_text()
        with pytest.raises(SandboxError):
            await box.get("/x/link", tmp_path / "stolen")
        with pytest.raises(SandboxError):
            await box.get("/x/fifo", tmp_path / "fifo")


async def test_a_long_log_is_cut_and_a_large_download_refused(tmp_path: Path) -> None:
    async with running_box(limit=limits(download_mb=2)) as box:
        await sh(box, "mkdir /x; (echo first; head -c 40M /dev/zero; echo last) > /x/log")
        assert await box.get("/x/log", tmp_path / "log", longest=1000) == 1
        text = (tmp_path / "log").read_bytes()
        assert text.startswith(b"first\n")
        assert text.endswith(b"last\n")
        assert b"bytes not kept" in text
        assert len(text) < 1100
        with pytest.raises(SandboxError, match="download refused"):
            await box.get("/x/log", tmp_path / "whole")
        assert not (tmp_path / "whole").exists()


def stopped_processes() -> list[psutil.Process]:
    family = psutil.Process().children(recursive=True)
    return [p for p in family if p.status() == psutil.STATUS_STOPPED]


async def test_a_download_that_the_box_holds_up_ends(tmp_path: Path) -> None:
    async with running_box() as box:
        await sh(
            box,
            "mkdir /x; head -c 20M /dev/zero > /x/a; sleep 60 & setsid python3 -c '\nimport os\n"
            "while True: os.kill(-1, 19)' > /dev/null 2>&1 &",
        )
        while not stopped_processes():
            await asyncio.sleep(0.02)
        with pytest.raises(SandboxError, match=r"within 0\.5 s"):
            await box.get("/x", tmp_path, timeout_sec=0.5)


async def test_emptying_owes_nothing_to_the_boxs_programs(tmp_path: Path) -> None:
    async with running_box() as box:
        await sh(box, "mkdir -p /a/b /victim; touch /a/b/c /victim/d; ln -s /victim /link")
        await box.run(["/bin/sh", "-c", "cd /usr/bin; rm -f find mkdir rm"], environment={})
        await box.empty_directories(["/a", "/link", "/new/one"], 0o777)
        left = await sh(
            box, "cd /; echo a/* link/* new/one/* victim/*; stat -c %a /a; test -L /link"
        )
        assert left.stdout.split() == ["a/*", "link/*", "new/one/*", "victim/d", "777"]
        assert left.exit_code == 1


async def test_upload_replaces_links_instead_of_following(tmp_path: Path) -> None:
    source = tmp_path / "f"
    source.write_text("new")
    async with running_box() as box:
        await sh(box, "echo old > /app/real; ln -s /app/real /app/link; mkfifo /app/fifo")
        await upload_file(box, source, "/app/link")
        await asyncio.wait_for(upload_file(box, source, "/app/fifo"), 10)
        assert (await sh(box, "cat /app/real /app/link /app/fifo")).stdout == "old\nnewnew"
        # An absolute link leads inside the box, never to the host's directory of that name.
        outside = tmp_path / "outside"
        outside.mkdir()
        await sh(box, f"mkdir -p {outside}; ln -s {outside} /app/out")
        await upload_file(box, source, "/app/out/f")
        assert not list(outside.iterdir())


@pytest.mark.parametrize(
    "stream",
    [
        b"f 644 3 6\n../pwnabc",
        b"f 644 3 4\n/pwnabc",
        b"f 644 3 4\na/..abc",
        b"f 644 3 1\nxab",
        b"l 644 0 1\nx",
        b"garbage\n",
        b"f 644 99999 1\nx",
        b"f 644 -1 1\nx",
    ],
)
def test_receiver_refuses_bad_streams(tmp_path: Path, stream: bytes) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "stream").write_bytes(stream)
    with (tmp_path / "stream").open("rb") as pipe, pytest.raises(SandboxError):
        receive(pipe, target, max_bytes=1000, max_files=10)
    assert not (tmp_path / "pwn").exists()


def test_receiver_leaves_out_what_lies_too_deep(tmp_path: Path) -> None:
    names = ["/".join("d" * depth).encode() for depth in range(1, 1500)]
    frames = [b"d 755 0 %d\n%s" % (len(name), name) for name in names]
    (tmp_path / "stream").write_bytes(b"".join([*frames, b"f 644 3 1\nxabc"]))
    target, notes = tmp_path / "target", list[str]()
    target.mkdir()
    with (tmp_path / "stream").open("rb") as pipe:
        assert receive(pipe, target, max_bytes=1000, note=notes.append) == 1
    assert len([*os.walk(target)]) == 101  # `target` itself, too
    assert notes == [f"{target}: 1399 of 1500 files and directories left out"]


def test_receiver_does_not_write_through_links(tmp_path: Path) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / "d").symlink_to(outside)
    (tmp_path / "stream").write_bytes(b"f 644 3 3\nd/xabc")
    with (tmp_path / "stream").open("rb") as pipe, pytest.raises(OSError, match="Not a dir"):
        receive(pipe, target, max_bytes=1000, max_files=10)
    assert not list(outside.iterdir())


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("tmux -V", ["tmux", "-V"]),
        (
            "tmux send-keys -t x -- 'ls -la' Enter",
            [*["tmux", "send-keys", "-t", "x", "--"], "ls -la", "Enter"],
        ),
        ("tmux send-keys -t x -- 'it'\"'\"'s'", [*["tmux", "send-keys", "-t", "x", "--"], "it's"]),
        ("tmux send-keys -t x -- ''", [*["tmux", "send-keys", "-t", "x", "--"], ""]),
        ("tmux kill-server; rm -rf /", None),
        ("tmux ls | wc", None),
        ("tmux $HOME", None),
        ("tmux a\nrm b", None),
        ("chmod +x *.sh", None),
        ("rm ~/x", None),
        ("cd /app", None),
        ("A=b tmux", None),
        ("A=tmux -V", None),
        ("tmux send-keys -t x -- A=b", [*["tmux", "send-keys", "-t", "x", "--"], "A=b"]),
        ("", None),
    ],
)
def test_direct_argv(command: str, argv: list[str] | None) -> None:
    assert direct_argv(command) == argv


async def test_only_a_regular_file_is_made_executable() -> None:
    async with running_box() as box:
        await sh(box, "touch /app/a; chmod 640 /app/a; ln -s a /app/link; mkfifo /app/fifo")
        await box.make_executable("/app/a")
        assert (await sh(box, "stat -c %a /app/a")).stdout == "751\n"
        for path in ("/app/link", "/app/fifo", "/app/none"):
            with pytest.raises(OSError, match=path):
                await box.make_executable(path)


async def test_streams_reach_a_sink_as_they_come() -> None:
    seen: list[bytes] = []
    async with running_box() as box:
        await box.run(
            ["/bin/bash", "-c", "echo one; echo two >&2"],
            environment=BASE_ENVIRONMENT,
            sink=lambda stream, chunk: seen.append(stream.encode() + b":" + chunk),
        )
    assert sorted(seen) == [b"stderr:two\n", b"stdout:one\n"]
