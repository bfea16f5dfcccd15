"""The review between a batch's trials and its training, by people or rules.

Once all trials of a batch are over, suspects are looked for, rules decide, and what they leave
undecided waits for a person. Every decision is a command that is journalled and carried out like a
person's, so that an interrupted run finds all of them in its journal. Accepting the step
trains exactly what the last event of the review says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Literal, Protocol

from tbtui.algorithm.segments import Segment, merge
from tbtui.algorithm.step import score_groups
from tbtui.algorithm.suspects import ExaminedTrial, suspects
from tbtui.config import ConfigError
from tbtui.engines.command_queue import CommandQueue
from tbtui.engines.grpo.context import EngineContext
from tbtui.engines.grpo.group import BatchGroup, Decisions
from tbtui.engines.grpo.learning import trial_scores
from tbtui.engines.grpo.pausing import unpaused
from tbtui.engines.grpo.phases import RunPhases
from tbtui.engines.grpo.recorded import RecordedBatch
from tbtui.engines.grpo.review_rules import ReviewRules, RuleDecision, RuleFacts, load_rules
from tbtui.engines.grpo.rollouts import Rollout
from tbtui.engines.trials.steering import Steering
from tbtui.journal.commands import TIMEOUT, Command
from tbtui.journal.events import (
    CommandVerb,
    GroupUnderReview,
    Noted,
    Outcome,
    ReviewChanged,
    ReviewClosed,
    ReviewOpened,
    Suspicion,
)


class UnderReview(Protocol):
    """A batch, as its review sees it."""

    decisions: Decisions
    groups: list[BatchGroup]

    @property
    def running(self) -> bool: ...

    def ask(self, command: Command) -> None: ...

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...

    def go_on(self) -> None: ...


class ReviewGate:
    """What the reviews of all batches have in common."""

    def __init__(
        self,
        run: EngineContext,
        phases: RunPhases,
        steering: Steering,
        queue: CommandQueue,
    ) -> None:
        self.run = run
        self.phases = phases
        self._steering = steering
        self._queue = queue
        self._rules: ReviewRules | None = None

    def goes_on(self) -> bool:
        """Whether the run is not paused, and no decision waits to be carried out.

        One made in time counts, even if it came before there was an engine.
        """
        return self._steering.open and self._queue.up_to_date

    def review(self, step: int, recorded: RecordedBatch | None) -> Review | None:
        """The review of a step's batch; None: its groups are trained on as they come."""
        return None if self.run.config.stream else Review(self, step, recorded or RecordedBatch())

    def rules(self) -> ReviewRules | None:
        """The rules as the file has them now; if it can't be read those before stay in force."""
        path = self.run.config.review_rules
        if path is None and self.run.directory.review_rules.exists():
            path = self.run.directory.review_rules
        if path is None:
            return None
        try:
            self._rules = load_rules(path)
        except ConfigError as error:
            before = "those before stay in force" if self._rules else "no rule is in force"
            self.run.journal.append(Noted(level="warning", text=f"{error}; {before}"))
        return self._rules


