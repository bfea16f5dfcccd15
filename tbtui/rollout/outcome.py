"""What became of a trial: the one place where facts become an outcome and a reward.

Five rules. A verdict that was never given is no reward, never zero. A pass counts only if the
agent ended cleanly: Harbor also verifies an agent that ran out of turns, and a policy that leaves
the files right but never says so in a readable way would be taught to go on like that. What the
machinery did wrong is never scored. A 0 of a verifier that can't work in a fresh sandbox either is
no verdict (`verdict_check`). What an agent does to its own sandbox, its verifier included, is a
failure and no other attempt, where a fresh sandbox shows that it was the agent.
"""

from __future__ import annotations

from dataclasses import dataclass

from tbtui.outcomes import Outcome
from tbtui.rollout.messages import TrialFacts, VerdictCheck
from tbtui.vocabulary import is_reward

_FROM_VERIFIER = frozenset({Outcome.FAILED, Outcome.VERIFIER_ERROR})


@dataclass(frozen=True, slots=True)
class Decision:
    outcome: Outcome
    verdict: float | None
    """What the verifier said, untouched."""
    reward: float | None
    """What training may use; None is *no reward*."""
    reason: str
    """One line for a person."""
    lasting: bool = False
    """Another attempt at this task, in the same environment, would end the same way."""


def decide(facts: TrialFacts) -> Decision:
    """The outcome of a trial that ended. Pure and total."""
    verdict = facts.verdict
    if verdict is not None and not is_reward(verdict):
        verdict = None
    outcome, reason = _outcome(facts, verdict)
    if facts.given_back_sec >= 1:
        reason += f"; {facts.given_back_sec:.0f} s that the machine kept from it were given back"
    lasting = facts.lasting
    if (check := facts.verdict_check) is not None and outcome in _FROM_VERIFIER:
        lasting = check.lasting
        if outcome is Outcome.FAILED:
            outcome, reason = _checked(check, reason)
        elif facts.within_sandbox and check.works:
            outcome, reason = _checked(check, "the agent broke its verifier")
    if facts.human_touched and not outcome.infrastructure and outcome is not Outcome.CANCELLED:
        did = "wrote to its agent" if facts.human_wrote else "typed in its terminal"
        outcome, reason = Outcome.HUMAN_TOUCHED, f"a person {did}; {reason}"
    # A failure without a verdict is one that the agent has prevented.
    prevented = outcome is Outcome.FAILED and verdict is None
    reward = 0.0 if prevented else _reward(facts, outcome, verdict)
    return Decision(outcome, verdict, reward, _one_line(reason), lasting)


def _checked(check: VerdictCheck, reason: str) -> tuple[Outcome, str]:
    """What a fresh sandbox makes of a verdict of 0."""
    if check.works:
        if not check.evidence:
            return Outcome.FAILED, reason
        where = "an untouched sandbox" if check.control == "untouched" else "the solution's sandbox"
        return Outcome.FAILED, f"{reason}; {check.evidence}, but its verifier works in {where}"
    if check.solution_fails:
        what = "the task can't be scored in this environment: its own solution earns no reward"
    else:
        what = "the verifier can't work, in an untouched sandbox either"
    return Outcome.VERIFIER_ERROR, f"{what}: {check.evidence}"


def lost_with_worker(reason: str) -> Decision:
    """The end of a trial whose worker process died."""
    return Decision(Outcome.SANDBOX_LOST, None, None, _one_line(f"worker lost: {reason}"))


def _reward(facts: TrialFacts, outcome: Outcome, verdict: float | None) -> float | None:
    if outcome is Outcome.FAILED and verdict is None:
        return 0.0  # the agent's own doing
    if verdict is None or outcome.infrastructure or outcome is Outcome.CANCELLED:
        return None
    return verdict if facts.finish == "completed" else 0.0


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
        case "sandbox_lost" if facts.used_up:
            return Outcome.FAILED, f"the agent's sandbox has used up {facts.used_up}"
        case "sandbox_lost":
            return Outcome.SANDBOX_LOST, _failure(facts, "the sandbox stopped answering")
        case "provider_error":
            return Outcome.PROVIDER_ERROR, _failure(facts, "the policy failed")
        case "not_run":
            return Outcome.SETUP_ERROR, _failure(facts, "the agent never got to act")
        case "no_calls":
            what = "the agent talks to another model, or does not start"
            return Outcome.AGENT_ERROR, _failure(facts, what)
        case "error":
            return Outcome.AGENT_ERROR, _failure(facts, "the agent failed")
    if verdict is None and facts.used_up and facts.failed_phase == "verifier":
        what = f"the agent has used up {facts.used_up}, and its verifier can't run"
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
    """What it begins with, which says where, and more of its end, where the reason stands."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    head = limit // 3
    return line if len(line) <= limit else f"{line[:head]}…{line[head + 1 - limit :]}"
