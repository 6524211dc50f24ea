"""The scikit-learn importer decides every row as the library does, and says exactly why not."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.tree._tree import Tree

from boxqte.errors import ModelError
from boxqte.models.ensemble import Test
from boxqte.models.importers import load_model
from tests.conformance.pipelines import leaves_of_hist
from tests.conformance.suite import assert_conforms, boundary_rows

pytestmark = pytest.mark.usefixtures("one_thread")
N = 240


def data(n_classes: int = 2, missing: bool = False, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows with values that float32 cannot hold, repeated values, and labels that follow the columns."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=N), rng.integers(0, 6, N), rng.random(N) * 1e-3, rng.normal(size=N) * 1e6])
    score = X[:, 0] + (X[:, 1] > 2) - 1e3 * X[:, 2] * (X[:, 3] > 0) + rng.normal(size=N) * 0.3
    y = np.searchsorted(np.quantile(score, np.arange(1, n_classes) / n_classes), score)
    if missing:
        X[rng.random(X.shape) < 0.2] = np.nan
        X[np.isnan(X[:, 1]), 1] = np.where(y[np.isnan(X[:, 1])] == 1, np.nan, 2.0)
    return X, y


def leaves_of(model: Any, rows: np.ndarray) -> np.ndarray:
    """The library's own leaf numbers, [rows, trees]."""
    if isinstance(model, HistGradientBoostingClassifier):
        return leaves_of_hist(model, rows)
    return model.apply(rows).reshape(len(rows), -1)


def class_indices(model: Any, rows: Any) -> np.ndarray:
    labels = list(model.classes_)
    return np.array([labels.index(label) for label in model.predict(rows)])


def conforms(model: Any, missing: bool) -> None:
    imported = load_model(model)
    rows = boundary_rows(imported.ensemble, missing=missing)
    classes = class_indices(model, rows)
    assert_conforms(imported.ensemble, rows, leaves_of(model, rows), classes)
    assert imported.native is not None
    np.testing.assert_array_equal(imported.native(rows), classes)


KINDS: dict[str, Callable[[], Any]] = {
    "DecisionTree": lambda: DecisionTreeClassifier(max_depth=6, random_state=0),
    "ExtraTree": lambda: ExtraTreeClassifier(max_depth=6, random_state=0),
    "RandomForest": lambda: RandomForestClassifier(5, max_depth=5, random_state=0),
    "ExtraTrees": lambda: ExtraTreesClassifier(5, max_depth=5, random_state=0),
    "balanced RandomForest": lambda: RandomForestClassifier(4, max_depth=4, class_weight="balanced", random_state=0),
    "GradientBoosting": lambda: GradientBoostingClassifier(n_estimators=6, learning_rate=0.3, random_state=0),
    "GradientBoosting from zero": lambda: GradientBoostingClassifier(n_estimators=4, init="zero", random_state=0),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=9, min_samples_leaf=5),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_decides_every_boundary_row_as_the_library_does(kind: str, n_classes: int) -> None:
    takes_missing = "GradientBoosting" not in kind or "Hist" in kind
    conforms(KINDS[kind]().fit(*data(n_classes)), missing=takes_missing)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "Gradient" not in kind or "Hist" in kind])
def test_every_kind_fitted_on_missing_values_sends_them_as_the_library_does(kind: str, n_classes: int) -> None:
    conforms(KINDS[kind]().fit(*data(n_classes, missing=True)), missing=True)


# ---------------------------------------------------------------------------------------------------------------------
# Values, ties, links


def test_a_split_of_missing_against_all_other_values_sends_every_value_left() -> None:
    X = np.where(np.arange(40) % 2, np.nan, np.arange(40.0)).reshape(-1, 1)
    for model in (DecisionTreeClassifier(max_depth=1), HistGradientBoostingClassifier(max_iter=1, min_samples_leaf=1)):
        model.fit(X, np.isnan(X[:, 0]))
        ensemble = load_model(model).ensemble
        assert ensemble.predict([[-1e30], [0.0], [1e30], [np.nan]]).tolist() == [0, 0, 0, 1]


