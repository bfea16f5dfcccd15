"""Rules about time: what the run waits for, and what it could do meanwhile. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, median

from tbtui.findings import Finding, Remedy, Rule
from tbtui.view.diagnosis.snapshot import (
    JournalledTrial,
    RunSnapshot,
    StepFacts,
    part_of,
    share_of,
)
from tbtui.view.waiting import duration

_WINDOW = 5
"""Steps over which times are averaged."""
_STRAGGLING = 0.3
"""Share of a step's time with at most a quarter of its trials at work: of trials that take equally
long it is nothing, of times spread evenly from 0 on a quarter."""
_LATE = 1.5
"""Times as long after the step's begin as the middle one of its trials: a straggler."""
_WORTHWHILE = 0.1
"""Share of the longest step that a deadline has to save."""
_QUEUED = 0.4
"""Share of trials' time in the queue. Chosen: more than a trial that waits for one other of its
length in two."""
_IDLE = 0.5
_OUT = 0.05
"""Share of the run's time."""
_HELD_SEC = 10.0
"""From here on a paused trial was not only looked at."""


def waits_for_a_person(run: RunSnapshot) -> Iterator[Finding]:
    """What holds the run up until somebody acts; but for trials that are paused."""
    apart = (Rule.RUN_OVER, Rule.RUN_FAILED, Rule.HELD_TRIALS)
    yield from (need for need in run.needs if need.rule not in apart)


def held_trials(run: RunSnapshot) -> Iterator[Finding]:
    """Trials that somebody paused or froze, and whether the run waits for them."""
    rules = {need.rule for need in run.needs}
    holding = Rule.HELD_TRIALS in rules
    held = [each for each in run.paused if holding or (each.held_sec or 0.0) >= _HELD_SEC]
    if not held or Rule.WAITS_PAUSED in rules:
        return
    longest = max(held, key=lambda each: each.held_sec or 0.0)
    state = "frozen" if longest.frozen else "paused"
    more = f" and {len(held) - 1} more" if len(held) > 1 else ""
    yield Finding(
        Rule.HELD_TRIALS,
        f"{longest.label} {state} {duration(longest.held_sec or 0.0)}{more}",
        "blocks" if holding else "watch",
        share=share_of(len(held), run.running),
        limit="the step waits for it" if holding else f"{_HELD_SEC:g} s",
        why="" if holding else "its step can't be trained before it ends",
        trials=tuple(each.trial for each in held),
    )


def stragglers(run: RunSnapshot) -> Iterator[Finding]:
    """Steps that wait for their slowest trials."""
    known = [step for step in run.steps if step.total_sec > 0]
    trend = tuple(share_of(step.waiting_sec, step.total_sec) for step in known)
    if not trend:
        return
    share = fmean(trend[-_WINDOW:])
    if share < _STRAGGLING:
        return
    recent = known[-_WINDOW:]
    cost = fmean([step.waiting_sec for step in recent])
    slowest = _slowest(run.members)
    yield Finding(
        Rule.STRAGGLERS,
        f"{share:.0%} of step time, {cost:.1f} s a step",
        share=share_of(share, 1),
        limit=f"{_STRAGGLING:.0%} of step time",
        advice=_advice_on_stragglers(slowest),
        trend=trend,
        trials=tuple(trial.trial for trial in slowest),
        remedy=_deadline(run),
    )


def _slowest(members: Sequence[JournalledTrial]) -> list[JournalledTrial]:
    """Trials that ended much later than most of their step; the latest one comes last."""
    by_step: dict[int, list[tuple[float, JournalledTrial]]] = {}
    for trial in members:
        if trial.ended_sec is not None:
            by_step.setdefault(trial.step, []).append((trial.ended_sec, trial))
    late = []
    for trials in by_step.values():
        usual = median(seconds for seconds, _ in trials)
        late += [each for each in trials if each[0] > _LATE * usual]
    return [trial for _, trial in sorted(late, key=lambda each: (each[0], each[1].trial))]


def _advice_on_stragglers(slowest: Sequence[JournalledTrial]) -> str:
    if not slowest:
        return Rule.STRAGGLERS.advice
    last = slowest[-1]
    if last.after_sec > (last.ended_sec or 0.0) / 2:
        # No deadline is for what comes after the agent.
        return f"make its verifier faster: {last.after_sec:.1f} s of {last.label}"
    return f"set a deadline; slowest: {last.label}"


