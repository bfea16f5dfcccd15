"""What `agent=shell` says to a model, and how it reads what the model answers. Pure.

A model of a few hundred million parameters keeps to no form for long. Whatever can mean only one
thing is taken for that, and what was forgiven is recorded with the turn, and is no part of the next
prompt, whose every word costs context.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DONE = "DONE"
"""The word that ends a trial, on a line of its own."""
STOP = ("\nTask:", "\nNew Terminal Output:", "\nCurrent terminal state:")
"""What only a model writes that plays the terminal's part, or the next task's, too."""
UNREADABLE = f"there is no ```bash block, and no {DONE}"

# The task comes last, as in the examples: a small model goes on with what it has read last. By this
# layout `view/prompt.py` finds the instruction.
_PROMPT = f"""\
Solve the task in a bash terminal. Answer with one block of commands, like this:

```bash
ls
```

Then you see what they print, and answer again. Once the task is done, answer with the word {DONE}.

Current terminal state:
{{terminal_state}}

{{examples}}Task: {{instruction}}
"""


def prompt_template(examples: str = "") -> str:
    """The first prompt, with `{instruction}` and `{terminal_state}` to be filled in."""
    shown = f"Examples:\n\n{examples.strip()}\n\n" if examples.strip() else ""
    return _PROMPT.replace("{examples}", shown.replace("{", "{{").replace("}", "}}"))


def example_text(instruction: str, block: str, screen: str) -> str:
    """A task with its solution, as the prompt shows it."""
    return f"Task: {instruction.strip()}\n```bash\n{block}\n```\n{screen.strip()}\n{DONE}\n"


def without_own(examples: str, instruction: str) -> str:
    """The examples but that of the task itself, whose prompt would tell its solution."""
    own = f"Task: {instruction.strip()}\n"
    return "".join(e for e in re.split(r"(?m)^(?=Task: )", examples) if not e.startswith(own))


def holds_examples(text: str) -> bool:
    """Whether a file's text has an example in it: a task, and a block of commands."""
    return "Task:" in text and any(_tag(each) in _SHELLS for each in _BLOCK.finditer(text))


# A fence, what is in it, and the fence that closes it, if one does.
_BLOCK = re.compile(
    r"^[ \t]*```[ \t]*(?P<tag>[\w+-]*)(?P<beside>[^\n`]*)(?:\n(?P<body>.*?))?"
    r"(?:^[ \t]*(?P<end>```)[^\n]*|\Z)",
    re.MULTILINE | re.DOTALL,
)
_FENCE = re.compile(r"^[ \t]*```[ \t]*(?:bash|sh)?[ \t]*$", re.MULTILINE)
_TAG_BELOW = re.compile(r"\s*(?:bash|sh|shell)[ \t]*\n(?=.*\S)", re.DOTALL)
_ON_ONE_LINE = re.compile(r"`+(?:bash[ \t]|sh[ \t])?(?P<body>[^`\n]+)`+")
_SHELLS = ("bash", "", "sh", "shell", "console", "zsh", "terminal", "shell-session", "bash-session")
_PROMPT_SIGN = re.compile(r"^\s*(?:\[?[\w.-]+@[\w.-]+[: ]?\S*\s?[#$]|\$)[ \t]+(?=\S)")
_DONE_ELSE = re.compile(r"\W*DONE\W*|\W*[Dd]one\W*")
_HERE = re.compile(rf"<<-?\s*['\"]?{DONE}\b")
_PROSE = re.compile(r"\w[.:!?]$")
_SHELL_SIGNS = re.compile(r"[|&;<>$'\"=*]|\s-")
_NAMES = (
    "apt apt-get awk basename bash bunzip2 bzip2 cat cd chgrp chmod chown cmp comm cp curl cut date"
    " dd df diff dirname du echo env export file find gcc git grep gunzip gzip head hostname id"
    " install join jq kill less ln ls make mkdir mktemp mv nl node npm od paste patch perl pip pip3"
    " printf ps pwd pytest python python3 readlink rm rmdir rsync sed seq sh sha256sum shuf sleep"
    " sort source split sqlite3 stat strings sudo tac tail tar tee test touch tr tree true truncate"
    " type uname uniq unzip wc wget which whoami xargs xxd xz yes zip"
)
_COMMANDS = frozenset(_NAMES.split())
"""First words by which a line outside a block is a command, and no sentence."""


@dataclass(frozen=True, slots=True)
class ShellAnswer:
    """What an answer means."""

    block: str = ""
    """Commands, without the last line end; empty: none."""
    done: bool = False
    around: str = ""
    """What else it says."""
    forgiven: tuple[str, ...] = ()
    """In what it keeps to another form than the one that is asked for."""
    whole: bool = False
    """Nothing that comes after what was read can change it, so it may be cut off there."""

    @property
    def readable(self) -> bool:
        return bool(self.block) or self.done


