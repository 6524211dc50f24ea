"""Pairs replayed in the model's own library: by classes, by scores, in the right direction, with the partner's confidence."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import boxqte
from boxqte import Fairness, check, quantify
from boxqte.answers.replay import margins, replayed
from boxqte.answers.values import GridValues
from boxqte.models.importers import load_model
from boxqte.questions.properties import Monotonicity, Property, ScoreFairness

LIBRARIES = ["xgboost", "lightgbm", "catboost", "forest", "gradient", "hist", "pipeline"]
REGRESSORS = ["xgboost", "lightgbm", "forest"]


@cache
def table() -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    n = 500
    frame = pd.DataFrame(
        {"income": rng.normal(50, 20, n).round(2), "age": rng.integers(18, 60, n), "sex": rng.integers(0, 2, n)}
    )
    return frame, frame["income"] + 8 * frame["sex"] - 0.3 * frame["age"] + rng.normal(0, 10, n)


@cache
def trained(library: str, numbers: bool = False) -> tuple[Any, Any]:
    """A model, and its library's own score of a table."""
    frame, value = table()
    label = value if numbers else (value > 42).astype(int)
    kind = "Regressor" if numbers else "Classifier"
    if library == "xgboost":
        import xgboost

        model = getattr(xgboost, f"XGB{kind}")(n_estimators=12, max_depth=3).fit(frame, label)
        return model, lambda rows: model.predict(rows, output_margin=True).astype(np.float64)
    if library == "lightgbm":
        import lightgbm

        model = getattr(lightgbm, f"LGBM{kind}")(n_estimators=10, num_leaves=6, verbose=-1).fit(frame, label)
        return model, lambda rows: model.predict(rows, raw_score=True)
    if library == "catboost":
        catboost = pytest.importorskip("catboost")
        model = catboost.CatBoostClassifier(iterations=10, depth=3, verbose=False, allow_writing_files=False)
        model.fit(frame, label)
        return model, lambda rows: model.predict(rows, prediction_type="RawFormulaVal")
    if library == "forest":
        from sklearn import ensemble

        model = getattr(ensemble, f"RandomForest{kind}")(n_estimators=9, max_depth=3, random_state=0).fit(frame, label)
        return model, (lambda rows: model.predict(rows)) if numbers else lambda rows: model.predict_proba(rows)[:, 1]
    from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    model = (
        HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=6)
        if library == "hist"
        else GradientBoostingClassifier(n_estimators=10, random_state=0)
    )
    if library == "pipeline":
        model = make_pipeline(FunctionTransformer(), model)
    model.fit(frame, label)
    return model, lambda rows: model.decision_function(rows)


@cache
def space(library: str) -> Any:
    model = trained(library)[0] if library == "pipeline" else None
    return boxqte.Space.infer(table()[0], model=model).space


def says(model: Any, score: Any, prop: Property, x: pd.DataFrame, other: pd.DataFrame) -> np.ndarray:
    """Which pairs the library itself calls counterexamples, in the words of the definitions."""
    if prop.asks_scores:
        one, two = score(x), score(other)
    else:
        one, two = (np.asarray(model.predict(rows)).reshape(-1) for rows in (x, other))
    if isinstance(prop, ScoreFairness):
        return np.abs(one - two) > float(prop.at_most)
    if isinstance(prop, Monotonicity):
        name = prop.sensitive[0]
        assert (x[name] != other[name]).all()
        rises = (other[name] > x[name]).to_numpy()
        wrong_if_increasing = np.where(rises, two < one, two > one)
        return wrong_if_increasing if prop.direction == "increasing" else np.where(rises, two > one, two < one)
    assert all((x[name] - other[name]).abs().max() <= float(bound) for name, bound in prop.max_change)
    p = np.asarray(model.predict_proba(other))
    return (one != two) & (p.max(axis=1) > float(prop.partner_kappa))


QUESTIONS = [
    ScoreFairness("sex", 0.05, "margin"),
    Monotonicity("age", "decreasing"),
    Monotonicity("income", "increasing", "score"),
    Fairness("age", max_change={"age": 3}),
    Fairness("income", max_change={"income": 2.5}),
    Fairness(["sex", "age"], kappa=0.6, partner_kappa=0.55),
]


