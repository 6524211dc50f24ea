"""Points decided per CPU second: XGBoost, 500 trees of depth 6 on all rows of the five data sets, one line a question.

    python benchmarks/points.py [--points 2000] [--repeat 5] [--epsilon-rate 0 0.1] [--against SOURCE] [NAME ...]

Each number is the best of some repetitions on one thread. With --against, the package in that folder (the `src` of another
checkout) decides the same points in the same run, in turns with this one, and the ratio is printed; the verdicts must be the
same. The data sets (NAME.csv and NAME.schema.json) lie in the folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SENSITIVE = {"adult": "sex", "bank": "age", "compas": "race", "credit": "sex", "lsac": "race"}


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """CPU seconds for the points of a task (the best of its repetitions), and their verdicts in words."""
    import numpy as np

    from boxqte import Fairness, Space
    from boxqte.engines import point
    from boxqte.models.importers import load_model
    from boxqte.questions.building import build_grid

    names = {point.FAIR: "f", point.UNFAIR: "u", point.LOW: "l", point.UNKNOWN: "?"}
    grid = build_grid(
        load_model(task["model"]).ensemble, Space.load(task["schema"]), Fairness(task["sensitive"], task["rate"])
    )
    rng = np.random.default_rng(0)
    cells = np.zeros((task["points"], len(grid.axes)), np.int64)
    for a, axis in enumerate(grid.axes):
        masses = np.array([float(m) for m in axis.refined_masses])
        cells[:, a] = rng.choice(len(masses), len(cells), p=masses / masses.sum())
    decider = point.PointDecider(grid)
    decider.decide(cells[:10])
    best = math.inf
    for _ in range(task["repeat"]):
        started = time.process_time()
        found = decider.decide(cells)
        best = min(best, time.process_time() - started)
    return {"seconds": best, "verdicts": "".join(names[v] for v in found.verdict.tolist())}


def elsewhere(source: str, task: dict[str, Any]) -> dict[str, Any]:
    """The same measurement with the package in another folder."""
    environment = os.environ | {"PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, __file__, "--task", json.dumps(task)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def trained(folder: Path, name: str, to: str) -> None:
    """Train the model of a data set and write its file."""
    import pandas as pd
    import xgboost

    from boxqte import Space

    frame = pd.read_csv(folder / f"{name}.csv")
    label = frame.pop(Space.load(folder / f"{name}.schema.json").label or "label")
    xgboost.XGBClassifier(n_estimators=500, max_depth=6).fit(frame, label).save_model(to)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(SENSITIVE))
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--epsilon-rate", nargs="*", default=["0", "0.1"])
    parser.add_argument("--against", metavar="SOURCE")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        print(json.dumps(measure(json.loads(arguments.task))))
        return 0
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        print("the data sets are not here; set BOXQTE_DATA to the folder that holds them", file=sys.stderr)
        return 2
    same = True
    with tempfile.TemporaryDirectory() as kept:
        for rate in arguments.epsilon_rate:
            ratios = []
            for name in arguments.names:
                model = f"{kept}/{name}.json"
                if not os.path.exists(model):
                    trained(folder, name, model)
                task = {
                    "model": model, "schema": str(folder / f"{name}.schema.json"), "sensitive": SENSITIVE[name],
                    "rate": rate, "points": arguments.points, "repeat": arguments.repeat,
                }  # fmt: skip
                here = measure(task)
                unfair = here["verdicts"].count("u") / arguments.points
                speed = arguments.points / here["seconds"]
                line = f"{name:<7}{SENSITIVE[name]:<5} epsilon {rate:<4} {speed:10,.0f} points/s  unfair {unfair:.3f}"
                if arguments.against:
                    there = elsewhere(arguments.against, task)
                    same &= there["verdicts"] == here["verdicts"]
                    ratios.append(there["seconds"] / here["seconds"])
                    line += f"  other {arguments.points / there['seconds']:9,.0f} points/s  {ratios[-1]:5.2f} times"
                print(line, flush=True)
            if ratios:
                print(f"epsilon {rate}: geometric mean {math.prod(ratios) ** (1 / len(ratios)):.2f} times", flush=True)
    if not same:
        print("the verdicts differ", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
