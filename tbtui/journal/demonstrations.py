"""What a person typed in a trial, kept as an answer that the agent could have given: `demos/`.

A file holds one demonstration: the conversation up to where the person took over, token for token,
and what was typed then as the commands of one answer. The engine writes it; people edit, accept or
drop it, in the app, with `tbtui demos` or with an editor, while the run is live or later. Only what
somebody has accepted is trained on.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from tbtui.chat import Message
from tbtui.errors import UserError
from tbtui.journal.commands import Typed
from tbtui.journal.events import AgentCommand
from tbtui.journal.rundir import RunDirectory
from tbtui.paths import read_plain, replace_file

Status = Literal["pending", "accepted", "dropped"]

_SUFFIX = ".json"
_IDS = re.compile(rb'"prompt_ids": \[[^\]]*\]')
_NAME = re.compile(r"[A-Za-z0-9._-]+")
DEFAULT_SEC = 0.1
"""What an agent that knows its shell waits after a command."""


class DemonstrationError(UserError):
    """A demonstration can't be read, found or used; the message is one line for a person."""


class DemonstratedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer in the fields of Terminus-2's JSON; people read and edit every agent's so."""

    analysis: str = ""
    plan: str = ""
    commands: tuple[AgentCommand, ...] = ()
    task_complete: bool = False


class Reviewed(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody decided upon it."""

    time: float
    actor: str
    status: Status
    edited: bool = False


class Demonstration(msgspec.Struct, frozen=True, kw_only=True):
    """One demonstration, as its file holds it."""

    trial: str
    task: str
    turn: int
    """The turn whose place it takes: the agent's next one."""
    step: int
    actor: str
    """Who typed."""
    time: float
    messages: tuple[Message, ...]
    """The conversation, up to the prompt that it answers."""
    prompt_ids: tuple[int, ...]
    """The same in tokens, as the policy would have been asked."""
    tokenizer: str | None
    """Digest of the tokenizer; None: unknown."""
    answer: DemonstratedAnswer
    agent: str = "terminus-2"
    """In whose form the answer is trained on."""
    compact: bool = True
    """The agent writes its JSON on one line."""
    status: Status = "pending"
    reviews: tuple[Reviewed, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.trial}-t{self.turn}"

    @property
    def prompt(self) -> str:
        """The last message: what the person had before them."""
        return self.messages[-1].content if self.messages else ""

    def reviewed(
        self, status: Status, actor: str, answer: DemonstratedAnswer | None = None
    ) -> Demonstration:
        """The same after a person's decision, with another answer where one is given."""
        edited = answer is not None and answer != self.answer
        review = Reviewed(time=time.time(), actor=actor, status=status, edited=edited)
        return msgspec.structs.replace(
            self,
            status=status,
            answer=answer if answer is not None else self.answer,
            reviews=(*self.reviews, review),
        )

    @property
    def text(self) -> str:
        """The answer as the agent would have written it."""
        if self.agent == "shell":
            return shell_text(self.answer)
        return answer_text(self.answer, compact=self.compact)


class Demonstrations:
    """The demonstrations of one run, a file for each."""

    def __init__(self, run: RunDirectory) -> None:
        self.directory = run.path / "demos"

    def readable(self) -> tuple[list[Demonstration], list[DemonstrationError]]:
        """Those that can be read, the oldest first, and why others can't be."""
        found: list[Demonstration] = []
        problems: list[DemonstrationError] = []
        if self.directory.is_symlink():
            return [], [self._is_link()]
        for file in sorted(self.directory.glob(f"*{_SUFFIX}")):
            try:
                found.append(_read(file))
            except DemonstrationError as error:
                problems.append(error)
        return sorted(found, key=lambda each: (each.time, each.id)), problems

    def all(self) -> list[Demonstration]:
        """The oldest first. Raises `DemonstrationError`."""
        found, problems = self.readable()
        if problems:
            raise problems[0]
        return found

    def read(self, id: str) -> Demonstration:
        """The one of this id. Raises `DemonstrationError`."""
        return _read(self._file(id))

    def find(self, name: str) -> Demonstration:
        """By its id, or what only one id begins with. Raises `DemonstrationError`."""
        known = self.all()
        found = [each for each in known if each.id == name] or [
            each for each in known if each.id.startswith(name)
        ]
        if len(found) == 1:
            return found[0]
        if not known:
            raise DemonstrationError(f"{name}: this run has no demonstrations ({self.directory})")
        names = ", ".join(each.id for each in (found or known)[:5])
        what = "several demonstrations begin so" if found else "no such demonstration"
        raise DemonstrationError(f"{name}: {what}: {names}")

    def write(self, demonstration: Demonstration) -> None:
        """Put it into its place, whole. Raises `DemonstrationError`."""
        path = self._file(demonstration.id)
        content = msgspec.json.format(msgspec.json.encode(demonstration), indent=1)
        # Thousands of ids, each in a line of its own, are in the way of a person with an editor.
        content = _IDS.sub(lambda found: b" ".join(found[0].split()), content)
        if self.directory.is_symlink():
            raise self._is_link()
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            replace_file(path, content)
        except OSError as error:
            raise DemonstrationError(f"{path}: {error.strerror}") from error

    def _is_link(self) -> DemonstrationError:
        return DemonstrationError(f"{self.directory}: a link, which is not followed")

    def _file(self, id: str) -> Path:
        return self.directory / f"{id}{_SUFFIX}"


