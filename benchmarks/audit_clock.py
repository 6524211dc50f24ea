"""Whether an audit keeps its time limit, all of it, and what it knows by then.

    python benchmarks/audit_clock.py [--trees 300] [--depth 6] [--time-limit 60] [--no-html] [NAME]

Trains an XGBoost model on the data set NAME (adult by default; see benchmarks/statistical.py for where it lies), then runs
`boxqte audit` on it as a user does, with a report, and prints what the command took, the width of what is known about every
question (certain bounds, statistical interval), and the seconds that each question had. Exit code 1 if the command took more
than a tenth longer than its limit, or an interval of the first table is wider than 0.01.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import xgboost

from boxqte import Space

ROOT = Path(__file__).resolve().parent.parent
SENSITIVE = {"adult": "sex,race", "bank": "age", "compas": "sex,race", "credit": "sex,age", "lsac": "sex,race"}
WIDEST, LATE = 0.01, 1.1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", nargs="?", default="adult")
    parser.add_argument("--trees", type=int, default=300)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--no-html", action="store_true", help="without the report")
    arguments = parser.parse_args()
    data = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    table = data / f"{arguments.name}.csv"
    space = Space.load(data / f"{arguments.name}.schema.json")
    frame = pd.read_csv(table)
    label = frame.pop("label")
    categorical = ",".join(a.name for a in space if not a.is_numeric)
    with tempfile.TemporaryDirectory() as folder:
        model, answer = f"{folder}/model.json", f"{folder}/audit.json"
        xgboost.XGBClassifier(n_estimators=arguments.trees, max_depth=arguments.depth).fit(frame, label).save_model(
            model
        )
        command = [sys.executable, "-m", "boxqte", "audit", model, "--data", str(table), "--label", "label"]
        command += ["--categorical", categorical, "--sensitive", SENSITIVE[arguments.name], "--json", answer, "--quiet"]
        command += ["--time-limit", str(arguments.time_limit)]
        command += [] if arguments.no_html else ["--html", f"{folder}/report.html"]
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads(Path(answer).read_text(encoding="utf-8"))
    print(said)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"wall {wall:.1f} s of {arguments.time_limit:g} s, processors {cpu:.1f} s")
    widest = 0.0
    for question in found["questions"]:
        result = question["result"]
        certain, drawn = result["measure"], result["statistical"]
        width = certain["upper"] - certain["lower"]
        known = width if drawn is None else min(width, drawn["upper"] - drawn["lower"])
        widest = max(widest, known)
        print(
            f"{question['name']:<24} {result['seconds']:6.1f} s  certain width {width:.6f}  known {known:.6f}  "
            f"{'' if drawn is None else drawn['points']} {result['status']}"
        )
    for rates in found["rates"]:
        print(f"rates by {', '.join(rates['sensitive']):<15} {rates['seconds']:6.1f} s  {rates['status']}")
    print(f"widest {widest:.6f}")
    return 0 if wall <= LATE * arguments.time_limit and widest <= WIDEST else 1


if __name__ == "__main__":
    sys.exit(main())
