"""The Monte Carlo check must be right itself: its search for x' against the oracle, its distances against arithmetic."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from benchmarks.monte_carlo import check_witnesses, random_inputs, standard_errors
from benchmarks.window_search import UNDECIDED, UNFAIR, WindowSearch

from boxqte import Fairness, Robustness, Space, load_model
from boxqte.questions.properties import Property
from tests.naive import naive_row_at

ROOT = Path(__file__).resolve().parents[2]
QUESTIONS = [
    Robustness("0.1"),
    Fairness("sex", "0.1"),
    Fairness("race", "0.05"),
    Fairness("race"),
    Fairness("age", "0.2"),
]


def people(trees: int) -> tuple[Any, Space]:
    table = pd.read_csv(ROOT / "examples" / "people.csv").head(200)
    table["sex"] = (table["sex"] == "m").astype(int)
    space = Space.from_data(table, label="granted", categorical=["race", "sex"], integer=["age"], real=["income"])
    model = xgboost.XGBClassifier(n_estimators=trees, max_depth=2).fit(table[list(space.columns)], table["granted"])
    return model, space


def points(space: Space, x: np.ndarray) -> dict[str, Any]:
    """A row as the oracle takes it: exact numbers."""
    return {
        a.name: Fraction(float(v)) if a.kind == "real" else int(v) for a, v in zip(space, x)
    }  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_the_search_agrees_with_the_oracle_point_by_point(question: Property) -> None:
    model, space = people(5)
    ensemble = load_model(model).ensemble
    search = WindowSearch(model, ensemble.base[0], space, question)
    x = random_inputs(np.random.default_rng(3), space, 40)
    verdict, where, _ = search.decide(x)
    expected = [naive_row_at(ensemble, space, question, points(space, row)).counterexample for row in x]
    assert [v == UNFAIR for v in verdict] == expected
    unfair = verdict == UNFAIR
    check_witnesses(search, x[unfair], search.values_at(where[unfair], x[unfair]))


def test_the_margins_are_exact() -> None:
    model, space = people(12)
    ensemble = load_model(model).ensemble
    search = WindowSearch(model, ensemble.base[0], space, Robustness("0.1"))
    x = random_inputs(np.random.default_rng(4), space, 50)
    assert [Fraction(int(m), search.unit) for m in search.margins(x)] == [m[0] for m in ensemble.exact_margin(x)]


def test_a_search_that_runs_out_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.window_search.NODE_LIMIT", 1)
    model, space = people(30)
    search = WindowSearch(model, load_model(model).ensemble.base[0], space, Robustness("0.3"))
    verdict, _, _ = search.decide(random_inputs(np.random.default_rng(5), space, 200))
    assert (verdict == UNDECIDED).any()


def test_random_inputs_lie_in_the_space_and_are_float32_numbers() -> None:
    _, space = people(2)
    x = random_inputs(np.random.default_rng(Random(0).randrange(99)), space, 1000)
    for column, a in zip(x.T, space):
        if a.is_numeric:
            assert column.min() >= float(a.low)
            assert column.max() <= float(a.high)
        else:
            assert set(column) == set(a.values)
        inner = column[(column > float(a.low)) & (column < float(a.high))] if a.kind == "real" else column
        assert (inner.astype(np.float32) == inner).all()


def test_distances_are_counted_in_standard_errors() -> None:
    assert standard_errors(5100, 10_000, 0.5, 0.5) == pytest.approx(2.0)
    assert standard_errors(4900, 10_000, 0.5, 0.5) == pytest.approx(-2.0)
    assert standard_errors(5100, 10_000, 0.3, 0.8) == 0.0
    assert standard_errors(0, 10_000, 0.0, 0.0) == 0.0
    assert standard_errors(10, 10_000, 0.0, 0.0) > 4
