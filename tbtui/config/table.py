"""The settings as a table: what help, messages, files and documentation say of each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from tbtui.config.settings import GROUPS, About, Fixed, Live, RunConfig


@dataclass(frozen=True, slots=True)
class Setting:
    """One row."""

    name: str
    base: Any
    """The type without None; of a table, that of its entries."""
    kind: Literal["integer", "number", "switch", "choice", "text", "path", "list", "table"]
    optional: bool
    """It may be none."""
    default: Any
    about: About
    fixed: Fixed | None
    """Why a resumed run must keep it; None: it may change then."""
    live: Live | None
    """None: it can't change while the run goes on."""

    @property
    def bounds(self) -> str:
        about = self.about
        words = (
            ("of at least", about.ge),
            ("above", about.gt),
            ("at most", about.le),
            ("below", about.lt),
        )
        return " and ".join(f"{word} {bound:g}" for word, bound in words if bound is not None)

    def allows(self, number: float) -> bool:
        """Whether a number is finite and within the bounds."""
        ge, gt, le, lt = self.about.ge, self.about.gt, self.about.le, self.about.lt
        return (
            (isinstance(number, int) or math.isfinite(number))
            and (ge is None or number >= ge)
            and (gt is None or number > gt)
            and (le is None or number <= le)
            and (lt is None or number < lt)
        )

    @property
    def is_table(self) -> bool:
        return self.kind == "table"

    @property
    def type_text(self) -> str:
        match self.kind:
            case "switch":
                text = "true or false"
            case "choice":
                text = " | ".join(get_args(self.base))
            case "list":
                text = "comma-separated texts"
            case kind:
                text = kind
        return text + " | none" * self.optional

    @property
    def default_text(self) -> str:
        match self.default:
            case None:
                return "none"
            case bool():
                return str(self.default).lower()
            case float():
                return f"{self.default:g}"
            case () | {}:
                return ""
            case _:
                return str(self.default)

    @property
    def expected(self) -> str:
        """What a value has to be, as the end of a sentence."""
        if self.kind == "choice":
            text = _alternatives(get_args(self.base))
        elif self.kind == "table":
            text = _entry_expected(self.base)
        else:
            text = _WORDS[self.kind]
        bounds = f" {self.bounds}" if self.bounds else ""
        unit = f" ({self.about.unit})" if self.about.unit else ""
        return text + bounds + unit + ", or none" * self.optional


_WORDS = MappingProxyType(
    {
        "integer": "a whole number",
        "number": "a number",
        "switch": "true or false",
        "text": "a text",
        "path": "a path",
        "list": "a list of texts",
    }
)


def _entry_expected(base: Any) -> str:
    if get_origin(base) is Literal:
        return _alternatives(get_args(base))
    if base is Any:
        return "a value"
    (bound,) = (mark for mark in base.__metadata__ if isinstance(mark, msgspec.Meta))
    return "a number above 0" if bound.gt is not None else "a number of at least 0"


@cache
def settings() -> Mapping[str, Setting]:
    """Every setting by name, in the order in which a person reads them."""
    hints = get_type_hints(RunConfig, include_extras=True)
    defaults = msgspec.structs.asdict(RunConfig())
    return MappingProxyType(
        {
            name: _setting(name, hints[name], defaults[name])
            for names in GROUPS.values()
            for name in names
        }
    )


def _setting(name: str, annotation: Any, default: Any) -> Setting:
    whole = annotation.__origin__
    marks = {type(mark): mark for mark in annotation.__metadata__}
    parts = get_args(whole) if isinstance(whole, UnionType) else (whole,)
    optional = NoneType in parts
    base = next(part for part in parts if part is not NoneType)
    kinds: dict[Any, Any] = {
        int: "integer",
        float: "number",
        bool: "switch",
        str: "text",
        Path: "path",
        tuple: "list",
        dict: "table",
        Literal: "choice",
    }
    kind = kinds[get_origin(base) or base]
    if kind == "table":
        base = get_args(base)[1]
    return Setting(
        name,
        base,
        kind,
        optional,
        default,
        about=marks[About],
        fixed=marks.get(Fixed),
        live=marks.get(Live),
    )


def fixed_on_resume() -> dict[str, str]:
    """The settings that a resumed run must keep, and why."""
    return {name: str(row.fixed) for name, row in settings().items() if row.fixed is not None}


def live_effects() -> dict[str, str]:
    """The settings that may change while a run goes on, and from when on each change is felt."""
    return {name: row.live.effect for name, row in settings().items() if row.live is not None}


def _alternatives(choices: tuple[str, ...]) -> str:
    return ", ".join(choices[:-1]) + f" or {choices[-1]}"


def setting_rows() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """For each heading, its settings as (`name=default`, meaning)."""
    for heading, names in GROUPS.items():
        rows = [settings()[name] for name in names]
        yield heading, [(f"{row.name}={row.default_text}", _sentence(row)) for row in rows]


def _sentence(row: Setting) -> str:
    unit = f" ({row.about.unit})" if row.about.unit else ""
    choices = f" [{row.type_text}]" if row.kind == "choice" else ""
    why = row.about.why[:1].upper() + row.about.why[1:]
    return f"{row.about.meaning}{unit}{choices}. {why}."


def settings_markdown() -> str:
    """The whole table, for the documentation."""
    lines = []
    for heading, names in GROUPS.items():
        lines += ["", f"## {heading}", ""]
        lines += [
            "| Setting | Default | Type | Unit | Meaning | Reason for the default |",
            "|---|---|---|---|---|---|",
        ]
        for row in map(settings().__getitem__, names):
            kind = " ".join(filter(None, (row.type_text, row.bounds)))
            cells = (f"`{row.name}`", f"`{row.default_text}`" if row.default_text else "",
                     kind, row.about.unit, row.about.meaning, row.about.why)  # fmt: skip
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines[1:]) + "\n"
