"""Monte Carlo against the engine: random inputs through the library's own predict, each decided exactly.

    python -m benchmarks.monte_carlo                     all 40 configurations, a million inputs each
    python -m benchmarks.monte_carlo --only bank-age --samples 100000

Class and confidence of an input are those of XGBoost's own prediction. With epsilon 0 the sensitive values are exchanged
one after the other and predicted too. With epsilon > 0 an exact search over the input's window (benchmarks/window_search)
finds an x' or proves that there is none; every x' that it finds goes through the library's predict as well.

XGBoost sums in float32. An input whose margin (or whose distance from logit(kappa)) is below the proved rounding error is
counted as 'close': there the library's answer may differ from the exact one. Where the two do differ, it is counted as
'contradicted': the estimate uses the library's class of x, and the exact answer for x'. Inputs are float32 numbers, so that
the library reads the same input as the definitions do.

The engine's values are taken from benchmarks/engine's records. The estimate must lie within 4 standard errors.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from fractions import Fraction
from typing import Any

import numpy as np
from benchmarks.paper.configurations import TABLE_2, TABLE_3, Configuration, selected
from benchmarks.paper.datasets import load_dataset
from benchmarks.paper.experiment import insert_tables
from benchmarks.paper.models import ModelSize, train
from benchmarks.paper.records import Records, Row
from benchmarks.paper.tables import Table, seconds_text
from benchmarks.window_search import UNDECIDED, UNFAIR, WindowSearch

from boxqte import BoxQTEError, Space, load_model

BLOCK = 50_000
STANDARD_ERRORS = 4.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", default="50x3")
    parser.add_argument("--records", default="benchmarks/out/monte_carlo.jsonl", metavar="FILE")
    parser.add_argument("--engine-records", default="benchmarks/out/engine.jsonl", metavar="FILE")
    parser.add_argument("--insert", metavar="PAGE.md", help="put the table into this page, between its marks")
    parser.add_argument("--table-only", action="store_true", help="sample nothing, show what is recorded")
    parser.add_argument("--data-dir", metavar="FOLDER")
    arguments = parser.parse_args()
    try:
        records = Records(arguments.records)
        size = ModelSize.parse(arguments.size)
        engine_rows = _engine_rows(arguments.engine_records, str(size))
        wanted = selected((*TABLE_2, *TABLE_3), arguments.only)
        for c in wanted if not arguments.table_only else ():
            key = _key(c, size, arguments.samples, arguments.seed)
            if key not in records:
                print(f"{c.name} ...", file=sys.stderr, flush=True)
                row = estimate(c, size, arguments.samples, arguments.seed, arguments.data_dir)
                records.add({"key": key, **row})
    except BoxQTEError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rows = [records.get(_key(c, size, arguments.samples, arguments.seed)) for c in wanted]
    table, wrong = comparison(wanted, rows, engine_rows, arguments)
    print(table.text())
    if arguments.insert:
        insert_tables(arguments.insert, "monte-carlo", [table])
    return 1 if wrong else 0


def _key(c: Configuration, size: ModelSize, samples: int, seed: int) -> str:
    return f"{c.name}/{size}/n{samples}-seed{seed}"


def estimate(c: Configuration, size: ModelSize, samples: int, seed: int, data_dir: str | None) -> Row:
    """Decide so many random inputs; counts."""
    data = load_dataset(c.dataset, data_dir)
    model = train(data, size)
    ensemble = load_model(model).ensemble
    prop = c.property()
    search = WindowSearch(model, ensemble.base[0], data.space, prop)
    close = float(ensemble.rounding_error())
    rng = np.random.default_rng([seed, *c.name.encode()])
    started = time.perf_counter()
    counts = dict.fromkeys(("confident", "unfair", "close", "contradicted", "undecided", "nodes", "witnesses"), 0)
    for start in range(0, samples, BLOCK):
        x = random_inputs(rng, data.space, min(BLOCK, samples - start))
        exchange = c.epsilon_rate == "0" and c.sensitive is not None
        found = _exchanged(model, x, data.space, c) if exchange else _searched(model, x, search)
        p = probabilities(model, x)
        sure = np.maximum(p, 1 - p) > float(prop.kappa) if prop.kappa > Fraction(1, 2) else np.ones(len(x), bool)
        level = math.log(prop.kappa / (1 - prop.kappa)) if prop.kappa > Fraction(1, 2) else 0.0
        margin = search.margins(x) / search.unit
        near = np.abs(margin) < close
        if level:
            near |= np.abs(np.abs(margin) - level) < close
        counts["confident"] += int(sure.sum())
        counts["unfair"] += int((sure & found.pop("unfair")).sum())
        counts["close"] += int(near.sum())
        for name, value in found.items():
            counts[name] += int(value)
    return {"configuration": c.name, "samples": samples, **counts, "seconds": time.perf_counter() - started}


def random_inputs(rng: np.random.Generator, space: Space, n: int) -> np.ndarray:
    """Uniform inputs; real ones are float32 numbers."""
    columns = []
    for a in space:
        if a.kind == "real":
            drawn = (float(a.low) + rng.random(n) * float(a.high - a.low)).astype(np.float32).astype(np.float64)
            columns.append(np.clip(drawn, float(a.low), float(a.high)))
        elif a.kind == "integer":
            columns.append(rng.integers(int(a.low), int(a.high) + 1, n).astype(np.float64))
        else:
            columns.append(rng.choice(np.array(a.values, np.float64), n))
    return np.stack(columns, 1)


def probabilities(model: Any, x: np.ndarray) -> np.ndarray:
    """What XGBClassifier.predict_proba says for class 1."""
    return np.asarray(model.get_booster().inplace_predict(x))


def _exchanged(model: Any, x: np.ndarray, space: Space, c: Configuration) -> dict[str, Any]:
    """Epsilon 0: predict every other sensitive value."""
    at = space.names.index(c.sensitive or "")
    a = space.attributes[at]
    values = a.values if a.kind == "categorical" else range(int(a.low), int(a.high) + 1)
    own = probabilities(model, x) > 0.5
    differs = np.zeros(len(x), bool)
    for value in values:
        other = x.copy()
        other[:, at] = value
        differs |= (probabilities(model, other) > 0.5) != own  # its own value never differs from itself
    return {"unfair": differs, "witnesses": int(differs.sum())}


def _searched(model: Any, x: np.ndarray, search: WindowSearch) -> dict[str, Any]:
    """Epsilon > 0: the exact search, its x' checked by the library and against the definition."""
    verdict, where, nodes = search.decide(x)
    unfair = verdict == UNFAIR
    other = search.values_at(where[unfair], x[unfair])
    check_witnesses(search, x[unfair], other)
    contradicted = (probabilities(model, other) > 0.5) == (probabilities(model, x[unfair]) > 0.5)
    exact = search.margins(x) > 0
    contradicted_own = exact != (probabilities(model, x) > 0.5)
    return {
        "unfair": unfair,
        "undecided": int((verdict == UNDECIDED).sum()),
        "nodes": int(nodes.sum()),
        "witnesses": int(unfair.sum()),
        "contradicted": int(contradicted.sum()) + int(contradicted_own.sum()),
    }


