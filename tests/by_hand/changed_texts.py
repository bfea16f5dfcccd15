"""Every text on screens and of commands that changed since a revision, as Markdown.

`python -m tests.by_hand.changed_texts REVISION`: what reads otherwise (before and after), what is
new and what is gone. Texts are the string literals of the rooms that speak to people, an f-string
with `…` for its values; a literal of one word is left out, unless it labels a key.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("ui", "console", "commands", "view", "ctl", "cli", "launch", "show_run", "config")
KEYS = ("tbtui/ui/input/keys.toml",)
_ALIKE = 0.6
"""Share of two texts that is the same, from which on one is taken for the other's new wording."""
_WORDS = re.compile(r"[A-Za-z]{2,} \S|\S [A-Za-z]{2,}")


def texts_of(source: str) -> Iterator[str]:
    """The texts of a module: no docstrings, no types, and nothing without two words."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                skipped.add(id(node.value))
            case (
                ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation)
            ):
                skipped.update(id(each) for each in ast.walk(annotation))
            case ast.JoinedStr(values=values):
                skipped.update(id(each) for each in values)
                yield from _spoken("".join(_piece(each) for each in values))
            case ast.Constant(value=str(text)) if id(node) not in skipped:
                yield from _spoken(text)


def _piece(value: ast.expr) -> str:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else "…"


def _spoken(text: str) -> Iterator[str]:
    line = " ".join(text.split())
    if _WORDS.search(line):
        yield line


def read(revision: str | None) -> tuple[set[str], dict[str, str]]:
    """Texts, and labels and helps of keys by their ids; None is the working tree."""
    texts: set[str] = set()
    keys: dict[str, str] = {}
    for path in _paths(revision):
        inside = path.removeprefix("tbtui/")
        if path in KEYS:
            for id, key in tomllib.loads(_content(revision, path)).items():
                keys[id] = f"{key['label']}: {key['help']}"
        elif path.endswith(".py") and inside.partition("/")[0].removesuffix(".py") in ROOMS:
            texts.update(texts_of(_content(revision, path)))
    return texts, keys


def _paths(revision: str | None) -> list[str]:
    if revision is None:
        return _git("ls-files", "tbtui").splitlines()
    return _git("ls-tree", "-r", "--name-only", revision, "tbtui").splitlines()


def _content(revision: str | None, path: str) -> str:
    return (ROOT / path).read_text() if revision is None else _git("show", f"{revision}:{path}")


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def pairs(gone: set[str], new: set[str]) -> list[tuple[str, str]]:
    """What was reworded: each text that is gone with the most similar new one."""
    found = []
    left = sorted(new)
    for before in sorted(gone):
        for after in get_close_matches(before, left, n=1, cutoff=_ALIKE):
            found.append((before, after))
            left.remove(after)
    return sorted(found, key=lambda pair: -SequenceMatcher(None, *pair).ratio())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision")
    revision = parser.parse_args().revision
    (old, old_keys), (now, keys) = read(revision), read(None)
    changed = [(id, old_keys[id], keys[id]) for id in sorted(old_keys.keys() & keys.keys())]
    changed = [each for each in changed if each[1] != each[2]]
    reworded = pairs(old - now, now - old)
    gone = old - now - {before for before, _ in reworded}
    new = now - old - {after for _, after in reworded}
    print(f"# Texts since {revision}\n\n{len(old)} texts then, {len(now)} now.")
    print(f"\n## Keys: {len(changed)} reworded\n")
    for id, before, after in changed:
        print(f"- `{id}`: {before} -> {after}")
    for title, ids, table in (
        ("new", keys.keys() - old_keys.keys(), keys),
        ("gone", old_keys.keys() - keys.keys(), old_keys),
    ):
        print(f"\n## Keys: {len(ids)} {title}\n")
        for id in sorted(ids):
            print(f"- `{id}`: {table[id]}")
    print(f"\n## Reworded: {len(reworded)}\n")
    for before, after in reworded:
        print(f"- {before}\n  -> {after}")
    for title, texts in (("New", new), ("Gone", gone)):
        print(f"\n## {title}: {len(texts)}\n")
        for text in sorted(texts):
            print(f"- {text}")


if __name__ == "__main__":
    main()
