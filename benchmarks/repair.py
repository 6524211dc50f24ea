"""What a repair reaches and costs: the tables of docs/repair.md.

    python benchmarks/repair.py [one] [levels] [epsilon] [splits] [libraries] [--only NAME] [--splits 8]

XGBoost, 50 trees of depth 3, trained on 70 % of each data set (stratified, seed 0), judged on the rest. Every model is saved,
repaired as a file, read again, measured exactly, and replayed through XGBoost. The data sets (NAME.csv and
NAME.schema.json) lie in the folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost
from sklearn.model_selection import train_test_split

import boxqte
from boxqte import Fairness, Repair, Robustness, Space, load_model, repair, verify

ROOT = Path(__file__).resolve().parent.parent
LIBRARY_LEVELS = ("0.99", "0.999", "1")
PARTS = ("one", "levels", "epsilon", "splits", "libraries")
# accuracy lost at most (points), log-loss gained at most, decisions changed at most (%)
PROBLEMS: dict[str, tuple[str, tuple[str, ...], tuple[float, float, float]]] = {
    "adult sex": ("adult", ("sex",), (0.1, 0.002, 0.4)),
    "adult race": ("adult", ("race",), (0.15, 0.001, 0.4)),
    "adult age": ("adult", ("age",), (0.6, 0.012, 3.5)),
    "bank age": ("bank", ("age",), (0.1, 0.0015, 1.2)),
    "compas race": ("compas", ("race",), (0.2, 0.002, 2.7)),
    "credit sex": ("credit", ("sex",), (300 / 180, 0.005, 500 / 180)),
    "lsac race": ("lsac", ("race",), (0.1, 0.0005, 0.3)),
    "adult sex, race": ("adult", ("sex", "race"), (0.1, 0.002, 0.6)),
}
EPSILON = {
    "compas robustness": ("compas", Robustness("0.05"), "0.90"),
    "compas race": ("compas", Fairness("race", "0.05"), "0.90"),
    "bank age": ("bank", Fairness("age", "0.05"), "0.85"),
}


@dataclass(frozen=True, eq=False)
class Problem:
    """A trained model in a file, its rows and its space."""

    train: pd.DataFrame
    test: pd.DataFrame
    space: Space
    label: str
    path: Path

    @property
    def inputs(self) -> pd.DataFrame:
        return self.test.drop(columns=self.label)

    @property
    def y(self) -> Any:
        return self.test[self.label].to_numpy()


def folder() -> Path:
    found = Path(os.environ.get("BOXQTE_DATA") or ROOT.parent / "shared" / "data")
    if not found.is_dir():
        sys.exit("the data sets are not here; set BOXQTE_DATA to the folder that holds them")
    return found


def rows(name: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, Space, str]:
    frame, space = pd.read_csv(folder() / f"{name}.csv"), Space.load(folder() / f"{name}.schema.json")
    label = space.label or "label"
    train, test = train_test_split(frame, test_size=0.3, random_state=seed, stratify=frame[label])
    return train, test, space, label


def classifier() -> Any:
    return xgboost.XGBClassifier(n_estimators=50, max_depth=3)


@cache
def problem(name: str, seed: int, where: Path) -> Problem:
    train, test, space, label = rows(name, seed)
    model = classifier().fit(train.drop(columns=label), train[label])
    path = where / f"{name}{seed}.json"
    model.save_model(path)
    return Problem(train, test, space, label, path)


def ordered(p: Problem, asked: Any, at_least: Any, **options: Any) -> tuple[Repair, float, float]:
    """The repair, its CPU seconds and its seconds on the clock."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = repair(p.path, p.train, asked, at_least, label=p.label, space=p.space, test=p.test, **options)
    return found, time.process_time() - cpu, time.perf_counter() - wall


def replayed(p: Problem, found: Repair, where: Path) -> str:
    """Whether XGBoost itself, with the file as saved, decides the test rows as we say."""
    saved = found.save(where / "repaired.json")
    booster = xgboost.XGBClassifier()
    booster.load_model(saved)
    ours = load_model(saved).ensemble.predict(p.inputs.to_numpy(float))
    return f"{int((booster.predict(p.inputs) != ours).sum())} differ"


