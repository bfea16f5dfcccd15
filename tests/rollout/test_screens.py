"""Screens are compared apart from times, process ids and prompts, and from nothing else."""

from __future__ import annotations

import pytest

from tbtui.rollout.screens import difference, normalised, shown_of


@pytest.mark.parametrize(
    ("recorded", "now"),
    [
        ("-rw-r--r-- 1 root root 4 Nov 25 22:39 a", "-rw-r--r-- 1 root root 4 Dec  1 08:01 a"),
        ("Wed Nov 25 22:39:36 UTC 2026", "Thu Dec  3 01:02:03 UTC 2026"),
        ("2026-11-25T22:39:36.123Z start", "2026-12-01T01:02:03.456Z start"),
        ("[1] 4711", "[1] 12"),
        ("real\t0m0.003s", "real\t0m1.250s"),
        ("3 passed in 0.03s", "3 passed in 1.25s"),
        ("root@0123456789ab:/app# ls", "root@fedcba987654:/app# ls"),
        ("server has PID 4711", "server has PID 9"),
        ("made /tmp/tmp.X1y2Z3", "made /tmp/tmp.abcdef"),
        ("New Terminal Output:\nroot@box:/# ", "Current Terminal Screen:\nroot@box:/#\n\n\n"),
        ("root       123  0.0  0.1   4 ?", "root         9  0.0  0.1   4 ?"),
    ],
)
def test_what_differs_whenever_the_same_keys_are_typed_is_no_difference(
    recorded: str, now: str
) -> None:
    assert difference(recorded, now) == ""


@pytest.mark.parametrize(
    ("recorded", "now", "words"),
    [
        ("a\nb\nc", "a\nx\nc", "'b' was recorded, 'x' is there"),
        ("a\nb", "a", "'b' was recorded, nothing is there"),
        ("total 4", "total 8", "'total 4' was recorded, 'total 8' is there"),
        ("root@box:/app#", "root@box:/tmp#", "'root@box:/app#' was recorded"),
        ("exit 1", "exit 2", "'exit 1' was recorded, 'exit 2' is there"),
    ],
)
def test_everything_else_is(recorded: str, now: str, words: str) -> None:
    assert difference(recorded, now).startswith(words)


def test_comparing_is_symmetric_and_normalising_twice_changes_nothing() -> None:
    screens = ["a 12:30 b", "12:30:01", "x\n\n", "PID 4", "", "0x00ffaa11 10 ms 3 MB/s"]
    for one in screens:
        assert normalised(normalised(one)) == normalised(one)
        for other in screens:
            assert bool(difference(one, other)) == bool(difference(other, one))


def test_a_screen_that_was_looked_at_earlier_is_a_beginning() -> None:
    now = "New Terminal Output:\n# make\nbuilding\ndone\n#"
    assert shown_of("New Terminal Output:\n# make\nbuil", now) == "# make\nbuil"
    assert shown_of("New Terminal Output:\n# make\n\n\n", now) == "# make"
    assert shown_of("New Terminal Output:\n# cake\nbuil", now) is None
    assert shown_of("Current Terminal Screen:\n# make", now) is None
