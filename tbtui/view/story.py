"""The story of a trial in one line: what it tried, where it turned, why it ended.

Made from commands, what the terminal showed and what the verifier wrote; no model is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tbtui.journal.events import TrialFinished
from tbtui.outcomes import Outcome
from tbtui.terminal import both_ends, without_escapes
from tbtui.view.prompt import named_files
from tbtui.view.shell_actions import CHANGES, LOOKS, Action, actions
from tbtui.view.transcript import PERSON, TO_AGENT, Transcript, TurnView

LONGEST = 240
"""Characters of a story, at most."""
_PART = 100
"""Characters of one of its parts."""
_NAME = 40
_NAMES = 3
"""Objects of one phrase that are named; the others are counted."""
_PHRASES = 4
"""Phrases on what was tried; those between the first and the last ones are left out."""
_TURNS = 400
"""Turns that are read; of a longer trial the first and the last ones."""
_LOOP = 3
"""Times from which on the same command again is a loop."""


@dataclass(frozen=True, slots=True)
class Story:
    """A trial's story in three lines without control characters, any of which may be empty."""

    tried: str = ""
    turned: str = ""
    """The first error, a loop, or what else went another way than was meant."""
    ended: str = ""
    """Empty while it runs."""

    @property
    def line(self) -> str:
        """All of it, of at most `LONGEST` characters."""
        return self.within(LONGEST)

    def within(self, width: int) -> str:
        """All that has room in `width` characters; why it ended stays longest."""
        parts = [part for part in (self.tried, self.turned, self.ended) if part]
        whole = "; ".join(parts)
        if len(whole) <= width:
            return whole
        if self.turned and self.ended:
            return Story(self.tried, "", self.ended).within(width)
        room = width - len(self.ended) - 2
        if self.tried and self.ended and room >= _NAME // 2:
            return f"{_clipped(self.tried, room)}; {self.ended}"
        return _clipped(self.ended or whole, width)


def tell(transcript: Transcript, instruction: str = "") -> Story:
    """The story so far. `instruction` adds what was asked for and never touched.

    Never raises, whatever was typed and written; reads the first and last `_TURNS` turns.
    """
    turns = _read(transcript.turns)
    commands = [command.keystrokes for turn in turns for command in turn.commands]
    parsed = {keystrokes: actions(keystrokes) for keystrokes in commands}
    did = [action for keystrokes in commands for action in parsed[keystrokes]]
    finished = transcript.finished
    tried = _tried(did, commands, turns)
    if finished is not None and not _passed(finished):
        tried += _asked_for(instruction, did, commands)
    return Story(
        _clipped(_one_line(tried), _PART + _NAME),
        _clipped(_one_line(_turned(turns, parsed)), _PART),
        both_ends(_one_line(_ended(finished, turns)), _PART),
    )


