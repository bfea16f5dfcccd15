"""Trials in one line: what they tried, where they turned, why they ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.journal.events import AgentCommand, TrialFinished
from tbtui.outcomes import Outcome
from tbtui.view.story import LONGEST, Story, screen_error, tell, verifier_failure
from tbtui.view.transcript import PERSON, Transcript, TurnView
from tests.events import trial_finished


def turn(number: int, *keys: str, saw: str = "", **more: object) -> TurnView:
    commands = tuple(AgentCommand(keystrokes=each, duration_sec=0.1) for each in keys)
    view = TurnView(number, float(number), text="{}", commands=commands, observation=saw)
    for name, value in more.items():
        setattr(view, name, value)
    return view


def ended(
    outcome: Outcome = Outcome.FAILED,
    output: str = "",
    verdict: float | None = 0.0,
    reason: str = "the verifier said 0",
) -> TrialFinished:
    return trial_finished(
        "t", verdict, outcome=outcome, reason=reason, turns=2, verifier_output=output
    )


def story(*turns: TurnView, end: TrialFinished | None = None, asks: str = "") -> Story:
    return tell(Transcript(list(turns), end), asks)


def test_another_file_than_was_asked_for() -> None:
    told = story(
        turn(1, "echo 1 > out.log\n"),
        turn(2, task_complete=True),
        end=ended(output="FAIL: missing out.json\n"),
        asks="Write the number to /app/out.json",
    )
    assert told.line == "created out.log, asked for out.json; verifier: missing out.json"


def test_a_live_trial_has_no_end() -> None:
    told = story(turn(1, "cat a.txt\n"), turn(2, "touch b.txt\n", "rm a.txt\n"))
    assert told.line == "created b.txt, removed a.txt"
    assert story().line == ""


def test_where_it_turned_is_its_first_error() -> None:
    told = story(
        turn(1, "gcc a.c\n", saw="$ gcc a.c\nbash: gcc: command not found\n"),
        turn(2, "apt install gcc\n", saw="E: Unable to locate package gcc\n"),
        turn(3, "python solve.py\n"),
        end=ended(Outcome.SOLVED, verdict=1.0),
    )
    assert told.turned == "turn 1: gcc: command not found"
    assert told.line == f"ran gcc, installed gcc, ran python solve.py; {told.turned}; solved"


def test_colours_are_neither_shown_nor_in_the_way() -> None:
    """`ls --color`, `pytest --color=yes` and a link of `gcc` to its help (OSC 8), as they are."""
    red, off, bold = "\x1b[31m", "\x1b[0m", "\x1b[01m\x1b[K"
    link = "\x1b]8;;https://gcc.gnu.org\x07-Werror\x1b]8;;\x1b\\"
    told = story(
        turn(1, "cat x\n", saw=f"$ cat x\ncat: {bold}x{off}: {red}Permission denied{off}\n"),
        end=ended(
            output=f"{red}FAILED{off} test_a.py::{bold}test_sum{off} - assert 3 == 4 [{link}]\n"
        ),
    )
    assert told.turned == "turn 1: cat: x: Permission denied"
    assert told.ended == "verifier: sum: assert 3 == 4 [-Werror]"


def test_a_loop_is_counted() -> None:
    turns = [turn(n, "make\n", saw="make: *** [all] Error 1\n") for n in range(1, 8)]
    assert story(*turns, end=ended()).turned == "make ×7"


def test_answers_that_cannot_be_read_and_people_who_typed() -> None:
    assert story(turn(1, error="no JSON"), turn(2, error="no JSON")).line == (
        "no command; turn 1: parse error ×2"
    )
    person = TurnView(1, 1.0, PERSON, plan="ada", text="ls")
    assert story(turn(1, "ls\n"), person).turned == "turn 1: ada typed"
    writer = TurnView(1, 1.0, PERSON, plan="ada", text="to the agent: look first\n")
    assert story(turn(1, "ls\n"), writer).turned == "turn 1: ada wrote to the agent"


def test_a_programs_answers_are_counted_where_it_calls_no_tool() -> None:
    said = TurnView(1, 1.0, text="I will.")
    assert story(said, end=ended()).line == "turn 1 answered, nothing run; the verifier said 0"
    assert story(said, TurnView(2, 2.0, text="Done.")).line == "turns 1 to 2 answered, nothing run"


def test_limits_say_where_and_what_the_verifier_missed() -> None:
    end = ended(Outcome.CONTEXT_OVERFLOW, "FAIL: missing out.json\n", reason="the context is full")
    told = story(turn(1, "cat big.log\n"), turn(2, "cat big.log\n"), end=end)
    assert told.line == "read big.log; context full in turn 2; verifier: missing out.json"
    lost = ended(Outcome.SANDBOX_LOST, verdict=None, reason="the box is gone")
    assert story(end=lost).line == "sandbox lost: the box is gone"
    lost = ended(Outcome.SANDBOX_LOST, verdict=None, reason=f"/{'a/' * 90}b: the disk is full")
    assert story(end=lost).line.startswith("sandbox lost: /a/")
    assert story(end=lost).line.endswith("/b: the disk is full")


def test_in_a_narrow_place_why_it_ended_stays() -> None:
    told = Story("created a.txt, b.txt and 9 more", "turn 3: gcc: command not found", "solved")
    assert told.within(200).count(";") == 2
    assert told.within(60) == "created a.txt, b.txt and 9 more; solved"
    assert told.within(30) == "created a.txt, b.txt…; solved"
    assert told.within(10) == "solved"


_texts = st.text(max_size=300) | st.sampled_from(
    ["echo a > b\n", "\x1b[2J\x1b]0;x\x07", "FAIL: \u202e x", "Traceback\nE: \x00\n", "'" * 50]
)
_turns = st.builds(
    lambda number, keys, saw, error, complete, purpose: turn(
        number, *keys, saw=saw, error=error, task_complete=complete, purpose=purpose
    ),
    st.integers(0, 10**6),
    st.lists(_texts, max_size=4),
    _texts,
    st.none() | _texts,
    st.booleans(),
    st.sampled_from(["turn", PERSON, "summary"]),
)
_ends = st.none() | st.builds(
    ended, st.sampled_from(Outcome), _texts, st.none() | st.floats(0, 1), _texts
)


@given(st.lists(_turns, max_size=6), _ends, _texts, st.integers(1, 300))
def test_every_trial_has_a_story_of_one_line(
    turns: list[TurnView], end: TrialFinished | None, instruction: str, width: int
) -> None:
    told = tell(Transcript(turns, end), instruction)
    assert told.line == "" or told.line.isprintable()
    assert len(told.line) <= LONGEST
    assert len(told.within(width)) <= width
    if end is not None:
        assert told.ended or end.outcome is Outcome.FAILED


def test_a_very_long_trial_is_told_by_its_ends() -> None:
    turns = [turn(n, f"touch f{n}\n") for n in range(1, 3000)]
    assert "f1," in story(*turns).line


# The line that says what went wrong, in what terminals and verifiers write


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
        ("Traceback (most recent call last):\n  File 'x'\nKeyError: 'rows'\n", "KeyError: 'rows'"),
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
