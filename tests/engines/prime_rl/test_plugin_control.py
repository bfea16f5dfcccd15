"""The plugin's control file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tbtui.engines.prime_rl.plugin.files import FILE_NAME, ControlFile, append_command
from tbtui.journal.commands import RUN, Command


def test_every_reader_gets_every_command_once_and_in_order(tmp_path: Path) -> None:
    first, late = ControlFile(tmp_path), ControlFile(tmp_path)
    assert first.poll() == []  # there is no file yet
    pause, cancel = Command("pause", RUN, "ada"), Command("cancel", "a__1", "ada", "why nöt")
    append_command(tmp_path, pause)
    assert first.poll() == [pause]
    append_command(tmp_path, cancel)
    assert first.poll() == [cancel]
    assert first.poll() == []
    assert late.poll() == [pause, cancel]


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    reader = ControlFile(tmp_path)
    append_command(tmp_path, Command("pause", RUN, "ada"))
    whole = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME).write_bytes(whole[:20])
    assert reader.poll() == []
    (tmp_path / FILE_NAME).write_bytes(whole)
    assert [command.verb for command in reader.poll()] == ["pause"]


@pytest.mark.parametrize(
    "line", [b"nonsense", b'{"verb": "explode", "target": "run"}', b'{"verb": "pause"}', b"\xff"]
)
def test_what_is_no_command_is_told_and_left_out(
    tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(line + b"\n")
    append_command(tmp_path, Command("resume", RUN, "ada"))
    with caplog.at_level(logging.WARNING):
        assert [command.verb for command in ControlFile(tmp_path).poll()] == ["resume"]
    assert "not a command" in caplog.text


def test_hand_written_command_needs_verb_and_target_only(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text('{"verb": "stop", "target": "a__1"}\n')
    (command,) = ControlFile(tmp_path).poll()
    assert (command.verb, command.target) == ("stop", "a__1")
