"""What a certificate costs: XGBoost, 50 trees of depth 3, the ten eps = 0 problems; one line a problem.

    python -m benchmarks.certificates [--workers N] [NAME ...]
    python -m benchmarks.certificates --against df52b54 [NAME ...]    and what another commit's core takes to solve it

Columns: seconds to solve without and with a certificate, its size, seconds to check it, and check / solve. The checker
is timed from the call on: reading the model's file and the certificate count, the start of Python does not. With --against
all seconds are the CPU's, of one thread, and two more columns say what the other commit takes (the least of three, in the
environment that benchmarks/against.py makes) and check / that. The data sets (NAME.csv and NAME.schema.json) lie in the
folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import xgboost
from benchmarks.against import OUT, Side, commit_of, old_python

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
    parser.add_argument("--against", metavar="COMMIT", help="compare with what this commit's core takes to solve it")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        print("the data sets are not here; set BOXQTE_DATA to the folder that holds them", file=sys.stderr)
        return 2
    workers, clock = (1, time.process_time) if arguments.against else (arguments.workers, time.perf_counter)
    head = f"{'problem':<14}{'solve s':>9}{'with s':>9}{'boxes':>9}{'bytes':>11}{'check s':>9}{'ratio':>7}"
    print(head + (f"{'old s':>9}{'ratio':>7}" if arguments.against else ""), flush=True)
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        old = None
        if arguments.against:
            OUT.mkdir(parents=True, exist_ok=True)
            old = stack.enter_context(Side("old", old_python(commit_of(arguments.against)), None))
        for name in arguments.names:
            frame = pd.read_csv(folder / f"{name}.csv")
            space = Space.load(folder / f"{name}.schema.json")
            label = frame.pop(space.label or "label")
            model, saved = Path(place) / f"{name}.json", Path(place) / "space.json"
            xgboost.XGBClassifier(n_estimators=50, max_depth=3).fit(frame, label).get_booster().save_model(model)
            space.save(saved)
            for sensitive in PROBLEMS[name]:
                file = Path(place) / "certificate.gz"
                started = clock()
                quantify(model, space, Fairness(sensitive), workers=workers)
                solved = clock() - started
                started = clock()
                result = quantify(model, space, Fairness(sensitive), workers=workers, certificate=file)
                recorded = clock() - started
                started = clock()
                verdict = certify(file, model, space=space, workers=workers)
                checked = clock() - started
                assert result.converged
                assert (verdict.fair, verdict.unfair) == (result.decided.fair, result.decided.unfair)
                line = (
                    f"{name + ' ' + sensitive:<14}{solved:9.2f}{recorded:9.2f}{verdict.boxes:9d}"
                    f"{file.stat().st_size:11,d}{checked:9.2f}{checked / solved:7.2f}"
                )
                if old is not None:
                    question = {
                        "sensitive": sensitive, "epsilon_rate": "0", "kappa": "0.5", "model": str(model),
                        "space": str(saved), "time_limit": 600.0,
                    }  # fmt: skip
                    old.ask(question | {"do": "warm_up"})
                    before = min(old.ask(question | {"do": "solve"})["seconds"] for _ in range(3))
                    line += f"{before:9.2f}{checked / before:7.2f}"
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
