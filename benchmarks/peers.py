"""The questions of XCount and of SViM, asked by the command that a user runs; one table.

    python -m benchmarks.peers [--time-limit 60] [--quick] [--data-dir DIR]

XCount counts the cells in which one sensitive feature (k = 1) changes the output of an XGBoost regressor by more than a gap of
2, on sklearn's diabetes data: 5 to 30 trees of depth 3, eta 0.1, seed 42. It knows no domain: every cell counts the same
(mass 'cells'). Asked with `boxqte quantify`; seconds are those of the whole command, its start included.

SViM asks whether the sensitive feature can change the output from p >= 0.8 to p <= 0.2: kappa = partner_kappa = 0.8. Asked
with `boxqte verify`; where that leaves it open, `boxqte quantify` bounds the mass of x whose margin changes by more than both
levels together, 2 logit(0.8), under the same limit: there are no others. Models like theirs: XGBoost, 200 x 5 to 800 x 6, on
adult and on German Credit (balanced, 600 rows). Their churn and pima are not at
hand: tables of the same shape, made by sklearn and marked `made`, stand in for them, with one attribute of two values.

Exit 1 if a goal is missed (XCount 30x3: 1 s; SViM adult 200x5 and credit 500x5: a verdict, or the bound); measure on an idle
machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import xgboost
from benchmarks.paper.datasets import load_dataset
from sklearn.datasets import load_diabetes, make_classification

from boxqte import Space

HEAD = ("peer", "data", "trees", "sensitive", "answer", "seconds", "goal")
DIABETES_SIZES = (5, 10, 20, 30)
DIABETES_SENSITIVE = ("age", "sex", "bmi", "s5")
XCOUNT_GOAL = 1.0
SVIM = {  # data: sensitive attribute, sizes
    "adult": ("sex", ((200, 5), (500, 5), (800, 6))),
    "credit": ("sex", ((200, 5), (500, 5), (800, 6))),
    "churn (made)": ("s", ((200, 5), (800, 6))),
    "pima (made)": ("s", ((200, 5), (800, 6))),
}
MADE = {"churn (made)": (3333, 19), "pima (made)": (768, 8)}  # rows, columns
SVIM_GOALS = {("adult", 200), ("credit", 500)}
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # as installed
OUTPUT_GAP = ("--kappa", "0.8", "--partner-kappa", "0.8")

MARGIN_GAP = ("--score-at-most", "2.7725887", "--scale", "margin")  # below 2 logit(0.8) = 2.77258872...


class Row(NamedTuple):
    cells: tuple[str, ...]
    met: bool = True


def command(*arguments: str) -> tuple[dict[str, Any], float]:
    """What a command answers, as JSON, and how many seconds it took, from its start to its end."""
    line = [sys.executable, "-m", "boxqte", *arguments, "--quiet", "--json", "-"]
    started = time.perf_counter()
    done = subprocess.run(line, env=COMPILED, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if not done.stdout:
        raise SystemExit(f"peers: boxqte {' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout), seconds


def xcount(folder: Path, quick: bool) -> list[Row]:
    data = load_diabetes(as_frame=True)
    space = Space.infer(data.data, real=list(data.data), mass="cells").space
    space.save(folder / "diabetes.json")
    rows = []
    for trees in DIABETES_SIZES[-1:] if quick else DIABETES_SIZES:
        model = xgboost.XGBRegressor(n_estimators=trees, max_depth=3, learning_rate=0.1, random_state=42)
        model.fit(data.data, data.target)
        path = folder / f"diabetes{trees}.json"
        model.save_model(path)
        for sensitive in DIABETES_SENSITIVE:
            asked = ("quantify", str(path), "--space", str(folder / "diabetes.json"), "--sensitive", sensitive,
                     "--score-at-most", "2", "--scale", "value")  # fmt: skip
            if not rows:
                command(*asked)  # so that Python has compiled what an installation has compiled
            answer, seconds = command(*asked)
            least, most = answer["cells"]["counterexample"]
            found = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            goal = XCOUNT_GOAL if trees == DIABETES_SIZES[-1] else None
            met = goal is None or (seconds <= goal and least == most)
            words = f"{found} of {answer['cells']['all']:,} cells"
            rows.append(Row(("XCount", "diabetes", f"{trees} x 3", sensitive, words, f"{seconds:.2f}",
                             "" if goal is None else f"{goal:g} s: {'met' if met else 'missed'}"), met))  # fmt: skip
    return rows


def table_of(name: str, data_dir: str | None) -> tuple[pd.DataFrame, Any, Space]:
    if name not in MADE:
        found = load_dataset(name, data_dir)
        return found.inputs, found.labels, found.space
    rows, columns = MADE[name]
    inputs, labels = make_classification(
        rows, columns - 1, n_informative=(columns - 1) // 2, flip_y=0.1, random_state=42
    )
    frame = pd.DataFrame(inputs.round(3), columns=[f"f{i}" for i in range(columns - 1)])
    frame["s"] = (frame["f0"] + frame["f1"] > 0).astype(int)
    return frame, labels, Space.infer(frame).space


def svim(folder: Path, limit: float, quick: bool, data_dir: str | None) -> list[Row]:
    rows = []
    for name, (sensitive, sizes) in SVIM.items():
        inputs, labels, space = table_of(name, data_dir)
        where = folder / "space.json"
        space.save(where)
        for trees, depth in sizes:
            if quick and (name, trees) not in SVIM_GOALS:
                continue
            model = xgboost.XGBClassifier(n_estimators=trees, max_depth=depth, learning_rate=0.1, random_state=42)
            model.fit(inputs, labels)
            path = folder / "model.json"
            model.save_model(path)
            asked = (
                str(path),
                "--space",
                str(where),
                "--sensitive",
                sensitive,
                *OUTPUT_GAP,
                "--time-limit",
                f"{limit:g}",
            )
            answer, seconds = command("verify", *asked)
            words = {"violated": "a pair", "holds": "none, proved"}.get(answer["verdict"])
            if words is None:
                bound, more = command("quantify", *asked[:5], *MARGIN_GAP, *asked[-2:])
                seconds += more
                words = f"open; mass of such x at most {bound['mass']['counterexample'][1]:.3g}"
            goal = (name, trees) in SVIM_GOALS
            met = not goal or seconds <= limit or words.startswith("open")
            rows.append(Row(("SViM", name, f"{trees} x {depth}", sensitive, words, f"{seconds:.2f}",
                             f"{limit:g} s: {'met' if met else 'missed'}" if goal else ""), met))  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=60.0, help="of each of SViM's questions (default 60)")
    parser.add_argument("--quick", action="store_true", help="only the rows with a goal")
    parser.add_argument("--data-dir", help="the folder of the data sets (default: BOXQTE_DATA)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = xcount(folder, arguments.quick)
        rows += svim(folder, arguments.time_limit, arguments.quick, arguments.data_dir)
    widths = [max(len(row[i]) for row in (HEAD, *(r.cells for r in rows))) for i in range(len(HEAD))]
    for row in (HEAD, *(r.cells for r in rows)):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
