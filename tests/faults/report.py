"""The table of a campaign: each kind of trial, what came of it, what was left behind."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Row:
    """A line of the table: one kind of trial."""

    name: str
    expected: str
    trials: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    invented: int = 0
    retries: int = 0
    exchanged: int = 0
    """Trials whose failure was the policy's own, and that got another attempt for it."""
    seconds: list[float] = field(default_factory=list)

    @property
    def median_sec(self) -> float:
        return statistics.median(self.seconds) if self.seconds else 0.0


@dataclass(slots=True)
class Report:
    rows: list[Row]
    leaks: dict[str, list[str]]
    kills: int
    seconds: float

    @property
    def complaints(self) -> list[str]:
        """Everything that is not as it must be, one line each."""
        found = [f"{row.name}: {wrong}" for row in self.rows for wrong in row.wrong]
        found += [f"{row.name}: exchanged" for row in self.rows if row.exchanged]
        found += [f"leak of {kind}: {one}" for kind, left in self.leaks.items() for one in left]
        return found


def table(report: Report) -> str:
    lines = [
        f"{'fault':26}{'trials':>6}  {'outcomes seen':44}{'expected':34}"
        f"{'wrong':>6}{'invented':>9}{'retries':>8}{'p50 s':>7}"
    ]
    for row in report.rows:
        seen = ", ".join(f"{count} {outcome}" for outcome, count in row.seen.most_common())
        lines.append(
            f"{row.name:26}{row.trials:>6}  {seen:44}{row.expected:34}"
            f"{len(row.wrong):>6}{row.invented:>9}{row.retries:>8}{row.median_sec:>7.2f}"
        )
    rows = report.rows
    lines.append(
        f"{'total':26}{sum(row.trials for row in rows[:-1]):>6}  {'':78}"
        f"{sum(len(row.wrong) for row in rows):>6}{sum(row.invented for row in rows):>9}"
        f"{sum(row.retries for row in rows):>8}"
    )
    leaks = ", ".join(f"{kind} {len(left)}" for kind, left in report.leaks.items())
    lines.append(f"left behind: {leaks}")
    lines.append(f"failures exchanged for another attempt: {sum(row.exchanged for row in rows)}")
    lines.append(f"{report.kills} workers killed or stopped; {report.seconds:.0f} s")
    return "\n".join(lines)
