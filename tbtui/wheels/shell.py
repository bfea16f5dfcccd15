"""Reads the plain commands of a shell script, as far as they can be read without running it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_HEREDOC = re.compile(r"(?<!<)<<-?\s*([\"']?)([A-Za-z_]\w*)\1")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_BEFORE_A_COMMAND = frozenset(
    [
        "sudo",
        "env",
        "time",
        "exec",
        "command",
        "nohup",
        "then",
        "do",
        "else",
        "if",
        "!",
        "{",
        "while",
    ]
)
_ENDS_A_COMMAND = frozenset(["&&", "||", ";", "|", "&", "(", ")", ";;", "|&"])
_SHELLS = frozenset(["bash", "sh", "zsh", "dash"])


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command: its words, quotes removed, and the line it starts on."""

    line: int
    words: tuple[str, ...]


def commands(script: str) -> Iterator[ShellCommand]:
    """The commands of a script in order: each branch, also what might not run."""
    for line, text in _logical_lines(script):
        words: list[str] = []
        for token in [*_tokens(text), ";"]:
            if token not in _ENDS_A_COMMAND:
                words.append(token)
                continue
            yield from _command(line, words)
            words = []


def _command(line: int, words: list[str]) -> Iterator[ShellCommand]:
    while words and (words[0] in _BEFORE_A_COMMAND or _ASSIGNMENT.match(words[0])):
        words = words[1:]
    if not words:
        return
    if words[0].rpartition("/")[2] in _SHELLS:
        inner = next((i for i, word in enumerate(words) if re.fullmatch(r"-\w*c", word)), None)
        if inner is not None and inner + 1 < len(words):
            for each in commands(words[inner + 1]):
                yield ShellCommand(line, each.words)
            return
    if plain := tuple(_without_redirections(words)):
        yield ShellCommand(line, plain)


def _without_redirections(words: list[str]) -> Iterator[str]:
    skipped = False
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if skipped:
            skipped = False
        elif _is_redirection(word):
            skipped = True
        elif not (word.isdigit() and _is_redirection(following)):  # the 2 of 2>&1
            yield word


def _is_redirection(word: str) -> bool:
    return bool(word) and set(word) <= set("<>&")


def _logical_lines(script: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without the bodies of here-documents."""
    lines = iter(enumerate(script.splitlines(), start=1))
    for number, line in lines:
        if line.lstrip().startswith("#"):
            continue
        joined = line
        while joined.endswith("\\"):
            joined = joined[:-1] + " " + next(lines, (0, ""))[1]
        yield number, joined
        for mark in _HEREDOC.finditer(joined):
            for _, body in lines:
                if body.strip() == mark[2]:
                    break


def _tokens(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    tokens: list[str] = []
    try:
        for token in lexer:
            if token.startswith("#"):
                break
            tokens.append(token)
    except ValueError:  # a quote that ends on another line: what stands before it was read
        return tokens
    return tokens
