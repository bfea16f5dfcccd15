"""What a probe says of the run that might follow: a verdict, the next command, a table. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tbtui.invocation import to_type
from tbtui.journal.events import ArmMeasured, Estimate, ProbeMeasured, ProbeStarted
from tbtui.view.sentences import budget_text
from tbtui.view.state import RunState
from tbtui.view.waiting import duration
from tbtui.vocabulary import BudgetUnit

TEACHES = 0.1
"""Share of groups with a signal from which on a run is worth its trials. Chosen: a model of 135
million parameters learned by 6 steps of 24, of two groups each."""
SOLVED = 0.9
"""Pass rate from which on there is little to learn. Chosen."""
_MOSTLY = 0.5
SLOW_SEC = 1800.0
"""Seconds of sampling in a step, above which 40 steps take most of a day. Chosen."""

VerdictKind = Literal[
    "go",
    "temperature",
    "agent",
    "smaller_steps",
    "longer_trials",
    "longer_answers",
    "context",
    "other_agent",
    "warm_start",
    "easier_tasks",
    "harder_tasks",
    "larger_groups",
    "larger_budget",
    "infrastructure",
]

_EASIEST_TASKS = "starter"
_HARDER_TASKS = "workshop"


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """Whether a run as it was asked for would learn, and what to do if not."""

    kind: VerdictKind
    why: str
    """One line, with its figures."""
    command: Literal["run", "probe", "doctor"] = "run"
    changes: Mapping[str, str] = field(default_factory=dict)
    """Settings in place of those that were given."""

    @property
    def goes(self) -> bool:
        """Whether the run is worth starting as it was asked for."""
        return self.kind == "go"


def judge(
    arms: Sequence[ArmMeasured], settings: Mapping[str, Any], untried: str = ""
) -> ProbeVerdict:
    """Judge the run that the first arm stands for; the others are what might be changed of it.

    Args:
        settings: all in force, by name.
        untried: an easier agent that no arm has.
    """
    plan, *_ = arms
    scored = [arm for arm in arms if arm.scored]
    if not scored:
        return _nothing_scored(arms, settings, untried)
    teaching = [arm for arm in scored if arm.signal is not None and arm.signal.value >= TEACHES]
    if not teaching:
        return _no_signal(scored, settings, untried)
    # What was asked for is kept unless something else is better beyond chance.
    best = max(teaching, key=lambda arm: (arm.agent == plan.agent, _value(arm.signal)))
    if plan in teaching:
        better = [arm for arm in teaching if arm.signal and arm.signal.low > _value(plan.signal)]
        best = max(better, key=lambda arm: _value(arm.signal), default=plan)
    said = f"{_signal_words(best)} with {arm_name(best)}"
    changes = _as_arm(best, settings)
    if best.step_sec is not None and best.step_sec > SLOW_SEC:
        batch = int(settings.get("batch_size") or 1)
        fewer = max(1, math.floor(batch * SLOW_SEC / best.step_sec))
        why = f"{said}, but a step would sample for {duration(best.step_sec)}"
        if fewer < batch:
            changes["batch_size"] = str(fewer)
            why += f": fewer groups in a step ({fewer}, not {batch})"
        return ProbeVerdict("smaller_steps", why, changes=changes)
    if best is plan:
        return ProbeVerdict("go", f"go: {said}", changes=changes)
    instead = f"{said}, {_value(plan.signal):.0%} with {arm_name(plan)}"
    if best.agent == plan.agent:
        return ProbeVerdict("temperature", f"another temperature: {instead}", changes=changes)
    return ProbeVerdict("agent", f"another agent: {instead}", changes=changes)


def _as_arm(arm: ArmMeasured, settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings with which a run is as this arm."""
    changes = {}
    if arm.agent != settings.get("agent", arm.agent):
        changes["agent"] = arm.agent
    if arm.temperature != settings.get("temperature", arm.temperature):
        changes["temperature"] = f"{arm.temperature:g}"
    return changes


