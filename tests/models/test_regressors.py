"""Models that predict a number: read as their library computes it, refused for class questions, decided by a threshold."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import lightgbm
import numpy as np
import pandas as pd
import pytest
import skops.io
import xgboost
from catboost import CatBoostRegressor
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from boxqte import Attribute, Fairness, Space, quantify
from boxqte.certify import certify
from boxqte.cli.main import main
from boxqte.errors import ModelError, PropertyError
from boxqte.models.importers import ImportedModel, load_model
from boxqte.models.scores import with_value_threshold
from tests.conformance.mutations import mutate_bytes, mutate_document, refused_or_sound
from tests.conformance.suite import assert_conforms, beyond_rounding, boundary_rows

N = 160
pytestmark = pytest.mark.usefixtures("one_thread")


def data() -> tuple[np.ndarray, np.ndarray]:
    """Targets within (0, 1), as every objective takes them."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=N), rng.integers(0, 6, N), rng.random(N) * 1e-3])
    y = X[:, 0] + X[:, 1] - 1e3 * X[:, 2] + rng.normal(size=N) * 0.2
    return X, (y - y.min() + 0.1) / (y.max() - y.min() + 0.2)


def xgb(objective: str, **options: Any) -> Any:
    return xgboost.XGBRegressor(n_estimators=4, max_depth=3, n_jobs=1, objective=objective, **options)


def lgb(objective: str, **options: Any) -> Any:
    return lightgbm.LGBMRegressor(n_estimators=4, max_depth=3, n_jobs=1, verbose=-1, objective=objective, **options)


def cat(loss: str) -> Any:
    return CatBoostRegressor(
        iterations=4, depth=3, loss_function=loss, verbose=0, thread_count=1, allow_writing_files=False
    )


def hist(**options: Any) -> Any:
    return HistGradientBoostingRegressor(max_iter=4, max_leaf_nodes=9, min_samples_leaf=5, **options)


def tree(depth: int = 3) -> Any:
    return DecisionTreeRegressor(max_depth=depth, random_state=0)


def boosted(**options: Any) -> Any:
    return GradientBoostingRegressor(n_estimators=4, random_state=0, **options)


@dataclass(frozen=True)
class Case:
    """One kind of model that predicts a number: how it is made, its link, or why it is refused."""

    kind: str
    make: Callable[[], Any]
    link: Literal["identity", "exp", "sigmoid", "refused"] = "identity"
    words: str = ""