def _read(turns: Sequence[TurnView]) -> Sequence[TurnView]:
    return turns if len(turns) <= _TURNS else (*turns[: _TURNS // 2], *turns[-_TURNS // 2 :])


# What it tried


def _in_terminus_form(turn: TurnView) -> bool:
    return bool(turn.analysis or turn.plan or turn.task_complete or turn.error)


def _tried(did: Sequence[Action], commands: Sequence[str], turns: Sequence[TurnView]) -> str:
    if not commands:
        answers = sum(1 for turn in turns if turn.text or turn.ended_at)
        if answers and not any(map(_in_terminus_form, turns)):
            # A program's own answers, of which only calls of tools can be read.
            which = "turn 1" if answers == 1 else f"turns 1 to {answers}"
            return f"{which} answered, nothing run"
        return "no command" if answers else ""
    if not did:
        typed = next((keys.strip() for keys in commands if keys.strip()), "")
        return f"typed {_clipped(_one_line(typed), _NAME)}" if typed else "waited"
    # What only looks is worth a word where nothing else was done.
    if any(action.kind in CHANGES for action in did):
        did = [action for action in did if action.kind not in LOOKS]
    elif any(action.kind == "ran" for action in did):
        did = [action for action in did if action.kind != "looked around"]
    phrases = list(dict.fromkeys(_phrases(did)))
    if len(phrases) > _PHRASES:
        phrases = [*phrases[:2], "…", *phrases[-(_PHRASES - 2) :]]
    return ", ".join(phrases)


def _phrases(did: Sequence[Action]) -> Iterator[str]:
    for kind, group in groupby(did, lambda action: action.kind):
        if kind in ("moved", "copied"):
            for action in group:
                yield f"{kind} " + " to ".join(_name(each) for each in action.objects)
            continue
        objects = list(dict.fromkeys(each for action in group for each in action.objects))
        named = ", ".join(_name(each) for each in objects[:_NAMES])
        more = f" and {len(objects) - _NAMES} more" if len(objects) > _NAMES else ""
        words = "searched for" if kind == "searched" and named else kind
        yield f"{words} {named}{more}".rstrip()


def _asked_for(instruction: str, did: Sequence[Action], commands: Sequence[str]) -> str:
    """`, asked for out.json`: named by the task and in no command, where other files were made."""
    if not instruction:
        return ""
    made = {_base(each) for action in did for each in action.made}
    asked = named_files(instruction)
    typed = "\n".join(commands)
    missed = [name for name in asked if name not in typed]
    if not missed or not made - set(asked):
        return ""
    return f", asked for {_name(missed[-1])}"


# Where it turned


def _turned(turns: Sequence[TurnView], parsed: Mapping[str, Sequence[Action]]) -> str:
    if loop := _loop(turns):
        return loop
    for turn in turns:
        if turn.purpose == PERSON:
            did = "wrote to the agent" if turn.text.startswith(TO_AGENT) else "typed"
            when = f"turn {turn.turn}" if turn.turn else "before turn 1"
            return f"{when}: {_name(turn.plan) or 'a person'} {did}"
        if turn.error:
            times = sum(1 for each in turns if each.error)
            again = f" ×{times}" if times > 1 else ""
            return f"turn {turn.turn}: parse error{again}"
        if turn.observation and (error := _error(turn, parsed)):
            return f"turn {turn.turn}: {error}"
    return ""


def _error(turn: TurnView, parsed: Mapping[str, Sequence[Action]]) -> str:
    typed = [command.keystrokes for command in turn.commands]
    kinds = {action.kind for keys in typed for action in parsed[keys]}
    return screen_error(turn.observation, typed, only_shell=not kinds or kinds <= LOOKS)


def _loop(turns: Sequence[TurnView]) -> str:
    """`make ×7`: the same commands, turn after turn."""
    for said, group in groupby(
        turns, lambda turn: tuple(c.keystrokes.strip() for c in turn.commands)
    ):
        times = sum(1 for _ in group)
        if times >= _LOOP and any(said):
            first = next(keys for keys in said if keys)
            return f"{_clipped(_one_line(first), _NAME)} ×{times}"
    return ""


# Why it ended


def _passed(finished: TrialFinished) -> bool:
    return finished.verdict is not None and finished.verdict >= 1


def _ended(finished: TrialFinished | None, turns: Sequence[TurnView]) -> str:
    if finished is None:
        return ""
    if _passed(finished) and finished.outcome is Outcome.SOLVED:
        return "solved"
    failure = verifier_failure(finished.verifier_output) if not _passed(finished) else ""
    match finished.outcome:
        case Outcome.FAILED:
            if failure:
                return f"verifier: {failure}"
            return finished.reason or "failed"
        case Outcome.AGENT_TIMEOUT | Outcome.CONTEXT_OVERFLOW | Outcome.OUTPUT_TRUNCATED:
            last = f" in turn {turns[-1].turn}" if turns else ""
            how = _LIMITS[finished.outcome] + last
            return f"{how}; verifier: {failure}" if failure else how
        case _:
            name = finished.outcome.replace("_", " ")
            return f"{name}: {finished.reason}" if finished.reason else name


_LIMITS = {
    Outcome.AGENT_TIMEOUT: "out of time or turns",
    Outcome.CONTEXT_OVERFLOW: "context full",
    Outcome.OUTPUT_TRUNCATED: "answer cut off at max_tokens",
}


# Words


def _base(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def _name(text: str) -> str:
    return _clipped(_one_line(text.removeprefix("/app/").removeprefix("./")), _NAME)


def _clipped(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: max(0, length - 1)].rstrip()}…"


def _one_line(text: str) -> str:
    """White space as single spaces; no control characters, nor others that are not printed."""
    text = without_escapes(text[:4000])
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


_LAST = 8000
"""Characters at an output's end that are looked at: what counts is said last."""
_VERIFIER = 60_000
"""The same of a verifier, whose first failure may be far above its summary."""

_HINTS = (
    *("not found", "no such", "denied", "directory", "cannot", "unrecognized", "invalid option"),
    *("not permitted", "file exists", "no space", "read-only", "error", "exception", "interrupt"),
    *("fatal", "e: ", "npm err", "make: ***", "fail", "segmentation", "killed", "aborted"),
    *("core dumped", "curl: (", "panicked"),
)
"""Every error on a screen has one of these, however it is written: most outputs have none."""
_SHELL_ERROR = re.compile(
    r"command not found|no such file or directory|permission denied|not a directory"
    r"|is a directory|no such user|cannot (?:stat|access|remove|create|open|touch|move)"
    r"|unrecognized option"
    r"|invalid option|syntax error|operation not permitted|file exists|no space left"
    r"|read-only file",
    re.IGNORECASE,
)
_PROGRAM_ERROR = re.compile(
    r"^\s*(?:[\w.]+(?:Error|Exception|Interrupt)\b(?::.*)?$|(?:fatal|error)\b[: ].*|error\[\w+\]:.*"
    r"|.*:\d+(?::\d+)?: (?:fatal )?error: .*|ERROR: .*|E: .*|npm ERR! .*|make: \*\*\* .*"
    r"|=+ .*\b\d+ (?:failed|errors?)\b.*=+|FAILED\b.*|FAIL\b.*"
    r"|Segmentation fault.*|Killed$|Aborted.*|.*\bcore dumped\b.*|curl: \(\d+\).*"
    r"|panicked at .*|thread '.*' panicked.*)"
)
_PROMPT = re.compile(r"^\S*(?:[\w.-]+@[\w.-]+|\$|#|>>>|bash-[\d.]+)\S*[#$]\s|^\s*(?:[$#>]|>>>)\s")
_SHELL_NAMES = re.compile(r"^(?:-?(?:/\S*/)?(?:ba|da|z)?sh: )(?:line \d+: )?")

_PYTEST_SUMMARY = re.compile(
    r"^(?:FAILED|ERROR) (?P<where>[^\s(]\S*\.\w+(?:::.+?)?)(?: - (?P<why>.*))?$"
)
_SAYS_WHY = re.compile(
    r"^E\s+(?:AssertionError: |Failed: )?(?P<why>(?:\w+(?:Error|Exception): )?\S.*)$"
)
_TAP = re.compile(r"^\s*not ok\b\s*(?:\d+)?\s*-?\s*(?P<why>.*)$")
_MARKED = re.compile(
    r"^\s*(?:[✗✘×❌✕]\s*|\[?(?:FAIL(?:ED|URE)?|ERROR|Error)\]?\s*(?::|-|\s)\s*|--- FAIL: )"
    r"(?P<why>\S.*)$"
)
_RAISED = re.compile(r"^(?P<why>(?:[\w.]+\.)?\w*(?:Error|Exception)\b(?:: .*)?)$")
_SAYS_MISSING = re.compile(
    r"\b(?:missing|not found|no such file|does not exist|doesn't exist|expected|mismatch|incorrect"
    r"|wrong|should(?: not|n't)? be|failed|failure)\b",
    re.IGNORECASE,
)
_NO_FAILURE = re.compile(
    r"\b0 (?:failed|failures|errors)\b|\bno (?:failures|errors)\b", re.IGNORECASE
)


def screen_error(output: str, typed: Iterable[str] = (), *, only_shell: bool = False) -> str:
    """The first line of a terminal's output that is an error; empty without any.

    Args:
        typed: what was typed; its echo is no error.
        only_shell: accept a shell's own errors alone: the output is a file's contents, which may
            be full of others.
    """
    output = without_escapes(output[-_LAST:])
    lower = output.lower()
    if not any(hint in lower for hint in _HINTS):
        return ""
    echoes = [line.strip() for keys in typed for line in keys.splitlines()[:1] if line.strip()]
    for line in output.splitlines():
        text = line.strip()
        if not text or len(text) > 400:
            continue
        found = _SHELL_ERROR.search(text) or (not only_shell and _PROGRAM_ERROR.match(text))
        if not found or _PROMPT.match(text) or any(text.endswith(echo) for echo in echoes):
            continue
        return _SHELL_NAMES.sub("", text)
    return ""


def verifier_failure(output: str) -> str:
    """What a verifier's output says failed first, in one line; empty where it says nothing.

    Knows pytest, unittest, TAP, marks such as FAIL and ✗, and exceptions; of other texts the line
    that speaks of something missing or wrong, else the last one.
    """
    output = without_escapes(output[-_VERIFIER:])
    lines = [line.rstrip() for line in output.splitlines()]
    lines = [line for line in lines if line.strip()]
    if not lines:
        return ""
    for line in lines:
        if found := _PYTEST_SUMMARY.match(line):
            return _pytest(found, lines)
    for pattern in (_TAP, _MARKED):
        for place, line in enumerate(lines):
            if (found := pattern.match(line)) and not _NO_FAILURE.search(line):
                return _with_cause(found["why"], lines[place + 1 :])
    if raised := _first(_SAYS_WHY, lines) or _first(_RAISED, reversed(lines)):
        return raised
    telling = (
        line for line in lines if _SAYS_MISSING.search(line) and not _NO_FAILURE.search(line)
    )
    return next(telling, lines[-1]).strip()


def _pytest(found: re.Match[str], lines: list[str]) -> str:
    """`test_file: file is missing`, from the line of pytest's summary."""
    test = found["where"].rsplit("::", 1)[-1].removeprefix("test_").replace("_", " ")
    why = found["why"] or _first(_SAYS_WHY, lines)
    why = why.removeprefix("AssertionError: ").strip()
    return f"{test}: {why}" if why and why != "AssertionError" else test


def _with_cause(why: str, after: list[str]) -> str:
    """A failed test's name with the assertion below it, where unittest writes it."""
    if re.fullmatch(r"\w+ \([\w.]+\)", why):
        name = why.split(" ", 1)[0].removeprefix("test_").replace("_", " ")
        cause = _first(_RAISED, after[:40]).removeprefix("AssertionError: ")
        return f"{name}: {cause}" if cause else name
    return why.strip()


def _first(pattern: re.Pattern[str], lines: Iterable[str]) -> str:
    for line in lines:
        if found := pattern.match(line.strip()):
            return found["why"].strip()
    return ""
