"""Terminals and their recordings: what is shown is what a terminal would have shown then."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tbtui.ui.terminal.emulator import Emulator
from tbtui.ui.terminal.recordings import ReadLimit, RecordingReader
from tbtui.ui.theme.palette import Palette
from tests.ui.test_themes import bundled

BEGAN = 1_000_000.5


def write_cast(path: Path, size: int) -> float:
    """A terminal with much output, cleared now and then, with full-screen programs; its length."""
    rng = random.Random(1)
    time, written, full_screen = 0.0, 0, False
    with path.open("w") as file:
        file.write(
            json.dumps({"version": 2, "width": 80, "height": 24, "timestamp": 0, "began": BEGAN})
            + "\n"
        )
        while written < size:
            time += rng.random() * 0.1
            chance = rng.random()
            if chance < 0.002:
                text = "\x1b[?1049l" if full_screen else "\x1b[?1049h\x1b[2J\x1b[H"
                full_screen = not full_screen
            elif full_screen:
                text = f"\x1b[{rng.randrange(1, 25)};1Hrow {written} of a full screen\x1b[K"
            else:
                lines = [f"\x1b[3{rng.randrange(8)}m{rng.random()} text\x1b[0m" for _ in range(5)]
                text = "\r\n".join(lines) + "\r\n"
            written += file.write(json.dumps([round(time, 3), "o", text]) + "\n")
    return time


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cast") / "recording.cast"
    write_cast(path, 400_000)
    return path


@pytest.fixture
def recording(cast: Path) -> Iterator[RecordingReader]:
    opened = RecordingReader(cast)
    yield opened
    opened.close()


def to(recording: RecordingReader, seconds: float) -> list[str]:
    """The screen at that time."""
    while recording.advance(ReadLimit(BEGAN + seconds, 0.0)):
        pass
    assert recording.screen is not None
    return [recording.screen.plain(y) for y in range(recording.screen.rows)]


def slowly(recording: RecordingReader, seconds: float) -> list[str]:
    """The same by reading on in steps that are too small for a jump."""
    while recording.time < seconds - 0.5:
        rows = to(recording, min(seconds, recording.time + 20.0))
    return rows


def test_a_jump_shows_what_reading_on_shows(cast: Path) -> None:
    end = json.loads(cast.read_text().splitlines()[-1])[0]
    read = RecordingReader(cast)
    for share in (0.45, 0.7, 0.999):
        jumped = RecordingReader(cast)
        to(jumped, 0.0)
        assert to(jumped, share * end) == slowly(read, share * end)
        jumped.close()
    read.close()


def test_a_far_jump_reads_little(
    recording: RecordingReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = 0
    feed = Emulator.feed

    def counted(self: Emulator, text: str) -> None:
        nonlocal fed
        fed += len(text)
        feed(self, text)

    monkeypatch.setattr(Emulator, "feed", counted)
    to(recording, 1e9)
    assert 10_000 < fed < 70_000


def test_back_and_forth(recording: RecordingReader) -> None:
    early = to(recording, 3.0)
    late = to(recording, 500.0)
    assert early != late
    assert recording.screen is not None
    version = recording.screen.version
    assert to(recording, 3.0) == early
    assert recording.screen.version > version, "panes see by the version that it has changed"
    assert to(recording, 500.0) == late


def test_nothing_is_shown_before_the_recording_began(recording: RecordingReader) -> None:
    to(recording, 5.0)
    assert not any(to(recording, -10.0))
    assert recording.screen is not None
    version = recording.screen.version
    assert not any(to(recording, -9.0))
    assert recording.screen.version == version, "nothing is drawn anew"
    assert any(to(recording, 5.0))


def test_a_recording_without_its_own_time_begins_with_its_trial(tmp_path: Path) -> None:
    path = tmp_path / "old.cast"
    lines = [{"version": 2, "width": 80, "height": 24}, [1.0, "o", "one"], [2.0, "o", " two"]]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    recording = RecordingReader(path)
    while recording.advance(ReadLimit(at=101.5, started_at=100.0)):
        pass
    assert recording.screen is not None
    assert recording.screen.plain(0) == "one"
    while recording.advance(None):
        pass
    assert recording.screen.plain(0) == "one two"
    recording.close()


def test_a_full_screen_program_has_a_screen_of_its_own() -> None:
    emulator, palette = Emulator(10, 3), Palette(bundled("tbtui-dark"))

    def shown() -> list[str]:
        return [emulator.row(y, palette).text.rstrip() for y in range(3)]

    emulator.feed("one\r\ntwo\r\nthree")
    assert shown() == ["one", "two", "three"]
    emulator.feed("\x1b[?1049h\x1b[Hfull")
    assert shown() == ["full", "", ""]
    emulator.feed("\x1b[?1049l")
    assert shown() == ["one", "two", "three"]
