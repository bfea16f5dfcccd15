"""Rules about how trials end: at a limit, unreadable, or by a failure of infrastructure. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tbtui.outcomes import ADVICE, Outcome
from tbtui.view.diagnosis.finding import Finding, Remedy, Severity, part_of, share_of
from tbtui.view.diagnosis.snapshot import Snapshot, TrialFacts

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


@dataclass(frozen=True, slots=True)
class _OutcomeRule:
    """An outcome that should be rare."""

    limit: float
    why: str
    severity: Severity = "costs"


_RULES: dict[Outcome, _OutcomeRule] = {
    Outcome.CONTEXT_OVERFLOW: _OutcomeRule(
        _OFTEN,
        "a conversation that fills the context ends before the work does, and scores as such",
    ),
    Outcome.OUTPUT_TRUNCATED: _OutcomeRule(
        _OFTEN, "an answer cut off at max_tokens holds no command: such trials teach to be brief"
    ),
    Outcome.PARSE_ERROR: _OutcomeRule(
        _OFTEN, "the agent could not read the last answer: the trial scores form, not work"
    ),
    Outcome.AGENT_TIMEOUT: _OutcomeRule(
        _LATE, "trials that run out of time or turns are scored as failures, solved or not"
    ),
    Outcome.VERIFIER_ERROR: _OutcomeRule(
        _LOST, "without a verdict a trial has no reward: its group is smaller, its tokens are lost"
    ),
    Outcome.SANDBOX_LOST: _OutcomeRule(
        _LOST, "work that dies with its sandbox or worker is done again, or missing in its group"
    ),
    Outcome.SETUP_ERROR: _OutcomeRule(
        _LOST, "a trial that never starts costs its set-up time, and its retry costs it again"
    ),
    Outcome.PROVIDER_ERROR: _OutcomeRule(
        _LOST, "a trial whose model stops to answer is lost with all turns before it"
    ),
    Outcome.AGENT_ERROR: _OutcomeRule(
        _LOST, "the agent's own code fails, whatever the policy does"
    ),
}


def rare_outcomes(run: Snapshot) -> Iterator[Finding]:
    """One finding for each outcome that is not as rare as it should be."""
    counts = Counter(trial.outcome for trial in run.trials)
    for outcome, rule in _RULES.items():
        count, share = counts[outcome], share_of(counts[outcome], len(run.trials))
        if count < FEWEST or share < rule.limit:
            continue
        behind = [trial for trial in run.trials if trial.outcome is outcome]
        yield Finding(
            str(outcome),
            rule.severity,
            share,
            part_of(count, len(run.trials), "trials"),
            f"{rule.limit:.0%} of the latest trials",
            rule.why,
            _advice(outcome, behind),
            _trend(run, outcome),
            tuple(trial.trial for trial in behind),
            _remedy(run, outcome, count),
        )


def _trend(run: Snapshot, outcome: Outcome) -> tuple[float, ...]:
    """The outcome's share of each step's trials; for an infrastructure failure the share of lost
    attempts, because a retried attempt is in no step's metrics."""
    if outcome.infrastructure:
        return tuple(share_of(step.lost, step.ended) for step in run.steps if step.ended)
    return run.trend(f"env/all/outcome/{outcome}", of=_EPISODES)


def _advice(outcome: Outcome, behind: list[TrialFacts]) -> str:
    """What to do; of verifier errors, with the task that has most of them."""
    if outcome is not Outcome.VERIFIER_ERROR:
        return ADVICE[outcome]
    ((task, count),) = Counter(trial.task for trial in behind).most_common(1)
    which = f"all of {task}" if count == len(behind) else f"most of {task}"
    return f"{which}: tbtui tasks try {task} --oracle"


def _remedy(run: Snapshot, outcome: Outcome, count: int) -> Remedy | None:
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
        case Outcome.PROVIDER_ERROR:
            wait = run.number("sample_timeout_sec", 300)
            return Remedy(
                "sample_timeout_sec", 2 * wait, f"a slow answer is given up after {2 * wait:g} s"
            )
        case _:
            return None


def _doubled(run: Snapshot, setting: str, default: int) -> int:
    return 2 * max(1, round(run.number(setting, default)))


def parse_errors(run: Snapshot) -> Iterator[Finding]:
    """Answers within trials that the agent could not read; each costs a turn."""
    behind = [trial for trial in run.trials if trial.unreadable]
    count = sum(trial.unreadable for trial in behind)
    if count < FEWEST or share_of(count, len(run.trials)) < _TURNS:
        return
    yield Finding(
        "unreadable_answers",
        "watch",
        share_of(len(behind), len(run.trials)),
        f"{count} parse errors in {part_of(len(behind), len(run.trials), 'trials')}",
        f"{_TURNS * 100:.0f} parse errors in 100 trials",
        "each costs a turn and the tokens of the agent's complaint",
        "read one: is it the format, or max_tokens?",
        _unreadable_trend(run),
        tuple(trial.trial for trial in behind),
    )


def _unreadable_trend(run: Snapshot) -> tuple[float, ...]:
    """Unreadable answers per trial, for each step whose trials are in memory."""
    trials: Counter[int] = Counter()
    errors: Counter[int] = Counter()
    for trial in run.members:
        trials[trial.step] += 1
        errors[trial.step] += trial.unreadable
    return tuple(errors[step] / trials[step] for step in sorted(trials))


def truncated_answers(run: Snapshot) -> Iterator[Finding]:
    """Answers cut off at max_tokens that did not end their trials."""
    name = "env/all/frac_truncated_turns"
    trend = run.trend(name)
    share = share_of(trend[-1], 1) if trend else 0.0
    if share < _LATE:
        return
    yield Finding(
        "truncated_answers",
        "costs",
        share,
        f"{share:.0%} of step {run.steps[-1].step}'s answers",
        f"{_LATE:.0%} of a step's answers",
        "what is cut off can't be read, and its tokens are trained on",
        "raise max_tokens, or give thinking=off",
        tuple(share_of(each, 1) for each in trend),
        tuple(trial.trial for trial in run.trials if trial.outcome is Outcome.OUTPUT_TRUNCATED),
        Remedy(
            "max_tokens",
            _doubled(run, "max_tokens", 96),
            f"at most {share:.0%} of the answers grow; the others stay as they are",
        ),
    )


def unusable_tasks(run: Snapshot) -> Iterator[Finding]:
    """Tasks of which no trial starts."""
    if not run.unusable:
        return
    task, whole = next(iter(run.unusable.items()))
    reason = whole if len(whole) <= _MOST_REASON else f"{whole[: _MOST_REASON - 1]}…"
    count = len(run.unusable)
    yield Finding(
        "unusable_tasks",
        "watch",
        share_of(count, max(count, run.tasks)),
        part_of(count, max(count, run.tasks), "tasks"),
        "any task",
        f"{task}: {reason}" if count == 1 else f"{task} and {count - 1} more: {reason}",
        "run tbtui tasks check",
    )
