"""Whatever is said over a run's control socket, by several at once, in whatever order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, get_args

from tbtui.engines.control.address import connect
from tbtui.engines.control.client import ControlClient
from tbtui.engines.control.protocol import Accepted, Answer, Refused
from tbtui.journal.commands import RUN, Command
from tbtui.journal.events import TrialQueued
from tbtui.vocabulary import CommandVerb
from tests.ui.hostile import HOSTILE

from .bench import LiveRun
from .conftest import Ctl

VERBS: Sequence[CommandVerb] = get_args(CommandVerb)
NAMES = ("", "ada", "bob", "timeout", "rule:x", "eve\x1b[2J")
ARGUMENTS: Sequence[dict[str, Any]] = (
    *({}, {"reward": 1}, {"reward": None}, {"reward": float("inf")}, {"reward": "1"}),
    *({"reward": True}, {"reward": 10**400}, {"step": 1}, {"step": -1}, {"step": "1"}),
    *({"step": True}, {"step": [1]}, {"input": []}, {"input": [{"text": "ls"}]}),
    *({"input": [{"key": "Enter"}]}, {"input": [{"key": "rm"}]}, {"input": "ls"}),
    *({"input": [{"paste": HOSTILE[2]}]}, {"input": [{"text": "x" * 20_000}]}, {"stay": True}),
    *({"thaw": True}, {"thaw": "yes"}, {"max_steps": 900}, {"max_steps": "many"}),
    *({"eval_every": 0}, {"max_retries": 2}, {"review": "always"}, {"review": "off"}),
    *({"n_parallel_envs": 6}, {"n_parallel_envs": 0}, {"n_parallel_envs": 3}, {"group_size": 9}),
    *({"review_rules": "/nowhere"}, {"review_rules": "\x00"}, {"at_deadline": HOSTILE[1]}),
    *({"from": "x", "exclusive": True}, {"nested": [[[[[[]]]]]]}, {"": ""}),
)
LINES = (
    *(b"\n", b"{}\n", b"null\n", b"[" * 5_000 + b"\n", b"\xff\xfe\n", b"x" * 70_000 + b"\n"),
    *(b'{"do":"hello","version":1}\n{"do":"ask"}\n', b'{"do":"hello","version":99}\n'),
    *(b'{"do":"hello","version":1,"name":"\\ud800"}\n', b'{"do":"hello"', b""),
    b'{"do":"hello","version":1}\n{"do":"ask","id":"1","verb":"stop","target":"run","command":"no"}\n',
    b'{"do":"hello","version":1,"viewer":true}\n{"do":"take","id":"' + b"9" * 100 + b'"}\n',
)
CTL: Sequence[tuple[str, ...]] = (
    *(("run", "list"), ("run", "show"), ("trial", "list", "--ended"), ("task", "list")),
    *(("policy", "show"), ("config", "show"), ("config", "show", "max_steps")),
    *(("config", "show", "nothing"), ("trial", "show", "TRIAL"), ("trial", "events", "TRIAL")),
    *(("run", "pause"), ("run", "resume"), ("run", "freeze"), ("run", "accept")),
    *(("run", "accept", "--step", "1"), ("run", "stop", "r", "--dry-run"), ("run", "stop")),
    *(("trial", "pause", "TRIAL"), ("trial", "resume", "TRIAL"), ("trial", "stop", "TRIAL")),
    *(("trial", "cancel", "TRIAL"), ("trial", "retry", "TRIAL"), ("trial", "exclude", "TRIAL")),
    *(("trial", "include", "TRIAL"), ("trial", "accept", "TRIAL"), ("trial", "take-over", "TRIAL")),
    *(("trial", "give-back", "TRIAL"), ("trial", "type", "TRIAL", "ls", "--enter")),
    *(("trial", "type", "TRIAL", "--keys", "C-c"), ("trial", "type", "TRIAL", "--keys", "rm")),
    *(("trial", "relabel", "TRIAL", "--reward", "0.5", "--reason", "so"), ("trial", "relabel")),
    *(("trial", "relabel", "TRIAL", "--reward", "nan"), ("trial", "relabel", "TRIAL", "--verdict")),
    *(("group", "refill", "GROUP"), ("config", "set", "max_steps=800"), ("config", "set", "x=1")),
    *(("config", "set", "max_steps"), ("config", "set", "eval_every=0", "max_retries=1")),
    *(("nonsense",), ("trial",), ("trial", "pause"), ("trial", "list", "--run", "nowhere")),
)


class Crowd:
    """Several who ask a run for things at once, for as long as a walk lasts."""

    def __init__(self, run: LiveRun, ctl: Ctl, seed: int) -> None:
        self._run = run
        self._ctl = ctl
        self._rng = random.Random(seed)
        self.accepted: list[str] = []
        """Numbers of the commands that the run has taken."""
        self.said: list[str] = []
        """What was wrong with an answer."""

    async def rage(self, rounds: int) -> None:
        async with asyncio.TaskGroup() as crowd:
            crowd.create_task(self._script(rounds))
            for who in range(2):
                crowd.create_task(self._caller(rounds, random.Random(self._rng.random() + who)))
                crowd.create_task(self._viewer(rounds, random.Random(self._rng.random() + who)))
            crowd.create_task(self._vandal(rounds, random.Random(self._rng.random())))

    async def _script(self, rounds: int) -> None:
        """`tbtui ctl`, whose exit status is 0, 1 or 2."""
        rng = random.Random(self._rng.random())
        for _ in range(rounds):
            given = [self._named(word, rng) for word in rng.choice(CTL)]
            manner = rng.choice(((), ("--no-wait",), ("--timeout", "0.2"), ("--dry-run",)))
            result = await self._ctl(*given, *manner)
            if not isinstance(result.exception, SystemExit | None):
                self.said.append(f"ctl {given} {manner}: {result.exception!r}")
            if result.exit_code not in (0, 1, 2) or "Traceback" in result.output:
                self.said.append(f"ctl {given} {manner}: {result.exit_code}, {result.output}")

    async def _caller(self, rounds: int, rng: random.Random) -> None:
        """Sends commands one after the other, without waiting; each gets one answer."""
        for _ in range(rounds):
            client, _ = await ControlClient.open(self._run.directory, rng.choice(NAMES[:3]))
            asked = [client.send(self._command(rng)) for _ in range(rng.randint(1, 8))]
            await self._hear(client, asked)
            client.close()

    async def _viewer(self, rounds: int, rng: random.Random) -> None:
        """Joins, takes the controls or not, asks, and leaves with or without a word."""
        for _ in range(rounds):
            client, _ = await ControlClient.open(self._run.directory, "ada", viewer=True)
            if rng.random() < 0.7:
                client.send_take(if_free=rng.random() < 0.3, exclusive=rng.random() < 0.3)
            asked = [client.send(self._command(rng)) for _ in range(rng.randint(0, 5))]
            if rng.random() < 0.7:
                await self._hear(client, asked)
            if rng.random() < 0.3:
                client.send_release()
            if rng.random() < 0.3:
                client._writer.transport.abort()
            client.close()

    async def _vandal(self, rounds: int, rng: random.Random) -> None:
        """Says what nobody understands."""
        for _ in range(rounds):
            connection = await asyncio.to_thread(connect, self._run.directory.control_socket)
            reader, writer = await asyncio.open_unix_connection(sock=connection)
            writer.write(rng.choice(LINES))
            if rng.random() < 0.5:
                writer.write_eof()
                while await reader.read(1 << 16):
                    pass
            writer.close()
            await asyncio.sleep(0.01)

    async def _hear(self, client: ControlClient, asked: Sequence[str]) -> None:
        """One answer to each."""
        waited = dict.fromkeys(asked, 0)
        async with asyncio.timeout(60):
            while not all(waited.values()):
                match answer := await client.receive():
                    case None:
                        self.said.append(f"the connection was closed: {waited}")
                        return
                    case Accepted(id=id) | Refused(id=id) if id in waited:
                        waited[id] += 1
                        self._keep(answer)
                    case Refused(id=""):
                        self.said.append(f"not understood: {answer}")
                        return
                    case _:
                        pass  # told to all, or about the controls
        if set(waited.values()) - {1}:
            self.said.append(f"answered more than once: {waited}")

    def _keep(self, answer: Answer) -> None:
        if isinstance(answer, Accepted) and answer.command:
            self.accepted.append(answer.command)

    def _command(self, rng: random.Random) -> Command:
        """Anything but what ends the run."""
        verb = rng.choice(VERBS)
        target = self._named(rng.choice(("TRIAL",) * 6 + ("GROUP", "RUN", "nobody")), rng)
        if verb == "stop" and target == RUN:
            verb = "resume"
        reason = rng.choice(("", "because", *HOSTILE[:7]))[:900]
        return Command(verb, target, reason=reason, arguments=rng.choice(ARGUMENTS))

    def _named(self, word: str, rng: random.Random) -> str:
        trials = self._run.events(TrialQueued)
        newest = trials[-8:] if rng.random() < 0.9 else trials
        match word:
            case "TRIAL":
                return rng.choice(newest).trial
            case "GROUP":
                return rng.choice(newest).group
            case "RUN":
                return RUN
            case _:
                return word
