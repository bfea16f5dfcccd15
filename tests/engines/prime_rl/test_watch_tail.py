"""Reading files that another process appends to, cuts off or replaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.engines.prime_rl.watch import tail as module
from tbtui.engines.prime_rl.watch.tail import Tail


def read_all(tail: Tail) -> list[bytes]:
    lines: list[bytes] = []
    while True:
        lines += tail.read()
        if not tail.behind:
            return lines


def write(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_file_that_is_cut_off_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, b"a long line\nhalf")
    tail = Tail(path)
    tail.read()
    path.write_bytes(b"new\n")
    assert tail.read() == [b"new"]


def test_of_a_file_that_is_replaced_the_rest_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, b"one\n")
    tail = Tail(path)
    tail.read()
    write(path, b"two\n")
    path.rename(tmp_path / "log.1")
    write(path, b"three\n")
    assert tail.read() == [b"two"]
    assert tail.read() == [b"three"]


def test_a_file_that_is_deleted_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, b"one\n")
    tail = Tail(path)
    tail.read()
    write(path, b"two\n")
    path.unlink()
    assert tail.read() == [b"two"]
    assert tail.read() == []


def test_a_position_of_another_file_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, b"one\ntwo\n")
    tail = Tail(path)
    tail.read()
    position = tail.position
    path.rename(tmp_path / "old")
    write(path, b"three\nfour\n")
    assert Tail(path, position).read() == [b"three", b"four"]


def test_a_line_that_is_too_long_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 8)
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 20)
    path = tmp_path / "log"
    write(path, b"one\n" + b"x" * 50 + b"\ntwo\n")
    tail = Tail(path)
    assert read_all(tail) == [b"one", b"two"]
    assert tail.skipped == 1


@given(
    lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20),
    cuts=st.lists(st.integers(0, 600), max_size=6),
    restarts=st.sets(st.integers(0, 6)),
)
def test_however_it_is_written_every_line_is_read_once(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[bytes],
    cuts: list[int],
    restarts: set[int],
) -> None:
    path = tmp_path_factory.mktemp("tail") / "log"
    data = b"".join(line + b"\n" for line in lines)
    ends = [*sorted(min(cut, len(data)) for cut in cuts), len(data)]
    tail, read, start = Tail(path), [], 0
    for number, end in enumerate(ends):
        write(path, data[start:end])
        start = end
        read += read_all(tail)
        if number in restarts:
            position = tail.position
            tail.close()
            tail = Tail(path, position)
    assert read == lines
