"""Who a rollout is, in our words, and what is remembered of it once it is over."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tbtui.engines.prime_rl.watch.records import Delta, Dispatch, Episode, Trace
from tbtui.journal.events import Outcome, Purpose

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._-]")
_MAX_NAME = 80


@dataclass(frozen=True, slots=True)
class Ended:
    """What is remembered of a finished trial, to score its group."""

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
    ) -> Ended:
        purpose = purpose_of(who.kind)
        return cls(who.env, who.group, who.task, purpose, step, outcome, reward, tokens)


def trial_name(identity: str) -> str:
    """Prime-RL's own id, which is also a directory's name with us."""
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
