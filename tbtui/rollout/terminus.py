"""Terminus-2 as Harbor ships it, with the engine's policy as its model and a gate at each turn.

`GatedTerminus` is plugged into a Harbor trial by import path. It changes nothing about what the
model is shown or how its answers are read. What it adds:

- every call to the model goes through the trial's link, and waits at the gate first;
- the time budget counts active seconds only;
- why the run ended is known exactly, and a run that the policy ended badly is still verified;
- files that Harbor writes into the agent's directory are put there by renaming, because the
  agent can write to that directory and could have planted a link to a file of the host.

The private parts of Harbor that this relies on are listed in `seam.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, override

from harbor.agents.terminus_2.terminus_2 import Command, Terminus2
from harbor.agents.terminus_2.tmux_session import TmuxSession
from harbor.environments.base import BaseEnvironment
from harbor.llms.base import BaseLLM, ContextLengthExceededError, LLMResponse
from harbor.llms.chat import Chat
from harbor.models.trajectories import Step
from harbor.models.trial.paths import EnvironmentPaths

from tbtui.chat import Message
from tbtui.journal.events import AgentCommand, TrialPhase
from tbtui.rollout.ending import PolicyFailedError, out_of_time, require_answers
from tbtui.rollout.environments.base import PANE_LOG, SandboxError, SandboxLostError
from tbtui.rollout.environments.snapshots import KeepsStates
from tbtui.rollout.forking import ForkPartedError, ForkPoint, ForkReport
from tbtui.rollout.held_sandbox import HeldSandbox
from tbtui.rollout.link import LINK, AgentEnded
from tbtui.rollout.linked_llm import GuardedParser, LinkedLLM, history_of, scrub
from tbtui.rollout.messages import (
    Demonstrated,
    FinishReason,
    ForkReached,
    TurnSeen,
    TurnUnderstood,
)
from tbtui.rollout.recording import Recording
from tbtui.rollout.reexecution import SETTLE_SEC, TYPED_MEANWHILE, Reexecution
from tbtui.rollout.session import GatedExec, GatedSession, TerminalStuckError
from tbtui.rollout.states import States, restored, show_restored

IMPORT_PATH = "tbtui.rollout.terminus:GatedTerminus"
PANE_WIDTH = 160
PANE_HEIGHT = 40
WRITTEN = "A message from the user:"

_DUMP_EVERY_SEC = 5.0
_FIRST_SCREEN_SEC = 5.0
_LAST_LOOK_SEC = 5.0
_LOOK_EVERY_SEC = 0.1

_log = logging.getLogger(__name__)


class AgentBrokenError(Exception):
    """The agent ran into a time limit that is not its budget."""


class GatedTerminus(Terminus2):
    """Terminus-2 under tbtui's control. Must be built where `LINK` is set."""

    # No provider is ever called. Harbor 0.25 and later would import litellm to find out which one.
    MODEL_CONNECTION = None  # type: ignore[assignment]  # a class variable of Harbor 0.26

    def _parse_model_name(self, model_name: str) -> tuple[str | None, str]:
        provider, slash, name = model_name.partition("/")
        return (provider, name) if slash else (None, model_name)

    def __init__(self, logs_dir: Path, *args: Any, **kwargs: Any) -> None:
        self._link = LINK.get()
        self._states: States | None = None
        self._last_dump = time.monotonic()
        self._running = False
        self._confirmed = False
        self._acting_since: float | None = None
        self._linked_llm = self._make_llm()
        super().__init__(logs_dir, *args, **kwargs)

    @override
    def _init_llm(self, *args: Any, **kwargs: Any) -> BaseLLM:
        return self._linked_llm

    def _make_llm(self) -> LinkedLLM:
        return LinkedLLM(self._link)

    def _make_parser(self) -> GuardedParser:
        return GuardedParser(super()._get_parser())  # type: ignore[no-untyped-call]

    @override
    def _get_parser(self) -> GuardedParser:
        self._guarded = self._make_parser()
        return self._guarded

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        link = self._link
        link.stage = "agent_setup"
        link.enter(TrialPhase.SETUP, "terminal")
        link.watch.enter("setup")
        self._environment = environment
        self._sandbox = HeldSandbox(environment, link.spec.environment.kwargs)
        self._session = session = GatedSession(
            self.name(),
            GatedExec(environment, link, self._sandbox),
            link,
            logging_path=EnvironmentPaths.agent_dir / PANE_LOG,
            pane_width=PANE_WIDTH,
            pane_height=PANE_HEIGHT,
            extra_env=self._extra_env,
            user=environment.default_user,
        )
        await show_restored(link, environment, PANE_HEIGHT)
        await session.start()
        link.keyboard.attach(session)
        if link.spec.snapshots is not None and isinstance(environment, KeepsStates):
            self._states = States(link.spec.snapshots, link, environment, session)
        paths = environment.trial_paths
        pane = paths.agent_dir / PANE_LOG
        link.begin_recording(
            Recording(
                pane,
                paths.trial_dir / "recording.cast",
                width=PANE_WIDTH,
                height=PANE_HEIGHT,
                first_screen=await first_screen(session, pane),
            )
        )

    def _live_session(self) -> GatedSession:
        if self._session is None:
            raise RuntimeError("the agent has no terminal yet")
        return cast(GatedSession, self._session)

    @override
    async def _run_agent_loop(
        self, initial_prompt: str, chat: Chat, original_instruction: str = ""
    ) -> None:
        """Run until the agent is done or ended.

        Returning lets Harbor verify; raising makes it skip the verifier.

        Raises:
            PolicyFailedError, SandboxLostError, AgentBrokenError: nothing to verify.
        """
        link, budget, session = self._link, self._link.budget, self._live_session()
        self._running = True
        self._confirmed = False
        link.control.attach(self._sandbox)
        try:
            if link.spec.origin is not None:
                initial_prompt = await self._reach(link.spec.origin, initial_prompt, chat)
            async with budget.spending():
                await super()._run_agent_loop(initial_prompt, chat, original_instruction)
                finish = await self._why_returned()
            link.notes.end(finish)
        except AgentEnded as ended:
            link.notes.end(ended.finish, ended.reason)
            if ended.unanswered:
                raise PolicyFailedError(ended.reason) from None
        except ContextLengthExceededError as error:
            link.notes.end("context_overflow", str(error))
        except TimeoutError as error:
            if link.control.ending is None and not budget.spent:
                # As a TimeoutError Harbor would take it for the agent's own time-out.
                link.notes.end("error", str(error))
                raise AgentBrokenError(f"an operation timed out: {error}") from error
            await out_of_time(link, self._environment)
            link.notes.end(link.control.ending or "budget")
            await self._look_once_more(session)
        except TerminalStuckError as error:
            await require_answers(self._link, self._environment)
            link.notes.end("terminal_ended", str(error))
        except SandboxLostError:
            link.notes.end("sandbox_lost")
            raise
        except ForkPartedError as error:
            link.notes.end("parted", str(error))
            raise
        except Exception as error:
            link.notes.end("error", str(error))
            raise
        finally:
            self._running = False
            await link.control.detach()

    async def _reach(self, origin: ForkPoint, first_prompt: str, chat: Chat) -> str:
        """Bring terminal and conversation to where a fork begins; returns its first prompt.

        Raises:
            ForkPartedError: its recorded keys lead elsewhere.
        """
        link, session = self._link, self._live_session()
        began, report = time.monotonic(), ForkReport("start")
        link.enter(TrialPhase.SETUP, "fork")

        async def execute(commands: Sequence[AgentCommand]) -> str:
            sent = [Command(c.keystrokes, c.duration_sec) for c in commands]
            return (await self._send(sent, session))[1]

        async def look() -> str:
            return self._limit_output_length(await session.get_incremental_output())

        try:
            with link.watch.during("setup"):
                if (snapshot := link.notes.restored) is not None:
                    report = await restored(session, origin, snapshot)
                again = Reexecution(link, session, execute, look)
                report = await again.run(origin, report, first_prompt)
        except ForkPartedError as error:
            report = error.report
            raise
        finally:
            report = replace(report, seconds=time.monotonic() - began)
            link.notes.fork = report
            link.post(ForkReached(link.spec.trial, report))
        link.notes.turns = origin.turn - 1
        self._pending_completion = origin.pending_completion
        messages = [(each.role, scrub(each.content)) for each in origin.messages]
        chat.messages.extend({"role": role, "content": content} for role, content in messages)
        self._trajectory_steps[:] = [
            Step(
                step_id=number,
                timestamp=datetime.now(UTC).isoformat(),
                source="user" if role == "user" else "agent",
                message=content,
                is_copied_context=True,
            )
            for number, (role, content) in enumerate(messages, 1)
        ] or self._trajectory_steps
        return origin.prompt or first_prompt

    async def _look_once_more(self, session: GatedSession) -> None:
        """Show how far the commands came that the end of the run has cut off."""
        if self._acting_since is None:
            return
        try:
            async with asyncio.timeout(_LAST_LOOK_SEC):
                screen = await session.get_incremental_output()
        except (TimeoutError, SandboxError) as error:
            _log.info("%s: no last look: %s", self._link.spec.trial, error)
        else:
            self._seen(self._limit_output_length(screen))

    async def _why_returned(self) -> FinishReason:
        """Terminus-2 returns when done, when out of turns, and when its terminal is gone."""
        if self._confirmed:
            return "completed"
        if await self._live_session().is_session_alive():
            return "max_turns"
        await require_answers(self._link, self._environment)
        return "terminal_ended"

    @override
    async def _handle_llm_interaction(
        self,
        chat: Chat,
        prompt: str,
        original_instruction: str = "",
        session: TmuxSession | None = None,
    ) -> tuple[list[Command], bool, str, str, str, LLMResponse]:
        # Here, and not in the call alone: what is added must be in the chat's history too.
        try:
            await self._link.boundary()
        finally:
            self._demonstrated(chat, prompt)
        if self._link.keyboard.news:
            prompt += await self._news()
        if self._link.messages:
            prompt += self._said_by_person()
        async with self._state_kept():
            understood = await super()._handle_llm_interaction(
                chat, prompt, original_instruction, session
            )
        # Typed when this turn's prompt was made already: no answer to any that was seen.
        self._link.keyboard.take_typed()
        commands, complete, feedback, analysis, plan, _ = understood
        link, notes, result = self._link, self._link.notes, self._guarded.last
        if notes.last_truncated:
            # Cut off right after a summary: Terminus-2 goes on with an answer of its own making,
            # and what the policy's answer was worth is journalled already.
            self._confirmed = False
            return understood
        # Terminus-2 goes by this mark, not by the parser's error.
        error = (result.error or feedback) if "ERROR:" in feedback else None
        notes.last_parse_error = error
        self._confirmed = complete and error is None and self._pending_completion
        link.post(
            TurnUnderstood(
                link.spec.trial,
                notes.turns,
                analysis,
                plan,
                tuple(
                    AgentCommand(keystrokes=c.keystrokes, duration_sec=c.duration_sec)
                    for c in commands
                ),
                complete,
                error,
                result.noted or None,
            )
        )
        return understood

    def _demonstrated(self, chat: Chat, prompt: str) -> None:
        """Report what a person has typed in the place of an answer to `prompt`."""
        link = self._link
        if typed := link.keyboard.take_typed():
            messages = (*history_of(chat.messages), Message("user", prompt))
            link.post(Demonstrated(link.spec.trial, link.notes.turns + 1, messages, typed))

    @contextlib.asynccontextmanager
    async def _state_kept(self) -> AsyncIterator[None]:
        """Take the snapshot of the turn that begins, while the policy is asked."""
        turn = self._link.notes.turns + 1
        if self._states is None or not self._states.due(turn):
            yield
            return
        taking = asyncio.create_task(self._states.take(turn), name="snapshot")
        try:
            yield
            await taking
        finally:
            taking.cancel()

    def _said_by_person(self) -> str:
        """What a person has written to the agent since its last prompt."""
        messages, self._link.messages = self._link.messages, []
        said = "".join(f"\n\n{WRITTEN}\n\n{text}" for text in messages)
        self._add_user_step(said.strip())
        return said

    def _add_user_step(self, message: str) -> None:
        self._trajectory_steps.append(
            Step(
                step_id=len(self._trajectory_steps) + 1,
                timestamp=datetime.now(UTC).isoformat(),
                source="user",
                message=message,
            )
        )

    async def _news(self) -> str:
        """The agent's next observation, after a person has typed in its terminal.

        Raises:
            AgentEnded: the person has ended it.
        """
        session = self._live_session()
        self._link.keyboard.news = False
        if not await session.is_session_alive():
            await require_answers(self._link, self._environment)
            raise AgentEnded("terminal_ended", "a person ended the terminal")
        await self._link.budget.sleep(SETTLE_SEC)
        screen = self._limit_output_length(await session.get_incremental_output())
        news = f"{TYPED_MEANWHILE}\n\n{screen}"
        self._add_user_step(news)
        return f"\n\n{news}"

    @override
    async def _execute_commands(
        self, commands: list[Command], session: TmuxSession
    ) -> tuple[bool, str]:
        self._link.enter(TrialPhase.ACTING)
        self._acting_since = self._link.budget.active()
        timed_out, observation = await self._send(commands, session)
        self._seen(observation)
        return timed_out, observation

    async def _send(self, commands: list[Command], session: TmuxSession) -> tuple[bool, str]:
        """Send keys; whether they timed out, and what is new in the terminal."""
        try:
            return await self._perform(commands, session)
        except RuntimeError as error:
            if isinstance(error, SandboxError):
                raise
            # tmux refused the keys. Either the terminal is gone, which the loop finds out next,
            # or they are such keys as no terminal takes, which is for the policy to mend.
            if not await session.is_session_alive():
                return False, ""
            _log.info("%s: keys refused: %s", self._link.spec.trial, error)
            screen = self._limit_output_length(await session.get_incremental_output())
            return False, f"The terminal refused these keys.\n{screen}"

    async def _perform(self, commands: list[Command], session: TmuxSession) -> tuple[bool, str]:
        return await super()._execute_commands(commands, session)

    def _seen(self, observation: str) -> None:
        link, since = self._link, self._acting_since
        self._acting_since = None
        # Time given back meanwhile may be more than it took.
        seconds = max(0.0, link.budget.active() - since) if since is not None else 0.0
        link.post(TurnSeen(link.spec.trial, link.notes.turns, observation, seconds))

    @override
    async def _check_proactive_summarization(
        self, chat: Chat, original_instruction: str, session: TmuxSession
    ) -> Any:
        # Where not even an empty context has that many free tokens, Terminus-2 would put the bare
        # instruction in the place of its first prompt, which says how to answer.
        if not chat.messages:
            return None
        return await super()._check_proactive_summarization(chat, original_instruction, session)

    @override
    async def _run_subagent(self, *args: Any, **kwargs: Any) -> Any:
        self._linked_llm.purpose = f"summarize-{kwargs['filename_suffix']}"
        try:
            return await super()._run_subagent(*args, **kwargs)
        finally:
            self._linked_llm.purpose = None

    @override
    def _count_total_tokens(self, chat: Chat) -> int:
        # litellm's counter knows no tokenizer of ours; the last completion tells the ratio.
        chars = sum(len(message["content"]) for message in chat.messages)
        return int(chars / self._linked_llm.chars_per_token)

    @override
    def _dump_trajectory(self) -> None:
        # Each dump writes the whole trajectory, and Terminus-2 dumps every turn.
        if self._running and time.monotonic() - self._last_dump < _DUMP_EVERY_SEC:
            return
        self._last_dump = time.monotonic()
        with self._staged_logs():
            super()._dump_trajectory()

    @override
    def _save_subagent_trajectory(self, *args: Any, **kwargs: Any) -> Any:
        with self._staged_logs():
            return super()._save_subagent_trajectory(*args, **kwargs)

    @contextlib.contextmanager
    def _staged_logs(self) -> Iterator[None]:
        agent_dir = self.logs_dir
        with tempfile.TemporaryDirectory(dir=agent_dir.parent, prefix=".logs-") as staging:
            self.logs_dir = Path(staging)
            try:
                yield
            finally:
                self.logs_dir = agent_dir
            for file in Path(staging).iterdir():
                if file.stat().st_size == 0:  # Harbor logs what went wrong
                    continue
                try:
                    file.replace(agent_dir / file.name)
                except OSError as error:
                    _log.warning("%s: %s not stored: %s", agent_dir, file.name, error)


async def first_screen(session: GatedSession, pane: Path) -> str:
    """The screen once the shell has shown its prompt; without that the first prompt is blank.

    Looking costs a command in the sandbox, so the pane's log is watched where it can be seen.
    """
    began = time.monotonic()
    looked = began
    while time.monotonic() - began < _FIRST_SCREEN_SEC:
        await asyncio.sleep(0.01)
        if _has_content(pane) or time.monotonic() - looked > _LOOK_EVERY_SEC:
            screen = await session.capture_pane()
            if screen.strip():
                return screen
            looked = time.monotonic()
    return await session.capture_pane()


def _has_content(path: Path) -> bool:
    try:
        return path.lstat().st_size > 0
    except OSError:
        return False
