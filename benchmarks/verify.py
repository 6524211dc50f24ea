"""Time to a verdict, beside Veritas: is there an x with sensitive value s and class 1 that gets class 0 with s'?

    python benchmarks/verify.py [--time-limit 55] [--sizes 20x3,50x3,100x4,200x5] [NAME ...]

XGBoost on all rows of the data sets with a binary sensitive attribute, both directions, one line a question, both tools in
one run, one thread each, wall and CPU time. Veritas is asked to maximise min(F_s, -F_s') over the shared attributes, as
three outputs (0, -F_s, F_s') of one ensemble, MULTI_MAX_MAX_OUTPUT_DIFF; it stops at the first solution above 0, or when no
state is left (states that cannot get there are dropped). Its domains are real intervals, so a solution of its may lie
between two integers. Both times go from the trained model in memory to the verdict: reading the model, building the
problem, searching, and asking XGBoost about the pair that was found; neither includes training or importing libraries.
Ours also checks every node it reads. Threads of XGBoost and Veritas: OMP_NUM_THREADS=1, set here.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # read when the libraries are imported

import numpy as np
import pandas as pd
import veritas
import xgboost

from boxqte import Fairness, Space
from boxqte.answers.values import GridValues
from boxqte.answers.verify import _Search, every_cell
from boxqte.engines.point import PointDecider
from boxqte.models.importers import load_model
from boxqte.questions.building import build_grid
from boxqte.questions.variations import one_class_grid

ROOT = Path(__file__).resolve().parent.parent
PROBLEMS = {"adult": "sex", "compas": "sex", "credit": "sex", "lsac": "sex"}


def ours(model: Any, space: Space, sensitive: str, value: int, limit: float) -> tuple[str, float]:
    """Only x with the given sensitive cell and class 1 are asked about."""
    started = time.perf_counter()
    imported = load_model(model)
    grid = one_class_grid(build_grid(imported.ensemble, space, Fairness(sensitive)), True)
    at = space.names.index(sensitive)
    axis = grid.axes[at]
    code = space[sensitive].values.index(value)
    only = tuple(Fraction(int(code in cell.values)) for cell in axis.cells)
    if axis.n_cells == 1:
        return "none", time.perf_counter() - started  # no tree asks about it
    masked = replace(axis, masses=only, refined_masses=only)
    grid = replace(grid, axes=(*grid.axes[:at], masked, *grid.axes[at + 1 :]))
    even = every_cell(grid)
    even = replace(even, axes=(*even.axes[:at], masked, *even.axes[at + 1 :]))
    search = _Search(
        imported, grid, even, PointDecider(grid), GridValues(grid), 1, started, limit, np.random.default_rng(0)
    )
    found = search.first()
    words = {"violated": "found", "holds": "none", "undecided": "time limit"}
    return words[str(found.verdict)], time.perf_counter() - started


def _other(space: Space, sensitive: str, value: int) -> int:
    one, two = space[sensitive].values
    return two if value == one else one


def theirs(model: Any, space: Space, sensitive: str, value: int, limit: float) -> tuple[str, float]:
    started = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        whole = veritas.get_addtree(model)
    names = list(model.get_booster().feature_names)

    def fixed(code: int) -> Any:
        box = []
        for f, name in enumerate(names):
            a = space[name]
            if name == sensitive:
                box.append((f, veritas.Interval(code, code + 0.25)))
            elif a.is_numeric:
                box.append((f, veritas.Interval(float(a.low), float(a.high) + 1e-6)))
        return whole.prune(dict(box))

    one, other = fixed(value), fixed(_other(space, sensitive, value))
    ensemble = veritas.AddTree(3, veritas.AddTreeType.CLF_SOFTMAX)
    ensemble.add_trees(one.negate_leaf_values(), 1)
    ensemble.add_trees(other, 2)
    config = veritas.Config(veritas.HeuristicType.MULTI_MAX_MAX_OUTPUT_DIFF)
    config.stop_when_num_solutions_exceeds = 1
    config.ignore_state_when_worse_than = 0.0
    config.stop_when_optimal = True
    config.max_memory = 4 << 30
    search = config.get_search(ensemble)
    verdict = "time limit"
    while time.perf_counter() - started < limit:
        reason = search.step_for(min(1.0, max(limit - (time.perf_counter() - started), 0.01)), 100)
        if search.num_solutions() and search.get_solution(0).output > 0:
            verdict = "found"
            pair = np.tile(veritas.get_closest_example(search.get_solution(0), np.zeros(len(names)), eps=1e-6), (2, 1))
            pair[:, names.index(sensitive)] = value, _other(space, sensitive, value)
            model.get_booster().inplace_predict(pair)
            break
        if reason in (veritas.StopReason.NO_MORE_OPEN, veritas.StopReason.OPTIMAL):
            verdict = "none"
            break
        if reason == veritas.StopReason.OUT_OF_MEMORY:
            verdict = "memory"
            break
    return verdict, time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--time-limit", type=float, default=55.0)
    parser.add_argument("--sizes", default="20x3,50x3,100x4,200x5")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        print("the data sets are not here; set BOXQTE_DATA to the folder that holds them", file=sys.stderr)
        return 2
    warm: list[tuple[str, float]] = []
    print("data    size     s -> s'   boxqte         wall        CPU  veritas        wall        CPU")
    for name in arguments.names:
        frame = pd.read_csv(folder / f"{name}.csv")
        space = Space.load(folder / f"{name}.schema.json")
        label = frame.pop(space.label or "label")
        for size in arguments.sizes.split(","):
            trees, depth = map(int, size.split("x"))
            model = xgboost.XGBClassifier(n_estimators=trees, max_depth=depth, n_jobs=1).fit(frame, label)
            if not warm:  # the first call of each imports what it needs
                warm = [
                    tool(model, space, PROBLEMS[name], space[PROBLEMS[name]].values[0], 1.0) for tool in (ours, theirs)
                ]
            for value in space[PROBLEMS[name]].values:
                cells = [f"{name:<7} {size:<7} {value} -> {_other(space, PROBLEMS[name], value)}  "]
                for tool in (ours, theirs):
                    gc.collect()
                    cpu = time.process_time()
                    verdict, seconds = tool(model, space, PROBLEMS[name], value, arguments.time_limit)
                    cells.append(f"{verdict:<11}{seconds:8.3f} s {time.process_time() - cpu:8.3f} s")
                print("  ".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