CASES = (
    *(Case(f"XGBRegressor {objective}", lambda o=objective: xgb(o)) for objective in (
        "reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror")),
    Case("XGBRegressor reg:quantileerror", lambda: xgb("reg:quantileerror", quantile_alpha=0.3)),
    *(Case(f"XGBRegressor {objective}", lambda o=objective: xgb(o), "exp") for objective in (
        "count:poisson", "reg:gamma", "reg:tweedie")),
    Case("XGBRegressor reg:logistic", lambda: xgb("reg:logistic"), "sigmoid"),
    Case("XGBRegressor dart", lambda: xgb("reg:squarederror", booster="dart", rate_drop=0.5)),
    Case("XGBRFRegressor", lambda: xgboost.XGBRFRegressor(n_estimators=4, max_depth=3, n_jobs=1)),
    Case("XGBRegressor, several quantiles", lambda: xgb("reg:quantileerror", quantile_alpha=[0.3, 0.6]), "refused",
         "num_target: 2 labels at once"),
    Case("XGBRegressor binary:hinge", lambda: xgb("binary:hinge"), "refused", "'binary:hinge' predicts no probability"),
    *(Case(f"LGBMRegressor {objective}", lambda o=objective: lgb(o)) for objective in (
        "regression", "regression_l1", "huber", "fair", "quantile", "mape")),
    *(Case(f"LGBMRegressor {objective}", lambda o=objective: lgb(o), "exp") for objective in (
        "poisson", "gamma", "tweedie")),
    Case("LGBMRegressor rf", lambda: lgb("regression", boosting_type="rf", bagging_freq=1, bagging_fraction=0.5)),
    Case("LGBMRegressor reg_sqrt", lambda: lgb("regression", reg_sqrt=True), "refused", "'regression sqrt' squares"),
    *(Case(f"CatBoostRegressor {loss}", lambda s=loss: cat(s)) for loss in (
        "RMSE", "MAE", "Quantile", "Huber:delta=1", "Expectile:alpha=0.3", "Lq:q=2", "MAPE", "LogCosh")),
    *(Case(f"CatBoostRegressor {loss}", lambda s=loss: cat(s), "exp") for loss in (
        "Poisson", "Tweedie:variance_power=1.5")),
    Case("CatBoostRegressor RMSEWithUncertainty", lambda: cat("RMSEWithUncertainty"), "refused",
         "'RMSEWithUncertainty' is not supported"),
    Case("DecisionTreeRegressor", tree),
    Case("ExtraTreeRegressor", lambda: ExtraTreeRegressor(max_depth=4, random_state=0)),
    Case("RandomForestRegressor", lambda: RandomForestRegressor(5, max_depth=4, random_state=0)),
    Case("ExtraTreesRegressor", lambda: ExtraTreesRegressor(5, max_depth=4, random_state=0)),
    *(Case(f"GradientBoostingRegressor {loss}", lambda s=loss: boosted(loss=s)) for loss in (
        "squared_error", "absolute_error", "huber", "quantile")),
    Case("GradientBoostingRegressor from zero", lambda: boosted(init="zero")),
    Case("GradientBoostingRegressor on a line", lambda: boosted(init=LinearRegression()), "refused",
         "init: 'LinearRegression' is not read"),
    Case("HistGradientBoostingRegressor", hist),
    Case("HistGradientBoostingRegressor absolute_error", lambda: hist(loss="absolute_error")),
    Case("HistGradientBoostingRegressor quantile", lambda: hist(loss="quantile", quantile=0.3)),
    Case("HistGradientBoostingRegressor poisson", lambda: hist(loss="poisson"), "exp"),
    Case("HistGradientBoostingRegressor gamma", lambda: hist(loss="gamma"), "exp"),
    Case("BaggingRegressor", lambda: BaggingRegressor(tree(), 4, max_features=0.7, random_state=0)),
    Case("BaggingRegressor of boosting", lambda: BaggingRegressor(boosted(), 3, random_state=0)),
    Case("BaggingRegressor of exponentials", lambda: BaggingRegressor(hist(loss="gamma"), 2, random_state=0), "refused",
         "predicts exp of a sum of trees, and a mean of these is none"),
    Case("VotingRegressor", lambda: VotingRegressor(
        [("a", boosted()), ("b", xgb("reg:squarederror"))], weights=[0.3, 2])),
    Case("AdaBoostRegressor", lambda: AdaBoostRegressor(n_estimators=2), "refused", "a weighted median"),
    Case("StackingRegressor", lambda: StackingRegressor([("a", tree())], cv=2), "refused", "a model of its members'"),
    Case("GridSearchCV of a regressor", lambda: GridSearchCV(tree(), {"max_depth": [2, 3]}, cv=2)),
)  # fmt: skip
READ = [case for case in CASES if case.link != "refused"]


@cache
def fitted(kind: str) -> Any:
    X, y = data()
    if kind.endswith("hinge"):
        y = (y > 0.5).astype(float)
    return next(case for case in CASES if case.kind == kind).make().fit(X, y)


def unlinked(values: np.ndarray, link: str) -> np.ndarray:
    wide = np.asarray(values, np.float64)
    return np.log(wide) if link == "exp" else np.log(wide / (1 - wide)) if link == "sigmoid" else wide