def cost(found: Repair) -> str:
    one, two = found.quality_before, found.quality_after
    return " | ".join([
        f"{100 * one.accuracy:.2f} -> {100 * two.accuracy:.2f}",
        f"{one.auc or 0:.4f} -> {two.auc or 0:.4f}",
        f"{two.log_loss - one.log_loss:+.4f}",
        f"{100 * found.changed_rows / two.rows:.2f} %",
        f"{100 * (found.rows_before[0].share or 0):.1f} -> {100 * (found.rows_after[0].share or 0):.1f}",
    ])  # fmt: skip


def measures(found: Repair) -> str:
    before, after = found.before[0].bounds, found.after[0].bounds
    ends = [f"{b.lower:.4f}" if b and b.upper - b.lower < 1e-4 else "open" if b is None else f"{b.lower:.3f}..{b.upper:.3f}"
            for b in (before, after)]  # fmt: skip
    return " -> ".join(ends)


HEAD = "accuracy (%) | AUC | log-loss | changed | rows fair (%)"


def one(names: list[str], where: Path) -> None:
    table(f"problem | measure | {HEAD} | within the goal | verify | XGBoost | file (kB) | CPU s | s")
    for name in names:
        data, sensitive, goal = PROBLEMS[name]
        p = problem(data, 0, where)
        found, cpu, wall = ordered(p, Fairness(sensitive), 1)
        first, last = found.quality_before, found.quality_after
        lost, gained = 100 * (first.accuracy - last.accuracy), last.log_loss - first.log_loss
        changed = 100 * found.changed_rows / last.rows
        met = all(value <= most + 1e-9 for value, most in zip((lost, gained, changed), goal))
        again = replayed(p, found, where)
        proof = verify(where / "repaired.json", p.space, Fairness(sensitive))
        sizes = f"{p.path.stat().st_size / 1000:.0f} -> {(where / 'repaired.json').stat().st_size / 1000:.0f}"
        line(name, measures(found), cost(found), "yes" if met and found.met else "NO", str(proof.verdict), again, sizes,
             f"{cpu:.1f}", f"{wall:.1f}")  # fmt: skip


def levels(names: list[str], where: Path) -> None:
    table(f"problem | at least | measure | {HEAD} | share | met | CPU s | s")
    for name in names:
        data, sensitive, _ = PROBLEMS[name]
        p = problem(data, 0, where)
        for level in ("0.99", "0.999"):
            found, cpu, wall = ordered(p, Fairness(sensitive), level)
            share = "" if found.share is None else f"{float(found.share):.3f}"
            line(
                name,
                level,
                measures(found),
                cost(found),
                share,
                "yes" if found.met else "NO",
                f"{cpu:.1f}",
                f"{wall:.1f}",
            )


def epsilon(names: list[str], where: Path) -> None:
    table(f"problem, rate 0.05 | at least | measure | {HEAD} | met | CPU s | s")
    for name, (data, asked, level) in EPSILON.items():
        p = problem(data, 0, where)
        found, cpu, wall = ordered(p, asked, level)
        line(name, level, measures(found), cost(found), "yes" if found.met else "NO", f"{cpu:.1f}", f"{wall:.1f}")


def splits(names: list[str], where: Path, n: int) -> None:
    """Fewer changed decisions than dropping the attribute and retraining?"""
    table("problem | changed (%), repaired | changed (%), dropped and retrained | fewer | log-loss no worse")
    fewer = no_worse = pairs = 0
    for name in names:
        data, sensitive, _ = PROBLEMS[name]
        ours, theirs, wins = [], [], 0
        better = 0
        for seed in range(1, n + 1):
            p = problem(data, seed, where)
            # Asked about the rows, which is quick; that it is 1 over the space, too, is verified.
            found, _, _ = ordered(p, Fairness(sensitive), 1, on="rows", changed_seconds=0.01)
            if found.method == "none":
                found, _, _ = ordered(p, Fairness(sensitive), 1, changed_seconds=0.01)
            assert str(verify(found.model, p.space, Fairness(sensitive)).verdict) == "holds"
            own = xgboost.XGBClassifier()
            own.load_model(p.path)
            blind = classifier().fit(p.train.drop(columns=[p.label, *sensitive]), p.train[p.label])
            fresh = p.inputs.drop(columns=list(sensitive))
            changed = 100 * float((blind.predict(fresh) != own.predict(p.inputs)).mean())
            chance = np.clip(blind.predict_proba(fresh)[:, 1], 1e-15, 1 - 1e-15)
            loss = -float(np.mean(np.where(p.y == 1, np.log(chance), np.log1p(-chance))))
            ours.append(100 * found.changed_rows / len(p.test))
            theirs.append(changed)
            wins += ours[-1] < changed
            better += found.quality_after.log_loss <= loss
            assert found.met
        pairs, fewer, no_worse = pairs + n, fewer + wins, no_worse + better
        span = [f"{min(v):.2f} to {max(v):.2f}, mean {np.mean(v):.2f}" for v in (ours, theirs)]
        line(name, *span, f"{wins} of {n}", f"{better} of {n}")
    line("all", "", "", f"{fewer} of {pairs}", f"{no_worse} of {pairs}")


