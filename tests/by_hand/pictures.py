"""The pictures in README and the guide: `python -m tests.by_hand.pictures [RUN_DIRECTORY]`.

Without RUN_DIRECTORY, a run of eight steps is recorded first. The cockpit stands where half of the
last step's trials have ended; the group is the one of that step whose rewards differ most. The
review is the tests' own, in which everything occurs that a review can show.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tbtui.journal.events import GroupScored, StepStarted, TrialFinished
from tbtui.journal.rundir import RunDirectory
from tbtui.ui.app import TbtuiApp
from tests.events import entries_of, events_of
from tests.ui.picture import PastHost, settle, to_png
from tests.ui.review_run import ReviewedRun, ReviewHost

PICTURES = Path(__file__).parents[2] / ".github"


def record(logs: Path) -> Path:
    """Run eight steps of the embedded model."""
    settings = [f"logs_dir={logs}", "run_name=starter", "max_steps=8"]
    subprocess.run([sys.executable, "-m", "tbtui", "run", "--no-ui", *settings], check=True)
    return logs / "starter"


def moment(run: RunDirectory) -> float:
    """Seconds after the run's start at which half of the last step's trials have ended."""
    entries = entries_of(run)
    step = max(entry.event.step for entry in entries if isinstance(entry.event, StepStarted))
    scored = [each for each in events_of(run, GroupScored) if each.step == step]
    trials = {trial for group in scored for trial in group.trials}
    ends = [
        entry.time
        for entry in entries
        if isinstance(entry.event, TrialFinished) and entry.event.trial in trials
    ]
    return sorted(ends)[len(ends) // 2] - entries[0].time


def mixed_group(run: RunDirectory) -> str:
    """A trial of the last step's group whose rewards differ most."""
    groups = events_of(run, GroupScored)

    def spread(group: GroupScored) -> float:
        return float(np.std([score.reward or 0.0 for score in group.trials.values()]))

    return next(iter(max((g for g in groups if g.step == groups[-1].step), key=spread).trials))


async def draw(app: TbtuiApp, name: str, size: tuple[int, int], *keys: str) -> None:
    """Write what the app shows after the keys."""
    async with app.run_test(size=size) as pilot:
        await settle(app)
        for key in keys:
            await pilot.press(key)
            await settle(app)
        await pilot.pause()
        svg = app.export_screenshot(title="tbtui")
    file = PICTURES / name
    file.write_bytes(to_png(svg))
    sys.stdout.write(f"{file}: {file.stat().st_size // 1000} kB\n")


async def draw_all(recorded: Path, reviewed: Path) -> None:
    run = RunDirectory.open(recorded)
    at = moment(run)
    await draw(TbtuiApp(PastHost(run), live=False, still_at=at), "cockpit.png", (160, 48))
    trial = mixed_group(run)
    await draw(TbtuiApp(PastHost(run), live=False, trial=trial), "group.png", (160, 38), "g")
    review = ReviewedRun(reviewed, timeout=300.0)
    app = TbtuiApp(ReviewHost(review), live=False, clock=lambda: review.now)
    await draw(app, "review.png", (160, 45), "V")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", metavar="RUN_DIRECTORY")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        recorded = given.run or record(Path(made))
        asyncio.run(draw_all(recorded, Path(made) / "reviewed"))


if __name__ == "__main__":
    main()