@pytest.mark.parametrize("library", LIBRARIES)
def test_pairs_are_replayed_as_the_question_asks(library: str) -> None:
    model, score = trained(library)
    drawn = 0
    for prop in QUESTIONS:
        result = quantify(model, space(library), prop)
        if not result.counterexample.upper > 1e-9:
            continue
        found = result.sample(200, random_state=1)
        assert found.replayed
        denied = np.flatnonzero(~says(model, score, prop, found.x, found.witness))
        assert found.disagreements.tolist() == denied.tolist(), prop
        assert len(denied) <= 3, prop  # sums are rounded
        drawn += 1
    assert drawn >= 4


@pytest.mark.parametrize("library", REGRESSORS)
def test_predicted_values_are_compared(library: str) -> None:
    model, score = trained(library, numbers=True)
    prop = ScoreFairness(["sex", "age"], 1, "value")
    found = quantify(model, space(library), prop).sample(300, random_state=1)
    assert found.replayed
    assert not len(found.disagreements)
    assert (np.abs(score(found.x) - score(found.witness)) > 1).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_margins_are_the_libraries_own(library: str) -> None:
    frame, _ = table()
    model, score = trained(library)
    imported = load_model(model)
    read = margins(imported)
    assert read is not None
    rows = frame.to_numpy(np.float64)
    shift = 0.5 if imported.ensemble.link == "mean" else 0.0
    assert np.array_equal(read(rows), score(frame) - shift)
    assert np.allclose(read(rows), imported.ensemble.margin(rows).reshape(-1), rtol=0, atol=1e-5)


def test_a_pair_in_the_wrong_direction_is_no_counterexample() -> None:
    """What replay says does not depend on who has found the pair."""
    model, _ = trained("xgboost")
    frame, _ = table()
    imported = load_model(model)
    classes = model.predict(frame)
    low, high = frame[classes == 0].iloc[[0]], frame[classes == 1].iloc[[0]]
    for direction in ("increasing", "decreasing"):
        result = quantify(model, space("xgboost"), Monotonicity("income", direction), engine="exhaustive")
        values = GridValues(result.asked.grid)
        pair = [[rows[name].to_numpy(np.float64) for name in values.grid.space.names] for rows in (low, high)]
        more = high["income"].iloc[0] > low["income"].iloc[0]
        for x, other in (pair, pair[::-1]):
            said = replayed(imported, values, x, other)
            assert said is not None
            assert said.tolist() == [more == (direction == "decreasing")]


def test_a_partner_that_is_not_confident_is_no_counterexample() -> None:
    model, _ = trained("forest")
    frame, _ = table()
    p = model.predict_proba(frame)[:, 1]
    x = frame[p < 0.2].iloc[[0, 0]]
    other = pd.concat([frame[(p > 0.5) & (p < 0.6)].iloc[[0]], frame[p > 0.8].iloc[[0]]])
    grid = quantify(model, space("forest"), Fairness("sex", partner_kappa=0.7)).asked.grid
    values = GridValues(grid)
    pair = [[rows[name].to_numpy(np.float64) for name in grid.space.names] for rows in (x, other)]
    said = replayed(load_model(model), values, *pair)
    assert said is not None
    assert said.tolist() == [False, True]


@pytest.mark.parametrize("library", ["xgboost", "hist"])
def test_given_rows_are_replayed_too(library: str) -> None:
    model, score = trained(library)
    frame, _ = table()
    some = 0
    for prop in QUESTIONS:
        found = check(model, space(library), prop, frame.head(150))
        assert found.replayed
        if not len(found.x):
            continue
        some += 1
        denied = found.x.index[~says(model, score, prop, found.x, found.witness)]
        assert found.disagreements == denied.tolist()
        assert len(denied) <= 2
        assert found.x.equals(frame.loc[found.x.index, found.x.columns].astype(found.x.dtypes))
    assert some >= 4