def others() -> Iterator[tuple[str, Any]]:
    from catboost import CatBoostClassifier
    from lightgbm import LGBMClassifier
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier

    yield "LightGBM, 50 trees of 8 leaves", LGBMClassifier(n_estimators=50, num_leaves=8, verbose=-1)
    yield "GradientBoosting, 50 trees of depth 3", GradientBoostingClassifier(n_estimators=50, max_depth=3)
    yield (
        "HistGradientBoosting, 50 trees of 8 leaves",
        HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=8, random_state=0),
    )
    yield "RandomForest, 50 trees of depth 6", RandomForestClassifier(50, max_depth=6, random_state=0)
    yield (
        "CatBoost, 50 trees of depth 4",
        CatBoostClassifier(n_estimators=50, max_depth=4, verbose=False, allow_writing_files=False, random_seed=0),
    )


def libraries(names: list[str], where: Path) -> None:
    """adult sex: same predictions in the library, and Monte Carlo through its own predict."""
    train, test, space, label = rows("adult", 0)
    inputs = test.drop(columns=label)
    table(f"model | at least | measure | {HEAD} | met | its own predict | Monte Carlo | CPU s | s")
    for name, model in others():
        fitted = model.fit(train.drop(columns=label), train[label])
        for level in LIBRARY_LEVELS:
            cpu, wall = time.process_time(), time.perf_counter()
            try:
                found = repair(fitted, train, Fairness("sex"), level, label=label, space=space, test=test)
            except boxqte.BoxQTEError as error:
                line(name, level, str(error))
                continue
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if found.method == "none":
                line(name, level, measures(found), cost(found), "as it is", "", "", "", "")
                continue
            ours = load_model(found.model).ensemble.predict(inputs.to_numpy(float))
            differ = int((np.asarray(found.model.predict(inputs)).ravel().astype(int) != ours).sum())
            drawn = monte_carlo(found.model, space, inputs.columns.tolist(), "sex", 200_000)
            line(name, level, measures(found), cost(found), "yes" if found.met else "NO",
                 f"{differ} of {len(inputs)} differ", f"{drawn:.4f}", f"{cpu:.1f}", f"{wall:.1f}")  # fmt: skip


def monte_carlo(model: Any, space: Space, columns: list[str], sensitive: str, n: int) -> float:
    """The share of random inputs that the library's own predict treats alike whatever the sensitive value."""
    rng = np.random.default_rng(0)
    drawn = {}
    for attribute in space:
        if attribute.is_numeric:
            values = rng.integers(int(attribute.low), int(attribute.high) + 1, n)
        else:
            own = attribute.values if attribute.codes is None else [code[0] for code in attribute.codes]
            values = rng.choice(np.array(own), n)
        drawn[attribute.columns[0]] = values
    frame = pd.DataFrame(drawn)[columns]
    attribute = space[sensitive]
    every = attribute.values if attribute.codes is None else [code[0] for code in attribute.codes]
    said = [np.asarray(model.predict(frame.assign(**{sensitive: value}))).ravel().astype(int) for value in every]
    return float(np.mean(np.ptp(np.array(said), axis=0) == 0))


def table(head: str) -> None:
    names = head.split(" | ")
    print(f"\n| {head} |\n|{'---|' * len(names)}", flush=True)


def line(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", metavar="PART", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--only", metavar="NAME", action="append", help="problems (default: all)")
    parser.add_argument("--splits", type=int, default=8)
    arguments = parser.parse_args()
    names = arguments.only or list(PROBLEMS)
    with tempfile.TemporaryDirectory() as temporary:
        where = Path(temporary)
        for part in arguments.parts:
            if part == "splits":
                splits(names, where, arguments.splits)
            else:
                {"one": one, "levels": levels, "epsilon": epsilon, "libraries": libraries}[part](names, where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
