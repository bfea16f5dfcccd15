"""How trials run, in training and in evaluation."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from tbtui.config.settings.about import About, Fixed, Live
from tbtui.config.settings.outcomes import Reviews


class Evaluation(Reviews, frozen=True, kw_only=True):
    """When held-out tasks are evaluated, and how."""

    heading: ClassVar[str] = "Evaluation"

    eval_every: Annotated[
        int,
        About(
            "Steps between evaluations; 0: only before and after training",
            "a tenth of the time, at most",
            "steps",
            ge=0,
        ),
        Live("counts from the first step, as before"),
    ] = 10
    eval_group_size: Annotated[
        int,
        About("Trials of each held-out task", "1: pass@1 alone; more give pass@k", "trials", ge=1),
        Fixed.EVALUATIONS,
    ] = 1
    eval_temperature: Annotated[
        float,
        About(
            "Sampling temperature in evaluation; 0: the likeliest token",
            "as in training: the same policy is evaluated",
            ge=0,
        ),
        Fixed.EVALUATIONS,
    ] = 1.0


class Trials(Evaluation, frozen=True, kw_only=True):
    """The agent, its sampling, its environment, and the workers."""

    heading: ClassVar[str] = "Trials"

    agent: Annotated[
        str,
        About(
            "Agent through which the policy acts: terminus-2, shell (a block of bash per turn, for"
            " small models), another of Harbor's (mini-swe-agent,"
            " codex, claude-code, ...), module:Class; or, only to evaluate, the task's own solution"
            " (oracle)",
            "terminus-2: it needs nothing in the sandbox but tmux",
            trust="class",
        ),
        Fixed.TRIALS,
    ] = "terminus-2"
    oracle_tasks: Annotated[
        tuple[str, ...],
        About(
            "Tasks, by their names, whose own solution acts in an evaluation, beside others that"
            " the policy attempts",
            "empty: the agent is the same for all; `tbtui tasks try --watch` sets it",
        ),
        Fixed.TRIALS,
    ] = ()
    agent_kwargs: Annotated[
        dict[str, Any],
        About(
            "Arguments of the agent's class (agent_kwargs.NAME=VALUE); version=... pins it,"
            " model_name=... is the model's name that it gets",
            "empty: the agent's own defaults",
            trust="code",
        ),
        Fixed.TRIALS,
    ] = msgspec.field(default_factory=dict)
    agent_examples: Annotated[
        str,
        About(
            "Solved tasks in the first prompt of agent=shell: 0 to 8 of the training tasks, whose"
            " solutions are performed before the first step; or a file of examples",
            "0: the shortest prompt",
            trust="path",
        ),
        Fixed.TRIALS,
    ] = "0"
    agent_install: Annotated[
        str | None,
        About(
            "Shell command, run as root in the sandbox, that installs the agent's program before"
            " Harbor's script is run, whose failure doesn't count then",
            "none: Harbor's script, which wants the Internet",
            trust="code",
        ),
        Fixed.TRIALS,
    ] = None
    agent_setup_network: Annotated[
        bool,
        About(
            "Give the agent's set-up the network, whatever its trial has",
            "off: only what is in the sandbox, or the wheel cache, can be installed",
            trust="code",
        ),
        Fixed.TRIALS,
    ] = False
    endpoint_public_url: Annotated[
        str | None,
        About(
            "Address at which agents in environments elsewhere reach this machine, {port} in it",
            "none: the sandbox and local containers need none",
            trust="host",
        ),
        Fixed.TRIALS,
    ] = None
    endpoint_port: Annotated[
        int,
        About(
            "First port that is tried for endpoint_public_url; each worker takes one",
            "8600: free as a rule",
            "port",
            ge=1024,
            lt=65_000,
        ),
        Fixed.TRIALS,
    ] = 8600
    max_turns: Annotated[
        int,
        About(
            "Most model calls in a trial",
            "twice what the starter tasks need; 12 for maze, 32 for another model",
            "turns",
            ge=1,
        ),
        Fixed.TRIALS,
    ] = 6
    max_tokens: Annotated[
        int,
        About(
            "Most tokens of a completion",
            "room for the longest answer of the starter tasks; for another model 8192, or a"
            " quarter of its context where that is less",
            "tokens",
            ge=1,
        ),
        Fixed.TRIALS,
    ] = 96
    temperature: Annotated[
        float,
        About("Sampling temperature in training", "1: the policy itself is sampled", ge=0),
        Fixed.TRIALS,
    ] = 1.0
    top_p: Annotated[
        float,
        About(
            "Share of the probability that the likeliest tokens drawn from have together, in"
            " training and evaluation (nucleus sampling)",
            "1: all tokens; with less, what is drawn is not what is trained",
            gt=0,
            le=1,
        ),
        Fixed.TRIALS,
    ] = 1.0
    top_k: Annotated[
        int | None,
        About(
            "How many of the likeliest tokens are drawn from, in training and evaluation",
            "none: all tokens",
            "tokens",
            ge=1,
        ),
        Fixed.TRIALS,
    ] = None
    min_p: Annotated[
        float,
        About(
            "Share of the likeliest token's probability below which tokens are not drawn, in"
            " training and evaluation",
            "0: all tokens",
            ge=0,
            lt=1,
        ),
        Fixed.TRIALS,
    ] = 0.0
    stop: Annotated[
        tuple[str, ...],
        About(
            "Texts that end an answer, in training and evaluation, beside those of the agent; the"
            " agent gets what comes before. One with a comma, or a line's end, in a file:"
            ' stop = ["\\n\\n"]',
            "none: the model's end of a turn",
        ),
        Fixed.TRIALS,
    ] = ()
    enable_summarize: Annotated[
        bool,
        About(
            "Let the agent summarise its history when the context fills up",
            "off: it costs model calls that short tasks don't need",
        ),
        Fixed.TRIALS,
    ] = False
    proactive_summarization_threshold: Annotated[
        int,
        About(
            "Free context below which the agent summarises its history",
            "Terminus-2's default",
            "tokens",
            ge=0,
        ),
        Fixed.TRIALS,
    ] = 8000
    sample_timeout_sec: Annotated[
        float,
        About(
            "Longest wait for a completion without a sign of work (tokens, other answers)",
            "a policy that hangs is a failure, not a slow one; 900 for another model",
            "seconds",
            gt=0,
        ),
        Live("holds for trials that start from now on"),
    ] = 300.0
    trial_timeout_sec: Annotated[
        float | None,
        About(
            "Most active time of the agent in a trial",
            "none: the task's own limit",
            "seconds",
            gt=0,
        ),
        Fixed.TRIALS,
    ] = None
    environment_type: Annotated[
        str | None,
        About(
            "Where trials run: sandbox, docker, podman, an environment of Harbor's, module:Class;"
            " auto: the sandbox, or Docker where that serves more of the tasks",
            "none: what this machine has",
            trust="class",
        ),
    ] = None
    environment_kwargs: Annotated[
        dict[str, Any],
        About(
            "Keyword arguments of the environment (environment_kwargs.NAME=VALUE)",
            "empty: its own defaults",
            trust="code",
        ),
    ] = msgspec.field(default_factory=dict)
    task_credentials: Annotated[
        tuple[str, ...],
        About(
            "Credentials among this machine's variables that tasks may take (${NAME} in task.toml),"
            " by name",
            "none: a key that a task has is its agent's, and everybody's whom that can reach",
            trust="code",
        ),
    ] = ()
    force_build: Annotated[
        bool,
        About(
            "Build a task's Dockerfile even if the task names an image",
            "off: an image spares the build; on where it can't be pulled",
        ),
    ] = False
    n_parallel_envs: Annotated[
        int,
        About("Trials that run at once", "trials wait more than they compute", "trials", ge=1),
        Live("trials that run already end first"),
    ] = 16
    env_starts_per_sec: Annotated[
        float,
        About(
            "Most trials to start in a second; 0: no limit",
            "0: sandboxes start at once; 1 where a service runs them",
            "trials a second",
            ge=0,
        ),
        Live("holds for the next trial that starts"),
    ] = 0.0
    pace_sec: Annotated[
        float | None,
        About(
            "How long each turn stands before its commands are sent, in the evaluation before"
            " training and in step 1, for people to follow; a trial's clocks stand still"
            " meanwhile; 0: full speed",
            "none: 2 in the app with the embedded model on its own tasks, whose turns take a tenth"
            " of a second; 0 elsewhere",
            "seconds",
            ge=0,
        ),
        Live("holds for the next turn; 0 ends the wait of all"),
    ] = None
    n_workers: Annotated[
        int,
        About(
            "Worker processes that run the trials",
            "two cores are the least that people have",
            "processes",
            ge=1,
        ),
    ] = 2
    worker_max_mb: Annotated[
        int,
        About(
            "Resident memory above which a worker is replaced; 0: never",
            "twice what a healthy one takes",
            "megabytes",
            ge=0,
        ),
    ] = 512
    worker_max_trials: Annotated[
        int,
        About(
            "Trials after which a worker is replaced; 0: never",
            "slow leaks of libraries stay small",
            "trials",
            ge=0,
        ),
    ] = 1000


class Stragglers(Trials, frozen=True, kw_only=True):
    """What is done about trials that take too long."""

    heading: ClassVar[str] = "Stragglers"

    step_deadline_sec: Annotated[
        float | None,
        About("Deadline of a step's trials, in active time", "none: no limit", "seconds", gt=0),
        Live("holds for batches that begin from now on"),
    ] = None
    at_deadline: Annotated[
        Literal["wait", "stop", "mask"],
        About(
            "After step_deadline_sec: only report it (wait), stop late trials and verify them"
            " (stop), or leave them out (mask)",
            "stop: stopped trials still have a verdict",
        ),
        Live("holds for batches that begin from now on"),
    ] = "stop"
    oversample: Annotated[
        int,
        About(
            "Extra trials that each training group starts",
            "0: they cost as much as others",
            "trials",
            ge=0,
        ),
        Fixed.BATCHES,
    ] = 0
    oversample_keep: Annotated[
        Literal["in_order", "first_finished"],
        About(
            "Which trials fill an oversampled group",
            "in_order: first_finished favours short trials",
        ),
        Fixed.BATCHES,
    ] = "in_order"