def test_a_binary_leaf_holds_the_fraction_of_the_second_class() -> None:
    X, y = data(2)
    model = RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, y)
    ensemble = load_model(model).ensemble
    margin = ensemble.margin(X)[:, 0]
    np.testing.assert_allclose(margin + 0.5, model.predict_proba(X)[:, 1], rtol=0, atol=1e-15)
    assert ensemble.link == "mean"
    assert ensemble.base == (0,)


@pytest.mark.parametrize("pairs", range(1, 12))
def test_fractions_that_do_not_add_up_to_one_tie_where_the_library_ties(pairs: int) -> None:
    y = np.array([0, 1]).repeat(pairs)
    X = np.zeros((len(y), 1))
    # Tenths are rounded, so both fractions are often above or both below one half.
    model = DecisionTreeClassifier().fit(X, y, sample_weight=np.full(len(y), 0.1))
    ensemble = load_model(model).ensemble
    assert ensemble.exact_margin(X[:1])[0][0] == 0
    assert ensemble.predict(X[:1]).tolist() == model.predict(X[:1]).tolist() == [0]


def test_gradient_boosting_sends_a_tie_to_the_positive_class_and_the_others_to_the_negative() -> None:
    X, y = np.zeros((4, 1)), np.array([0, 1, 0, 1])
    for model, expected in (
        (GradientBoostingClassifier(n_estimators=2), 1),
        (GradientBoostingClassifier(n_estimators=2, loss="exponential"), 1),
        (HistGradientBoostingClassifier(max_iter=2), 0),
        (RandomForestClassifier(4, bootstrap=False), 0),
    ):
        model.fit(X, y)
        ensemble = load_model(model).ensemble
        assert ensemble.exact_margin(X[:1])[0][0] == 0
        assert ensemble.predict(X[:1]).tolist() == model.predict(X[:1]).tolist() == [expected]


def test_the_exponential_loss_is_doubled_so_that_the_sigmoid_is_the_library_s_probability() -> None:
    X, y = data(2)
    model = GradientBoostingClassifier(n_estimators=5, loss="exponential", random_state=0).fit(X, y)
    conforms(model, missing=False)
    margin = load_model(model).ensemble.margin(X)[:, 0]
    np.testing.assert_allclose(1 / (1 + np.exp(-margin)), model.predict_proba(X)[:, 1], rtol=1e-14)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "Gradient" in kind])
def test_boosted_margins_are_the_library_s_decision_function(kind: str, n_classes: int) -> None:
    X, y = data(n_classes)
    model = KINDS[kind]().fit(X, y)
    ensemble = load_model(model).ensemble
    theirs = model.decision_function(X).reshape(len(X), -1)
    np.testing.assert_allclose(ensemble.margin(X), theirs, rtol=0, atol=float(ensemble.rounding_error()))


@pytest.mark.parametrize("strategy", ["prior", "most_frequent", "uniform"])
def test_gradient_boosting_may_start_from_any_constant(strategy: str) -> None:
    X, y = data(2)
    model = GradientBoostingClassifier(n_estimators=3, init=DummyClassifier(strategy=strategy), random_state=0).fit(
        X, y
    )
    (base,) = load_model(model).ensemble.base
    assert base == Fraction(float(model._raw_predict_init(X[:1])[0, 0]))


def test_classes_and_names_are_the_model_s_own_and_native_does_not_warn() -> None:
    X, y = data(3)
    frame = pd.DataFrame(X, columns=["age", "number of x", "c", "d"])
    labels = np.array(["high", "low", "middle"])[y]
    for make in KINDS.values():
        model = make().fit(frame, labels)
        imported = load_model(model)
        assert imported.ensemble.feature_names == tuple(frame.columns)
        assert imported.ensemble.classes == ("high", "low", "middle")
        assert imported.native is not None
        np.testing.assert_array_equal(imported.native(X), class_indices(model, frame))


