"""Import and grid of a 2,000-tree depth-8 model: seconds of each step, and the process's largest memory.

    python benchmarks/large_model.py [--trees 2000] [--depth 8] [--library xgboost|lightgbm] [NAME]

Trains once on the data set NAME (adult by default; see benchmarks/statistical.py for where it lies), then times
`load_model`, `build_grid` (epsilon rate 0 and 0.1) and the first 1,000 points decided.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from boxqte import Fairness, Space
from boxqte.engines.point import PointDecider
from boxqte.engines.sample.draws import Draws, WholeSpace
from boxqte.models.importers import load_model
from boxqte.questions.building import build_grid

ROOT = Path(__file__).resolve().parent.parent
SENSITIVE = {"adult": "sex", "bank": "age", "compas": "race", "credit": "sex", "lsac": "race"}


def trained(library: str, trees: int, depth: int, frame: Any, label: Any, folder: str) -> str:
    """The path of the trained model's file."""
    if library == "xgboost":
        import xgboost

        model = xgboost.XGBClassifier(n_estimators=trees, max_depth=depth, n_jobs=1).fit(frame, label)
        model.save_model(f"{folder}/model.json")
        return f"{folder}/model.json"
    import lightgbm

    model = lightgbm.LGBMClassifier(n_estimators=trees, max_depth=depth, num_leaves=2**depth, verbose=-1, n_jobs=1)
    model.fit(frame, label).booster_.save_model(f"{folder}/model.txt")
    return f"{folder}/model.txt"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", nargs="?", default="adult")
    parser.add_argument("--library", choices=("xgboost", "lightgbm"), default="xgboost")
    parser.add_argument("--trees", type=int, default=2000)
    parser.add_argument("--depth", type=int, default=8)
    arguments = parser.parse_args()
    data = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    frame = pd.read_csv(data / f"{arguments.name}.csv")
    space = Space.load(data / f"{arguments.name}.schema.json")
    label = frame.pop(space.label or "label")
    with tempfile.TemporaryDirectory() as folder:
        path = trained(arguments.library, arguments.trees, arguments.depth, frame, label, folder)
        started = time.perf_counter()
        ensemble = load_model(path).ensemble
        seconds = time.perf_counter() - started
    print(f"{arguments.library} on {arguments.name}: {ensemble.n_trees} trees, {ensemble.n_leaves} leaves")
    print(f"import           {seconds:7.2f} s")
    for rate in ("0", "0.1"):
        started = time.perf_counter()
        grid = build_grid(ensemble, space, Fairness(SENSITIVE[arguments.name], rate))
        print(f"grid, rate {rate:<4}  {time.perf_counter() - started:7.2f} s")
        started = time.perf_counter()
        decider = PointDecider(grid)
        decider.decide(np.zeros((1, len(grid.axes)), np.int64))
        compiled = time.perf_counter()
        decider.decide(Draws(grid, WholeSpace(), (), 0).round(1000))
        print(f"  arrays, kernels{compiled - started:7.2f} s, then 1,000 points {time.perf_counter() - compiled:.2f} s")
    print(f"largest memory   {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:7.2f} GiB (with training)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
