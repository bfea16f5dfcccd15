"""Agents of our own, named as `module:Class`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, override

from harbor.agents import terminus_2
from harbor.agents.base import BaseAgent
from harbor.agents.installed.base import BaseInstalledAgent
from harbor.environments.base import BaseEnvironment

LOOP = Path(__file__).with_name("loop_in_box.py")
TERMINAL_LOOP = Path(__file__).with_name("terminal_loop.py")


class Program(BaseAgent):
    """Runs shell commands in the sandbox: `first` to set up, then `then`, where `loop` is a whole
    agent (`loop_in_box.py`)."""

    def __init__(
        self,
        *args: Any,
        first: str = ":",
        then: str = 'loop "$TASK"',
        logs: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if logs:
            self.logger.info(logs)
        self._first = first
        self._then = then

    @staticmethod
    @override
    def name() -> str:
        return "program"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        await environment.upload_file(LOOP, "/opt/loop.py")
        result = await environment.exec(self._first)
        if result.return_code != 0:
            raise RuntimeError(f"not set up: {result.stderr}")

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: Any) -> None:
        loop = 'loop() { python3 /opt/loop.py "$1"; }'
        command = f"TASK={shlex.quote(instruction)}; {loop}; {self._then}"
        result = await environment.exec(command)
        if result.return_code != 0:
            raise RuntimeError(f"it ended with {result.return_code}: {result.stderr}")


class Installed(BaseInstalledAgent):
    """A program that its set-up installs, of Harbor's kind; it prints what tells one install from
    another."""

    def __init__(self, *args: Any, install: str = ":", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._install = install

    @staticmethod
    @override
    def name() -> str:
        return "installed"

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        await environment.upload_file(LOOP, "/opt/loop.py")
        await self.exec_as_root(
            environment, f"cat /proc/sys/kernel/random/uuid > /opt/stamp; {self._install}"
        )

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: Any) -> None:
        command = f"echo stamp: $(cat /opt/stamp); python3 /opt/loop.py {shlex.quote(instruction)}"
        await self.exec_as_agent(environment, command)

    @override
    def populate_context_post_run(self, context: Any) -> None:
        pass


class TerminalLoop(BaseAgent):
    """Terminus-2's loop, run in the sandbox (`terminal_loop.py`) instead of here."""

    @staticmethod
    @override
    def name() -> str:
        return "terminal-loop"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        texts = Path(terminus_2.__file__).parent
        for source in (
            TERMINAL_LOOP,
            texts / "terminus_json_plain_parser.py",
            texts / "templates" / "terminus-json-plain.txt",
        ):
            await environment.upload_file(source, f"/opt/loop/{source.name}")

    @override
    async def run(self, instruction: str, environment: BaseEnvironment, context: Any) -> None:
        words = ["/opt/loop/terminus-json-plain.txt", instruction]
        result = await environment.exec(f"python3 /opt/loop/terminal_loop.py {shlex.join(words)}")
        if result.return_code != 0:
            raise RuntimeError(result.stderr)
