"""The embedded policy's chat format, and Terminus-2's fixed texts in it.

    <|user|> text <|end|> <|asst|> text <|end|> <|user|> text <|end|> <|asst|>

A system message is rendered as a user's. What the assistant said is never encoded again when its
token ids are at hand (`extend`), so the conversation always starts with exactly what was sampled.

The tokenizer has one token for each of Terminus-2's fixed texts, so that a first prompt of 3,000
characters is some thirty tokens. That works only while Harbor's texts are what they were when the
tokenizer was made: `check_installed_harbor` finds out, without importing Harbor.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path

from tbtui.policies.base import Answer, Message, PolicyError
from tbtui.policies.local.tokenizer import TOKENIZER, LocalTokenizer

PROMPT = "root@box:/app#"
STATE_HEADING = "\n\nCurrent terminal state:\n"
CONFIRM_HEADING = "Current terminal state:\n"
CONFIRM_QUESTION = (
    "\n\nAre you sure you want to mark the task as complete? This will trigger your solution to "
    "be graded and you won't be able to make any further corrections. If so, include "
    '"task_complete": true in your JSON response again.'
)
ERRORS_HEADING = "Previous response had parsing errors:\nERROR: "
ERRORS_REQUEST = "\n\nPlease fix these issues and provide a proper JSON response."
WARNINGS_HEADING = "Previous response had warnings:\nWARNINGS: "

_TEMPLATE = "agents/terminus_2/templates/terminus-json-plain.txt"
_PLACEHOLDERS = ("{instruction}", "{terminal_state}")
# What the source must still say for the texts above and the substitutions below to be right.
_SOURCE_FRAGMENTS = {
    "agents/terminus_2/terminus_2.py": (
        'f"Current terminal state:\\n{terminal_output}\\n\\n"',
        '"Are you sure you want to mark the task as complete? "',
        '"This will trigger your solution to be graded and you won\'t be able to "',
        "'make any further corrections. If so, include \"task_complete\": true '",
        '"in your JSON response again."',
        'f"Previous response had parsing errors:\\n{feedback}\\n\\n"',
        'f"Please fix these issues and provide a proper "',
    ),
    "agents/terminus_2/tmux_session.py": (
        'f"New Terminal Output:\\n{new_content}"',
        'f"Current Terminal Screen:\\n{visible_screen}"',
    ),
}

# An instruction file ends with a newline, so the heading comes after two or three of them.
# Looked for from its first newline on alone, here and below, or long runs would take for ever.
_EXTRA_NEWLINES = re.compile(r"(?<!\n)\n{2,}Current terminal state:\n")
# How Terminus-2 came by the text doesn't matter to the policy.
_SCREEN_LABEL = re.compile(r"^(?:New Terminal Output|Current Terminal Screen):\n+", re.MULTILINE)
# A captured pane is filled up with blank rows to its height.
_BLANK_ROWS = re.compile(
    r"(?<!\s)\s+(?=\Z|\n\nAre you sure you want to mark the task as complete\?)"
)
# A container's host name is a random number.
_SHELL_PROMPT = re.compile(r"^[\w.-]+@[\w.-]+:(?=[/~]\S*[#$](?:\s|\Z))", re.MULTILINE)


class LocalRenderer:
    """Implements `tbtui.policies.base.Renderer`. Can be pickled."""

    def __init__(self, tokenizer: LocalTokenizer) -> None:
        self.tokenizer = tokenizer

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return self.extend((), messages, 0)

    def extend(
        self, history: Sequence[int], messages: Sequence[Message], known: int
    ) -> tuple[int, ...]:
        tokenizer = self.tokenizer
        ids = list(history)
        if ids and ids[-1] != tokenizer.end_id:
            ids.append(tokenizer.end_id)  # a completion that was cut off at its limit
        for message in messages[known:]:
            if message.role == "assistant":
                ids += [tokenizer.assistant_id, *tokenizer.encode(message.content)]
            else:
                ids += [tokenizer.user_id, *tokenizer.encode(normalise(message.content))]
            ids.append(tokenizer.end_id)
        return (*ids, tokenizer.assistant_id)

    def answer(self, completion_ids: Sequence[int]) -> Answer:
        return Answer(self.tokenizer.decode(completion_ids))

    def spell(self, text: str) -> tuple[int, ...]:
        return (*self.tokenizer.encode(text), self.tokenizer.end_id)

    def pieces(self, token_ids: Sequence[int]) -> list[str]:
        return self.tokenizer.pieces(token_ids)


class EmbeddedRenderer(LocalRenderer):
    """The same for a server of that model; implements `tbtui.policies.base.ChatRenderer`."""

    def __init__(self) -> None:
        super().__init__(LocalTokenizer(TOKENIZER))
        self.stop_ids: tuple[int, ...] = (self.tokenizer.end_id,)
        self.digest: str | None = self.tokenizer.digest
        self.vocab_size: int | None = self.tokenizer.vocab_size
        self.notes: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[type[EmbeddedRenderer], tuple[()]]:
        return type(self), ()


def normalise(observation: str) -> str:
    """A user message of Terminus-2 in the plain form that the policy was warmed up on."""
    text = _EXTRA_NEWLINES.sub(STATE_HEADING, observation, count=1)
    text = _SCREEN_LABEL.sub("", text, count=1)
    text = _BLANK_ROWS.sub("", text)
    return _SHELL_PROMPT.sub("root@box:", text)


def harbor_directory() -> Path:
    """Where Harbor is installed. Raises `PolicyError` when it isn't."""
    spec = importlib.util.find_spec("harbor")
    if spec is None or spec.origin is None:
        raise PolicyError("Harbor is not installed; reinstall tbtui")
    return Path(spec.origin).parent


def read_template(directory: Path) -> str:
    """Terminus-2's first prompt, with its two placeholders, as the model sees it."""
    try:
        text = (directory / _TEMPLATE).read_text(encoding="utf-8")
    except OSError as error:
        raise _drift(f"{_TEMPLATE} can't be read: {error.strerror}") from error
    return text.replace("{{", "{").replace("}}", "}")


def preamble_of(template: str) -> str:
    """Everything before the instruction. Raises `PolicyError` for an unknown layout."""
    preamble, found, rest = template.partition(_PLACEHOLDERS[0])
    heading, found_state, tail = rest.partition(_PLACEHOLDERS[1])
    if not (found and found_state) or heading != STATE_HEADING or tail.strip():
        raise _drift(f"{_TEMPLATE} is laid out in another way")
    return preamble


def check_installed_harbor(known_preamble: str) -> None:
    """Raises `PolicyError` when Harbor's texts are not those that the tokenizer knows."""
    directory = harbor_directory()
    if preamble_of(read_template(directory)) != known_preamble:
        raise _drift(f"{_TEMPLATE} has changed")
    for name, fragments in _SOURCE_FRAGMENTS.items():
        try:
            source = (directory / name).read_text(encoding="utf-8")
        except OSError as error:
            raise _drift(f"{name} can't be read: {error.strerror}") from error
        for fragment in fragments:
            if fragment not in source:
                raise _drift(f"{name} no longer says {fragment}")


def _drift(what: str) -> PolicyError:
    return PolicyError(
        f"the installed Harbor's Terminus-2 is not the one the embedded policy was made for "
        f"({what}): install the Harbor version in uv.lock, or make a new tokenizer and checkpoint "
        f"in a checkout of tbtui, with `python -m tests.by_hand.starter model DIRECTORY`"
    )