def _read(path: Path) -> Demonstration:
    try:
        found = msgspec.json.decode(read_plain(path), type=Demonstration)
    except OSError as error:
        raise DemonstrationError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DemonstrationError(f"{path}: no demonstration: {error}") from error
    if not _NAME.fullmatch(found.id) or found.id != path.stem:
        raise DemonstrationError(f"{path}: it is of {found.id!r}; a file has the name of its trial")
    return found


def answer_object(answer: DemonstratedAnswer) -> dict[str, Any]:
    """The fields of Terminus-2's JSON."""
    return {
        "analysis": answer.analysis,
        "plan": answer.plan,
        "commands": [
            {"keystrokes": each.keystrokes, "duration": each.duration_sec}
            for each in answer.commands
        ],
        "task_complete": answer.task_complete,
    }


def answer_text(answer: DemonstratedAnswer, *, compact: bool) -> str:
    """Terminus-2's JSON."""
    return json.dumps(answer_object(answer), ensure_ascii=False, indent=None if compact else 2)


def shell_text(answer: DemonstratedAnswer) -> str:
    """The form of `agent=shell`: a block, and the word that ends a trial."""
    block = "".join(each.keystrokes for each in answer.commands).strip("\n")
    parts = [f"```bash\n{block}\n```"] * bool(block) + ["DONE"] * answer.task_complete
    return "\n".join(parts)


def is_shell_block(commands: Sequence[AgentCommand]) -> bool:
    """Whether `agent=shell` could have given these commands: lines, and no single keys."""
    return all(each.keystrokes.endswith("\n") for each in commands)


def read_answer(text: str) -> DemonstratedAnswer:
    """An answer that a person has edited. Raises `DemonstrationError`."""
    try:
        match json.loads(text):
            case {"commands": list(commands), **rest} if set(rest) <= {
                "analysis",
                "plan",
                "task_complete",
            }:
                return DemonstratedAnswer(
                    analysis=_text(rest.get("analysis", ""), "analysis"),
                    plan=_text(rest.get("plan", ""), "plan"),
                    commands=tuple(_command(each) for each in commands),
                    task_complete=rest.get("task_complete") is True,
                )
            case dict(others):
                known = {"analysis", "plan", "commands", "task_complete"}
                extra = ", ".join(map(str, others.keys() - known))
                why = f"unknown: {extra}" if extra else '"commands" is missing'
                raise DemonstrationError(f"the answer: {why}")
    except json.JSONDecodeError as error:
        raise DemonstrationError(
            f"the answer is no JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from error
    except (RecursionError, ValueError) as error:  # thousands of brackets, or of digits
        raise DemonstrationError(f"the answer can't be read: {error}") from error
    raise DemonstrationError("the answer is no JSON object")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise DemonstrationError(f"the answer: {name} is no text")
    return value


def _command(value: object) -> AgentCommand:
    match value:
        case {"keystrokes": str(keys), **rest} if set(rest) <= {"duration"}:
            seconds = rest.get("duration", DEFAULT_SEC)
            if isinstance(seconds, int | float) and 0 <= seconds <= 3600:
                return AgentCommand(keystrokes=keys, duration_sec=float(seconds))
    raise DemonstrationError(
        f'the answer: {str(value)[:60]!r} is no command like {{"keystrokes": "ls\\n", "duration":'
        " 0.1}"
    )


def commands_of(typed: Sequence[Typed], seconds: float = DEFAULT_SEC) -> tuple[AgentCommand, ...]:
    """What was typed, as an agent's commands: a line that was entered is one, and so is each
    special key, by tmux's name.

    What was rubbed out at the end of a line before it was entered is left out.

    Args:
        seconds: how long each is waited for.
    """
    commands: list[str] = []
    line = ""
    for part in typed:
        match part.kind, part.text:
            case "key", "Enter":
                commands.append(f"{line}\n")
                line = ""
            case "key", "BSpace" if line:
                line = line[:-1]
            case "key", "C-u" if line:
                line = ""
            case "key", "Space":
                line += " "
            case "key", name if len(name) == 1:
                line += name
            case "key", name:
                commands += [line, name] if line else [name]
                line = ""
            case _:
                line += part.text
    if line:
        commands.append(line)
    return tuple(AgentCommand(keystrokes=each, duration_sec=seconds) for each in commands)
