"""What the outcome of a trial leads to, and the review before a step is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec

from tbtui.config.settings.about import About, Fixed, Live
from tbtui.config.settings.learning import Learning
from tbtui.outcomes import OutcomeAction


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
    ] = 1.0
    halt_after: Annotated[
        int,
        About(
            "Infrastructure failures in a row that end the run; 0: never",
            "three full groups: something is broken",
            "failures",
            ge=0,
        ),
    ] = 24
    unfit_tasks: Annotated[
        Literal["skip", "try"],
        About(
            "Tasks that, by their files, the environment can't serve: leave them out (skip), or"
            " try them all the same",
            "skip: their trials would only fail",
        ),
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
    ] = 0.0
    quarantine: Annotated[
        Literal["honour", "ignore"],
        About(
            "Tasks in the quarantine.toml of tasks_dir, which `tbtui tasks flakes` writes: leave"
            " them out and name them, or use them all the same",
            "a verdict that changes by itself teaches nothing",
        ),
    ] = "honour"
    max_unusable: Annotated[
        float,
        About(
            "Largest share of the tried tasks that may turn out unusable: impossible to build, or"
            " with a verifier that can't work in this environment; more end the run",
            "half: another environment would serve better; 1 never ends it",
            ge=0,
        ),
    ] = 0.5
    reward_key: Annotated[
        str | None,
        About(
            "The name of the reward that counts, where a verifier gives several",
            "none: the only one, or the one called reward; where neither is, the task is set aside",
        ),
        Fixed.BATCHES,
    ] = None
    reward_weights: Annotated[
        dict[str, float],
        About(
            "The reward is the sum of these rewards of a verifier, each times its weight"
            " (reward_weights.NAME=WEIGHT); a negative weight is a penalty",
            "empty: one reward counts (reward_key)",
        ),
        Fixed.BATCHES,
    ] = msgspec.field(default_factory=dict)
    check_zeros: Annotated[
        Literal["auto", "never", "faults", "first"],
        About(
            "Verdicts of 0 to check in a fresh sandbox: those of verifiers that seem not to have"
            " worked (faults); besides these, of each task not solved so far, the first, against"
            " the task's own solution (first); none (never)",
            "auto: first in the sandbox, which is not the image that a task names; else faults",
        ),
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
    ] = None
    at_review_timeout: Annotated[
        Literal["accept", "exclude"],
        About(
            "After review_timeout_sec: train on everything (accept), or leave undecided suspects"
            " out (exclude)",
            "exclude: a doubtful reward does more harm than a missing one",
        ),
        Live("holds for reviews that close from now on"),
    ] = "exclude"
