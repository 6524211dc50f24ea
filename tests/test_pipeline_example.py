"""examples/pipeline.py: scikit-learn's documented pipeline, audited end to end, against draws with its own predict."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from boxqte import Audit

DATA = Path(os.environ.get("BOXQTE_DATA", Path(__file__).parents[2] / "shared" / "data"))
EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "pipeline.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("pipeline_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn(audit: Audit, n: int) -> pd.DataFrame:
    """Points of the audit's space as the user's table, evenly: plain draws from each attribute's domain."""
    rng = np.random.default_rng(0)
    columns = {}
    for attribute in audit.space:
        if attribute.kind == "real":
            values = rng.uniform(float(attribute.low), float(attribute.high), n)
        elif attribute.kind == "integer":
            values = rng.integers(int(attribute.low), int(attribute.high) + 1, n).astype(float)
        else:
            values = rng.choice(np.array(attribute.values, object), n)
        missing = rng.random(n) < float(attribute.missing or 0)
        columns[attribute.name] = pd.Series(values).mask(missing)
    return pd.DataFrame(columns)


def fair_share(model: Any, points: pd.DataFrame, sensitive: str, values: Any) -> float:
    """The share of points whose class no other value of the sensitive attribute changes."""
    own = model.predict(points)
    changed = np.zeros(len(points), bool)
    for value in values:
        changed |= model.predict(points.assign(**{sensitive: value})) != own
    return float(1 - changed.mean())


def audit_agrees_with_draws(model: Any, audit: Audit, n: int) -> None:
    points = drawn(audit, n)
    for name in ("sex", "race"):
        result = audit[name]
        assert result.lower is not None
        assert result.upper is not None
        assert 0 < result.lower <= result.upper < 1, "the model must depend on it, or nothing is compared"
        values = [*audit.space[name].values, *([np.nan] if audit.space[name].missing else [])]
        share = fair_share(model, points, name, values)
        noise = 5 * (share * (1 - share) / n) ** 0.5  # five standard deviations: one false alarm in a million
        assert result.lower - noise <= share <= result.upper + noise


def test_the_example_on_made_up_people_agrees_with_draws() -> None:
    module = example()
    frame = module.people()
    model = module.trained(frame, 20)
    audit = module.audited(model, frame, 60)
    assert all(answer.upper - answer.lower < 1e-9 for answer in audit.results)
    assert {a.name: (a.kind, a.missing is not None) for a in audit.space} == {
        "income": ("real", True), "age": ("integer", False), "sex": ("categorical", False), "race": ("categorical", True),
    }  # fmt: skip
    assert "missing" not in audit.space["race"].values
    audit_agrees_with_draws(model, audit, 4000)


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}; BOXQTE_DATA names their folder")
def test_the_example_on_adult_agrees_with_draws() -> None:
    module = example()
    frame = module.adult(DATA)
    assert int(frame.isna().sum().sum()) == 4262  # the census' question marks
    model = module.trained(frame, 60)
    audit_agrees_with_draws(model, module.audited(model, frame, 12), 20_000)
