"""Group rates: XGBoost, 50 trees of depth 3, every sensitive attribute of adult, bank, credit and lsac; one line a problem.

    python -m benchmarks.rates [--workers N] [--samples N] [NAME ...]

Columns: groups, seconds on the clock and of the CPU (which another load on the machine distorts less), the difference of the
rates and their ratio as certain bounds, and how far a Monte Carlo estimate through XGBoost's own predict lies from the rates:
the largest of all groups, in standard errors. More than 4 is an error. With --certificate also the seconds that boxqte
certify takes for the certificate of all groups. The data sets (NAME.csv and NAME.schema.json) lie in the folder that
BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import xgboost
from benchmarks.monte_carlo import STANDARD_ERRORS, probabilities, random_inputs
from benchmarks.paper.datasets import DataError, load_dataset

from boxqte import Attribute, GroupRates, Space, group_rates
from boxqte.basics.numbers import SHORT, number_text
from boxqte.certify import certify_parts

PROBLEMS = {"adult": ("sex", "race", "age"), "bank": ("age",), "credit": ("sex", "age"), "lsac": ("sex", "race")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--samples", type=int, default=200_000, help="inputs a group (default 200,000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--certificate", action="store_true", help="write and check certificates, too")
    arguments = parser.parse_args()
    try:
        tables = [load_dataset(name) for name in arguments.names]
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    head = f"{'problem':<12}{'groups':>7}{'s':>7}{'CPU s':>7}  {'difference':<33}{'ratio':<33}{'off by':>7}"
    print(head + (f"{'with s':>8}{'check s':>9}" if arguments.certificate else ""), flush=True)
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        for data in tables:
            name, space = data.name, data.space
            model = xgboost.XGBClassifier(n_estimators=50, max_depth=3).fit(data.inputs, data.labels)
            file = Path(place) / f"{name}.json"
            model.get_booster().save_model(file)
            for sensitive in PROBLEMS[name]:
                wall, cpu = time.perf_counter(), time.process_time()
                found = group_rates(file, space, sensitive, workers=arguments.workers)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                off = distance(model, space, sensitive, found, arguments.samples, arguments.seed)
                wrong += off > STANDARD_ERRORS or not found.converged
                assert found.ratio is not None
                gap, ratio = (number_text(b.lower, b.upper, SHORT) for b in (found.difference, found.ratio))
                line = f"{name + ' ' + sensitive:<12}{len(found.groups):7d}{wall:7.1f}{cpu:7.1f}  {gap:<33}{ratio:<33}{off:7.2f}"
                if arguments.certificate:
                    line += "".join(
                        f"{s:8.1f}" for s in checked(file, space, sensitive, found, arguments.workers, place)
                    )
                print(line, flush=True)
    return 1 if wrong else 0


def distance(model: Any, space: Space, sensitive: str, found: GroupRates, samples: int, seed: int) -> float:
    """How many standard errors the estimate is away from the rates, of all groups the largest."""
    at, rng, worst = space.names.index(sensitive), np.random.default_rng(seed), 0.0
    for values, group in zip(values_of(space[sensitive], found), found.groups):
        x = random_inputs(rng, space, samples)
        x[:, at] = rng.choice(values, samples)
        share = float((probabilities(model, x) > 0.5).mean())
        error = math.sqrt(max(share * (1 - share), 1 / samples) / samples)
        worst = max(worst, max(group.rate.lower - share, share - group.rate.upper, 0.0) / error)
    return worst


def values_of(attribute: Attribute, found: GroupRates) -> list[Any]:
    """The values of every group: one, or of integers those of an interval, which all have the same mass."""
    if not attribute.is_numeric:
        return [[value] for value in attribute.values]
    count = int(attribute.range) + 1
    ends = np.round(np.cumsum([0.0, *(group.mass for group in found.groups)]) * count) + int(attribute.low)
    return [np.arange(low, high) for low, high in pairwise(ends.tolist())]


def checked(
    file: Path, space: Space, sensitive: str, found: GroupRates, workers: int, place: str
) -> tuple[float, float]:
    """Seconds to solve with a certificate, and to check it."""
    proof = Path(place) / "certificate"
    started = time.perf_counter()
    again = group_rates(file, space, sensitive, workers=workers, certificate=proof)
    written = time.perf_counter() - started
    assert [g.rate for g in again.groups] == [g.rate for g in found.groups]
    started = time.perf_counter()
    parts = certify_parts(proof, file, space, workers)
    seconds = time.perf_counter() - started
    assert {float(part.unfair) for part in parts} == {group.rate.lower for group in again.groups}
    return written, seconds


if __name__ == "__main__":
    raise SystemExit(main())
