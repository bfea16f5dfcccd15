"""Trials as files for others."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tbtui.cli import app
from tbtui.errors import UserError
from tbtui.export import export_trial, rendered
from tbtui.export.record import TrialRecord, read_trial
from tbtui.journal.events import ToolUse
from tbtui.journal.reader import Entry, JournalReader
from tbtui.journal.rundir import RunDirectory
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
        assert row["logprobs"] == row["model_logprobs"] == sample.logprobs.tolist()
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
    deep = ToolUse(id="call-9", name="edit", arguments='{"path":' + "[" * 100_000)
    first, *others = record.calls
    turn = dataclasses.replace(first.turn, tool_calls=(used, unreadable, deep))
    calls = (dataclasses.replace(first, turn=turn), *others)
    read = Trajectory.model_validate_json(
        rendered(dataclasses.replace(record, calls=calls), "atif")
    )
    step = next(step for step in read.steps if step.source == "agent")
    assert step.tool_calls is not None
    calls_read = [(e.tool_call_id, e.function_name, e.arguments) for e in step.tool_calls]
    assert calls_read[:3] == [
        ("call-7", "bash", {"command": "ls"}),
        ("call-8", "edit", {"arguments": '{"path": '}),
        ("call-9", "edit", {"arguments": deep.arguments}),
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
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "dl", "dt", "dd"),
    *("p", "pre", "section", "span", "details", "summary"),
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


def test_absent_log_probabilities_are_none_and_not_certainty(record: TrialRecord) -> None:
    calls = []
    for call in record.calls:
        assert call.sample is not None
        absent = np.zeros_like(call.sample.logprobs)
        sample = dataclasses.replace(call.sample, logprobs=absent)
        calls.append(dataclasses.replace(call, sample=sample))
    bare = dataclasses.replace(record, calls=tuple(calls))
    rows = [json.loads(line) for line in rendered(bare, "jsonl").splitlines()]
    assert [row["logprobs"] for row in rows] == [None] * len(rows)
    assert '"logprobs"' not in rendered(bare, "atif")
    page = rendered(bare, "html")
    assert "tokens, without log-probabilities" in page and "class=h" not in page


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
@pytest.mark.parametrize("path", ["~nosuch/x", "x" * 300])
def test_the_command_says_in_one_line_that_a_path_is_none(
    record: TrialRecord, trial: bool, path: str
) -> None:
    names = [record.trial] if trial else []
    refused = CliRunner().invoke(app, ["export", str(record.run.path), *names, "--out", path])
    assert refused.exit_code == 2
    assert refused.exception is None or isinstance(refused.exception, SystemExit)
    assert path in refused.output.replace("\n", "")


def test_the_command_writes_a_trial(record: TrialRecord, tmp_path: Path) -> None:
    command = ["export", str(record.run.path), record.trial, "--format"]
    done = CliRunner().invoke(app, [*command, "cast", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / f"{record.trial}.cast").is_file()
    printed = CliRunner().invoke(app, [*command, "jsonl", "--out", "-"])
    assert len(printed.stdout.splitlines()) == len(record.calls)
