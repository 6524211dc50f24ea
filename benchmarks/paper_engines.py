"""The paper's engines beside ours: seconds for smt (with and without each enhancement), cegar (three ways) and box.

    python benchmarks/paper_engines.py [--trees 10] [--depth 3] [--epsilon-rate 0 0.1] [--time-limit 60] [--workers N]
        [--columns box smt ...] [NAME ...]

One table, in one run. XGBoost on all rows of the data sets, kappa 0.5, one sensitive attribute each. A cell is the seconds
until convergence; `limit` and the gap that is left, if the time limit ended it; `stuck` and the gap, if cegar could refine
no further. Converged measures are compared with the box engine's; a difference of more than 1e-12 ends the run with exit
code 1. The data sets lie in the folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import xgboost

from boxqte import Fairness, Quantification, Space, Status, TreeEnsemble, load_model, quantify

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = {"compas": "race", "adult": "age", "credit": "age"}  # attributes that these models use
COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "box": ("box", {}),
    "smt": ("smt", {}),
    "no-prior": ("smt", {"priority": False}),
    "no-decomp": ("smt", {"decomposition": False}),
    "no-box-block": ("smt", {"box_blocking": False}),
    "cegar random": ("cegar", {"refinement": "random"}),
    "cegar node": ("cegar", {"refinement": "node"}),
    "cegar node+r": ("cegar", {"refinement": "node+random"}),
}
AGREE = 1e-12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--epsilon-rate", nargs="*", default=["0", "0.1"])
    parser.add_argument("--kappa", default="0.5")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a cell (default 60)")
    parser.add_argument("--workers", type=int, default=None, help="default: one per core")
    parser.add_argument("--columns", metavar="C", nargs="*", default=list(COLUMNS), choices=list(COLUMNS),
                        help=f"some of {', '.join(COLUMNS)}; the first is what the others are compared with")  # fmt: skip
    arguments = parser.parse_args()
    columns = {name: COLUMNS[name] for name in arguments.columns}
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        print("the data sets are not here; set BOXQTE_DATA to the folder that holds them", file=sys.stderr)
        return 2
    print(f"XGBoost, {arguments.trees} trees of depth {arguments.depth}, kappa {arguments.kappa}, at most "
          f"{arguments.time_limit:g} s a cell; seconds, or the gap that is left")  # fmt: skip
    print(f"{'problem':<16}{'measure':>16}" + "".join(f"{column:>14}" for column in columns), flush=True)
    wrong = 0
    for name in arguments.names:
        model, space = trained(folder, name, arguments.trees, arguments.depth)
        for rate in arguments.epsilon_rate:
            prop = Fairness(PROBLEMS[name], rate, arguments.kappa)
            quantify(model, space, prop, engine="box", node_limit=1)
            cells, reference = [], None
            for engine, options in columns.values():
                limits = {"time_limit": arguments.time_limit, "workers": arguments.workers}
                result = quantify(model, space, prop, engine=engine, options=options, **limits)
                reference = reference or result
                agrees = consistent(result, reference)
                wrong += not agrees
                cells.append(cell(result) + ("" if agrees else " WRONG"))
            measure = f"{reference.value:.12f}" if reference is not None and reference.value is not None else "open"
            print(
                f"{f'{name} {PROBLEMS[name]} {rate}':<16}{measure:>16}" + "".join(f"{c:>14}" for c in cells), flush=True
            )
    return 1 if wrong else 0


def trained(folder: Path, name: str, trees: int, depth: int) -> tuple[TreeEnsemble, Space]:
    frame = pd.read_csv(folder / f"{name}.csv")
    space = Space.load(folder / f"{name}.schema.json")
    label = frame.pop(space.label or "label")
    model = xgboost.XGBClassifier(n_estimators=trees, max_depth=depth).fit(frame, label)
    return load_model(model).ensemble, space


def consistent(result: Quantification, reference: Quantification) -> bool:
    """Equal measures if both converged; otherwise intervals that overlap."""
    if result.value is not None and reference.value is not None:
        return abs(result.value - reference.value) <= AGREE
    assert None not in (result.lower, result.upper, reference.lower, reference.upper)
    return result.lower <= reference.upper + AGREE and reference.lower <= result.upper + AGREE  # type: ignore[operator]


def cell(result: Quantification) -> str:
    if result.converged:
        return f"{result.seconds:.2f}"
    gap = result.bounds.gap if result.bounds is not None else 1.0
    return f"{'stuck' if result.status is Status.EXHAUSTED else 'limit'} {gap:.3f}"


if __name__ == "__main__":
    sys.exit(main())
