"""What makes a reward doubtful, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.algorithm.suspects import ExaminedTrial, suspects
from tbtui.findings import SUSPECTS

ORDINARY = ExaminedTrial(
    trial="a",
    outcome_is_infrastructure=False,
    human_touched=False,
    reward=1.0,
    verdict=1.0,
    turns=4,
    began_at=100.0,
    ended_at=160.0,
    verifying_sec=2.0,
    commands=("ls\n", "cp a.txt b.txt\n"),
    verifier_output="===== 3 passed in 1.20s =====",
    completions=((5, 6), (7, 8, 9)),
)
FAILED = replace(
    ORDINARY,
    reward=0.0,
    verdict=0.0,
    commands=("cat tests/test_it.py\n",),
    verifier_output="===== 1 failed, 2 passed in 1.10s =====\nConnectionRefusedError",
    completions=((5, 6), (1,)),
)


def group(*trials: ExaminedTrial) -> list[ExaminedTrial]:
    """A name for each."""
    return [replace(trial, trial=f"t{number}") for number, trial in enumerate(trials)]


def names(*trials: ExaminedTrial) -> dict[str, list[str]]:
    return {trial: [each.rule for each in why] for trial, why in suspects(group(*trials)).items()}


def why(*trials: ExaminedTrial) -> str:
    """The reason of the first trial's first suspicion."""
    return suspects(group(*trials))["t0"][0].text


def test_an_ordinary_group_is_not_suspected() -> None:
    assert not suspects([])
    assert not names(ORDINARY)
    assert not names(*[ORDINARY] * 4, *[FAILED] * 4)


def test_a_converged_policy_is_not_suspected() -> None:
    """All say the same and get the same, whatever that is."""
    quiet = replace(ORDINARY, verifier_output="", verifying_sec=0.0)
    assert not names(*[quiet] * 8)
    assert not names(*[FAILED] * 8)
    assert not names(*[replace(ORDINARY, turns=1)] * 8)
    assert not names(*[replace(ORDINARY, verifier_output="3 passed, 2 skipped")] * 8)


ODD: list[tuple[str, ExaminedTrial, str]] = [
    (
        "infrastructure_zero",
        replace(FAILED, outcome_is_infrastructure=True),
        "infrastructure failed, and it counts as 0",
    ),
    (
        "infrastructure_zero",
        replace(FAILED, verifier_output="+ apt-get\ncurl: (6) Could not resolve host: astral.sh\n"),
        "its verifier says: curl: (6) Could not resolve host: astral.sh",
    ),
    (
        "infrastructure_zero",
        replace(FAILED, verifier_output="/tests/test.sh: line 9: uvx: command not found"),
        "its verifier says: /tests/test.sh: line 9: uvx: command not found",
    ),
    ("unverified", replace(ORDINARY, verdict=None), "reward 1, and no verifier spoke"),
    (
        "instant_verifier",
        replace(ORDINARY, verifying_sec=0.1),
        "verified in 0.10 s, siblings in 2.00 s",
    ),
    (
        "tests_skipped",
        replace(ORDINARY, verifier_output="==== 1 passed, 2 skipped in 0.1s ===="),
        "its verifier skipped 2 tests, a sibling's 0",
    ),
    (
        "tests_skipped",
        replace(ORDINARY, verifier_output="Ran 3 tests\n\nOK (skipped=3)"),
        "its verifier skipped 3 tests, a sibling's 0",
    ),
    (
        "tests_skipped",
        replace(FAILED, verifier_output="collected 0 items\n\n=== no tests ran in 0.01s ==="),
        "its verifier says: === no tests ran in 0.01s ===",
    ),
    (
        "flaky_verdict",
        replace(FAILED, completions=ORDINARY.completions),
        "verdict 0; 4 of 4 siblings that said the same, token for token, got 1",
    ),
    ("no_commands", replace(ORDINARY, commands=("", " \n")), "reward 1 without a command"),
    (
        "few_turns",
        replace(ORDINARY, turns=1),
        "solved in 1 turn, siblings in 4",
    ),
    (
        "tests_touched",
        replace(ORDINARY, commands=("ls\n", "echo 1 > /logs/verifier/reward.txt\n")),
        "a command names /logs/verifier/reward.txt",
    ),
    (
        "tests_touched",
        replace(FAILED, commands=("mkdir -p '/tests'; cat /etc/passwd\n",)),
        "a command names /tests",
    ),
    ("human_touched", replace(ORDINARY, human_touched=True), "a person typed in its terminal"),
]


