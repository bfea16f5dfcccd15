"""The mutants of a module: the same source with one change each. Pure.

The changes are mutmut's (another operator, number or argument) and two of our own: a condition
negated, a call left out. Mutmut itself changes functions only, and no tables of a module. Sentences
for people, what errors say, and types are not changed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_arg_removal


@dataclass(frozen=True)
class Mutant:
    line: int
    key: tuple[str, str, str, int]
    """What stood in that line, what is changed to what, and which of those that are the same."""
    lines: range
    """Where the changed statement is; empty: the module's import executes it."""
    source: Callable[[], str]


_SENTENCE = (
    m.FormattedString()
    | m.ConcatenatedString()
    | m.SimpleString(m.MatchIfTrue(lambda text: " " in text and not text.startswith("r")))
)
_LEFT_ALONE = (
    *(m.Annotation(), m.Import(), m.ImportFrom(), m.Decorator(), m.Raise(), m.Assert()),
    m.Expr(m.SimpleString() | m.ConcatenatedString()),
    m.Subscript(m.Name("Literal")),
)
"""Types, imports, what errors say, docstrings."""


def _changes(node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """Pairs of a node, or of one in it, and what takes its place."""
    match node:
        case cst.SimpleString():
            if not m.matches(node, _SENTENCE):
                text = f"{node.prefix}{node.quote}XX{node.raw_value}{node.quote}"
                yield node, node.with_changes(value=text)
            return
        case cst.If(test=test) | cst.While(test=test):
            if not isinstance(test, cst.Comparison | cst.UnaryOperation):  # mutmut has those
                inner = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
                yield test, cst.UnaryOperation(cst.Not(), inner)
        case cst.Expr(value=cst.Call() | cst.Await()):
            yield node, cst.Pass()
    for kind, operator in mutation_operators:
        for new in operator(node) if isinstance(node, kind) else ():
            if operator is operator_arg_removal:
                call, changed = cst.ensure_type(node, cst.Call), cst.ensure_type(new, cst.Call)
                if not _tells(call, changed):
                    continue
            yield node, new


def _tells(call: cst.Call, new: cst.Call) -> bool:
    """Whether a call with one argument less, or None for it, says something of the tests: nothing
    looks for a sentence, and a missing positional argument fails wherever it is executed."""
    (gone,) = (arg for arg in call.args if all(arg is not kept for kept in new.args))
    dropped = len(new.args) < len(call.args)
    return not m.matches(gone.value, _SENTENCE) and not (dropped and gone.keyword is None)


def _sites(
    node: cst.CSTNode, where: Mapping[cst.CSTNode, CodeRange], statement: int, inside: bool
) -> Iterator[tuple[cst.CSTNode, cst.CSTNode, int]]:
    """Every change below `node`, with the line of its statement; 0: it is in no function."""
    if m.matches(node, m.OneOf(*_LEFT_ALONE)):
        return
    if inside and isinstance(node, cst.BaseStatement | cst.ExceptHandler | cst.MatchCase):
        statement = where[node].start.line
    yield from ((old, new, statement) for old, new in _changes(node))
    for child in node.children:
        within = isinstance(node, cst.FunctionDef) and child is node.body
        yield from _sites(child, where, statement, inside or within)


def mutants_of(source: str) -> list[Mutant]:
    """All mutants of a module."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    module, text, where = wrapper.module, source.splitlines(), wrapper.resolve(PositionProvider)
    found: list[Mutant] = []
    counts: Counter[tuple[str, str, str]] = Counter()
    for old, new, statement in _sites(module, where, 0, inside=False):
        line = where[old].start.line
        what = (text[line - 1].strip(), module.code_for_node(old), module.code_for_node(new))
        counts[what] += 1

        def mutated(old: cst.CSTNode = old, new: cst.CSTNode = new) -> str:
            return cst.ensure_type(module.deep_replace(old, new), cst.Module).code

        lines = range(statement, where[old].end.line + 1 if statement else 0)
        found.append(Mutant(line, (*what, counts[what]), lines, mutated))
    return found


def sample(mutants: Iterable[Mutant], size: int, seed: int) -> list[Mutant]:
    """`size` mutants, or all for 0."""
    hashes = {it: hashlib.sha256(repr((seed, it.key)).encode()).digest() for it in mutants}
    return sorted(hashes, key=hashes.__getitem__)[: size or None]
