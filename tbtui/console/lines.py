"""A run in lines for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tbtui.console.texts import (
    GpuLines,
    ReviewLines,
    ServerLines,
    continued_lines,
    end_line,
    eval_line,
    evaluated_weights,
    given,
    line,
    run_lines,
)
from tbtui.invocation import to_type
from tbtui.journal.commands import is_rule
from tbtui.journal.events import (
    AlarmRaised,
    AlertSent,
    BestCheckpoint,
    BudgetReached,
    CheckpointRemoved,
    CheckpointSaved,
    CommandDone,
    CommandIssued,
    DeadlinePassed,
    DemonstrationKept,
    DemonstrationsTrained,
    Entry,
    EvalFinished,
    GroupAdded,
    GroupRefilled,
    GroupScored,
    Noted,
    OutageBegan,
    OutageEnded,
    Outcome,
    PolicyLost,
    ProbeMeasured,
    ProbeStarted,
    RunContinued,
    RunFinished,
    RunPaused,
    RunPhase,
    RunPhaseChanged,
    RunResumed,
    RunStarted,
    SettingsChanged,
    StepFinished,
    StepStarted,
    TasksSetAside,
    TasksWeighted,
    TrialExcluded,
    TrialFinished,
    TrialGivenBack,
    TrialPaused,
    TrialPhase,
    TrialPhaseChanged,
    TrialQueued,
    TrialRelabelled,
    TrialResumed,
    TrialRetried,
    TrialTakenOver,
    TrialTraced,
    TurnsValued,
    WorkerLost,
    WorkerRecycled,
)
from tbtui.journal.figures import Downtime, planned_steps
from tbtui.view.ending import Ending
from tbtui.view.fold import Fold
from tbtui.view.forecast import amount, forecast
from tbtui.view.probe import progress_words
from tbtui.view.sentences import (
    alarm_words,
    budget_words,
    dollars,
    reward_text,
    weight_words,
)
from tbtui.view.times import in_words, measured_wait
from tbtui.view.waiting import duration


@dataclass(slots=True)
class _Step:
    """A step under way."""

    tasks: dict[str, str] = field(default_factory=dict)
    """Group -> task."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    groups: dict[str, str] = field(default_factory=dict)
    """Group -> what became of it; one that is scored again after a resume is still one."""
    masked: set[str] = field(default_factory=set)
    """Training trials whose outcome keeps them out of training."""
    excluded: set[str] = field(default_factory=set)
    relabelled: set[str] = field(default_factory=set)


_AS_NOTED = (
    AlertSent | GroupScored | Noted | OutageBegan | OutageEnded | TrialFinished | TurnsValued
)
"""Events of which a line says what the screen notes."""
_EACH_BUILDS = "; every trial builds its sandbox anew"


