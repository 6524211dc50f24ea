"""Masses and rows of tables: against plain counting, the library's own leaves, and the oracle."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from boxqte import Attribute, Fairness, Robustness, Space, empirical, population
from boxqte.answers.empirical import clopper_pearson
from boxqte.cli.main import main
from boxqte.errors import SpaceError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.questions.building import build_grid
from boxqte.questions.row_cells import read_rows
from boxqte.space.rows import TableRows
from boxqte.space.tables import table_of
from tests.naive import MISSING, naive_row_at
from tests.random_attributes import Draws
from tests.random_trees import draw_point
from tests.strategies import random_problem

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def table_of_points(space: Space, points: list[dict[str, object]]) -> pd.DataFrame:
    """Points of the oracle as a user's table: one column an attribute."""
    columns: dict[str, list[object]] = {}
    for a in space.attributes:
        shown = [None if p[a.name] is MISSING else p[a.name] for p in points]
        columns[a.name] = [float(v) if isinstance(v, Fraction) else v for v in shown]
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})


def test_rows_of_random_problems_are_decided_as_the_oracle_says() -> None:
    checked = 0
    for seed in range(150):
        problem = random_problem(random.Random(seed), real=False, max_pieces=300, max_pairs=5_000)
        ensemble, space, prop = problem
        if any(isinstance(v, float) for a in space for v in a.values):
            continue  # objects of mixed number types are no column of a table
        draws = Draws(random.Random(seed + 1).randint)
        points = [draw_point(draws, ensemble, space) for _ in range(12)]
        rows = [naive_row_at(ensemble, space, prop, p) for p in points]
        if any(all(p[a.name] is MISSING for p in points) for a in space):
            continue  # a column with nothing in it has no type
        found = empirical(ensemble, space, prop, table_of_points(space, points))
        assert found.outside == 0
        assert found.confident == sum(r.confident for r in rows)
        assert found.counterexamples == tuple(i for i, r in enumerate(rows) if r.counterexample)
        checked += 1
    assert checked > 80


