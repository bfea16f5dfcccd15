"""What a rollout of Prime-RL's is and how it ended, in tbtui's words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tbtui.engines.prime_rl.watch.formats import Delta, Dispatch, Episode, Failure, Trace
from tbtui.journal.events import Outcome, Purpose

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
"""verifiers' errors that are not the policy's doing."""

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
"""Limits that stop a rollout: scored, as the policy's doing."""


@dataclass(frozen=True, slots=True)
class RolloutEnd:
    outcome: Outcome
    reason: str
    """One line."""
    verdict: float | None
    reward: float | None
    """None where Prime-RL drops the rollout for an error: an infrastructure failure is never 0."""


def end_of(trace: Trace) -> RolloutEnd:
    verdict = trace.reward
    if trace.errors or not trace.ok:
        return _failed(trace.errors, verdict)
    if verdict is None:
        return RolloutEnd(Outcome.VERIFIER_ERROR, "nothing gave it a reward", None, None)
    if verdict >= 1:
        return RolloutEnd(Outcome.SOLVED, f"reward {verdict:g}", verdict, verdict)
    stop = "timeout" if trace.is_timeout else trace.stop_condition or ""
    if stop in _LIMITS:
        outcome, words = _LIMITS[stop]
        return RolloutEnd(outcome, f"{words}; reward {verdict:g}", verdict, verdict)
    last = next((call for call in reversed(trace.calls) if call.error is None), None)
    if last is not None and last.finish_reason == "length":
        words = "the last completion was cut off"
        return RolloutEnd(
            Outcome.OUTPUT_TRUNCATED, f"{words}; reward {verdict:g}", verdict, verdict
        )
    return RolloutEnd(Outcome.FAILED, f"reward {verdict:g}", verdict, verdict)


def end_without_trace(errors: list[Failure]) -> RolloutEnd:
    """The end of an episode that failed before any agent began."""
    return _failed(errors, None)


def _failed(errors: list[Failure], verdict: float | None) -> RolloutEnd:
    if not errors:
        return RolloutEnd(Outcome.AGENT_ERROR, "it ended without saying why", verdict, None)
    last = errors[-1]
    outcome = _INFRASTRUCTURE.get(last.type, Outcome.AGENT_ERROR)
    message = last.message.strip().splitlines()
    reason = f"{last.type}: {message[0]}" if message else last.type
    return RolloutEnd(outcome, reason, verdict, None)


_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._-]")
_MAX_NAME = 80


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """What is kept of a finished trial, to score its group."""

    env: str
    group: str
    task: str
    purpose: Purpose
    step: int
    outcome: Outcome
    reward: float | None
    tokens: int

    @classmethod
    def of(
        cls, who: Dispatch, step: int, outcome: Outcome, reward: float | None, tokens: int
    ) -> FinishedTrial:
        purpose = purpose_of(who.kind)
        return cls(who.env, who.group, who.task, purpose, step, outcome, reward, tokens)


def trial_name(identity: str) -> str:
    """The trial's name: Prime-RL's id, made fit for a directory's name."""
    return _NOT_A_NAME.sub("_", identity).lstrip(".")[:_MAX_NAME] or "_"


def runs_in_plugin(delta: Delta) -> bool:
    """Whether the header of a rollout in flight is of one of our plugin's tasks."""
    return delta.open is not None and "task_dir" in delta.open.task.data


def purpose_of(kind: str) -> Purpose:
    return "eval" if kind == "eval" else "train"


def identity_of(episode: Episode, trace: Trace | None = None) -> Dispatch:
    work = episode.work
    return Dispatch(
        kind=work.type,
        env=episode.env.name or episode.env.id,
        group=episode.group.id if episode.group is not None else episode.id,
        task=(trace or episode).task.name,
        policy_version=work.policy.start if work.policy is not None else 0,
        step=work.step,
        started=trace.timing.start if trace is not None else None,
    )