# ---------------------------------------------------------------------------------------------------------------------
# Histogram boosting with categories


def frame_with_categories(seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "amount": rng.normal(size=N).round(2),
            "colour": pd.Categorical(rng.choice(["red", "green", "blue", "grey"], N)),
            "rate": rng.random(N),
            "number": rng.choice([-4, 3, 7, 900], N),
            "flag": rng.random(N) < 0.5,
        }
    )
    score = frame["amount"] + (frame["colour"].isin(["red", "grey"])) * 2 - (frame["number"] == 7) * 2 + frame["flag"]
    return frame, (score > score.median()).astype(int)


UNKNOWN = {"colour": "violet", "number": 12345, "flag": "neither"}


def decoded(ensemble: Any, rows: np.ndarray) -> pd.DataFrame:
    """Rows of codes as a user's frame: unknown codes become values that the model has never seen."""
    columns: dict[str, Any] = {}
    for feature, name in enumerate(ensemble.feature_names):
        if feature in ensemble.categories:
            values = [
                np.nan
                if np.isnan(code)
                else dict(enumerate(ensemble.categories[feature])).get(int(code), UNKNOWN[name])
                for code in rows[:, feature]
            ]
            columns[name] = pd.Series(values, dtype=float if name == "number" else object)
        else:
            columns[name] = rows[:, feature]
    return pd.DataFrame(columns)


@pytest.mark.parametrize("missing", [False, True])
def test_categories_of_every_type_are_split_as_the_library_splits_them(missing: bool) -> None:
    frame, y = frame_with_categories()
    if missing:
        frame["number"] = frame["number"].astype(float)
        frame.loc[::7, ["colour", "number", "amount"]] = np.nan
    model = HistGradientBoostingClassifier(
        max_iter=6, max_leaf_nodes=8, min_samples_leaf=5, categorical_features=["colour", "number", "flag"]
    ).fit(frame, y)
    imported = load_model(model)
    ensemble = imported.ensemble
    assert ensemble.feature_names == tuple(frame.columns)
    assert ensemble.categories == {1: ("blue", "green", "grey", "red"), 3: (-4, 3, 7, 900), 4: (False, True)}
    assert ensemble.known_codes == {1: frozenset(range(4)), 3: frozenset(range(4)), 4: frozenset(range(2))}
    assert (ensemble.test == Test.IN_SET).any()
    rows = boundary_rows(ensemble)
    raw = decoded(ensemble, rows)
    assert_conforms(ensemble, rows, leaves_of_hist(model, raw), class_indices(model, raw))
    assert imported.native is not None
    np.testing.assert_array_equal(imported.native(rows), class_indices(model, raw))


def test_categories_found_by_dtype_in_a_three_class_model_conform() -> None:
    frame, _ = frame_with_categories()
    frame = frame.drop(columns=["flag"])
    y = np.searchsorted([-0.5, 0.5], frame["amount"] + (frame["colour"] == "red"))
    model = HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=6).fit(frame, y)
    ensemble = load_model(model).ensemble
    rows = boundary_rows(ensemble)
    raw = decoded(ensemble, rows)
    assert list(ensemble.categories) == [1]
    assert_conforms(ensemble, rows, leaves_of_hist(model, raw), class_indices(model, raw))


def test_numeric_categories_of_a_model_fitted_without_names_conform() -> None:
    X, y = data(2)
    model = HistGradientBoostingClassifier(max_iter=4, max_leaf_nodes=8, categorical_features=[1]).fit(X, y)
    imported = load_model(model)
    rows = boundary_rows(imported.ensemble)
    raw = rows.copy()
    raw[:, 1] = np.where(np.isin(rows[:, 1], np.arange(6)) | np.isnan(rows[:, 1]), rows[:, 1], 777.0)
    assert_conforms(imported.ensemble, rows, leaves_of_hist(model, raw), class_indices(model, raw))
    assert imported.native is not None
    np.testing.assert_array_equal(imported.native(rows), class_indices(model, raw))


