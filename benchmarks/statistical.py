"""Big models, statistically: XGBoost, 500 trees of depth 6 on all rows of the five data sets, one line a problem.

    python benchmarks/statistical.py [--engine auto|sample] [--trees 500] [--depth 6] [--time-limit 60] [--gap 0.01] [NAME ...]

Prints the width of the interval at the stated confidence, the wall time of `quantify` on a model that is loaded, the
points drawn and the process's largest memory. Measure on an idle machine, and run it twice: the first run compiles.
The data sets (NAME.csv and NAME.schema.json) lie in the folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from pathlib import Path

import pandas as pd
import xgboost

from boxqte import Fairness, Space, quantify

ROOT = Path(__file__).resolve().parent.parent
SENSITIVE = {"adult": "sex", "bank": "age", "compas": "race", "credit": "sex", "lsac": "race"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(SENSITIVE))
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--epsilon-rate", nargs="*", default=["0", "0.1"])
    parser.add_argument("--kappa", default="0.5")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--workers", type=int)
    arguments = parser.parse_args()
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        print("the data sets are not here; set BOXQTE_DATA to the folder that holds them", file=sys.stderr)
        return 2
    reached = True
    for name in arguments.names:
        frame = pd.read_csv(folder / f"{name}.csv")
        space = Space.load(folder / f"{name}.schema.json")
        label = frame.pop(space.label or "label")
        model = xgboost.XGBClassifier(n_estimators=arguments.trees, max_depth=arguments.depth).fit(frame, label)
        for rate in arguments.epsilon_rate:
            result = quantify(
                model, space, Fairness(SENSITIVE[name], rate, arguments.kappa), engine=arguments.engine,
                time_limit=arguments.time_limit, gap=arguments.gap, workers=arguments.workers,
            )  # fmt: skip
            bounds, found = result.bounds, result.statistical
            assert bounds is not None
            lower, upper = (bounds.lower, bounds.upper) if found is None else (found.lower, found.upper)
            drawn = "certain" if found is None else f"{found.points} points, {found.unknown} unknown"
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            reached &= upper - lower <= arguments.gap
            print(
                f"{name:<7}{SENSITIVE[name]:<5} epsilon {rate:<4} {result.seconds:6.1f} s  width {upper - lower:.4f}  "
                f"[{lower:.5f}, {upper:.5f}]  certain [{bounds.lower:.4f}, {bounds.upper:.4f}]  {drawn}, "
                f"{memory:.2f} GiB, {result.status}",
                flush=True,
            )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
