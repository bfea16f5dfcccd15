"""Every setting of a run, once: its name, type, default, bounds, unit, meaning and reason.

The command line's help, validation, `--print-config`, a run's `config.toml` and the documentation
all read this one place. msgspec and not pydantic: it takes a tenth of the time to import, and this
comes before the app's first frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from tbtui.outcomes import OutcomeAction

AlarmAction = Literal["off", "warn", "pause", "halt"]
"""What an alarm leads to, beside being journalled: nothing, a word, a paused run, or its end."""

Advantage = Literal["centred", "std", "leave_one_out", "batch"]
Normalizer = Literal["token", "sequence", "trial", "sum"]

Trust = Literal["code", "class", "host", "path"]
"""`code` can run programs or take privileges; `class` does where it is `module:Class`; a `host` is
talked to, and may be sent keys; a `path` is read."""

_MAX_STEPS = 40

POLICY_SETTINGS = frozenset(
    {
        "checkpoint",
        "tinker_base_url",
        "vllm_base_url",
        "tokenizer",
        "renderer",
        "thinking",
        "checkpoint_ttl_hours",
        "lora_rank",
        "grad_clip",
        "kl_penalty_coef",
        "importance_cap",
    }
)
"""Settings that not every policy can honour; `PolicyInfo.honours` says which of them one does."""


@dataclass(frozen=True, slots=True)
class About:
    """What there is to say of a setting beside its type and its default."""

    meaning: str
    why: str
    """The reason for the default."""
    unit: str = ""
    ge: float | None = None
    gt: float | None = None
    lt: float | None = None
    trust: Trust | None = None
    """What a value names that only the person who starts a run may name."""


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one run. Values from outside come through `read_config`, which checks
    them; the constructor trusts its types."""

    # What is trained
    engine: Annotated[
        Literal["grpo", "prime-rl"],
        About(
            "Who trains: our own GRPO trainer, or Prime-RL, launched and watched from here",
            "grpo: needs no GPU",
        ),
    ] = "grpo"
    prime_rl_dir: Annotated[
        Path | None,
        About(
            "Prime-RL's checkout, with what uv sync has installed in it",
            "none: PRIME_RL_DIR",
            trust="code",
        ),
    ] = None
    prime_rl_config: Annotated[
        Path | None,
        About(
            "A configuration file of Prime-RL's, taken as it is but for where it writes; the same"
            " as naming it without prime_rl_config=",
            "none: it is written from these settings",
            trust="code",
        ),
    ] = None
    num_train_gpus: Annotated[
        int, About("Prime-RL: GPUs that train", "Prime-RL's default", "GPUs", ge=1)
    ] = 1
    num_infer_gpus: Annotated[
        int, About("Prime-RL: GPUs that sample", "Prime-RL's default", "GPUs", ge=1)
    ] = 1
    policy: Annotated[
        Literal["local", "tinker", "vllm"],
        About(
            "Where the model runs: the embedded one here, behind a Tinker server, or, only to be"
            " evaluated, on a vLLM server",
            "needs no key and no GPU",
        ),
    ] = "local"
    model_name: Annotated[
        str, About("Model to train", "the one that the embedded policy ships")
    ] = "starter"
    checkpoint: Annotated[
        str | None,
        About(
            "Checkpoint to start from: a directory, or tinker://... of a Tinker server",
            "none: the model as it comes",
            trust="path",
        ),
    ] = None
    tinker_base_url: Annotated[
        str | None, About("Address of the Tinker server", "none: the hosted service", trust="host")
    ] = None
    vllm_base_url: Annotated[
        str | None,
        About(
            "Address of the vLLM server (its key, if it wants one: OPENAI_API_KEY)",
            "none: OPENAI_BASE_URL, else http://localhost:8000/v1",
            trust="host",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        About(
            "Tokenizer: a directory, or a name on the Hugging Face hub",
            "none: the one that the server names for its model",
            trust="code",
        ),
    ] = None
    renderer: Annotated[
        str,
        About(
            "What turns chat into tokens: template, embedded, cookbook:NAME, or module:Class",
            "template: the chat template that comes with the tokenizer",
            trust="class",
        ),
    ] = "template"
    thinking: Annotated[
        Literal["keep", "strip", "off"],
        About(
            "Thinking of earlier turns stays in the prompt, is left out, or the model is told not"
            " to think",
            "kept turns are one training sequence; each strip makes a new one",
        ),
    ] = "keep"
    checkpoint_ttl_hours: Annotated[
        int | None,
        About(
            "How long a Tinker server keeps a checkpoint that nobody deletes",
            "none: until it is deleted, and it may be charged for; a run can be resumed only for so"
            " long",
            "hours",
            ge=1,
        ),
    ] = None
    policy_restarts: Annotated[
        int,
        About(
            "How often a policy that was lost is made afresh from the last checkpoint",
            "a server that is restarted doesn't end the night's run",
            "times",
            ge=0,
        ),
    ] = 5
    lora_rank: Annotated[
        int, About("Rank of the trained LoRA adapter", "Tinker's default", "dimensions", ge=1)
    ] = 32
    context_limit: Annotated[
        int | None,
        About(
            "Most that prompt and completion may take together",
            "none: all that the model has",
            "tokens",
            ge=1,
        ),
    ] = None

    # On which tasks
    tasks_dir: Annotated[
        Path | None,
        About(
            "Directory of Harbor tasks, or a data set by name: workshop, or a fetched one",
            "none: the bundled starter tasks",
            trust="path",
        ),
    ] = None
    tasks: Annotated[
        tuple[str, ...],
        About(
            "Which of them to train on: names, globs (copy-*) and saved sets (@NAME); those held"
            " out stay so",
            "empty: all that are not held out",
        ),
    ] = ()
    eval_split: Annotated[
        float,
        About(
            "Share held out where no task declares a split",
            "enough held-out tasks to see overfitting",
            "share of tasks",
            ge=0,
            lt=1,
        ),
    ] = 0.2
    eval_tasks: Annotated[
        tuple[str, ...],
        About(
            "The tasks to hold out, named like those of tasks, in place of a split",
            "empty: eval_split decides",
        ),
    ] = ()

    # How long and how much
    max_steps: Annotated[
        int,
        About(
            "Batches to train on; 0 only evaluates",
            "the starter tasks are learned by then",
            "steps",
            ge=0,
        ),
    ] = _MAX_STEPS
    n_epochs: Annotated[
        int | None,
        About(
            "Passes over the training tasks; given alone it replaces max_steps",
            "none: max_steps decides",
            "passes",
            ge=1,
        ),
    ] = None
    batch_size: Annotated[
        int, About("Tasks (groups) in a step", "a step stays short on two cores", "tasks", ge=1)
    ] = 4
    group_size: Annotated[
        int,
        About(
            "Trials of one task in a step",
            "enough that most groups differ in reward",
            "trials",
            ge=1,
        ),
    ] = 8
    seed: Annotated[
        int,
        About("Decides the order of tasks and every random draw", "runs can be repeated", ge=0),
    ] = 0

    # Order of sampling and training
    num_substeps: Annotated[
        int,
        About(
            "Optimiser steps that a batch is divided into",
            "1: all its data are of the weights that are trained",
            "optimiser steps",
            ge=1,
        ),
    ] = 1
    stream: Annotated[
        bool,
        About(
            "Compute gradients of a batch's groups as they finish, not at its end",
            "off: every advantage and normaliser is at hand",
        ),
    ] = False
    max_steps_off_policy: Annotated[
        int,
        About(
            "Batches that may be sampled ahead of training",
            "0: strictly in turn, and so reproducible",
            "steps",
            ge=0,
        ),
    ] = 0

    # Learning
    learning_rate: Annotated[
        float,
        About(
            "AdamW step size at its highest",
            "fast and stable on the model shipped (tests/benchmarks/learning_curve.py); of another"
            " model 4e-5, with Prime-RL 1e-5",
            gt=0,
        ),
    ] = 2e-4
    lr_schedule: Annotated[
        Literal["constant", "linear", "cosine"],
        About("How the learning rate falls until the last step", "less noise in the end"),
    ] = "linear"
    warmup_steps: Annotated[
        int,
        About(
            "Steps in which the learning rate rises",
            "0: none is needed at this rate",
            "steps",
            ge=0,
        ),
    ] = 0
    loss_fn: Annotated[
        Literal["importance_sampling", "ppo", "cispo", "gspo", "dro"],
        About("Policy-gradient loss", "unbiased, and enough while training is on-policy"),
    ] = "importance_sampling"
    advantage: Annotated[
        Advantage,
        About(
            "What a trial's reward is measured against, and in which unit",
            "no bias by how hard a task is",
        ),
    ] = "centred"
    normalize_advantages_by_std: Annotated[
        bool,
        About(
            "Divide advantages by their group's deviation: the same as advantage=std",
            "off: it overweights tasks that are nearly solved or nearly hopeless",
        ),
    ] = False
    loss_normalizer: Annotated[
        Normalizer,
        About("What a batch's summed loss is divided by", "long and short trials alike by token"),
    ] = "token"
    remove_constant_reward_groups: Annotated[
        bool,
        About(
            "Leave groups whose rewards are all equal out of the normaliser too",
            "off: a batch with little to teach takes a small step",
        ),
    ] = False
    replace_constant_groups: Annotated[
        int,
        About(
            "Most further groups that a step starts in place of constant ones",
            "0: a step costs what was planned",
            "groups",
            ge=0,
        ),
    ] = 0
    kl_penalty_coef: Annotated[
        float,
        About(
            "Weight of the penalty for leaving the starting policy",
            "0: off, and no second model to score with",
            "reward per nat",
            ge=0,
        ),
    ] = 0.0
    importance_cap: Annotated[
        float,
        About(
            "Largest weight for a trainer that differs from the sampler",
            "0: no correction; they agree where both are ours",
            "ratio",
            ge=0,
        ),
    ] = 0.0
    dro_beta: Annotated[
        float, About("DRO: weight of the quadratic term", "Tinker's default", gt=0)
    ] = 0.05
    overlong_penalty: Annotated[
        float,
        About(
            "Taken from the reward of a trial that fills its context",
            "0: the reward is the verifier's alone",
            "reward",
            ge=0,
        ),
    ] = 0.0
    overlong_buffer: Annotated[
        int,
        About(
            "Length before the limit over which that penalty rises",
            "a quarter of the shipped model's context",
            "tokens",
            ge=1,
        ),
    ] = 256
    turn_penalty: Annotated[
        float,
        About(
            "Taken from the reward for each turn",
            "0: the reward is the verifier's alone",
            "reward",
            ge=0,
        ),
    ] = 0.0
    train_summaries: Annotated[
        bool,
        About(
            "Train what the agent wrote to summarise its history, too",
            "on: the policy wrote it, and the reward depends on it",
        ),
    ] = True
    clip_low: Annotated[
        float,
        About("Ratio clipped below 1 - this (ppo, cispo, gspo)", "PPO's", "ratio", ge=0, lt=1),
    ] = 0.2
    clip_high: Annotated[
        float, About("Ratio clipped above 1 + this (ppo, cispo, gspo)", "PPO's", "ratio", ge=0)
    ] = 0.2
    grad_clip: Annotated[
        float,
        About(
            "Largest gradient norm; 0 switches it off",
            "keeps one odd batch from undoing what was learned",
            "norm",
            ge=0,
        ),
    ] = 0.3
    min_group: Annotated[
        int,
        About(
            "Scored trials that a group needs to be trained on",
            "one alone has no baseline",
            "trials",
            ge=1,
        ),
    ] = 2
    short_groups: Annotated[
        Literal["refill", "drop"],
        About(
            "A group with fewer: run as many fresh trials once, or leave it out",
            "a fault of infrastructure shall not shape the batch",
        ),
    ] = "refill"

    # What an outcome leads to
    on_outcome: Annotated[
        dict[str, OutcomeAction],
        About(
            "Exceptions to the table of `tbtui run --explain`",
            "empty: only the policy's own doing is trained on",
        ),
    ] = {}
    max_retries: Annotated[
        int,
        About(
            "Further attempts where an outcome means retry",
            "most faults are gone by then",
            "attempts",
            ge=0,
        ),
    ] = 2
    retry_wait_sec: Annotated[
        float,
        About(
            "Wait before the first retry; doubles with each, half of it random",
            "lets a short fault pass",
            "seconds",
            ge=0,
        ),
    ] = 1.0
    unfit_tasks: Annotated[
        Literal["skip", "try"],
        About(
            "Tasks whose files show that the environment can't serve them: leave them out, or try"
            " them all the same",
            "skip: their trials would only fail",
        ),
    ] = "skip"
    max_unusable: Annotated[
        float,
        About(
            "Largest share of the tasks tried that may turn out unusable: not to be built, or with"
            " a verifier that can't work in this environment; more of them end the run",
            "half: another environment would serve better; 1 never ends it",
            ge=0,
        ),
    ] = 0.5
    check_zeros: Annotated[
        Literal["auto", "never", "faults", "first"],
        About(
            "Verdicts of 0 that are checked against a fresh sandbox: of verifiers that seem not to"
            " have worked (faults); besides these the first of each task that was not solved yet,"
            " against the task's own solution (first); none (never)",
            "auto: first in the sandbox, which is not the image that a task names; else faults",
        ),
    ] = "auto"
    kill_before_verifying: Annotated[
        Literal["auto", "always", "never"],
        About(
            "Whether what the agent has left running is killed before its verifier runs in the same"
            " environment: of bundled tasks (auto), of all tasks, of none. A task whose verifier"
            " needs it says `[metadata] verifier_needs_processes = true` in task.toml",
            "auto: what runs beside a verifier can forge its verdict, but others' tasks may be"
            " verified by asking a server that the agent has started",
        ),
    ] = "auto"
    halt_after: Annotated[
        int,
        About(
            "Failures of infrastructure in a row that end the run; 0: never",
            "three full groups: something is broken",
            "failures",
            ge=0,
        ),
    ] = 24

    # A look before a step is trained
    review: Annotated[
        Literal["off", "suspects", "always"],
        About(
            "Before a step is trained: go on, wait for a look at trials that something is odd"
            " about, or at all of them",
            "off: a run that nobody watches doesn't stand still",
        ),
    ] = "off"
    review_rules: Annotated[
        Path | None,
        About(
            "TOML file of [[rule]] tables that decide in a person's place: exclude, relabel,"
            " accept, refill or hold",
            "none: people decide",
            trust="path",
        ),
    ] = None
    review_timeout_sec: Annotated[
        float | None,
        About(
            "How long a review waits for somebody, while the run isn't paused",
            "none: for ever",
            "seconds",
            gt=0,
        ),
    ] = None
    at_review_timeout: Annotated[
        Literal["accept", "exclude"],
        About(
            "Then: train on everything, or without the suspects that nobody decided upon",
            "a doubtful reward teaches more harm than a missing one",
        ),
    ] = "exclude"

    # Evaluation on held-out tasks
    eval_every: Annotated[
        int,
        About(
            "Steps between evaluations; 0: only before and after",
            "a tenth of the time, at most",
            "steps",
            ge=0,
        ),
    ] = 10
    eval_group_size: Annotated[
        int,
        About("Trials of each held-out task", "1: pass@1 alone; more give pass@k", "trials", ge=1),
    ] = 1
    eval_temperature: Annotated[
        float,
        About(
            "Sampling temperature in evaluation", "as in training: no other policy is judged", gt=0
        ),
    ] = 1.0

    # Trials
    agent: Annotated[
        Literal["terminus-2", "oracle"],
        About(
            "Who acts: the policy through Terminus-2 or, only to evaluate, the task's solution",
            "the policy is what is trained",
        ),
    ] = "terminus-2"
    max_turns: Annotated[
        int,
        About(
            "Model calls in a trial",
            "twice what the starter tasks need; 32 of another model",
            "turns",
            ge=1,
        ),
    ] = 6
    max_tokens: Annotated[
        int,
        About(
            "Most in one completion",
            "room for the longest answer of the starter tasks; of another model 8192, or a quarter"
            " of context_limit",
            "tokens",
            ge=1,
        ),
    ] = 96
    temperature: Annotated[
        float,
        About("Sampling temperature in training", "1: the policy itself is sampled", gt=0),
    ] = 1.0
    enable_summarize: Annotated[
        bool,
        About(
            "Let the agent summarise its history when the context fills up",
            "off: it takes calls that short tasks don't need",
        ),
    ] = False
    proactive_summarization_threshold: Annotated[
        int,
        About(
            "It does so with less free context than this", "Terminus-2's default", "tokens", ge=0
        ),
    ] = 8000
    sample_timeout_sec: Annotated[
        float,
        About(
            "Longest that the policy may take for one completion",
            "a policy that hangs is a failure, not a slow one; 900 of another model",
            "seconds",
            gt=0,
        ),
    ] = 300.0
    trial_timeout_sec: Annotated[
        float | None,
        About("Active time of the agent in a trial", "none: the task's own", "seconds", gt=0),
    ] = None
    environment_type: Annotated[
        str | None,
        About(
            "sandbox, docker, podman, one of Harbor's, module:Class; auto: the sandbox, or Docker"
            " where that serves more of the tasks",
            "none: what this host has",
            trust="class",
        ),
    ] = None
    environment_kwargs: Annotated[
        dict[str, Any],
        About("Passed through to the environment", "empty: its own defaults", trust="code"),
    ] = {}
    force_build: Annotated[
        bool,
        About(
            "Build a task's Dockerfile although the task names an image",
            "images are made to spare the build; on where one can't be pulled",
        ),
    ] = False
    n_parallel_envs: Annotated[
        int, About("Trials that run at once", "they wait more than they compute", "trials", ge=1)
    ] = 16
    env_starts_per_sec: Annotated[
        float,
        About(
            "Most trials started in a second; 0: no limit",
            "0: sandboxes start at once; 1 where a service runs them",
            "trials a second",
            ge=0,
        ),
    ] = 0.0
    n_workers: Annotated[
        int,
        About(
            "Processes that run them", "two cores are the least that people have", "processes", ge=1
        ),
    ] = 2
    worker_max_mb: Annotated[
        int,
        About(
            "A worker with more resident memory is replaced; 0: never",
            "twice what a healthy one takes",
            "megabytes",
            ge=0,
        ),
    ] = 512
    worker_max_trials: Annotated[
        int,
        About(
            "A worker that has run so many is replaced; 0: never",
            "slow leaks of libraries stay small",
            "trials",
            ge=0,
        ),
    ] = 1000

    # Stragglers
    step_deadline_sec: Annotated[
        float | None,
        About("Active time that a step's trials have in all", "none: no limit", "seconds", gt=0),
    ] = None
    at_deadline: Annotated[
        Literal["wait", "stop", "mask"],
        About(
            "Then: only say so, stop and verify, or leave the late ones out",
            "stopped trials still have a verdict",
        ),
    ] = "stop"
    oversample: Annotated[
        int,
        About(
            "Extra trials that each training group starts",
            "0: they cost as much as others",
            "trials",
            ge=0,
        ),
    ] = 0
    oversample_keep: Annotated[
        Literal["in_order", "first_finished"],
        About("Which of them fill the group", "first_finished favours short trials"),
    ] = "in_order"

    # Alarms, costs and GPUs
    on_alarm: Annotated[
        dict[str, AlarmAction],
        About("What an alarm leads to", "empty: each one warns"),
    ] = {}
    prices: Annotated[
        dict[str, Annotated[float, msgspec.Meta(ge=0)]],
        About(
            "prices.prompt, .sampled and .trained, for the cost of steps and evaluations; beside"
            " them .cached (tokens of prompts in the sampler's cache) and .scored (forward passes"
            " alone), which are prompt's else, and .storage (of checkpoints, dollars a gigabyte"
            " and month)",
            "empty: Tinker's public ones where they are known (tbtui run --explain), else costs"
            " are unknown",
            "US dollars a million tokens",
        ),
    ] = {}
    max_cost: Annotated[
        float | None,
        About(
            "Ends the run once it has cost so much: the step under way is finished and saved"
            " (exit status 0)",
            "none: max_steps decides",
            "US dollars",
            gt=0,
        ),
    ] = None
    gpu_hosts: Annotated[
        tuple[str, ...],
        About(
            "Other machines whose GPUs are shown, as ssh knows them (ssh HOST nvidia-smi)",
            "empty: this machine's alone",
            trust="host",
        ),
    ] = ()

    # Where it goes
    on_hangup: Annotated[
        Literal["detach", "stop"],
        About(
            "When the terminal goes away (a lost connection, a closed window): the run goes on"
            " without it, or ends",
            "detach: an hour's work is worth more than its window; tbtui attach shows it again",
        ),
    ] = "detach"
    logs_dir: Annotated[Path, About("Directory of runs", "beside where it was started")] = Path(
        "runs"
    )
    run_name: Annotated[
        str | None, About("Directory of this run in logs_dir", "none: date and time")
    ] = None
    keep: Annotated[
        Literal["all", "failed", "none"],
        About("Whose recordings and logs stay on disk", "all: tokens stay in any case"),
    ] = "all"
    save_every: Annotated[
        int,
        About(
            "Steps between checkpoints; 0: only at the end",
            "little is lost by a crash; 1 with policy=tinker, where a save takes no time here",
            "steps",
            ge=0,
        ),
    ] = 10
    keep_checkpoints: Annotated[
        int,
        About(
            "Latest checkpoints that stay, beside the best one; 0: all",
            "a few to go back to, and a bounded disk",
            "checkpoints",
            ge=0,
        ),
    ] = 3
    tensorboard: Annotated[
        bool, About("Write TensorBoard files into the run", "off: needs tbtui[tensorboard]")
    ] = False
    trackio_project: Annotated[
        str | None, About("Log metrics to this Trackio project", "none: off")
    ] = None
    wandb_project: Annotated[
        str | None, About("Log metrics to this wandb project", "none: off")
    ] = None
    wandb_name: Annotated[
        str | None, About("Name of the wandb run", "none: the run directory's")
    ] = None

    given: frozenset[str] = frozenset()
    """Names of the settings that somebody asked for; no setting itself."""

    @property
    def advantage_method(self) -> Advantage:
        """The one in force: `normalize_advantages_by_std` means `std`."""
        return "std" if self.normalize_advantages_by_std else self.advantage

    @property
    def step_limit(self) -> int | None:
        """Steps that the run has at most; None where `n_epochs` alone decides."""
        by_epochs = self.n_epochs is not None and "max_steps" not in self.given
        return None if by_epochs and self.max_steps == _MAX_STEPS else self.max_steps

    def replace(self, **changes: Any) -> RunConfig:
        """The same with some settings changed; values are trusted."""
        return msgspec.structs.replace(self, **changes)


GROUPS: dict[str, tuple[str, ...]] = {
    "What is trained": (
        "engine",
        "prime_rl_dir",
        "prime_rl_config",
        "num_train_gpus",
        "num_infer_gpus",
        "policy",
        "model_name",
        "checkpoint",
        "tinker_base_url",
        "vllm_base_url",
        "lora_rank",
        "context_limit",
        "tokenizer",
        "renderer",
        "thinking",
        "checkpoint_ttl_hours",
        "policy_restarts",
    ),
    "On which tasks": ("tasks_dir", "tasks", "eval_split", "eval_tasks"),
    "How long and how much": ("max_steps", "n_epochs", "batch_size", "group_size", "seed"),
    "Order of sampling and training": ("num_substeps", "stream", "max_steps_off_policy"),
    "Learning": (
        "learning_rate",
        "lr_schedule",
        "warmup_steps",
        "loss_fn",
        "advantage",
        "normalize_advantages_by_std",
        "loss_normalizer",
        "remove_constant_reward_groups",
        "replace_constant_groups",
        "kl_penalty_coef",
        "importance_cap",
        "dro_beta",
        "overlong_penalty",
        "overlong_buffer",
        "turn_penalty",
        "train_summaries",
        "clip_low",
        "clip_high",
        "grad_clip",
        "min_group",
        "short_groups",
    ),
    "What an outcome leads to": (
        "on_outcome",
        "max_retries",
        "retry_wait_sec",
        "halt_after",
        "unfit_tasks",
        "max_unusable",
        "check_zeros",
        "kill_before_verifying",
    ),
    "A look before a step is trained": (
        "review",
        "review_rules",
        "review_timeout_sec",
        "at_review_timeout",
    ),
    "Evaluation": ("eval_every", "eval_group_size", "eval_temperature"),
    "Trials": (
        "agent",
        "max_turns",
        "max_tokens",
        "temperature",
        "enable_summarize",
        "proactive_summarization_threshold",
        "sample_timeout_sec",
        "trial_timeout_sec",
        "environment_type",
        "environment_kwargs",
        "force_build",
        "n_parallel_envs",
        "env_starts_per_sec",
        "n_workers",
        "worker_max_mb",
        "worker_max_trials",
    ),
    "Stragglers": ("step_deadline_sec", "at_deadline", "oversample", "oversample_keep"),
    "Alarms, costs and GPUs": ("on_alarm", "prices", "max_cost", "gpu_hosts"),
    "Where it goes": (
        "logs_dir",
        "run_name",
        "on_hangup",
        "keep",
        "save_every",
        "keep_checkpoints",
        "tensorboard",
        "trackio_project",
        "wandb_project",
        "wandb_name",
    ),
}
"""Every setting, in the order and under the headings that a person reads them."""
