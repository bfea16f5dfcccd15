"""The interface between the task browser and the catalog; the browser knows no more of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Use = Literal["train", "heldout", "unused"]


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """One task, as the browser lists it."""

    id: str
    """Unique among all that are listed: its directory."""
    name: str
    dataset: str
    kind: str
    """Its kind, else its category."""
    difficulty: str
    """Empty: the task doesn't say."""
    use: Use
    size: int
    """Bytes of all its files."""
    timeout_sec: float
    """Active time that the agent has."""
    summary: str
    """First line of the instruction."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """How one run's rollouts of a task went."""

    run: str
    started_at: float
    """Seconds since the epoch."""
    rollouts: int
    scored: int
    reward_sum: float
    solved: int
    """Rollouts with a full reward."""
    seconds: float | None
    """Mean time on a worker; pauses and waiting don't count."""


@dataclass(frozen=True, slots=True)
class PastTask:
    """How a task has gone in all recorded runs, the newest first."""

    runs: tuple[RunRecord, ...] = ()

    @property
    def rollouts(self) -> int:
        return sum(run.rollouts for run in self.runs)

    @property
    def pass_rate(self) -> float | None:
        """Mean reward of its scored rollouts."""
        scored = sum(run.scored for run in self.runs)
        return sum(run.reward_sum for run in self.runs) / scored if scored else None

    @property
    def seconds(self) -> float | None:
        """Mean time of a rollout."""
        timed = [(run.seconds, run.rollouts) for run in self.runs if run.seconds is not None]
        count = sum(rollouts for _, rollouts in timed)
        return sum(seconds * rollouts for seconds, rollouts in timed) / count if count else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a step that would train on the selected tasks."""

    batch_size: int
    """Tasks."""
    group_size: int
    """Rollouts of each."""
    n_parallel: int
    """Rollouts at once."""


@dataclass(frozen=True, slots=True)
class Preview:
    """Texts of a task's files, cut where they are long."""

    instruction: str
    environment: str
    tests: str
    solution: str
    variables: str = ""
    """Names of this machine's variables that it takes."""


@dataclass(frozen=True, slots=True)
class SavedSet:
    """A named set, with those of its tasks that are listed here."""

    name: str
    tasks: int
    """That it names."""
    ids: frozenset[str]
    """Ids of its tasks that are here."""


@dataclass(frozen=True, slots=True)
class Start:
    """A run to start: settings as `tbtui run` takes them."""

    settings: tuple[str, ...]
    command: str
    """The command line that starts it."""


class TaskLibrary(Protocol):
    """Tasks with their past results, and named sets of them.

    Everything here reads files: it is called on threads, one call at a time. Every method may
    raise `UserError`.
    """

    @property
    def title(self) -> str:
        """Where the tasks are."""
        ...

    @property
    def plan(self) -> Plan: ...

    def entries(self) -> Sequence[TaskEntry]:
        """Every usable task, ordered by data set and name."""
        ...

    def defects(self) -> int:
        """How many tasks can't be used; known after `entries`."""
        ...

    def records(self) -> Mapping[str, PastTask]:
        """How tasks have gone in past runs, by their ids."""
        ...

    def unusable(self) -> Mapping[str, str]:
        """Why tasks can't be used in the environment that a run would choose, by their ids."""
        ...

    def preview(self, id: str) -> Preview: ...

    def sets(self) -> Sequence[SavedSet]: ...

    def save_set(self, name: str, ids: Sequence[str]) -> None: ...

    def delete_set(self, name: str) -> None: ...

    def start(self, name: str) -> Start:
        """A run that trains on the saved set `name`."""
        ...
