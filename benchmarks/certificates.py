"""What a certificate costs: XGBoost, 50 trees of depth 3, the ten eps = 0 problems; one line a problem.

    python benchmarks/certificates.py [--workers N] [NAME ...]

Columns: seconds to solve without and with a certificate, its size, seconds to check it, and check / solve. The checker
is timed from the call on: reading the model's file and the certificate count, the start of Python does not. The data
sets (NAME.csv and NAME.schema.json) lie in the folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import xgboost

from boxqte import Fairness, Space, quantify
from boxqte.certify import certify

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = {
    "adult": ("age", "race", "sex"),
    "bank": ("age",),
    "compas": ("race", "sex"),
    "credit": ("age", "sex"),
    "lsac": ("race", "sex"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="of the engine and of the checker")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        print("the data sets are not here; set BOXQTE_DATA to the folder that holds them", file=sys.stderr)
        return 2
    print(f"{'problem':<14}{'solve s':>9}{'with s':>9}{'boxes':>9}{'bytes':>11}{'check s':>9}{'ratio':>7}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        for name in arguments.names:
            frame = pd.read_csv(folder / f"{name}.csv")
            space = Space.load(folder / f"{name}.schema.json")
            label = frame.pop(space.label or "label")
            model = Path(place) / f"{name}.json"
            xgboost.XGBClassifier(n_estimators=50, max_depth=3).fit(frame, label).get_booster().save_model(model)
            for sensitive in PROBLEMS[name]:
                file = Path(place) / "certificate.gz"
                plain = quantify(model, space, Fairness(sensitive), workers=arguments.workers)
                result = quantify(model, space, Fairness(sensitive), workers=arguments.workers, certificate=file)
                started = time.perf_counter()
                verdict = certify(file, model, space=space, workers=arguments.workers)
                seconds = time.perf_counter() - started
                assert result.converged
                assert (verdict.fair, verdict.unfair) == (result.decided.fair, result.decided.unfair)
                print(
                    f"{name + ' ' + sensitive:<14}{plain.seconds:9.2f}{result.seconds:9.2f}{verdict.boxes:9d}"
                    f"{file.stat().st_size:11,d}{seconds:9.2f}{seconds / plain.seconds:7.2f}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
