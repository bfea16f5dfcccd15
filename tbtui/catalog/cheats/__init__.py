"""The battery of cheats: what an agent may try in place of the work, each a shell script.

A script runs where a task's solution would, as the agent's user, in a copy of the task without its
solution. A pass proves that the task can be cheated. Exit status 77 (Automake's "skipped"): there
was nothing here that the cheat could be tried on.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tbtui.catalog import CatalogError, nearest

SKIPPED = 77
"""Exit status of a cheat that has nothing to work on."""
NOTHING = "nothing"

_PATH = re.compile(r"(?<![\w.:/])/(?:[\w.@+-]+/)*[\w.@+-]*\w")
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MOST_OUTPUTS = 20


@dataclass(frozen=True, slots=True)
class Cheat:
    """A way to pass without the work."""

    name: str
    what: str
    """What it does, a sentence."""
    text: str

    def script(self, instruction: str) -> str:
        """The script for a task with this instruction."""
        # The example may show several files: each gets all of it, and one of them may be right.
        example = "".join(_FENCED.findall(instruction))
        # Where none is named: a path that exists, which the scripts pass over.
        outputs = " ".join(map(shlex.quote, _named_files(instruction))) or "/"
        text = self.text.replace("@EXAMPLE@", shlex.quote(example))
        return text.replace("@OUTPUTS@", outputs)


def _named_files(instruction: str) -> list[str]:
    """Absolute paths that an instruction names, in its order."""
    named = dict.fromkeys(found.rstrip(".") for found in _PATH.findall(instruction))
    return list(named)[:_MOST_OUTPUTS]


def battery(names: tuple[str, ...] = ()) -> list[Cheat]:
    """All cheats, "nothing" first; or those that are named.

    Raises:
        CatalogError: there is no such cheat.
    """
    files = sorted(
        Path(__file__).parent.glob("*.sh"), key=lambda file: (file.stem != NOTHING, file)
    )
    cheats = {file.stem: _read(file) for file in files}
    for name in names:
        if name not in cheats:
            raise CatalogError(
                f"no cheat {name!r}{nearest(name, list(cheats))}; there are {', '.join(cheats)}"
            )
    return [cheat for name, cheat in cheats.items() if not names or name in names]


def _read(file: Path) -> Cheat:
    text = file.read_text()
    return Cheat(file.stem, text.split("\n", 2)[1].removeprefix("# ").rstrip("."), text)
