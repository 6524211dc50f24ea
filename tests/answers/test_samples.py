"""Samples: every pair is a counterexample by the oracle, and they are drawn by mass."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import boxqte
from boxqte import Fairness, Robustness, Space, quantify
from boxqte.answers.samples import drawn
from boxqte.answers.values import AxisValues, GridValues, first_float, last_float
from boxqte.errors import EngineError
from boxqte.examples import loan_ensemble, loan_space
from boxqte.models.ensemble import EnsembleBuilder, Test
from boxqte.space.attributes import Attribute
from tests.naive import MISSING, Oracle, Point, naive_quantify, naive_rows, naive_tolerance
from tests.strategies import Problem, random_problem


def points(result: boxqte.Quantification, n: int, seed: int) -> tuple[list[Point], list[Point]]:
    """Draws as the oracle's points."""
    grid = result.asked.grid
    values = GridValues(grid)
    both = drawn(result.asked, result.asked.regions(), n, np.random.default_rng(seed), 1, values)
    out = []
    for columns in both:
        named: list[Point] = [{} for _ in range(n)]
        for axis, column in zip(grid.axes, columns):
            a = axis.attribute
            for point, v in zip(named, column.tolist()):
                if a.is_numeric:
                    point[a.name] = MISSING if np.isnan(v) else int(v) if a.kind == "integer" else Fraction(v)
                else:
                    point[a.name] = MISSING if v < 0 else a.values[int(v)]
        out.append(named)
    return out[0], out[1]


def is_counterexample(problem: Problem, oracle: Oracle, x: Point, other: Point) -> bool:
    """The definition, word by word."""
    one, two = oracle.class_of(x), oracle.class_of(other)
    if not oracle.is_confident(x) or one is None or two is None or one == two:
        return False
    sensitive = problem.property.sensitive
    if sensitive and all(x[s] == other[s] for s in sensitive):
        return False
    for a in problem.space:
        v, w = x[a.name], other[a.name]
        if a.name in sensitive or v == w:
            continue
        if v is MISSING or w is MISSING or not a.is_numeric:
            return False
        # x and x' are floats near the ends of exact intervals
        if abs(v - w) > naive_tolerance(problem.property, a) + Fraction(1, 10**12):
            return False
    return True


def check_pairs(problem: Problem, seed: int, n: int, **options: Any) -> bool:
    result = quantify(*problem, engine="box", workers=1, options=options)
    if not result.counterexample.upper > 1e-12:
        with pytest.raises(EngineError, match="no counterexample"):
            result.sample(10)
        return False
    oracle = Oracle(*problem)
    x, other = points(result, n, seed)
    for one, two in zip(x, other):
        assert is_counterexample(problem, oracle, one, two), (one, two)
    return True


def p_value(statistic: float, freedom: int) -> float:
    from scipy.stats import chi2

    return float(chi2.sf(statistic, freedom))


def check_uniform(problem: Problem, seed: int, **options: Any) -> bool:
    """Chi-squared against the exact masses of all inputs of a finite space."""
    result = quantify(*problem, engine="box", workers=1, options=options)
    rows = [r for r in naive_rows(*problem) if r.counterexample and r.mass]
    if not rows:
        return False
    n = 4000
    x, _ = points(result, n, seed)
    total = sum(r.mass for r in rows)
    names = problem.space.names
    number = {tuple(r.x[name] for name in names): i for i, r in enumerate(rows)}
    seen = np.zeros(len(rows))
    for point in x:
        seen[number[tuple(point[name] for name in names)]] += 1  # a KeyError is a point that is no counterexample
    expected = np.array([float(r.mass / total) for r in rows]) * n
    order = np.argsort(expected)
    seen, expected = seen[order], expected[order]
    small = (
        int(np.searchsorted(np.cumsum(expected), 8.0)) + 1
    )  # the lightest together, so that each class expects enough
    while small < len(expected) and expected[small] < 5:
        small += 1
    seen = np.concatenate([[seen[:small].sum()], seen[small:]])
    expected = np.concatenate([[expected[:small].sum()], expected[small:]])
    if len(expected) < 2:
        return False
    statistic = float(((seen - expected) ** 2 / expected).sum())
    assert p_value(statistic, len(expected) - 1) > 1e-5, (statistic, len(expected))
    return True


@pytest.mark.parametrize("options", [{}, {"finish_limit": 8}, {"finish_limit": 5}])
def test_samples_are_counterexamples(options: dict[str, Any]) -> None:
    rng = random.Random(f"pairs {options}")
    assert sum(check_pairs(random_problem(rng, eps=False, max_pieces=300), i, 60, **options) for i in range(40)) > 10


def test_samples_with_tolerance_are_counterexamples() -> None:
    rng = random.Random("pairs eps")
    assert sum(check_pairs(random_problem(rng, max_pieces=150, max_pairs=20_000), i, 40) for i in range(25)) > 4


