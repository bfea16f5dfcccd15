"""Detaching from a run in the app, under a real shell; and the process that the shell waits for."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from tbtui.journal.events import RunFinished, TrialPhaseChanged
from tbtui.journal.rundir import writer

from .shell import TBTUI, Shell, Terminal

pytestmark = [pytest.mark.slow, pytest.mark.uid]


def child_of(typed: Terminal) -> psutil.Process:
    """The process of the app and the run."""
    (child,) = psutil.Process(typed.process.pid).children()
    return child


def test_d_gives_the_prompt_back_and_the_run_goes_on(shell: Shell) -> None:
    prompt = Terminal(shell, "bash", "--norc", "--noprofile", "-i")
    prompt.wait_for(b"ready> ")
    # A hang-up would end it: what a person says goes before that. Nor is it over before that.
    settings = " ".join(shell.settings("on_hangup=stop", "max_steps=2", "pace_sec=5"))
    prompt.type(f"{' '.join(TBTUI)} run {settings}\r")
    shell.until(prompt.at_work)
    prompt.wait_for(b"quit")
    prompt.type("q")
    prompt.wait_for(b"detach and keep it running")
    prompt.type("d")
    prompt.wait_for(b"ready> ")
    assert b"tbtui attach r\r\n" in prompt.seen
    for switched_off in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?2004l", b"\x1b[<u", b"\x1b[?25h"):
        assert switched_off in prompt.seen
    # What is typed is shown, too: the pattern must not match itself there.
    prompt.type("echo status=$?; stty -a | grep -o ' icano[n]'; jobs\r")
    prompt.wait_for(b" icanon")
    assert b"status=0" in prompt.seen
    # It has nothing of the terminal any more, which can be closed.
    prompt.type("exit\r")
    assert prompt.ended() == 0
    prompt.goes_away()
    assert not shell.events(RunFinished)
    shell.until(lambda: not shell.processes())
    log = shell.directory.log.read_text()
    assert log.count("a person has detached") == 1
    assert "the terminal has gone" not in log
    assert [event.status for event in shell.events(RunFinished)] == ["finished"]
    lines = shell.directory.output.read_text()
    assert "\nstep " in lines
    assert "finished: 2 steps" in lines
    assert writer(shell.directory) is None


@pytest.mark.parametrize("group", [False, True], ids=["alone", "with its child"])
def test_a_signal_ends_the_run_cleanly_and_once(shell: Shell, group: bool) -> None:
    typed = Terminal.with_run(shell)
    if group:
        os.killpg(typed.process.pid, signal.SIGTERM)
    else:
        typed.process.terminate()
    assert typed.ended() == 130
    assert [event.status for event in shell.events(RunFinished)] == ["interrupted"]
    assert typed.cooked
    assert shell.processes() == []


def test_whoever_kills_one_of_both_kills_the_other(shell: Shell) -> None:
    typed = Terminal.with_run(shell)
    typed.process.kill()
    shell.until(lambda: not shell.processes())
    assert shell.events(RunFinished) == []
    resumed = Terminal(shell, *TBTUI, "run", "--resume", "r")
    resumed.wait_for(b"quit")
    assert not resumed.cooked
    child_of(resumed).kill()
    assert resumed.ended() == -signal.SIGKILL
    assert resumed.cooked
    assert b"\x1b[?1049l" in resumed.seen
    shell.until(lambda: not shell.processes())


def test_a_shell_sees_it_stop_and_go_on_and_ctrl_c_says_how_to_resume(shell: Shell) -> None:
    typed = Terminal.with_run(shell)
    waiting, child = psutil.Process(typed.process.pid), child_of(typed)
    child.send_signal(signal.SIGTSTP)
    # A terminal that nothing is read from holds up what writes to it.
    shell.until(lambda: typed.shows() and waiting.status() == psutil.STATUS_STOPPED)
    shell.until(lambda: b"\x1b[?1049l" in typed.shows() and typed.cooked)
    waiting.resume()
    shell.until(lambda: typed.shows() and child.status() != psutil.STATUS_STOPPED)
    shell.until(lambda: typed.shows() and not typed.cooked)
    events = len(shell.events(TrialPhaseChanged))
    shell.until(lambda: typed.at_work() and len(shell.events(TrialPhaseChanged)) > events)
    typed.type("\x03")
    typed.wait_for(b"Stop the run and clean up?")
    typed.type("\x03")
    assert typed.ended() == 130
    assert b"run     r, step" in typed.seen
    assert b"tbtui run --resume r\r\n" in typed.seen
    assert typed.seen.rstrip().endswith(b"tbtui: everything is cleaned up")


def test_the_status_is_that_of_the_run(shell: Shell) -> None:
    model = ["policy=vllm", "model_name=m", "vllm_base_url=http://127.0.0.1:9/v1", "max_steps=0"]
    failing = Terminal(shell, *TBTUI, "run", *shell.settings(*model)[:4], *model)
    failing.wait_for(b"The run has failed")
    failing.type("q")
    assert failing.ended() == 1
    assert b"tbtui: " in failing.seen
    refused = Terminal(shell, *TBTUI, "run", f"tasks_dir={shell.where / 'nothing'}", "run_name=s")
    assert refused.ended() == 2
    assert b"nothing" in refused.seen
    assert refused.cooked
