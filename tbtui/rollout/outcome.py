"""What became of a trial: the one place where facts become an outcome and a reward.

Three rules. A verdict that was never given is no reward, never zero. A pass counts only if the
agent ended cleanly: Harbor also verifies an agent that ran out of turns, and a policy that leaves
the files right but never says so in a readable way would be taught to go on like that. What the
machinery did wrong is never scored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tbtui.journal.events import Outcome
from tbtui.rollout.messages import TrialFacts

_INFRASTRUCTURE = frozenset(
    {
        Outcome.SETUP_ERROR,
        Outcome.SANDBOX_LOST,
        Outcome.VERIFIER_ERROR,
        Outcome.PROVIDER_ERROR,
        Outcome.AGENT_ERROR,
    }
)


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    verdict: float | None
    """What the verifier said, untouched."""
    reward: float | None
    """What training may use; None is *no reward*."""
    reason: str
    """One line for a person."""


def is_infrastructure(outcome: Outcome) -> bool:
    """The machinery's doing, not the policy's: worth another attempt, never scored."""
    return outcome in _INFRASTRUCTURE


def decide(facts: TrialFacts) -> Decision:
    """The outcome of a trial that ended. Pure and total."""
    verdict = facts.verdict
    if verdict is not None and not math.isfinite(verdict):
        verdict = None
    outcome, reason = _outcome(facts, verdict)
    if facts.human_touched and not is_infrastructure(outcome) and outcome is not Outcome.CANCELLED:
        outcome, reason = Outcome.HUMAN_TOUCHED, f"a person typed in its terminal; {reason}"
    return Decision(outcome, verdict, _reward(facts, outcome, verdict), _one_line(reason))


def lost_with_worker(reason: str) -> Decision:
    """The trial's worker process died or was killed under it."""
    return Decision(Outcome.SANDBOX_LOST, None, None, _one_line(f"worker lost: {reason}"))


def _reward(facts: TrialFacts, outcome: Outcome, verdict: float | None) -> float | None:
    if verdict is None or is_infrastructure(outcome) or outcome is Outcome.CANCELLED:
        return None
    return verdict if facts.finish == "completed" else 0.0


def _outcome(facts: TrialFacts, verdict: float | None) -> tuple[Outcome, str]:
    said = "" if verdict is None else f"; the verifier said {verdict:g}"
    match facts.finish:
        case "cancelled":
            return Outcome.CANCELLED, f"cancelled by a person{said}"
        case "stopped":
            return Outcome.CANCELLED, f"stopped by a person after {_turns(facts)}{said}"
        case "sandbox_lost":
            return Outcome.SANDBOX_LOST, _failure(facts, "the sandbox stopped answering")
        case "provider_error":
            return Outcome.PROVIDER_ERROR, _failure(facts, "the policy failed")
        case "not_run":
            return Outcome.SETUP_ERROR, _failure(facts, "the agent never got to act")
        case "error":
            return Outcome.AGENT_ERROR, _failure(facts, "the agent failed")
    if verdict is None:
        return Outcome.VERIFIER_ERROR, _failure(facts, "the verifier gave no verdict")
    return _policys_doing(facts, verdict, said)


def _policys_doing(facts: TrialFacts, verdict: float, said: str) -> tuple[Outcome, str]:
    cut = facts.last_truncated
    match facts.finish:
        case "completed" if verdict >= 1.0:
            return Outcome.SOLVED, f"done after {_turns(facts)}"
        case "completed":
            return Outcome.FAILED, f"the agent said it was done after {_turns(facts)}{said}"
        case "terminal_ended":
            return Outcome.FAILED, f"the agent ended its own terminal in turn {facts.turns}{said}"
        case "deadline":
            after = f"after {_turns(facts)}"
            return Outcome.AGENT_TIMEOUT, f"ended {after} by the deadline of its step{said}"
        case "budget":
            return Outcome.AGENT_TIMEOUT, f"out of time in turn {facts.turns}{said}"
        case "output_truncated":
            return Outcome.OUTPUT_TRUNCATED, f"the last answer was cut off{said}"
        case "max_turns" | "context_overflow" if cut:
            return Outcome.OUTPUT_TRUNCATED, f"the last answer was cut off{said}"
        case "max_turns" if facts.last_parse_error is not None:
            return Outcome.PARSE_ERROR, f"unreadable: {facts.last_parse_error}{said}"
        case "context_overflow":
            return Outcome.CONTEXT_OVERFLOW, f"the context is full after {_turns(facts)}{said}"
        case _:
            return Outcome.AGENT_TIMEOUT, f"not done after {_turns(facts)}{said}"


def _turns(facts: TrialFacts) -> str:
    return "1 turn" if facts.turns == 1 else f"{facts.turns} turns"


def _failure(facts: TrialFacts, what: str) -> str:
    if facts.exception_type is None:
        return what
    return f"{what}: {facts.exception_type}: {facts.exception_message or 'no message'}"


def _one_line(text: str, limit: int = 300) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