def test_a_split_of_one_category_against_missing_is_read_with_the_bitset_that_the_library_reads() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.normal(size=N), np.where(rng.random(N) < 0.5, np.nan, 4.0), rng.choice([0.0, 1.0, 2.0], N)]
    )
    y = np.isnan(X[:, 1]) ^ (X[:, 2] == 1)
    model = HistGradientBoostingClassifier(max_iter=2, categorical_features=[1, 2]).fit(X, y)
    rows = boundary_rows(load_model(model).ensemble, unseen=False)
    raw = rows.copy()
    raw[:, 1] = np.where(rows[:, 1] == 0, 4.0, np.nan)
    rows[:, 1] = np.where(rows[:, 1] == 0, 0.0, np.nan)
    assert_conforms(load_model(model).ensemble, rows, leaves_of_hist(model, raw), class_indices(model, raw))


# ---------------------------------------------------------------------------------------------------------------------
# Refusals


class MyForest(RandomForestClassifier):
    """Could predict anything."""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (DecisionTreeClassifier(), "DecisionTreeClassifier: not fitted"),
        (RandomForestClassifier(), "RandomForestClassifier: not fitted"),
        (GradientBoostingClassifier(), "GradientBoostingClassifier: not fitted"),
        (HistGradientBoostingClassifier(), "HistGradientBoostingClassifier: not fitted"),
        (make_pipeline(OneHotEncoder(), DecisionTreeClassifier()), "Pipeline: OneHotEncoder is not fitted"),
        (RandomForestRegressor(), "RandomForestRegressor: not fitted"),
        (LogisticRegression(), "LogisticRegression is not read; accepted are exactly"),
        (CalibratedClassifierCV(), "CalibratedClassifierCV: not fitted"),
        (MyForest(), "MyForest is not read"),
        (BaseEstimator(), "BaseEstimator is not read"),
    ],
)
def test_a_model_that_is_not_read_is_refused_in_one_line(model: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        load_model(model)
    assert len(str(caught.value).splitlines()) == 1


def test_several_targets_one_class_and_custom_starts_are_refused() -> None:
    X, y = data(2)
    with pytest.raises(ModelError, match="predicts several targets at once"):
        load_model(RandomForestClassifier(2).fit(X, np.column_stack([y, y])))
    with pytest.raises(ModelError, match=r"classes_: has 1 classes, expected two or more"):
        load_model(DecisionTreeClassifier().fit(X, np.zeros(len(X))))
    for init in (LogisticRegression(max_iter=10_000), DummyClassifier(strategy="stratified")):
        with pytest.raises(ModelError, match=r"init: .* is not read; accepted are None, 'zero'"):
            load_model(GradientBoostingClassifier(n_estimators=1, init=init).fit(X[:, :1], y))


TAMPERINGS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "cycle": (
        lambda s: s["nodes"]["left_child"].__setitem__(1, 0),
        r"tree_.children_left/children_right: node 0 has more",
    ),
    "two parents": (lambda s: s["nodes"]["right_child"].__setitem__(0, 1), "node 1 has more than one parent"),
    "index past the end": (
        lambda s: s["nodes"]["right_child"].__setitem__(0, 999),
        r"children_right\[0\]: 999 is outside",
    ),
    "negative index": (lambda s: s["nodes"]["right_child"].__setitem__(0, -7), r"children_right\[0\]: -7 is outside"),
    "lost subtree": (lambda s: s["nodes"]["left_child"].__setitem__(0, -1), "cannot be reached from the root"),
    "NaN threshold": (lambda s: s["nodes"]["threshold"].__setitem__(0, np.nan), r"threshold\[0\]: nan is not a finite"),
    "-inf threshold": (
        lambda s: s["nodes"]["threshold"].__setitem__(0, -np.inf),
        r"threshold\[0\]: -inf is not a finite",
    ),
    "feature past the end": (lambda s: s["nodes"]["feature"].__setitem__(0, 4), r"feature\[0\]: 4 is outside 0..3"),
    "negative feature": (lambda s: s["nodes"]["feature"].__setitem__(0, -2), r"feature\[0\]: -2 is outside 0..3"),
    "NaN leaves": (lambda s: s["values"].fill(np.nan), r"value.*nan is not a finite number"),
    "infinite leaves": (lambda s: s["values"].fill(np.inf), r"value.*inf is not a finite number"),
    "no nodes": (lambda s: s.update(node_count=0), "tree_: has no nodes"),
}