def leaves_of(model: Any, rows: np.ndarray) -> np.ndarray | None:
    """The library's own leaf numbers, [rows, trees], where it tells them."""
    if isinstance(model, lightgbm.LGBMRegressor):
        return model.predict(rows, pred_leaf=True)
    if isinstance(model, CatBoostRegressor):
        return model.calc_leaf_indexes(rows)
    if hasattr(model, "estimators_features_"):
        members = zip(model.estimators_, model.estimators_features_)
        return np.concatenate([leaves_of(member, rows[:, columns]) for member, columns in members], axis=1)
    if isinstance(model, VotingRegressor):
        return np.concatenate([leaves_of(member, rows) for member in model.estimators_], axis=1)
    return model.apply(rows).reshape(len(rows), -1) if hasattr(model, "apply") else None


def assert_values_conform(imported: ImportedModel, model: Any, missing: bool = False) -> None:
    ensemble = imported.ensemble
    rows = boundary_rows(ensemble, n_random=100, missing=missing)
    leaves = leaves_of(model, rows)
    if leaves is not None:
        assert_conforms(ensemble, rows, leaves)
    assert imported.values is not None
    assert imported.native is None
    theirs = model.predict(rows)
    np.testing.assert_array_equal(np.asarray(imported.values(rows)), theirs)
    error = ensemble.rounding_error() + Fraction(1, 2**40)  # the last for our own logarithm
    for (margin,), value in zip(ensemble.exact_margin(rows), unlinked(theirs, ensemble.link).tolist()):
        assert abs(margin - Fraction(value)) <= error


@pytest.mark.parametrize("case", READ, ids=lambda case: case.kind)
def test_a_number_is_the_library_s_on_every_boundary_row(case: Case) -> None:
    model = fitted(case.kind)
    imported = load_model(model)
    assert imported.ensemble.link == case.link
    assert imported.ensemble.classes == ()
    assert imported.objective
    assert_values_conform(imported, model)


@pytest.mark.parametrize("case", [case for case in CASES if case.link == "refused"], ids=lambda case: case.kind)
def test_what_is_no_function_of_a_sum_of_trees_is_refused_in_one_line(case: Case) -> None:
    with pytest.raises(ModelError, match=case.words) as caught:
        load_model(fitted(case.kind))
    assert len(str(caught.value).splitlines()) == 1


