"""Is an XGBoost model monotone? Trained with a monotone constraint and without, a proof or a pair, in seconds.

    python -m benchmarks.monotone [--sizes 50x3,200x5] [--time-limit 60] [--workers 2] [NAME ...]

XGBoost on all rows of the data set, one numeric attribute of it. Each model is asked on scores and on classes. The time goes
from the trained model in memory to the verdict: reading it, building the grid, the search, and asking XGBoost about the pair.
"""

from __future__ import annotations

import argparse
import sys
import time

import xgboost
from benchmarks.paper.datasets import DataError, load_dataset

from boxqte import Monotonicity, verify

PROBLEMS = {"adult": ("hours_per_week", 1), "bank": ("duration", 1), "credit": ("duration", -1), "lsac": ("lsat", 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--sizes", default="50x3,200x5")
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    try:
        tables = [load_dataset(name) for name in arguments.names]
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    print(
        "| data | attribute | size | constraint | on | verdict | replayed | seconds |\n|---|---|---|---|---|---|---|---|"
    )
    for data in tables:
        name, space = data.name, data.space
        attribute, sign = PROBLEMS[name]
        direction = "increasing" if sign > 0 else "decreasing"
        for size in arguments.sizes.split(","):
            trees, depth = map(int, size.split("x"))
            for constraint in ({attribute: sign}, None):
                model = xgboost.XGBClassifier(
                    n_estimators=trees, max_depth=depth, n_jobs=arguments.workers, monotone_constraints=constraint
                ).fit(data.inputs, data.labels)
                for on in ("score", "class"):
                    started = time.perf_counter()
                    question = Monotonicity(attribute, direction, on)
                    found = verify(model, space, question, time_limit=arguments.time_limit, workers=arguments.workers)
                    seconds = time.perf_counter() - started
                    replayed = {None: "", True: "yes", False: "no"}[found.replayed]
                    row = (name, f"{attribute} {direction}", size, "yes" if constraint else "no", on, found.verdict)
                    print(f"| {' | '.join(map(str, row))} | {replayed} | {seconds:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
