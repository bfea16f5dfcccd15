"""The messages between the engine and a rollout worker.

Pickled dataclasses: both ends are the same program. Token ids never reach a worker: it asks for
a completion with chat messages and gets text, and the engine records the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tbtui.chat import Message, Tool, ToolCall, ToolChoice
from tbtui.findings import UnusableKind
from tbtui.journal.commands import Typed
from tbtui.journal.events import AgentCommand, PhaseSeconds, TrialPhase
from tbtui.rollout.forking import ForkPoint, ForkReport, SnapshotPlan
from tbtui.verifier_fault import VerifierFault

FinishReason = Literal[
    "completed",  # the agent confirmed task_complete with a valid answer
    "max_turns",
    "budget",  # out of active time
    "stopped",  # a person ended the agent's run; verified all the same
    "deadline",  # its step's deadline ended the agent's run; verified all the same
    "cancelled",  # ended without verdict
    "context_overflow",
    "output_truncated",  # the last completion hit max_tokens and nothing valid followed
    "terminal_ended",  # the agent ended its own shell; the sandbox still answers
    "program_failed",  # the agent's program failed once a call was answered; verified all the same
    "sandbox_lost",  # the sandbox stopped answering
    "provider_error",  # the policy failed
    "refused",  # its server refused the prompt, or withheld the answer
    "too_slow",  # it was still answering when most of the trial's time was gone
    "not_run",  # the agent never got to act
    "no_calls",  # it ended, or ran out of time, without a call to the run's model endpoint
    "parted",  # a fork's recorded keys led elsewhere than they did
    "error",  # the agent raised
]

ControlVerb = Literal[
    "pause", "freeze", "resume", "stop", "expire", "cancel", "take_over", "give_back"
]
"""`expire` is a stop by the step's deadline; after `give_back` the trial stays paused, while
`resume` gives it back and lets it go on. Sent to a trial; the other commands that people
have are the engine's own business."""

AgentName = str
"""Who acts in a trial: the policy through Harbor's Terminus-2 (`terminus-2`), through our small
agent (`shell`), through another agent of Harbor's or of one's own (`module:Class`), or the task's
own solution (`oracle`)."""

ControlAgent = Literal["untouched", "oracle"]
"""What acts in a control of a verdict: no agent, or the task's own solution."""

CheckZeros = Literal["never", "faults", "first"]
"""Which verdicts of 0 are checked against a fresh sandbox: none, those of a verifier that seems not
to have worked, or besides these the first of a task that has not been solved here yet."""

Keep = Literal["all", "failed", "none"]
"""Which trials keep their recordings and Harbor's logs on disk."""

FailedPhase = Literal["environment", "agent_setup", "agent", "verifier", "teardown"]


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """For Harbor's EnvironmentConfig: a known type or an import path, and kwargs."""

    type: str | None
    import_path: str | None
    kwargs: dict[str, Any] = field(default_factory=dict)
    force_build: bool = False
    """A task's Dockerfile goes before the image that it names."""


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """Where agents that are no part of this program find the model endpoint."""

    public_url: str | None = None
    """An address that leads to this machine, `{port}` in it; None: no environment needs one."""
    port: int = 8600
    """The first port that is tried for it."""


@dataclass(frozen=True, slots=True)
class RewardChoice:
    """Which of the rewards that a verifier gives is the verdict.

    Without either, the only one, or the one called `reward`.
    """

    key: str | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    """The verdict is the sum of these, each times its weight."""


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One attempt at one task."""

    trial: str
    task_dir: Path
    trials_dir: Path
    environment: EnvironmentSpec
    model_name: str
    max_turns: int
    budget_sec: float
    """Active seconds of the agent; pauses don't count."""
    context_limit: int
    max_tokens: int
    enable_summarize: bool = False
    proactive_summarization_threshold: int = 8_000
    """The agent summarises its history with fewer free tokens than this; 0: only when it must."""
    keep: Keep = "all"
    agent: AgentName | ControlAgent = "terminus-2"
    agent_kwargs: dict[str, Any] = field(default_factory=dict)
    """For the agent's class, where it is not Terminus-2."""
    agent_examples: str = ""
    """Solved tasks that the first prompt of `shell` shows."""
    agent_install: str = ""
    """A shell command that installs the agent's program, in place of Harbor's own."""
    agent_setup_network: bool = False
    """The agent's set-up has the network, whatever its trial has."""
    endpoint: EndpointSpec = EndpointSpec()
    check_zeros: CheckZeros = "faults"
    snapshots: SnapshotPlan | None = None
    """Which of its states are kept; None: none is."""
    train_side_calls: bool = False
    """Calls without tools beside a conversation that has them are turns like any other."""
    origin: ForkPoint | None = None
    """The turn of another trial at which this one begins; its turns count from there."""
    kill_before_verifying: bool = False
    """What the agent has left running is killed before its own environment is verified, unless the
    task says that its verifier needs it."""
    rewards: RewardChoice = RewardChoice()
    fixed_programs: bool = False
    """A verdict does not count where the agent has changed programs that its verifier may run."""
    credentials: tuple[str, ...] = ()
    """Names of the host's credentials that the task may take."""


