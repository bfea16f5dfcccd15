"""The line of an output that says what went wrong: of a terminal, of a verifier."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
    output = output[-_LAST:]
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
    lines = [line.rstrip() for line in output[-_VERIFIER:].splitlines()]
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
