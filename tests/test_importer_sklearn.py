"""The scikit-learn importer decides every row as the library does, and says exactly why not."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.tree._tree import Tree

from boxqte.ensemble import Missing, Test
from boxqte.errors import ModelError
from boxqte.importers import load_model
from tests.conformance.suite import assert_conforms, boundary_rows

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


def leaves_of_hist(model: HistGradientBoostingClassifier, rows: Any) -> np.ndarray:
    """Histogram boosting has no apply(): its own traversal, with the values replaced by node numbers."""
    inside = model._preprocess_X(rows, reset=False)
    known, columns = model._bin_mapper.make_known_categories_bitsets()
    reached = []
    for predictor in (p for iteration in model._predictors for p in iteration):
        nodes = predictor.nodes.copy()
        nodes["value"] = np.arange(len(nodes))
        numbered = TreePredictor(nodes, predictor.binned_left_cat_bitsets, predictor.raw_left_cat_bitsets)
        reached.append(numbered.predict(inside, known, columns, 1))
    return np.stack(reached, axis=1).astype(int)


def class_indices(model: Any, rows: Any) -> np.ndarray:
    labels = list(model.classes_)
    return np.array([labels.index(label) for label in model.predict(rows)])


def conforms(model: Any, missing: bool) -> None:
    imported = load_model(model)
    with np.errstate(over="ignore"):  # a split of missing values against all others has the largest number as threshold
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
