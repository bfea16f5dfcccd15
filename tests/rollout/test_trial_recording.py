"""Recordings hold what the terminal showed, in the asciicast v2 format."""

from __future__ import annotations

import asyncio
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tbtui.rollout.recording import Recorder, Recording
from tests.waiting import until


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Tape:
    """A pane file that grows, and its recording."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.clock = Clock()
        self.pane = folder / "terminal.pane"
        self.cast = folder / "recording.cast"
        self.recording = Recording(
            self.pane, self.cast, width=160, height=40, clock=self.clock, **options
        )

    def shows(self, data: bytes, after: float = 0.1) -> None:
        self.clock.now += after
        with self.pane.open("ab") as file:
            file.write(data)
        self.recording.pump()

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.cast.read_text().splitlines()]

    @property
    def text(self) -> str:
        return "".join(data for _, kind, data in self.lines[1:] if kind == "o")


def test_header_and_times(tmp_path: Path) -> None:
    tape = Tape(tmp_path)
    tape.shows(b"$ ")
    tape.shows(b"ls\r\n", after=1.5)
    tape.recording.close()
    header, *events = tape.lines
    assert (header["version"], header["width"], header["height"]) == (2, 160, 40)
    assert events == [[0.1, "o", "$ "], [1.6, "o", "ls\r\n"]]


def test_characters_cut_by_a_chunk_are_whole(tmp_path: Path) -> None:
    tape = Tape(tmp_path)
    for byte in "né漢🎈".encode():
        tape.shows(bytes([byte]))
    tape.shows(b"\xff\xe6\xbc")
    tape.recording.close()
    assert tape.text == "né漢🎈\ufffd\ufffd"


def test_hostile_bytes_stay_valid_json(tmp_path: Path) -> None:
    tape = Tape(tmp_path)
    tape.shows(bytes(range(256)) + b"\x1b]0;title\x07" + b"x" * 100_000)
    tape.recording.close()
    assert "\x00\x01" in tape.text
    assert tape.cast.read_bytes().count(b"\x1b") == 0


def test_a_first_screen_that_the_stream_holds_is_not_doubled(tmp_path: Path) -> None:
    tape = Tape(tmp_path, first_screen="root@box:/app#\n\n\n")
    tape.shows(b"\x1b[?2004h\x1b[1mroot@box\x1b[0m:/a")
    tape.shows(b"pp# ")
    tape.shows(b"ls\r\n", after=5.0)
    tape.recording.close()
    assert tape.text == "\x1b[?2004h\x1b[1mroot@box\x1b[0m:/app# ls\r\n"


def test_a_first_screen_that_the_stream_lacks_comes_first(tmp_path: Path) -> None:
    tape = Tape(tmp_path, first_screen="welcome\nroot@box:/app#\n\n\n")
    tape.shows(b"l")
    tape.shows(b"s\r\n", after=5.0)
    tape.recording.close()
    assert tape.text == "\x1b[H\x1b[2Jwelcome\r\nroot@box:/app# ls\r\n"


def test_without_any_output_the_first_screen_is_kept(tmp_path: Path) -> None:
    tape = Tape(tmp_path, first_screen="$")
    tape.recording.close()
    assert tape.text.endswith("$ ")


def test_a_recording_is_cut_honestly(tmp_path: Path) -> None:
    tape = Tape(tmp_path, max_bytes=2_000)
    for _ in range(100):
        tape.shows(b"y\r\n" * 100)
    tape.recording.close()
    assert tape.cast.stat().st_size < 2_500
    assert "the recording ends here" in tape.text
    assert tape.lines[-1][1] == "m"


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "none"])
def test_only_a_plain_file_is_read(tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    tape = Tape(tmp_path)
    match kind:
        case "link":
            tape.pane.symlink_to(secret)
        case "fifo":
            os.mkfifo(tape.pane)
        case "directory":
            tape.pane.mkdir()
    tape.recording.pump()
    tape.recording.close()
    assert len(tape.lines) == 1


def test_a_file_put_in_the_place_of_the_pane_is_not_read(tmp_path: Path) -> None:
    tape = Tape(tmp_path)
    tape.shows(b"mine")
    tape.pane.rename(tmp_path / "elsewhere")
    tape.shows(b"theirs")
    tape.recording.close()
    assert tape.text == "mine"


async def test_one_task_follows_all(tmp_path: Path) -> None:
    recorder = Recorder()
    ticking = asyncio.create_task(recorder.run())
    tapes = []
    for number in range(16):
        folder = tmp_path / str(number)
        folder.mkdir()
        tapes.append(Tape(folder))
        recorder.add(tapes[-1].recording)
        tapes[-1].pane.write_bytes(f"trial {number}".encode())
    await until(lambda: all(len(tape.lines) == 2 for tape in tapes))
    for tape in tapes:
        with tape.pane.open("ab") as file:
            file.write(b", the end")
        recorder.finish(tape.recording)
    assert [tape.text for tape in tapes] == [f"trial {n}, the end" for n in range(16)]
    ticking.cancel()


async def test_a_full_disk_costs_one_recording(tmp_path: Path) -> None:
    recorder = Recorder()
    ticking = asyncio.create_task(recorder.run())
    good, bad = Tape(_made(tmp_path / "good")), Tape(_made(tmp_path / "bad"))
    full = io.FileIO("/dev/full", "wb")
    bad.recording._cast = full
    for tape in (good, bad):
        recorder.add(tape.recording)
        tape.pane.write_bytes(b"hello")
    await until(lambda: full.closed and len(good.lines) == 2)
    recorder.finish(bad.recording)
    recorder.finish(good.recording)
    ticking.cancel()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
