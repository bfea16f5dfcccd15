"""Rules about how trials end: at a limit, unreadable, or by a failure of infrastructure. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tbtui.findings import Finding, Remedy, Rule, Unusable
from tbtui.invocation import to_type
from tbtui.outcomes import Outcome, advice
from tbtui.terminal import both_ends
from tbtui.view.diagnosis.snapshot import JournalledTrial, RunSnapshot, part_of, share_of

FEWEST = 2
"""Trials with an outcome below which it is chance."""
_OFTEN = 0.05
"""Share of the trials from which on an outcome of the policy's own is a finding."""
_LATE = 0.10
_LOST = 0.02
"""The same for what infrastructure breaks: a healthy environment loses none."""
_TURNS = 0.05
"""Unreadable answers for each trial."""
_MOST_REASON = 120
"""Characters of a reason, which may quote paths and output."""
_EPISODES = "env/all/total_episodes"


_LIMITS: dict[Outcome, float] = {
    Outcome.CONTEXT_OVERFLOW: _OFTEN,
    Outcome.OUTPUT_TRUNCATED: _OFTEN,
    Outcome.PARSE_ERROR: _OFTEN,
    Outcome.AGENT_TIMEOUT: _LATE,
    Outcome.VERIFIER_ERROR: _LOST,
    Outcome.SANDBOX_LOST: _LOST,
    Outcome.SETUP_ERROR: _LOST,
    Outcome.PROVIDER_ERROR: _LOST,
    Outcome.REFUSED: _LOST,
    Outcome.TOO_SLOW: _LOST,
    Outcome.AGENT_ERROR: _LOST,
}
"""Outcome that should be rare -> the share of trials from which on it is a finding."""


def rare_outcomes(run: RunSnapshot) -> Iterator[Finding]:
    """One finding for each outcome that is not as rare as it should be."""
    counts = Counter(trial.outcome for trial in run.trials)
    for outcome, limit in _LIMITS.items():
        count, share = counts[outcome], share_of(counts[outcome], len(run.trials))
        if count < FEWEST or share < limit:
            continue
        behind = [trial for trial in run.trials if trial.outcome is outcome]
        yield Finding(
            Rule(outcome.value),
            part_of(count, len(run.trials), "trials"),
            share=share,
            limit=f"{limit:.0%} of the latest trials",
            advice=_advice(run, outcome, behind),
            trend=_trend(run, outcome),
            trials=tuple(trial.trial for trial in behind),
            remedy=_remedy(run, outcome, behind),
        )


def _trend(run: RunSnapshot, outcome: Outcome) -> tuple[float, ...]:
    """The outcome's share of each step's trials; for an infrastructure failure the share of lost
    attempts, because a retried attempt is in no step's metrics."""
    if outcome.infrastructure:
        return tuple(share_of(step.lost, step.ended) for step in run.steps if step.ended)
    return run.trend(f"env/all/outcome/{outcome}", of=_EPISODES)


def _advice(run: RunSnapshot, outcome: Outcome, behind: list[JournalledTrial]) -> str:
    """What to do; of verifier errors, with the task that has most of them."""
    if outcome is not Outcome.VERIFIER_ERROR:
        return advice(outcome)
    ((task, count),) = Counter(trial.task for trial in behind).most_common(1)
    which = f"all of {task}" if count == len(behind) else f"most of {task}"
    return f"{which}: {_to_try(run, task)}"


def _to_try(run: RunSnapshot, task: str) -> str:
    """The command that runs a task's own solution."""
    # Another data set may have a task of the same name.
    return to_type("tasks", "try", task, f"tasks_dir={run.tasks_dir}", "--oracle")


