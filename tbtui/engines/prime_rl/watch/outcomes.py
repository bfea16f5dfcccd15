"""How a rollout of Prime-RL's ended, in our words."""

from __future__ import annotations

from dataclasses import dataclass

from tbtui.engines.prime_rl.watch.records import Failure, Trace
from tbtui.journal.events import Outcome

_INFRASTRUCTURE = {
    "ProviderError": Outcome.PROVIDER_ERROR,
    "InterceptionError": Outcome.PROVIDER_ERROR,
    "TunnelError": Outcome.PROVIDER_ERROR,
    "SandboxError": Outcome.SANDBOX_LOST,
    "ToolsetError": Outcome.SETUP_ERROR,
    "EnvError": Outcome.SETUP_ERROR,
    "HarnessError": Outcome.AGENT_ERROR,
    "TaskError": Outcome.VERIFIER_ERROR,
}
"""verifiers' errors, each the fault of one part that is not the policy."""

_LIMITS = {
    "max_turns": (Outcome.AGENT_TIMEOUT, "out of turns"),
    "timeout": (Outcome.AGENT_TIMEOUT, "out of time"),
    "context_length": (Outcome.CONTEXT_OVERFLOW, "the context is full"),
    "prompt_too_long": (Outcome.CONTEXT_OVERFLOW, "the prompt is longer than the context"),
    "compaction_failed": (Outcome.CONTEXT_OVERFLOW, "the history could not be made shorter"),
    "max_input_tokens": (Outcome.CONTEXT_OVERFLOW, "out of input tokens"),
    "max_total_tokens": (Outcome.CONTEXT_OVERFLOW, "out of tokens"),
    "max_output_tokens": (Outcome.OUTPUT_TRUNCATED, "out of output tokens"),
}
"""What stopped a rollout, where that is the policy's own doing."""


@dataclass(frozen=True, slots=True)
class End:
    outcome: Outcome
    reason: str
    """One line."""
    verdict: float | None
    reward: float | None
    """None wherever Prime-RL leaves the rollout out for an error: never 0 for a failure of the
    machinery."""


def end_of(trace: Trace) -> End:
    verdict = trace.reward
    if trace.errors or not trace.ok:
        return _failed(trace.errors, verdict)
    if verdict is None:
        return End(Outcome.VERIFIER_ERROR, "nothing gave it a reward", None, None)
    if verdict >= 1:
        return End(Outcome.SOLVED, f"reward {verdict:g}", verdict, verdict)
    stop = "timeout" if trace.is_timeout else trace.stop_condition or ""
    if stop in _LIMITS:
        outcome, words = _LIMITS[stop]
        return End(outcome, f"{words}; reward {verdict:g}", verdict, verdict)
    last = next((call for call in reversed(trace.calls) if call.error is None), None)
    if last is not None and last.finish_reason == "length":
        words = "the last completion was cut off"
        return End(Outcome.OUTPUT_TRUNCATED, f"{words}; reward {verdict:g}", verdict, verdict)
    return End(Outcome.FAILED, f"reward {verdict:g}", verdict, verdict)


def end_without_trace(errors: list[Failure]) -> End:
    """Of an episode that failed before any agent had begun."""
    return _failed(errors, None)


def _failed(errors: list[Failure], verdict: float | None) -> End:
    if not errors:
        return End(Outcome.AGENT_ERROR, "it ended without saying why", verdict, None)
    last = errors[-1]
    outcome = _INFRASTRUCTURE.get(last.type, Outcome.AGENT_ERROR)
    message = last.message.strip().splitlines()
    reason = f"{last.type}: {message[0]}" if message else last.type
    return End(outcome, reason, verdict, None)
