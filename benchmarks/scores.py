"""Score fairness and the histogram of score changes: XGBoost, 50 trees of depth 3, one line a question.

    python -m benchmarks.scores [--workers N] [--samples N] [NAME:ATTRIBUTE ...]

Columns: seconds on the clock and of the CPU, the share of inputs whose score changes by at most the level (certain), and how
far a Monte Carlo estimate through XGBoost's own scores is from it, in standard errors: more than 4 is an error. Then the
histogram on both scales; its shares must add up to 1 within their bounds. The data sets lie in the folder that BOXQTE_DATA
names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
from benchmarks.monte_carlo import STANDARD_ERRORS, random_inputs
from benchmarks.paper.datasets import load_dataset
from benchmarks.paper.models import ModelSize, train

from boxqte import ScoreFairness, Space, quantify, score_changes
from boxqte.basics.numbers import SHORT, number_text
from boxqte.questions.properties import Scale

LEVELS: dict[Scale, tuple[float, ...]] = {"margin": (0.1, 0.5), "probability": (0.01, 0.05, 0.2)}
assert set(LEVELS) < set(get_args(Scale))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", metavar="NAME:ATTRIBUTE", nargs="*", default=["adult:sex", "lsac:race"])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(
        f"{'problem':<12}{'score':<12}{'level':>6}{'s':>7}{'CPU s':>7}  {'at most the level':<40}{'off by':>7}",
        flush=True,
    )
    wrong = 0
    with tempfile.TemporaryDirectory() as place:
        for problem in arguments.problems:
            name, _, sensitive = problem.partition(":")
            data = load_dataset(name)
            model, file = train(data, ModelSize(50, 3)), Path(place) / f"{name}.json"
            model.get_booster().save_model(file)
            for scale, levels in LEVELS.items():
                changes = drawn_changes(model, data.space, sensitive, scale, arguments.samples, arguments.seed)
                for level in levels:
                    wall, cpu = time.perf_counter(), time.process_time()
                    found = quantify(
                        file, data.space, ScoreFairness(sensitive, level, scale), workers=arguments.workers
                    )
                    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                    share = float(np.mean(changes <= level))
                    error = math.sqrt(max(share * (1 - share), 1 / len(changes)) / len(changes))
                    off = abs(share - (found.lower + found.upper) / 2) / error
                    wrong += off > STANDARD_ERRORS or not found.converged
                    said = number_text(found.lower, found.upper, SHORT)
                    print(f"{problem:<12}{scale:<12}{level:6g}{wall:7.1f}{cpu:7.1f}  {said:<40}{off:7.2f}", flush=True)
                wall = time.perf_counter()
                histogram = score_changes(file, data.space, sensitive, scale=scale, workers=arguments.workers)
                sums = [sum(getattr(b.share, end) for b in histogram.bins) for end in ("lower", "upper")]
                wrong += not sums[0] <= 1 <= sums[1] or not histogram.converged
                print(f"{problem:<12}{scale:<12}histogram, {time.perf_counter() - wall:.1f} s, its shares add up to "
                      f"1 - {1 - sums[0]:.1g} .. 1 + {sums[1] - 1:.1g}", flush=True)  # fmt: skip
    return 1 if wrong else 0


def drawn_changes(
    model: Any, space: Space, sensitive: str, scale: Scale, samples: int, seed: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The largest change of XGBoost's own score of each of some inputs drawn from the space."""
    rng, at = np.random.default_rng(seed), space.names.index(sensitive)
    inputs = random_inputs(rng, space, samples)
    own = scores(model, inputs, scale)
    largest = np.zeros(samples)
    attribute = space[sensitive]
    values = range(int(attribute.low), int(attribute.high) + 1) if attribute.is_numeric else attribute.values
    for value in values:
        other = inputs.copy()
        other[:, at] = value
        largest = np.maximum(largest, np.abs(scores(model, other, scale) - own))
    return largest


def scores(model: Any, inputs: np.ndarray[Any, Any], scale: Scale) -> np.ndarray[Any, np.dtype[np.float64]]:
    kind = "value" if scale == "probability" else "margin"
    return np.asarray(model.get_booster().inplace_predict(inputs, predict_type=kind), np.float64)


if __name__ == "__main__":
    raise SystemExit(main())
