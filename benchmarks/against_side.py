"""One side of benchmarks/against.py: answers questions with the boxqte that its interpreter has, and says what they cost.

A question a line of standard input, its answer a line of standard output, both JSON. Seconds are the CPU's (user and
system, all threads) in `quantify` on a model that is read: exact grid and solving, neither importing nor reading.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from boxqte import BoxQTEError, Fairness, Robustness, Space, load_model, quantify
from boxqte.examples import loan_ensemble, loan_space

_models: dict[str, Any] = {}


def property_of(question: dict[str, Any]) -> Fairness | Robustness:
    shape = (question["epsilon_rate"], question["kappa"])
    return Robustness(*shape) if question["sensitive"] is None else Fairness(question["sensitive"], *shape)


def warm_up(question: dict[str, Any]) -> dict[str, Any]:
    """Load, and where an old version does that compile, what a question of this kind needs."""
    asked = property_of(question | {"sensitive": question["sensitive"] and "race"})
    for engine in ("box", "sample"):
        quantify(loan_ensemble(), loan_space(), asked, engine=engine, workers=1, time_limit=600, gap=0.1)
    return {}


def solve(question: dict[str, Any]) -> dict[str, Any]:
    """The box engine to the end, or to the limit."""
    model, space = _read(question)
    started = time.process_time()
    result = quantify(
        model, space, property_of(question), engine="box", workers=1, time_limit=question["time_limit"]
    )  # fmt: skip
    seconds = time.process_time() - started
    bounds = result.bounds
    return {
        "seconds": seconds,
        "converged": result.converged,
        "lower": None if bounds is None else bounds.lower,
        "upper": None if bounds is None else bounds.upper,
        "value": result.value,
    }


def points(question: dict[str, Any]) -> dict[str, Any]:
    """Points drawn and decided, from the first report to the last: the grid is not counted."""
    model, space = _read(question)
    reports: list[tuple[int, float]] = []
    result = quantify(
        model, space, property_of(question), engine="sample", workers=1, time_limit=question["time_limit"],
        options={"points": 10**9}, progress=lambda now: reports.append((now.nodes, time.process_time())),
    )  # fmt: skip
    (first, begun), (last, ended) = reports[0], reports[-1]
    found = result.statistical
    assert found is not None
    return {
        "points": last - first,
        "seconds": ended - begun,
        "fair": found.fair,
        "unfair": found.unfair,
        "low": found.low,
        "unknown": found.unknown,
    }


def _read(question: dict[str, Any]) -> tuple[Any, Space]:
    name = question["model"]
    if name not in _models:
        _models[name] = load_model(name)
    return _models[name], Space.load(question["space"])


def main() -> int:
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = {"warm_up": warm_up, "solve": solve, "points": points}[question.pop("do")](question)
        except BoxQTEError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