def tampered(tree: Tree, change: Callable[[dict[str, Any]], Any]) -> Tree:
    cls, arguments, state = tree.__reduce__()
    state = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in state.items()}
    change(state)
    broken = cls(*arguments)
    broken.__setstate__(state)
    return broken


@pytest.mark.parametrize("kind", ["DecisionTree", "RandomForest", "GradientBoosting"])
@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_a_tree_with_tampered_arrays_is_refused(kind: str, tampering: str) -> None:
    change, message = TAMPERINGS[tampering]
    model = KINDS[kind]().fit(*data(2))
    holder = model if kind == "DecisionTree" else np.ravel(model.estimators_)[-1]
    holder.tree_ = tampered(holder.tree_, change)
    with pytest.raises(ModelError, match=message) as caught:
        load_model(model)
    assert len(str(caught.value).splitlines()) == 1


def test_leaves_that_hold_counts_are_refused() -> None:
    model = DecisionTreeClassifier(max_depth=2).fit(*data(2))
    model.tree_ = tampered(model.tree_, lambda s: s["values"].__imul__(240))
    with pytest.raises(ModelError, match=r"tree_.value\[2\]: expected class fractions with sum 1, found"):
        load_model(model)


HIST_TAMPERINGS: dict[str, tuple[str, int, Any, str]] = {
    "cycle": ("left", 1, 0, "node 0 has more than one parent"),
    "index past the end": ("right", 0, 2**31, r"nodes.right\[0\]: 2147483648 is outside"),
    "feature past the end": ("feature_idx", 0, 4, r"feature_idx\[0\]: 4 is outside 0..3"),
    "NaN threshold": ("num_threshold", 0, np.nan, r"num_threshold\[0\]: nan is not a finite number"),
    "categories that the column lacks": ("is_categorical", 0, 1, "which has none"),
    "bitset past the end": ("bitset_idx", 1, 9, r"bitset_idx\[1\]: 9 is outside"),
}


@pytest.mark.parametrize("tampering", HIST_TAMPERINGS)
def test_a_histogram_tree_with_tampered_arrays_is_refused(tampering: str) -> None:
    field, node, value, message = HIST_TAMPERINGS[tampering]
    X, y = data(2)
    model = HistGradientBoostingClassifier(max_iter=1, max_leaf_nodes=4, categorical_features=[1]).fit(X, y)
    nodes = model._predictors[0][0].nodes
    assert not nodes["is_categorical"][0]
    assert nodes["is_categorical"][1]
    nodes[field][node] = value
    with pytest.raises(ModelError, match=message):
        load_model(model)


def test_an_attribute_of_the_wrong_type_is_refused_in_one_line() -> None:
    for attribute, value in [("classes_", 7), ("n_features_in_", "four"), ("estimators_", 3), ("classes_", None)]:
        model = RandomForestClassifier(2, max_depth=2).fit(*data(2))
        setattr(model, attribute, value)
        with pytest.raises(ModelError) as caught:
            load_model(model)
        assert len(str(caught.value).splitlines()) == 1
