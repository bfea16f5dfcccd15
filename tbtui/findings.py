"""Findings: what is wrong with a run, a step, a group, a trial or a task, and every rule for that.

A rule is a member of `Rule`, and a detector where its evidence is: `algorithm/alarms.py` looks at
steps, `algorithm/sentinel.py` at publications, `algorithm/suspects.py` at a group's trials,
`view/waiting.py` and `view/diagnosis` at the whole run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, get_args

Scope = Literal["run", "step", "group", "trial", "task"]
Severity = Literal["blocks", "costs", "watch"]
"""`blocks`: the run does not go on, or learns nothing, until somebody acts; `costs`: trials, signal
or time are lost at every step; `watch`: it may come to that."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

# From which values on training looks wrong. "Measured" is the embedded policy on the starter tasks.

COLLAPSED_NEGATIVE_LOGPROB = 0.01
"""Mean -log p, nats per token, below which nothing is left to explore: tokens of .99 and more.
Healthy runs, measured, end at .05 to .1; the end of learning comes with the end of entropy (Cui et
al. 2025, arXiv 2505.22617)."""

MISMATCH_KL = 0.01
"""Nats per token between sampler and trainer with the same weights: training is stable below it
(Tinker's documentation). The embedded policy's is 1e-12."""
MISMATCH_KL_STALE = 0.1
"""The same where the sampler's weights are older: well outside PPO's usual .01 to .05 a step."""

_LOWER_RATE = "resume from an earlier checkpoint with a lower learning_rate"