class HumanLines:
    """Folds events into lines for a person; one line a step, and whatever goes wrong."""

    def __init__(self, name: str = "") -> None:
        """`name`: what finds the run in a command, to say in the end what one may do with it."""
        self._name = name
        self._started: float | None = None
        self._downtime = Downtime()
        self._open: dict[int, _Step] = {}
        self._step_of: dict[str, int] = {}
        """Training trial of a step under way -> its step."""
        self._builds: set[tuple[str, str]] = set()
        """Task and step of each slow build that has a line."""
        self._outcomes: dict[str, Outcome] = {}
        """Training trial that is over -> how it ended."""
        self._live: dict[str, str] = {}
        """Trial that has begun and has not ended -> its task."""
        self._train_tasks = 0
        self._settings: dict[str, Any] = {}
        self._run_paused = False
        self._unusable: set[str] = set()
        self._steps = 0
        self._rollouts = 0
        self._evaluating: set[str] = set()
        """Trials of evaluations under way."""
        self._evaluations = 0
        """Trials of evaluations that are over."""
        self._ending = Ending()
        self._fold = Fold()
        self._usd: float | None = None
        """The run's cost so far, evaluations included, where prices are known."""
        self._policy = "policy"
        self._server = ServerLines()
        self._gpus = GpuLines()
        self._asked = AskedLines()
        self._reviews = ReviewLines()
        self._probe: ProbeStarted | None = None

    def lines(self, entry: Entry) -> Iterator[str]:
        """The lines that this event adds, without line ends."""
        event = entry.event
        self._ending.see(entry)
        made = self._fold.state.notes_made
        self._fold.apply(entry)
        self._downtime.see(entry)
        for text in self._server.lines(entry):
            yield line(self._policy, text)
        for text in self._gpus.lines(entry):
            yield line("gpus", text)
        for head, text in self._asked.lines(entry):
            yield line(head, text)
        for text in self._reviews.lines(entry):
            yield line("review", text)
        if isinstance(event, _AS_NOTED):
            yield from self._noted_since(made)
        match event:
            case RunPhaseChanged(phase=RunPhase.STARTING):
                self._started = self._started or entry.time
                yield line("start", event.detail)
            case RunStarted():
                self._policy, self._settings = event.policy, event.settings
                self._train_tasks = sum(task.split == "train" for task in event.tasks)
                self._steps = planned_steps(event.settings, self._train_tasks)
                yield from run_lines(event)
            case RunContinued():
                self._settings = event.settings
                self._steps = planned_steps(event.settings, self._train_tasks)
                yield from continued_lines(event)
            case StepStarted():
                self._step(event.step).tasks.update(event.groups)
            case GroupAdded():
                tasks = self._step(event.step).tasks
                tasks[event.group] = event.task
                if event.replaces:
                    replaced = tasks.get(event.replaces, event.replaces)
                    why = "can't be used" if replaced in self._unusable else "has nothing to teach"
                    yield line("group", f"{event.task} is added for {replaced}, which {why}")
            case TrialPhaseChanged(phase=TrialPhase.SETUP):
                _, building, under_way = event.detail.partition("sandbox: ")
                task = self._live.get(event.trial, event.trial)
                if building and (task, under_way) not in self._builds:
                    again = "" if any(task == each for each, _ in self._builds) else _EACH_BUILDS
                    self._builds.add((task, under_way))
                    yield line("build", f"{task}: {under_way}{again}")
            case TrialQueued():
                self._live[event.trial] = event.task
                if event.purpose == "train":
                    self._step_of[event.trial] = event.step
                else:
                    self._evaluating.add(event.trial)
            case TrialFinished():
                self._live.pop(event.trial, None)
                if (number := self._step_of.get(event.trial)) is not None:
                    step = self._step(number)
                    step.outcomes[event.outcome] += 1
                    self._outcomes[event.trial] = event.outcome
                    self._rollouts += event.outcome is not Outcome.CANCELLED
                    if event.reward is None and _is_the_policys_doing(event.outcome):
                        step.masked.add(event.trial)
                elif event.trial in self._evaluating:
                    self._evaluating.discard(event.trial)
                    self._evaluations += event.outcome is not Outcome.CANCELLED
                # What people ended themselves has a line for what they asked.
                if event.reward is None and event.outcome is not Outcome.CANCELLED:
                    masked = ", masked" if _is_the_policys_doing(event.outcome) else ""
                    yield line("trial", f"{event.trial} {event.outcome}{masked}: {event.reason}")
            case TrialTraced():
                self._moved(event.trial, event.step)
            case TrialRetried():
                if (number := self._step_of.get(event.trial)) is not None:
                    self._step(number).masked.discard(event.trial)
                wait = f" in {event.wait_sec:.0f} s" if event.wait_sec >= 0.5 else ""
                yield line(
                    "trial",
                    f"{event.trial} is attempted again{wait} as {event.successor} ({event.reason})",
                )
            case TrialPaused():
                # While the whole run is paused, each of its trials says nothing new.
                if event.frozen:
                    yield line("trial", f"{event.trial} is frozen, its processes stopped")
                elif not self._run_paused:
                    yield line("trial", f"{event.trial} is paused at the end of its turn")
            case TrialResumed():
                if not self._run_paused:
                    yield line("trial", f"{event.trial} goes on")
            case TrialTakenOver():
                yield line("trial", f"{event.trial} is taken over: {event.actor} types in it")
            case DemonstrationKept():
                yield line(
                    "trial",
                    f"{event.trial}: what {event.actor} typed is kept as a demonstration, to be"
                    f" reviewed: {to_type('demos', 'accept', self._name, event.demonstration)}",
                )
            case DemonstrationsTrained():
                count = len(event.demonstrations)
                what = "demonstration" if count == 1 else "demonstrations"
                nats = "" if event.loss is None else f", {event.loss:.2f} nats a token before"
                yield line("step", f"{count} {what} trained on{nats}")
            case TrialGivenBack():
                yield line("trial", f"{event.trial} is given back by {event.actor}")
            case TrialExcluded():
                self._left_out(event)
            case TrialRelabelled():
                self._count_relabelled(event)
            case GroupRefilled():
                task = self._step(event.step).tasks.get(event.group, event.group)
                yield line("group", f"{task} is refilled with {', '.join(event.trials)}")
            case TasksSetAside():
                self._unusable |= event.tasks.keys()
                if event.by == "trial":
                    for task, reason in event.tasks.items():
                        yield line("task", f"{task} is not tried again: {reason}")
            case TasksWeighted():
                which = ", ".join(event.tasks)
                words = weight_words(event.factor, event.pinned)
                yield line("task", f"{which}: {words}, by {event.actor}")
            case BudgetReached():
                yield line("budget", budget_words(event))
            case DeadlinePassed():
                done = "stopped and verified" if event.action == "stop" else "masked"
                yield line(
                    "step", f"{event.step} has had its time; {done}: {', '.join(event.trials)}"
                )
            case RunPaused():
                self._run_paused = True
                yield line("run", "paused: no trial starts, running ones end their turn first")
            case RunResumed():
                self._run_paused = False
                yield line("run", "resumed")
            case GroupScored():
                self._step(event.step).groups[event.group] = event.disposition
            case StepFinished():
                self._usd = event.metrics.get("cost/total_usd", self._usd)
                yield self._step_line(event)
                yield from self._noted_since(made)
                self._open.pop(event.step, None)
                over = [trial for trial, step in self._step_of.items() if step <= event.step]
                for trial in over:
                    del self._step_of[trial]
                    self._outcomes.pop(trial, None)
            case ProbeStarted():
                self._probe = event
            case ProbeMeasured() if self._probe is not None:
                yield line("probe", progress_words(self._probe, event))
            case EvalFinished():
                self._usd = event.metrics.get("cost/total_usd", self._usd)
                yield eval_line(event, evaluated_weights(self._settings))
            case CheckpointSaved():
                yield line("saved", event.path)
            case CheckpointRemoved():
                yield line("removed", event.path)
            case BestCheckpoint():
                yield line("best", f"{event.path}: held-out pass rate {event.pass_rate:.2f}")
            case AlarmRaised():
                yield line("alarm", alarm_words(event))
            case PolicyLost():
                again = f"; a new one in {event.wait_sec:.0f} s" if event.wait_sec >= 0.5 else ""
                yield line(self._policy, f"lost at step {event.step}: {event.reason}{again}")
            case WorkerLost():
                lost = f"; its {len(event.trials)} trials are lost" if event.trials else ""
                yield line("worker", f"{event.worker} lost: {event.reason}{lost}")
            case WorkerRecycled():
                yield line("worker", f"{event.worker} is replaced: {event.reason}")
            case SettingsChanged():
                self._settings = {**self._settings, **event.settings}
                self._steps = planned_steps(self._settings, self._train_tasks)
            case RunFinished() if self._name and not self._ending.begun:
                # Why it never began has a line for what was asked.
                pass
            case RunFinished():
                elapsed = duration(
                    entry.time - (self._started or entry.time) - self._downtime.seconds
                )
                spent = "" if self._usd is None else f", {dollars(self._usd)}"
                yield line("end", f"{self._trials()} in {elapsed}{spent}")
                if self._name:
                    for head, text in (
                        *self._ending.lines(),
                        *self._ending.next_lines(self._name),
                    ):
                        yield line(head, text)
                yield end_line(event.status, event.reason)
            case _:
                pass

    def _noted_since(self, made: int) -> Iterator[str]:
        """What the screen notes, after its first `made` notes."""
        notes = self._fold.state.notes
        for note in list(notes)[len(notes) - (self._fold.state.notes_made - made) :]:
            yield line(note.level, note.text)

    def _trials(self) -> str:
        """`960 rollouts, 240 held-out trials`."""
        others = "held-out trial" if self._probe is None else "trial"
        counts = [(self._rollouts, "rollout"), (self._evaluations, others)]
        parts = [f"{count:,} {what}{'s' * (count != 1)}" for count, what in counts if count]
        return ", ".join(parts) or "no trials"

    def _moved(self, trial: str, number: int) -> None:
        """A trial turns out to belong to another step than it was counted to."""
        before = self._step_of.get(trial, number)
        if before != number:
            self._step_of[trial] = number
            if (outcome := self._outcomes.get(trial)) is not None:
                self._step(before).outcomes[outcome] -= 1
                self._step(number).outcomes[outcome] += 1

    def _step(self, number: int) -> _Step:
        """The step of this number; several may be under way at once."""
        return self._open.setdefault(number, _Step())

    def _step_line(self, event: StepFinished) -> str:
        metrics, step = event.metrics, self._step(event.step)
        wait = measured_wait(event.step, metrics)
        waited = f"; waited for {in_words(wait)}" if wait is not None else ""
        reward = metrics.get("env/all/reward/total")
        parts = [
            f"{event.step}/{self._steps}",
            "no reward" if reward is None else f"reward {reward:.2f}",
            " ".join(f"{o} {count}" for o, count in sorted(step.outcomes.items()) if count),
        ]
        groups = Counter(step.groups.values())
        if constant := groups["constant"]:
            parts.append(f"{constant} of {groups.total()} groups constant")
        if short := groups["short"]:
            parts.append(f"{short} groups too short")
        if step.masked:
            parts.append(f"{len(step.masked)} masked")
        if step.excluded:
            parts.append(f"{len(step.excluded)} excluded")
        if step.relabelled:
            parts.append(f"{len(step.relabelled)} relabelled")
        if (surprise := metrics.get("optim/neg_logprob")) is not None:
            parts.append(f"-log p {surprise:.2f}")
        if stale := metrics.get("async/staleness_max"):
            parts.append(f"up to {stale:.0f} step{'s' * (stale != 1)} stale")
        state = self._fold.state
        if (usd := metrics.get("cost/step_usd")) is not None:
            cost = forecast("dollars", state, state.time)
            total = cost.total if cost is not None else None
            by_end = "" if total is None else f", ~{amount('dollars', total.value)} by the end"
            parts.append(f"{dollars(usd)} (so far {dollars(metrics['cost/total_usd'])}{by_end})")
        spent = f"trials {metrics['time/sampling']:.1f}, training {metrics['time/training']:.1f}"
        parts.append(f"{metrics['time/total']:.1f}s ({spent}{waited})")
        if (hours := forecast("hours", state, state.time)) is not None and hours.left:
            parts.append(f"{hours.left} left")
        return line("step", " · ".join(part for part in parts if part))

    def _count_relabelled(self, event: TrialRelabelled) -> None:
        if (number := self._step_of.get(event.trial)) is not None:
            change = set.discard if event.taken_back else set.add
            change(self._step(number).relabelled, event.trial)

    def _left_out(self, event: TrialExcluded) -> None:
        if (number := self._step_of.get(event.trial)) is not None:
            change = set.add if event.excluded else set.discard
            change(self._step(number).excluded, event.trial)