def test_a_row_on_a_threshold_goes_where_the_library_sends_it() -> None:
    """The cell of a row passes the same tests as the row itself, also where float32 rounds it onto the threshold."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"a": np.round(rng.random(300), 1), "b": np.round(rng.random(300), 2)})
    label = ((data.a * 3 + data.b * 7) % 1 > 0.5).astype(int)
    model = xgboost.XGBClassifier(n_estimators=15, max_depth=3, n_jobs=1).fit(data, label)
    from boxqte import load_model

    ensemble = load_model(model).ensemble
    space = Space([Attribute.real("a", 0, 1), Attribute.real("b", 0, 1)])
    grid = build_grid(ensemble, space, Robustness())
    read = read_rows(grid, table_of(data))
    assert read.inside.all()
    from boxqte.engines.point.exact import exact_margin

    for row, expected in zip(read.cells.tolist(), ensemble.exact_margin(data.to_numpy())):
        assert Fraction(exact_margin(grid, row), 2**grid.scale_bits) * ensemble.factor == expected[0]


def test_masses_are_the_frequencies_of_the_group() -> None:
    space = Space([Attribute.categorical("sex", ["f", "m"]), Attribute.integer("age", 0, 9)])
    people = {"sex": ["f", "m", "m", "m", "f"], "age": [1, 2, 2, 12, 3]}
    found = population(space, people)
    assert found.space["sex"].value_masses() == [Fraction(2, 5), Fraction(3, 5)]
    age = found.space["age"]
    assert [age.mass_below(Fraction(v)) for v in (1, 2, 3, 4)] == [0, Fraction(1, 4), Fraction(3, 4), 1]
    assert "outside the domain, left out: 1" in found.notes[1]
    group = population(space, people, where="sex == 'm' and age <= 2")
    assert group.rows == 2
    assert group.space["sex"].value_masses() == [0, 1]


def test_missing_values_keep_their_share_where_the_space_has_them() -> None:
    space = Space([Attribute.integer("age", 0, 9, missing=True)])
    found = population(space, {"age": [1, None, 2, None, 3]})
    assert found.space["age"].missing == Fraction(2, 5)
    chosen = TableRows(space, table_of({"age": [1, None, 2, None, 3]}))
    assert chosen.chosen("age == missing").tolist() == [False, True, False, True, False]
    assert chosen.chosen("not (age > 1)").tolist() == [True, True, False, True, False]


def test_conditions_on_rows_count_the_ends_of_real_attributes() -> None:
    space = Space([Attribute.real("x", 0, 1)])
    rows = TableRows(space, table_of({"x": [0.0, 0.5, 0.75, 1.0]}))
    assert rows.chosen("x <= 0.5").tolist() == [True, True, False, False]
    assert rows.chosen("x < 0.5").tolist() == [True, False, False, False]
    assert rows.chosen("0.5 < x <= 1").tolist() == [False, False, True, True]
    assert rows.chosen("x >= 1 or x < 0.1").tolist() == [True, False, False, True]


def test_one_hot_groups_and_codes_are_read_from_their_model_columns() -> None:
    coded = replace(Attribute.categorical("s", ["x", "y"], codes=[3, 7]), columns=("s_code",))
    space = Space([Attribute.one_hot("race", ["race_a", "race_b"]), coded])
    table = {"race_a": [1, 0, 1], "race_b": [0, 1, 1], "s_code": [7, 3, 7]}
    rows = TableRows(space, table_of(table))
    assert rows.values["race"] == [0, 1, "outside"]
    assert rows.values["s"] == [1, 0, 1]


@pytest.mark.parametrize(("table", "where", "said"), [
    ({"other": [1]}, None, "no column"),
    ({"age": ["old"], "income": [1], "race": [0]}, None, "attribute 'age', mass: no row of the data lies in its domain"),
    ({"age": [20], "income": [100], "race": [0]}, "age > 90", "no row of the table satisfies"),
    ({"age": [20], "income": [100], "race": [0]}, "height > 90", "is not an attribute"),
])  # fmt: skip
def test_mistakes_are_named(table: dict[str, list[object]], where: str | None, said: str) -> None:
    with pytest.raises(SpaceError, match=said):
        population(loan_space(), table, where=where)


def test_the_interval_of_a_share_is_exact() -> None:
    """By definition: at the lower end, so many successes or more have probability tail; likewise at the upper end."""
    from math import comb

    for k, n in itertools.product((0, 1, 5, 19, 20), (20,)):
        low, high = clopper_pearson(k, n, 0.9)
        at_least = sum(comb(n, i) * low**i * (1 - low) ** (n - i) for i in range(k, n + 1))
        at_most = sum(comb(n, i) * high**i * (1 - high) ** (n - i) for i in range(k + 1))
        assert low == 0 if k == 0 else at_least == pytest.approx(0.05, abs=1e-6)
        assert high == 1 if k == n else at_most == pytest.approx(0.05, abs=1e-6)


def test_the_commands_print_and_write_what_they_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, space, data = (str(EXAMPLES / name) for name in ("model.json", "space.json", "people.csv"))
    out = tmp_path / "rows.json"
    assert main(["empirical", model, "--space", space, "--data", data, "--sensitive", "sex", "--json", str(out)]) == 0
    assert "of the confident rows are treated fairly" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["rows"] == 400
    assert found["lower"] <= found["measure"] <= found["upper"]
    assert main(["quantify", model, "--space", space, "--sensitive", "sex", "--population", data, "--population-where",
                 "age >= 30"]) == 0  # fmt: skip
    assert "masses from" in capsys.readouterr().err
    assert main(["quantify", model, "--space", space, "--population-where", "age >= 30"]) == 2
    assert "--population" in capsys.readouterr().err


def test_the_measure_of_a_group_differs_from_that_of_all() -> None:
    ensemble, space = loan_ensemble(), loan_space()
    from boxqte import quantify

    people = {a.name: [a.low, a.high, a.high] if a.is_numeric else [*a.values[:2], a.values[0]] for a in space}
    table = {name: [int(v) if isinstance(v, Fraction) else v for v in column] for name, column in people.items()}
    whole = quantify(ensemble, space, Fairness("race"))
    some = quantify(ensemble, population(space, table).space, Fairness("race"))
    assert whole.value is not None
    assert some.value is not None
    assert some.value != whole.value