def check_witnesses(search: WindowSearch, x: np.ndarray, other: np.ndarray) -> None:
    """Every pair must be as the definition asks: in the domain, near, another sensitive value, another class."""
    for i, axis in enumerate(search.axes):
        if axis.is_real:
            inside = (other[:, i] >= float(axis.attribute.low)) & (other[:, i] <= float(axis.attribute.high))
        else:
            inside = np.isin(other[:, i], axis.values)
        assert inside.all(), f"{axis.attribute.name}: an x' outside the domain"
        if i == search.sensitive:
            assert (other[:, i] != x[:, i]).all(), "an x' with x's own sensitive value"
        else:
            # one unit in the last place: x - epsilon itself is rounded
            assert (np.abs(other[:, i] - x[:, i]) <= axis.reach * (1 + 1e-6)).all(), f"{axis.attribute.name}: too far"
    assert ((search.margins(x) > 0) != (search.margins(other) > 0)).all(), "an x' of the same class"


def _engine_rows(path: str, size: str) -> dict[str, Row]:
    """The engine's answers by configuration; the converged one where there are several."""
    found: dict[str, Row] = {}
    for row in Records(path):
        job = row["job"]
        if (
            "error" in row
            or job["engine"] != "box"
            or f"{job['trees']}x{job['depth']}" != size
            or job["library"] != "xgboost"
        ):
            continue
        name = Configuration(**job["configuration"]).name
        if name not in found or row["converged"]:
            found[name] = row
    return found


def comparison(
    wanted: tuple[Configuration, ...], rows: list[Row | None], engine: dict[str, Row], arguments: argparse.Namespace
) -> tuple[Table, int]:
    """The table, and how many configurations are off by more than the allowed standard errors."""
    cells, wrong, compared = [], 0, 0
    for c, row in zip(wanted, rows):
        if row is None:
            cells.append((c.name, *[""] * 9))
            continue
        n = row["samples"]
        answer = engine.get(c.name)
        distances = []
        if answer is not None and not row["undecided"]:
            for kind, count in (("confident", row["confident"]), ("counterexample", row["unfair"])):
                distances.append(standard_errors(count, n, *answer[kind]))
        off = max(distances, key=abs, default=None)
        compared += off is not None
        wrong += off is not None and abs(off) > STANDARD_ERRORS
        measure = 1 - row["unfair"] / row["confident"] if row["confident"] else math.nan
        value = "" if answer is None else f"{answer['value']:.6f}" if answer["value"] is not None else "open"
        cells.append((c.name, f"{measure:.6f}", value, f"{row['unfair'] / n:.6f}", f"{row['confident'] / n:.6f}",
                      "" if off is None else f"{off:+.2f}", f"{row['close']:,}", f"{row['contradicted']:,}",
                      f"{row['undecided']:,}", seconds_text(row["seconds"])))  # fmt: skip
    table = Table(
        f"Monte Carlo, XGBoost {arguments.size}, {arguments.samples:,} inputs a row, seed {arguments.seed}",
        ("configuration", "measure", "engine", "unfair", "confident", "standard errors off", "close", "contradicted",
         "undecided", "s"),
        cells,
        notes=[f"{compared} of {len(wanted)} compared with the engine, {wrong} of them off by more than {STANDARD_ERRORS:g} "
               "standard errors (the worse of unfair and confident mass)"],
    )  # fmt: skip
    return table, wrong


def standard_errors(count: int, n: int, lower: float, upper: float) -> float:
    """How far the estimate lies outside the engine's bounds, in standard errors of the nearest admissible value."""
    share = count / n
    value = min(max(share, lower), upper)
    spread = math.sqrt(max(value * (1 - value), 1 / n) / n)
    if lower == upper or upper - lower < 1e-6:
        value = (lower + upper) / 2
        spread = math.sqrt(max(value * (1 - value), 1 / n) / n)
    return (share - value) / spread


if __name__ == "__main__":
    sys.exit(main())
