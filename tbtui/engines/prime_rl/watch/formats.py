"""What Prime-RL and verifiers write to disk, as far as it is read here; and what a rollout is, and
how it ended, in tbtui's words.

Read from verifiers a60a606 (`verifiers/v1/{episode,trace,graph}.py`) and prime-rl 559b447
(`src/prime_rl/monitors/file.py`). Records leave out what is None; fields that are not named here
are passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from tbtui.journal.events import Outcome, Purpose


class Record(msgspec.Struct, gc=False):
    """A JSON object, or part of one; missing fields have their defaults."""


class Span(Record):
    """A span of time, in seconds since the epoch; 0: it did not begin, or not end."""

    start: float = 0.0
    end: float = 0.0


class TraceSplit(Record):
    duration: float = 0.0


class AgentSpan(Span):
    model: TraceSplit = msgspec.field(default_factory=TraceSplit)


class Timing(Record):
    start: float = 0.0
    boot: Span = msgspec.field(default_factory=Span)
    setup: Span = msgspec.field(default_factory=Span)
    agent: AgentSpan = msgspec.field(default_factory=AgentSpan)
    finalize: Span = msgspec.field(default_factory=Span)
    scoring: Span = msgspec.field(default_factory=Span)


class TraceFailure(Record):
    type: str = ""
    message: str = ""


class Reward(Record):
    score: float = 0.0
    weight: float = 1.0


class TraceToolCall(Record):
    name: str = ""
    arguments: str = ""


class TraceMessage(Record):
    role: str = ""
    content: str | list[dict[str, Any]] | None = None
    reasoning_content: str | None = None
    tool_calls: list[TraceToolCall] | None = None


class Node(Record):
    """A message and the tokens that it adds to its predecessors'."""

    parent: int | None = None
    message: TraceMessage = msgspec.field(default_factory=TraceMessage)
    sampled: bool = False
    timestamp: float = 0.0
    token_ids: list[int] = []
    mask: list[bool] = []
    """Which of the tokens were sampled."""
    logprobs: list[float | None] = []
    """One for each sampled token."""
    advantages: list[float | None] | None = None


class Usage(Record):
    prompt_tokens: int = 0
    """Without those from the cache."""
    completion_tokens: int = 0
    cached_input_tokens: int | None = None


class Sampling(Record):
    temperature: float | None = None


class TraceCall(Record):
    node: int | None = None
    finish_reason: str | None = None
    sampling: Sampling | None = None
    usage: Usage | None = None
    time: Span = msgspec.field(default_factory=Span)
    error: TraceFailure | None = None


class Task(Record):
    data: dict[str, Any] = {}
    key: str | None = None

    @property
    def name(self) -> str:
        """The task's own name, or its row in the data set."""
        if name := self.data.get("name"):
            return str(name)
        idx = self.data.get("idx")
        return f"idx={idx}" if idx is not None else self.key or "task"


class Agent(Record):
    name: str = "agent"
    trainable: bool = True


class Trace(Record):
    """One agent's rollout."""

    id: str
    task: Task = msgspec.field(default_factory=Task)
    agent: Agent = msgspec.field(default_factory=Agent)
    nodes: list[Node] = []
    calls: list[TraceCall] = []
    rewards: dict[str, Reward | None] = {}
    info: dict[str, Any] = {}
    ok: bool = False
    stop_condition: str | None = None
    is_timeout: bool = False
    errors: list[TraceFailure] = []
    timing: Timing = msgspec.field(default_factory=Timing)

    @property
    def reward(self) -> float | None:
        """The weighted sum of its rewards; None where no scoring ran."""
        given = [each.score * each.weight for each in self.rewards.values() if each is not None]
        return sum(given) if given else None

    @property
    def advantage(self) -> float | None:
        """The mean over its sampled tokens; None where no algorithm assigned any."""
        if isinstance(whole := self.info.get("advantage"), int | float):
            return float(whole)
        values = [a for node in self.nodes for a in node.advantages or () if a is not None]
        return sum(values) / len(values) if values else None


class Named(Record):
    id: str = ""
    name: str | None = None


class PolicySpan(Record):
    """Versions of the weights that an episode was sampled with."""

    start: int = 0
    end: int = 0


class TraceWork(Record):
    type: str = "train"
    step: int = 0
    policy: PolicySpan | None = None


class RunInfo(Record):
    type: str = "train"
    work: TraceWork | None = None


class Episode(Record):
    """One run of an environment: a line of `traces.jsonl`."""

    id: str
    env: Named = msgspec.field(default_factory=Named)
    task: Task = msgspec.field(default_factory=Task)
    group: Named | None = None
    run: RunInfo | None = None
    ok: bool = False
    errors: list[TraceFailure] = []
    traces: list[Trace] = []

    @property
    def work(self) -> TraceWork:
        return (self.run.work if self.run is not None else None) or TraceWork()


class Dispatch(Record):
    """What a rollout belongs to."""

    kind: str = "train"
    env: str = ""
    group: str = ""
    task: str = ""
    policy_version: int = 0
    step: int = 0
    started: float | None = None


def read_records[T](kind: type[T], lines: list[bytes]) -> tuple[list[T], int]:
    """The records of lines of JSON, and how many lines were none of this kind."""
    decoder = msgspec.json.Decoder(kind)
    records: list[T] = []
    bad = 0
    for line in lines:
        if not line.strip():
            continue
        try:
            records.append(decoder.decode(line))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            bad += 1
    return records, bad


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


def end_without_trace(errors: list[TraceFailure]) -> RolloutEnd:
    """The end of an episode that failed before any agent began."""
    return _failed(errors, None)


def _failed(errors: list[TraceFailure], verdict: float | None) -> RolloutEnd:
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