class Rule(StrEnum):
    """What is looked for. Journals, settings and scripts have the names: none is ever renamed.

    A member is its name, what it is about, why that matters, what to do about it, when it is
    raised as an alarm, and its words for people.
    """

    scope: Scope
    why: str
    """One line; a finding may have its own. Empty: `view/diagnosis` has another rule for it."""
    advice: str
    """A few words; a finding may have its own."""
    alarm: str
    """Its meaning among alarms, which interrupt: `on_alarm` says what each leads to. Empty: it is
    none."""
    words: str
    """`context overflow`."""

    # With defaults, because a look-up by its name, `Rule("few_turns")`, is a call too.
    def __new__(
        cls,
        name: str,
        scope: Scope = "run",
        why: str = "",
        advice: str = "",
        alarm: str = "",
        words: str = "",
    ) -> Rule:
        member = str.__new__(cls, name)
        member._value_ = name
        member.scope, member.why, member.advice, member.alarm = scope, why, advice, alarm
        member.words = words or name.replace("_", " ")
        return member

    # fmt: off
    # Of steps and evaluations: `algorithm/alarms.py`; the last is of `engines/honeypots.py`.
    REWARD_COLLAPSE = ("reward_collapse", "run", "what was learned is being lost", _LOWER_RATE,
        "the mean reward fell well below its recent best")
    LOGPROB_COLLAPSE = ("logprob_collapse", "run", "", "",
        "the policy is certain of every token, or of none")
    SAMPLER_MISMATCH = ("sampler_mismatch", "step", "", "",
        "sampler and trainer disagree about the same tokens")
    NO_SIGNAL = "no_signal", "run", "", "", "for several steps no group had anything to teach"
    BELOW_BASE = ("below_base", "run", "training has made the policy worse at what it is for",
        _LOWER_RATE, "held-out tasks are solved less often than before training")
    REWARD_HACKING = ("reward_hacking", "run", "the verifier may pass what is not solved",
        "review what passes", "the reward jumped while trials became much shorter")
    TRUNCATED = ("truncated", "step", "", "",
        "most trials were cut off at max_tokens, or filled their context")
    HONEYPOT = ("honeypot", "task",
        "the policy has found a way around its verifiers, and may use it on every task",
        "look at the trial; then audit the tasks, and set fixed_programs=always",
        "a trial passed an impossible task (honeypots)")

    # Of a trial among its siblings: `algorithm/suspects.py`.
    INFRASTRUCTURE_ZERO = ("infrastructure_zero", "trial",
        "the machinery failed it, and it counts as a failure")
    UNVERIFIED = "unverified", "trial", "a reward, and no verifier ran"
    INSTANT_VERIFIER = ("instant_verifier", "trial",
        "it took next to no time, compared with its siblings' verifiers")
    TESTS_SKIPPED = ("tests_skipped", "trial",
        "the verifier says that it skipped tests, or found none")
    FLAKY_VERDICT = ("flaky_verdict", "trial",
        "a sibling said the same, token for token, and got another reward")
    NO_COMMANDS = "no_commands", "trial", "a reward for doing nothing"
    FEW_TURNS = "few_turns", "trial", "solved in far fewer turns than siblings need"
    TESTS_TOUCHED = "tests_touched", "trial", "its commands name the verifier's own files"
    HUMAN_TOUCHED = "human_touched", "trial", "a person typed in its terminal"

    # What a run needs a person for: `view/waiting.py`.
    RUN_OVER = "run_over", "run"
    RUN_FAILED = "run_failed", "run"
    WAITS_POLICY = ("waits_policy", "run", "nothing can be sampled or trained",
        "it is made again by itself; else resume the run", "", "policy lost")
    WAITS_PAUSED = ("waits_paused", "run", "no trial is started while the run is paused",
        "resume the run", "", "run paused")
    WAITS_REVIEW = ("waits_review", "step", "the step is not trained before somebody decides",
        "open the review", "", "review waits")
    HELD_TRIALS = ("held_trials", "step",
        "every other trial of the batch has ended and waits for it", "resume it", "",
        "paused trials")
    ALL_FAILING = ("all_failing", "step", "a batch without any reward trains nothing",
        "see what the trials say", "", "every trial fails")

    # Of a run's time: `view/diagnosis/waits.py`.
    SERVER_OUT = ("server_out", "run",
        "no trial goes on before it answers; nothing is charged to the trials",
        "see the server's own log")
    POLICY_OUTAGES = ("policy_outages", "run", "the whole run stands still meanwhile",
        "see the server's own log")
    REQUESTS_REPEATED = ("requests_repeated", "run",
        "each is waited for twice; a server that fails often is near its limits",
        "fewer trials at once, or a server with more room")
    STRAGGLERS = ("stragglers", "step",
        "the last quarter of a step's trials runs while all else waits", "set a deadline")
    QUEUE_WAIT = ("queue_wait", "run", "a trial in the queue holds its group and its step up",
        "run more trials at once, if the machine has room")
    IDLE_WORKERS = ("idle_workers", "run",
        "a step has too few trials for the places, or waits for its last ones",
        "larger batches, or fewer places")

    # Of outcomes that should be rare, by their names: `view/diagnosis/outcomes.py`.
    CONTEXT_OVERFLOW = ("context_overflow", "run",
        "a conversation that fills the context ends before the work does, and scores as such")
    OUTPUT_TRUNCATED = ("output_truncated", "run",
        "an answer cut off at max_tokens holds no command: such trials teach to be brief")
    PARSE_ERROR = ("parse_error", "run",
        "the agent could not read the last answer: the trial scores form, not work")
    AGENT_TIMEOUT = ("agent_timeout", "run",
        "trials that run out of time or turns are scored as failures, solved or not")
    VERIFIER_ERROR = ("verifier_error", "run",
        "without a verdict a trial has no reward: its group is smaller, its tokens are lost")
    SANDBOX_LOST = ("sandbox_lost", "run",
        "work that dies with its sandbox or worker is done again, or missing in its group")
    SETUP_ERROR = ("setup_error", "run",
        "a trial that never starts costs its set-up time, and its retry costs it again")
    PROVIDER_ERROR = ("provider_error", "run",
        "a trial whose model stops to answer is lost with all turns before it")
    REFUSED = "refused", "run", "a trial that gets no answer has no reward: its task is left out"
    TOO_SLOW = ("too_slow", "run",
        "the model's server works and is not done in time: such a trial has no reward")
    AGENT_ERROR = "agent_error", "run", "the agent's own code fails, whatever the policy does"
    UNREADABLE_ANSWERS = ("unreadable_answers", "run",
        "each costs a turn and the tokens of the agent's complaint",
        "read one: is it the format, or max_tokens?", "", "parse errors")
    TRUNCATED_ANSWERS = ("truncated_answers", "step",
        "what is cut off can't be read, and its tokens are trained on", "raise max_tokens")
    UNUSABLE_TASKS = "unusable_tasks", "task"

    # Of what the optimiser gets: `view/diagnosis/learning.py`.
    NO_SIGNAL_GROUPS = ("no_signal_groups", "group",
        "equal rewards have no advantage: what was sampled for them trains nothing")
    SAMPLER_TRAINER_GAP = ("sampler_trainer_gap", "step",
        "the loss is weighted by a ratio of probabilities that is wrong from the start",
        "compare chat template and dtype of both servers")
    ENTROPY_COLLAPSE = ("entropy_collapse", "run",
        "where every token is certain all trials of a group are the same",
        "end the run, or lower the learning rate from an earlier checkpoint")
    FAR_FROM_START = ("far_from_start", "run",
        "what the starting policy knew besides these tasks goes first", "raise kl_penalty_coef")
    # fmt: on


