"""Trials as files for others."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.widgets import Input, Static
from typer.testing import CliRunner

from tbtui.cli import app
from tbtui.errors import UserError
from tbtui.export import export_trial, rendered
from tbtui.export.record import TrialRecord, read_trial
from tbtui.journal.events import ToolUse
from tbtui.journal.reader import Entry, JournalReader
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.screens.dialogs import ExportDialog
from tbtui.view.exports import ExportFormat
from tests.ui.hostile import HOSTILE, hostile_run


@pytest.fixture(scope="module")
def record(run_directory: RunDirectory) -> TrialRecord:
    """A trained trial of several turns."""
    reader = JournalReader(run_directory)
    entries = reader.read_kinds(["trial_finished"], 0)
    trial = max(
        (e.event for e in entries if e.event.trial.startswith("s001")), key=lambda each: each.turns
    )
    reader.close()
    return read_trial(run_directory, trial.trial)


def test_a_cast_has_the_recording_and_a_marker_a_turn(record: TrialRecord) -> None:
    header, *events = map(json.loads, rendered(record, "cast").splitlines())
    assert header["version"] == 2
    assert record.queued.label in header["title"]
    times = [each[0] for each in events]
    assert times == sorted(times)
    recorded = record.run.recording(record.trial).read_text().splitlines()[1:]
    assert [e for e in events if e[1] == "o"] == [json.loads(line) for line in recorded]


def test_lines_have_the_tokens_as_they_were_sampled(record: TrialRecord) -> None:
    rows = [json.loads(line) for line in rendered(record, "jsonl").splitlines()]
    assert len(rows) == len(record.calls)
    with_tokens = [call.sample for call in record.calls if call.sample is not None]
    assert with_tokens
    for row, sample in zip(rows, with_tokens, strict=True):
        assert row["completion_ids"] == list(sample.completion_ids)
        assert row["prompt_ids"] == list(sample.prompt_ids)
        assert row["logprobs"] == sample.logprobs.tolist()
        assert record.transcript.finished is not None
        assert row["reward"] == record.transcript.finished.reward


def test_harbor_reads_the_trajectory(record: TrialRecord) -> None:
    from harbor.models.trajectories import Trajectory

    read = Trajectory.model_validate_json(rendered(record, "atif"))
    agent = [step for step in read.steps if step.source == "agent"]
    assert len(agent) == len(record.calls)
    for step, call in zip(agent, record.calls, strict=True):
        assert step.metrics is not None
        assert call.sample is not None
        assert step.metrics.completion_token_ids == list(call.sample.completion_ids)
        keys = [each.arguments.get("keystrokes") for each in step.tool_calls or []]
        assert keys[: len(call.turn.commands)] == [c.keystrokes for c in call.turn.commands]
    assert read.extra is not None
    assert record.transcript.finished is not None
    assert read.extra["outcome"] == str(record.transcript.finished.outcome)


def test_an_agents_own_tools_are_calls_of_the_trajectory(record: TrialRecord) -> None:
    from harbor.models.trajectories import Trajectory

    used = ToolUse(id="call-7", name="bash", arguments='{"command": "ls"}')
    unreadable = ToolUse(id="call-8", name="edit", arguments='{"path": ')
    first, *others = record.calls
    turn = dataclasses.replace(first.turn, tool_calls=(used, unreadable))
    calls = (dataclasses.replace(first, turn=turn), *others)
    read = Trajectory.model_validate_json(
        rendered(dataclasses.replace(record, calls=calls), "atif")
    )
    step = next(step for step in read.steps if step.source == "agent")
    assert step.tool_calls is not None
    calls_read = [(e.tool_call_id, e.function_name, e.arguments) for e in step.tool_calls]
    assert calls_read[:2] == [
        ("call-7", "bash", {"command": "ls"}),
        ("call-8", "edit", {"arguments": '{"path": '}),
    ]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


PAGE_TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "h1",
    "h2",
    "dl",
    "dt",
    "dd",
    "p",
    "pre",
    "section",
    "span",
    "details",
    "summary",
}


@pytest.mark.parametrize(
    "text",
    [*HOSTILE[:8], '<script>alert(1)</script><img src=x onerror="a()">', "</pre></title>&lt;"],
    ids=range(10),
)
def test_a_page_is_inert_whatever_a_model_said(tmp_path: Path, text: str) -> None:
    run = hostile_run(tmp_path / "run", text)
    page = rendered(read_trial(run, "hostile"), "html")
    tags = _Tags()
    tags.feed(page)
    assert tags.tags <= PAGE_TAGS
    assert tags.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class", "id",
                               "title"}  # fmt: skip
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2066\u200b]", page)
    forms: tuple[ExportFormat, ...] = ("jsonl", "atif", "cast")
    for form in forms:
        for line in rendered(read_trial(run, "hostile"), form).splitlines():
            assert "\x1b" not in line


def test_a_page_shows_what_the_terminal_showed(record: TrialRecord) -> None:
    page = rendered(record, "html")
    assert "root@box:/app#" in page
    assert page.count("<section") == len(record.calls) + 1
    assert "tokens by -log p" in page


def test_nothing_is_overwritten_and_what_is_missing_is_said(
    record: TrialRecord, tmp_path: Path
) -> None:
    path = tmp_path / "one.html"
    export_trial(record.run, record.trial, "html", path)
    before = path.read_text()
    with pytest.raises(UserError, match="there already"):
        export_trial(record.run, record.trial, "html", path)
    export_trial(record.run, record.trial, "jsonl", path, overwrite=True)
    assert path.read_text() != before
    with pytest.raises(UserError, match="no such trial"):
        export_trial(record.run, "nobody", "html", tmp_path / "two.html")
    with pytest.raises(UserError, match="can't be written"):
        export_trial(record.run, record.trial, "html", path / "below.html")


def test_lines_end_where_every_reader_says(tmp_path: Path) -> None:
    record = read_trial(hostile_run(tmp_path / "run", "one\x85two\u2028three"), "hostile")
    forms: tuple[ExportFormat, ...] = ("jsonl", "cast")
    for form in forms:
        text = rendered(record, form)
        assert text.isascii()
    assert "one\x85two\u2028three" in json.dumps(
        json.loads(rendered(record, "jsonl")), ensure_ascii=False
    )


def test_all_of_a_run_reads_its_scores_once(
    record: TrialRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    read = JournalReader.read_kinds

    def counted(self: JournalReader, kinds: list[str], *args: Any) -> list[Entry]:
        asked.extend(kinds)
        return read(self, kinds, *args)

    monkeypatch.setattr(JournalReader, "read_kinds", counted)
    command = ["export", str(record.run.path), "--format", "jsonl", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert len(list(tmp_path.glob("*.jsonl"))) > 2
    assert asked.count("group_scored") == 2  # all of them, and that there are no more
    lines = (tmp_path / f"{record.trial}.jsonl").read_text().splitlines()
    assert {json.loads(line)["advantage"] for line in lines} == {record.advantage}


@pytest.mark.parametrize("trial", [True, False])
def test_the_command_says_in_one_line_that_a_path_is_none(record: TrialRecord, trial: bool) -> None:
    names = [record.trial] if trial else []
    for path in ("~nosuch/x", "x" * 300):
        refused = CliRunner().invoke(app, ["export", str(record.run.path), *names, "--out", path])
        assert refused.exit_code == 2
        assert refused.exception is None or isinstance(refused.exception, SystemExit)
        assert path in refused.output.replace("\n", "")
    with pytest.raises(UserError, match="no such user"):
        export_trial(record.run, record.trial, "html", Path("~nosuch/x"))


class _Asking(App[None]):
    def on_mount(self) -> None:
        self.push_screen(ExportDialog("t1", Path("/tmp")))


async def test_the_dialog_stays_open_on_a_path_that_is_none(tmp_path: Path) -> None:
    async with _Asking().run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        dialog = pilot.app.screen
        for given, said in (
            ("~nosuch/x", "no such user"),
            ("/tmp/" + "x" * 300, "name too long"),
            (str(tmp_path / "there"), "exists already"),
        ):
            (tmp_path / "there").touch()
            dialog.query_one("#path", Input).value = given
            dialog.query_one("#path", Input).focus()
            await pilot.press("enter")
            await pilot.pause()
            assert said in str(dialog.query_one("#problem", Static).content)
            assert pilot.app.screen is dialog


def test_the_command_writes_a_trial_and_refuses_bad_names(
    record: TrialRecord, tmp_path: Path
) -> None:
    run, out = str(record.run.path), tmp_path / "out"
    out.mkdir()
    done = CliRunner().invoke(
        app, ["export", run, record.trial, "--format", "cast", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert (out / f"{record.trial}.cast").is_file()
    printed = CliRunner().invoke(
        app, ["export", run, record.trial, "--format", "jsonl", "--out", "-"]
    )
    assert len(printed.stdout.splitlines()) == len(record.calls)
    refused = CliRunner().invoke(app, ["export", run, "nobody"])
    assert refused.exit_code == 2
    assert "no such trial" in refused.output
    assert "Traceback" not in refused.output