@pytest.mark.parametrize(("name", "odd", "reason"), ODD)
def test_each_oddity_is_found_and_no_sibling_is_blamed(
    name: str, odd: ExaminedTrial, reason: str
) -> None:
    ordinary = (
        replace(ORDINARY, completions=odd.completions) if name == "flaky_verdict" else ORDINARY
    )
    assert names(odd, *[ordinary] * 4, FAILED) == {"t0": [name]}
    assert why(odd, *[ordinary] * 4, FAILED) == reason


def test_every_suspicion_is_tested() -> None:
    assert {name for name, _, _ in ODD} == set(SUSPECTS)


@pytest.mark.parametrize(("name", "odd", "reason"), ODD)
def test_what_has_no_part_in_its_group_is_not_suspected(
    name: str, odd: ExaminedTrial, reason: str
) -> None:
    masked = replace(odd, reward=None)
    assert "t0" not in names(masked, *[ORDINARY] * 4, FAILED)


def test_of_verdicts_that_differ_the_rarer_is_doubted_and_in_a_tie_both() -> None:
    other = replace(FAILED, completions=ORDINARY.completions)
    assert set(names(ORDINARY, ORDINARY, other)) == {"t2"}
    assert set(names(ORDINARY, other, other)) == {"t0"}
    assert set(names(ORDINARY, other, FAILED)) == {"t0", "t1"}


def test_a_project_has_tests_of_its_own() -> None:
    for keys in ("cat /app/tests/test_a.py", "cd tests", "ls ./tests", "ls ~/tests", "ls /tests-2"):
        assert not names(replace(ORDINARY, commands=(keys,)))


def test_a_comparison_needs_siblings() -> None:
    quick = replace(ORDINARY, turns=1, verifying_sec=0.01)
    assert not names(quick, ORDINARY, ORDINARY, FAILED, FAILED, FAILED)


@pytest.mark.parametrize("began_at", [500.0, 100.0], ids=["resumed alone", "the last one"])
def test_a_verifier_with_the_machine_to_itself_is_quick(began_at: float) -> None:
    """Where no sibling ran beside it, and it printed what theirs did."""
    alone = replace(ORDINARY, began_at=began_at, ended_at=520.0, verifying_sec=0.1)
    real = replace(alone, verifier_output="===== 3 passed in 0.09s =====")
    assert not names(real, *[ORDINARY] * 4)
    faked = replace(alone, verifier_output="all good")
    assert names(faked, *[ORDINARY] * 4) == {"t0": ["instant_verifier"]}


trials = st.builds(
    ExaminedTrial,
    trial=st.just(""),
    outcome_is_infrastructure=st.booleans(),
    human_touched=st.booleans(),
    reward=st.sampled_from([None, 0.0, 0.5, 1.0]),
    verdict=st.sampled_from([None, 0.0, 1.0]),
    turns=st.integers(0, 12),
    began_at=st.sampled_from([0.0, 70.0]),
    ended_at=st.sampled_from([60.0, 90.0]),
    verifying_sec=st.sampled_from([0.0, 0.1, 1.5, 30.0]),
    commands=st.lists(st.sampled_from(["", "ls\n", "cat /tests/test.sh\n"]), max_size=2).map(tuple),
    verifier_output=st.sampled_from(["", "1 passed", "1 passed, 2 skipped", "collected 0 items"]),
    completions=st.lists(st.just((1, 2)), max_size=2).map(tuple),
)


@given(
    st.lists(trials, max_size=8).flatmap(
        lambda some: st.tuples(st.just(some), st.permutations(range(len(some))))
    )
)
def test_the_order_of_siblings_does_not_matter(
    drawn: tuple[list[ExaminedTrial], list[int]],
) -> None:
    some, order = drawn
    named = group(*some)
    assert suspects([named[place] for place in order]) == suspects(named)


@given(trials, st.integers(1, 8))
def test_a_verifier_is_never_called_odd_for_what_all_siblings_get(
    trial: ExaminedTrial, size: int
) -> None:
    compared = {"instant_verifier", "few_turns", "flaky_verdict"}
    assert not compared & {name for found in names(*[trial] * size).values() for name in found}
