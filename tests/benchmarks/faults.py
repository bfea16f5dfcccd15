"""Faults injected into real trials: `python tests/benchmarks/faults.py [--trials 200] [--seed 0]`.

Prints the table of faults, and what was left behind. Exits with 1 if an outcome is wrong, a reward
was invented, or anything is left.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.faults.campaign import Campaign, choose, kills_among
from tests.faults.cases import CASES
from tests.faults.report import table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=12)
    parser.add_argument("--kills", type=int, default=4, help="workers killed with -9")
    parser.add_argument("--stops", type=int, default=2, help="workers stopped, as if they hung")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--without", help="leave out cases whose name contains this")
    parser.add_argument("--folder", type=Path, help="where the run's files stay, to look at them")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    cases = [case for case in CASES if options.only is None or options.only in case.name]
    if options.without is not None:
        cases = [case for case in cases if options.without not in case.name]
    chosen = choose(cases, options.trials, rng)
    kills = kills_among(options.trials, rng, options.kills, options.stops)
    with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        campaign = Campaign(
            folder, chosen, seed=options.seed, n_parallel=options.parallel, kills=kills
        )
        report = asyncio.run(campaign.run())
    print(table(report))
    for complaint in report.complaints:
        print(f"WRONG  {complaint}")
    sys.exit(1 if report.complaints else 0)


if __name__ == "__main__":
    main()
