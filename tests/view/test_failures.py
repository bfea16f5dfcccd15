"""The line that says what went wrong, in what terminals and verifiers write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.view.story import screen_error, verifier_failure

_PYTEST = """\
============================= test session starts ==============================
collected 3 items

../tests/test_outputs.py .F.                                             [100%]

=================================== FAILURES ===================================
_________________________________ test_out_file ________________________________

    def test_out_file():
>       assert Path("/app/out.json").exists(), "missing out.json"
E       AssertionError: missing out.json
E       assert False

../tests/test_outputs.py:9: AssertionError
=========================== short test summary info ============================
PASSED ../tests/test_outputs.py::test_other
FAILED ../tests/test_outputs.py::test_out_file - AssertionError: missing out.json
========================= 1 failed, 2 passed in 0.05s ==========================
"""
_UNITTEST = """\
F.
======================================================================
FAIL: test_sum (test_all.Sums)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "test_all.py", line 5, in test_sum
    self.assertEqual(3, total)
AssertionError: 3 != 4

Ran 2 tests in 0.001s

FAILED (failures=1)
"""


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (_PYTEST, "out file: missing out.json"),
        ("FAILED tests/test_outputs.py::test_x[a-b]\n", "x[a-b]"),
        (_UNITTEST, "sum: 3 != 4"),
        ("ok 1 - starts\nnot ok 2 - writes out.json\n", "writes out.json"),
        ("checking\nFAIL: out.md should not be there\n", "out.md should not be there"),
        ("[FAIL] port 80 is closed\n", "port 80 is closed"),
        ("  ✓ builds\n  ✗ serves index.html\n", "serves index.html"),
        ("--- FAIL: TestParse (0.00s)\n    parse_test.go:8: got 3\n", "TestParse"),
        (
            "Traceback (most recent call last):\n  File 'x'\nKeyError: 'rows'\n",
            "KeyError: 'rows'",
        ),
        ("reading\nexpected 12 rows, found 7\ndone\n", "expected 12 rows, found 7"),
        ("all done\n0 failed\n", "0 failed"),
        ("-notes.md\n+notes.m\n", "+notes.m"),
        ("", ""),
        ("\n \n", ""),
    ],
)
def test_a_verifiers_first_failure_is_found(output: str, said: str) -> None:
    assert verifier_failure(output) == said


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("root@box:/app# gc x.c\nbash: gc: command not found\n", "gc: command not found"),
        (
            "$ python a.py\nTraceback (most recent call last):\nValueError: no rows\n",
            "ValueError: no rows",
        ),
        ("main.c:3:5: error: expected ';'\n", "main.c:3:5: error: expected ';'"),
        ("E: Unable to locate package foo\n", "E: Unable to locate package foo"),
        ("make: *** [all] Error 1\n", "make: *** [all] Error 1"),
        ("=== 2 failed, 3 passed in 0.2s ===\n", "=== 2 failed, 3 passed in 0.2s ==="),
        ("root@box:/app# ls\nerrors.txt\n", ""),
    ],
)
def test_the_first_error_on_a_screen_is_found(output: str, said: str) -> None:
    assert screen_error(output) == said


def test_what_was_typed_is_no_error_nor_is_what_a_file_says() -> None:
    echo = "root@box:/app# grep 'No such file' app.log\n"
    assert screen_error(echo, ["grep 'No such file' app.log\n"]) == ""
    log = "ERROR: the disk is gone\ncat: b.log: No such file or directory\n"
    assert screen_error(log) == "ERROR: the disk is gone"
    assert screen_error(log, only_shell=True) == "cat: b.log: No such file or directory"


@given(st.text(), st.lists(st.text(), max_size=3), st.booleans())
def test_any_output_is_read(output: str, typed: list[str], shell: bool) -> None:
    assert "\n" not in screen_error(output, typed, only_shell=shell)
    verifier_failure(output)
