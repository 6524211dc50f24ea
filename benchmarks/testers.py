"""Fairness testers in the same wall time, beside sampling from the quantified space.

    python benchmarks/testers.py [--seconds S] [--seed N] [--sensitive A] [--only trees|network] [--skip NAME,...] [NAME ...]

One table a data set (default adult): an XGBoost model of 50 trees of depth 3, every tester, batched and fixed, for S
seconds each, then the box engine: quantification and sampling in the same S seconds together. Distinct IDIs without the
sensitive attribute, each checked once more through the library. Then a table for a neural network: surrogate against AFT.
The data sets lie in the folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from boxqte import Fairness, Space, find_idis, quantify
from boxqte.testers import TESTERS
from boxqte.testers.blackbox import BlackBox
from boxqte.testers.verification import verify

ROOT = Path(__file__).resolve().parent.parent
SENSITIVE = {"adult": "sex", "bank": "age", "compas": "race", "credit": "sex", "lsac": "race"}
DRAWS = 200_000  # samples of a call


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=["adult"])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sensitive")
    parser.add_argument("--only", choices=("trees", "network"))
    parser.add_argument("--skip", default="", help="testers to leave out, between commas")
    arguments = parser.parse_args()
    folder = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        print("the data sets are not here; set BOXQTE_DATA to the folder that holds them", file=sys.stderr)
        return 2
    skipped = arguments.skip.split(",")
    for name in arguments.names:
        frame = pd.read_csv(folder / f"{name}.csv")
        space = Space.load(folder / f"{name}.schema.json")
        label = frame.pop(space.label or "label")
        sensitive = arguments.sensitive or SENSITIVE[name]
        if arguments.only != "network":
            print(f"\n{name}, sensitive {sensitive}: XGBoost, 50 trees of depth 3, {arguments.seconds:g} s each")
            model = tree_model(frame, label)
            run_testers(model, space, sensitive, [t for t in TESTERS if t not in skipped], arguments, frame)
            sample_row(model, space, sensitive, arguments)
        if arguments.only != "trees":
            print(f"\n{name}, sensitive {sensitive}: neural network (64, 32), {arguments.seconds:g} s each")
            run_testers(network(frame, label), space, sensitive, ["aft", "surrogate"], arguments, frame)
    return 0


def tree_model(frame: pd.DataFrame, label: pd.Series[Any]) -> Any:
    import xgboost

    return xgboost.XGBClassifier(n_estimators=50, max_depth=3).fit(frame, label)


def network(frame: pd.DataFrame, label: pd.Series[Any]) -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 15 epochs do not converge, and need not
        mlp = MLPClassifier((64, 32), max_iter=15, random_state=0)
        return make_pipeline(StandardScaler(), mlp).fit(frame.to_numpy(np.float64), label)


HEAD = (
    f"{'method':<12}{'IDIs':>12}{'a second':>12}{'tests':>12}{'IDI/test':>10}{'rows asked':>13}{'diversity':>11}  notes"
)


def run_testers(model: Any, space: Space, sensitive: str, methods: list[str], arguments: Any, data: Any) -> None:
    print(HEAD)
    for method in methods:
        found = find_idis(
            model, space, sensitive, method=method, seconds=arguments.seconds, random_state=arguments.seed, data=data
        )
        rate = "" if found.success_rate is None else f"{100 * found.success_rate:.2f} %"
        diversity = "" if found.diversity is None else f"{found.diversity:.2f}"
        notes = f"{found.status}, {found.seconds:.1f} s" + (f", {found.rejected} rejected" if found.rejected else "")
        print(f"{method:<12}{len(found):>12,}{len(found) / found.seconds:>12,.0f}{found.tests:>12,}{rate:>10}"
              f"{found.rows:>13,}{diversity:>11}  {notes}", flush=True)  # fmt: skip


def sample_row(model: Any, space: Space, sensitive: str, arguments: Any) -> None:
    """Quantify, then draw until the time is up; the check of every pair is not part of the time, as for the testers."""
    warm_up()
    started = time.perf_counter()
    result = quantify(model, space, Fairness(sensitive), time_limit=arguments.seconds * 0.8)
    quantified = time.perf_counter() - started
    xs, partners = [], []
    seed = arguments.seed
    while time.perf_counter() - started < arguments.seconds:
        drawn = result.sample(DRAWS, random_state=seed, replay=False)
        xs.append(drawn.x)
        partners.append(drawn.witness)
        seed += 1
    took = time.perf_counter() - started
    x, partner = pd.concat(xs, ignore_index=True), pd.concat(partners, ignore_index=True)
    rest = [name for name in x.columns if name != sensitive]
    distinct = ~x.duplicated(subset=rest)
    x, partner = (table[distinct][list(space.names)].reset_index(drop=True) for table in (x, partner))
    good = int(verify(BlackBox(model, space), space, sensitive, x, partner).sum())
    drawn_in_all = len(distinct)
    print(f"{'box engine':<12}{good:>12,}{good / took:>12,.0f}{drawn_in_all:>12,}{100 * good / drawn_in_all:>8.2f} %"
          f"{0:>13,}{'':>11}  {result.status} after {quantified:.1f} s, then sampled; {took:.1f} s in all, "
          f"{len(x) - good} of the distinct ones refused by the library", flush=True)  # fmt: skip


def warm_up() -> None:
    """Load the kernels before the clock starts, as the testers' libraries are."""
    from boxqte.examples import loan_ensemble, loan_space

    quantify(loan_ensemble(), loan_space(), Fairness("race")).sample(10, replay=False)


if __name__ == "__main__":
    sys.exit(main())
