"""What the journal of an earlier part of the run says about batches that are not trained yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tbtui.algorithm.costs import Spent, Tokens
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.journal.events import EvalFinished

RUN_ENDED_FIRST = "the run ended first"
RUN_WAS_KILLED = "the run was killed first"
POLICY_LOST_FIRST = "the policy was lost first"
CUT_OFF = frozenset({RUN_ENDED_FIRST, RUN_WAS_KILLED, POLICY_LOST_FIRST})
"""Why trials were cancelled that nobody cancelled: they are tried again when the run goes on."""


@dataclass(frozen=True, slots=True)
class RecordedPlace:
    """A place in a group: how often it was attempted, and what came of it."""

    attempts: int
    """The last attempt's number; the next one is one more. 0: none had been queued."""
    rollout: Rollout | None
    """None: the last attempt did not finish, or is to be tried again."""
    seed: int | None = None
    """Of the last attempt, where a person had asked for draws other than the plan's."""
    tokens: Tokens = field(default_factory=Tokens)
    """What the sampler read and wrote in all attempts."""


@dataclass(frozen=True, slots=True)
class RecordedReview:
    """How far the review of a batch had come."""

    begun: bool = False
    """It was open once, or rules had decided something."""
    opened: bool = False
    """People had been asked."""
    closed: bool = False
    waited_sec: float = 0.0
    """How long it has been open while the run went on; fresh trials begin that anew."""
    decided: frozenset[str] = frozenset()
    """Trials that somebody, or a rule, had decided upon."""
    refilled: frozenset[str] = frozenset()
    """Groups that rules had refilled."""
    to_refill: Mapping[str, str] = field(default_factory=dict)
    """Groups that rules were about to refill, and who that was."""


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """A batch of training groups, or an evaluation, that was begun."""

    groups: tuple[tuple[str, str], ...]
    """(Group id, task name) in the order in which they were started, later additions included."""
    places: Mapping[tuple[str, int], RecordedPlace] = field(default_factory=dict)
    """By (group id, index in the group)."""
    replaced: frozenset[str] = frozenset()
    """Constant groups in whose place another was started."""
    refilled: frozenset[str] = frozenset()
    """Groups that got their fresh trials already."""
    excluded: frozenset[str] = frozenset()
    """Trials that somebody left out of training."""
    relabelled: Mapping[str, float] = field(default_factory=dict)
    """Trials that somebody gave another reward, and which."""
    review: RecordedReview = field(default_factory=RecordedReview)
    scored: tuple[str, ...] = ()
    """Groups whose advantages are in the journal, in the order in which they were trained on."""
    finished: bool = False
    """Its step was trained, with weights that are lost: it is trained again as it was."""
    learning_rate: float | None = None
    """What a finished one was trained with: the schedule may have another end by now."""


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Where a run goes on. The default is the start of a new one."""

    step: int = 0
    """Of the checkpoint that was loaded: batches trained."""
    weights_version: int = 0
    tasks_taken: Mapping[str, int] = field(default_factory=dict)
    """How often the batches up to `step` took each task from the training order."""
    set_aside: Mapping[str, str] = field(default_factory=dict)
    """Task -> why it can't be used."""
    unfit: frozenset[str] = frozenset()
    """Those that the preflight had set aside, before the first trial."""
    batches: Mapping[int, RecordedBatch] = field(default_factory=dict)
    """Later batches that were begun, by step."""
    evaluations: Mapping[int, RecordedBatch] = field(default_factory=dict)
    """Evaluations that were begun and not finished, by step."""
    evaluated: Mapping[int, EvalFinished] = field(default_factory=dict)
    """Those that finished, by step."""
    spent: Spent = field(default_factory=Spent)
    """Up to the last step or evaluation that finished."""
    published: Mapping[int, int] = field(default_factory=dict)
    """Version of the weights -> the last step that published it."""
    trained: int = 0
    """Last step that was ever trained: those after `step` are trained again."""
    paused: bool = False
