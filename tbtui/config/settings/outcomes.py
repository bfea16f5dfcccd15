"""What the outcome of a trial leads to, and the review before a step is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec

from tbtui.config.settings.about import SOURCE, About, Fixed, Live, mapped, refused
from tbtui.config.settings.learning import Learning
from tbtui.outcomes import OutcomeAction

_NO_REVIEW = "Prime-RL trains a batch as soon as it is complete: there is no review"


class Outcomes(Learning, frozen=True, kw_only=True):
    """Failures, retries, and verdicts that are doubted."""

    heading: ClassVar[str] = "What an outcome leads to"

    on_outcome: Annotated[
        dict[str, OutcomeAction],
        About(
            "What an outcome leads to (on_outcome.NAME=ACTION), where it differs from the table"
            " of `tbtui run --explain`",
            "empty: training sees only what the policy itself did",
        ),
        refused(
            "Prime-RL leaves out trials that failed by infrastructure and trains on all others", {}
        ),
    ] = msgspec.field(default_factory=dict)
    max_retries: Annotated[
        int,
        About(
            "Further attempts where an outcome means retry",
            "most failures are over by then",
            "attempts",
            ge=0,
        ),
        Live("holds for the next failure"),
        mapped(SOURCE + "env.agent.retries.max_retries"),
    ] = 2
    retry_wait_sec: Annotated[
        float,
        About(
            "Wait before the first retry; doubles with each, half of it random",
            "lets a short failure pass",
            "seconds",
            ge=0,
        ),
        Live("holds for the next failure"),
        refused("verifiers repeats a failed rollout at once", 0.0),
    ] = 1.0
    halt_after: Annotated[
        int,
        About(
            "Infrastructure failures in a row that end the run; 0: never",
            "three full groups: something is broken",
            "failures",
            ge=0,
        ),
        refused("Prime-RL ends after ten batches without a sample, and by nothing else"),
    ] = 24
    unfit_tasks: Annotated[
        Literal["skip", "try"],
        About(
            "Tasks that, by their files, the environment can't serve: leave them out (skip), or"
            " try them all the same",
            "skip: their trials would only fail",
        ),
        refused("Prime-RL is given all tasks that are chosen", "skip"),
    ] = "skip"
    honeypots: Annotated[
        float,
        About(
            "Share of the groups that are of an impossible task: a training task whose verifier no"
            " honest work passes. A pass raises the alarm honeypot, and is no reward",
            "0: none; .02 costs 2% of the rollouts, and finds a policy that tampers with verifiers",
            "share of groups",
            ge=0,
            lt=1,
        ),
        Fixed.BATCHES,
        refused("Prime-RL's groups are of its own tasks", 0.0),
    ] = 0.0
    quarantine: Annotated[
        Literal["honour", "ignore"],
        About(
            "Tasks in the quarantine.toml of tasks_dir, which `tbtui tasks flakes` writes: leave"
            " them out and name them, or use them all the same",
            "a verdict that changes by itself teaches nothing",
        ),
        refused("Prime-RL keeps its tasks: leave some out with tasks="),
    ] = "honour"
    max_unusable: Annotated[
        float,
        About(
            "Largest share of the tried tasks that may turn out unusable: impossible to build, or"
            " with a verifier that can't work in this environment; more end the run",
            "half: another environment would serve better; 1 never ends it",
            ge=0,
        ),
        refused("Prime-RL keeps its tasks, and ends by its own rules"),
    ] = 0.5
    check_zeros: Annotated[
        Literal["auto", "never", "faults", "first"],
        About(
            "Verdicts of 0 to check in a fresh sandbox: those of verifiers that seem not to have"
            " worked (faults); besides these, of each task not solved so far, the first, against"
            " the task's own solution (first); none (never)",
            "auto: first in the sandbox, which is not the image that a task names; else faults",
        ),
        refused("in Prime-RL doubtful verdicts are checked always (faults)"),
    ] = "auto"
    kill_before_verifying: Annotated[
        Literal["auto", "always", "never"],
        About(
            "Kill what the agent has left running before its verifier runs in the same"
            " environment: in bundled tasks (auto), in all tasks, or never. A task whose verifier"
            " needs it says `[metadata] verifier_needs_processes = true` in task.toml",
            "auto: what runs beside a verifier can forge its verdict, but a task from elsewhere"
            " may be verified by asking a server that the agent has started",
        ),
        refused("in Prime-RL what an agent has left running is there when it is verified", "never"),
    ] = "auto"
    fixed_programs: Annotated[
        Literal["auto", "always", "never"],
        About(
            "Give no verdict where the agent has changed programs or libraries below /usr before"
            " its verifier runs in the same sandbox, whose bash or Python they might be: in bundled"
            " tasks (auto), in all tasks, or never",
            "auto: a false interpreter forges every verdict, but a task from elsewhere may ask for"
            " a package to be installed",
        ),
        refused("in Prime-RL a trial's programs are not watched", "never"),
    ] = "auto"


class Reviews(Outcomes, frozen=True, kw_only=True):
    """Reviews of steps, by people or by rules."""

    heading: ClassVar[str] = "Review before a step is trained"

    review: Annotated[
        Literal["off", "suspects", "always"],
        About(
            "Before a step is trained: go on (off), wait for a review of its suspect trials"
            " (suspects), or of all its trials (always)",
            "off: an unattended run doesn't stand still",
        ),
        Live("holds for steps whose trials end from now on"),
        refused(_NO_REVIEW, "off"),
    ] = "off"
    review_rules: Annotated[
        Path | None,
        About(
            "TOML file of [[rule]] tables that decide in a person's place: exclude, relabel,"
            " accept, refill or hold",
            "none: people decide",
            trust="path",
        ),
        Live("holds for steps whose trials end from now on"),
        refused(_NO_REVIEW, None),
    ] = None
    review_timeout_sec: Annotated[
        float | None,
        About(
            "Longest wait for a review, while the run isn't paused",
            "none: without limit",
            "seconds",
            gt=0,
        ),
        Live("holds for reviews that open from now on"),
        refused(_NO_REVIEW, None),
    ] = None
    at_review_timeout: Annotated[
        Literal["accept", "exclude"],
        About(
            "After review_timeout_sec: train on everything (accept), or leave undecided suspects"
            " out (exclude)",
            "exclude: a doubtful reward does more harm than a missing one",
        ),
        Live("holds for reviews that close from now on"),
        refused(_NO_REVIEW),
    ] = "exclude"