# engine -> worker


@dataclass(frozen=True, slots=True)
class StartTrial:
    spec: TrialSpec


@dataclass(frozen=True, slots=True)
class ControlTrial:
    trial: str
    verb: ControlVerb
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TypeKeys:
    """A person types in a trial that is taken over. Answered by `KeysTyped`."""

    trial: str
    command: str
    parts: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class WriteToAgent:
    """A person writes to the agent of a paused trial. Answered by `AgentWritten`."""

    trial: str
    command: str
    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """The policy's answer to `SampleWanted` number `request`.

    `truncated`: it was cut at max_tokens. Terminus-2 then asks again, as a turn of its own.
    """

    request: int
    trial: str
    text: str
    truncated: bool
    prompt_tokens: int
    completion_tokens: int
    thinking: str = ""
    """What the model thought before it said `text`."""
    tool_calls: tuple[ToolCall, ...] = ()
    malformed: str = ""
    """What looked like tool calls and could not be read; it is in `text` too."""
    stop_sequence: str | None = None
    """The one of `SampleWanted.stop` before which `text` ends."""
    cached_tokens: int | None = None
    """Prompt tokens in the sampler's cache; None where it doesn't report that."""


@dataclass(frozen=True, slots=True)
class CompletionFailed:
    """No completion: the prompt is too long for the model, or the policy failed, refuses it, is too
    slow for the trial, or can't do what is asked."""

    request: int
    trial: str
    kind: Literal["context_overflow", "provider_error", "refused", "too_slow", "unsupported"]
    reason: str
    prompt_tokens: int = 0
    """How many a prompt that is too long has; 0: unknown."""
    context_limit: int = 0


@dataclass(frozen=True, slots=True)
class CompletionDelayed:
    """The policy is out of order, so that request number `request` can't be answered for now, or
    it is asked again (`delayed` False). Waiting for it meanwhile is not the agent's time."""

    request: int
    trial: str
    delayed: bool = True
    waited_sec: float = 0.0
    """How long it was so before this was known."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Asks the worker to end: finish nothing, clean up everything, exit."""


ToWorker = (
    StartTrial
    | ControlTrial
    | TypeKeys
    | WriteToAgent
    | Completion
    | CompletionFailed
    | CompletionDelayed
    | Shutdown
)

# worker -> engine


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """Harbor is imported; trials may start."""

    pid: int
    harbor_version: str


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    trial: str
    phase: TrialPhase
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SampleWanted:
    """The agent wants a completion: the whole conversation, the newest message last.

    `turn` counts the main agent's calls from 1, repeated calls after a truncated completion
    included: no two calls with the purpose "turn" share a number. A call that is no turn of the
    main agent (summarisation) names itself in `purpose`.
    """

    request: int
    """Unique among all workers of a pool."""
    trial: str
    turn: int
    messages: tuple[Message, ...]
    purpose: str = "turn"
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    one_tool_call: bool = False
    """What comes after the first tool call is cut off."""
    stop: tuple[str, ...] = ()
    """Texts before which the answer ends."""
    max_tokens: int | None = None
    """The most that the completion may have, besides the run's setting."""
    count_only: bool = False
    """Only the prompt's tokens are asked for: nothing is sampled, nothing recorded."""


@dataclass(frozen=True, slots=True)
class SampleAbandoned:
    """The agent didn't wait for the answer to the call of this turn, or didn't take it."""

    trial: str
    turn: int


@dataclass(frozen=True, slots=True)
class SideCallSeen:
    """The call of this turn has no tools, beside a conversation that has them."""

    trial: str
    turn: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The state before a turn is kept; with an `error`, why it is not."""

    trial: str
    turn: int
    written: int = 0
    """Bytes that it takes on the host."""
    total: int = 0
    """Bytes of all files in it."""
    programs: tuple[str, ...] = ()
    """What ran beside the terminal and its shell."""
    not_at_prompt: str = ""
    seconds: float = 0.0
    removed: tuple[int, ...] = ()
    """Turns whose snapshots made room for it."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ForkReached:
    """A fork stands where it was to begin, or could not get there."""

    trial: str
    report: ForkReport


@dataclass(frozen=True, slots=True)
class TurnUnderstood:
    """What Terminus-2 read in the completion. After an `error` nothing is executed."""

    trial: str
    turn: int
    analysis: str
    plan: str
    commands: tuple[AgentCommand, ...]
    task_complete: bool
    error: str | None
    warning: str | None


