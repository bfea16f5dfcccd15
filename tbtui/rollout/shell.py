"""A small agent for small models: a block of bash per turn, its output back, `DONE` ends it.

It is Terminus-2's loop with another prompt, another parser and another way to wait, so a trial of
it is paused, frozen, typed in, forked, written to and stopped as one of Terminus-2.

The model names no waits. After the keys of a block the agent waits until the shell is at its prompt
again and the screen stands still, at most for `_LONGEST_SEC` or a quarter of the trial's time.
What still runs then goes on; whatever keeps the shell from its prompt when the next block comes is
interrupted first, for a model that writes commands alone has no ctrl-c.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast, override

from harbor.agents.terminus_2.terminus_2 import Command
from harbor.agents.terminus_2.tmux_session import TmuxSession
from harbor.environments.base import BaseEnvironment
from harbor.llms.base import LLMResponse
from harbor.llms.chat import Chat

from tbtui.journal.commands import Typed
from tbtui.rollout.linked_llm import CleanCommand, GuardedParser, LinkedLLM, Parser, Understood
from tbtui.rollout.session import GatedSession, Look
from tbtui.rollout.shell_format import STOP, UNREADABLE, prompt_template, read_answer
from tbtui.rollout.terminus import GatedTerminus

IMPORT_PATH = "tbtui.rollout.shell:ShellAgent"
_LONGEST_SEC = 60.0
"""As Terminus-2 waits for a command at most."""
_UNCHANGED_SEC = 0.5
"""After which a screen that shows nothing new is what the block has left: `clear`, for one."""
_INTERRUPTED_SEC = 0.5
_FIRST_PAUSE_SEC, _LONGEST_PAUSE_SEC = 0.01, 0.2
_MOST_LOOKS = 20
_MOST_BYTES = 10_000
"""As Terminus-2 shows of an output at most."""
_LEAST_BYTES = 400
_BYTES_PER_TOKEN = 3
_RUNNING = "(still running; the next commands interrupt it)"
_WAITS_FOR_MORE = "(the command is not complete; the next commands cancel it)"


class ShellParser(Parser):
    """Reads answers for Terminus-2's loop; what was forgiven is the result's `warning`."""

    @override
    def parse_response(self, response: str) -> Understood:
        answer = read_answer(response)
        if not answer.readable:
            return Understood([], False, UNREADABLE, "")
        commands = [CleanCommand(f"{answer.block}\n", 0.0)] if answer.block else []
        return Understood(commands, answer.done, "", "; ".join(answer.forgiven), answer.around)


class ShellAgent(GatedTerminus):
    """The agent of `agent=shell`. Must be built where `LINK` is set."""

    def __init__(self, logs_dir: Path, *args: Any, **kwargs: Any) -> None:
        super().__init__(logs_dir, *args, **{**kwargs, "enable_summarize": False})
        spec = self._link.spec
        self._prompt_template = prompt_template(spec.agent_examples)
        self._patience_sec = min(_LONGEST_SEC, spec.budget_sec / 4)
        # A quarter of the context, so that a few outputs fit into it.
        shown = spec.context_limit * _BYTES_PER_TOKEN // 4
        self._most_bytes = max(_LEAST_BYTES, min(_MOST_BYTES, shown))

    @staticmethod
    @override
    def name() -> str:
        return "shell"

    @override
    def version(self) -> str | None:
        return "1"

    @override
    def _make_llm(self) -> LinkedLLM:
        return LinkedLLM(self._link, STOP, lambda text: read_answer(text).whole)

    @override
    def _make_parser(self) -> GuardedParser:
        return GuardedParser(ShellParser(), tells=False)

    @override
    def _get_error_response_type(self) -> str:
        return "answer"

    @override
    def _limit_output_length(self, output: str, max_bytes: int = _MOST_BYTES) -> str:
        # The empty rest of a screen is tokens, too.
        return super()._limit_output_length(output.rstrip(), min(max_bytes, self._most_bytes))

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        await super().setup(environment)
        # What the terminal begins with is its prompt, once the shell's own start is over.
        terminal, clock = self._live_session(), self._link.budget
        self._idle = await terminal.look()
        for _ in range(_MOST_LOOKS):
            await clock.sleep(_FIRST_PAUSE_SEC)
            before, self._idle = self._idle, await terminal.look()
            if self._idle == before:
                break

    @override
    async def _handle_llm_interaction(
        self,
        chat: Chat,
        prompt: str,
        original_instruction: str = "",
        session: TmuxSession | None = None,
    ) -> tuple[list[Command], bool, str, str, str, LLMResponse]:
        # As if it had been asked to confirm: its word ends the trial at once.
        self._pending_completion = True
        return await super()._handle_llm_interaction(chat, prompt, original_instruction, session)

    @override
    async def _perform(self, commands: list[Command], session: TmuxSession) -> tuple[bool, str]:
        terminal = cast(GatedSession, session)
        left = ""
        for command in commands:
            left = await self._run_block(command.keystrokes, terminal)
        seen = self._limit_output_length(await terminal.get_incremental_output())
        return False, f"{seen}\n{left}".rstrip()

    async def _run_block(self, keystrokes: str, terminal: GatedSession) -> str:
        """Type a block and wait for its end; what is to be said where it didn't come to one."""
        before = await self._at_prompt(terminal)
        # Pasted: a tab is a tab, and the shell shows no prompt between two lines.
        await terminal.type(Typed("paste", keystrokes.rstrip("\n")))
        await terminal.type(Typed("key", "Enter"))
        return await self._settled(terminal, before, self._patience_sec)

    async def _at_prompt(self, terminal: GatedSession) -> Look:
        """What the terminal shows, once what keeps the shell from its prompt is interrupted."""
        now = await terminal.look()
        for key in ("C-c", "C-\\"):
            if self._is_idle(now):
                break
            await terminal.type(Typed("key", key))
            await self._settled(terminal, now, _INTERRUPTED_SEC)
            now = await terminal.look()
        return now

    async def _settled(self, terminal: GatedSession, before: Look, most_sec: float) -> str:
        """Wait until the shell is at its prompt; what is to be said where it isn't."""
        clock = self._link.budget
        began, pause = clock.active(), _FIRST_PAUSE_SEC
        last: Look | None = None
        while True:
            now, waited = await terminal.look(), clock.active() - began
            if now == last and (now != before or waited > _UNCHANGED_SEC):
                if self._is_idle(now):
                    return ""
                if self._wants_more(now):
                    return _WAITS_FOR_MORE
            if waited > most_sec:
                return _RUNNING
            last = now
            await clock.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE_SEC)

    def _is_idle(self, look: Look) -> bool:
        """Whether the shell waits at its prompt, as it did when the trial began.

        A script has its shell's name, so the prompt's last sign counts too.
        """
        sign = self._idle.before_cursor.rstrip()[-1:]
        return look.program == self._idle.program and look.before_cursor.rstrip().endswith(sign)

    def _wants_more(self, look: Look) -> bool:
        """Whether the shell waits for the rest of a quote, or of a here-document."""
        return look.program == self._idle.program and look.before_cursor.strip() == ">"