@pytest.mark.parametrize("options", [{}, {"finish_limit": 20}])
def test_samples_of_finite_spaces_are_uniform(options: dict[str, Any]) -> None:
    rng = random.Random(f"uniform {options}")
    done = 0
    for seed in range(60):
        done += check_uniform(random_problem(rng, eps=False, real=False, max_pieces=400), seed, **options)
    assert done > 15


def test_samples_with_tolerance_are_uniform() -> None:
    rng = random.Random("uniform eps")
    done = 0
    for seed in range(25):
        problem = random_problem(rng, real=False, max_pieces=150, max_pairs=20_000)
        done += check_uniform(problem, seed)
    assert done > 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_many_samples_are_uniform(seed: int) -> None:
    rng = random.Random(f"slow {seed}")
    for i in range(40):
        check_uniform(random_problem(rng, eps=i % 2 == 0, real=False, max_pieces=400), i)


def test_wide_values_are_drawn_too() -> None:
    """Margins that 64 bits cannot hold are decided point by point."""
    from tests.engines.test_box import integers, random_trees

    rng = np.random.default_rng(4)
    model = random_trees(rng, 3, 4, 8, 2, lambda n: rng.integers(-2, 3, n) + rng.integers(-2, 3, n) * 2.0**-90)
    problem = Problem(model, integers(3, 4), Fairness("a1"))
    assert check_pairs(problem, 0, 60)
    assert check_uniform(problem, 0)


def test_the_same_seed_gives_the_same_pairs_on_any_number_of_threads() -> None:
    result = quantify(loan_ensemble(), loan_space(), Fairness("race"), engine="box", options={"finish_limit": 5})
    one, two = (result.sample(500, random_state=3, workers=w) for w in (1, 2))
    assert one.x.equals(two.x)
    assert one.witness.equals(two.witness)
    assert not one.x.equals(result.sample(500, random_state=4).x)


def test_distinct_pairs_are_distinct_and_a_small_space_runs_out() -> None:
    from tests.engines.test_box import integers, random_trees

    rng = np.random.default_rng(1)
    model = random_trees(rng, 2, 3, 6, 2, lambda n: rng.normal(size=n))
    result = quantify(model, integers(2, 3), Fairness("a0"))
    rows = list(naive_rows(model, integers(2, 3), Fairness("a0")))
    different = sum(len(r.witnesses) for r in rows if r.counterexample)
    assert different > 4
    found = result.sample(different, random_state=0, distinct=True)
    assert not found.pairs().duplicated().any()
    with pytest.raises(EngineError, match=f"after {different} different pairs"):
        result.sample(different + 1, random_state=0, distinct=True)
    assert result.sample(100, random_state=0).pairs().duplicated().any()


def test_a_partial_result_says_what_it_is_drawn_from() -> None:
    from tests.engines.test_box import integers, random_trees

    rng = np.random.default_rng(7)
    model = random_trees(rng, 6, 9, 40, 3, lambda n: rng.normal(size=n))
    result = quantify(
        model, integers(6, 9), Fairness("a0"), node_limit=60, engine="box", options={"finish_limit": 200}, workers=1
    )
    assert not result.converged
    found = result.sample(50, random_state=0)
    assert not found.complete
    assert 0 < found.share < 1
    assert "found so far" in repr(found)
    oracle = Oracle(model, integers(6, 9), Fairness("a0"))
    for (_, one), (_, two) in zip(found.x.iterrows(), found.witness.iterrows()):
        assert oracle.class_of(dict(one)) != oracle.class_of(dict(two))


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "side", "first", "last"),
    [
        (Fraction(1), 0, 1.0, np.nextafter(1.0, 0)),
        (Fraction(1), 1, np.nextafter(1.0, 2), 1.0),
        (Fraction(1, 10), 0, 0.1 if Fraction(0.1) >= Fraction(1, 10) else np.nextafter(0.1, 1), np.nextafter(0.1, 0)),
    ],
)
def test_the_floats_at_an_edge_are_exact(value: Fraction, side: int, first: float, last: float) -> None:
    assert first_float((value, side)) == first
    assert last_float((value, side)) == last