def _value(estimate: Estimate | None) -> float:
    return 0.0 if estimate is None else estimate.value


def arm_name(arm: ArmMeasured) -> str:
    """`terminus-2@0.7`, as the setting `probe` has it."""
    return f"{arm.agent}@{arm.temperature:g}"


def _signal_words(arm: ArmMeasured) -> str:
    if arm.signal is None:
        return "no group has two scored trials"
    return f"{arm.signal.value:.0%} of groups of {arm.signal_size} have a signal"


def _nothing_scored(
    arms: Sequence[ArmMeasured], settings: Mapping[str, Any], untried: str
) -> ProbeVerdict:
    """Tell why no trial of any arm has a reward."""
    plan = arms[0]
    if all(arm.trials and arm.overflowed == arm.trials for arm in arms):
        why = f"no answer has room: {plan.reason.partition(': ')[2]}"
        if untried:
            changes = {"probe": f"{untried}@{plan.temperature:g}"}
            return ProbeVerdict("context", f"{why}; {untried} has a short prompt", "probe", changes)
        limit = settings.get("context_limit")
        wider = {"context_limit": str(2 * limit)} if isinstance(limit, int) else {}
        return ProbeVerdict("context", why, "probe", wider)
    hours = (settings.get("budget") or {}).get("hours")
    if hours and not any(arm.trials for arm in arms):
        why = f"a larger budget: no trial came to its end in {duration(3600 * hours)}"
        return ProbeVerdict("larger_budget", why, "probe", {"budget.hours": f"{4 * hours:g}"})
    reason = next((arm.reason for arm in arms if arm.reason), "no trial came to its end")
    if reason.startswith("too_slow"):
        seconds = settings.get("trial_timeout_sec") or 2 * max(arm.trial_sec for arm in arms)
        longer = {"trial_timeout_sec": f"{math.ceil(2 * float(seconds))}"}
        return ProbeVerdict("longer_trials", f"no trial had time enough: {reason}", "probe", longer)
    why = f"nothing could be scored, which says nothing of the model: {reason}"
    return ProbeVerdict("infrastructure", why, "doctor")


def _no_signal(
    arms: Sequence[ArmMeasured], settings: Mapping[str, Any], untried: str
) -> ProbeVerdict:
    """Tell what to change where the trials of every group end alike."""
    best = max(arms, key=lambda arm: (_passing(arm), readable_share(arm)))
    rate = f"pass@1 {_passing(best):.2f} at best ({arm_name(best)})"
    if _passing(best) >= SOLVED:
        why = f"harder tasks: nearly all is solved: {rate}"
        return ProbeVerdict("harder_tasks", why, "probe", {"tasks_dir": _HARDER_TASKS})
    if _passing(best) > 0:
        size = 2 * int(settings.get("group_size") or 8)
        why = f"larger groups, or other tasks: some are solved always and the rest never: {rate}"
        return ProbeVerdict("larger_groups", why, changes={"group_size": str(size)})
    clear = max(arms, key=readable_share)
    share = f"{readable_share(clear):.0%} of {clear.answers} answers"
    # An agent may read what was cut off: where the block that it looks for was whole, for one.
    unread = clear.readable is None or readable_share(clear) < _MOSTLY
    if clear.answers and clear.cut >= _MOSTLY * clear.answers and unread and _readable_whole(clear):
        limit = settings.get("max_tokens")
        longer = {"max_tokens": str(2 * limit)} if isinstance(limit, int) else {}
        why = f"longer answers: {clear.cut} of {clear.answers} are cut off at max_tokens={limit}"
        return ProbeVerdict("longer_answers", why, "probe", longer)
    if untried:
        why = f"nothing is solved, {share} are readable with {arm_name(clear)}: an easier agent"
        changes = {"probe": f"{untried}@{clear.temperature:g}"}
        return ProbeVerdict("other_agent", why, "probe", changes)
    if readable_share(clear) < _MOSTLY:
        why = f"a warm start: no agent can read the model: {share} at best ({arm_name(clear)})"
        return ProbeVerdict("warm_start", why, changes={"demos": "train"})
    why = f"answers are readable ({share}), and nothing is solved"
    if not str(settings.get("tasks_dir") or _EASIEST_TASKS).endswith(_EASIEST_TASKS):
        changes = {"tasks_dir": _EASIEST_TASKS}
        return ProbeVerdict("easier_tasks", f"easier tasks: {why}", "probe", changes)
    changes = {**_as_arm(clear, settings), "demos": "train"}
    return ProbeVerdict("warm_start", f"a warm start: {why}", changes=changes)


