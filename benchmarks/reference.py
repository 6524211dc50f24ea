"""Time the reference problems: XGBoost, 50 trees of depth 3 on all rows of the five data sets, one line a problem.

    python benchmarks/reference.py [--epsilon-rate R] [--kappa K] [--engine E] [--time-limit S] [NAME ...]

The data sets (NAME.csv and NAME.schema.json) lie in the folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pandas as pd
import xgboost

from boxqte import BoxQTEError, Fairness, Robustness, Space, quantify
from boxqte.engines import DEFAULT_ENGINE
from boxqte.report.text import between, measure_text

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = {
    "adult": (None, "age", "race", "sex"),
    "bank": (None, "age"),
    "compas": (None, "race", "sex"),
    "credit": (None, "age", "sex"),
    "lsac": (None, "race", "sex"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--epsilon-rate", default="0")
    parser.add_argument("--kappa", default="0.5")
    parser.add_argument("--engine", default=DEFAULT_ENGINE)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--depth", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        print("the data sets are not here; set BOXQTE_DATA to the folder that holds them", file=sys.stderr)
        return 2
    for name in arguments.names:
        frame = pd.read_csv(folder / f"{name}.csv")
        space = Space.load(folder / f"{name}.schema.json")
        label = frame.pop(space.label or "label")
        model = xgboost.XGBClassifier(n_estimators=arguments.trees, max_depth=arguments.depth).fit(frame, label)
        for sensitive in PROBLEMS[name]:
            if sensitive is None and arguments.epsilon_rate == "0":
                continue  # every input is robust against no change
            shape = (arguments.epsilon_rate, arguments.kappa)
            prop = Robustness(*shape) if sensitive is None else Fairness(sensitive, *shape)
            title = f"{name:<7}{sensitive or '(robustness)':<13}"
            try:
                result = quantify(model, space, prop, engine=arguments.engine, time_limit=arguments.time_limit)
            except BoxQTEError as error:
                print(f"{title}{error}", flush=True)
                continue
            print(
                f"{title}{result.seconds:9.2f} s  {result.status!s:<14}measure {measure_text(result)}, "
                f"counterexample mass {between(result.counterexample)}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