def test_drawn_reals_stay_in_the_cell_that_the_model_sees() -> None:
    """XGBoost compares float32 with float32 thresholds: a drawn value must not be rounded across one."""
    from boxqte.questions.building import build_grid

    rng = random.Random("cells")
    for _ in range(30):
        problem = random_problem(rng, eps=False)
        grid = build_grid(*problem)
        values = GridValues(grid)
        cells = np.array(
            list(itertools.islice(itertools.product(*(range(len(a.refined)) for a in grid.axes)), 400)), np.int64
        )
        columns = values.draw(cells, np.random.default_rng(0))
        reached = problem.ensemble.leaves(values.matrix(columns))
        again = problem.ensemble.leaves(values.matrix(values.draw(cells, np.random.default_rng(1))))
        narrow = [
            v.numeric and not v.integral and not v.narrow[~v.missing].all() and isinstance(v, AxisValues)
            for v in values.axes
        ]
        if not any(narrow):  # all cells hold a float32 or are compared in float64
            assert (reached == again).all()


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "sklearn", "pipeline"])
def test_pairs_are_replayed_in_the_columns_of_the_users_table(library: str) -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame(
        {"income": rng.normal(50, 20, n).round(2), "age": rng.integers(18, 80, n), "sex": rng.integers(0, 2, n)}
    )
    label = (frame["income"] + 8 * frame["sex"] + rng.normal(0, 10, n) > 52).astype(int)
    if library == "xgboost":
        import xgboost

        model: Any = xgboost.XGBClassifier(n_estimators=15, max_depth=3).fit(frame, label)
    elif library == "lightgbm":
        import lightgbm

        model = lightgbm.LGBMClassifier(n_estimators=10, num_leaves=6, verbose=-1).fit(frame, label)
    elif library == "sklearn":
        from sklearn.ensemble import RandomForestClassifier

        model = RandomForestClassifier(n_estimators=9, max_depth=3, random_state=0).fit(frame, label)
    else:
        from sklearn.compose import make_column_transformer
        from sklearn.ensemble import GradientBoostingClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder

        frame["sex"] = np.where(frame["sex"] == 1, "m", "f")
        encoder = make_column_transformer((OneHotEncoder(), ["sex"]), remainder="passthrough")
        model = make_pipeline(encoder, GradientBoostingClassifier(n_estimators=10, random_state=0)).fit(frame, label)
    space = boxqte.Space.infer(frame, model=model if library == "pipeline" else None).space
    result = quantify(model, space, Fairness("sex"))
    found = result.sample(2000, random_state=1)
    assert found.replayed
    assert not len(found.disagreements)
    assert set(found.x.columns) == set(frame.columns)
    ours = model.predict(found.x[frame.columns]), model.predict(found.witness[frame.columns])
    assert (ours[0] != ours[1]).all()


def test_robustness_pairs_move_within_the_tolerance() -> None:
    problem = Problem(loan_ensemble(), loan_space(), Robustness({"income": 20, "age": 2}))
    result = quantify(*problem)
    found = result.sample(500, random_state=0)
    assert ((found.x["income"] - found.witness["income"]).abs() <= 20 + 1e-9).all()
    assert ((found.x["age"] - found.witness["age"]).abs() <= 2).all()
    assert (found.x["race"] == found.witness["race"]).all()
    margins = [
        loan_ensemble().margin(t[["income", "race", "age"]].to_numpy(float))[:, 0] for t in (found.x, found.witness)
    ]
    assert ((margins[0] > 0) != (margins[1] > 0)).all()


@pytest.mark.parametrize("seed", [373, 860])
def test_a_rest_that_rounding_leaves_is_no_counterexample(seed: int) -> None:
    """With epsilon > 0 what is unfair in a box is what the other masses leave of it: here some 1e-17, and nobody."""
    limits = {"fairness": False} if seed % 2 else {}
    problem = random_problem(random.Random(f"doubt {seed}"), max_pieces=60, max_pairs=2500, max_attributes=3, **limits)
    assert naive_quantify(*problem).counterexample == 0
    result = quantify(*problem, engine="box", workers=1)
    assert not len(result.regions())
    with pytest.raises(EngineError, match="no counterexample was found; the model has none"):
        result.sample(3)


def test_counterexamples_that_are_lost_in_rounding_are_found_one_by_one() -> None:
    problem = random_problem(random.Random("doubt 1037"), max_pieces=60, max_pairs=2500, max_attributes=3,
                             fairness=False)  # fmt: skip
    assert 0 < naive_quantify(*problem).counterexample < Fraction(1, 10**30)
    assert len(quantify(*problem, engine="box", workers=1).sample(3, random_state=0)) == 3


def test_codes_too_large_for_integers_stay_what_they_are() -> None:
    space = Space([Attribute.categorical("a", ["x", "y"], codes=[1e300, 0.0])])
    builder = EnsembleBuilder()
    builder.add_tree(feature=[0, 0, 0], test=[Test.AT_MOST_F64, Test.LEAF, Test.LEAF], threshold=[0.5, 0.0, 0.0],
                     left=[1, 0, 0], right=[2, 0, 0], value=[0.0, 1.0, -1.0])  # fmt: skip
    model = builder.build(library="example", feature_names=["a"], base=(Fraction(0),), link="sigmoid")
    drawn = quantify(model, space, Fairness("a")).sample(20, random_state=0)
    assert set(drawn.x["a"]) == {1e300, 0.0}
