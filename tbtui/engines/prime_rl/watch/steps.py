"""The steps of a run of Prime-RL's, put together from its metrics, rollouts and batches."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tbtui.engines.events_of import eval_finished
from tbtui.engines.prime_rl.watch.formats import FinishedTrial
from tbtui.engines.prime_rl.watch.recorder import TraceRecorder
from tbtui.engines.prime_rl.watch.source import EvalSettings
from tbtui.journal.events import (
    EvalFinished,
    EvalStarted,
    GroupAdded,
    GroupScored,
    StepFinished,
    StepStarted,
    TrialScore,
)
from tbtui.journal.reader import JournalReader
from tbtui.vocabulary import all_equal

ORCHESTRATOR_MARK = "progress/rollouts"
"""In the orchestrator's row of a step, which comes when the batch is handed to the trainer."""
TRAINER_MARK = "time/forward_backward"
"""In the trainer's last rows of a step, which come when the weights are new."""

_TRAINER = {
    "loss/mean": "optim/loss",
    "entropy/all/mean": "optim/entropy",
    # Prime-RL's estimate is r - 1 - log r, tbtui's half the squared gap: equal to second order.
    "mismatch_kl/all/mean": "optim/kl_sample_train_v2",
    "is_masked/mean": "optim/clip_fraction",
    "optim/grad_norm": "optim/grad_norm",
    "optim/lr": "optim/lr",
    "perf/throughput": "perf/tokens_per_sec",
    "perf/mfu": "perf/mfu_percent",
    "time/forward_backward": "time/training",
    "time/wait_for_batch": "time/sampling",
    "time/broadcast_weights": "time/weight_update",
}
_ORCHESTRATOR = {
    "progress/rollouts": "env/all/total_episodes",
    "progress/input_tokens": "tokens/prompt",
    "progress/output_tokens": "tokens/sampled",
    "off_policy/mean": "async/staleness_mean",
    "off_policy/max": "async/staleness_max",
    "off_policy/dropped": "async/dropped_as_stale",
    "time/wait_for_policy": "time/waiting_for_trainer",
}
_OF_AGENT = {
    "reward/mean": "env/all/reward/total",
    "is_truncated/mean": "env/all/truncated",
    "num_turns/mean": "env/all/turns_per_episode",
    "num_output_tokens/mean": "env/all/ac_tokens_per_episode",
}
_GROUPS = {
    "solved_all": "env/all/by_group/frac_all_good",
    "solved_none": "env/all/by_group/frac_all_bad",
    "solved_some": "env/all/by_group/frac_mixed",
}


def step_of(row: Mapping[str, Any]) -> int | None:
    """The step of a row of metrics; None: it has none. Evaluations write theirs as a float."""
    step = row.get("step")
    if isinstance(step, float) and step.is_integer():
        return int(step)
    return step if isinstance(step, int) else None


def chosen(row: Mapping[str, Any]) -> dict[str, float]:
    """A row's numbers under the names of tbtui's own trainer."""
    metrics = _renamed(row, _TRAINER | _ORCHESTRATOR)
    if ORCHESTRATOR_MARK in row:
        metrics |= _of_agent(row)
    if isinstance(total := row.get("time/step"), int | float):
        # Both write it: the other times are parts of the trainer's.
        name = "time/total" if TRAINER_MARK in row else "time/between_batches"
        metrics[name] = float(total)
    return metrics