def _passing(arm: ArmMeasured) -> float:
    return _value(arm.pass_at.get(1))


def readable_share(arm: ArmMeasured) -> float:
    """Share of the answers that the agent could read; of one that doesn't say, all."""
    if arm.readable is None or not arm.answers:
        return float(bool(arm.answers))
    return arm.readable / arm.answers


def _readable_whole(arm: ArmMeasured) -> bool:
    """Whether most of what was not cut off could be read."""
    whole = arm.answers - arm.cut
    return arm.readable is None or min(arm.readable, whole) >= _MOSTLY * whole


# The next command

_SERVED = ("openai", "vllm")
_ADDRESSES = ("policy", "openai_base_url", "vllm_base_url", "tokenizer", "renderer")
_NEVER_TRAINED = ("max_steps", "n_epochs")


def next_command(verdict: ProbeVerdict, started: ProbeStarted, settings: Mapping[str, Any]) -> str:
    """The command that the verdict leads to, as it can be typed here.

    What a server serves can't be trained there: by its name on the hub it can, here; else the same
    arm is evaluated.
    """
    if verdict.command == "doctor":
        return to_type("doctor")
    typed = dict(each.partition("=")[::2] for each in started.typed)
    command: str = verdict.command
    if command == "run" and settings.get("policy") in _SERVED:
        if "/" in str(settings.get("model_name")):
            typed = {name: value for name, value in typed.items() if name not in _ADDRESSES}
        elif verdict.kind == "warm_start":
            return to_type("guide", "demonstrations")
        else:
            command = "eval"
    if "tasks_dir" in verdict.changes:
        typed = {n: v for n, v in typed.items() if n not in ("tasks", "eval_tasks", "eval_split")}
    typed |= verdict.changes
    for name in _NEVER_TRAINED if command != "run" else ():
        typed.pop(name, None)
    if command == "eval" and "temperature" in typed:
        typed["eval_temperature"] = typed["temperature"]
    words = [f"{name}={value}" for name, value in typed.items()]
    match command:
        case "run":
            return to_type("run", *words)
        case "eval":
            return to_type("eval", *words)
        case _:
            return to_type("probe", *words)


# The table


def head(measured: ProbeMeasured) -> list[str]:
    """The names of the table's columns."""
    k = _most_attempts(measured)
    at_k = [f"pass@{k}"] * (k > 1)
    sizes = {arm.signal_size for arm in measured.arms if arm.signal is not None}
    signal = f"signal/{max(sizes)}" if sizes else "signal"
    return ["arm", "n", "read", "cut", "pass@1", *at_k, signal, "step"]


def rows(measured: ProbeMeasured) -> list[list[str]]:
    """A row for each arm; what is not known is empty."""
    k = _most_attempts(measured)
    return [
        [
            arm_name(arm),
            f"{arm.scored}/{arm.trials}" if arm.scored < arm.trials else f"{arm.trials}",
            _share(arm.readable, arm.answers),
            _share(arm.cut, arm.answers),
            _estimate(arm.pass_at.get(1)),
            *([_estimate(arm.pass_at.get(k))] if k > 1 else ()),
            _estimate(arm.signal),
            "" if arm.step_sec is None else f"~{duration(arm.step_sec)}",
        ]
        for arm in measured.arms
    ]


