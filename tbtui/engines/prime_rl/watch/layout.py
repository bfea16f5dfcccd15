"""Where Prime-RL keeps what a watcher reads, in the layout of either time."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from tbtui.errors import UserError

_CHUNK = re.compile(r"^(\d+)\.jsonl(\.zst)?$")
_NEWEST_BROADCASTS = 3
_SIGNS = ("configs", "logs", "metrics.jsonl", "rollouts", "monitors", "broadcasts", "checkpoints")


class SourceError(UserError):
    """There is nothing to watch; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class RolloutFile:
    """`rollouts/step_N/<kind>/<subset>/traces.jsonl`, up to 2026-08."""

    step: int
    kind: str
    subset: str
    path: Path


@dataclass(frozen=True, slots=True)
class SourceDirectory:
    """`<output_dir>/<run.name>` of a run of Prime-RL's. Only read."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> SourceDirectory:
        """A directory that may still be empty.

        Raises:
            SourceError: it isn't there, or holds something else.
        """
        if not path.is_dir():
            raise SourceError(f"{path}: no such directory; give Prime-RL's output_dir/run.name")
        names = {entry.name for entry in path.iterdir()}
        if names and not names.intersection(_SIGNS):
            runs = sorted(n for n in names if any((path / n / sign).exists() for sign in _SIGNS))
            hint = f"give one of its runs: {', '.join(runs[:5])}" if runs else ""
            raise SourceError(
                f"{path}: not a run of Prime-RL's (no {', '.join(_SIGNS[:3])}); "
                f"{hint or 'give its output_dir/run.name'}"
            )
        return cls(path.resolve())

    @property
    def empty(self) -> bool:
        """Nothing has been written but, at most, the configuration."""
        return not any((self.path / sign).exists() for sign in _SIGNS if sign != "configs")

    def metrics(self) -> tuple[Path, ...]:
        return self.path / "metrics.jsonl", self.path / "monitors" / "file" / "metrics.jsonl"

    @property
    def traces(self) -> Path:
        """Of the later layout."""
        return self.path / "monitors" / "file" / "traces"

    def configs(self) -> tuple[Path, ...]:
        """The whole configuration, where it may be; the later one first."""
        configs = self.path / "configs"
        return configs / "latest" / "resolved" / "rl.json", configs / "rl.json"

    def part_configs(self) -> dict[str, Path]:
        """Of the parts, which is all that a launch on one machine leaves up to 2026-08."""
        configs = self.path / "configs"
        return {part: configs / f"{part}.json" for part in ("orchestrator", "inference", "trainer")}

    def attempt(self) -> Path | None:
        """The logs of the latest launch, by their own name."""
        latest = self.path / "logs" / "latest"
        return latest.resolve() if latest.exists() else None

    def rollouts(self, since: int) -> list[RolloutFile]:
        """Of step `since` and later ones, in their order; of a step, `all` before `effective`."""
        root = self.path / "rollouts"
        found = [
            RolloutFile(step, kind, subset, path)
            for step in steps_in(root, since)
            for kind in ("train", "eval")
            for subset in ("all", "effective")
            if (path := root / f"step_{step}" / kind / subset / "traces.jsonl").exists()
        ]
        return sorted(found, key=lambda each: (each.step, each.subset, each.kind))

    def chunks(self) -> list[tuple[int, Path]]:
        """Of the later layout's stream, by number; a plain one goes before its sealed twin."""
        chunks: dict[int, Path] = {}
        for path in _entries(self.traces / "stream"):
            if match := _CHUNK.match(path.name):
                number = int(match[1])
                if number not in chunks or path.suffix == ".jsonl":
                    chunks[number] = path
        return sorted(chunks.items())

    def annotations(self) -> list[Path]:
        """What the orchestrator says of traces that it hands to the trainer."""
        return sorted(
            path
            for path in _entries(self.traces / "annotations")
            if path.name.startswith("orch") and path.name.endswith(".index.jsonl")
        )

    def live(self) -> list[Path]:
        return sorted(p for p in _entries(self.traces / "live") if p.suffix == ".jsonl")

    def broadcasts(self) -> list[tuple[int, bool]]:
        """The newest versions of the weights, and whether they are written to the end."""
        root = self.path / "broadcasts"
        newest = steps_in(root)[-_NEWEST_BROADCASTS:]
        return [(step, (root / f"step_{step}" / "STABLE").exists()) for step in newest]

    def checkpoints(self, known: Set[int]) -> list[tuple[int, Path]]:
        """Those not `known` that both trainer and orchestrator have written their part of."""
        root = self.path / "checkpoints"
        return [
            (step, path)
            for step in steps_in(root, known=known)
            if ((path := root / f"step_{step}") / "orchestrator" / "progress.pt").exists()
            and ((path / "STABLE").exists() or (path / "trainer" / ".metadata").exists())
        ]


def steps_in(directory: Path, since: int = 0, known: Set[int] = frozenset()) -> list[int]:
    """Numbers of the `step_N` directories from `since` on, without the `known` ones, in order.

    Called several times a second on directories of thousands of steps.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names alone, at a third the cost
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbers = (name[5:] for name in names if name.startswith("step_"))
    found = {int(number) for number in numbers if number.isdecimal()}
    return sorted(number for number in found - known if number >= since)


def _entries(directory: Path) -> Iterator[Path]:
    try:
        yield from directory.iterdir()
    except (FileNotFoundError, NotADirectoryError):
        return