def _is_the_policys_doing(outcome: Outcome) -> bool:
    return not outcome.infrastructure and outcome is not Outcome.CANCELLED


_WITH_ARGUMENTS = frozenset({"set", "relabel", "accept"})


class AskedLines:
    """Lines on what people, scripts and rules ask for, and what came of it. Fold every event in."""

    def __init__(self) -> None:
        self._asked: dict[str, str] = {}
        """Command that is not done -> what it asks."""
        self._ruled: dict[str, str] = {}
        """Command of a review's rule that is not done -> its target."""

    def lines(self, entry: Entry) -> Iterator[tuple[str, str]]:
        """Head and text of each line. A rule's decision is one line, unless it is refused."""
        event = entry.event
        match event:
            case CommandIssued():
                self._asked[event.command] = f"{event.verb} {event.target}"
                if is_rule(event.actor):
                    self._ruled[event.command] = event.target
                arguments = event.arguments if event.verb in _WITH_ARGUMENTS else {}
                what = f" {given(arguments)}" if arguments else ""
                why = f" ({event.reason})" if event.reason else ""
                yield "asked", f"{event.actor}: {event.verb} {event.target}{what}{why}"
            case CommandDone():
                what = self._asked.pop(event.command, "")
                if not (self._ruled.pop(event.command, "") and event.ok):
                    yield "done" if event.ok else "refused", event.result or what
            case TrialExcluded() | TrialRelabelled() if event.trial in self._ruled.values():
                pass
            case TrialExcluded():
                left_out = "is left out of" if event.excluded else "counts for"
                again = "" if event.excluded else " again"
                why = f": {event.reason}" if event.reason else ""
                yield "trial", f"{event.trial} {left_out} training{again}{why}"
            case TrialRelabelled():
                yield "trial", _relabelled(event)
            case _:
                pass


def _relabelled(event: TrialRelabelled) -> str:
    reward = reward_text(event.reward)
    if event.taken_back:
        return f"{event.trial} has the verifier's reward again: {reward}"
    return f"{event.trial} has reward {reward}, not {reward_text(event.before)}: {event.reason}"