def _remedy(run: RunSnapshot, outcome: Outcome, behind: list[JournalledTrial]) -> Remedy | None:
    count = len(behind)
    ends = f"up to {count} of the latest {len(run.trials)} trials end on their own"
    match outcome:
        case Outcome.CONTEXT_OVERFLOW:
            limit = run.settings.get("context_limit")
            if not isinstance(limit, int) or run.policy == "local":
                # The whole context of the model is in use already.
                return Remedy("enable_summarize", True, f"{ends}, for some more model calls")
            return Remedy("context_limit", 2 * limit, ends)
        case Outcome.OUTPUT_TRUNCATED:
            return Remedy("max_tokens", _doubled(run, "max_tokens", 96), ends)
        case Outcome.PARSE_ERROR | Outcome.AGENT_TIMEOUT:
            turns = _doubled(run, "max_turns", 6)
            return Remedy("max_turns", turns, f"{ends}; a trial costs up to twice as much")
        case Outcome.SANDBOX_LOST | Outcome.AGENT_ERROR:
            places = round(run.number("n_parallel_envs", 16))
            if places <= 1:
                return None
            fewer = max(1, places // 2)
            return Remedy(
                "n_parallel_envs",
                fewer,
                f"half the load; sampling takes up to {places / fewer:.1f} x",
            )
        case Outcome.SETUP_ERROR:
            if run.number("env_starts_per_sec", 0) > 0:
                return None
            starts = run.number("n_parallel_envs", 16)
            return Remedy(
                "env_starts_per_sec",
                1,
                f"{starts:.0f} sandboxes start within {starts:.0f} s, not at once",
            )
        case Outcome.TOO_SLOW:
            return _longer_trials(behind)
        case Outcome.PROVIDER_ERROR:
            return _longer_waits(run, behind)
        case _:
            return None


def _longer_waits(run: RunSnapshot, behind: list[JournalledTrial]) -> Remedy | None:
    """More of the time that ran out, by what the reasons name; None: none of them names any."""
    named = Counter(
        limit
        for trial in behind
        for limit in ("sample_timeout_sec", "trial_timeout_sec")
        if limit in trial.reason
    )
    if not named:
        return None
    ((limit, _),) = named.most_common(1)
    if limit == "trial_timeout_sec":
        return _longer_trials([trial for trial in behind if limit in trial.reason])
    wait = run.number(limit, 300)
    return Remedy(limit, 2 * wait, f"a silent server is given up after {2 * wait:g} s")


def _longer_trials(behind: list[JournalledTrial]) -> Remedy | None:
    """Twice their time; None: it has no limit."""
    limits = [trial.budget_sec for trial in behind if trial.budget_sec is not None]
    if not limits:
        return None
    seconds = 2 * max(limits)
    return Remedy(
        "trial_timeout_sec", seconds, f"agents have {seconds:g} s, and one answer most of them"
    )


def _doubled(run: RunSnapshot, setting: str, default: int) -> int:
    return 2 * max(1, round(run.number(setting, default)))


def parse_errors(run: RunSnapshot) -> Iterator[Finding]:
    """Answers within trials that the agent could not read; each costs a turn."""
    behind = [trial for trial in run.trials if trial.unreadable]
    count = sum(trial.unreadable for trial in behind)
    if count < FEWEST or share_of(count, len(run.trials)) < _TURNS:
        return
    yield Finding(
        Rule.UNREADABLE_ANSWERS,
        f"{count} parse errors in {part_of(len(behind), len(run.trials), 'trials')}",
        "watch",
        share=share_of(len(behind), len(run.trials)),
        limit=f"{_TURNS * 100:.0f} parse errors in 100 trials",
        trend=_unreadable_trend(run),
        trials=tuple(trial.trial for trial in behind),
    )


def _unreadable_trend(run: RunSnapshot) -> tuple[float, ...]:
    """Unreadable answers per trial, for each step whose trials are in memory."""
    trials: Counter[int] = Counter()
    errors: Counter[int] = Counter()
    for trial in run.members:
        trials[trial.step] += 1
        errors[trial.step] += trial.unreadable
    return tuple(errors[step] / trials[step] for step in sorted(trials))


def truncated_answers(run: RunSnapshot) -> Iterator[Finding]:
    """Answers cut off at max_tokens that did not end their trials."""
    name = "env/all/frac_truncated_turns"
    trend = run.trend(name)
    share = share_of(trend[-1], 1) if trend else 0.0
    if share < _LATE:
        return
    behind = (trial for trial in run.trials if trial.outcome is Outcome.OUTPUT_TRUNCATED)
    yield Finding(
        Rule.TRUNCATED_ANSWERS,
        f"{share:.0%} of step {run.steps[-1].step}'s answers",
        share=share,
        limit=f"{_LATE:.0%} of a step's answers",
        advice="raise max_tokens" + ", or give thinking=off" * run.sampling_facts.thinks,
        trend=tuple(share_of(each, 1) for each in trend),
        trials=tuple(trial.trial for trial in behind),
        remedy=Remedy(
            "max_tokens",
            _doubled(run, "max_tokens", 96),
            f"at most {share:.0%} of the answers grow; the others stay as they are",
        ),
    )


def _to_see(run: RunSnapshot, task: str, why: Unusable) -> str:
    """The command that shows why a task can't be used."""
    # What turned out in a trial is not seen by reading files.
    return _to_try(run, task) if why.by == "trial" else to_type("tasks", "check", run.tasks_dir)


def unusable_tasks(run: RunSnapshot) -> Iterator[Finding]:
    """Tasks of which no trial starts."""
    if not run.unusable:
        return
    task, first = next(iter(run.unusable.items()))
    reason = both_ends(first.text, _MOST_REASON)
    count = len(run.unusable)
    yield Finding(
        Rule.UNUSABLE_TASKS,
        part_of(count, max(count, run.tasks), "tasks"),
        "watch",
        share=share_of(count, max(count, run.tasks)),
        limit="any task",
        why=f"{task}: {reason}" if count == 1 else f"{task} and {count - 1} more: {reason}",
        advice=f"run {_to_see(run, task, first)}",
    )
