"""Reads a Dockerfile: instructions with their line numbers, words, variables, here-documents; and
the .dockerignore beside it.

Syntax: https://docs.docker.com/reference/dockerfile/ . What they do is their reader's.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathspec import PathSpec

KNOWN = frozenset(
    [
        *("FROM", "RUN", "CMD", "LABEL", "MAINTAINER", "EXPOSE", "ENV", "ADD", "COPY"),
        *("ENTRYPOINT", "VOLUME", "USER", "WORKDIR", "ARG", "ONBUILD", "STOPSIGNAL"),
        *("HEALTHCHECK", "SHELL"),
    ]
)
_TAKES_HEREDOC = frozenset(["RUN", "COPY", "ADD"])
_HEREDOC = re.compile(r"(?<!<)<<(-?)([\"']?)([A-Za-z_][A-Za-z0-9_]*)\2(?=\s|$)")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::([-+])([^}]*))?\})")
# Directives stand at the top, in any order; anything else ends them.
_ESCAPE_DIRECTIVE = re.compile(
    r"(?:[ \t]*#[ \t]*(?:syntax|check)[ \t]*=.*\n)*[ \t]*#[ \t]*escape[ \t]*=[ \t]*(.)",
    re.IGNORECASE,
)


class DockerfileError(ValueError):
    """`line` is the first line of the instruction at fault; `may_pass`: another attempt may not
    meet it, for a network was involved."""

    def __init__(self, line: int, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.line = line
        self.may_pass = may_pass


@dataclass(frozen=True, slots=True)
class Heredoc:
    """The body of `<<NAME`; `literal` when the name was quoted: no variables in it."""

    name: str
    body: str
    literal: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, continuation lines joined."""

    line: int
    keyword: str
    arguments: str
    heredocs: tuple[Heredoc, ...] = ()

    @property
    def text(self) -> str:
        """Keyword and arguments, for quoting it."""
        return f"{self.keyword} {self.arguments}".strip()

    def flags(self) -> tuple[dict[str, str], str]:
        """Leading `--name=value` flags, and the arguments after them."""
        found: dict[str, str] = {}
        rest = self.arguments
        while match := re.match(r"--([a-z-]+)(?:=(\S*))?\s+", rest):
            found[match[1]] = match[2] or ""
            rest = rest[match.end() :]
        return found, rest


class IgnoreRules:
    """What of a build context a .dockerignore leaves out.

    Patterns are those of git, but each begins at the context's root, and a later one may take back
    what lies in a directory that an earlier one leaves out. See
    https://docs.docker.com/build/concepts/context/#dockerignore-files
    """

    def __init__(self, patterns: Iterator[str]) -> None:
        self._spec: PathSpec[Any] | None = None
        if found := list(patterns):
            import pathspec  # few tasks have such a file

            self._spec = pathspec.PathSpec.from_lines("gitignore", found)

    @classmethod
    def read(cls, context: Path) -> IgnoreRules:
        """The rules of a directory; none where it has no such file.

        Raises:
            DockerfileError: the file can't be read.
        """
        for name in ("Dockerfile.dockerignore", ".dockerignore"):
            try:
                return cls(_patterns((context / name).read_text(encoding="utf-8")))
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as error:
                raise DockerfileError(1, f"{name} can't be read: {error}") from error
        return cls(iter(()))

    def leaves_out(self, path: str) -> bool:
        """Whether a file or directory is left out; its path is relative to the context."""
        return self._spec is not None and path != "." and self._spec.match_file(path)


def _patterns(text: str) -> Iterator[str]:
    for line in text.removeprefix("\ufeff").splitlines():
        pattern = line.strip()
        if line.startswith("#") or not pattern:
            continue
        taken_back = pattern.startswith("!")
        path = posixpath.normpath(pattern[taken_back:].strip()).lstrip("/")
        if path not in ("", "."):
            yield f"{'!' * taken_back}/{path}"


def parse_dockerfile(text: str) -> list[Instruction]:
    """All instructions in order, those that Docker doesn't know (not in `KNOWN`) included.

    Raises:
        DockerfileError: a here-document without its end.
    """
    escape = "\\"
    if directive := _ESCAPE_DIRECTIVE.match(text):
        escape = directive[1]
    lines = iter(enumerate(text.splitlines(), start=1))
    found = []
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        joined = line.strip()
        while joined.endswith(escape):
            # Comments and empty lines inside a continuation are skipped, as Docker does.
            following = (line for _, line in lines if line.strip() and line.lstrip()[0] != "#")
            joined = joined[:-1] + next(following, "").rstrip()
        keyword, arguments = (*joined.split(None, 1), "")[:2]
        keyword = keyword.upper()
        heredocs: tuple[Heredoc, ...] = ()
        if keyword in _TAKES_HEREDOC:
            heredocs = tuple(_heredoc(number, lines, mark) for mark in _HEREDOC.findall(arguments))
        found.append(Instruction(number, keyword, arguments.strip(), heredocs))
    return found


def _heredoc(number: int, lines: Iterator[tuple[int, str]], mark: tuple[str, str, str]) -> Heredoc:
    dash, quote, name = mark
    body: list[str] = []
    for _, line in lines:
        content = line.lstrip("\t") if dash else line
        if content == name:
            return Heredoc(name, "".join(f"{part}\n" for part in body), literal=bool(quote))
        body.append(content)
    raise DockerfileError(number, f"here-document {name} has no end")


def without_heredoc_marks(arguments: str) -> str:
    """The arguments less their `<<NAME` words."""
    return _HEREDOC.sub("", arguments).strip()


def json_form(arguments: str) -> list[str] | None:
    """The words of `["a", "b"]`, or None when it is not in that form."""
    if not arguments.startswith("["):
        return None
    try:
        words = json.loads(arguments)
    except (RecursionError, ValueError):
        return None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    return None


def expand(text: str, variables: Mapping[str, str]) -> str:
    """`$name`, `${name}`, `${name:-default}` and `${name:+other}`; unset ones are empty."""

    def value(match: re.Match[str]) -> str:
        known = variables.get(match[1] or match[2], "")
        match match[3]:
            case "-":
                return known or match[4]
            case "+":
                return match[4] if known else ""
            case _:
                return known

    return _VARIABLE.sub(value, text)


def words(text: str, variables: Mapping[str, str]) -> list[str]:
    """Splits at blanks outside quotes, expands outside single quotes, removes the quotes."""
    found: list[str] = []
    current: str | None = None
    for token in _tokens(text):
        if token.isspace():
            if current is not None:
                found.append(current)
            current = None
            continue
        current = current or ""
        if token[0] == "'":
            current += token[1:-1]
        elif token[0] == '"':
            inner = expand(re.sub(r"\\\$", "\0", token[1:-1]), variables)
            current += re.sub(r"\\([\"\\])", r"\1", inner).replace("\0", "$")
        elif token[0] == "\\":
            current += token[1:]
        else:
            current += expand(token, variables)
    if current is not None:
        found.append(current)
    return found


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s+|'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s'\"\\]+|['\"\\]", text)
