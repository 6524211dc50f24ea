"""How fast counterexample pairs are drawn: XGBoost, 50 trees of depth 3, epsilon 0, one line a problem.

    python benchmarks/sampling.py [--pairs N] [NAME ...]

Each problem is solved first; then N distinct pairs are drawn from the converged result. Times are wall time on all cores:
`draw` is everything up to the two tables (distinct), `replay` is asking XGBoost about both inputs of every pair. The first
draw of a process loads compiled kernels; it is done once before the clock starts, with 100 pairs of the loan example.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import pandas as pd
import xgboost

from boxqte import BoxQTEError, Fairness, Space, quantify
from boxqte.examples import loan_ensemble, loan_space

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = {"adult": ("sex", "race", "age"), "bank": ("age",), "credit": ("sex", "age"), "lsac": ("race", "sex"),
            "compas": ("race", "sex")}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=120.0)
    arguments = parser.parse_args()
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        print("the data sets are not here; set BOXQTE_DATA to the folder that holds them", file=sys.stderr)
        return 2
    quantify(loan_ensemble(), loan_space(), Fairness("race")).sample(100)
    for name in arguments.names:
        frame = pd.read_csv(folder / f"{name}.csv")
        space = Space.load(folder / f"{name}.schema.json")
        label = frame.pop(space.label or "label")
        model = xgboost.XGBClassifier(n_estimators=arguments.trees, max_depth=arguments.depth).fit(frame, label)
        for sensitive in PROBLEMS[name]:
            result = quantify(model, space, Fairness(sensitive), engine="box", time_limit=arguments.time_limit)
            title = f"{name:<7}{sensitive:<6}solved in {result.seconds:6.2f} s ({result.status}), "
            started, cpu = time.perf_counter(), time.process_time()
            try:
                found = result.sample(arguments.pairs, random_state=0, distinct=True, replay=False)
            except BoxQTEError as error:
                print(f"{title}{error}", flush=True)
                continue
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
            assert len(found) == arguments.pairs
            started = time.perf_counter()
            x, other = (model.predict(table[frame.columns]) for table in (found.x, found.witness))
            replay = time.perf_counter() - started
            print(
                f"{title}{len(result.asked.regions().boxes):6d} regions, {len(found)} distinct pairs: "
                f"draw {seconds:5.2f} s (CPU {cpu:.2f}), "
                f"replay {replay:5.2f} s, the library agrees on {int((x != other).sum())}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