def test_rankers_are_read_as_scores() -> None:
    X, y = data()
    grades = (y > 0.5).astype(int)
    ranker = xgboost.XGBRanker(n_estimators=3, max_depth=3, n_jobs=1).fit(X, grades, qid=np.arange(N) // 40)
    assert_values_conform(load_model(ranker), ranker)
    other = lightgbm.LGBMRanker(n_estimators=3, n_jobs=1, verbose=-1).fit(X, grades, group=[40] * 4)
    imported = load_model(other)
    assert imported.objective == "lambdarank"
    rows = boundary_rows(imported.ensemble, missing=False)
    assert_conforms(imported.ensemble, rows, other.predict(rows, pred_leaf=True))


FILES: dict[str, Callable[[Any, Path], object]] = {
    "json": lambda model, path: model.save_model(path),
    "ubj": lambda model, path: model.save_model(path),
    "txt": lambda model, path: model.booster_.save_model(path),
    "catboost.json": lambda model, path: model.save_model(str(path), format="json"),
    "pkl": lambda model, path: path.write_bytes(pickle.dumps(model)),
    "skops": lambda model, path: skops.io.dump(model, path),
}


@pytest.mark.parametrize(("kind", "file"), [
    ("XGBRegressor reg:squarederror", "json"), ("XGBRegressor reg:gamma", "ubj"), ("XGBRegressor reg:logistic", "json"),
    ("XGBRegressor dart", "json"), ("LGBMRegressor regression", "txt"), ("LGBMRegressor poisson", "txt"),
    ("LGBMRegressor rf", "txt"), ("CatBoostRegressor RMSE", "catboost.json"), ("CatBoostRegressor Poisson", "catboost.json"),
    ("RandomForestRegressor", "pkl"), ("RandomForestRegressor", "skops"), ("HistGradientBoostingRegressor poisson", "skops"),
    ("VotingRegressor", "pkl"),
])  # fmt: skip
def test_a_file_is_the_live_model(kind: str, file: str, tmp_path: Path) -> None:
    model, path = fitted(kind), tmp_path / f"model.{file}"
    FILES[file](model, path)
    live, read = load_model(model), load_model(path, allow_pickle=True)
    X, _ = data()
    assert live.values is not None
    assert read.values is not None
    assert read.objective == live.objective
    assert read.ensemble.link == live.ensemble.link
    assert read.ensemble.exact_margin(X) == live.ensemble.exact_margin(X)
    tolerance = 1e-15 if "catboost" in file else 0  # which changes leaf values in the last digit when it reads its JSON
    np.testing.assert_allclose(read.values(X), live.values(X), rtol=tolerance, atol=0)


@pytest.mark.parametrize(("kind", "file"), [
    ("XGBRegressor reg:gamma", "json"), ("LGBMRegressor tweedie", "txt"), ("CatBoostRegressor Poisson", "catboost.json"),
])  # fmt: skip
def test_damaged_files_are_refused_or_sound(kind: str, file: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{file}"
    FILES[file](fitted(kind), path)
    whole = path.read_bytes()
    found = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        what = "bytes"
        if seed % 2 or file == "txt":
            path.write_bytes(mutate_bytes(whole, rng))
        else:
            broken, what = mutate_document(json.loads(whole), rng)
            path.write_text(json.dumps(broken))
        found.append(refused_or_sound(lambda: load_model(path), f"seed {seed}: {what}"))
    assert "refused" in found


# ---------------------------------------------------------------------------------------------------------------------
# Class questions


SPACE = Space([Attribute.real("x0", -3, 3), Attribute.integer("x1", 0, 5), Attribute.real("x2", 0, "0.001")])
REFUSAL = "the model predicts a number, not a class; give a decision threshold on the value"


def test_class_questions_are_refused_in_one_line_that_says_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = fitted("DecisionTreeRegressor")
    with pytest.raises(ModelError, match=REFUSAL):
        quantify(model, SPACE, Fairness(["x1"]))
    path, space = tmp_path / "model.json", tmp_path / "space.json"
    fitted("XGBRegressor reg:squarederror").save_model(path)
    SPACE.save(space)
    assert main(["quantify", str(path), "--space", str(space), "--sensitive", "x1"]) == 2
    error = capsys.readouterr().err
    assert REFUSAL in error
    assert len(error.strip().splitlines()) == 1


def test_model_show_says_that_it_is_a_number_and_of_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.json"
    fitted("XGBRegressor reg:gamma").save_model(path)
    assert main(["model", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "none: predicts a number (reg:gamma)" in shown
    assert "value = exp(F)" in shown
    assert "\ntie" not in shown


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("kind", [
    "XGBRegressor reg:squarederror", "XGBRegressor count:poisson", "XGBRegressor reg:logistic", "LGBMRegressor regression",
    "LGBMRegressor gamma", "CatBoostRegressor RMSE", "CatBoostRegressor Poisson", "RandomForestRegressor",
    "HistGradientBoostingRegressor gamma", "VotingRegressor",
])  # fmt: skip
def test_a_threshold_decides_as_a_comparison_of_the_library_s_values(kind: str, exclusive: bool) -> None:
    model = fitted(kind)
    imported = load_model(model)
    rows = boundary_rows(imported.ensemble, n_random=100, missing=False)
    values = model.predict(rows)
    for threshold in (0.3, 0.5, float(np.quantile(values, 0.4)), float(values.max()) * 0.999):
        decided = with_value_threshold(imported, threshold, exclusive=exclusive)
        expected = (values > threshold) if exclusive else (values >= threshold)
        clear = beyond_rounding(decided.ensemble, rows)
        assert clear.any()
        np.testing.assert_array_equal(decided.ensemble.predict(rows)[clear], expected[clear])
        assert decided.native is not None
        np.testing.assert_array_equal(decided.native(rows), expected)


def test_a_leaf_at_the_threshold_is_class_1_unless_it_is_exclusive() -> None:
    tree = DecisionTreeRegressor().fit([[0], [1], [2]], [0.1, 0.3, 0.7])
    for threshold in (0.3, "0.3", "3/10"):
        decided = with_value_threshold(load_model(tree), threshold).ensemble
        assert decided.predict([[0], [1], [2]]).tolist() == [0, 1, 1]
        exclusive = with_value_threshold(load_model(tree), threshold, exclusive=True).ensemble
        assert exclusive.predict([[0], [1], [2]]).tolist() == [0, 0, 1]


def test_an_irrational_level_is_passed_between_the_sums_beside_it() -> None:
    """exp(F) >= t for neighbouring floats t: the level lies between the same two sums as the logarithm does."""
    imported = load_model(fitted("HistGradientBoostingRegressor gamma"))
    X, _ = data()
    (margin,) = imported.ensemble.exact_margin(X[:1])[0]
    level = math.exp(margin)
    for t in (np.nextafter(level, 0), np.nextafter(level, 2), level * (1 - 1e-9), level * (1 + 1e-9)):
        decided = with_value_threshold(imported, float(t)).ensemble
        (shifted,) = decided.exact_margin(X[:1])[0]
        assert shifted != 0
        with_digits = _exceeds(margin, Fraction(float(t)))
        assert (shifted > 0) == with_digits == bool(decided.predict(X[:1])[0])


def _exceeds(margin: Fraction, t: Fraction) -> bool:
    """exp(margin) > t, with 60 digits."""
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 60
        power = (Decimal(margin.numerator) / Decimal(margin.denominator)).exp()
        return power > Decimal(t.numerator) / Decimal(t.denominator)


def test_thresholds_that_decide_nothing_are_refused() -> None:
    for kind, threshold, message in (
        ("XGBRegressor count:poisson", 0, "threshold: '0' is not positive"),
        ("XGBRegressor reg:logistic", 1, r"threshold: '1' is outside 0\.\.1"),
        ("XGBRegressor reg:squarederror", 1e39, "beyond the largest float32"),
        ("DecisionTreeRegressor", "1e399", "beyond the largest float64"),
        ("DecisionTreeRegressor", "much", "threshold: expected a finite number"),
    ):
        with pytest.raises(ModelError, match=message):
            with_value_threshold(load_model(fitted(kind)), threshold)
    classifier = xgboost.XGBClassifier(n_estimators=1, n_jobs=1).fit([[0], [1]], [0, 1])
    with pytest.raises(ModelError, match="predicts classes, not a number"):
        with_value_threshold(load_model(classifier), 0.5)


def test_the_measure_is_that_of_the_compared_values_on_every_input(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 6, N), rng.integers(0, 5, N), rng.integers(0, 3, N)])
    frame = pd.DataFrame(X, columns=["a", "b", "s"])
    y = X[:, 0] + X[:, 1] * (X[:, 2] > 0) + rng.normal(size=N)
    space = Space([Attribute.integer("a", 0, 5), Attribute.integer("b", 0, 4), Attribute.categorical("s", [0, 1, 2])])
    inputs = list(product(range(6), range(5), range(3)))
    for model in (RandomForestRegressor(5, max_depth=4, random_state=0), xgb("count:poisson")):
        model.fit(frame, np.maximum(y, 0))
        above = model.predict(pd.DataFrame(inputs, columns=["a", "b", "s"])) >= 4.5
        label = dict(zip(inputs, above.tolist()))
        unfair = [x for x in inputs if any(label[*x[:2], s] != label[x] for s in range(3) if s != x[2])]
        assert unfair
        decided = with_value_threshold(load_model(model), 4.5)
        result = quantify(decided, space, Fairness(["s"]), certificate=tmp_path / "c.bin", workers=1)
        assert result.lower <= 1 - Fraction(len(unfair), len(inputs)) <= result.upper
        assert result.upper - result.lower < 1e-11
        certify(tmp_path / "c.bin", decided.ensemble, space=space, workers=1)
        with pytest.raises(PropertyError, match="kappa: 4/5 asks for confident inputs"):
            quantify(decided, space, Fairness(["s"], kappa="0.8"))