class Review:
    """The review of one batch, repeated each time that fresh trials are over."""

    def __init__(self, gate: ReviewGate, step: int, recorded: RecordedBatch) -> None:
        self._gate = gate
        self._step = step
        self.progress = recorded.review
        """Goes on from what an interrupted run had of it: time waited then isn't given again."""
        self.waits = False
        """For a person to accept the step."""
        self.passed = self.progress.closed
        """The step may be trained."""
        self._was_scored = bool(recorded.scored) or recorded.finished
        """It had been handed over, reviewed or not, when the run was interrupted."""
        self._wanting: frozenset[str] = frozenset()
        """Trials that it opened for, decided upon since or not."""
        self._suspicions: dict[str, tuple[Suspicion, ...]] = {}
        self._segments: dict[str, list[Segment]] = {}
        self._journalled: tuple[object, object] | None = None
        self._timer: asyncio.Task[None] | None = None

    def look(self, batch: UnderReview) -> None:
        """Apply the rules once all trials are over; open, or close where no person is needed.

        Rules may have started fresh trials then; it is looked at again when they are over.
        """
        if self.waits or self.passed:
            return
        config = self._gate.run.config
        if self._was_scored or (config.review == "off" and not self.progress.begun):
            self.passed = True
            return
        if config.review == "off":  # it has been switched off meanwhile
            self._close("accepted", "settings", "review=off")
            return
        self._suspicions = suspicions(batch.groups)
        held = self._apply_rules(batch)
        if batch.running:
            return
        members = [rollout.trial for group in batch.groups for rollout in group.members()]
        always = config.review == "always"
        self._wanting = frozenset(
            trial for trial in members if always or trial in held or trial in self._suspicions
        )
        if self.progress.opened or self._undecided(batch):
            self._open(batch)
        elif self.progress.begun:
            self._close("rules", "rules")
        else:
            self.passed = True

    def changed(self, batch: UnderReview) -> None:
        """Update the review after a decision on a trial, or a request for fresh trials."""
        if self.progress.closed:
            return
        if batch.running:
            self.passed = False  # they are looked at too
        if not self.progress.opened:
            return
        if self.waits and batch.running:
            self._stop_waiting()
            self._gate.phases.review_interrupted(self._step)
        groups, undecided = self._groups(batch), self._undecided(batch)
        if (groups, undecided) != self._journalled:
            self._journalled = groups, undecided
            self._gate.run.journal.append(
                ReviewChanged(step=self._step, groups=groups, undecided=undecided)
            )

    def accept(self, batch: UnderReview, command: Command) -> None:
        """Close the review: the step is trained as it is."""
        self._close("accepted", command.actor, command.reason)
        batch.decisions.answer(command, True, f"step {self._step} is accepted")
        batch.go_on()

    # Rules

    def _apply_rules(self, batch: UnderReview) -> set[str]:
        """Carry out what rules decide; returns the trials that a rule says to hold."""
        held: set[str] = set()
        rules = self._gate.rules()
        for group in batch.groups:
            refills = self.progress.to_refill.pop(group.name, None)
            for rollout in group.members():
                if rules is None or rollout.trial in batch.decisions.decided:
                    continue
                decision = rules.decide(self._facts(rollout))
                if decision is None:
                    continue
                if decision.verb == "hold":
                    held.add(rollout.trial)
                    continue
                self.progress.begun = True
                batch.ask(_command(decision, rollout.trial))
                if decision.verb == "refill":
                    refills = refills or decision.actor
            if refills is not None and group.name not in self.progress.refilled:
                self.progress.begun = True
                self.progress.refilled.add(group.name)
                batch.ask(Command("refill", group.name, refills))
        return held

    def _facts(self, rollout: Rollout) -> RuleFacts:
        return RuleFacts(
            task=rollout.plan.task.name,
            kind=rollout.plan.task.kind,
            outcome=rollout.outcome,
            reward=rollout.reward,
            turns=rollout.turns,
            suspects=frozenset(each.suspect for each in self._suspicions.get(rollout.trial, ())),
        )

    # Waiting

    def _open(self, batch: UnderReview) -> None:
        self.progress.begun = self.progress.opened = self.waits = True
        timeout = self._gate.run.config.review_timeout_sec
        if timeout is not None:
            timeout = max(0.0, timeout - self.progress.waited_sec)
        self._journalled = groups, undecided = self._groups(batch), self._undecided(batch)
        self._gate.run.journal.append(
            ReviewOpened(step=self._step, groups=groups, undecided=undecided, timeout_sec=timeout)
        )
        self._gate.phases.review_waits(self._step)
        if timeout is not None:
            self._timer = batch.start(self._time_out(batch, timeout))

    async def _time_out(self, batch: UnderReview, seconds: float) -> None:
        await unpaused(seconds, self._gate.goes_on)
        self._timer = None
        if self._gate.run.config.at_review_timeout == "exclude":
            for trial in self._undecided(batch):
                if trial in self._suspicions:
                    why = "; ".join(each.why for each in self._suspicions[trial])
                    batch.ask(Command("exclude", trial, TIMEOUT, why))
        self._close("timeout", TIMEOUT)
        batch.go_on()

    def _close(
        self, how: Literal["accepted", "rules", "timeout"], actor: str, reason: str = ""
    ) -> None:
        self._stop_waiting()
        self._gate.phases.review_closed(self._step)
        self.progress.closed = self.passed = True
        self._gate.run.journal.append(
            ReviewClosed(step=self._step, how=how, actor=actor, reason=reason)
        )

    def _stop_waiting(self) -> None:
        self.waits = False
        self.progress.waited_sec = 0.0  # what it opens for next is new
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # What would be trained

    def _undecided(self, batch: UnderReview) -> tuple[str, ...]:
        members = [rollout.trial for group in batch.groups for rollout in group.members()]
        decided = batch.decisions.decided
        return tuple(each for each in members if each in self._wanting and each not in decided)

    def _groups(self, batch: UnderReview) -> tuple[GroupUnderReview, ...]:
        rollouts = [
            [batch.decisions.in_force(rollout) for rollout in group.members()]
            for group in batch.groups
        ]
        return tuple(
            GroupUnderReview(
                group=group.name,
                task=group.plan.task.name,
                disposition=scored.result.disposition,
                baseline=scored.result.baseline,
                trials=trial_scores(scored),
                suspects={
                    each.trial: self._suspicions[each.trial]
                    for each in scored.rollouts
                    if each.trial in self._suspicions
                },
            )
            for group, scored in zip(
                batch.groups,
                score_groups(rollouts, self._gate.run.recipe, self._merged),
                strict=True,
            )
        )

    def _merged(self, rollout: Rollout) -> list[Segment]:
        """The rollout's segments, merged once for all looks: that takes long where trials are."""
        if rollout.trial not in self._segments:
            recipe = self._gate.run.recipe
            merged = merge(
                rollout.calls,
                recipe.train_summaries,
                recipe.train_abandoned,
                recipe.train_side_calls,
            )
            self._segments[rollout.trial] = merged
        return self._segments[rollout.trial]


