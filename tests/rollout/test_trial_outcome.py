"""Facts become outcomes and rewards by one table."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbtui.journal.events import Outcome, PhaseSeconds
from tbtui.outcomes import UNSCORED
from tbtui.rollout.messages import FailedPhase, FinishReason, TrialFacts, VerdictCheck
from tbtui.rollout.outcome import decide, lost_with_worker

FINISHES: tuple[FinishReason, ...] = get_args(FinishReason)
POLICYS_DOING = {
    Outcome.SOLVED,
    Outcome.FAILED,
    Outcome.AGENT_TIMEOUT,
    Outcome.CONTEXT_OVERFLOW,
    Outcome.OUTPUT_TRUNCATED,
    Outcome.PARSE_ERROR,
}


def facts(finish: FinishReason, verdict: float | None, **more: Any) -> TrialFacts:
    plain: dict[str, Any] = {
        "turns": 3,
        "exception_type": None,
        "exception_message": None,
        "failed_phase": None,
        "last_parse_error": None,
        "seconds": PhaseSeconds(),
    }
    return TrialFacts(finish=finish, verdict=verdict, **{**plain, **more})


TORN_DOWN_BADLY = {"exception_type": "OSError", "failed_phase": "teardown"}
CUT = {"last_parse_error": "cut at 512 tokens", "last_truncated": True}
NO_SANDBOX = {"exception_type": "X", "failed_phase": "environment"}
BROKEN_AGENT = {"exception_type": "NoCallsError", "failed_phase": "agent"}
USED_UP = {"damage": "used up all of its disk", "failed_phase": "verifier"}
STARVED = {"exception_type": "MachineStarvedError"}
UNCLEAN: dict[FinishReason, Outcome] = {
    "max_turns": Outcome.AGENT_TIMEOUT,
    "budget": Outcome.AGENT_TIMEOUT,
    "deadline": Outcome.AGENT_TIMEOUT,
    "output_truncated": Outcome.OUTPUT_TRUNCATED,
    "context_overflow": Outcome.CONTEXT_OVERFLOW,
    "terminal_ended": Outcome.FAILED,
}
UNSCORABLE = VerdictCheck(
    works=False,
    evidence="its tests fail",
    control="oracle",
    unusable="solution",
    solution_fails=True,
)
SOUND = VerdictCheck(works=True, evidence="", control="oracle")
BROKE_IT = {
    "failed_phase": "verifier",
    "within_sandbox": True,
    "verdict_check": VerdictCheck(works=True, evidence="killed", control="untouched"),
}

TABLE: list[tuple[FinishReason, float | None, dict[str, Any], Outcome, float | None]] = [
    ("completed", 1.0, {}, Outcome.SOLVED, 1.0),
    ("completed", 0.0, {}, Outcome.FAILED, 0.0),
    ("completed", 0.25, {}, Outcome.FAILED, 0.25),
    ("completed", None, {}, Outcome.VERIFIER_ERROR, None),
    ("completed", math.nan, {}, Outcome.VERIFIER_ERROR, None),
    ("completed", 1.0, TORN_DOWN_BADLY, Outcome.SOLVED, 1.0),
    ("completed", None, USED_UP, Outcome.FAILED, 0.0),
    ("completed", None, {**USED_UP, "failed_phase": "teardown"}, Outcome.VERIFIER_ERROR, None),
    ("sandbox_lost", None, USED_UP, Outcome.FAILED, 0.0),
    ("sandbox_lost", None, {**USED_UP, **STARVED}, Outcome.SANDBOX_LOST, None),
    ("max_turns", 1.0, {}, Outcome.AGENT_TIMEOUT, 0.0),
    ("max_turns", 0.0, {}, Outcome.AGENT_TIMEOUT, 0.0),
    ("max_turns", None, {}, Outcome.VERIFIER_ERROR, None),
    ("max_turns", 1.0, {"last_parse_error": "no JSON"}, Outcome.PARSE_ERROR, 0.0),
    ("max_turns", 1.0, CUT, Outcome.OUTPUT_TRUNCATED, 0.0),
    ("budget", 1.0, {}, Outcome.AGENT_TIMEOUT, 0.0),
    ("budget", None, {}, Outcome.VERIFIER_ERROR, None),
    ("output_truncated", 1.0, {}, Outcome.OUTPUT_TRUNCATED, 0.0),
    ("context_overflow", 1.0, {}, Outcome.CONTEXT_OVERFLOW, 0.0),
    ("context_overflow", None, {}, Outcome.VERIFIER_ERROR, None),
    ("context_overflow", 0.0, {"last_truncated": True}, Outcome.OUTPUT_TRUNCATED, 0.0),
    ("terminal_ended", 1.0, {}, Outcome.FAILED, 0.0),
    ("program_failed", 1.0, {}, Outcome.FAILED, 0.0),
    ("completed", -1.0, {}, Outcome.FAILED, -1.0),
    *((finish, -1.0, {}, outcome, -1.0) for finish, outcome in UNCLEAN.items()),
    *(
        (finish, 0.0, {"verdict_check": UNSCORABLE}, Outcome.VERIFIER_ERROR, None)
        for finish in ("completed", *UNCLEAN)
    ),
    *((finish, 0.0, {"verdict_check": SOUND}, outcome, 0.0) for finish, outcome in UNCLEAN.items()),
    ("completed", None, {**USED_UP, "untouched_verdict": -1.0}, Outcome.FAILED, -1.0),
    ("completed", None, {**USED_UP, "untouched_verdict": 0.5}, Outcome.FAILED, 0.0),
    ("completed", None, {**BROKE_IT, "untouched_verdict": -2.0}, Outcome.FAILED, -2.0),
    ("stopped", 1.0, {}, Outcome.CANCELLED, None),
    ("stopped", None, {}, Outcome.CANCELLED, None),
    ("deadline", 1.0, {}, Outcome.AGENT_TIMEOUT, 0.0),
    ("deadline", 0.0, {}, Outcome.AGENT_TIMEOUT, 0.0),
    ("deadline", None, {}, Outcome.VERIFIER_ERROR, None),
    ("cancelled", None, {}, Outcome.CANCELLED, None),
    ("parted", None, {}, Outcome.CANCELLED, None),
    ("provider_error", None, {}, Outcome.PROVIDER_ERROR, None),
    ("refused", None, {}, Outcome.REFUSED, None),
    ("refused", 1.0, {}, Outcome.REFUSED, None),
    ("too_slow", None, {}, Outcome.TOO_SLOW, None),
    ("sandbox_lost", None, {}, Outcome.SANDBOX_LOST, None),
    ("not_run", None, NO_SANDBOX, Outcome.SETUP_ERROR, None),
    ("no_calls", None, BROKEN_AGENT, Outcome.AGENT_ERROR, None),
    ("error", None, {"exception_type": "X", "failed_phase": "agent"}, Outcome.AGENT_ERROR, None),
]  # fmt: skip


@pytest.mark.parametrize(("finish", "verdict", "more", "outcome", "reward"), TABLE)
def test_table(
    finish: FinishReason,
    verdict: float | None,
    more: dict[str, Any],
    outcome: Outcome,
    reward: float | None,
) -> None:
    decision = decide(facts(finish, verdict, **more))
    assert (decision.outcome, decision.reward) == (outcome, reward)


def test_every_way_to_finish_is_in_the_table() -> None:
    assert {row[0] for row in TABLE} == set(FINISHES)


def test_a_verdict_is_kept_even_when_it_does_not_count() -> None:
    decision = decide(facts("stopped", 1.0))
    assert decision.verdict == 1.0
    assert "the verifier said 1" in decision.reason


def test_a_deadline_is_named() -> None:
    assert decide(facts("deadline", 1.0)).reason == (
        "ended after 3 turns by the deadline of its step; the verifier said 1"
    )


def test_reasons_are_one_printable_line() -> None:
    hostile = "a\nb\x1b[2J\0" + "x" * 5000
    reason = decide(
        facts("error", None, exception_type="E", exception_message=hostile, failed_phase="agent")
    ).reason
    assert reason.isprintable()
    assert len(reason) <= 300


def test_a_long_reason_keeps_where_it_was_and_how_it_ended() -> None:
    said = "/task/environment/Dockerfile:7: exit code 1 of RUN make\n" + "line\n" * 300 + "no gcc"
    decision = decide(
        facts("not_run", None, **{**NO_SANDBOX, "exception_message": said, "exception_type": "E"})
    )
    assert len(decision.reason) == 300
    assert decision.reason.startswith("the agent never got to act: E: /task/environment/Dockerf")
    assert decision.reason.endswith("line line no gcc")


def test_a_trial_lost_with_its_worker_is_infrastructure() -> None:
    decision = lost_with_worker("killed by SIGKILL")
    assert decision.outcome.infrastructure
    assert decision.reward is None


any_facts = st.builds(
    TrialFacts,
    finish=st.sampled_from(FINISHES),
    turns=st.integers(0, 100),
    verdict=st.none() | st.floats(),
    exception_type=st.none() | st.just("SomeError"),
    exception_message=st.none() | st.text(),
    failed_phase=st.none() | st.sampled_from(get_args(FailedPhase)),
    last_parse_error=st.none() | st.text(),
    seconds=st.just(PhaseSeconds()),
    last_truncated=st.booleans(),
)


@given(any_facts)
def test_no_reward_is_invented(given_facts: TrialFacts) -> None:
    decision = decide(given_facts)
    if decision.reward is not None:
        assert given_facts.verdict is not None
        assert decision.verdict is not None
        assert decision.outcome in POLICYS_DOING
        assert math.isfinite(decision.reward)
        clean = given_facts.finish == "completed"
        assert decision.reward == (decision.verdict if clean else min(0.0, decision.verdict))
    assert decision.outcome.infrastructure <= (decision.reward is None)
    assert (decision.outcome is Outcome.CANCELLED) == (
        given_facts.finish in ("stopped", "cancelled", "parted")
    )


@given(any_facts)
def test_a_missing_verdict_is_never_a_reward(given_facts: TrialFacts) -> None:
    verdict = given_facts.verdict
    if verdict is None or not math.isfinite(verdict):
        decision = decide(given_facts)
        assert (decision.verdict, decision.reward) == (None, None)
        assert decision.outcome in UNSCORED


@given(any_facts)
def test_every_decision_can_be_stored(given_facts: TrialFacts) -> None:
    decision = decide(given_facts)
    assert decision.outcome in Outcome
    assert decision.reason
    decision.reason.encode()


@given(any_facts)
def test_only_a_clean_finish_solves(given_facts: TrialFacts) -> None:
    decision = decide(given_facts)
    solved = decision.outcome is Outcome.SOLVED
    passed = decision.verdict is not None and decision.verdict >= 1.0
    assert solved == (given_facts.finish == "completed" and passed)
