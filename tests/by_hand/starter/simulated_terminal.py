"""A few shell commands over files in memory, with what bash and GNU coreutils would print.

Only for making demonstrations: what the policy trains on later are real terminals.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from tbtui.policies.local.renderer import PROMPT

Tree = dict[str, str | None]
"""Paths relative to /app -> contents; None for a directory."""


class SimulatedTerminal:
    """The tree under /app and the lines that appeared since the last look."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.tree: Tree = dict(files)
        self._screen = PROMPT

    def type(self, keystrokes: str) -> None:
        """Keys that end with a newline run as a command; others just stand at the prompt."""
        self._screen += f" {keystrokes}" if keystrokes else ""
        if keystrokes.endswith("\n"):
            self._screen += self._run(keystrokes.strip()) + PROMPT

    def look(self) -> str:
        """The new output, from the last prompt that was seen before, to the present prompt."""
        seen, self._screen = self._screen, PROMPT
        return seen

    def _run(self, line: str) -> str:
        """The command's output on the screen; changes the tree."""
        try:
            words = shlex.split(line)
        except ValueError:
            return "bash: syntax error: unexpected end of file\n"
        arguments, source, target, appending = [], None, None, False
        index = 0
        while index < len(words):
            if words[index] in ("<", ">", ">>"):
                if index + 1 == len(words):
                    return "bash: syntax error near unexpected token `newline'\n"
                if words[index] == "<":
                    source = _relative(words[index + 1])
                else:
                    target, appending = _relative(words[index + 1]), words[index] == ">>"
                index += 2
            else:
                arguments.append(words[index])
                index += 1
        if source is not None and self.tree.get(source) is None:
            return f"bash: {source}: No such file or directory\n"
        if target is not None:
            parent, slash, _ = target.rpartition("/")
            if slash and (parent not in self.tree or self.tree[parent] is not None):
                return f"bash: {target}: No such file or directory\n"
            if target in self.tree and self.tree[target] is None:
                return f"bash: {target}: Is a directory\n"
            if not appending or target not in self.tree:
                self.tree[target] = ""
        if not arguments:
            return ""
        output, error = self._command(arguments[0], arguments[1:], source)
        if target is not None:
            self.tree[target] = (self.tree.get(target) or "") + output
            return error
        return output + error

    def _command(self, name: str, words: list[str], source: str | None) -> tuple[str, str]:
        """(standard output, standard error)."""
        paths = [_relative(word) for word in words if not word.startswith("-")]
        match name, paths:
            case "echo", _:
                return " ".join(words) + "\n", ""
            case "ls", _:
                names = sorted({path.split("/")[0] for path in self.tree})
                return ("  ".join(names) + "\n" if names else ""), ""
            case "cat", [path] if self.tree.get(path) is not None:
                return self.tree[path] or "", ""
            case "wc", []:
                return f"{((source and self.tree[source]) or '').count(chr(10))}\n", ""
            case "wc", [path] if self.tree.get(path) is not None:
                return f"{(self.tree[path] or '').count(chr(10))} {path}\n", ""
            case "touch", [path]:
                self.tree.setdefault(path, "")
            case "mkdir", [path] if path in self.tree:
                return "", f"mkdir: cannot create directory '{path}': File exists\n"
            case "mkdir", [path]:
                self.tree[path] = None
            case "rm", [path] if self.tree.get(path) is not None:
                del self.tree[path]
            case "rm", [path]:
                return "", f"rm: cannot remove '{path}': No such file or directory\n"
            case (("cp" | "mv"), [old, new]) if self.tree.get(old) is not None:
                into = f"{new}/{old}" if new in self.tree and self.tree[new] is None else new
                self.tree[into] = self.tree[old]
                if name == "mv" and into != old:
                    del self.tree[old]
            case (("cp" | "mv"), [old, _]):
                return "", f"{name}: cannot stat '{old}': No such file or directory\n"
            case (("cp" | "mv"), [old]):
                return "", f"{name}: missing destination file operand after '{old}'\n"
            case (("cat" | "wc"), [path, *_]):
                return "", f"{name}: {path}: No such file or directory\n"
            case (("cat" | "touch" | "mkdir" | "rm" | "cp" | "mv"), _):
                return "", f"{name}: missing operand\n"
            case _:
                return "", f"bash: {name}: command not found\n"
        return "", ""


def _relative(path: str) -> str:
    return path.removeprefix("/app/").removeprefix("./").rstrip("/")
