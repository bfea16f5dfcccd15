"""What became of a trial: the one place where facts become an outcome and a reward.

Five rules. A verdict that was never given is no reward, never zero. A pass counts only if the
agent ended cleanly: Harbor also verifies an agent that ran out of turns, and a policy that leaves
the files right but never says so in a readable way would be taught to go on like that. Such an end
earns 0, or the verdict where that is less: where failures are negative, none is better for being
unclean. What the machinery did wrong is never scored. A 0 of a verifier that can't work in a fresh
sandbox either is no verdict (`verdict_check`). What an agent does to its own sandbox, its verifier
included, is a failure and no other attempt, where a fresh sandbox shows that it was the agent; it
earns no more than an untouched sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass

from tbtui.findings import UnusableKind
from tbtui.outcomes import UNSCORED, Outcome
from tbtui.rollout.messages import TrialFacts, VerdictCheck
from tbtui.terminal import both_ends
from tbtui.vocabulary import is_reward

_SCORED = frozenset(
    {
        Outcome.FAILED,
        Outcome.AGENT_TIMEOUT,
        Outcome.CONTEXT_OVERFLOW,
        Outcome.OUTPUT_TRUNCATED,
        Outcome.PARSE_ERROR,
    }
)
"""The policy's own failures: a verdict of 0 decides what they earn."""


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    verdict: float | None
    """What the verifier said, untouched."""
    reward: float | None
    """What training may use; None is *no reward*."""
    reason: str
    """One line for a person."""
    unusable: UnusableKind | None = None
    """What of its task makes another attempt, in the same environment, end the same way."""


def decide(facts: TrialFacts) -> Decision:
    """The outcome of a trial that ended. Pure and total."""
    verdict = facts.verdict
    if verdict is not None and not is_reward(verdict):
        verdict = None
    outcome, reason = _outcome(facts, verdict)
    if facts.given_back_sec >= 1:
        reason += f"; {facts.given_back_sec:.0f} s of CPU contention credited"
    unusable = facts.unusable
    if (check := facts.verdict_check) is not None:
        if outcome in _SCORED:
            unusable = check.unusable
            outcome, reason = _checked(check, outcome, reason)
        elif outcome is Outcome.VERIFIER_ERROR:
            unusable = check.unusable
            if facts.within_sandbox and check.works:
                outcome, reason = _checked(check, Outcome.FAILED, "the agent broke its verifier")
    if facts.human_touched and outcome not in UNSCORED:
        did = "wrote to its agent" if facts.human_wrote else "typed in its terminal"
        outcome, reason = Outcome.HUMAN_TOUCHED, f"a person {did}; {reason}"
    reward = _reward(facts, outcome, verdict)
    return Decision(outcome, verdict, reward, short_reason(reason), unusable)


def _checked(check: VerdictCheck, outcome: Outcome, reason: str) -> tuple[Outcome, str]:
    """What a fresh sandbox makes of a failure with a verdict of 0, or without one."""
    if check.works:
        if not check.evidence:
            return outcome, reason
        where = "an untouched sandbox" if check.control == "untouched" else "the solution's sandbox"
        return outcome, f"{reason}; {check.evidence}, but its verifier works in {where}"
    if check.solution_fails:
        what = "the task can't be scored in this environment: its own solution earns no reward"
    else:
        what = "the verifier can't work, in an untouched sandbox either"
    return Outcome.VERIFIER_ERROR, f"{what}: {check.evidence}"


def lost_with_worker(reason: str) -> Decision:
    """The end of a trial whose worker process died."""
    return Decision(Outcome.SANDBOX_LOST, None, None, short_reason(f"worker lost: {reason}"))


def _reward(facts: TrialFacts, outcome: Outcome, verdict: float | None) -> float | None:
    if outcome is Outcome.FAILED and verdict is None:
        # The agent has prevented one, which is worth no more than to do nothing.
        return min(0.0, facts.untouched_verdict or 0.0)
    if verdict is None or outcome in UNSCORED:
        return None
    return verdict if facts.finish == "completed" else min(0.0, verdict)


def _outcome(facts: TrialFacts, verdict: float | None) -> tuple[Outcome, str]:
    said = "" if verdict is None else f"; the verifier said {verdict:g}"
    match facts.finish:
        case "cancelled":
            return Outcome.CANCELLED, f"cancelled by a person{said}"
        case "stopped":
            return Outcome.CANCELLED, f"stopped by a person after {_turns(facts)}{said}"
        case "parted":
            return Outcome.CANCELLED, f"not forked: {facts.exception_message}"
        case "sandbox_lost" if facts.exception_type == "MachineStarvedError":
            return Outcome.SANDBOX_LOST, _failure(facts, "the machine was starved")
        case "sandbox_lost" if facts.damage:
            return Outcome.FAILED, f"the agent has {facts.damage}"
        case "sandbox_lost":
            return Outcome.SANDBOX_LOST, _failure(facts, "the sandbox stopped answering")
        case "provider_error":
            return Outcome.PROVIDER_ERROR, _failure(facts, "the policy failed")
        case "refused":
            return Outcome.REFUSED, facts.exception_message or "the model's server gave no reason"
        case "too_slow":
            return Outcome.TOO_SLOW, facts.exception_message or "the model was too slow"
        case "not_run" if facts.agent_uninstalled:
            return Outcome.SETUP_ERROR, facts.agent_uninstalled
        case "not_run":
            return Outcome.SETUP_ERROR, _failure(facts, "the agent never got to act")
        case "no_calls":
            what = "the agent talks to another model, or does not start"
            return Outcome.AGENT_ERROR, _failure(facts, what)
        case "error":
            return Outcome.AGENT_ERROR, _failure(facts, "the agent failed")
    if verdict is None and facts.damage and facts.failed_phase == "verifier":
        what = f"the agent has {facts.damage}, and its verifier can't run"
        return Outcome.FAILED, _failure(facts, what)
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
        case "program_failed":
            what = f"the agent's program failed after {_turns(facts)}{said}"
            return Outcome.FAILED, f"{what}: {facts.program_failure or 'it gives no reason'}"
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
            tokens = f": {facts.overflow}" if facts.overflow else ""
            if not facts.turns:
                return Outcome.CONTEXT_OVERFLOW, f"the first prompt doesn't fit{tokens}{said}"
            return (
                Outcome.CONTEXT_OVERFLOW,
                f"the context is full after {_turns(facts)}{tokens}{said}",
            )
        case _:
            return Outcome.AGENT_TIMEOUT, f"not done after {_turns(facts)}{said}"


def _turns(facts: TrialFacts) -> str:
    return "1 turn" if facts.turns == 1 else f"{facts.turns} turns"


def _failure(facts: TrialFacts, what: str) -> str:
    if facts.exception_type is None:
        return what
    return f"{what}: {facts.exception_type}: {facts.exception_message or 'no message'}"


def short_reason(text: str, limit: int = 300) -> str:
    """What it begins with, which says where, and more of its end, where the reason stands."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return both_ends(line, limit) or "its reason can't be printed"
