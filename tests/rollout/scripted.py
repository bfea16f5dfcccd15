"""A scripted policy and what surrounds it: real workers, real trials, answers from a list."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from tbtui.chat import ToolCall
from tbtui.rollout.messages import (
    Completion,
    CompletionFailed,
    EnvironmentSpec,
    FromWorker,
    SampleWanted,
    TrialDone,
    TrialFacts,
    TrialSpec,
    WorkerReady,
)
from tbtui.rollout.pool import WorkerId, WorkerLostInfo, WorkerPool

SANDBOX = EnvironmentSpec(None, "tbtui.rollout.environments.sandbox:SandboxEnvironment")


@dataclass(frozen=True)
class Cut:
    """A completion that hit max_tokens."""

    text: str


@dataclass(frozen=True)
class Thought:
    """A completion that begins with thinking; `text` None: it hit max_tokens before it answered."""

    thinking: str
    text: str | None


@dataclass(frozen=True)
class Fail:
    """No completion."""

    kind: Any
    reason: str = "as scripted"


@dataclass(frozen=True)
class Calls:
    """A completion that calls a tool."""

    text: str
    name: str
    arguments: Mapping[str, object]


class Silence:
    """No answer at all."""


Answer = str | Cut | Thought | Calls | Fail | Silence
Script = Sequence[Answer]


def act(*keystrokes: str, done: bool = False, duration: float = 0.05, **extra: object) -> str:
    """An answer as Terminus-2 wants it."""
    commands = [{"keystrokes": keys, "duration": duration} for keys in keystrokes]
    answer: dict[str, object] = {"analysis": "a", "plan": "p", "commands": commands, **extra}
    if done:
        answer["task_complete"] = True
    return json.dumps(answer)


DONE = act(done=True)
HELLO = act("echo hi > /app/hello.txt\n")


def sh(block: str) -> str:
    """An answer as `agent=shell` wants it."""
    return f"```bash\n{block}\n```"


@dataclass(frozen=True)
class Form:
    """How the answers of an agent that acts in the trial's terminal are written."""

    agent: str
    act: Callable[[str], str]
    """An answer that enters this line."""
    done: str
    confirms: int
    """How often it has to say so."""

    @property
    def hello(self) -> str:
        return self.act("echo hi > /app/hello.txt")


FORMS = [
    Form("terminus-2", lambda line: act(f"{line}\n"), DONE, 2),
    Form("shell", sh, "DONE", 1),
]


@dataclass
class Seen:
    """What a trial's messages were, in order."""

    messages: list[FromWorker] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def of[M](self, kind: type[M]) -> list[M]:
        return [message for message in self.messages if isinstance(message, kind)]


class ScriptedEngine:
    """Answers every trial's requests from its script; the last answer repeats."""

    def __init__(self, log_dir: Path, n_workers: int = 1, **options: Any) -> None:
        self.log_dir = log_dir
        self.seen: dict[str, Seen] = defaultdict(Seen)
        self.lost: list[WorkerLostInfo] = []
        self.workers: list[tuple[WorkerId, FromWorker]] = []
        self._scripts: dict[str, list[Answer]] = {}
        self._any = asyncio.Event()
        self.pool = WorkerPool(n_workers, log_dir, self._on_message, self._on_lost, **options)

    def start(self, spec: TrialSpec, script: Script) -> None:
        # Of two tests with one name, in two files, the second would take the first one's end.
        assert not self.seen[spec.trial].of(TrialDone), f"{spec.trial} has been run before"
        self._scripts[spec.trial] = list(script)
        self.pool.start_trial(spec)

    async def run(self, spec: TrialSpec, script: Script) -> TrialFacts:
        self.start(spec, script)
        return await self.facts(spec.trial)

    async def facts(self, trial: str) -> TrialFacts:
        done = await self.wait_for(trial, TrialDone)
        return done.facts

    async def wait_for[M](
        self, trial: str, kind: type[M], where: Callable[[M], bool] = lambda _: True
    ) -> M:
        """The first message of that kind from the trial, past or future."""
        return await self.until(lambda: next(filter(where, self.seen[trial].of(kind)), None))

    async def until[T](self, condition: Callable[[], T | None]) -> T:
        """Look again after every message until there is something."""
        while (found := condition()) is None:
            self._any.clear()
            wait = asyncio.ensure_future(self._any.wait())
            await asyncio.wait((wait, self.pool.failed), return_when=asyncio.FIRST_COMPLETED)
            wait.cancel()
            if self.pool.failed.done():
                self.pool.failed.result()
        return found

    async def until_ready(self, workers: int) -> None:
        """Wait until so many workers have said that they are ready."""
        await self.until(
            lambda: sum(isinstance(m, WorkerReady) for _, m in self.workers) >= workers or None
        )

    def _on_message(self, worker: WorkerId, message: FromWorker) -> None:
        trial = getattr(message, "trial", None)
        if trial is None:
            self.workers.append((worker, message))
        else:
            self.seen[trial].messages.append(message)
        if isinstance(message, SampleWanted):
            self._answer(message)
        self._any.set()

    def _on_lost(self, info: WorkerLostInfo) -> None:
        self.lost.append(info)
        self._any.set()

    def _answer(self, wanted: SampleWanted) -> None:
        script = self._scripts[wanted.trial]
        answer = script.pop(0) if len(script) > 1 else script[0]
        thinking = ""
        calls: tuple[ToolCall, ...] = ()
        match answer:
            case Silence():
                return
            case Fail(kind, reason):
                self.pool.reply(CompletionFailed(wanted.request, wanted.trial, kind, reason))
                return
            case Cut(text):
                truncated = True
            case Calls(text, name, arguments):
                calls = (ToolCall(f"call_{wanted.request}", name, json.dumps(arguments)),)
                truncated = False
            case Thought(thinking, said):
                text, truncated = said or "", said is None
            case text:
                truncated = False
        prompt = sum(len(message.content) for message in wanted.messages) // 4
        drawn = len(thinking + text) // 4
        self.pool.reply(
            Completion(
                wanted.request,
                wanted.trial,
                text,
                truncated,
                prompt,
                drawn,
                thinking=thinking,
                tool_calls=calls,
            )
        )


def make_spec(name: str, task: Path, folder: Path, **changes: Any) -> TrialSpec:
    settings: dict[str, Any] = {
        "trial": "".join(c if c.isalnum() else "-" for c in name),
        "task_dir": task,
        "trials_dir": folder / "trials",
        "environment": SANDBOX,
        "model_name": "scripted/model",
        "max_turns": 6,
        "budget_sec": 60.0,
        "context_limit": 32_768,
        "max_tokens": 512,
    }
    return TrialSpec(**{**settings, **changes})


def changed(spec: TrialSpec, **changes: Any) -> TrialSpec:
    return replace(spec, **changes)


def boxes(worker: int | None = None) -> list[psutil.Process]:
    """The processes that rollout workers have started and that still live."""
    root = psutil.Process(worker) if worker is not None else psutil.Process()
    family = root.children(recursive=True)
    if worker is None:
        family = [p for p in family if "tbtui.rollout.worker" not in " ".join(p.cmdline())]
    return alive(family)


def alive(family: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
