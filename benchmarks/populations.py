"""Fitted populations: what they capture of the five data sets, their exact answers, and three worlds side by side.

    python -m benchmarks.populations [NAME ...]         one line a data set
    python -m benchmarks.populations --exact            also: exact measures over a mixture, against draws from it
    python -m benchmarks.populations --worlds           also: the rows of Table 4 over space, product, population and rows

The first table: rows, how many components were chosen, seconds on the clock and of the CPU, the log-likelihood a row of rows that
the fit had not seen (nats) of the product and of the mixture, the largest total variation between the joint shares of two
attributes in the rows and those of the product (before) and of the mixture (after), and whether a second fit with the same seed
wrote the same file.

--exact: XGBoost 50x3, a mixture of 8 products: seconds to the exact measure, and how far a Monte Carlo estimate (draws from the
mixture, every sensitive value exchanged, through XGBoost's own predict) lies from it in standard errors; more than 4 is an error.

--worlds: the measure over the space, over the product of frequencies and over the fitted population, each certain, and the share
of the confident rows that are treated fairly with its 95 % interval; an asterisk marks what lies in the interval. The data sets
lie in the folder that BOXQTE_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.monte_carlo import BLOCK, STANDARD_ERRORS, probabilities
from benchmarks.paper.configurations import TABLE_4, selected
from benchmarks.paper.datasets import DATASETS, DataError, DataSet, load_dataset
from benchmarks.paper.models import ModelSize, train

from boxqte import Attribute, Fairness, Population, Space, empirical, population, quantify
from boxqte.answers.result import Result
from boxqte.basics.numbers import SHORT, number_text

EXACT = (("adult", "sex"), ("bank", "age"))
EXACT_COMPONENTS = 8
SIZE = ModelSize(50, 3)


@dataclass
class Stopwatch:
    """Seconds since it began: on the clock, and of all cores."""

    def __post_init__(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def __str__(self) -> str:
        wall, cpu = self.began
        return f"{time.perf_counter() - wall:7.1f}{time.process_time() - cpu:7.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", default=list(DATASETS))
    parser.add_argument("--components", default="auto", help="of the first table and of --worlds (default auto)")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--worlds", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="of --worlds: adult-sex and so on")
    parser.add_argument("--no-fits", action="store_true", help="leave out the first table")
    parser.add_argument("--samples", type=int, default=1_000_000, help="draws of --exact (default a million)")
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds a measure of --worlds (default 600)")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    wrong = 0
    try:
        if not arguments.no_fits:
            wrong += captured(arguments)
        if arguments.exact:
            wrong += exact(arguments)
        if arguments.worlds:
            wrong += worlds(arguments)
    except DataError as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if wrong else 0


# --- what a fit captures ----------------------------------------------------------------------------------------------


def captured(arguments: argparse.Namespace) -> int:
    """One line a data set; how many of them are not likelier than under the product, or not the same twice."""
    print(
        f"{'data':<8}{'rows':>7}{'K':>4}{'s':>7}{'CPU s':>7}{'product':>10}{'mixture':>10}  {'before':<40}{'after':<40}same"
    )
    wrong = 0
    for name in arguments.names:
        data = load_dataset(name)
        watch = Stopwatch()
        found = Population.fit(data.inputs, data.space, arguments.components, random_state=arguments.seed)
        times = str(watch)
        again = Population.fit(data.inputs, data.space, arguments.components, random_state=arguments.seed)
        same = json.dumps(found.to_json()) == json.dumps(again.to_json())
        seen = found.captured
        assert seen is not None
        assert seen.gain is not None
        product, mixture = seen.held_out[1], seen.held_out[seen.components]
        pairs = "".join(
            f"{'' if pair is None else f'{pair.distance:.4f} ' + ', '.join(pair.between):<40}"
            for pair in (seen.before, seen.after)
        )
        line = f"{name:<8}{found.rows:7d}{found.components:4d}{times}{product:10.4f}{mixture:10.4f}  {pairs}"
        print(f"{line}{'yes' if same else 'NO'}", flush=True)
        wrong += not same or seen.gain <= 0
    return wrong


# --- exact answers and draws ------------------------------------------------------------------------------------------


def exact(arguments: argparse.Namespace) -> int:
    """One line a problem; how many are not converged, or too far from what is drawn."""
    print(f"\n{'problem':<12}{'K':>3}{'s':>7}{'CPU s':>7}  {'measure':<45}{'drawn':>10}{'off by':>8}", flush=True)
    wrong = 0
    for name, sensitive in EXACT:
        data = load_dataset(name)
        model = train(data, SIZE)
        people = Population.fit(
            data.inputs, data.space, EXACT_COMPONENTS, random_state=arguments.seed, model=model
        ).space
        watch = Stopwatch()
        result = quantify(model, people, Fairness(sensitive), workers=arguments.workers)
        times = str(watch)
        share = drawn_measure(model, people, sensitive, arguments.samples, arguments.seed)
        assert result.bounds is not None
        error = math.sqrt(max(share * (1 - share), 1 / arguments.samples) / arguments.samples)
        off = max(result.bounds.lower - share, share - result.bounds.upper, 0.0) / error
        said = number_text(result.bounds.lower, result.bounds.upper, SHORT)
        problem = f"{name} {sensitive}"
        print(f"{problem:<12}{len(people.components):3d}{times}  {said:<45}{share:10.6f}{off:8.2f}", flush=True)
        wrong += off > STANDARD_ERRORS or not result.converged
    return wrong


def drawn_measure(model: Any, space: Space, sensitive: str, samples: int, seed: int) -> float:
    """The share of draws from the space that keep their class for every sensitive value, by XGBoost's own predict."""
    rng = np.random.default_rng(seed + 1)
    at = space.names.index(sensitive)
    attribute = space.attributes[at]
    values = range(int(attribute.low), int(attribute.high) + 1) if attribute.is_numeric else attribute.values
    fair = 0
    for start in range(0, samples, BLOCK):
        x = draws(rng, space, min(BLOCK, samples - start))
        own = probabilities(model, x) > 0.5
        same = np.ones(len(x), bool)
        for value in values:
            x[:, at] = value
            same &= (probabilities(model, x) > 0.5) == own
        fair += int(same.sum())
    return fair / samples