def _most_attempts(measured: ProbeMeasured) -> int:
    """The largest k that every arm with scored trials has a pass@k for."""
    return min((max(arm.pass_at) for arm in measured.arms if arm.pass_at), default=1)


def _share(part: int | None, whole: int) -> str:
    return "" if part is None or not whole else f"{part / whole:.0%}"


def _estimate(estimate: Estimate | None) -> str:
    """`.17 .02-.69`"""
    if estimate is None:
        return ""
    value, low, high = (
        f"{each:.2f}".removeprefix("0") for each in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} {low}-{high}"


def closing(measured: ProbeMeasured, settings: Mapping[str, Any]) -> list[str]:
    """What is said below the table: speed, memory, what was spent, and how to read the signal."""
    facts = []
    if measured.tokens_per_sec is not None:
        speed = measured.tokens_per_sec
        facts.append(f"{speed:,.0f} tokens/s" if speed >= 10 else f"{speed:.1f} tokens/s")
    if measured.memory_mb is not None:
        facts.append(f"{measured.memory_mb / 1024:.1f} GiB of memory at most")
    facts.append(f"spent: {spent_words(measured.spent)}")
    lines = [" · ".join(facts)]
    size, group = max(arm.signal_size for arm in measured.arms), settings.get("group_size")
    if isinstance(group, int) and 1 < size < group:
        lines.append(
            f"signal/{size}: share of groups of {size} whose rewards differ; of {group} no fewer do"
        )
    if broken := sum(arm.broken for arm in measured.arms):
        trials = f"{broken} {'trial' if broken == 1 else 'trials'}"
        lines.append(f"{trials} without an answer, or broken by infrastructure: in no rate")
    return lines


def spent_words(spent: Mapping[str, float]) -> str:
    """`96 rollouts, time 7m12s, 31,000 tokens`."""
    shown: tuple[BudgetUnit, ...] = ("rollouts", "hours", "tokens", "dollars")
    return ", ".join(amount_words(unit, spent[unit]) for unit in shown if spent.get(unit))


def amount_words(unit: BudgetUnit, amount: float) -> str:
    """An amount of what a probe spends: hours as a time, for it takes minutes."""
    if unit == "hours":
        return f"time {duration(3600 * amount)}"
    return budget_text(unit, amount)


def progress_words(started: ProbeStarted, measured: ProbeMeasured) -> str:
    """How far a probe is, what it has spent and what the arms have come to."""
    found = ", ".join(
        f"{arm_name(arm)} {_passing(arm):.2f}" if arm.pass_at else f"{arm_name(arm)} unscored"
        for arm in measured.arms
    )
    return (
        f"round {measured.rounds} of {started.trials}: pass@1 {found};"
        f" spent: {spent_words(measured.spent)}"
    )


# While it runs


def arms_done(state: RunState, place: int) -> int:
    """Trials of the arm in this place, from 1, that have ended, by their groups' names."""
    return sum(
        not trial.live and trial.successor is None and trial.group.startswith(f"p{place}-")
        for trial in state.trials.values()
        if trial.purpose == "probe"
    )


def budget_left(state: RunState, now: float) -> str:
    """`time 3m00s of 15m00s`: what is spent of the budget, time by now and the rest in the rounds
    that are over; empty where there is no budget."""
    started, measured = state.probe, state.probed
    if started is None or not started.budget:
        return ""
    spent = dict(measured.spent) if measured is not None else {}
    units = [unit for unit in get_args(BudgetUnit) if unit in started.budget]
    if state.status is None:
        spent["hours"] = state.seconds(now) / 3600
    return ", ".join(
        f"{amount_words(unit, spent.get(unit, 0.0))} of"
        f" {amount_words(unit, started.budget[unit]).removeprefix('time ')}"
        for unit in units
    )
