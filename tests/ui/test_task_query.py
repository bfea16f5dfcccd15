"""The browser's search line."""

from __future__ import annotations

import pytest

from tbtui.ui.library import PastTask, RunRecord, TaskEntry
from tbtui.ui.task_choice import Candidate, QueryError, parse_query, term_value, with_term

ENTRY = TaskEntry(
    id="/t/copy-01",
    name="copy-01",
    dataset="starter",
    kind="copy",
    difficulty="easy",
    use="train",
    size=12_000,
    timeout_sec=60,
    summary="Copy notes.md to bak/",
)
TRIED = PastTask((RunRecord("r", 0.0, 10, 8, 2.0, 2, 30.0),))


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        ("", True),
        ("kind:", True),
        ("COPY", True),
        ("notes", True),
        ("copy move", False),
        ("-difficulty:hard", True),
        ("difficulty:easy kind:copy category:copy dataset:starter", True),
        ("kind:move", False),
        ("pass:.25", True),
        ("pass:<.25", False),
        ("pass:>.2", True),
        ("pass:.2-.3", True),
        ("pass:none", False),
        ("size:<12k", False),
        ("size:12k-1M", True),
        ("size:>0.01mb", True),
        ("seconds:30", True),
        ("tries:>9", True),
        ("is:selected", True),
        ("-is:selected", False),
        ("is:train", True),
        ("is:heldout", False),
    ],
)
def test_a_line_means_a_task_or_not(query: str, meant: bool) -> None:
    assert parse_query(query)(Candidate(ENTRY, TRIED, selected=True)) is meant


def test_what_is_not_known_is_neither_small_nor_large() -> None:
    untried = Candidate(ENTRY, PastTask(), selected=False)
    assert not parse_query("pass:<.5")(untried)
    assert not parse_query("pass:>.5")(untried)
    assert parse_query("pass:none tries:none")(untried)


@pytest.mark.parametrize("query", ["colour:red", "pass:<", "pass:<high", "size:1-", "is:odd"])
def test_a_line_that_can_not_be_read_is_refused(query: str) -> None:
    with pytest.raises(QueryError):
        parse_query(query)


def test_a_term_is_set_replaced_and_taken_back() -> None:
    assert with_term("copy", "pass", "<.5") == "copy pass:<.5"
    assert with_term("pass:none copy", "pass", ".2") == "copy pass:.2"
    assert with_term("pass:none copy", "pass", None) == "copy"
    assert term_value("copy pass:none", "pass") == "none"
    assert term_value("copy", "pass") is None