def _deadline(run: RunSnapshot) -> Remedy | None:
    """A deadline that the agents of seven trials of eight of the latest steps meet.

    None where it would hardly help: trials are verified after it, however long that takes.
    """
    ends = [(each.ended_sec, each.after_sec) for each in run.members if each.ended_sec is not None]
    if len(ends) < 8 or run.settings.get("step_deadline_sec") is not None:
        return None
    agents = sorted(max(0.0, ended - after) for ended, after in ends)
    at = agents[math.ceil(len(agents) * 7 / 8) - 1]
    # A fifth of grace, in two digits: times differ from step to step.
    seconds = float(f"{at * 1.2:.2g}")
    late = sum(each > seconds for each in agents)
    longest = max(ended for ended, _ in ends)
    then = max(ended if ended - after <= seconds else seconds + after for ended, after in ends)
    saved = share_of(longest - then, longest)
    if seconds <= 0 or not late or saved < _WORTHWHILE:
        return None
    return Remedy(
        "step_deadline_sec",
        seconds,
        f"the longest step waits {then:.1f} s, not {longest:.1f} s ({saved:.0%} less);"
        f" {late} of {len(ends)} trials are stopped and verified",
    )


def queue_wait(run: RunSnapshot) -> Iterator[Finding]:
    """Trials that wait for a place longer than they should."""
    trend = tuple(_queue_share(step) for step in run.steps if _trial_seconds(step) > 0)
    if not trend:
        return
    share = fmean(trend[-_WINDOW:])
    if share < _QUEUED:
        return
    places = max(1, round(run.number("n_parallel_envs", 16)))
    batch = run.number("batch_size", 4) * run.number("group_size", 8)
    waves, then = math.ceil(batch / places), math.ceil(batch / (2 * places))
    fewer = (
        f"{waves} rounds of trials become {then}" if then < waves else "no fewer rounds of trials"
    )
    yield Finding(
        Rule.QUEUE_WAIT,
        f"{share:.0%} of trials' time",
        "watch",
        share=share_of(share, 1),
        limit=f"{_QUEUED:.0%} of trials' time",
        trend=trend,
        remedy=Remedy("n_parallel_envs", 2 * places, f"{fewer}, if the machine keeps up"),
    )


def _trial_seconds(step: StepFacts) -> float:
    return sum(
        value
        for name, value in step.metrics.items()
        if name.startswith("time/trials/") and value > 0
    )


def _queue_share(step: StepFacts) -> float:
    return share_of(step.metric("time/trials/queue"), _trial_seconds(step))


def idle_places(run: RunSnapshot) -> Iterator[Finding]:
    """Places for trials, and their workers, that stand empty while a step is sampled."""
    places = max(1, round(run.number("n_parallel_envs", 16)))
    trend = tuple(
        1 - share_of(_busy(step), places * step.metric("time/sampling"))
        for step in run.steps
        if step.metric("time/sampling") > 0 and _trial_seconds(step) > 0
    )
    if not trend:
        return
    idle = fmean(trend[-_WINDOW:])
    if idle < _IDLE:
        return
    batch = run.number("batch_size", 4) * run.number("group_size", 8)
    ahead = round(run.number("max_steps_off_policy", 0))
    yield Finding(
        Rule.IDLE_WORKERS,
        f"{idle:.0%} of {places} places idle while sampling",
        "watch",
        share=share_of(idle, 1),
        limit=f"{_IDLE:.0%}",
        advice="sample the next batch meanwhile" if batch >= places else "",
        trend=trend,
        remedy=Remedy(
            "max_steps_off_policy",
            ahead + 1,
            f"up to {batch:.0f} more trials fill the {idle * places:.0f} idle places;"
            f" their weights are up to {ahead + 1} step{'s' * (ahead > 0)} old",
        ),
    )


def _busy(step: StepFacts) -> float:
    aside = step.metric("time/trials/queue") + step.metric("time/trials/paused")
    return max(0.0, _trial_seconds(step) - aside)


def policy_outages(run: RunSnapshot) -> Iterator[Finding]:
    """Time in which the policy's server answered no request."""
    if run.server:
        text = f"the policy's server: {run.server}, for {duration(run.server_sec)}"
        yield Finding(Rule.SERVER_OUT, text, "blocks")
    count, seconds = run.outages.get("policy", (0, 0.0))
    share = share_of(seconds, run.seconds)
    if not count or share < _OUT:
        return
    yield Finding(
        Rule.POLICY_OUTAGES,
        f"{count} outages, {duration(seconds)} ({share:.0%} of the run)",
        share=share,
        limit=f"{_OUT:.0%} of the run",
        trend=run.trend("sampling/asked_again"),
    )


def asked_again(run: RunSnapshot) -> Iterator[Finding]:
    """Completions that failed and were asked for again."""
    trend = tuple(step.metric("sampling/asked_again") for step in run.steps)
    turns = tuple(step.metric("env/all/total_turns") for step in run.steps)
    again, calls = sum(trend[-_WINDOW:]), sum(turns[-_WINDOW:])
    share = share_of(again, calls + again)
    if again < 2 or share < _OUT:
        return
    yield Finding(
        Rule.REQUESTS_REPEATED,
        part_of(round(again), round(calls + again), "requests"),
        "watch",
        share=share,
        limit=f"{_OUT:.0%} of the requests",
        trend=trend,
        remedy=Remedy(
            "n_parallel_envs",
            max(1, round(run.number("n_parallel_envs", 16)) // 2),
            "half as many requests at once",
        ),
    )
