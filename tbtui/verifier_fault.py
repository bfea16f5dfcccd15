"""Recognises, in what a verifier printed, that it could not do its work. Pure.

A task's test script installs a test runner, runs the tests and writes the reward. Where the
installation fails (no network, no such command), most scripts go on and write 0, which says nothing
of the agent. What is found here is a *suspicion* only: all of the text may come from the agent, who
can print these very lines, empty `PATH` or remove pytest. `verdict_check` distinguishes the two.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from tbtui.terminal import both_ends

FaultKind = Literal["disturbed", "command", "module", "tests", "packages", "resources", "network"]
"""What the verifier lacked, or `disturbed`: its script was killed, replaced or could not start,
which no text says. In the order of the table: what stopped the tests comes before what led to that,
and where several are found the first kind is the evidence."""

_EVIDENCE_CHARS = 200
_LINE_CHARS = 1_000

# A line matches as a whole word of its program; what an assertion quotes begins with `E  `, `>`
# or a quotation mark and matches none of these, for all are anchored at the line's beginning.
_PATTERNS: tuple[tuple[FaultKind, str], ...] = (
    # bash, dash, env, Go's and Python's runtimes
    ("command", r"(?:\S+: )?(?:line )?(?:\d+: )?[\w./+-]+: (?:command )?not found$"),
    ("command", r"(?:/usr/bin/)?env: .?[\w.+-]+.?: No such file or directory"),
    ("command", r'exec: "[\w.+-]+": executable file not found in \$PATH'),
    ("command", r"(?:E\s+)?FileNotFoundError: \[Errno 2\] No such file or directory: '[\w.+-]+'"),
    ("module", r"\S*python[\d.]*: No module named \S+"),
    ("module", r"(?:E\s+)?ModuleNotFoundError: No module named \S+"),
    ("module", r"Error: Cannot find module \S+"),
    ("module", r"Fatal Python error: .+"),
    # pytest and unittest
    ("tests", r"=*\s*no tests ran in [\d.]+s"),
    ("tests", r"collected 0 items$"),
    ("tests", r"(?:=+ )?(?:\d+ errors? during collection|Interrupted: \d+ errors?)"),
    ("tests", r"!+ Interrupted: \d+ errors? during collection"),
    ("tests", r"ERROR: (?:file or directory )?not found: \S+"),
    ("tests", r"\S*(?:pytest|__main__\.py): error: unrecognized arguments"),
    ("tests", r"INTERNALERROR>"),
    ("tests", r"Ran 0 tests in "),
    # apt, pip, uv, npm, cargo, conda, apk
    ("packages", r"E: (?:Unable to|Could not|Failed to|Package|The repository|Some index) .+"),
    ("packages", r"ERROR: (?:No matching distribution|Could not (?:find a version|install)) .+"),
    ("packages", r"error: externally-managed-environment"),
    ("packages", r"\s*×\s*(?:No solution found|Failed to (?:download|build|fetch)) .*"),
    ("packages", r"error: (?:Failed to|Request failed|No (?:interpreter|solution|virtual)) .+"),
    ("packages", r"(?:npm (?:error|ERR!) (?:code|errno)) \S+"),
    ("packages", r"ERROR: unable to select packages:"),
    ("resources", r"[^'\"]*\b(?:No space left on device|Cannot allocate memory)\b"),
    ("resources", r"[^'\"]*\bRead-only file system$"),
    # curl, wget, git, apt, pip, uv, npm
    ("network", r"curl: \((?:5|6|7|28|35|56)\) .+"),
    ("network", r"wget: (?:unable to resolve|bad address|can't connect|download timed out).*"),
    ("network", r"(?:fatal|error): unable to access .+"),
    ("network", r"WARNING: Retrying \(.+ connection broken by .+"),
    (
        "network",
        r"[^'\"]*(?:Could not resolve|Temporary failure (?:in name resolution|resolving)).*",
    ),
    ("network", r"[^'\"]*(?:getaddrinfo (?:EAI_AGAIN|ENOTFOUND)|failed to lookup address info).*"),
    ("network", r"[^'\"]*(?:toomanyrequests: |\b429 Too Many Requests\b).*"),
    ("network", r"[^'\"]*(?:Network is unreachable|Name or service not known|No route to host).*"),
)
_TABLE = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)
_KINDS = tuple(dict.fromkeys(kind for kind, _ in _TABLE))

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")

# That a test had a result of its own: summaries of pytest, unittest, jest, go, cargo, TAP, ctest,
# bats, mocha, gradle.
_RESULTS = re.compile(
    r"^(?:"
    r"=*\s*(?:\d+ (?:passed|failed|skipped|xfailed|xpassed|deselected|warnings?|errors?),? ?)*"
    r"\d+ (?:passed|failed|xpassed)\b.* in [\d.]+s"
    r"|(?:PASSED|FAILED) \S+::\S+"
    r"|\S+::\S+ (?:PASSED|FAILED)"
    r"|Ran [1-9]\d* tests? in "
    r"|Tests:\s+.*\b[1-9]\d* (?:passed|failed)"
    r"|(?:---|===) (?:PASS|FAIL)[: ]"
    r"|test result: (?:ok|FAILED)\. (?!0 passed; 0 failed)"
    r"|(?:not )?ok [1-9]\d*\b"
    r"|\d+% tests passed"
    r"|\s+[1-9]\d* (?:passing|failing)"
    r"|Tests run: [1-9]"
    r")",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class VerifierFault:
    """What says that a verifier could not work."""

    kind: FaultKind
    evidence: str
    """The line, and after it the line that says what led to it, if there is one. Printable."""
    network: bool
    """A network that did not answer is among what was found."""


def find_fault(output: str) -> VerifierFault | None:
    """The first kind of fault in the table that `output` shows, or None.

    None if a test had a result, whatever else was printed, and None for a script that says
    nothing of the kind: a verifier may print what it likes, or nothing, and give 0.
    """
    text = _plain(output)
    if _RESULTS.search(text):
        return None
    return _first_fault(text)


def find_trace(output: str, kinds: Collection[FaultKind]) -> VerifierFault | None:
    """The first fault of these kinds in the table that `output` shows, whatever its tests said."""
    return _first_fault(_plain(output), kinds)


def names_network(text: str) -> bool:
    """Whether a program's last words put its failure down to a network that does not answer."""
    fault = _first_fault(_plain(text))
    return fault is not None and fault.network


def _first_fault(text: str, kinds: Collection[FaultKind] = _KINDS) -> VerifierFault | None:
    lines = [line.strip()[:_LINE_CHARS] for line in text.splitlines()]
    found: dict[FaultKind, str] = {}
    for line in lines:
        for kind, pattern in _TABLE:
            if pattern.match(line):
                found[kind] = line  # the last of a kind: what the script ended with
                break
    order = [kind for kind in _KINDS if kind in found and kind in kinds]
    if not order:
        return None
    kind = order[0]
    evidence = _short(found[kind])
    cause = next((found[k] for k in ("network", "packages", "resources") if k in found), None)
    if cause is not None and cause != found[kind]:
        evidence += f" (before that: {_short(cause)})"
    return VerifierFault(kind, evidence, "network" in found)


def _plain(output: str) -> str:
    return _ESCAPES.sub("", output).replace("\r", "\n")


def _short(line: str) -> str:
    text = "".join(c if c.isprintable() else " " for c in line)
    return both_ends(text, _EVIDENCE_CHARS)