def draws(rng: np.random.Generator, space: Space, n: int) -> np.ndarray:
    """Inputs drawn from a space: a component, then each attribute by itself."""
    products = space.products()
    which = rng.choice(len(products), n, p=np.array([float(weight) for weight, _ in products]))
    x = np.zeros((n, len(space)))
    for k, (_, product) in enumerate(products):
        rows = np.flatnonzero(which == k)
        for at, attribute in enumerate(product):
            x[rows, at] = drawn_values(rng, attribute, len(rows))
    return x


def drawn_values(rng: np.random.Generator, attribute: Attribute, n: int) -> np.ndarray:
    if not attribute.is_numeric:
        masses = np.array([float(mass) for mass in attribute.value_masses()])
        return rng.choice(np.array(attribute.values, np.float64), n, p=masses / masses.sum())
    if attribute.histogram is None:
        edges, shares = np.array([float(attribute.low), float(attribute.end)]), np.ones(1)
    else:
        edges = np.array([float(edge) for edge in attribute.histogram.edges])
        shares = np.array([float(weight) for weight in attribute.histogram.weights])
    bins = rng.choice(len(shares), n, p=shares / shares.sum())
    inside = edges[bins] + rng.random(n) * (edges[bins + 1] - edges[bins])
    if attribute.kind == "integer":
        return np.floor(inside)
    return np.clip(inside.astype(np.float32).astype(np.float64), float(attribute.low), float(attribute.high))


# --- worlds -----------------------------------------------------------------------------------------------------------


def worlds(arguments: argparse.Namespace) -> int:
    """One line a row of Table 4, then in how many of them each world lies within the sampling error of the rows."""
    print(
        f"\n{'problem':<12}{'K':>3}{'s':>7}{'CPU s':>7}  {'space':<16}{'product':<16}{'population':<16}rows (95 % interval)"
    )
    inside = dict.fromkeys(("space", "product", "population"), 0)
    distance = dict.fromkeys(inside, 0.0)
    known: dict[str, tuple[DataSet, Any, dict[str, Space]]] = {}
    asked = [c for c in selected(TABLE_4, arguments.only) if c.dataset in arguments.names]
    for c in asked:
        if c.dataset not in known:
            known[c.dataset] = _worlds_of(c.dataset, arguments)
        data, model, spaces = known[c.dataset]
        prop = c.property()
        rows = empirical(model, data.space, prop, data.inputs, workers=arguments.workers)
        assert rows.lower is not None
        assert rows.upper is not None
        assert rows.measure is not None
        watch, cells = Stopwatch(), []
        for world, space in spaces.items():
            result = quantify(model, space, prop, time_limit=arguments.time_limit, workers=arguments.workers)
            lower, upper = known_bounds(result)
            hit = rows.lower <= lower and upper <= rows.upper
            inside[world] += hit
            distance[world] += abs((lower + upper) / 2 - rows.measure) / len(asked)
            cells.append(
                f"{(lower + upper) / 2:.6f}{'*' if hit else ' '}{'' if result.converged else f' +-{upper - lower:.0e}'}"
            )
        shown = "".join(f"{cell:<16}" for cell in cells)
        k = len(spaces["population"].components) or 1
        print(
            f"{c.subject:<12}{k:3d}{watch}  {shown}{rows.measure:.6f} ({rows.lower:.6f} to {rows.upper:.6f})",
            flush=True,
        )
    for what, figures in (("within the interval of the rows", inside), ("mean distance from the rows", distance)):
        print(f"{what}: " + ", ".join(f"{world} {figure:.4g}" for world, figure in figures.items()))
    return int(bool(asked) and inside["population"] < inside["space"])


def _worlds_of(name: str, arguments: argparse.Namespace) -> tuple[DataSet, Any, dict[str, Space]]:
    data = load_dataset(name)
    model = train(data, SIZE)
    fitted = Population.fit(data.inputs, data.space, arguments.components, random_state=arguments.seed, model=model)
    product = population(data.space, data.inputs)
    return data, model, {"space": data.space, "product": product.space, "population": fitted.space}


def known_bounds(result: Result) -> tuple[float, float]:
    """Certain bounds; where time ran out, the statistical interval."""
    if not result.converged and result.statistical is not None:
        return result.statistical.lower, result.statistical.upper
    assert result.bounds is not None
    return result.bounds.lower, result.bounds.upper


if __name__ == "__main__":
    raise SystemExit(main())