def read_answer(text: str) -> ShellAnswer:
    """What an answer means; not `readable` where nothing in it looks like a command or `DONE`.

    Of several blocks the first is taken: the others were written without having seen what it
    prints. A `DONE` behind the second block is of that one, and doesn't count.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks = [found for found in _BLOCK.finditer(text) if _body(found).strip()]
    ours = [found for found in blocks if _tag(found) in _SHELLS or _is_command(_tag(found))]
    if not ours:
        return _without_block(_FENCE.sub("", text))
    found = ours[0]
    after = next((each.start() for each in blocks if each.start() > found.start()), len(text))
    around = _FENCE.sub("", f"{text[: found.start()]}\n{text[found.end() : after]}")
    forgiven = list(_form(found, len(blocks)))
    lines, said = _commands(_TAG_BELOW.sub("", _body(found)))
    forgiven += said
    done, rest, how = _done(around.splitlines())
    forgiven += how
    if lines and lines[-1].strip() == DONE and not _HERE.search("\n".join(lines)):
        lines, done = lines[:-1], True
        forgiven.append(f"{DONE} in the block")
    if rest:
        forgiven.append("text around the block")
    block = textwrap.dedent("\n".join(lines)).strip("\n").rstrip()
    if not any(line.strip() and not line.lstrip().startswith("#") for line in block.splitlines()):
        block = ""
    return ShellAnswer(
        block, done, "\n".join(rest), tuple(forgiven), whole=bool(block and found["end"])
    )


def _tag(found: re.Match[str]) -> str:
    return found["tag"].lower()


def _is_command(tag: str) -> bool:
    """Whether commands begin where a block's language should stand."""
    return tag in _COMMANDS and tag not in ("python", "python3", "perl", "node", "awk", "sed", "jq")


def _form(found: re.Match[str], blocks: int) -> Iterable[str]:
    tag = _tag(found)
    if tag != "bash":
        yield f"the block is tagged {tag}" if tag in _SHELLS and tag else "the block is not tagged"
    if _TAG_BELOW.match(_body(found)):
        yield "the tag on a line of its own"
    if found["end"] is None:
        yield "the block is not closed"
    if found["beside"].strip():
        yield "commands beside the fence"
    if blocks > 1:
        yield f"{blocks} blocks, of which the first counts"


def _body(found: re.Match[str]) -> str:
    beside, body = found["beside"].strip(), found["body"] or ""
    first = f"{found['tag']} {beside}".strip() if _tag(found) not in _SHELLS else beside
    return f"{first}\n{body}" if first else body


def _commands(body: str) -> tuple[list[str], list[str]]:
    """The lines to be typed, and what was forgiven: of a session with its prompts, what was typed
    at these."""
    lines = body.splitlines()
    typed = [_PROMPT_SIGN.sub("", line) for line in lines if _PROMPT_SIGN.match(line)]
    return (typed, ["prompts before the commands"]) if typed else (lines, [])


def _done(lines: Sequence[str]) -> tuple[bool, list[str], list[str]]:
    """Whether they say that the task is done, what else they say, and what was forgiven."""
    rest = [line for line in lines if line.strip() and line.strip() != DONE]
    if len(rest) < len([line for line in lines if line.strip()]):
        return True, rest, []
    marked = [line for line in rest if DONE in line and _DONE_ELSE.fullmatch(line)]
    if marked:
        return True, [line for line in rest if line not in marked], [f"{DONE} with signs around it"]
    return False, rest, []


def _without_block(text: str) -> ShellAnswer:
    lines = [line for line in text.splitlines() if line.strip()]
    done, rest, forgiven = _done(lines)
    if not done and len(lines) == 1 and _DONE_ELSE.fullmatch(lines[0]):
        return ShellAnswer(done=True, forgiven=(f"{lines[0].strip()[:20]} for {DONE}",))
    typed = list(_bare(rest))
    if typed:
        forgiven.append("no block")
        others = [line for line in rest if _bare_command(line) not in typed]
    else:
        others = rest
    if others:
        forgiven.append("text around")
    block = "\n".join(typed)
    whole = done and not typed and text.rfind("\n") > text.find(DONE)
    return ShellAnswer(block, done, "\n".join(others), tuple(forgiven), whole)


def _bare(lines: Sequence[str]) -> Iterable[str]:
    """The first run of lines that are commands."""
    begun = False
    for line in lines:
        if command := _bare_command(line):
            begun = True
            yield command
        elif begun:
            return


def _bare_command(line: str) -> str:
    """The command that a line outside a block is; empty where it is none."""
    line = line.strip()
    if found := _ON_ONE_LINE.fullmatch(line):
        return found["body"].strip()
    if _PROMPT_SIGN.match(line):
        return _PROMPT_SIGN.sub("", line)
    first = line.split(maxsplit=1)[0]
    known = first in _COMMANDS or first.startswith(("./", "/"))
    prose = _PROSE.search(line) and not _SHELL_SIGNS.search(line)
    return line if known and not prose else ""
