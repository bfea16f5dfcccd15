"""A finding of the diagnosis, and its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Severity = Literal["blocks", "costs", "watch"]
"""`blocks`: the run does not go on, or learns nothing, until somebody acts; `costs`: trials, signal
or time are lost at every step; `watch`: it may come to that."""
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

MOST_TREND = 32
"""Steps of a trend."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A setting with the value that it should have."""

    setting: str
    value: int | float | str | bool | None
    preview: str
    """What it leads to, in one line."""

    @property
    def text(self) -> str:
        """`step_deadline_sec=40`: as the command line takes it."""
        match self.value:
            case None:
                shown = "none"
            case bool():
                shown = str(self.value).lower()
            case float():
                shown = f"{self.value:g}"
            case _:
                shown = str(self.value)
        return f"{self.setting}={shown}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a run."""

    name: str
    """The rule's name, for scripts: `context_overflow`."""
    severity: Severity
    share: float
    """Part of the trials, groups or time that it concerns, from 0 to 1; 1: the whole run."""
    figure: str
    """The number, with what it is of: `24 of 64 trials (38%)`."""
    limit: str
    """From where on it is a finding: `5% of trials`."""
    why: str
    """Why it matters, in one sentence."""
    advice: str
    """What to do, in a few words: `raise context_limit`."""
    trend: tuple[float, ...] = ()
    """The number at each of the latest steps, oldest first, in one unit."""
    trials: tuple[str, ...] = ()
    """Ids of the trials behind it, oldest first, as far as they are in memory."""
    remedy: Remedy | None = None

    @property
    def title(self) -> str:
        """`context overflow`."""
        return _TITLES.get(self.name) or self.name.replace("_", " ")

    @property
    def line(self) -> str:
        """`context overflow: 24 of 64 trials (38%); raise context_limit`."""
        return f"{self.title}: {self.figure}; {self.advice}"


_TITLES = {
    "all_failing": "every trial fails",
    "unreadable_answers": "parse errors",
    "waits_paused": "run paused",
    "waits_policy": "policy lost",
    "waits_review": "review waits",
}
"""Name of a finding -> its title, where that isn't the name's words."""


def rank(finding: Finding) -> tuple[int, float, str]:
    """Key to sort by: what blocks the run first, then what concerns the most of it."""
    return SEVERITIES.index(finding.severity), -finding.share, finding.name


def share_of(part: float, whole: float) -> float:
    """`part / whole` within 0 and 1; 0 where there is no whole or no number."""
    if not whole > 0:
        return 0.0
    share = part / whole
    return min(1.0, max(0.0, share)) if share == share else 0.0


def part_of(part: int, whole: int, what: str) -> str:
    """`24 of 64 trials (38%)`."""
    return f"{part} of {whole} {what} ({share_of(part, whole):.0%})"
