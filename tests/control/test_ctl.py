"""`tbtui ctl` against a live run: what it lists, what it changes, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tbtui.cli import app
from tbtui.ctl.app import ctl_app
from tbtui.engines.control.client import ControlClient
from tbtui.engines.resume import request_resume
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import (
    CommandDone,
    CommandIssued,
    SettingsChanged,
    TrialFinished,
    TrialPaused,
    TrialQueued,
)
from tbtui.journal.verbs import RUN_VERBS, TRIAL_VERBS
from tests.waiting import until

from . import bench
from .bench import LiveRun, Viewer
from .conftest import Begin, Ctl, asked

pytestmark = pytest.mark.uid


def trial_of(run: LiveRun, number: int = 0) -> str:
    return run.events(TrialQueued)[number].trial


# Looking


async def test_runs_are_listed_with_what_they_wait_for(live: LiveRun, ctl: Ctl) -> None:
    (row,) = (await asked(ctl, "run", "list"))["runs"]
    assert row["run"] == "r"
    assert row["directory"] == str(live.directory.path)
    assert (row["status"], row["trials_running"], row["step"], row["max_steps"]) == (
        "live",
        2,
        0,
        5,
    )
    assert "/1 (turn" in row["waiting_for"]
    table = (await ctl("run", "list")).stdout.splitlines()
    assert table[0].split()[:4] == ["run", "status", "step", "pass"]
    assert table[1].split()[:3] == ["r", "live", "0/5"]
    changing = {"waiting_for": "", "seconds": 0, "silent_sec": 0}
    assert await asked(ctl, "run", "show") | changing == row | changing | {"reviews": []}
    runs = ("--json", "--logs-dir", str(live.directory.path.parent))
    for command in (("runs", *runs), ("fleet", "--here", *runs)):
        result = await asyncio.to_thread(CliRunner().invoke, app, command)
        listed = json.loads(result.stdout)
        (same,) = listed["runs"] if command[0] == "fleet" else listed
        assert same | changing == row | changing


async def test_each_trial_says_what_it_does_and_for_how_long(live: LiveRun, ctl: Ctl) -> None:
    trials = (await asked(ctl, "trial", "list"))["trials"]
    assert [row["trial"] for row in trials] == [trial_of(live), trial_of(live, 1)]
    for row in trials:
        assert row["doing"].startswith("turn ")
        assert row["for_sec"] >= 0
        assert row["idle_sec"] >= 0
        assert row["turn"] >= 1
    shown = await asked(ctl, "trial", "show", trials[0]["label"])
    assert shown["trial"] == trials[0]["trial"]
    table = (await ctl("trial", "list")).stdout.splitlines()
    assert table[0].split() == ["trial", "doing", "for", "idle", "reward", "step"]


async def test_what_the_model_wrote_is_withheld_unless_asked_for(live: LiveRun, ctl: Ctl) -> None:
    trial = trial_of(live)
    await asked(ctl, "run", "pause")
    for arguments in (("trial", "list"), ("trial", "show", trial)):
        assert "last_text" not in json.dumps(await asked(ctl, *arguments))
        assert '"last_text": "ok"' in json.dumps(await asked(ctl, *arguments, "--content"))
        assert '"story": "' in json.dumps(await asked(ctl, *arguments, "--content"))
    lines = (await ctl("trial", "events", trial, "--json")).stdout.splitlines()
    (first, *_) = [row for row in map(json.loads, lines) if row["kind"] == "turn_sampled"]
    assert "text" not in first
    assert first["withheld"] == ["text"]
    lines = (await ctl("trial", "events", trial, "--json", "--content")).stdout.splitlines()
    (first, *_) = [row for row in map(json.loads, lines) if row["kind"] == "turn_sampled"]
    assert first["text"] == "ok"
    after = json.loads(lines[-2])["seq"]
    assert (
        len((await ctl("trial", "events", trial, "--after", str(after))).stdout.splitlines()) == 1
    )


@pytest.mark.slow
async def test_tasks_policy_and_settings_are_shown(live: LiveRun, ctl: Ctl) -> None:
    tasks = (await asked(ctl, "task", "list"))["tasks"]
    assert sum(row["live"] for row in tasks) == 2
    assert (await asked(ctl, "policy", "show"))["policy"] == "rote"
    assert (await asked(ctl, "config", "show", "max_steps")) == {"max_steps": 5}
    assert (await ctl("config", "show", "max_stops")).exit_code == 2
    assert "eval_every" in (await ctl("config", "show")).stdout


# Changing


async def test_the_whole_run_is_paused_and_goes_on(live: LiveRun, ctl: Ctl) -> None:
    done = await asked(ctl, "run", "pause", "--reason", "lunch", "--actor", "ada")
    assert (done["ok"], done["changed"], done["result"]) == (True, True, "the run is paused")
    (issued,) = live.events(CommandIssued)
    assert (issued.actor, issued.reason, issued.command) == ("ada", "lunch", done["command"])
    again = await asked(ctl, "run", "pause", "r")
    assert (again["ok"], again["changed"]) == (True, False)
    assert (await asked(ctl, "run", "list"))["runs"][0]["status"] == "paused"
    await asked(ctl, "run", "resume", str(live.directory.path))
    assert [e.verb for e in live.events(CommandIssued)] == ["pause", "resume"]


async def test_single_trials_are_steered_by_id_or_label(live: LiveRun, ctl: Ctl) -> None:
    first, second = live.events(TrialQueued)[:2]
    done = await asked(ctl, "trial", "pause", first.label)
    assert done["result"] == f"{first.trial} paused"
    assert (await asked(ctl, "trial", "show", first.trial))["paused"] is True
    assert (await asked(ctl, "trial", "pause", first.trial))["changed"] is False
    done = await asked(ctl, "trial", "cancel", second.trial, "--reason", "hopeless")
    assert done["result"] == f"{second.trial} ended as cancelled"
    assert [e.trial for e in live.events(TrialFinished)] == [second.trial]
    # What is so already is done.
    again = await asked(ctl, "trial", "cancel", second.trial)
    assert (again["ok"], again["changed"]) == (True, False)
    assert (await asked(ctl, "trial", "pause", second.trial, status=1))["ok"] is False
    await asked(ctl, "trial", "exclude", first.trial)
    assert (await asked(ctl, "trial", "exclude", first.trial))["changed"] is False
    await asked(ctl, "trial", "include", first.trial)


async def test_a_dry_run_changes_nothing(live: LiveRun, ctl: Ctl) -> None:
    trial = trial_of(live)
    for arguments in (("trial", "cancel", trial), ("run", "stop", "r"), ("run", "pause")):
        result = await ctl(*arguments, "--dry-run")
        assert result.exit_code == 0
        assert result.stdout.startswith(f"would {arguments[1]}: ")
    assert live.events(CommandIssued) == []


async def test_what_ends_the_run_is_named_and_waited_for(live: LiveRun, ctl: Ctl) -> None:
    assert (await ctl("run", "stop")).exit_code == 2
    done = await asked(ctl, "run", "stop", "r", "--reason", "too dear", "--actor", "ada")
    assert done["ok"] is True
    assert (await live.end()).reason == "stopped by ada: too dear"
    again = await asked(ctl, "run", "stop", str(live.directory.path))
    assert (again["ok"], again["changed"]) == (True, False)
    result = await ctl("run", "pause", str(live.directory.path))
    assert result.exit_code == 2
    assert "is not live (interrupted)" in result.stderr


@pytest.mark.slow
async def test_one_that_isnt_waited_for_stays_asked(
    begin: Begin, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "TURN_SEC", 0.5)
    live = await begin()
    first, second = trial_of(live), trial_of(live, 1)
    done = await asked(ctl, "trial", "pause", first, "--no-wait")
    assert (done["ok"], done["result"]) == (None, "asked")
    # Its turn lasts longer.
    result = await ctl("trial", "pause", second, "--timeout", "0.01")
    assert result.exit_code == 1
    assert "no answer within 0.01 s; it stays asked" in result.stderr
    await until(lambda: {e.trial for e in live.events(TrialPaused)} == {first, second})


@pytest.mark.slow
async def test_one_target_exactly(begin: Begin, ctl: Ctl, tmp_path: Path) -> None:
    assert (await ctl("run", "pause")).stderr.startswith("tbtui: no live run")
    live = await begin()
    await begin("other")
    result = await ctl("run", "pause")
    assert result.exit_code == 2
    assert "2 live runs, so name one: " in result.stderr
    await asked(ctl, "run", "pause", "other")
    result = await ctl("trial", "cancel", "nothing-1", "--run", "r")
    assert result.exit_code == 2
    assert "nothing-1: no such trial" in result.stderr
    near = trial_of(live)[:-1]
    assert "did you mean" in (await ctl("trial", "show", near, "--run", "r")).stderr
    assert "no such run" in (await ctl("run", "show", "nowhere")).stderr
    assert [row["run"] for row in (await asked(ctl, "run", "list"))["runs"]] == ["other", "r"]


@pytest.mark.slow
async def test_who_has_the_controls_for_himself_keeps_scripts_out(live: LiveRun, ctl: Ctl) -> None:
    viewer = await Viewer.join(live.directory, "bob")
    viewer.client.send_take(exclusive=True)
    await until(lambda: live.events(CommandIssued))
    for more in ((), ("--dry-run",)):
        result = await ctl("run", "pause", *more)
        assert result.exit_code == 1
        assert "bob has the controls for itself" in result.stderr
    viewer.leave()


# Settings


async def test_settings_of_a_live_run_change_and_are_kept(live: LiveRun, ctl: Ctl) -> None:
    dry = await ctl("config", "set", "eval_every=3", "--dry-run")
    assert dry.stdout == "would set eval_every=3: r (has eval_every=10)\n"
    done = await asked(ctl, "config", "set", "eval_every=3", "max_steps=7", "n_parallel_envs=1")
    assert done["ok"] is True
    assert "eval_every 3 (was 10; counts from the first step, as before)" in done["result"]
    (changed,) = live.events(SettingsChanged)
    assert changed.settings == {"max_steps": 7, "n_parallel_envs": 1, "eval_every": 3}
    assert changed.before == {"max_steps": 5, "n_parallel_envs": 4, "eval_every": 10}
    assert (await asked(ctl, "config", "set", "eval_every=3"))["changed"] is False
    assert (await asked(ctl, "config", "show", "max_steps")) == {"max_steps": 7}
    assert (await asked(ctl, "run", "show"))["max_steps"] == 7
    await live.stop()
    # Going on with the run, they hold still, unless they are given anew.
    name = str(live.directory.path)
    config = request_resume(name, ["eval_every=4"]).config
    assert (config.max_steps, config.n_parallel_envs, config.eval_every) == (7, 1, 4)


CANNOT_CHANGE = (
    ("batch_size=3", 1, "batch_size: can't change in a live run: steps after the checkpoint"),
    ("logs_dir=/x", 1, "logs_dir: can't change in a live run; stop it, and resume it with"),
    ("max_steps=0", 1, "max_steps=0: step 1 has begun already"),
    ("eval_every=-1", 2, "eval_every=-1: should be a whole number of at least 0 (steps)"),
    ("evil_every=1", 2, "unknown setting 'evil_every'; did you mean 'eval_every'?"),
    ("eval_every", 2, "'eval_every' is not a setting; write name=value"),
    ("prices.prompt=1", 1, "prices: can't change in a live run; stop it, and resume it with"),
    ("on_alarm.no_signal=halt", 1, "on_alarm: can't change in a live run"),
    ("ok.toml", 2, "ok.toml: a live run takes no file of settings; write name=value"),
    ("review_rules=typo.toml", 1, "{cwd}/typo.toml: can't be read (No such file"),
)


async def test_what_cannot_change_says_why(live: LiveRun, ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / "ok.toml").write_text("eval_every = 3\n")
    for setting, status, reason in CANNOT_CHANGE:
        result = await ctl("config", "set", setting)
        assert result.exit_code == status, result.output
        assert result.stderr.startswith(f"tbtui: {reason.format(cwd=tmp_path)}")
        assert result.stderr.count("\n") == 1
    assert live.events(SettingsChanged) == []


async def test_a_relative_path_is_one_from_where_it_is_given(
    live: LiveRun, ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "r.toml").write_text("")
    monkeypatch.chdir(tmp_path / "there")
    run = str(live.directory.path)
    await asked(ctl, "config", "set", "review_rules=r.toml", "--run", run)
    (changed,) = live.events(SettingsChanged)
    assert changed.settings == {"review_rules": str(tmp_path / "there" / "r.toml")}


@pytest.mark.slow
async def test_a_larger_limit_lets_more_trials_work_at_once(begin: Begin, ctl: Ctl) -> None:
    live = await begin(n_parallel_envs=1, group_size=3)
    running = (await asked(ctl, "run", "show"))["trials_running"]
    assert running == 1
    await asked(ctl, "config", "set", "n_parallel_envs=3")
    await until(lambda: len(live.at_work()) == 3)


# Verbs


async def test_every_verb_that_ctl_has_is_one_that_the_run_answers(live: LiveRun) -> None:
    """Every verb of every noun; those that change nothing here are refused with a reason."""
    client, _ = await ControlClient.open(live.directory)
    run_verbs = RUN_VERBS.keys() - {"stop", "take"}  # it ends; has a request of its own
    for verb in run_verbs:
        await client.ask(Command(verb, RUN))
    for verb in TRIAL_VERBS:
        await client.ask(Command(verb, "nothing-1"))
    count = len(run_verbs) + len(TRIAL_VERBS)
    await until(lambda: len(live.events(CommandDone)) == count)
    assert all(done.result for done in live.events(CommandDone))
    groups = {group.name for group in ctl_app.registered_groups}
    assert groups == {"run", "trial", "group", "task", "policy", "config"}


async def test_a_dry_run_says_why_it_would_be_refused(live: LiveRun, ctl: Ctl) -> None:
    trial = trial_of(live)
    result = await ctl("trial", "type", trial, "ls", "--dry-run")
    assert result.exit_code == 1
    assert result.stderr == f"tbtui: {trial} is not yours to type in: take it over first\n"
    assert live.events(CommandIssued) == []