def _command(decision: RuleDecision, trial: str) -> Command:
    """The command that a rule's decision makes; the refill itself is its whole group's."""
    verb: CommandVerb
    match decision.verb:
        case "relabel":
            verb, arguments = "relabel", {"reward": decision.reward}
        case "refill":
            verb, arguments = "exclude", {"refill": True}
        case "exclude" | "accept":
            verb, arguments = decision.verb, {}
    return Command(verb, trial, decision.actor, decision.reason, arguments)


def suspicions(groups: Sequence[BatchGroup]) -> dict[str, tuple[Suspicion, ...]]:
    """Trial -> its suspicions, by its verdict; later decisions are not considered."""
    return {
        trial: tuple(Suspicion(suspect=each.rule, why=each.text) for each in found)
        for group in groups
        for trial, found in suspects([examined(rollout) for rollout in group.members()]).items()
    }


def examined(rollout: Rollout) -> ExaminedTrial:
    return ExaminedTrial(
        trial=rollout.trial,
        outcome_is_infrastructure=rollout.outcome.infrastructure,
        human_touched=rollout.outcome is Outcome.HUMAN_TOUCHED,
        reward=rollout.reward,
        verdict=rollout.verdict,
        turns=rollout.turns,
        began_at=rollout.ended_at - rollout.seconds,
        ended_at=rollout.ended_at,
        verifying_sec=rollout.verifying_sec,
        commands=rollout.commands,
        verifier_output=rollout.verifier_output,
        completions=tuple(call.completion_ids for call in rollout.calls),
    )