@dataclass(frozen=True, slots=True)
class TurnSeen:
    """The terminal after the turn's commands, as the next prompt will show it."""

    trial: str
    turn: int
    observation: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PauseEntered:
    trial: str
    frozen: bool = False
    """Within a turn, with the sandbox's processes stopped."""


@dataclass(frozen=True, slots=True)
class PauseLeft:
    trial: str


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The trial stands at a turn boundary, and a person may type in its terminal."""

    trial: str


@dataclass(frozen=True, slots=True)
class GivenBack:
    trial: str


@dataclass(frozen=True, slots=True)
class KeysTyped:
    """Keys that were typed; with an `error`, not all that were asked for."""

    trial: str
    command: str
    parts: tuple[Typed, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Demonstrated:
    """What a person typed in place of the agent's next answer."""

    trial: str
    turn: int
    """The one that the agent would have taken."""
    messages: tuple[Message, ...]
    """What the agent would have been asked then: its conversation, without a word of the person."""
    typed: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class AgentWritten:
    """A message that the next prompt has; with an `error`, that it has not."""

    trial: str
    command: str
    text: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class ControlRefused:
    """The trial can't do that; the reason is one line for the person who asked."""

    trial: str
    verb: ControlVerb
    reason: str
    past_holding: bool = False
    """Its agent acts no more: that it was not held makes no difference."""


@dataclass(frozen=True, slots=True)
class VerdictCheck:
    """The result of checking a verdict of 0 in a fresh sandbox."""

    works: bool
    """The verifier works there: the 0 is the agent's."""
    evidence: str
    """What seemed wrong, one line."""
    control: ControlAgent
    """What it was compared with."""
    unusable: UnusableKind | None = None
    """What of the task makes another attempt, in the same environment, end the same way."""
    solution_fails: bool = False
    """The verifier worked, and the task's own solution earns no more here."""


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """Everything that is known of a trial that ended; `outcome.decide` makes an outcome of it."""

    finish: FinishReason
    turns: int
    verdict: float | None
    """The verifier's `reward`; None when it never spoke."""
    exception_type: str | None
    """Class name of the exception that ended the trial, if any."""
    exception_message: str | None
    failed_phase: FailedPhase | None
    """Where the exception was raised; None when there was none."""
    last_parse_error: str | None
    """Set when the agent's last completion could not be read."""
    seconds: PhaseSeconds
    verifier_output: str = ""
    """The end of what the verifier printed."""
    last_truncated: bool = False
    """The agent's last completion was cut at max_tokens."""
    human_touched: bool = False
    """A person typed in its terminal, or wrote to its agent."""
    human_wrote: bool = False
    """A person wrote to its agent."""
    offline: bool = False
    """Its sandbox had no network."""
    verifier_fault: VerifierFault | None = None
    """What in the verifier's output says that it could not work: a suspicion, see there."""
    within_sandbox: bool = False
    """There is no verdict, for a reason that lies in the sandbox and nowhere else: where the same
    verifier works in a fresh one, it is the agent's doing."""
    verdict_check: VerdictCheck | None = None
    """What a fresh sandbox said of the verdict, if it was asked."""
    untouched_verdict: float | None = None
    """What the verifier says of a sandbox that no agent has touched, where the agent has prevented
    a verdict; None: nothing, or it was not asked."""
    unusable: UnusableKind | None = None
    """What of the task another attempt would meet as well: an environment that can't be built, or
    a verifier whose rewards name no verdict."""
    given_back_sec: float = 0.0
    """Seconds of the agent's budget that a starved machine kept from it and that were added again.
    """
    fork: ForkReport | None = None
    """How a fork's state was reached; None: it is no fork, or was not reached."""
    agent_uninstalled: str = ""
    """Why the agent's program can't be had in any trial, one line that says what to do."""
    overflow: str = ""
    """Which prompt was too long for the policy, one line."""
    damage: str = ""
    """What the agent has done to its sandbox, so that a verifier can't run there: `used up its
    disk`."""
    program_failure: str = ""
    """How the agent's program failed, once a call was answered."""


@dataclass(frozen=True, slots=True)
class TrialDone:
    trial: str
    facts: TrialFacts


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life, once a second."""

    rss_mb: float = 0.0
    """Resident memory of the worker."""
    left_behind: int = 0
    """Trials that were given up because their sandbox hangs, and that still hold it."""


FromWorker = (
    WorkerReady
    | PhaseEntered
    | SampleWanted
    | ForkReached
    | SnapshotTaken
    | SampleAbandoned
    | SideCallSeen
    | TurnUnderstood
    | TurnSeen
    | PauseEntered
    | PauseLeft
    | TakenOver
    | GivenBack
    | KeysTyped
    | Demonstrated
    | AgentWritten
    | ControlRefused
    | TrialDone
    | Heartbeat
)
