"""What bombs in one trial cost sixteen honest ones beside it.

`python tests/benchmarks/neighbours.py [--honest 16] [--bombs fork,cpu] [--modes root,user]
[--rounds 1] [--waves 15]`

For each mode (as root with control groups, as root without, as an ordinary user) and each bomb the
same honest trials run without the bomb and beside it, in turn: waves of all at once, one after the
other, for most of the bomb's time. Prints the median wall time of both, their ratio, and how many
honest outcomes a bomb has changed. Exit status 1 if any.
"""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.attacks.bombs import BOMBS, Neighbourhood
from tests.rollout.environments.ordinary_user import run_as_ordinary_user

_BOMB_SEC = 40.0


async def measure(folder: Path, mode: str, options: argparse.Namespace) -> int:
    """Prints a line for each bomb; the number of honest outcomes changed."""
    changed = 0
    async with Neighbourhood(folder, grouped=mode == "root") as neighbours:
        await neighbours.run(2, [])  # imports, caches
        for bomb in options.bombs.split(","):
            walls: dict[bool, list[float]] = {False: [], True: []}
            outcomes: Counter[str] = Counter()
            bombs_ended: Counter[str] = Counter()
            for _ in range(options.rounds):
                for bombed in (False, True):
                    honest, set_off = await neighbours.run(
                        options.honest,
                        [bomb] if bombed else [],
                        bomb_sec=options.bomb_sec,
                        waves=options.waves,
                    )
                    walls[bombed] += [trial.seconds for trial in honest]
                    outcomes.update(
                        f"{trial.decision.outcome} ({trial.decision.reason})"
                        for trial in honest
                        if trial.decision.outcome != "solved" or trial.decision.reward != 1.0
                    )
                    bombs_ended.update(
                        f"{b.decision.outcome} {b.decision.reward}: {b.decision.reason}"
                        for b in set_off
                    )
            clean, beside = (statistics.median(walls[bombed]) for bombed in (False, True))
            wrong = sum(outcomes.values())
            changed += wrong
            print(
                f"{mode:<10} {bomb:<7} p50 {clean:6.1f} s  with it {beside:6.1f} s"
                f"  {beside / clean:5.2f}x  changed {wrong} of {2 * len(walls[True])}"
                f"  bomb: {'; '.join(bombs_ended)}",
                flush=True,
            )
            for outcome, number in outcomes.items():
                print(f"    {number} x {outcome}", flush=True)
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--honest", type=int, default=16)
    parser.add_argument("--bombs", default=",".join(BOMBS))
    parser.add_argument("--modes", default="root,ungrouped,user")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--waves", type=int, default=15)
    parser.add_argument("--bomb-sec", type=float, default=_BOMB_SEC)
    options = parser.parse_args()
    changed = 0
    for mode in options.modes.split(","):
        with tempfile.TemporaryDirectory(prefix="tbtui-neighbours-") as name:
            folder = Path(name)
            if mode == "user":
                folder.chmod(0o755)

                async def body() -> None:
                    if await measure(Path.home() / "work", "user", options):
                        raise SystemExit("outcomes were changed")

                run_as_ordinary_user(body, folder / "home")
            else:
                os.environ["XDG_STATE_HOME"] = str(folder / "state")
                changed += asyncio.run(measure(folder, mode, options))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