ALARMS = tuple(rule for rule in Rule if rule.alarm)
SUSPECTS = tuple(rule for rule in Rule if rule.scope == "trial")


UnusableKind = Literal[
    "compose",  # several containers
    "image",  # it can't be built, or only a container engine can bring its files
    "step",  # a step of the Dockerfile that the sandbox can't follow
    "packages",  # Debian packages that this host lacks
    "fetching",  # a step that needs a network
    "gpu",
    "memory",
    "windows",
    "verifier",  # it needs a network, or a tool that is not there, or gives no verdict
    "solution",  # the task's own earns nothing here
    "variables",  # variables of the host that are not set
    "credentials",  # variables of the host that are credentials, and not allowed
    "quarantine",  # its verdict changes, or is wrong: `tbtui tasks flakes` has shown it
    "unknown",  # older journals don't say
]


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a task can't be used here: no trial of it could be scored."""

    kind: UnusableKind
    text: str
    """One line; of a file the line, and what is there."""
    by: Literal["preflight", "trial"] = "preflight"
    """Found before the first trial, or by one."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A setting with the value that it should have."""

    setting: str
    value: int | float | str | bool | None
    preview: str
    """What it leads to, in one line."""

    @property
    def text(self) -> str:
        """`step_deadline_sec=40`: as the command line takes it."""
        match self.value:
            case None:
                shown = "none"
            case bool():
                shown = str(self.value).lower()
            case float():
                shown = f"{self.value:g}"
            case _:
                shown = str(self.value)
        return f"{self.setting}={shown}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    rule: Rule
    text: str
    """What was found, in one line with its figures: `24 of 64 trials (38%)`."""
    severity: Severity = "costs"
    share: float = 1.0
    """Part of the trials, groups or time that it concerns, from 0 to 1; 1: the whole run."""
    limit: str = "any"
    """From where on it is a finding: `5% of trials`."""
    why: str = ""
    advice: str = ""
    trend: tuple[float, ...] = ()
    """The number at each of the latest steps, oldest first, in one unit."""
    trials: tuple[str, ...] = ()
    """Ids of the trials behind it, oldest first, as far as they are in memory."""
    remedy: Remedy | None = None
    step: int = 0
    """At which it was found, of rules about steps."""
    numbers: Mapping[str, float] = field(default_factory=dict, hash=False)
    calls: bool = False
    """It is worth a bell: no person here has asked for it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", self.why or self.rule.why)
        object.__setattr__(self, "advice", self.advice or self.rule.advice)

    @property
    def line(self) -> str:
        """`context overflow: 24 of 64 trials (38%); raise context_limit`."""
        return f"{self.rule.words}: {self.text}; {self.advice}"
