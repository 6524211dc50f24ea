"""Rows of the third question: counterexamples drawn from a result, and what fairness testers find in the same time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.paper.datasets import DataSet
from benchmarks.paper.records import Row

from boxqte.errors import EngineError

if TYPE_CHECKING:
    import pandas as pd
    from benchmarks.paper.runs import Job

    from boxqte.api.quantify import Quantification

CURVE_POINTS = 100


def sample_row(result: Quantification, job: Job, model: Any, data: DataSet) -> Row:
    """Draw counterexamples, time it, and check every pair through the library's own predict.

    An IDI counts once for all its sensitive values, as the testers count.
    """
    if result.counterexample.upper <= 0:
        return {"idis": 0, "drawn": 0, "seconds": 0.0, "verified": 0, "distinct": 0}
    load_sampling()
    started = time.perf_counter()
    drawn = result.sample(job.sample, random_state=job.seed, replay=False)  # every pair is replayed below, untimed
    seconds = time.perf_counter() - started
    x, partner = drawn.x, drawn.witness
    sensitive = job.configuration.sensitive or ""
    verified = check_pairs(model, data, sensitive, x, partner)
    rest = [name for name in x.columns if name != sensitive]
    return {
        "drawn": len(x),
        "seconds": seconds,
        "verified": int(verified.sum()),
        "distinct": int((~x[verified].duplicated()).sum()),
        "idis": int((~x.loc[verified, rest].duplicated()).sum()),
        "check_seconds": time.perf_counter() - started - seconds,
    }


def load_sampling() -> None:
    """Load what draws samples, with a tiny result."""
    from boxqte.api.quantify import quantify
    from boxqte.examples import loan_ensemble, loan_space
    from boxqte.questions.properties import Fairness

    quantify(loan_ensemble(), loan_space(), Fairness("race"), workers=1).sample(10, random_state=0, replay=False)


def check_pairs(model: Any, data: DataSet, sensitive: str, x: pd.DataFrame, partner: pd.DataFrame) -> Any:
    """Which pairs the library itself treats differently though only the sensitive attribute differs."""
    import numpy as np

    columns = list(data.space.columns)
    one, two = x[columns].to_numpy(), partner[columns].to_numpy()
    rest = [i for i, name in enumerate(columns) if name != sensitive]
    at = columns.index(sensitive)
    fits = (one[:, rest] == two[:, rest]).all(axis=1) & (one[:, at] != two[:, at])
    flips = np.asarray(model.predict(x[columns])).ravel() != np.asarray(model.predict(partner[columns])).ravel()
    return fits & flips


def tester_row(job: Job, model: Any, data: DataSet) -> Row:
    """Run a fairness tester for the job's seconds; its figures without the inputs themselves."""
    from boxqte.testers import find_idis

    if job.configuration.sensitive is None:
        raise EngineError("fairness testers need a sensitive attribute")
    found = find_idis(
        model,
        data.space,
        job.configuration.sensitive,
        method=job.tester or "",
        seconds=job.time_limit,
        random_state=job.seed,
        data=data.inputs,
        **job.options,
    )
    figures = found.to_json()
    keep = ("status", "idis", "raw", "rejected", "tests", "success_rate", "seconds", "calls", "rows", "diversity", "batch",
            "variant")  # fmt: skip
    curve = figures.get("curve", [])
    step = max(1, len(curve) // CURVE_POINTS)
    return {name: figures[name] for name in keep if name in figures} | {"curve": curve[::step]}