def complete(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics with the times that every step has, also where the trainer wrote none."""
    total = metrics.get("time/total", metrics.get("time/between_batches", 0.0))
    training = metrics.get("time/training", 0.0)
    times = {
        "time/total": total,
        "time/training": training,
        "time/sampling": max(0.0, total - training),
    }
    return times | metrics


def evaluated(row: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The evaluations in a row: environment -> its scores."""
    found: dict[str, dict[str, float]] = {}
    for key, value in row.items():
        if not key.startswith("eval/") or not isinstance(value, int | float):
            continue
        _, env, *rest = key.split("/")
        scores = found.setdefault(env, {})
        if rest and (rest[-1] == "policy_version" or "@" in rest[-1]):
            scores[rest[-1]] = float(value)
    return found


def _renamed(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    return {
        ours: float(value)
        for theirs, ours in names.items()
        if isinstance(value := row.get(theirs), int | float)
    }


def _of_agent(row: Mapping[str, Any]) -> dict[str, float]:
    """Figures of what was trained on: those of the agent named `agent`, else of the first agent."""
    scope, agent = _first_agent(row)
    metrics = _renamed(row, {f"{scope}/{agent}/{key}": ours for key, ours in _OF_AGENT.items()})
    return metrics | _renamed(
        row, {f"train/agg/all/{agent}/{key}": ours for key, ours in _GROUPS.items()}
    )


def _first_agent(row: Mapping[str, Any]) -> tuple[str, str]:
    for scope in ("train/agg/effective", "train/agg/all"):
        start, end = f"{scope}/", "/reward/mean"
        agents = sorted(
            key[len(start) : -len(end)]
            for key in row
            if key.startswith(start) and key.endswith(end) and key.count("/") == 5
        )
        if agents:
            return scope, "agent" if "agent" in agents else agents[0]
    return "train/agg/effective", "agent"


_REMEMBERED = 50_000
"""Finished trials that may still be handed to the trainer."""
_ORCHESTRATOR_LEADS = 2
"""How many steps the orchestrator is ahead of the trainer, at most."""


@dataclass(slots=True)
class _Step:
    metrics: dict[str, float] = field(default_factory=dict)
    shipped: bool = False
    """The orchestrator has written its row."""
    trained: bool = False
    """The trainer has written its row."""
    at: float = 0.0
    """Time of its last row, in seconds since the epoch."""
    rewards: list[float] = field(default_factory=list)
    unscored: int = 0
    groups: dict[str, dict[str, TrialScore]] = field(default_factory=lambda: defaultdict(dict))
    tasks: dict[str, str] = field(default_factory=dict)


class Steps:
    """Journals each step's start, groups and end."""

    def __init__(self, recorder: TraceRecorder) -> None:
        self._recorder = recorder
        self._open: dict[int, _Step] = {}
        self._started: set[int] = set()
        self._finished: set[int] = set()
        self._groups: set[str] = set()
        self._trials: OrderedDict[str, FinishedTrial] = OrderedDict()
        self._evals: dict[int, list[FinishedTrial]] = defaultdict(list)
        self._evaluated: set[tuple[int, str]] = set()
        self._eval_settings = EvalSettings(1, 1.0)

    def restore(self, reader: JournalReader) -> None:
        """Restore what an earlier watcher journalled."""
        kinds = ("step_started", "group_added", "step_finished", "eval_finished")
        for entry in reader.each(kinds):
            match entry.event:
                case StepStarted(step=step):
                    self._started.add(step)
                case GroupAdded(group=group):
                    self._groups.add(group)
                case StepFinished(step=step):
                    self._finished.add(step)
                case EvalFinished(step=step, by_kind=rates):
                    self._evaluated |= {(step, env) for env in rates}
                case _:
                    pass

    @property
    def done(self) -> int:
        """The last step whose weights are new."""
        return max(self._finished, default=0)

    @property
    def collected(self) -> int:
        """The last step whose batch was handed to the trainer."""
        return max((n for n, step in self._open.items() if step.shipped), default=self.done)

    def is_finished(self, step: int) -> bool:
        return step in self._finished

    def rewind(self, step: int) -> None:
        """Forget steps after `step`: Prime-RL resumes from its checkpoint and does them again."""
        for numbers in (self._started, self._finished):
            numbers.intersection_update({n for n in numbers if n <= step})
        for number in [n for n in self._open if n > step]:
            del self._open[number]

    def start(self, step: int, at: float | None) -> None:
        """Journal a step's start; `at`: when its first rollout began."""
        if step not in self._started:
            self._started.add(step)
            self._recorder.record(StepStarted(step=step, groups={}), at)

    def group(self, step: int, group: str, task: str, at: float | None) -> None:
        if group not in self._groups:
            self._groups.add(group)
            event = GroupAdded(step=step, group=group, task=task, replaces="")
            self._recorder.record(event, at)

    def ended(self, name: str, trial: FinishedTrial) -> None:
        if trial.purpose == "eval":
            self._evals[trial.step].append(trial)
            return
        self._trials[name] = trial
        while len(self._trials) > _REMEMBERED:
            self._trials.popitem(last=False)
        if trial.step in self._finished:
            return
        step = self._step(trial.step)
        if trial.reward is None:
            step.unscored += 1
        else:
            step.rewards.append(trial.reward)

    def shipped(self, name: str, step: int, advantage: float | None) -> None:
        """Count a trial to the batch `step`."""
        trial = self._trials.pop(name, None)
        if trial is None or step in self._finished:
            return
        entry = self._step(step)
        entry.tasks[trial.group] = trial.task
        entry.groups[trial.group][name] = TrialScore(
            reward=trial.reward, advantage=advantage, tokens=trial.tokens
        )

    def evaluates(self, settings: EvalSettings) -> None:
        """Set how evaluations are made from here on."""
        self._eval_settings = settings

    def evaluation_begins(self, step: int, trials: int) -> None:
        if step <= max((known for known, _ in self._evaluated), default=0):
            return  # its result has been read already
        settings = self._eval_settings
        self._recorder.record(
            EvalStarted(
                step=step,
                tasks=max(1, trials // settings.group_size),
                trials=trials,
                temperature=settings.temperature,
            )
        )

    def row(self, row: Mapping[str, Any]) -> None:
        """Take in a row of the metrics."""
        number, at = step_of(row), row.get("time")
        if number is None:
            return
        moment = float(at) if isinstance(at, int | float) else 0.0
        for env, scores in evaluated(row).items():
            self._evaluation(number, env, scores, moment)
        if number in self._finished or not (metrics := chosen(row)):
            return
        step = self._step(number)
        step.metrics |= metrics
        step.at = max(step.at, moment)
        step.shipped |= ORCHESTRATOR_MARK in row
        step.trained |= TRAINER_MARK in row

    def settle(self, *, over: bool = False) -> list[int]:
        """Finish the steps of which all is known; `over`: also those that get no more."""
        newest = max((n for n, step in self._open.items() if step.shipped), default=0)
        whole = [n for n, step in self._open.items() if step.shipped and step.trained]
        last = max(whole, default=0)
        ready = sorted(
            number
            for number, step in self._open.items()
            if step.metrics
            and (
                number <= last
                or (step.shipped and newest - number >= _ORCHESTRATOR_LEADS)
                or (over and (step.shipped or step.trained))
            )
        )
        for number in ready:
            self._finish(number, self._open.pop(number))
        return ready

    def _step(self, number: int) -> _Step:
        return self._open.setdefault(number, _Step())

    def _finish(self, number: int, step: _Step) -> None:
        self.start(number, step.at)
        for group, trials in step.groups.items():
            self._recorder.record(_scored(number, group, step.tasks[group], trials), step.at)
        metrics = complete(step.metrics)
        metrics["env/all/unscored_episodes"] = float(step.unscored)
        if step.rewards:
            solved = sum(reward >= 1 for reward in step.rewards)
            metrics["env/all/pass_rate"] = solved / len(step.rewards)
            mean = sum(step.rewards) / len(step.rewards)
            metrics.setdefault("env/all/reward/total", mean)
        self._finished.add(number)
        # The version that a step makes has its number.
        event = StepFinished(step=number, weights_version=number, metrics=metrics)
        self._recorder.record(event, step.at)

    def _evaluation(self, step: int, env: str, scores: Mapping[str, float], at: float) -> None:
        if (step, env) in self._evaluated:
            return
        self._evaluated.add((step, env))
        trials = [trial for trial in self._evals[step] if trial.env in ("", env)]
        self._evals[step] = [trial for trial in self._evals[step] if trial not in trials]
        event = eval_finished(
            [(trial.task, trial.reward) for trial in trials],
            kinds={trial.task: env for trial in trials},
            step=step,
            weights_version=int(scores.get("policy_version", step)),
            temperature=self._eval_settings.temperature,
            metrics={f"eval/{name}": value for name, value in scores.items() if "@" in name},
        )
        self._recorder.record(event, at)


def _scored(step: int, group: str, task: str, trials: dict[str, TrialScore]) -> GroupScored:
    known = [trial.advantage for trial in trials.values() if trial.advantage is not None]
    rewards = [trial.reward for trial in trials.values() if trial.reward is not None]
    return GroupScored(
        step=step,
        group=group,
        task=task,
        disposition="constant" if all_equal([0.0, *known]) else "trained",
        baseline=sum(rewards) / len(rewards) if rewards else None,
        trials=trials,
    )
